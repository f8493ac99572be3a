// Package examples_test builds the example modules and runs them as a box does.
package examples_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/host"
	"onebit/extensions/payload"
	"onebit/extensions/tck"
)

// languages says which source makes which language, the environment variable that names its compiler, and where its SDK is.
var languages = []struct{ source, compiler, sdk string }{
	{"main.go", "", "../guest/go/laya.go"},
	{"policy.c", "ONEBIT_CLANG", "../guest/c/laya.h"},
	{"policy.rs", "ONEBIT_RUSTC", "../guest/rust/laya.rs"},
	{"policy.ts", "ONEBIT_ASC", "../guest/assemblyscript/laya.ts"},
}

// build builds an example, or skips when this is the quick run and its compiler is not there.
func build(t *testing.T, name string) []byte {
	t.Helper()
	for _, l := range languages {
		if _, err := os.Stat(filepath.Join(name, l.source)); err != nil {
			continue
		}
		// what the build script reads is read here too, so that a cached result does not outlive it
		for _, f := range []string{filepath.Join(name, l.source), l.sdk, "../build.sh"} {
			if _, err := os.ReadFile(f); err != nil {
				t.Fatal(err)
			}
		}
		if l.compiler != "" && os.Getenv(l.compiler) == "" {
			if os.Getenv("ONEBIT_ALL") != "" {
				t.Fatalf("%s is not set: bash e2e/setup.sh guests says what it must be", l.compiler)
			}
			t.Skipf("%s is not set: make test-all builds this one", l.compiler)
		}
	}
	out := filepath.Join(t.TempDir(), name+".wasm")
	if b, err := exec.CommandContext(t.Context(), "bash", "../build.sh", "one", name, out).CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", name, err, b)
	}
	code, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return code
}

