package policy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/host"
	"onebit/extensions/payload"
	"onebit/extensions/policy"
	"onebit/extensions/tck"
	"onebit/extensions/worker"
)

// page is a policy as the serve page describes them.
const page = `{"classes": {"code": {"device": "hrx"}, "prose": {"device": "vulkan"}, "short": {"device": "zinc"}, "long_doc": {"device": "rocm"}},
	"min_confidence": 0.16, "default": "vulkan"}`

func request(change func(*abi.Request)) *abi.Request {
	place := func(device string) abi.Candidate {
		return abi.Candidate{ID: device, Backend: device, Device: device, Model: "m-" + device, Context: 8192, Healthy: true}
	}
	r := &abi.Request{
		V: abi.Version, ID: "r", Conversation: "c", Turn: 1, API: "chat", Model: "auto", Key: "key-1", Hour: 14, Tokens: 500, Bytes: 5, Head: `say "hello" \ twice`,
		Candidates: []abi.Candidate{place("vulkan"), place("hrx"), place("zinc")},
	}
	if change != nil {
		change(r)
	}
	return r
}

func class(name string, confidence float64) func(*abi.Request) {
	return func(r *abi.Request) { r.Class, r.Confidence = name, confidence }
}

// decided is a decision in words.
func decided(d *abi.Decision, err error) string {
	if err != nil {
		return "error: " + err.Error()
	}
	if d == nil {
		return "none"
	}
	return strings.Join(d.Candidates, " ") + ": " + d.Reason
}

