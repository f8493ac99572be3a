package payload

import (
	"encoding/json"
	"slices"
	"strings"

	"onebit/extensions/abi"
)

// Offer is what an answer may use. What is not in it was not granted.
type Offer struct {
	Candidates []string // ids
	Classes    []string // of the manifest
	Params     []string // names of request parameters that may be set
	RAG        bool
	Reject     bool
}

// Bounds of a decision's parts, below those of abi.
const (
	maxHeaders = 32
	maxTopK    = 100
	maxTTL     = 30 * 24 * 3600 // seconds
)

// headerPrefix begins every header that a guest may set.
const headerPrefix = "x-laya-"

// ReadDecision reads a guest's answer: all of it or, with an error, nothing. nil without an error is "no opinion", the
// answer of length 0. An abstention is a Decision. Members that the contract does not know are passed over. The
// error is an *Error.
func ReadDecision(b []byte, o Offer) (*abi.Decision, error) {
	if len(b) == 0 {
		return nil, nil
	}
	r := newReader("decision", b)
	if len(b) > abi.MaxDecision {
		r.fail("answer less", "%d bytes, at most %d", len(b), abi.MaxDecision)
		return nil, r.end()
	}
	d := decision{reader: r, o: o}
	r.object(d.member)
	d.whole()
	if err := r.end(); err != nil {
		return nil, err
	}
	return &d.d, nil
}

// decision reads one answer.
type decision struct {
	*reader
	o Offer
	d abi.Decision
}

// offered says why s cannot be used.
func offered(list []string) func(string) string {
	return func(s string) string {
		if !slices.Contains(list, s) {
			return "was not offered"
		}
		return ""
	}
}

func (d *decision) member(name string) {
	switch name {
	case "v":
		d.d.V = int(d.reader.whole(abi.Version, abi.Version))
	case "action":
		d.d.Action = abi.Action(d.text())
		switch d.d.Action {
		case abi.ActionRoute, abi.ActionReject, abi.ActionAbstain:
		default:
			d.fail("write route, reject or abstain", "%q is no action", d.d.Action)
		}
	case "class":
		d.d.Class = d.text()
		if why := offered(d.o.Classes)(d.d.Class); d.d.Class != "" && why != "" {
			d.fail("name it in the manifest's classes", "%q %s", d.d.Class, why)
		}
	case "confidence":
		d.d.Confidence = d.between(0, 1)
	case "scores":
		d.d.Scores = d.numbers(offered(d.o.Classes))
	case "candidates":
		d.d.Candidates = d.texts(len(d.o.Candidates), offered(d.o.Candidates))
	case "params":
		d.params()
	case "headers":
		d.headers()
	case "rag":
		d.rag()
	case "reject":
		d.reject()
	case "reason":
		d.d.Reason = d.text()
	case "ttl_s":
		d.d.TTL = int(d.reader.whole(0, maxTTL))
	default:
		d.skip()
	}
}

// whole judges what no member can know alone.
func (d *decision) whole() {
	if d.err != nil {
		return
	}
	reject := d.d.Action == abi.ActionReject
	switch {
	case d.d.V == 0:
		d.fail(`begin it with "v":1`, "the version is missing")
	case d.d.Action == "":
		d.fail("write route, reject or abstain", "the action is missing")
	case reject && d.d.Reject == nil:
		d.fail("add status, code and message", "it rejects and does not say how")
	case !reject && d.d.Reject != nil:
		d.fail(`set the action "reject", or leave the member out`, "it says how to reject and does not reject")
	}
}

const noPower = "ask the operator to grant it"

func (d *decision) params() {
	d.d.Params = map[string]json.RawMessage{}
	d.object(func(name string) {
		if !slices.Contains(d.o.Params, name) {
			d.fail(noPower, "this parameter was not granted")
		}
		d.d.Params[name] = d.raw()
	})
}

func (d *decision) headers() {
	d.d.Headers = map[string]string{}
	d.object(func(name string) {
		v := d.text()
		switch {
		case len(d.d.Headers) == maxHeaders:
			d.fail("", "more than %d headers", maxHeaders)
		case !strings.HasPrefix(name, headerPrefix) || len(name) == len(headerPrefix) || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "":
			d.fail("", "the name of a header begins with %s and has lower-case letters, digits and dashes", headerPrefix)
		case strings.ContainsFunc(v, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }):
			d.fail("", "a control character in a header")
		}
		d.d.Headers[name] = v
	})
}

func (d *decision) rag() {
	if !d.o.RAG {
		d.fail(noPower, "asking for documents was not granted")
	}
	var g abi.RAG
	d.object(func(name string) {
		switch name {
		case "collection":
			g.Collection = d.text()
		case "top_k":
			g.TopK = int(d.reader.whole(1, maxTopK))
		case "query":
			g.Query = d.text()
		default:
			d.skip()
		}
	})
	if d.err == nil && (g.Collection == "" || g.TopK == 0) {
		d.fail("", "collection or top_k is missing")
	}
	d.d.RAG = &g
}

func (d *decision) reject() {
	if !d.o.Reject {
		d.fail(noPower, "rejecting was not granted")
	}
	var j abi.Reject
	d.object(func(name string) {
		switch name {
		case "status":
			j.Status = int(d.reader.whole(400, 499))
		case "code":
			j.Code = d.text()
			if strings.Trim(j.Code, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" || len(j.Code) > 64 {
				d.fail("", "a code has lower-case letters, digits and underscores")
			}
		case "message":
			j.Message = d.text()
		default:
			d.skip()
		}
	})
	if d.err == nil && (j.Status == 0 || j.Code == "" || j.Message == "") {
		d.fail("", "status, code or message is missing")
	}
	d.d.Reject = &j
}