func manifest(t *testing.T, name string) abi.Manifest {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(name, name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := payload.ReadManifest(b)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func load(t *testing.T, m tck.Module) *tck.Guest {
	t.Helper()
	g, err := tck.Load(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close(context.Background()) })
	return g
}

// example is a question to a module with what it must answer.
type example struct {
	name, config string
	change       func(r *abi.Request)
	prompt       string    // all of it; empty for the head alone
	now          time.Time // zero for the steady one
	want         string    // action and what belongs to it
}

// request has three places: a small one, a large one and a remote one.
func request() abi.Request {
	return abi.Request{
		V: abi.Version, ID: "r", Conversation: "c1", Turn: 1, API: "chat", Model: "auto", Tenant: "red", Tokens: 500, Bytes: 5, Head: "hello",
		Candidates: []abi.Candidate{
			{ID: "cloud-1", Backend: "cloud", Device: "remote", Model: "cloud", Context: 131072, Healthy: true, DecodeS: 90, Price: 5},
			{ID: "large-1", Backend: "gpu", Device: "vulkan", Model: "large", Context: 32768, Healthy: true, DecodeS: 20, PromptS: 900, Price: 2},
			{ID: "small-1", Backend: "cpu", Device: "cpu", Model: "small", Context: 4096, Healthy: true, DecodeS: 60, PromptS: 300, Price: 0.1},
			{ID: "small-2", Backend: "npu", Device: "npu", Model: "small", Context: 4096, Healthy: true, DecodeS: 30, PromptS: 200, Price: 0.1, Queue: 1},
		},
	}
}

func says(text string) func(*abi.Request) { return func(r *abi.Request) { r.Head = text } }
func tokens(n int) func(*abi.Request)     { return func(r *abi.Request) { r.Tokens = n } }
func hour(h, m int) time.Time             { return time.Date(2026, 5, 1, h, m, 0, 0, time.UTC) }
func none(*abi.Request)                   {}

var cases = map[string][]example{
	"size": {
		{"below the first step", `{"steps":[{"below":1000,"model":"small"},{"below":100000,"model":"large"}]}`, none, "", time.Time{}, "route small-1 small-2"},
		{"below the second", `{"steps":[{"below":100,"model":"small"},{"below":100000,"model":"large"}]}`, none, "", time.Time{}, "route large-1"},
		{"above all, no room", `{"steps":[{"below":100,"model":"small"}]}`, tokens(1 << 20), "", time.Time{}, "none"},
		{"a step without a model", `{"steps":[{"below":0,"model":"x"}]}`, none, "", time.Time{}, "refused"},
	},
	"key": {
		{"in the table", `{"tenants":{"red":["large","small"]}}`, none, "", time.Time{}, "route large-1 small-1 small-2"},
		{"everybody else", `{"tenants":{"blue":["large"],"*":["cloud"]}}`, none, "", time.Time{}, "route cloud-1"},
		{"nobody else", `{"tenants":{"blue":["large"]}}`, none, "", time.Time{}, "none"},
		{"strict", `{"tenants":{"blue":["large"]},"strict":true}`, none, "", time.Time{}, "reject 403 no_models"},
		{"no list", `{"tenants":{"red":"large"}}`, none, "", time.Time{}, "refused"},
		{"an escape in a model", `{"tenants":{"red":["lar\u0067e"]}}`, none, "", time.Time{}, "route large-1"},
	},
	"hour": {
		{"inside", `{"spans":[{"from":"08:00","to":"18:00","models":["large"]}]}`, none, "", hour(12, 0), "route large-1"},
		{"at its end", `{"spans":[{"from":"08:00","to":"18:00","models":["large"]}]}`, none, "", hour(18, 0), "none"},
		{"over midnight", `{"spans":[{"from":"22:00","to":"06:00","models":["small"]}]}`, none, "", hour(2, 30), "route small-1 small-2"},
		{"elsewhere", `{"utc_offset_minutes":-300,"spans":[{"from":"22:00","to":"06:00","models":["small"]}]}`, none, "", hour(12, 0), "none"},
		{"no time", `{"spans":[{"from":"8:00","to":"18:00","models":["large"]}]}`, none, "", hour(1, 0), "refused"},
	},
	"language": {
		{"German", `{"languages":{"de":["large"],"en":["small"]}}`, says("Wie ist das Wetter und was ziehe ich an?"), "", time.Time{}, "route large-1 x-laya-language=de"},
		{"English", `{"languages":{"de":["large"],"en":["small"]}}`, says("What is the time and where are you?"), "", time.Time{}, "route small-1 small-2 x-laya-language=en"},
		{"Japanese", `{"languages":{"ja":["large"]}}`, says("天気はどうですか"), "", time.Time{}, "route large-1 x-laya-language=ja"},
		{"Russian", `{"languages":{"ru":["cloud"]}}`, says("Какая сегодня погода?"), "", time.Time{}, "route cloud-1 x-laya-language=ru"},
		{"no words", `{"languages":{"en":["small"]}}`, says("12345"), "", time.Time{}, "none"},
	},
	"cheapest": {
		{"the price, then the speed", "", none, "", time.Time{}, "route small-1 small-2 large-1 cloud-1"},
		{"does not fit the small ones", "", tokens(4000), "", time.Time{}, "route large-1 cloud-1"},
		{"a long queue", `{"queue":0}`, none, "", time.Time{}, "route small-1 large-1 cloud-1 small-2"},
		{"below zero", `{"reserve":-1}`, none, "", time.Time{}, "refused"},
	},
	"warm": {
		{"warm", "", func(r *abi.Request) { r.Candidates[3].Sticky = true }, "", time.Time{}, "route small-2 large-1 small-1 cloud-1"},
		{"too long a queue", `{"patience":0}`, func(r *abi.Request) { r.Candidates[3].Sticky = true }, "", time.Time{}, "route large-1 small-1 cloud-1 small-2"},
		{"a little prompt", "", func(r *abi.Request) { r.Tokens, r.Candidates[3].Sticky = 10, true }, "", time.Time{}, "route large-1 small-1 cloud-1 small-2"},
	},
	"ab": {
		{"all in B", `{"a":"small","b":"large","percent":100}`, none, "", time.Time{}, "route large-1 x-laya-arm=b"},
		{"all in A", `{"a":"small","b":"large","percent":0}`, none, "", time.Time{}, "route small-1 small-2 x-laya-arm=a"},
		{"one model alone", `{"a":"small"}`, none, "", time.Time{}, "refused"},
	},
	"block": {
		{"in the text", `{"words":["Project Falcon"]}`, none, "user: tell me about project,  FALCON!", time.Time{}, "reject 403 blocked"},
		{"inside another word", `{"words":["cat"]}`, none, "concatenate", time.Time{}, "none"},
		{"other letters", `{"words":["ÄPFEL"]}`, none, "drei äpfel", time.Time{}, "reject 403 blocked"},
		{"late", `{"words":["falcon"]}`, none, strings.Repeat("word ", 13000) + "falcon", time.Time{}, "reject 403 blocked"},
	},
	"code": {
		{"by its class", `{"models":["cloud"]}`, func(r *abi.Request) { r.Class, r.Confidence = "code", 0.8 }, "", time.Time{}, "route cloud-1"},
		{"not sure", `{"models":["cloud"]}`, func(r *abi.Request) { r.Class, r.Confidence = "code", 0.5 }, "", time.Time{}, "none"},
		{"by a fence, the largest", "", says("fix\n```go\nx\n```"), "", time.Time{}, "route large-1"},
		{"nonsense", `{"confidence":2}`, none, "", time.Time{}, "refused"},
	},
	"private": {
		{"an address", "", none, "mail ann.lee@example.org please", time.Time{}, "route large-1 small-1 small-2"},
		{"a card", "", none, "4111-1111-1111-1111", time.Time{}, "route large-1 small-1 small-2"},
		{"no card", "", none, "4111-1111-1111-1112", time.Time{}, "none"},
		{"an account", "", none, "DE89 3704 0044 0532 0130 00", time.Time{}, "route large-1 small-1 small-2"},
		{"a phone", "", none, "call +47 22 12 34 56 7", time.Time{}, "route large-1 small-1 small-2"},
		{"a word of the list", `{"words":["Gehalt"]}`, none, "mein gehalt", time.Time{}, "route large-1 small-1 small-2"},
		{"nobody local", `{"remote":["remote","cpu","npu","vulkan"]}`, none, "my password is x", time.Time{}, "reject 422 private"},
		{"more than is read", "", none, strings.Repeat("word ", 14000), time.Time{}, "route large-1 small-1 small-2"},
		{"nothing but digits", "", none, strings.Repeat("4111 1111 1111 1112 ", 3200), time.Time{}, "none"},
		{"nothing but at signs", "", none, strings.Repeat("a@", 32000), time.Time{}, "none"},
		{"nothing", "", none, "a poem about 3 trees @ noon", time.Time{}, "none"},
	},
}

// told writes a decision as the cases do.
func told(d *abi.Decision) string {
	if d == nil || d.Action == abi.ActionAbstain {
		return "none"
	}
	words := append([]string{string(d.Action)}, d.Candidates...)
	if d.Reject != nil {
		words = append(words, fmt.Sprint(d.Reject.Status), d.Reject.Code)
	}
	for name, v := range d.Headers {
		words = append(words, name+"="+v)
	}
	return strings.Join(words, " ")
}

func TestExamples(t *testing.T) {
	folders, err := filepath.Glob("*/README.md")
	if err != nil || len(folders) < 10 {
		t.Fatalf("%d examples, %v", len(folders), err)
	}
	for _, f := range folders {
		name := filepath.Dir(f)
		t.Run(name, func(t *testing.T) {
			m := manifest(t, name)
			if m.Name != name || len(m.Samples) == 0 || len(cases[name]) < 3 {
				t.Fatalf("the manifest says %q with %d samples; there are %d cases", m.Name, len(m.Samples), len(cases[name]))
			}
			module := tck.Module{Code: build(t, name), Manifest: m, Cache: t.TempDir()}
			for _, f := range load(t, module).Test(t.Context()) {
				if f.Err != nil {
					t.Errorf("%s: %v", f.Test, f.Err)
				}
			}
			for _, e := range cases[name] {
				t.Run(e.name, func(t *testing.T) { e.run(t, module) })
			}
		})
	}
}

func (e example) run(t *testing.T, m tck.Module) {
	if e.config != "" {
		m.Config = []byte(e.config)
	}
	if e.want == "refused" {
		g, err := tck.Load(t.Context(), m)
		if err == nil {
			g.Close(t.Context())
			t.Fatalf("the configuration %s is taken", e.config)
		}
		return
	}
	g := load(t, m)
	r := request()
	e.change(&r)
	raw, err := payload.AppendRequest(nil, &r)
	if err != nil {
		t.Fatal(err)
	}
	services := tck.Steady()
	if !e.now.IsZero() {
		services.Now = func() time.Time { return e.now }
	}
	q := tck.Question{Function: g.Function(), Request: raw, Services: &services, Patience: 40}
	if e.prompt != "" {
		q.Text = func(abi.Part) string { return e.prompt }
	}
	a, err := g.Ask(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if got := told(a.Decision); got != e.want {
		t.Errorf("it decides %q, it must be %q; %s", got, e.want, a.Answer)
	}
}

// TestArms: the share of B is about what was asked for, and a conversation stays in its arm.
func TestArms(t *testing.T) {
	counts := map[string]float64{}
	services := tck.Steady()
	services.Metric = func(name string, v float64) { counts[name] += v }
	g := load(t, tck.Module{Code: build(t, "ab"), Manifest: manifest(t, "ab"), Config: []byte(`{"a":"small","b":"large","percent":20}`)})
	inB := 0
	const all = 2000
	for i := range all {
		r := request()
		r.Conversation = fmt.Sprintf("%032x", i)
		raw, err := payload.AppendRequest(nil, &r)
		if err != nil {
			t.Fatal(err)
		}
		q := tck.Question{Function: abi.Route, Request: raw, Services: &services, Patience: 40}
		a, err := g.Ask(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if a.Decision.Headers["x-laya-arm"] == "b" {
			inB++
		}
	}
	if inB < all/5-100 || inB > all/5+100 {
		t.Errorf("%d of %d conversations are in B, at 20%%", inB, all)
	}
	if counts["arm_a"] != all-float64(inB) || counts["arm_b"] != float64(inB) {
		t.Errorf("the metrics counted %v, B had %d", counts, inB)
	}
}

// BenchmarkCall measures one call in this process: a request with four candidates, and fresh memory for the next.
func BenchmarkCall(b *testing.B) {
	for _, name := range []string{"cheapest", "language", "ab", "size"} {
		b.Run(name, func(b *testing.B) {
			code, err := os.ReadFile("../../bin/extensions/" + name + ".wasm")
			if err != nil {
				b.Fatalf("%v: make extensions builds it", err)
			}
			r := request()
			raw, err := payload.AppendRequest(nil, &r)
			if err != nil {
				b.Fatal(err)
			}
			m, err := os.ReadFile(filepath.Join(name, name+".json"))
			if err != nil {
				b.Fatal(err)
			}
			parsed, err := payload.ReadManifest(m)
			if err != nil {
				b.Fatal(err)
			}
			g, err := tck.Load(b.Context(), tck.Module{Code: code, Manifest: parsed})
			if err != nil {
				b.Fatal(err)
			}
			defer g.Close(context.Background())
			services := host.Services{}
			var units int64
			var took []time.Duration
			for b.Loop() {
				a, err := g.Ask(b.Context(), tck.Question{Function: abi.Route, Request: raw, Services: &services, Patience: 40})
				if err != nil {
					b.Fatal(err)
				}
				units, took = a.Units, append(took, a.Took)
			}
			slices.Sort(took)
			b.ReportMetric(0, "ns/op") // has the reading of the answer in it
			b.ReportMetric(float64(units), "units/op")
			b.ReportMetric(float64(took[len(took)/10].Nanoseconds())/1e3, "p10-us")
			b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-us")
		})
	}
}