var cases = []struct {
	name, policy string
	change       func(*abi.Request)
	want         string
}{
	// what the page and the reference say
	{"a class", page, class("code", 0.42), "hrx vulkan zinc: class to hrx"},
	{"another", page, class("prose", 0.17), "vulkan hrx zinc: class to vulkan"},
	{"a third", page, class("short", 1), "zinc vulkan hrx: class to zinc"},
	{"too unsure", page, class("short", 0.159), "vulkan hrx zinc: default vulkan"},
	{"just sure", page, class("short", 0.16), "zinc vulkan hrx: class to zinc"},
	{"no such device here", page, class("long_doc", 1), "vulkan hrx zinc: default vulkan"},
	{"no class", page, nil, "vulkan hrx zinc: default vulkan"},
	{"a class of others", page, class("poem", 1), "vulkan hrx zinc: default vulkan"},
	{"no default here", `{"classes": {}, "default": "npu"}`, class("code", 1), "vulkan hrx zinc: the first"},
	{"the usual default", `{"classes": {"code": {"device": "zinc"}}}`, nil, "hrx vulkan zinc: default hrx"},
	{"the usual minimum", `{"classes": {"code": {"device": "zinc"}}}`, class("code", 0), "zinc vulkan hrx: class to zinc"},
	{"built in", `{}`, class("long_doc", 1), "hrx vulkan zinc: default hrx"},
	{"built in, no hrx", `{}`, func(r *abi.Request) { r.Candidates = slices.Delete(r.Candidates, 1, 2) }, "vulkan zinc: the first"},
	{"not healthy", page, func(r *abi.Request) { class("code", 1)(r); r.Candidates[1].Healthy = false }, "vulkan zinc hrx: class to hrx"},
	{"no room", page, func(r *abi.Request) { class("code", 1)(r); r.Candidates[1].Context = 400 }, "vulkan zinc hrx: class to hrx"},
	{"room unknown", page, func(r *abi.Request) { class("code", 1)(r); r.Candidates[1].Context = 0 }, "hrx vulkan zinc: class to hrx"},
	{"nothing offered", page, func(r *abi.Request) { r.Candidates = nil }, "none"},

	// rules
	{"the first that suits", `{"rules": [{"when": {"class": "code"}, "prefer": ["zinc"]}, {"prefer": ["hrx", "zinc"]}]}`, nil, "hrx zinc vulkan: rule 2"},
	{"a class of a list", `{"rules": [{"name": "work", "when": {"class": ["prose", "code"]}, "prefer": ["zinc"]}]}`, class("code", 0.1), "zinc vulkan hrx: rule work"},
	{"a class of no list", `{"rules": [{"when": {"class": ["prose", "code"]}, "prefer": ["zinc"]}]}`, class("short", 0.1), "hrx vulkan zinc: default hrx"},
	{"nobody said a class", `{"rules": [{"when": {"class": "none"}, "prefer": ["zinc"]}]}`, nil, "zinc vulkan hrx: rule 1"},
	{"no rule, but a class", `{"rules": [{"when": {"api": "response"}, "prefer": ["zinc"]}], "classes": {"code": {"device": "vulkan"}}}`, class("code", 1), "vulkan hrx zinc: class to vulkan"},
	{"confidence", `{"rules": [{"when": {"confidence": {"from": 0.3, "below": 0.5}}, "prefer": ["zinc"]}]}`, class("code", 0.3), "zinc vulkan hrx: rule 1"},
	{"confidence above", `{"rules": [{"when": {"confidence": {"from": 0.3, "below": 0.5}}, "prefer": ["zinc"]}]}`, class("code", 0.5), "hrx vulkan zinc: default hrx"},
	{"tokens", `{"rules": [{"when": {"tokens": {"from": 500}}, "prefer": ["zinc"]}]}`, nil, "zinc vulkan hrx: rule 1"},
	{"fewer tokens", `{"rules": [{"when": {"tokens": {"from": 501}}, "prefer": ["zinc"]}]}`, nil, "hrx vulkan zinc: default hrx"},
	{"hour", `{"rules": [{"when": {"hour": {"from": 9, "below": 17}}, "prefer": ["zinc"]}]}`, nil, "zinc vulkan hrx: rule 1"},
	{"hours over midnight", `{"rules": [{"when": {"hour": {"from": 22, "below": 6}}, "prefer": ["zinc"]}]}`, func(r *abi.Request) { r.Hour = 3 }, "zinc vulkan hrx: rule 1"},
	{"not in the night", `{"rules": [{"when": {"hour": {"from": 22, "below": 6}}, "prefer": ["zinc"]}]}`, nil, "hrx vulkan zinc: default hrx"},
	{"turn", `{"rules": [{"when": {"turn": {"from": 2}}, "prefer": ["zinc"]}]}`, func(r *abi.Request) { r.Turn = 7 }, "zinc vulkan hrx: rule 1"},
	{"model", `{"rules": [{"when": {"model": ["gpt-4o", "au*"]}, "prefer": ["zinc"]}]}`, nil, "zinc vulkan hrx: rule 1"},
	{"another model", `{"rules": [{"when": {"model": ["gpt-*", "auto-2", "aut"]}, "prefer": ["zinc"]}]}`, nil, "hrx vulkan zinc: default hrx"},
	{"key", `{"rules": [{"when": {"key": "key-1"}, "prefer": ["zinc"]}]}`, nil, "zinc vulkan hrx: rule 1"},
	{"another key", `{"rules": [{"when": {"key": ["key-2", "key-3"]}, "prefer": ["zinc"]}]}`, nil, "hrx vulkan zinc: default hrx"},
	{"flags", `{"rules": [{"when": {"tools": true, "stream": false}, "prefer": ["zinc"]}]}`, func(r *abi.Request) { r.Flags.Tools = true }, "zinc vulkan hrx: rule 1"},
	{"other flags", `{"rules": [{"when": {"tools": true, "stream": false}, "prefer": ["zinc"]}]}`, func(r *abi.Request) { r.Flags = abi.Flags{Tools: true, Stream: true} }, "hrx vulkan zinc: default hrx"},
	{"by model", `{"rules": [{"prefer": ["m-zinc"]}]}`, nil, "zinc vulkan hrx: rule 1"},
	{"the warmest", `{"rules": [{"prefer": [{"most": "cached"}, "hrx"]}]}`, func(r *abi.Request) { r.Candidates[2].Cached = 100 }, "zinc hrx vulkan: rule 1"},
	{"hardly warm", `{"rules": [{"prefer": [{"most": "cached", "over": 256}, "hrx"]}]}`, func(r *abi.Request) { r.Candidates[2].Cached = 256 }, "hrx vulkan zinc: rule 1"},
	{"the idlest", `{"rules": [{"prefer": [{"least": "load"}]}]}`, func(r *abi.Request) { r.Candidates[0].Load, r.Candidates[1].Load = 1, 0.5 }, "zinc hrx vulkan: rule 1"},
	{"not the fullest", `{"rules": [{"prefer": [{"least": "load", "over": 0.9}, "hrx"]}]}`, func(r *abi.Request) { r.Candidates[0].Load, r.Candidates[1].Load = 1, 0.5 }, "hrx zinc vulkan: rule 1"},
	{"the shortest line", `{"rules": [{"prefer": [{"least": "queue"}]}]}`, func(r *abi.Request) { r.Candidates[0].Queue = 3 }, "hrx zinc vulkan: rule 1"},
	{"the cheapest", `{"rules": [{"prefer": [{"least": "price"}]}]}`, func(r *abi.Request) { r.Candidates[0].Price, r.Candidates[1].Price = 2.5, 0.1 }, "zinc hrx vulkan: rule 1"},
	{"the fastest", `{"rules": [{"prefer": [{"most": "tg_tps"}, {"most": "pp_tps"}]}]}`, func(r *abi.Request) {
		r.Candidates[1].DecodeS, r.Candidates[2].DecodeS, r.Candidates[2].PromptS = 30.5, 30.5, 900
	}, "zinc hrx vulkan: rule 1"},
	{"where it was", `{"rules": [{"prefer": [{"most": "sticky"}, {"most": "ctx"}]}]}`, func(r *abi.Request) { r.Candidates[2].Sticky, r.Candidates[1].Context = true, 16384 }, "zinc hrx vulkan: rule 1"},
	{"health before all", `{"rules": [{"prefer": ["zinc"]}]}`, func(r *abi.Request) { r.Candidates[2].Healthy = false }, "vulkan hrx zinc: rule 1"},
}

