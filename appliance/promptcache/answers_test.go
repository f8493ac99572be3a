package promptcache_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"onebit/appliance/promptcache"
	"onebit/engine"
)

// TestTraits: of what cannot be cut back nothing else is expected from the first request on. Our own engine can cut anything.
func TestTraits(t *testing.T) {
	for name, other := range map[string]bool{"theirs": true, "ours": false} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 2)
			b.server.other, b.server.noCut = other, other
			b.b = b.cache.Wrap("m", "identity", promptcache.Traits{Whole: true, WholeFiles: true}, b.server)
			system := long(400, 1)
			for i := range 6 { // they share the system prompt alone
				u := b.talk("anna", system).say(long(100, 10+i))
				if reused := u.Cached > 390; reused != (!other && i > 0) {
					t.Errorf("request %d: %+v", i, u)
				}
			}
			one, two, three := b.talk("anna", long(500, 2)), b.talk("anna", long(500, 3)), b.talk("anna", long(500, 4))
			for range 3 {
				one.say("a")
				two.say("b")
				three.say("c")
			}
			u := one.say("d")
			near(t, "reused by going on", u.Cached, u.Prompt, 90)
			if s := b.cache.Status(); s.Wrong != 0 || s.Restores == 0 {
				t.Errorf("%+v", s.Counts)
			}
		})
	}
}

// TestStreams: with its first piece a stream says what the server itself has counted as reused, and what tells us of that
// reaches only clients that asked for it.
func TestStreams(t *testing.T) {
	b := newBench(t, 1)
	k := b.talk("anna", long(500, 1))
	k.stream = true
	for turn, more := range []string{"", "", `,"return_progress":true`} {
		k.head = more
		k.messages = append(k.messages, map[string]any{"role": "user", "content": fmt.Sprint("turn ", turn)})
		var all []engine.Chunk
		u, err := b.b.Generate(t.Context(), &engine.Request{Kind: engine.Chat, Raw: k.body(), Scope: k.scope, Stream: true}, func(c engine.Chunk) error {
			c.Raw = bytes.Clone(c.Raw)
			all = append(all, c)
			return nil
		})
		must(t, err)
		if r := all[0].Reuse; r == nil || r.Tokens != u.Cached || turn > 0 && u.Cached < 450 {
			t.Errorf("turn %d: %+v, and it was %+v", turn, r, u)
		}
		if r := all[len(all)-1].Reuse; r == nil || r.Tokens != u.Cached {
			t.Errorf("turn %d ends with %+v", turn, r)
		}
		if told := bytes.Contains(all[0].Raw, []byte("prompt_progress")); told != (more != "") {
			t.Errorf("turn %d: %s", turn, all[0].Raw)
		}
	}
}

// TestGivenUp: what was computed of a prompt whose client left meanwhile is gone on from, and no more is expected.
func TestGivenUp(t *testing.T) {
	b := newBench(t, 1)
	k := b.talk("anna", long(500, 1))
	k.stream = true
	k.say("hello")
	ctx, cancel := context.WithCancel(t.Context())
	b.server.stalls = true
	k.messages = append(k.messages, map[string]any{"role": "user", "content": long(300, 2)})
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, _, _, err := k.ask(ctx); err == nil {
		t.Fatal("it did not stall")
	}
	b.server.stalls = false
	u, _, _, err := k.ask(t.Context())
	must(t, err)
	if s := b.cache.Status(); s.Wrong != 0 || u.Cached < 450 || s.Expected > s.Saved {
		t.Errorf("%+v, %+v", u, s.Counts)
	}
}

