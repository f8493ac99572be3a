package extensions_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"onebit/extensions"
	"onebit/extensions/abi"
	"onebit/extensions/host"
)

// TestLifeCycle takes a module from upload to active and back.
func TestLifeCycle(t *testing.T) {
	f := open(t)
	ctx := t.Context()
	if o := f.ask("before"); o.Candidate != "small" || o.Why != "default" || f.Decides() {
		t.Errorf("without a module: %+v", o)
	}
	one, two := f.add("one", to("small")), f.add("two", to("large"))
	if f.state(one) != "ready" {
		t.Errorf("after the upload it is %s", f.state(one))
	}
	f.activate("policy", "one")
	if o := f.ask("first"); o.Candidate != "small" || o.Why != "module=one@"+one[:8]+"; by name" || o.Module == "" || !f.Decides() {
		t.Errorf("active: %+v", o)
	}
	f.must(f.Shadow(ctx, anna, "policy", extensions.Placement{Module: two}))
	if o := f.ask("second"); o.Candidate != "small" {
		t.Errorf("a module in shadow is obeyed: %+v", o)
	}
	f.must(f.Activate(ctx, anna, "policy", extensions.Placement{Percent: 50}))
	if f.state(two) != "canary" || f.state(one) != "active" {
		t.Errorf("%s and %s", f.state(one), f.state(two))
	}
	got := map[string]int{}
	for i := range 400 {
		o := f.ask(fmt.Sprint("canary ", i))
		got[o.Candidate]++
		if o.Candidate == "large" != strings.HasSuffix(o.Why, "; canary") {
			t.Fatalf("%+v", o)
		}
	}
	if got["large"] < 150 || got["large"] > 250 {
		t.Errorf("of 400 conversations a canary of 50%% got %d", got["large"])
	}
	f.must(f.Activate(ctx, anna, "policy", extensions.Placement{}))
	if f.state(two) != "active" || f.state(one) != "previous" {
		t.Errorf("%s and %s", f.state(one), f.state(two))
	}
	if o := f.ask("first"); o.Candidate != "small" || !o.Kept || !strings.HasSuffix(o.Why, "; kept") {
		t.Errorf("a conversation that had begun: %+v", o)
	}
	if o := f.ask("third"); o.Candidate != "large" {
		t.Errorf("a new conversation: %+v", o)
	}
	before := f.runner.running.Load()
	f.must(f.Rollback(ctx, anna, "policy", "by hand"))
	if f.runner.running.Load() != before || f.state(one) != "active" {
		t.Error("the module before was not warm")
	}
	if o := f.ask("fourth"); o.Candidate != "small" {
		t.Errorf("after going back: %+v", o)
	}
	if err := f.Delete(ctx, anna, one); !errors.Is(err, extensions.ErrConflict) {
		t.Errorf("deleting what is active: %v", err)
	}
	f.must(f.Unbind(ctx, anna, "policy"))
	f.must(f.Delete(ctx, anna, "one@1.0.0"))
	if o := f.ask("fifth"); o.Why != "default" || f.state(one) != "gone" {
		t.Errorf("%+v", o)
	}
	if _, err := os.Stat(filepath.Join(f.dir, "modules", one+".wasm")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of a deleted module: %v", err)
	}
	if got, want := f.records.actions(), "upload upload activate shadow canary activate rollback unbind delete"; got != want {
		t.Errorf("the log says %s, not %s", got, want)
	}
}