func TestDecide(t *testing.T) {
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			if tt.policy != "{}" {
				if err := policy.Check([]byte(tt.policy)); err != nil {
					t.Fatal(err)
				}
			}
			if got := decided(policy.Decide([]byte(tt.policy), request(tt.change))); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestCheck has a row for each way in which a file can be wrong.
func TestCheck(t *testing.T) {
	rule := func(s string) string { return `{"rules": [{"prefer": ["hrx"]}, ` + s + `]}` }
	when := func(s string) string { return rule(`{"prefer": ["hrx"], "when": {` + s + `}}`) }
	prefer := func(s string) string { return rule(`{"prefer": [` + s + `]}`) }
	for _, tt := range []struct{ file, want string }{
		{page, ""},
		{` {"comment": {"any": [1, null, "\"x\""]}, "classes": {"code": {"device": "hrx", "comment": "fast"}}} `, ""},
		{prefer(`{"over": 1e2, "most": "cached"}, {"least": "load", "over": 0.25}`), ""},
		{`{`, "it is not JSON"},
		{``, "it is not JSON: it is empty"},
		{"{\n  \"classes\": {},\n}", "it is not JSON: line 3, column 1: "},
		{`default: hrx`, "it is not JSON: line 1, column 1: "},
		{`[]`, "it is no JSON object"},
		{`{}`, "it has neither classes nor rules"},
		{`{"min_confidence": 0.5}`, "it has neither classes nor rules"},
		{`{"classes": []}`, "classes is an object"},
		{`{"classes": {"poem": {"device": "hrx"}}}`, `unknown class "poem"; there are code, prose, short and long_doc`},
		{`{"classes": {"none": {"device": "hrx"}}}`, `unknown class "none"`},
		{`{"classes": {"code": {}}}`, `the class "code" has no device`},
		{`{"classes": {"prose": "hrx"}}`, `the class "prose" has no device`},
		{`{"classes": {"code": {"device": 7}}}`, "a device has to be a string"},
		{`{"classes": {"code": {"device": ""}}}`, `the name "" is empty`},
		{`{"classes": {"code": {"device": "a\"b"}}}`, "has a quote or backslash in it"},
		{`{"classes": {"code": {"devise": "hrx"}}}`, `unknown member "devise" of a class`},
		{`{"classes": {"code": {"device": "hrx"}, "code": {"device": "hrx"}}}`, "code"},
		{`{"clases": {}}`, `unknown or repeated member "clases"`},
		{`{"min_connivence": 1}`, `unknown or repeated member "min_connivence"`},
		{`{"classes": {}, "min_confidence": 1.5}`, "a number from 0 to 1"},
		{`{"classes": {}, "min_confidence": "1"}`, "a number from 0 to 1"},
		{`{"classes": {}, "default": null}`, "a name has to be a string"},
		{`{"classes": {}, "default": "` + strings.Repeat("x", 257) + `"}`, "longer than 256"},
		{`{"rules": {}}`, "rules is a list"},
		{rule(`[]`), "rules[1]: a rule is an object"},
		{rule(`{}`), "rules[1]: a rule needs prefer"},
		{rule(`{"prefer": []}`), "rules[1]: prefer is empty"},
		{rule(`{"prefer": "hrx"}`), "rules[1]: prefer is one list"},
		{rule(`{"preffer": ["hrx"]}`), `rules[1]: unknown or repeated member "preffer"`},
		{rule(`{"prefer": ["hrx"], "when": []}`), "rules[1]: when is an object"},
		{prefer(`7`), "rules[1]: prefer lists names"},
		{prefer(`{}`), "needs most or least"},
		{prefer(`{"over": 7}`), "needs most or least"},
		{prefer(`{"most": "beauty"}`), `unknown measure "beauty"`},
		{prefer(`{"most": "load", "least": "queue"}`), "or more than one"},
		{prefer(`{"mots": "load"}`), `unknown member "mots" in prefer`},
		{prefer(strings.Repeat(`"a",`, 30) + `"a"`), "more than 30"},
		{when(`"class": "poem"`), `rules[1]: unknown class "poem"`},
		{when(`"tokens": 7`), "rules[1]: a range is an object"},
		{when(`"tokens": {"least": 7}`), `unknown member "least" of a range`},
		{when(`"tokens": {"from": 7, "below": 7}`), "a range ends before it begins"},
		{when(`"hour": {"from": 25}`), `the bound "from" of a range is out of bounds: hours end at 24`},
		{when(`"tokens": {"from": -1}`), `the bound "from" of a range`},
		{when(`"tools": 1`), "are true or false"},
		{when(`"wheather": true`), `unknown member "wheather" of when`},
		{when(`"key": [7]`), "a name has to be a string"},
		{`{"rules": [` + strings.Repeat(`{"prefer": ["a"]},`, 256) + `{"prefer": ["a"]}]}`, "more than 256 rules"},
		{`{"classes": {}, "comment": "` + strings.Repeat("x", 70_000) + `"}`, "at most 65536"},
	} {
		err := policy.Check([]byte(tt.file))
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%.80s: %v, want %q", tt.file, err, tt.want)
		}
	}
}

