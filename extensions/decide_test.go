package extensions_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onebit/extensions"
	"onebit/extensions/abi"
	"onebit/extensions/host"
)

// TestDecide: what a module says is taken whole or not at all, and what came of it is said.
func TestDecide(t *testing.T) {
	for name, tt := range map[string]struct {
		guest  guest
		reject bool // on_error
		want   extensions.Outcome
		cause  string
	}{
		"routes":                       {guest: say(`{"v":1,"action":"route","candidates":["large","small"],"reason":"long; \u0007prompt é"}`), want: extensions.Outcome{Candidate: "large", Module: "m", Why: "M; long prompt ?"}},
		"passes over the sick":         {guest: say(`{"v":1,"action":"route","candidates":["sick","large"]}`), want: extensions.Outcome{Candidate: "large", Module: "m", Why: "M"}},
		"has only the sick":            {guest: say(`{"v":1,"action":"route","candidates":["sick"]}`), want: extensions.Outcome{Candidate: "sick", Module: "m", Why: "M"}},
		"has no opinion":               {guest: say(``), want: extensions.Outcome{Candidate: "small", Why: "default; M; abstain"}},
		"abstains":                     {guest: say(`{"v":1,"action":"abstain"}`), want: extensions.Outcome{Candidate: "small", Why: "default; M; abstain"}},
		"rejects":                      {guest: say(`{"v":1,"action":"reject","reject":{"status":403,"code":"blocked","message":"not here"}}`), want: extensions.Outcome{Candidate: "small", Module: "m", Why: "M", Refusal: &extensions.Refusal{Status: 403, Code: "blocked", Message: "not here"}}},
		"sets headers":                 {guest: say(`{"v":1,"action":"route","candidates":["small"],"headers":{"x-laya-rule":"7"}}`), want: extensions.Outcome{Candidate: "small", Module: "m", Why: "M", Headers: map[string]string{"x-laya-rule": "7"}}},
		"names what is not offered":    {guest: say(`{"v":1,"action":"route","candidates":["secret"]}`), want: extensions.Outcome{Candidate: "small", Why: "default; M; error=void"}, cause: "void"},
		"sets a header of others":      {guest: say(`{"v":1,"action":"route","candidates":["small"],"headers":{"set-cookie":"x"}}`), want: extensions.Outcome{Candidate: "small", Why: "default; M; error=void"}, cause: "void"},
		"sets what is not granted":     {guest: say(`{"v":1,"action":"route","candidates":["small"],"params":{"model":"x"}}`), want: extensions.Outcome{Candidate: "small", Why: "default; M; error=void"}, cause: "void"},
		"says nonsense":                {guest: say(`yes`), want: extensions.Outcome{Candidate: "small", Why: "default; M; error=void"}, cause: "void"},
		"traps":                        {guest: failing(host.CauseTrap), want: extensions.Outcome{Candidate: "small", Why: "default; M; error=trap"}, cause: "trap"},
		"takes too long":               {guest: failing(host.CauseTimeout), want: extensions.Outcome{Candidate: "small", Why: "default; M; error=timeout"}, cause: "timeout"},
		"is asked too much":            {guest: broken(fmt.Errorf("calling: %w", extensions.ErrFull)), want: extensions.Outcome{Candidate: "small", Why: "default; M; error=full"}, cause: "full"},
		"is lost":                      {guest: broken(errors.New("the process is gone")), want: extensions.Outcome{Candidate: "small", Why: "default; M; error=worker"}, cause: "worker"},
		"traps, and must not":          {guest: failing(host.CauseTrap), reject: true, want: extensions.Outcome{Why: "M; error=trap", Refusal: &extensions.Refusal{Status: 503, Code: "extension_failed"}}, cause: "trap"},
		"has no opinion, and need not": {guest: say(``), reject: true, want: extensions.Outcome{Candidate: "small", Why: "default; M; abstain"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t)
			hash := f.add("m", tt.guest)
			on := extensions.FailOpen
			if tt.reject {
				on = extensions.FailReject
			}
			f.must(f.Activate(t.Context(), anna, "policy", extensions.Placement{Module: hash, OnError: on}))
			o := f.ask("a")
			if o.Conversation == "" != (o.Refusal != nil) || o.Refusal == nil && o.Ranked[0] != o.Candidate {
				t.Errorf("%+v", o)
			}
			o.Conversation, o.Ranked = "", nil
			label := "m@" + hash[:8]
			tt.want.Why = strings.ReplaceAll(tt.want.Why, "M", "module="+label)
			if tt.want.Module != "" {
				tt.want.Module = label
			}
			if o.Refusal != nil && tt.reject {
				o.Refusal.Message = ""
			}
			if diff := cmp.Diff(tt.want, o); diff != "" {
				t.Error(diff)
			}
			u := f.seat("policy", "active").Usage
			if u.Calls != 1 || tt.cause != "" && u.Causes[tt.cause] != 1 || tt.cause == "" && len(u.Causes) != 0 {
				t.Errorf("%+v", u)
			}
		})
	}
}