// TestSeveral: several answers, or several prompts, cost others no more than the slots that the server needs for them.
func TestSeveral(t *testing.T) {
	for name, tt := range map[string]struct {
		other bool
		head  string
		lost  int // slots of others
	}{
		"answers, ours":     {false, `,"n":3`, 0},
		"answers, theirs":   {true, `,"n":3`, 2},
		"too many, theirs":  {true, `,"n":30`, 3},
		"prompts, ours":     {false, `,"prompt":["a","b"]`, 1},
		"prompts, theirs":   {true, `,"prompt":["a","b"]`, 1},
		"both, theirs":      {true, `,"prompt":["a","b"],"n":2`, 4},
		"a decision of his": {true, "", 4},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 4)
			b.server.other = tt.other
			b.set(func(s *promptcache.Settings) { s.Budget = 0 }) // what is lost is lost
			var all []*talk
			for i := range 4 {
				k := b.talk("anna", long(500, i))
				k.say("hello")
				all = append(all, k)
			}
			several := b.talk("anna", long(500, 3)) // in a slot of its own, that of the last
			several.messages = all[3].messages
			several.head = tt.head
			if tt.head == "" {
				req := &engine.Request{Kind: engine.Decision, Raw: []byte(`{"state":"x"}`), Scope: "anna"}
				b.server.decides = true
				_, err := b.b.Generate(t.Context(), req, func(engine.Chunk) error { return nil })
				must(t, err)
			} else {
				several.say("several")
			}
			lost := 0
			for _, k := range all {
				if n := b.cache.Expect(&engine.Request{Kind: engine.Chat, Raw: k.body(), Scope: "anna"})("m"); n < 450 {
					lost++
				}
			}
			if lost != tt.lost {
				t.Errorf("%d states were lost", lost)
			}
			if s := b.cache.Status(); s.Wrong != 0 || s.Models[0].Busy != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestSeveralWait: a request for several answers waits for the slots that it needs and no others, in its turn.
func TestSeveralWait(t *testing.T) {
	b := newBench(t, 3)
	b.server.other = true
	b.talk("anna", "x").say("so that the slots are known")
	b.server.gate = make(chan struct{})
	var mu sync.Mutex
	var order []string
	var all sync.WaitGroup
	enter := func(name, head string, busy, waiting int) {
		all.Go(func() {
			k := b.talk("anna", name)
			k.head = head
			if _, _, _, err := k.ask(t.Context()); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			order = append(order, name)
		})
		waitFor(t, func() bool { return promptcache.Waiting(b.b) == waiting && b.cache.Status().Models[0].Busy == busy })
	}
	enter("one", "", 1, 0)
	enter("two", "", 2, 0)
	enter("several", `,"n":3`, 2, 1)
	enter("late", "", 2, 2) // there is a slot, and it is not its turn
	for range 4 {
		b.server.gate <- struct{}{}
	}
	all.Wait()
	if len(order) != 4 || order[3] != "late" || order[2] != "several" {
		t.Errorf("the order was %v", order)
	}
}

// TestMarkedBeforeTheEnd: when a marked answer has ended, its state is in a file and recorded, streamed or not, and what
// cannot be kept is not called kept.
func TestMarkedBeforeTheEnd(t *testing.T) {
	mark := func(b *bench, number int) *talk {
		k := b.talk("anna", long(500, number))
		k.messages[0]["cache_control"] = map[string]any{"type": "ephemeral"}
		k.messages = append(k.messages, map[string]any{"role": "user", "content": "hello"})
		return k
	}
	for _, slots := range []int{1, 2} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprint(slots, " slots, streamed ", stream), func(t *testing.T) {
				b := newBench(t, slots)
				k := mark(b, 1)
				k.stream = stream
				recorded := 0
				_, err := b.b.Generate(t.Context(), &engine.Request{Kind: engine.Chat, Raw: k.body(), Scope: "anna", Stream: stream}, func(c engine.Chunk) error {
					if c.More {
						t.Error("a piece may be held back while the state is written")
					}
					if last := bytes.Contains(c.Raw, []byte(`"timings"`)); last {
						all, err := b.index.Entries(t.Context())
						must(t, err)
						recorded = len(all)
					}
					return nil
				})
				must(t, err)
				if recorded != 1 {
					t.Errorf("%d were recorded before the last piece", recorded)
				}
				b.restart(false)
				u, _, _, err := k.ask(t.Context())
				must(t, err)
				near(t, "reused", u.Cached, u.Prompt, 90)
			})
		}
	}
	for name, spoil := range map[string]func(*bench){
		"it lies":     func(b *bench) { b.server.lies = true },
		"cannot save": func(b *bench) { b.server.noSave = true },
		"no room":     func(b *bench) { b.set(func(s *promptcache.Settings) { s.Budget = 100 }) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 1)
			spoil(b)
			if u, _, last, err := mark(b, 1).ask(t.Context()); err != nil || u.Written != 0 || last.Reuse == nil || last.Reuse.Kept != 0 {
				t.Errorf("%+v, %+v, %v", u, last.Reuse, err)
			}
		})
	}
}