// TestNames finds the names in all places of a file.
func TestNames(t *testing.T) {
	file := `{"classes": {"code": {"device": "b"}}, "rules": [{"prefer": ["d", {"most": "cached"}, "b"]}], "default": "a"}`
	if got := strings.Join(policy.Names([]byte(file)), " "); got != "a b d" {
		t.Error(got)
	}
	if got := policy.Names(nil); got != nil {
		t.Error(got)
	}
}

var built struct {
	code []byte
	err  error
}

// module builds the module from its source.
func module(t testing.TB) []byte {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil { // a machine that only measures
		if built.code, err = policy.Module(); err == nil {
			return built.code
		}
	}
	if built.code == nil && built.err == nil {
		out := filepath.Join(t.TempDir(), "policy.wasm")
		said, err := exec.CommandContext(t.Context(), "go", "run", "./compile", "guest/policy.go", out).CombinedOutput()
		if err == nil {
			built.code, err = os.ReadFile(out)
		}
		if err != nil {
			built.err = fmt.Errorf("%w\n%s", err, said)
		}
	}
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.code
}

func load(t testing.TB, config string) *tck.Guest {
	t.Helper()
	m, err := payload.ReadManifest(policy.Manifest())
	if err != nil {
		t.Fatal(err)
	}
	g, err := tck.Load(t.Context(), tck.Module{Code: module(t), Manifest: m, Config: []byte(config)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close(context.Background()) })
	return g
}

func question(t testing.TB, r *abi.Request) tck.Question {
	t.Helper()
	raw, err := payload.AppendRequest(nil, r)
	if err != nil {
		t.Fatal(err)
	}
	return tck.Question{Function: abi.Route, Request: raw, Patience: 40}
}

// TestModule runs the conformance kit, and holds the module to what the source says in this process.
func TestModule(t *testing.T) {
	g := load(t, "{}")
	for _, f := range g.Test(t.Context()) {
		if f.Err != nil {
			t.Errorf("%s: %v", f.Test, f.Err)
		}
	}
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			got, err := load(t, tt.policy).Ask(t.Context(), question(t, request(tt.change)))
			if said := decided(got.Decision, err); said != tt.want {
				t.Errorf("got %q, want %q", said, tt.want)
			}
		})
	}
}

