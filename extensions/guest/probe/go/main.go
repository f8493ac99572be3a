//go:build wasip1

// Command probe uses all of the SDK and answers what it saw, for the SDK's test.
package main

import (
	"strconv"
	"strings"

	laya "onebit/extensions/guest/go"
)

var settings string

//go:wasmexport laya_configure
func configure(address, length uint32) uint64 {
	return laya.Configure(address, length, func(config laya.JSON) string {
		if config.Get("wrong").Truth() {
			return "it is wrong: \"" + config.Get("note").Text() + "\""
		}
		var list []laya.JSON
		config.Get("list").Each(func(_ string, v laya.JSON) { list = append(list, v) })
		words := []string{config.Get("note").Text(), strconv.Itoa(len(list))}
		if len(list) == 3 {
			words = append(words, flag(list[2].Get("a").Truth()), whole(list[1].Number()*100))
		}
		out := make([]byte, 8)
		n, err := laya.Asset("a.txt", 1, out)
		settings = strings.Join(append(words, code(string(out[:n]), err)), "|")
		return ""
	})
}

//go:wasmexport laya_route
func route(address, length uint32) uint64 { return laya.Run(address, length, decide) }

//go:wasmexport laya_classify
func classify(address, length uint32) uint64 {
	return laya.Run(address, length, func(r *laya.Request) laya.Decision { return laya.Decision{Action: "abstain"} })
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

func whole(v float64) string { return strconv.Itoa(int(v + 0.5)) }

// code is what a function answered, or the number of its failure.
func code(s string, err error) string {
	if c, ok := err.(laya.Code); ok {
		return strconv.Itoa(int(c))
	}
	return s
}

func decide(r *laya.Request) laya.Decision {
	if r.Model == "reject" {
		return laya.Refuse(451, "c", "say \"no\"\n").Because("\u00fc\u0001")
	}
	d := laya.To()
	d.Class, d.Confidence, d.Scores = r.Class, r.Confidence, r.Scores
	for _, c := range r.Candidates {
		d.Candidates = append(d.Candidates, c.ID)
	}
	d.Params = []laya.Pair{{Name: "temperature", Value: "0.5"}, {Name: "stop", Value: `["x"]`}}
	d.Headers = []laya.Pair{{Name: "x-laya-fields", Value: fields(r)}, {Name: "x-laya-first", Value: first(r)}, {Name: "x-laya-box", Value: box(r)}}
	d.RAG = &laya.RAG{Collection: "docs", TopK: 3, Query: "q"}
	d.Reason, d.TTL = settings, 60
	return d
}

func fields(r *laya.Request) string {
	flags := flag(r.Stream) + flag(r.Tools) + flag(r.Images) + flag(r.JSONAnswer)
	return strings.Join([]string{r.ID, r.Conversation, strconv.Itoa(r.Turn), r.API, r.Model, r.Tenant, r.Key, strconv.Itoa(r.Hour), strconv.Itoa(r.Tokens),
		strconv.Itoa(r.Bytes), flags, r.Header("x-team"), r.Header("none"), r.Head, r.Tail}, "|")
}

func first(r *laya.Request) string {
	c := r.Candidates[0]
	return strings.Join([]string{c.ID, c.Backend, c.Device, c.Model, strconv.Itoa(c.Context), flag(c.Healthy), strconv.Itoa(c.Queue),
		whole(c.PromptS * 100), whole(c.DecodeS * 100), flag(c.Sticky), whole(c.Price * 100), whole(c.Load * 100), strconv.Itoa(c.Cached)}, "|")
}

func box(r *laya.Request) string {
	laya.Log(laya.Warn, "seen")
	tokens, err := laya.Tokens(r.Head)
	words := []string{strconv.FormatInt(laya.Now(), 10), code(strconv.Itoa(tokens), err)}
	if r.JSONAnswer {
		c, err := laya.Decide(r.Head, []laya.Pair{{Name: "a", Value: "first"}, {Name: "b", Value: "second"}})
		words = append(words, code(c.Name+":"+whole(c.Confidence*100)+":"+strconv.Itoa(len(c.Scores)), err))
	} else {
		out := make([]float32, 16)
		n, err := laya.Embed(r.Head, out)
		words = append(words, code(strconv.Itoa(n)+":"+whole(float64(out[0])*100), err))
	}
	text := make([]byte, 4)
	n, err := laya.Text(laya.System, 2, text)
	words = append(words, code(string(text[:n]), err))
	err = laya.Set("k", "v1", 60)
	v, err2 := laya.Get("k", 10)
	words = append(words, code("0", err), code(string(v), err2))
	_, err = laya.Add("n", 5, 0)
	sum, err2 := laya.Add("n", -7, 0)
	words = append(words, code("0", err), code(strconv.FormatInt(sum, 10), err2))
	_, err = laya.Get("none", 10)
	_, err2 = laya.Asset("a.txt", 0, text)
	words = append(words, flag(err == nil), code("0", err2))
	return strings.Join(append(words, code("0", laya.Metric(0, 1.5)), code("0", laya.Metric(9, 1))), "|")
}

func main() {}