func broken(err error) guest {
	return func(r abi.Request, _ host.Call) (string, error) {
		if real(r) {
			return "", err
		}
		return "", nil
	}
}

// TestRequest: what a module gets to see, and what not.
func TestRequest(t *testing.T) {
	f := open(t)
	var seen abi.Request
	var texts []string
	f.activate("policy", f.add("m", func(r abi.Request, c host.Call) (string, error) {
		if real(r) {
			seen = r
			texts = []string{c.Text(abi.LastUser), c.Text(abi.System), c.Text(abi.Whole)}
		}
		return "", nil
	}))
	in := input("")
	in.Stream = true
	in.Header = http.Header{"X-Team": {"red"}, "Authorization": {"Bearer secret"}, "X-Session-Id": {"s1"}}
	in.Body = []byte(`{"tools":[{"type":"function"}],"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"one"},{"role":"assistant","content":"two"},{"role":"user","content":"three"}]}`)
	f.Decide(t.Context(), in)
	if len(seen.Conversation) != 32 || len(seen.Tenant) != 16 {
		t.Errorf("%+v", seen)
	}
	seen.Conversation, seen.Tenant = "", ""
	want := abi.Request{
		V: 1, ID: "real-1", Turn: 2, API: "chat", Model: "auto", Key: "k1", Hour: 3, Tokens: 5, Bytes: 5, Flags: abi.Flags{Stream: true, Tools: true},
		Headers: map[string]string{"x-team": "red"}, Head: "three", Candidates: in.Candidates,
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"three", "Be brief.", "Be brief.\none\ntwo\nthree\n"}, texts); diff != "" {
		t.Error(diff)
	}
}

// TestKept: a conversation keeps its decision for as long as the module says, while its place is there.
func TestKept(t *testing.T) {
	f := open(t)
	n := 0
	f.activate("policy", f.add("m", func(r abi.Request, _ host.Call) (string, error) {
		if !real(r) {
			return "", nil
		}
		n++
		if strings.HasPrefix(r.Head, "for a minute") {
			return `{"v":1,"action":"route","candidates":["large"],"ttl_s":60}`, nil
		}
		return `{"v":1,"action":"route","candidates":["large"]}`, nil
	}))
	f.ask("for ever")
	f.ask("for a minute")
	f.wait(59 * time.Second)
	if !f.ask("for ever").Kept || !f.ask("for a minute").Kept || n != 2 {
		t.Errorf("asked %d times", n)
	}
	f.wait(time.Second)
	if !f.ask("for ever").Kept || f.ask("for a minute").Kept || n != 3 {
		t.Errorf("asked %d times", n)
	}
	in := input("for ever")
	in.Candidates = in.Candidates[:1] // the large one is gone, or not for this key
	if o := f.Decide(t.Context(), in); o.Kept || o.Candidate != "small" {
		t.Errorf("%+v", o)
	}
	in = input("another")
	f.Decide(t.Context(), in)
	in.Candidates[1].Healthy = false // what it was decided for does not answer any more
	if o := f.Decide(t.Context(), in); o.Kept {
		t.Errorf("%+v", o)
	}
	in.Candidates[0].Healthy = false // and neither does the other
	if o := f.Decide(t.Context(), in); !o.Kept {
		t.Errorf("%+v", o)
	}
	// what is refused is asked about again
	f.activate("policy", f.add("guard", say(`{"v":1,"action":"reject","reject":{"status":403,"code":"no","message":"no"}}`)))
	for range 2 {
		if o := f.ask("bad"); o.Refusal == nil || o.Kept {
			t.Errorf("a refusal is kept, or forgotten: %+v", o)
		}
	}
}