// TestRestart: what was active is active again before the first question, and what is lost is said and does no harm.
func TestRestart(t *testing.T) {
	f := open(t)
	hash := f.add("one", to("large"))
	f.activate("policy", hash)
	f.stop()
	f.start()
	if o := f.ask("a"); o.Candidate != "large" || f.state(hash) != "active" {
		t.Errorf("after a restart: %+v", o)
	}
	file := filepath.Join(f.dir, "modules", hash+".wasm")
	for name, break_ := range map[string]func() error{
		"damaged": func() error { return os.WriteFile(file, []byte("rotten"), 0o600) },
		"missing": func() error { return os.Remove(file) },
	} {
		f.stop()
		f.must(break_())
		f.start()
		o := f.ask("b")
		if o.Candidate != "small" || o.Why != "default; module=one@"+hash[:8]+"; error=absent" {
			t.Errorf("%s: %+v", name, o)
		}
		if p := f.Problems(); len(p) != 1 || !strings.Contains(p[0].Text, name) || !strings.Contains(p[0].Text, "one@"+hash[:8]) {
			t.Errorf("%s: %q", name, p)
		}
	}
	// the same bytes again mend it
	if _, err := f.push(upload{module: module("one", abi.Policy), manifest: manifest("one", "")}); err != nil {
		t.Fatal(err)
	}
	f.activate("policy", hash)
	if o := f.ask("c"); o.Candidate != "large" || len(f.Problems()) != 0 {
		t.Errorf("mended: %+v, %q", o, f.Problems())
	}
}

// TestGuardGoesBack: a module that does worse than its guard allows is taken out without anybody's doing.
func TestGuardGoesBack(t *testing.T) {
	for name, tt := range map[string]struct {
		guard extensions.Guard
		bad   guest
	}{
		"errors":       {extensions.Guard{MinCalls: 5, ErrorRate: 0.3}, failing(host.CauseTrap)},
		"disagreement": {extensions.Guard{MinCalls: 5, Disagreement: 0.9}, say(`{"v":1,"action":"route","candidates":["large"]}`)},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t)
			f.activate("policy", f.add("good", to("small")))
			bad := f.add("bad", tt.bad)
			f.must(f.Activate(t.Context(), anna, "policy", extensions.Placement{Module: bad, Guard: &tt.guard}))
			for i := range 5 {
				f.ask(fmt.Sprint("conversation ", i))
			}
			for end := time.Now().Add(10 * time.Second); f.state(bad) != "previous" && time.Now().Before(end); {
				time.Sleep(time.Millisecond) // the box goes back in its own goroutine
			}
			if f.state(bad) != "previous" || !strings.HasSuffix(f.records.actions(), " rollback") {
				t.Fatalf("it is %s: %s", f.state(bad), f.records.actions())
			}
			if o := f.ask("afterwards"); !strings.HasPrefix(o.Module, "good@") {
				t.Errorf("%+v", o)
			}
		})
	}
}

// failing is a module that fails on real requests.
func failing(cause host.Cause) guest {
	return func(r abi.Request, _ host.Call) (string, error) {
		if real(r) {
			return "", &host.CallError{Cause: cause, Detail: "as it should"}
		}
		return "", nil
	}
}

// TestReload decides from many sides while modules come and go: every request gets an answer, no conversation sees two
// modules, and no module is asked after its end (the fixture looks).
func TestReload(t *testing.T) {
	f := open(t)
	ctx := t.Context()
	f.activate("policy", f.add("m0", to("small")))
	var group sync.WaitGroup
	done := make(chan struct{})
	for n := range 4 {
		group.Go(func() {
			mine := map[string]string{}
			for i := 0; ; i++ {
				select {
				case <-done:
					if i < 100 {
						t.Errorf("only %d requests in between", i)
					}
					return
				default:
				}
				name := fmt.Sprintf("conversation %d.%d", n, i/20)
				o := f.Decide(ctx, input(name))
				if o.Candidate == "" || o.Module == "" {
					t.Errorf("%+v", o)
					return
				}
				if was := mine[name]; was != "" && was != o.Module {
					t.Errorf("%s was of %s, is of %s", name, was, o.Module)
					return
				}
				mine[name] = o.Module
			}
		})
	}
	for i := range 20 {
		hash := f.add(fmt.Sprint("m", i+1), to([]string{"small", "large"}[i%2]))
		f.activate("policy", hash)
		if i%3 == 0 {
			f.must(f.Rollback(ctx, anna, "policy", ""))
		}
	}
	close(done)
	group.Wait()
	for end := time.Now().Add(10 * time.Second); f.runner.running.Load() > 2 && time.Now().Before(end); {
		time.Sleep(time.Millisecond) // modules end behind the changes
	}
	if n := f.runner.running.Load(); n > 2 {
		t.Errorf("%d modules run, one is active and one warm", n)
	}
}

