package promptcache_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"onebit/appliance/promptcache"
	"onebit/engine"
)

var discard = slog.New(slog.DiscardHandler)

// near fails unless got is at least so many hundredths of want.
func near(t testing.TB, what string, got, want, percent int) {
	t.Helper()
	if got*100 < want*percent {
		t.Errorf("%s: %d of %d", what, got, want)
	}
}

// TestTurns: a conversation stays in its slot, and what was computed is reused, streamed or not.
func TestTurns(t *testing.T) {
	b := newBench(t, 2)
	k, other := b.talk("anna", long(400, 1)), b.talk("anna", long(400, 2))
	k.stream = true
	k.say("hello")
	other.say("hello")
	for turn := range 5 {
		before := b.server.cost
		u := k.say(fmt.Sprint("turn ", turn))
		near(t, "reused", u.Cached, u.Prompt, 90)
		if !k.stream && u.Cached == 0 {
			t.Error("nothing was reused")
		}
		if computed := b.server.cost - before; computed > 20 {
			t.Errorf("turn %d computed %d tokens", turn, computed)
		}
		other.say("more")
	}
	s := b.cache.Status()
	if s.Hits != 10 || s.Misses != 2 || s.Wrong != 0 || s.Saved != s.Prompt-int64(b.server.cost) {
		t.Errorf("%+v, computed %d", s.Counts, b.server.cost)
	}
	if s.Saves != 0 {
		t.Error("states were saved although each had its slot")
	}
}

// TestInterleaved: three conversations on two slots reuse what each had, by files.
func TestInterleaved(t *testing.T) {
	b := newBench(t, 2)
	var talks []*talk
	for i := range 3 {
		k := b.talk("anna", long(500, i))
		k.say("begin")
		talks = append(talks, k)
	}
	prompt, cached := 0, 0
	for turn := range 6 {
		for i, k := range talks {
			u := k.say(long(20, 100*turn+i))
			prompt, cached = prompt+u.Prompt, cached+u.Cached
		}
	}
	near(t, "reused", cached, prompt, 90)
	if s := b.cache.Status(); s.Restores == 0 || s.Wrong != 0 || b.server.restores != int(s.Restores)+1 {
		t.Errorf("%+v; the server restored %d", s.Counts, b.server.restores)
	}
}

// TestSharedBeginning: a conversation is not sent away from its slot by another one that begins with the same few words, while
// there is an empty one (T27 the other way round), and what is short goes to no file.
func TestSharedBeginning(t *testing.T) {
	for name, budget := range map[string]int64{"without files": 0, "with files": 1 << 30} {
		b := newBench(t, 2)
		b.set(func(s *promptcache.Settings) { s.Budget = budget })
		system := long(20, 1)
		one, two := b.talk("anna", system), b.talk("anna", system)
		one.say(long(500, 2))
		two.say("hello")
		u := one.say("more")
		near(t, name+": reused", u.Cached, u.Prompt, 95)
		u = two.say("more")
		near(t, name+": reused", u.Cached, u.Prompt, 80)
		if s := b.cache.Status(); s.Saves != 0 || s.Restores != 0 {
			t.Errorf("%s: %+v", name, s.Counts)
		}
	}
	b := newBench(t, 1) // 64 tokens are worth a file
	for i := range 4 {
		b.talk("anna", long(30, i)).say("hello")
	}
	if s := b.cache.Status(); s.Saves != 0 {
		t.Errorf("%+v", s.Counts)
	}
}

// TestRestart: what was in slots and files is there after everything ended and came back.
func TestRestart(t *testing.T) {
	b := newBench(t, 2)
	k := b.talk("anna", long(500, 1))
	for turn := range 4 {
		k.say(long(20, turn))
	}
	b.restart(true)
	u := k.say("after")
	near(t, "reused after the restart", u.Cached, u.Prompt, 95)

	b.restart(false) // as if the power had gone: the file of before still serves
	u = k.say("after the power")
	near(t, "reused after the power was gone", u.Cached, u.Prompt, 80)
}