// TestSource: the source in this process answers what the module answers, also to what is no request.
func TestSource(t *testing.T) {
	var all [][]byte
	for _, tt := range cases {
		raw, err := payload.AppendRequest(nil, request(tt.change))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, raw)
	}
	random := rand.New(rand.NewPCG(1, 2))
	whole := all[0]
	for range 300 {
		raw := slices.Clone(all[random.IntN(len(all))])
		for range 1 + random.IntN(3) {
			switch at := random.IntN(len(raw)); random.IntN(4) {
			case 0:
				raw = raw[:at+1]
			case 1:
				raw = slices.Delete(raw, at, min(at+random.IntN(9), len(raw)))
			case 2:
				raw = slices.Insert(raw, at, whole[random.IntN(len(whole))])
			default:
				raw[at] = byte(random.IntN(256))
			}
			if len(raw) == 0 {
				raw = []byte("0")
			}
		}
		all = append(all, raw)
	}
	for _, file := range []string{page, "{}", `{"rules": [{"prefer": [{"most": "cached", "over": 256}, "hrx"]}]}`,
		`{"rules": [{"when": {"hour": {"from": 22, "below": 20}, "model": "au*", "tokens": {"below": 600}}, "prefer": ["zinc", {"least": "load", "over": 0.5}, {"most": "ctx"}]}]}`} {
		g := load(t, file)
		p, err := policy.Open([]byte(file))
		if err != nil {
			t.Fatal(err)
		}
		for _, raw := range all {
			got, err := g.Ask(t.Context(), tck.Question{Function: abi.Route, Request: raw, Patience: 40})
			if _, broken := errors.AsType[*payload.Error](err); err != nil && !broken { // candidates are as they were offered
				t.Fatalf("the module, asked %q: %v", raw, err)
			}
			said, used, err := p.Route(raw, abi.Policy.Limits().Units)
			if err != nil || !bytes.Equal(said, got.Answer) || used > got.Units {
				t.Fatalf("%q under %s: the module says %q for %d units, the source %q for %d, %v", raw, file, got.Answer, got.Units, said, used, err)
			}
		}
	}
}

// TestModuleRefuses: what Check refuses the module does not start with.
func TestModuleRefuses(t *testing.T) {
	m, err := payload.ReadManifest(policy.Manifest())
	if err != nil {
		t.Fatal(err)
	}
	_, err = tck.Load(t.Context(), tck.Module{Code: module(t), Manifest: m, Config: []byte(`{"classes": {"poem": {"device": "hrx"}}}`)})
	if err == nil || !strings.Contains(err.Error(), `unknown class "poem"`) {
		t.Errorf("%v", err)
	}
}

// TestMany: more candidates than fit into an answer, in an order that costs most, stay within the budget.
func TestMany(t *testing.T) {
	r := request(nil)
	r.Candidates = nil
	for i := range 300 {
		r.Candidates = append(r.Candidates, abi.Candidate{ID: fmt.Sprint("place-", i), Device: "vulkan", Model: "m", Healthy: true, Queue: 300 - i})
	}
	g := load(t, `{"rules": [{"prefer": ["a", "b", "c", "d", {"most": "cached"}, {"least": "queue"}]}]}`)
	got, err := g.Ask(t.Context(), question(t, r))
	if err != nil || got.Decision == nil || len(got.Decision.Candidates) < 250 || got.Decision.Candidates[1] == got.Decision.Candidates[0] {
		t.Fatalf("%+v, %v", got.Decision, err)
	}
	t.Logf("%d units", got.Units)
}

// FuzzCheck: no file breaks the reader, and under one that it takes each request is answered with all that was offered.
func FuzzCheck(f *testing.F) {
	f.Add([]byte(page))
	for _, tt := range cases {
		f.Add([]byte(tt.policy))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		if policy.Check(file) != nil {
			return
		}
		d, err := policy.Decide(file, request(class("code", 0.4)))
		if err != nil || d == nil || d.Action != abi.ActionRoute || len(d.Candidates) != 3 {
			t.Fatalf("%s: %+v, %v", file, d, err)
		}
	})
}