// TestEveryTurn: a guard sees each turn, and is always the same one in a conversation.
func TestEveryTurn(t *testing.T) {
	f := open(t)
	yes := true
	ctx := t.Context()
	guard := func(name string) string {
		return f.add(name, func(r abi.Request, _ host.Call) (string, error) {
			if strings.Contains(r.Head, "bomb") {
				return `{"v":1,"action":"reject","reject":{"status":403,"code":"no","message":"no"}}`, nil
			}
			for _, c := range r.Candidates {
				if real(r) && c.Sticky != (r.Turn > 1 && c.ID == "small") {
					return `{"v":1,"action":"route","candidates":["large"],"reason":"it was told of another place"}`, nil
				}
			}
			return "", nil
		})
	}
	f.must(f.Activate(ctx, anna, "policy", extensions.Placement{Module: guard("one"), EveryTurn: &yes}))
	turn := func(text string) extensions.Outcome {
		in := input("")
		in.Header = http.Header{"X-Session-Id": {"s"}}
		in.Body = fmt.Appendf(nil, `{"messages":[{"role":"user","content":%q}]}`, text)
		return f.Decide(ctx, in)
	}
	if o := turn("hello"); o.Refusal != nil || !strings.Contains(o.Why, "module=one@") || o.Candidate != "small" {
		t.Errorf("%+v", o)
	}
	f.activate("policy", guard("two"))
	if o := turn("a bomb"); o.Refusal == nil || !strings.HasPrefix(o.Module, "one@") {
		t.Errorf("%+v", o)
	}
	if o := turn("hello again"); o.Refusal != nil || !strings.HasSuffix(o.Why, "; abstain; kept") || o.Candidate != "small" {
		t.Errorf("%+v", o)
	}
}

// TestClassifier: it is asked once in a conversation, and the policy sees what it said.
func TestClassifier(t *testing.T) {
	f := open(t)
	asked := 0
	b := module("laya", abi.Classifier)
	f.runner.guests[hashOf(b)] = func(r abi.Request, c host.Call) (string, error) {
		if c.Function != abi.Classify {
			t.Errorf("called by %s", c.Function)
		}
		if real(r) {
			asked++
		}
		return `{"v":1,"action":"route","class":"code","confidence":0.875,"scores":{"code":0.875,"prose":0.125}}`, nil
	}
	m, err := f.push(upload{module: b, manifest: `{"name":"laya","version":"1.0.0","abi":1,"kind":"classifier","classes":["code","prose"]}`, assets: map[string]string{"weights": "7"}})
	f.must(err)
	f.activate("classifier", m.SHA256)
	if o := f.ask("alone"); o.Class != "code" || o.Confidence != 0.875 || o.Why != "default" || o.Candidate != "small" {
		t.Errorf("without a policy: %+v", o)
	}
	f.activate("policy", f.add("m", func(r abi.Request, _ host.Call) (string, error) {
		if r.Class == "code" && r.Confidence == 0.875 && r.Scores["prose"] == 0.125 && real(r) {
			return `{"v":1,"action":"route","candidates":["large"]}`, nil
		}
		return "", nil
	}))
	if o := f.ask("a"); o.Class != "code" || o.Candidate != "large" {
		t.Errorf("%+v", o)
	}
	if o := f.ask("a"); !o.Kept || o.Class != "code" || asked != 2 {
		t.Errorf("%+v, asked %d times", o, asked)
	}
	if u := f.seat("classifier", "active").Usage; u.Classes["code"] != 2 {
		t.Errorf("%+v", u)
	}
}

// TestClassifierBesideGuard: beside a policy that is asked in each turn the classifier is asked once, and what it said holds.
func TestClassifierBesideGuard(t *testing.T) {
	f := open(t)
	asked, seen := 0, 0
	b := module("laya", abi.Classifier)
	f.runner.guests[hashOf(b)] = func(r abi.Request, _ host.Call) (string, error) {
		if real(r) {
			asked++
		}
		return `{"v":1,"action":"route","class":"code","confidence":0.875,"scores":{"code":0.875,"prose":0.125}}`, nil
	}
	m, err := f.push(upload{module: b, manifest: `{"name":"laya","version":"1.0.0","abi":1,"kind":"classifier","classes":["code","prose"]}`, assets: map[string]string{"weights": "7"}})
	f.must(err)
	f.activate("classifier", m.SHA256)
	yes := true
	f.must(f.Activate(t.Context(), anna, "policy", extensions.Placement{EveryTurn: &yes, Module: f.add("guard", func(r abi.Request, _ host.Call) (string, error) {
		if real(r) && r.Class == "code" && r.Confidence == 0.875 {
			seen++
		}
		return `{"v":1,"action":"abstain"}`, nil
	})}))
	for turn := range 3 {
		if o := f.turn("s", fmt.Sprint("turn ", turn)); o.Class != "code" || o.Confidence != 0.875 || o.Kept {
			t.Errorf("turn %d: %+v", turn, o)
		}
	}
	if asked != 1 || seen != 3 {
		t.Errorf("the classifier was asked %d times, and the policy saw its class %d times", asked, seen)
	}
}

