package guest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onebit/extensions/abi"
	"onebit/extensions/guest"
	"onebit/extensions/host"
	"onebit/extensions/payload"
	"onebit/extensions/tck"
)

// probe builds the module of a language that answers what it saw.
func probe(t *testing.T, lang string) []byte {
	t.Helper()
	if c := compilers[lang]; c.env != "" && os.Getenv(c.env) == "" {
		if os.Getenv("ONEBIT_ALL") != "" {
			t.Fatalf("%s is not set: bash e2e/setup.sh guests says what it must be", c.env)
		}
		t.Skipf("%s is not set: make test-all builds this one", c.env)
	}
	for _, pattern := range []string{"probe/" + lang + "/*", lang + "/laya.*", "../build.sh"} { // a cached result must not outlive them
		list, err := filepath.Glob(pattern)
		if err != nil || len(list) != 1 {
			t.Fatalf("%s: %v, %v", pattern, list, err)
		}
		if _, err := os.ReadFile(list[0]); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(t.TempDir(), "probe.wasm")
	if b, err := exec.CommandContext(t.Context(), "bash", "../build.sh", "one", "probe/"+lang, out).CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, b)
	}
	code, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return code
}

var probed = abi.Manifest{
	Name: "probe", Version: "1", ABI: 1, Kind: abi.Classifier, Classes: []string{"code", "prose"}, Metrics: []string{"hits"},
	Capabilities: []abi.Capability{abi.CapMetric, abi.CapNow, abi.CapTokens, abi.CapEmbed, abi.CapDecide, abi.CapText, abi.CapKV, abi.CapAsset},
}

// asked is a request that has all fields.
func asked() abi.Request {
	return abi.Request{
		V: 1, ID: "r\"1", Conversation: "c0", Turn: 3, API: "chat", Model: "auto", Tenant: "t\\1", Key: "k1", Hour: 13, Tokens: 1234, Bytes: 56,
		Flags: abi.Flags{Stream: true, Images: true}, Headers: map[string]string{"x-team": "r\u00e9d"}, Head: "H\u00fc \U0001F600/x", Tail: "tail\ttab",
		Class: "code", Confidence: 0.875, Scores: map[string]float64{"code": 0.875, "prose": 0.125},
		Candidates: []abi.Candidate{
			{ID: "a-1", Backend: "gpu", Device: "vulkan", Model: "m\u00fc", Context: 32768, Healthy: true, Queue: 2, PromptS: 900.5, DecodeS: 22.25, Sticky: true, Price: 1e-1, Load: 0.75, Cached: 4096},
			{ID: "b", Model: "n"},
		},
	}
}

// TestSDK: the module of each language reads all fields, uses all functions of the box, and writes all of a decision.
func TestSDK(t *testing.T) {
	for _, lang := range guest.Languages() {
		t.Run(lang, func(t *testing.T) {
			code := probe(t, lang)
			m := tck.Module{Code: code, Manifest: probed, Assets: map[string][]byte{"a.txt": []byte("asset")}, Cache: t.TempDir(),
				Config: []byte(`{"list":[1, 2.25 ,{"a":true,"b":[{}]}],"note":"n\u00f6te \"x\""}`)}
			g, err := tck.Load(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close(context.Background())
			all(t, g)
			other(t, g)
			m.Config = []byte(`{"wrong":true,"note":"\\"}`)
			var refused *host.SetupError
			if g, err := tck.Load(t.Context(), m); !errors.As(err, &refused) || refused.Refuse != `it is wrong: "\"` {
				t.Errorf("a wrong configuration: %v, %v", g, err)
			}
		})
	}
}

// box are services with values that the answers show.
func box(log map[string]float64) *host.Services {
	s := tck.Willing()
	s.Now = func() time.Time { return time.UnixMilli(1_700_000_000_123) }
	s.Metric = func(name string, v float64) { log[name] += v }
	s.Embed = func(context.Context, string) ([]float32, error) { return []float32{0.25, 2, 3}, nil }
	return &s
}

func ask(t *testing.T, g *tck.Guest, r abi.Request, log map[string]float64) tck.Answer {
	t.Helper()
	raw, err := payload.AppendRequest(nil, &r)
	if err != nil {
		t.Fatal(err)
	}
	a, err := g.Ask(t.Context(), tck.Question{Function: abi.Route, Request: raw, Services: box(log), Patience: 40, Text: func(p abi.Part) string {
		return []string{"user", "the system", "all"}[p]
	}})
	if r.Model != "reject" && err != nil {
		t.Fatalf("%v: %s", err, a.Answer)
	}
	return a
}

func all(t *testing.T, g *tck.Guest) {
	log := map[string]float64{}
	a := ask(t, g, asked(), log)
	want := &abi.Decision{
		V: 1, Action: abi.ActionRoute, Class: "code", Confidence: 0.875, Scores: map[string]float64{"code": 0.875, "prose": 0.125}, Candidates: []string{"a-1", "b"},
		Headers: map[string]string{
			"x-laya-fields": "r\"1|c0|3|chat|auto|t\\1|k1|13|1234|56|1010|r\u00e9d||H\u00fc \U0001F600/x|tail\ttab",
			"x-laya-first":  "a-1|gpu|vulkan|m\u00fc|32768|1|2|90050|2225|1|10|75|4096",
			"x-laya-box":    "1700000000123|3|3:25|e sy|0|v1|0|-2|0|-5|0|-1",
		},
		RAG: &abi.RAG{Collection: "docs", TopK: 3, Query: "q"}, Reason: "n\u00f6te \"x\"|3|1|225|sset", TTL: 60,
	}
	if a.Decision != nil {
		want.Params = a.Decision.Params
	}
	if diff := cmp.Diff(want, a.Decision); diff != "" {
		t.Error(diff)
	}
	if string(want.Params["temperature"]) != "0.5" || string(want.Params["stop"]) != `["x"]` {
		t.Errorf("parameters: %s", want.Params)
	}
	if log["hits"] != 1.5 || a.HostCalls != 13 {
		t.Errorf("metrics %v, %d calls", log, a.HostCalls)
	}
	if len(a.Log) != 1 || a.Log[0] != (host.Line{Level: abi.Warn, Text: "seen"}) {
		t.Errorf("the log: %v", a.Log)
	}
}

// other asks for the other question, for a rejection, and for nothing.
func other(t *testing.T, g *tck.Guest) {
	r := asked()
	r.Flags.JSON = true
	a := ask(t, g, r, map[string]float64{})
	if got := a.Decision.Headers["x-laya-box"]; !strings.Contains(got, "|a:50:2|") {
		t.Errorf("decide: %q", got)
	}
	r.Model = "reject"
	a = ask(t, g, r, map[string]float64{})
	if want := `{"v":1,"action":"reject","reject":{"status":451,"code":"c","message":"say \"no\"\u000a"},"reason":"` + "ü" + `\u0001"}`; string(a.Answer) != want {
		t.Errorf("a rejection is %s, it must be %s", a.Answer, want)
	}
	abstained, err := g.Ask(t.Context(), tck.Question{Function: abi.Classify, Request: tck.Request("x"), Patience: 40})
	if err != nil || abstained.Decision == nil || abstained.Decision.Action != abi.ActionAbstain {
		t.Errorf("classify: %s, %v", abstained.Answer, err)
	}
}