// TestScope: bindings for some keys or models come before those for everybody.
func TestScope(t *testing.T) {
	f := open(t)
	ctx := t.Context()
	f.activate("policy", f.add("all", to("small")))
	special := f.add("special", to("large"))
	keys, models := []string{"k2"}, []string{"org/*"}
	f.must(f.Activate(ctx, anna, "for-k2", extensions.Placement{Module: special, Keys: &keys}))
	f.must(f.Activate(ctx, anna, "for-org", extensions.Placement{Module: special, Models: &models}))
	for name, tt := range map[string]struct{ key, model, want string }{
		"everybody": {"k1", "auto", "small"}, "a key": {"k2", "auto", "large"}, "a model": {"k1", "org/x", "large"},
	} {
		in := input(name)
		in.Key, in.Model = tt.key, tt.model
		if o := f.Decide(ctx, in); o.Candidate != tt.want {
			t.Errorf("%s: %+v", name, o)
		}
	}
	for name, p := range map[string]extensions.Placement{
		"some":       {Module: special},
		"policy":     {Module: special, Keys: &keys},
		"classifier": {Module: special},
		"Not A Name": {Module: special},
	} {
		if _, ok := errors.AsType[*extensions.RefusedError](f.Activate(ctx, anna, name, p)); !ok {
			t.Errorf("the binding %q was taken", name)
		}
	}
	if err := f.Activate(ctx, anna, "policy", extensions.Placement{Module: "nobody"}); !errors.Is(err, extensions.ErrNotFound) {
		t.Error(err)
	}
}