// turn is one more message of a conversation that its client names.
func (f *fixture) turn(conversation, text string) extensions.Outcome {
	in := input("")
	in.Header = http.Header{"X-Session-Id": {conversation}}
	in.Body = fmt.Appendf(nil, `{"messages":[{"role":"user","content":%q}]}`, text)
	return f.Decide(f.t.Context(), in)
}

// TestFailedPolicy: where a policy fails, its conversation stays at the place that it has, or else at the default one, and is not
// asked about again. Nothing of an earlier decision goes with it. One that must decide leaves nothing behind.
func TestFailedPolicy(t *testing.T) {
	for name, tt := range map[string]struct {
		onError   string
		everyTurn bool
		say       string // what the policy does in each turn: route (to large), fail
		want      string // where the turns go, and how often the policy was asked
	}{
		"at first":                 {extensions.FailOpen, false, "fail route route", "small small kept small kept, 1"},
		"at first, and must not":   {extensions.FailReject, false, "fail route route", "refused large large kept, 2"},
		"in between":               {extensions.FailOpen, true, "route fail route", "large large large, 3"},
		"in between, and must not": {extensions.FailReject, true, "route fail route", "large refused large, 3"},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t)
			said, at, asked := strings.Fields(tt.say), 0, 0
			hash := f.add("m", func(r abi.Request, _ host.Call) (string, error) {
				if !real(r) {
					return "", nil
				}
				if asked++; said[at] == "fail" {
					return "", &host.CallError{Cause: host.CauseTrap, Detail: "as it should"}
				}
				return `{"v":1,"action":"route","candidates":["large"],"headers":{"x-laya-rule":"7"},"params":{"temperature":1}}`, nil
			})
			f.must(f.Activate(t.Context(), anna, "policy", extensions.Placement{Module: hash, OnError: tt.onError, EveryTurn: &tt.everyTurn}))
			got := ""
			for turn := range said {
				at = turn
				o := f.turn("s", fmt.Sprint("turn ", turn))
				switch {
				case o.Refusal != nil:
					got += "refused "
				case o.Kept:
					got += o.Candidate + " kept "
				default:
					got += o.Candidate + " "
				}
				if o.Refusal == nil && o.Ranked[0] != o.Candidate {
					t.Errorf("turn %d: %+v", turn, o)
				}
				if from := o.Candidate == "large" && said[turn] == "route"; (o.Headers != nil) != from || (o.Params != nil) != from {
					t.Errorf("turn %d has %v and %v of a decision", turn, o.Headers, o.Params)
				}
			}
			if got = fmt.Sprintf("%s, %d", strings.TrimSpace(got), asked); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// TestParams: what a module sets stays within bounds, and what the client asked for.
func TestParams(t *testing.T) {
	f := open(t)
	f.activate("policy", f.add("m", say(`{"v":1,"action":"route","candidates":["small"],"params":{"temperature":7.5,"max_tokens":500}}`)))
	o := f.ask("a")
	if string(o.Params["temperature"]) != "2" || string(o.Params["max_tokens"]) != "100" || len(o.Params) != 2 {
		t.Errorf("%s", o.Params)
	}
	in := input("b")
	in.Body = []byte(`{"messages":[{"role":"user","content":"b"}]}`)
	if o := f.Decide(t.Context(), in); string(o.Params["max_tokens"]) != "500" {
		t.Errorf("%s", o.Params)
	}
}

// TestBreaker: five failures in half a minute spare the module, probes come at growing distances, and after three that fail
// it is not asked any more until somebody activates it again.
func TestBreaker(t *testing.T) {
	f := open(t)
	ill, asked, n := true, 0, 0
	hash := f.add("m", func(r abi.Request, _ host.Call) (string, error) {
		if !real(r) {
			return "", nil
		}
		if asked++; ill {
			return "", &host.CallError{Cause: host.CauseTrap}
		}
		return `{"v":1,"action":"route","candidates":["large"]}`, nil
	})
	f.activate("policy", hash)
	expect := func(what string, want int, why string) {
		t.Helper()
		before := asked
		n++
		o := f.ask(fmt.Sprint("conversation ", n))
		if asked-before != want || !strings.Contains(o.Why, why) {
			t.Fatalf("%s: asked %d times, %+v", what, asked-before, o)
		}
	}
	for range 4 {
		expect("a failure", 1, "error=trap")
	}
	f.wait(31 * time.Second)
	for range 4 {
		expect("too far apart", 1, "error=trap")
	}
	expect("the fifth", 1, "error=trap")
	expect("open", 0, "error=breaker")
	f.wait(5 * time.Second)
	expect("the first probe", 1, "error=trap")
	f.wait(9 * time.Second)
	expect("not yet", 0, "error=breaker")
	f.wait(time.Second)
	ill = false
	expect("the second probe", 1, "module=m@")
	expect("well again", 1, "module=m@")
	ill = true
	for range 5 {
		expect("ill again", 1, "error=trap")
	}
	for _, d := range []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second} {
		expect("between", 0, "error=breaker")
		f.wait(d)
		expect("a probe", 1, "error=trap")
	}
	f.wait(24 * time.Hour)
	expect("suspended", 0, "error=breaker")
	if p := f.Problems(); len(p) != 1 || !strings.Contains(p[0].Text, "again and again") || f.state(hash) != "suspended" {
		t.Errorf("%q, %s", p, f.state(hash))
	}
	if f.seat("policy", "active").Usage.Breaker != "suspended" {
		t.Error("it is not shown")
	}
	ill = false
	f.activate("policy", hash)
	expect("another chance", 1, "module=m@")
}

