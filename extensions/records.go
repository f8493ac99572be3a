package extensions

import (
	"encoding/json"
	"path"
	"slices"
	"strings"
	"time"

	"onebit/extensions/abi"
)

// Module is an uploaded module that passed its checks.
type Module struct {
	SHA256    string          `json:"sha256"`
	Manifest  abi.Manifest    `json:"manifest"`
	Size      int64           `json:"size"`
	Assets    []Asset         `json:"assets,omitempty"`
	Signature string          `json:"signature,omitempty"`    // minisign's text
	Signer    string          `json:"signer,omitempty"`       // id of the key that it was checked with
	Config    json.RawMessage `json:"config,omitempty"`       // that it was tried with
	Takes     bool            `json:"takes_config,omitempty"` // it has laya_configure
	Report    Report          `json:"report"`
	By        string          `json:"-"`
	Added     time.Time       `json:"-"`
}

// Asset is a file that a module reads before its snapshot.
type Asset struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

// Report is what the dry run found.
type Report struct {
	Samples  int   `json:"samples" about:"of the manifest, each with the decision that it names"`
	Hostile  int   `json:"hostile" about:"requests made to make a module fail"`
	Recorded int   `json:"recorded" about:"requests that the box had served before"`
	Units    int64 `json:"units" about:"most that one call used"`
	Pages    int64 `json:"pages" about:"most memory after a call, in pages of 64 KiB"`
	Micros   int64 `json:"micros" about:"median time of a call"`
}

// Choice is a module as it is bound: with its configuration and what it may do.
type Choice struct {
	Module       string           `json:"module"` // SHA-256
	Config       json.RawMessage  `json:"config,omitempty"`
	Capabilities []abi.Capability `json:"capabilities"` // granted: asked for and allowed
	Since        time.Time        `json:"since"`
	By           string           `json:"by"`
}

// Guard says when the box goes back by itself from an active module or a canary. A zero is no limit.
type Guard struct {
	MinCalls     int     `json:"min_calls,omitempty" about:"calls before anything is judged; 50 unless it is given"`
	ErrorRate    float64 `json:"error_rate,omitempty" about:"share of calls that fail, 0 to 1"`
	P99          int64   `json:"p99_ms,omitempty" about:"milliseconds"`
	Disagreement float64 `json:"disagreement,omitempty" about:"share of calls that decide otherwise than the default policy, or for a canary than the active module; 0 to 1"`
}

// What a binding does when its module fails.
const (
	FailOpen   = "open"
	FailReject = "reject"
)

// The bindings that serve everybody. One of another name serves the keys and models that it names.
const (
	PolicyBinding     = "policy"
	ClassifierBinding = "classifier"
)

// Binding is a place that a module can have.
type Binding struct {
	Name      string   `json:"name"`
	Kind      abi.Kind `json:"kind"`
	Keys      []string `json:"keys,omitempty"`   // ids of keys; empty: all
	Models    []string `json:"models,omitempty"` // as clients ask, patterns with *; empty: all
	OnError   string   `json:"on_error"`
	EveryTurn bool     `json:"every_turn,omitempty"` // ask in each turn, not once in a conversation
	Guard     Guard    `json:"guard"`
	Percent   float64  `json:"percent,omitempty"` // of conversations, for the canary
	Active    *Choice  `json:"active,omitempty"`
	Previous  *Choice  `json:"previous,omitempty"`
	Canary    *Choice  `json:"canary,omitempty"`
	Shadow    *Choice  `json:"shadow,omitempty"`
}

// choices are all that it holds.
func (b Binding) choices() map[string]*Choice {
	all := map[string]*Choice{"active": b.Active, "previous": b.Previous, "canary": b.Canary, "shadow": b.Shadow}
	for stage, c := range all {
		if c == nil {
			delete(all, stage)
		}
	}
	return all
}

// serves tells whether a binding is for a request.
func (b Binding) serves(key, model string) bool {
	if len(b.Keys) > 0 && !slices.Contains(b.Keys, key) {
		return false
	}
	if len(b.Models) == 0 {
		return true
	}
	return slices.ContainsFunc(b.Models, func(p string) bool { return matches(p, model) })
}

// weight orders bindings: who names keys comes before who names models, and the last are those for everybody.
func (b Binding) weight() int {
	n := 0
	if len(b.Keys) > 0 {
		n += 2
	}
	if len(b.Models) > 0 {
		n++
	}
	return n
}

// matches compares a name with a pattern, in which * stands for any text.
func matches(pattern, name string) bool {
	// path.Match keeps * from crossing a slash, which names of models hold
	ok, err := path.Match(strings.ReplaceAll(pattern, "/", "\x00"), strings.ReplaceAll(name, "/", "\x00"))
	return ok && err == nil
}

// Who does something.
type Who struct{ Person, Key string }

// System is the box itself.
func System() Who { return Who{Person: "system"} }

// Event is one line of the log of who did what.
type Event struct {
	ID      int64     `json:"id"`
	Time    time.Time `json:"time"`
	Person  string    `json:"person" about:"id, or system"`
	Key     string    `json:"key" about:"id of the API key it came with"`
	Action  string    `json:"action"`
	Module  string    `json:"module" about:"SHA-256; empty where it is about none"`
	Binding string    `json:"binding"`
	Detail  string    `json:"detail"`
}