// TestCrash: a server that was started anew has nothing in its slots, and nobody believes it has.
func TestCrash(t *testing.T) {
	b := newBench(t, 2)
	k := b.talk("anna", long(500, 1))
	k.say("one")
	b.server.crash()
	if u := k.say("two"); u.Cached != 0 {
		t.Errorf("reused %d", u.Cached)
	}
	if s := b.cache.Status(); s.Wrong != 0 {
		t.Errorf("a claim was made: %+v", s.Counts)
	}
}

// TestLie: a build that says it restored and computes anew is found out by the probe: nothing is claimed, and files are
// not used.
func TestLie(t *testing.T) {
	b := newBench(t, 1)
	b.server.lies = true
	one, two := b.talk("anna", long(500, 1)), b.talk("anna", long(500, 2))
	for turn := range 4 {
		one.say(fmt.Sprint("one ", turn))
		two.say(fmt.Sprint("two ", turn))
	}
	s := b.cache.Status()
	if s.Wrong != 0 || s.Restores != 0 || s.Hits != 0 || s.Entries != 0 || s.Models[0].Files != "bad" {
		t.Errorf("%+v", s)
	}
	if err := b.cache.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all := files(t, b.dir); len(all) != 0 {
		t.Errorf("files are left: %v", all)
	}
	if b.server.restores > 1 {
		t.Errorf("it was tried %d times", b.server.restores)
	}
}

// TestNoCut: of a model whose state cannot be cut back only files serve that the prompt goes on from.
func TestNoCut(t *testing.T) {
	b := newBench(t, 1)
	b.server.noCut = true
	system := long(400, 1)
	for i := range 6 { // conversations that share the system prompt alone
		b.talk("anna", system).say(long(100, 10+i))
	}
	s := b.cache.Status()
	if s.Wrong == 0 || s.Wrong > 4 {
		t.Errorf("%d claims did not hold", s.Wrong)
	}
	wrong := s.Wrong
	one, two := b.talk("anna", long(500, 2)), b.talk("anna", long(500, 3))
	one.say("a")
	two.say("b")
	u := one.say("c")
	near(t, "reused by going on", u.Cached, u.Prompt, 90)
	if s := b.cache.Status(); s.Wrong > wrong+1 {
		t.Errorf("%d claims did not hold, %d before", s.Wrong, wrong)
	}
}

// TestScopes: a second key's identical prompt gains nothing, neither content nor time, wherever the first one's state is.
func TestScopes(t *testing.T) {
	for name, slots := range map[string]int{"one slot": 1, "two slots": 2} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, slots)
			system := long(500, 1)
			cold := b.talk("carl", long(500, 9)+"x")
			cold.say("hello")
			alone := b.server.cost
			b.talk("anna", system).say("hello") // live in a slot
			before := b.server.cost
			u := b.talk("bert", system).say("hello")
			cost := b.server.cost - before
			if u.Cached != 0 || cost != u.Prompt {
				t.Errorf("bert reused %d, computed %d of %d", u.Cached, cost, u.Prompt)
			}
			b.restart(true) // in files
			before = b.server.cost
			u = b.talk("eve", system).say("hello")
			if u.Cached != 0 || b.server.cost-before != u.Prompt {
				t.Errorf("eve reused %d of a file", u.Cached)
			}
			if alone == 0 {
				t.Error("nothing was computed")
			}
		})
	}
}

// TestCancelledFirst: a request that was cancelled before the server looked at it leaves the other key's prompt in the
// slot, and the next request does not find it.
func TestCancelledFirst(t *testing.T) {
	b := newBench(t, 1)
	system := long(500, 1)
	b.talk("anna", system).say("hello")
	b.server.gate = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	bert := b.talk("bert", system)
	bert.messages = append(bert.messages, map[string]any{"role": "user", "content": "hello"})
	go func() {
		_, _, _, err := bert.ask(ctx)
		gone <- err
	}()
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	b.server.gate = nil
	bert.messages = bert.messages[:1]
	if u := bert.say("hello"); u.Cached != 0 {
		t.Errorf("reused %d of somebody else's", u.Cached)
	}
}