// TestConfig: each binding gives the module its own configuration, within the module's schema.
func TestConfig(t *testing.T) {
	f := open(t)
	b := module("m", abi.Policy)
	f.runner.guests[hashOf(b)] = func(r abi.Request, _ host.Call) (string, error) {
		if !real(r) {
			return "", nil
		}
		return fmt.Sprintf(`{"v":1,"action":"route","candidates":["small"],"headers":{"x-laya-config":%q}}`, r.Headers["config"]), nil
	}
	_, err := f.push(upload{module: b, config: `{"limit":1}`, manifest: manifest("m", `,"config_schema":{"type":"object","required":["limit"],"properties":{"limit":{"type":"integer"}}}`)})
	f.must(err)
	for _, tt := range []struct{ config, want string }{{"", `{"limit":1}`}, {`{"limit":2}`, `{"limit":2}`}, {"", `{"limit":2}`}} {
		p := extensions.Placement{Module: "m"}
		if tt.config != "" {
			p.Config = []byte(tt.config)
		}
		f.must(f.Activate(t.Context(), anna, "policy", p))
		f.wait(time.Hour)
		if o := f.ask(fmt.Sprint(tt, f.records.actions())); o.Headers["x-laya-config"] != tt.want {
			t.Errorf("%v: %+v", tt, o)
		}
	}
	err = f.Activate(t.Context(), anna, "policy", extensions.Placement{Module: "m", Config: []byte(`{"limit":"x"}`)})
	if refused, ok := errors.AsType[*extensions.RefusedError](err); !ok || refused.Code != "config" {
		t.Error(err)
	}
}

// TestWaitingIsNoFault: calls that never reached the module say nothing about it.
func TestWaitingIsNoFault(t *testing.T) {
	f := open(t)
	waited := fmt.Errorf("%w: %w", extensions.ErrWaited, &host.CallError{Cause: host.CauseTimeout})
	f.activate("policy", f.add("m", broken(waited)))
	for n := range 20 {
		if o := f.ask(fmt.Sprint("conversation ", n)); !strings.HasSuffix(o.Why, "error=timeout") {
			t.Fatalf("call %d: %+v", n, o)
		}
	}
	if u := f.seat("policy", "active").Usage; u.Causes["timeout"] != 20 || u.ErrorRate != 0 || u.Breaker != "closed" {
		t.Errorf("%+v", u)
	}
}