// FuzzRequest: what is no request is no opinion, and never an answer that a box would refuse.
func FuzzRequest(f *testing.F) {
	raw, err := payload.AppendRequest(nil, request(class("code", 0.4)))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte(`{"candidates":[{"id":"hrx"}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) == 0 || len(raw) > abi.MaxRequest {
			return
		}
		said := policy.Raw([]byte(page), raw)
		if said == "" {
			return
		}
		if _, err := payload.ReadDecision([]byte(said), payload.Offer{Candidates: []string{"vulkan", "hrx", "zinc"}}); err != nil {
			var wrong *payload.Error
			if !errors.As(err, &wrong) || !strings.HasPrefix(wrong.Path, "candidates") { // they are as they were offered
				t.Fatalf("%s: %s: %v", raw, said, err)
			}
		}
	})
}

// BenchmarkModule: a decision in this process, with the reset that follows.
func BenchmarkModule(b *testing.B) {
	g := load(b, page)
	q := question(b, usual(b))
	measure(b, func() error { _, err := g.Ask(b.Context(), q); return err })
}

// usual is the question of the benchmarks of extensions: a prompt of 1,000 bytes and four candidates, 2 KB.
func usual(b *testing.B) *abi.Request {
	b.Helper()
	return request(func(r *abi.Request) {
		class("code", 0.4)(r)
		r.Head = strings.Repeat("Please explain how the tides work, and why there are two of them in a day. ", 14)[:1000]
		r.Candidates = append(r.Candidates, abi.Candidate{ID: "rocm", Backend: "llama-server", Device: "rocm", Model: "m-rocm", Context: 65536, Healthy: true, PromptS: 900, DecodeS: 40, Price: 4})
	})
}

// BenchmarkNative: a decision as a box makes it, with writing the request and reading the decision: all that a policy adds.
func BenchmarkNative(b *testing.B) {
	p, err := policy.Open([]byte(page))
	if err != nil {
		b.Fatal(err)
	}
	ask := usual(b)
	offer := payload.Offer{}
	for _, c := range ask.Candidates {
		offer.Candidates = append(offer.Candidates, c.ID)
	}
	measure(b, func() error {
		raw, err := payload.AppendRequest(make([]byte, 0, 4<<10), ask)
		if err != nil {
			return err
		}
		said, _, err := p.Route(raw, abi.Policy.Limits().Units)
		if err != nil {
			return err
		}
		d, err := payload.ReadDecision(said, offer)
		if err == nil && d.Candidates[0] != "hrx" {
			err = fmt.Errorf("decided %v", d.Candidates)
		}
		return err
	})
}

// BenchmarkWorker: the same in a worker, as a module of somebody else's is asked.
func BenchmarkWorker(b *testing.B) {
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	dir, program := b.TempDir(), []string{self, worker.Command}
	hash, err := worker.Add(dir, bytes.NewReader(module(b)), 8<<20, "")
	if err != nil {
		b.Fatal(err)
	}
	r, err := worker.Prepare(b.Context(), worker.PrepareConfig{Program: program, Dir: dir, SHA256: hash, Manifest: policy.Manifest()})
	if err != nil {
		b.Fatal(err)
	}
	r.Limits.Deadline = 20 * time.Second
	ask := usual(b)
	w, err := worker.New(worker.Config{Program: program, Dir: dir, SHA256: hash, Manifest: r.Manifest, Limits: r.Limits, Granted: r.Granted,
		Setup: host.Setup{Config: []byte(page), Warm: question(b, request(nil)).Request}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() {
		if err := w.Run(context.Background()); err != nil {
			b.Error(err)
		}
	})
	defer group.Wait()
	defer w.Close()
	if err := w.Ready(b.Context()); err != nil {
		b.Fatal(err)
	}
	offer := payload.Offer{}
	for _, c := range ask.Candidates {
		offer.Candidates = append(offer.Candidates, c.ID)
	}
	measure(b, func() error {
		raw, err := payload.AppendRequest(nil, ask)
		if err != nil {
			return err
		}
		res, err := w.Call(b.Context(), host.Call{Function: abi.Route, Request: raw})
		if err != nil {
			return err
		}
		d, err := payload.ReadDecision(res.Answer, offer)
		if err == nil && d.Candidates[0] != "hrx" {
			err = fmt.Errorf("decided %v", d.Candidates)
		}
		return err
	})
}

// measure reports quantiles, since means tell of other work. Calm is the median of the round of 100 calls that a quarter of the rounds
// were faster than.
func measure(b *testing.B, call func() error) {
	var all, rounds []time.Duration
	for b.Loop() {
		from := time.Now()
		if err := call(); err != nil {
			b.Fatal(err)
		}
		if all = append(all, time.Since(from)); len(all)%100 == 0 {
			rounds = append(rounds, slices.Sorted(slices.Values(all[len(all)-100:]))[50])
		}
	}
	slices.Sort(all)
	slices.Sort(rounds)
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
	b.ReportMetric(us(all[len(all)/2]), "p50-µs")
	b.ReportMetric(us(all[len(all)*99/100]), "p99-µs")
	if len(rounds) > 0 {
		b.ReportMetric(us(rounds[len(rounds)/4]), "calm-µs")
	}
}

// TestMain is a worker's process too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == worker.Command {
		os.Exit(worker.Child(os.Args[2:], os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}