// TestTenants: many keys at once with the same beginning; no canary crosses.
func TestTenants(t *testing.T) {
	b := newBench(t, 3)
	system := long(300, 1)
	var all sync.WaitGroup
	for who := range 8 {
		all.Go(func() {
			scope := fmt.Sprint("key", who)
			own := fmt.Sprintf("canary-%d", who)
			var first = true
			messages := []map[string]any{{"role": "system", "content": system}}
			for turn := range 12 {
				messages = append(messages, map[string]any{"role": "user", "content": fmt.Sprint(own, " ", turn)})
				raw, _ := json.Marshal(map[string]any{"messages": messages, "answer": own})
				u, err := b.b.Generate(t.Context(), &engine.Request{Kind: engine.Chat, Raw: raw, Scope: scope}, func(c engine.Chunk) error {
					if !strings.Contains(string(c.Raw), own) {
						t.Errorf("%s got %s", own, c.Raw)
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				if first && u.Cached != 0 {
					t.Errorf("%s reused %d tokens at its first turn", own, u.Cached)
				}
				first = false
				messages = append(messages, map[string]any{"role": "assistant", "content": own})
			}
		})
	}
	all.Wait()
	if s := b.cache.Status(); s.Wrong != 0 || s.Hits == 0 {
		t.Errorf("%+v", s.Counts)
	}
}

// TestOrder: when all slots are busy requests wait in order, and one that gives up is left out.
func TestOrder(t *testing.T) {
	b := newBench(t, 1)
	b.talk("anna", "x").say("so that the slots are known")
	b.server.gate = make(chan struct{})
	var mu sync.Mutex
	var order []int
	var all sync.WaitGroup
	enter := func(ctx context.Context, i int) {
		all.Go(func() {
			k := b.talk("anna", fmt.Sprint("conversation ", i))
			if _, _, _, err := k.ask(ctx); err == nil {
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
			}
		})
		for promptcache.Waiting(b.b) < i || b.cache.Status().Models[0].Busy == 0 { // the first has the slot, all others stand in line
			time.Sleep(time.Millisecond)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	for i := range 4 {
		if i == 2 {
			enter(ctx, i)
			continue
		}
		enter(t.Context(), i)
	}
	cancel()
	for promptcache.Waiting(b.b) != 2 {
		time.Sleep(time.Millisecond)
	}
	for range 3 {
		b.server.gate <- struct{}{}
	}
	all.Wait()
	if fmt.Sprint(order) != "[0 1 3]" {
		t.Errorf("the order was %v", order)
	}
}

// TestOrderOfWide: what waits behind a request for all slots goes on when that one gives up.
func TestOrderOfWide(t *testing.T) {
	b := newBench(t, 2)
	b.server.other = true
	b.talk("anna", "x").say("so that the slots are known")
	b.server.gate = make(chan struct{})
	var all sync.WaitGroup
	enter := func(ctx context.Context, raw string, busy, waiting int) {
		all.Go(func() {
			_, _ = b.b.Generate(ctx, &engine.Request{Kind: engine.Completion, Raw: []byte(raw), Scope: "anna"}, func(engine.Chunk) error { return nil })
		})
		waitFor(t, func() bool { return b.cache.Status().Models[0].Busy == busy && promptcache.Waiting(b.b) == waiting })
	}
	ctx, leave := context.WithCancel(t.Context())
	enter(t.Context(), `{"prompt":"one"}`, 1, 0)
	enter(ctx, `{"prompt":["all","slots"],"n":2}`, 1, 1)
	enter(t.Context(), `{"prompt":"two"}`, 1, 2)
	leave()
	waitFor(t, func() bool { return b.cache.Status().Models[0].Busy == 2 && promptcache.Waiting(b.b) == 0 })
	close(b.server.gate)
	all.Wait()
}

// TestBudget: files stay within the budget, and what is marked goes last.
func TestBudget(t *testing.T) {
	b := newBench(t, 1)
	marked := b.talk("anna", long(500, 99))
	marked.messages[0]["cache_control"] = map[string]any{"type": "ephemeral", "ttl": "1h"}
	marked.say("keep this")
	for i := range 6 {
		b.set(func(s *promptcache.Settings) { s.Budget = 7000 }) // three of about 2,100 bytes
		b.talk("anna", long(500, i)).say("hello")
	}
	s := b.cache.Status()
	if s.Bytes > s.Budget || s.Entries != 3 || s.Marked != 1 || s.Evictions == 0 {
		t.Errorf("%+v", s)
	}
	if err := b.cache.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all := files(t, b.dir); len(all) != s.Entries || len(b.index.all) != s.Entries {
		t.Errorf("%d entries, recorded %d, files %v", s.Entries, len(b.index.all), all)
	}
	u := marked.say("is it there?")
	near(t, "the marked prompt", u.Cached, u.Prompt, 90)
	b.set(func(s *promptcache.Settings) { s.Budget = 0 })
	b.talk("anna", long(500, 50)).say("hello")
	b.talk("anna", long(500, 51)).say("hello")
	waitFor(t, func() bool { return b.cache.Status().Entries == 0 })
}

// TestTTL: what was not used for long goes by itself, what a client has marked for longer after that time.
func TestTTL(t *testing.T) {
	b := newBench(t, 1) // an hour
	plain, marked := b.talk("anna", long(500, 1)), b.talk("anna", long(500, 2))
	marked.messages[0]["prompt_cache_breakpoint"] = map[string]any{"mode": "explicit", "ttl": "3h"}
	plain.say("hello")
	marked.say("hello")
	b.talk("anna", "x").say("both are in files by now")
	if s := b.cache.Status(); s.Entries != 2 || s.Marked != 1 {
		t.Fatalf("%+v", s)
	}
	b.pass(50 * time.Minute)
	u := plain.say("still here?")
	near(t, "after less than its time", u.Cached, u.Prompt, 90)
	b.talk("anna", "y").say("it is in a file again")
	b.pass(61 * time.Minute)
	waitFor(t, func() bool { return b.cache.Status().Entries == 1 })
	if u := plain.say("and now?"); u.Cached >= 32 {
		t.Errorf("its time is over, and %d tokens were reused", u.Cached)
	}
	u = marked.say("and this?")
	near(t, "what is marked for longer", u.Cached, u.Prompt, 90)
	b.talk("anna", "z").say("it is in a file again")
	b.pass(3*time.Hour + time.Minute)
	waitFor(t, func() bool { return b.cache.Status().Entries == 0 })
	if u := marked.say("and now?"); u.Cached >= 32 {
		t.Errorf("the time of the mark is over, and %d tokens were reused", u.Cached)
	}
}

// TestMarks: what a client marked is counted as written once, is there for a request that shares only the marked prefix,
// and both numbers are in what the client sees.
func TestMarks(t *testing.T) {
	b := newBench(t, 1)
	system := long(500, 1)
	mark := func(k *talk) *talk {
		k.messages[0]["content"] = system
		k.messages[0]["cache_control"] = map[string]any{"type": "ephemeral"}
		return k
	}
	one := mark(b.talk("anna", ""))
	one.messages = append(one.messages, map[string]any{"role": "user", "content": "first"})
	u, answer, last, err := one.ask(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	one.messages = append(one.messages, map[string]any{"role": "assistant", "content": answer})
	if u.Written < 490 || u.Written > u.Prompt || u.Cached != 0 {
		t.Errorf("first: %+v", u)
	}
	var seen struct {
		Usage struct {
			Details struct {
				Cached  int `json:"cached_tokens"`
				Written int `json:"cache_write_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	if err := json.Unmarshal(last.Raw, &seen); err != nil || seen.Usage.Details.Written != u.Written || seen.Usage.Details.Cached != 0 {
		t.Errorf("the client sees %+v, %v: %s", seen, err, last.Raw)
	}
	if last.Reuse == nil || last.Reuse.Kept != u.Written {
		t.Errorf("%+v", last.Reuse)
	}
	streamed := mark(b.talk("anna", "")) // what Messages and Responses are made of
	streamed.stream, streamed.messages = true, append(streamed.messages, map[string]any{"role": "user", "content": "streamed"})
	if u, _, last, err := streamed.ask(t.Context()); err != nil || last.Reuse == nil || last.Reuse.Tokens != u.Cached || u.Cached == 0 {
		t.Errorf("streamed: %+v, %+v, %v", u, last.Reuse, err)
	}
	if u = one.say("second"); u.Written != 0 || u.Cached == 0 {
		t.Errorf("second: %+v", u)
	}
	b.talk("anna", long(500, 2)).say("something else") // the marked state goes to a file
	u = mark(b.talk("anna", "")).say("another conversation")
	near(t, "the marked prefix in another conversation", u.Cached, 500, 95)
	if u.Written != 0 {
		t.Errorf("it was kept already: %+v", u)
	}
}

// TestMarksAgain: what is kept for a mark already is not written again, also after a turn without the mark; when the time of
// the mark is over, it is.
func TestMarksAgain(t *testing.T) {
	b := newBench(t, 1)
	k := b.talk("anna", long(500, 1))
	for i, c := range []struct {
		marked  bool
		after   time.Duration
		written bool
	}{{true, 0, true}, {true, 0, false}, {false, 0, false}, {true, 4 * time.Minute, false}, {true, 6 * time.Minute, true}, {true, 0, false}} {
		delete(k.messages[0], "cache_control")
		if c.marked {
			k.messages[0]["cache_control"] = map[string]any{"type": "ephemeral"} // five minutes
		}
		b.pass(c.after)
		u := k.say(fmt.Sprint("turn ", i))
		if (u.Written >= 490) != c.written || !c.written && u.Written != 0 {
			t.Errorf("turn %d: %+v", i, u)
		}
	}
}

// TestTooLarge: a file that is larger than all may be together is not kept, which is known of the first one when it is there.
func TestTooLarge(t *testing.T) {
	b := newBench(t, 1)
	b.set(func(s *promptcache.Settings) { s.Budget = 1000 })
	for i := range 4 {
		b.talk("anna", long(500, i)).say("hello")
	}
	must(t, b.cache.Flush(t.Context()))
	if s := b.cache.Status(); s.Entries != 0 || s.Bytes != 0 || len(files(t, b.dir)) != 0 || len(b.index.all) != 0 {
		t.Errorf("%+v, files %v", s, files(t, b.dir))
	}
	if b.server.saves != 1 {
		t.Errorf("%d files were written", b.server.saves)
	}
}

// TestExplicit: in mode explicit nothing is kept that is not marked.
func TestExplicit(t *testing.T) {
	b := newBench(t, 1)
	k := b.talk("anna", long(500, 1))
	k.head = `,"prompt_cache_options":{"mode":"explicit"}`
	k.say("hello")
	b.talk("bert", long(500, 2)).say("hello")
	if s := b.cache.Status(); s.Saves != 0 {
		t.Errorf("%+v", s.Counts)
	}
}

// TestKeys: what is of a key that is gone goes, from files, index and slots.
func TestKeys(t *testing.T) {
	b := newBench(t, 1)
	anna := b.talk("anna", long(500, 1))
	anna.say("hello")
	bert := b.talk("bert", long(500, 2))
	bert.say("hello")
	b.cache.Keep(t.Context(), []string{"bert"})
	if err := b.cache.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(b.index.all) != 0 || len(files(t, b.dir)) != 0 {
		t.Errorf("anna's state is still recorded: %v", b.index.all)
	}
	u := bert.say("still here")
	near(t, "bert's own", u.Cached, u.Prompt, 90)
	b.cache.Keep(t.Context(), nil)
	if b.server.slots[0].text != "" {
		t.Error("bert's prompt is still in the slot")
	}
	if u := bert.say("again"); u.Cached != 0 {
		t.Errorf("reused %d", u.Cached)
	}
}

// TestClear empties it.
func TestClear(t *testing.T) {
	b := newBench(t, 1)
	k := b.talk("anna", long(500, 1))
	k.say("hello")
	b.talk("anna", long(500, 2)).say("hello")
	if err := b.cache.Clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := b.cache.Status(); s.Entries != 0 || s.Bytes != 0 || len(files(t, b.dir)) != 0 || len(b.index.all) != 0 {
		t.Errorf("%+v", s)
	}
	if u := k.say("again"); u.Cached != 0 {
		t.Errorf("reused %d", u.Cached)
	}
}

// TestSweep: files that nobody knows go at the start, and so do records of files that are not there or not whole.
func TestSweep(t *testing.T) {
	b := newBench(t, 1)
	k := b.talk("anna", long(500, 1))
	k.say("hello")
	b.talk("anna", long(500, 2)).say("hello")
	b.restart(true)
	b.stop()
	if len(b.index.all) != 2 {
		t.Fatalf("recorded: %v", b.index.all)
	}
	var lost, cut string
	for file := range b.index.all {
		lost, cut = cut, file
	}
	dir := b.cache.Folder("m")
	must(t, os.Remove(filepath.Join(dir, lost)))
	must(t, os.Truncate(filepath.Join(dir, cut), 10))
	must(t, os.WriteFile(filepath.Join(dir, "stranger"), nil, 0o600))
	b.start()
	if len(b.index.all) != 0 || len(files(t, b.dir)) != 0 {
		t.Errorf("recorded %v, there %v", b.index.all, files(t, b.dir))
	}
}

// TestIdentity: another build or other options of a model begin anew.
func TestIdentity(t *testing.T) {
	b := newBench(t, 1)
	k := b.talk("anna", long(500, 1))
	k.say("hello")
	b.restart(true)
	b.b = b.cache.Wrap("m", "another build", promptcache.Traits{}, b.server)
	if u := k.say("again"); u.Cached != 0 {
		t.Errorf("reused %d of another build", u.Cached)
	}
	must(t, b.cache.Flush(t.Context()))
	if all := files(t, b.dir); len(all) != 0 {
		t.Errorf("there are %v", all)
	}
}

// TestExpect: a policy is told what a prompt would reuse, of the one who asks alone.
func TestExpect(t *testing.T) {
	b := newBench(t, 1)
	k := b.talk("anna", long(500, 1))
	k.say("hello")
	expect := func(scope string) int {
		return b.cache.Expect(&engine.Request{Kind: engine.Chat, Raw: k.body(), Scope: scope})("m")
	}
	near(t, "expected of the slot", expect("anna"), 500, 95)
	if n := expect("bert"); n != 0 {
		t.Errorf("bert is promised %d", n)
	}
	b.talk("anna", long(500, 2)).say("hello")
	near(t, "expected of the file", expect("anna"), 500, 95)
}

// TestRelay: requests that are relayed have slots of ours too, slots themselves stay closed, and what a client says of
// them is not heard.
func TestRelay(t *testing.T) {
	b := newBench(t, 2)
	ask := func(path, body string) (int, error) {
		in, err := http.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
		must(t, err)
		in.Header.Set(engine.ScopeHeader, "anna")
		res, err := b.b.Relay(in)
		if err != nil {
			return 0, err
		}
		defer res.Body.Close()
		var said struct {
			Timings struct {
				Cached int `json:"cache_n"`
			}
		}
		return said.Timings.Cached, json.NewDecoder(res.Body).Decode(&said)
	}
	prompt := long(500, 1)
	body := fmt.Sprintf(`{"prompt":%q,"id_slot":1,"cache_prompt":false}`, prompt)
	if n, err := ask("/completion", body); err != nil || n != 0 {
		t.Fatal(n, err)
	}
	if n, err := ask("/completion", body); err != nil || n < 450 {
		t.Errorf("reused %d, %v", n, err)
	}
	for _, path := range []string{"/slots", "/slots/0", "/slots/0?action=save"} {
		if _, err := ask(path, `{"filename":"x"}`); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestWide: a request for several answers has all slots for itself, and leaves nothing that is taken for known.
func TestWide(t *testing.T) {
	b := newBench(t, 2)
	k := b.talk("anna", long(500, 1))
	k.say("hello")
	k.head = `,"n":2`
	k.say("twice")
	k.head = ""
	u := k.say("again")
	near(t, "restored after it", u.Cached, u.Prompt, 80)
}

// TestSteady: the line that an agent changes with each request costs nothing.
func TestSteady(t *testing.T) {
	b := newBench(t, 1)
	k := b.talk("anna", "")
	prompt, cached := 0, 0
	for turn := range 6 {
		k.messages[0]["content"] = fmt.Sprintf("x-anthropic-billing-header: cch=%05x;\n%s", turn*7919, long(800, 1))
		u := k.say("go on")
		if turn > 0 {
			prompt, cached = prompt+u.Prompt, cached+u.Cached
		}
	}
	near(t, "reused", cached, prompt, 97)
	if s := b.cache.Status(); s.Steady == 0 {
		t.Error("nothing was left out")
	}
	b.set(func(s *promptcache.Settings) { s.Steady = false })
	k.messages[0]["content"] = "x-anthropic-billing-header: cch=fffff;\n" + long(800, 1)
	if u := k.say("go on"); u.Cached > 40 {
		t.Errorf("it is switched off, and %d were reused", u.Cached)
	}
}

// TestNoFiles: a server that cannot save is asked a few times and no more, and all else works.
func TestNoFiles(t *testing.T) {
	b := newBench(t, 1)
	b.server.noSave = true
	one, two := b.talk("anna", long(500, 1)), b.talk("anna", long(500, 2))
	for range 6 {
		one.say("a")
		two.say("b")
	}
	u := two.say("c")
	near(t, "reused", u.Cached, u.Prompt, 90)

	b.server.noSave = false // it has been tried for long enough
	one.say("d")
	two.say("e")
	if b.server.saves != 0 {
		t.Errorf("%d states were saved", b.server.saves)
	}
	b.pass(time.Hour)
	one.say("f")
	two.say("g")
	u = one.say("h")
	near(t, "reused of a file, an hour later", u.Cached, u.Prompt, 90)
}

// TestWrittenAhead: a marked state is in a file a moment after its request.
func TestWrittenAhead(t *testing.T) {
	b := newBench(t, 2)
	k := b.talk("anna", long(500, 1))
	k.messages[0]["cache_control"] = map[string]any{"type": "ephemeral"}
	k.say("hello")
	b.pass(2 * time.Second)
	waitFor(t, func() bool { return b.cache.Status().Marked == 1 })
	b.restart(false)
	u := k.say("after the power was gone")
	near(t, "reused", u.Cached, u.Prompt, 90)
}

func files(t testing.TB, dir string) (all []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all = append(all, path)
		}
		return err
	}))
	return all
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// waitFor waits for what another goroutine does.
func waitFor(t testing.TB, done func() bool) {
	t.Helper()
	for range 5000 {
		if done() {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
	t.Fatal("it did not come to that")
}