// TestRecordsFail: what cannot be written down does not happen.
func TestRecordsFail(t *testing.T) {
	f := open(t)
	ctx := t.Context()
	one, two := f.add("one", to("small")), f.add("two", to("large"))
	f.activate("policy", one)
	f.records.fail = errors.New("the disk is full")
	for name, err := range map[string]error{
		"activate": f.Activate(ctx, anna, "policy", extensions.Placement{Module: two}),
		"unbind":   f.Unbind(ctx, anna, "policy"),
		"rollback": f.Rollback(ctx, anna, "policy", ""),
		"delete":   f.Delete(ctx, anna, two),
	} {
		if !errors.Is(err, f.records.fail) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if o := f.ask("a"); o.Candidate != "small" || f.state(one) != "active" || f.state(two) != "ready" {
		t.Errorf("%+v, %s, %s", o, f.state(one), f.state(two))
	}
}

// TestShadow: differences are recorded, without a word of the request.
func TestShadow(t *testing.T) {
	f := open(t)
	f.activate("policy", f.add("one", to("small")))
	f.must(f.Shadow(t.Context(), anna, "policy", extensions.Placement{Module: f.add("two", to("large"))}))
	f.ask("a secret")
	for end := time.Now().Add(10 * time.Second); len(f.Differences()) == 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	d := f.Differences()
	if len(d) != 1 || d[0].Obeyed != "small" || d[0].Shadow != "large" || d[0].Binding != "policy" || len(d[0].Conversation) != 32 {
		t.Fatalf("%+v", d)
	}
	if u := f.seat("policy", "shadow").Usage; u.Calls != 1 || u.Disagreement != 1 {
		t.Errorf("%+v", u)
	}
	if strings.Contains(fmt.Sprint(d), "secret") {
		t.Error(d)
	}
}

// TestGone: whoever leaves while a conversation is being decided waits for nobody, and is no failure of the module.
func TestGone(t *testing.T) {
	f := open(t)
	begun, end := make(chan struct{}), make(chan struct{})
	f.activate("policy", f.add("slow", func(r abi.Request, _ host.Call) (string, error) {
		if real(r) {
			close(begun)
			<-end
		}
		return "", nil
	}))
	var group sync.WaitGroup
	group.Go(func() { f.ask("a") })
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if o := f.Decide(ctx, input("a")); o.Candidate != "small" {
		t.Errorf("%+v", o)
	}
	close(end)
	group.Wait()
	if u := f.seat("policy", "active").Usage; u.Calls != 1 || u.ErrorRate != 0 {
		t.Errorf("%+v", u)
	}
}

// TestProcessesEnd: a module whose processes ended for good fails open, and comes up anew when it is activated again.
func TestProcessesEnd(t *testing.T) {
	f := open(t)
	var gone atomic.Bool
	hash := f.add("m", func(r abi.Request, c host.Call) (string, error) {
		if real(r) && gone.Load() {
			return "", errors.New("this module has no process at the moment")
		}
		return to("large")(r, c)
	})
	f.activate("policy", hash)
	gone.Store(true)
	f.runner.latest.gone.Store(true)
	if o := f.ask("a"); o.Candidate != "small" || !strings.HasSuffix(o.Why, "error=worker") {
		t.Errorf("%+v", o)
	}
	before := f.runner.latest
	gone.Store(false)
	f.activate("policy", hash)
	if o := f.ask("b"); o.Candidate != "large" || f.runner.latest == before {
		t.Errorf("%+v", o)
	}
}

// vault keeps files in memory.
type vault struct{ all map[string]string }

func (v *vault) Keep(_ context.Context, r io.Reader) (string, error) {
	b, err := io.ReadAll(r)
	v.all[hashOf(b)] = string(b)
	return hashOf(b), err
}

func (v *vault) Fetch(_ context.Context, hash string, w io.Writer) error {
	text, ok := v.all[hash]
	if !ok {
		return errors.New("it is not here")
	}
	_, err := io.WriteString(w, text)
	return err
}

func (v *vault) Drop(_ context.Context, hash string) error { delete(v.all, hash); return nil }

// TestVault: files that are lost or damaged come back from the second copy, when that is right.
func TestVault(t *testing.T) {
	f := open(t)
	f.stop()
	f.vault = &vault{map[string]string{}}
	f.start()
	b := module("laya", abi.Classifier)
	f.runner.guests[hashOf(b)] = say(`{"v":1,"action":"route","class":"code","confidence":0.5}`)
	m, err := f.push(upload{module: b, manifest: `{"name":"laya","version":"1.0.0","abi":1,"kind":"classifier","classes":["code"]}`, assets: map[string]string{"weights": "seven"}})
	f.must(err)
	f.activate("classifier", m.SHA256)
	lose := func() {
		f.stop()
		f.must(os.RemoveAll(filepath.Join(f.dir, "assets")))
		f.must(os.WriteFile(filepath.Join(f.dir, "modules", m.SHA256+".wasm"), []byte("rotten"), 0o600))
	}
	lose()
	f.start()
	if o := f.ask("a"); o.Class != "code" || len(f.Problems()) != 0 {
		t.Errorf("%+v, %q", o, f.Problems())
	}
	lose()
	f.vault.all[m.SHA256] = "rotten too"
	f.start()
	if o := f.ask("b"); o.Class != "" || len(f.Problems()) != 1 {
		t.Errorf("%+v, %q", o, f.Problems())
	}
	f.must(f.Unbind(t.Context(), anna, "classifier"))
	f.must(f.Delete(t.Context(), anna, "laya"))
	if len(f.vault.all) != 0 {
		t.Errorf("the second copies stay: %q", f.vault.all)
	}
}
