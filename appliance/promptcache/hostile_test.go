package promptcache_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"onebit/appliance/promptcache"
	"onebit/engine"
)

// TestNoDecisions: a server without decisions is not asked for them with each request, and being asked takes nothing from
// anybody: neither from who shares a model with programs that try, nor where a module of the box does.
func TestNoDecisions(t *testing.T) {
	b := newBench(t, 2)
	b.server.other = true
	b.set(func(s *promptcache.Settings) { s.Budget = 0 }) // what is lost is lost
	k, other := b.talk("anna", long(400, 1)), b.talk("carl", long(400, 2))
	k.say("hello")
	other.say("hello")
	for range 20 {
		for _, kind := range []engine.Kind{engine.SystemOne, engine.Decision} {
			_, err := b.b.Generate(t.Context(), &engine.Request{Kind: kind, Raw: []byte(`{}`), Scope: "bert"}, func(engine.Chunk) error { return nil })
			if e, ok := errors.AsType[*engine.StatusError](err); !ok || e.Status != http.StatusNotFound {
				t.Fatalf("%v", err)
			}
		}
		b.relayDecision()
	}
	for _, k := range []*talk{k, other} {
		u := k.say("more")
		near(t, "reused", u.Cached, u.Prompt, 90)
	}
	if b.server.refused > 2 {
		t.Errorf("it was asked %d times", b.server.refused)
	}
	b.pass(time.Hour) // and not for ever: another program may stand there
	b.relayDecision()
	_, err := b.b.Generate(t.Context(), &engine.Request{Kind: engine.Decision, Raw: []byte(`{}`), Scope: "bert"}, func(engine.Chunk) error { return nil })
	if err == nil || b.server.refused != 3 {
		t.Errorf("asked %d times: %v", b.server.refused, err)
	}
}

// TestNoImages: a server that refuses one request for its images answers the next one.
func TestNoImages(t *testing.T) {
	b := newBench(t, 2)
	b.server.other = true
	ask := func(kind engine.Kind, body string) {
		_, err := b.b.Generate(t.Context(), &engine.Request{Kind: kind, Raw: []byte(body), Scope: "bert"}, func(engine.Chunk) error { return nil })
		if e, ok := errors.AsType[*engine.StatusError](err); !ok || e.Status != http.StatusNotFound {
			t.Fatalf("%v", err)
		}
	}
	for range 3 {
		ask(engine.SystemOne, `{"state":"x","images":["data:image/png;base64,AAAA"],"questions":{"a":{"type":"noul","instructions":"Is it late?"}}}`)
		ask(engine.Decision, `{"input":[{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,AAAA"}]}],
			"questions":[{"type":"predicate","instructions":"Is it late?"}]}`)
	}
	if b.server.refused != 6 {
		t.Errorf("of 6 requests %d were sent on", b.server.refused)
	}
	for range 3 {
		ask(engine.Decision, `{"input":"x","questions":[{"type":"predicate","instructions":"Is it late?"}]}`)
	}
	if b.server.refused != 7 {
		t.Errorf("it was asked %d times", b.server.refused)
	}
}

// relayDecision asks as a module does.
func (b *bench) relayDecision() {
	b.t.Helper()
	in, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, "/v1/systemone", bytes.NewReader([]byte(`{}`)))
	if err != nil {
		b.t.Fatal(err)
	}
	in.Header.Set(engine.ScopeHeader, "bert")
	res, err := b.b.Relay(in)
	if err == nil {
		err = res.Body.Close()
	}
	if _, ok := errors.AsType[*engine.StatusError](err); err != nil && !ok {
		b.t.Fatal(err)
	}
}

// TestHalfSaved: where a disk is full, a server says that it saved and leaves half a file. It is no state of anything.
func TestHalfSaved(t *testing.T) {
	b := newBench(t, 1)
	b.server.half = true
	k := b.talk("anna", long(400, 1))
	k.say("hello")
	must(t, b.b.Park(t.Context()))
	if s := b.cache.Status(); s.Entries != 0 || s.Saves != 0 {
		t.Errorf("half a file counts: %+v", s)
	}
	files, err := os.ReadDir(b.server.dir)
	must(t, err)
	if len(files) != 0 || len(b.index.all) != 0 {
		t.Errorf("%d files, %d records", len(files), len(b.index.all))
	}
}

// TestLieLater: a server that has reused what it restored, and does so no more, is believed twice: the file whose promise did
// not hold goes at once, and after the second no state is put into files or taken from them.
func TestLieLater(t *testing.T) {
	b := newBench(t, 1)
	one, two := b.talk("anna", long(500, 1)), b.talk("anna", long(500, 2))
	one.say("a")
	two.say("b")
	u := one.say("c")
	near(t, "reused of a file", u.Cached, u.Prompt, 90)

	b.server.mu.Lock()
	b.server.lies = true
	b.server.mu.Unlock()
	names := func() map[string]bool {
		must(t, b.cache.Flush(t.Context()))
		all, err := b.index.Entries(t.Context())
		must(t, err)
		there := map[string]bool{}
		for _, e := range all {
			there[e.File] = true
		}
		return there
	}
	before := names()
	two.say("d") // from a file, or so it seems
	after := names()
	gone := 0
	for file := range before {
		if !after[file] {
			gone++
		}
	}
	if s := b.cache.Status(); s.Wrong != 1 || gone != 1 {
		t.Errorf("%d claims did not hold, and of the files %v there are %v", s.Wrong, before, after)
	}
	one.say("e")
	s, saves := b.cache.Status(), b.server.saves
	if s.Wrong != 2 {
		t.Errorf("%d claims did not hold", s.Wrong)
	}
	for range 3 {
		two.say("f")
		one.say("g")
	}
	if now := b.cache.Status(); now.Wrong != 2 || now.Restores != s.Restores || b.server.saves != saves {
		t.Errorf("%+v, %d saves; before %+v, %d", now.Counts, b.server.saves, s.Counts, saves)
	}

	b.server.mu.Lock()
	b.server.lies = false
	b.server.mu.Unlock()
	b.pass(50 * time.Minute)
	one.say("h")
	two.say("i")
	b.pass(20 * time.Minute) // and then it is tried again
	one.say("j")
	two.say("k")
	u = one.say("l")
	near(t, "reused of a file, an hour later", u.Cached, u.Prompt, 90)
}

// TestCutAgain: what could not be cut back twice is not taken for it for an hour, in slots and of files, and not for ever: at
// midnight the template of a model may have told another day.
func TestCutAgain(t *testing.T) {
	for name, files := range map[string]bool{"slots": false, "files": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 1)
			b.set(func(s *promptcache.Settings) { s.TTL = 0 })
			if !files {
				b.set(func(s *promptcache.Settings) { s.Budget = 0 })
			}
			system, next := long(400, 1), 10
			shared := func() (expected int) { // conversations that share the system prompt alone
				if files {
					b.talk("anna", long(400, next+1)).say("it takes the slot")
				}
				next += 2
				before := b.cache.Status().Expected
				b.talk("anna", system).say(long(100, next))
				return int(b.cache.Status().Expected - before)
			}
			shared()
			near(t, "expected", shared(), 400, 90)
			b.server.noCut = true
			for range 4 {
				shared()
			}
			if s := b.cache.Status(); s.Wrong != 2 {
				t.Fatalf("%d claims did not hold", s.Wrong)
			}
			b.server.noCut = false
			if n := shared(); n != 0 {
				t.Errorf("at once %d tokens are expected again", n)
			}
			b.pass(time.Hour)
			shared()
			near(t, "expected an hour later", shared(), 400, 90)
			if s := b.cache.Status(); s.Wrong != 2 {
				t.Errorf("%d claims did not hold", s.Wrong)
			}
		})
	}
}

// TestRecordedWhenSettled: a file is recorded once it is whole and on the disk, and not before.
func TestRecordedWhenSettled(t *testing.T) {
	t.Run("on the disk", func(t *testing.T) {
		if runtime.GOOS != "linux" {
			t.Skip("it takes a file that cannot be synced")
		}
		b := newBench(t, 1)
		b.server.loose = "/proc/self/comm"
		b.talk("anna", long(400, 1)).say("hello")
		must(t, b.b.Park(t.Context()))
		if all := files(t, b.dir); b.cache.Status().Entries != 0 || len(b.index.all) != 0 || len(all) != 0 {
			t.Errorf("recorded %v, there %v, %+v", b.index.all, all, b.cache.Status())
		}
	})
	t.Run("whole", func(t *testing.T) {
		b := newBench(t, 1)
		b.index.entered, b.index.gate = make(chan struct{}, 10), make(chan struct{})
		b.talk("anna", long(400, 1)).say("hello")
		b.talk("anna", long(400, 2)).say("hello")
		<-b.index.entered // the first is being recorded
		first := files(t, b.dir)
		b.talk("anna", "x").say("the second goes to a file too")
		for _, path := range files(t, b.dir) {
			if !slices.Contains(first, path) {
				must(t, os.Truncate(path, 10))
			}
		}
		close(b.index.gate)
		must(t, b.cache.Flush(t.Context()))
		if all := files(t, b.dir); b.cache.Status().Entries != 1 || len(b.index.all) != 1 || !slices.Equal(all, first) {
			t.Errorf("recorded %v, there %v and at first %v", b.index.all, all, first)
		}
	})
}

// TestSecret: whose prompts they are is recorded by a hash that needs the box's own secret.
func TestSecret(t *testing.T) {
	seen := map[promptcache.Hash]string{sha256.Sum256([]byte("anna")): "no secret"}
	for _, secret := range []string{"", "one secret of a box", "the secret of another"} {
		b := newBench(t, 1)
		if secret != "" {
			b.stop()
			b.secret = []byte(secret)
			b.start()
		}
		b.talk("anna", long(400, 1)).say("hello")
		must(t, b.b.Park(t.Context()))
		if len(b.index.all) != 1 {
			t.Fatalf("recorded %v", b.index.all)
		}
		for _, e := range b.index.all {
			if was, ok := seen[e.Scope]; ok {
				t.Errorf("%q makes the same scope as %q", secret, was)
			}
			seen[e.Scope] = secret
		}
	}
}

// TestPanic: whoever takes an answer may panic. The slot is free after that.
func TestPanic(t *testing.T) {
	b := newBench(t, 1)
	func() {
		defer func() { _ = recover() }()
		_, _ = b.b.Generate(t.Context(), &engine.Request{Kind: engine.Chat, Raw: []byte(`{"messages":[{"role":"user","content":"x"}]}`), Scope: "anna"},
			func(engine.Chunk) error { panic("no") })
		t.Error("it went on")
	}()
	if s := b.cache.Status(); s.Models[0].Busy != 0 {
		t.Fatalf("%d slots are busy", s.Models[0].Busy)
	}
	b.talk("anna", "x").say("y")
}

// TestUnwritten: what of a scope, or of a request with passages of documents, must not be written is in no file, however it
// ends; it is reused in its slot.
func TestUnwritten(t *testing.T) {
	unwritten(t, "secret anna", false)
	unwritten(t, "anna", true)
}

func unwritten(t *testing.T, scope string, fleeting bool) {
	t.Helper()
	b := newBench(t, 1)
	k, other := b.talk(scope, long(400, 1)), b.talk("bert", long(400, 2))
	k.fleeting = fleeting
	k.head = `,"prompt_cache_options":{"mode":"implicit","ttl":"1h"}`
	k.say("hello")
	u := k.say("again")
	near(t, "reused", u.Cached, u.Prompt, 90)
	if u.Written != 0 {
		t.Errorf("%d tokens are said to be kept", u.Written)
	}
	other.say("hello") // takes its slot
	if n := b.server.saves; n != 0 {
		t.Errorf("%d states were saved", n)
	}
	k.say("back")
	b.pass(time.Minute)
	time.Sleep(1500 * time.Millisecond) // what is marked is written ahead
	must(t, b.b.Park(t.Context()))
	for _, e := range b.index.all {
		text, err := os.ReadFile(b.server.dir + "/" + e.File)
		must(t, err)
		if bytes.Contains(text, []byte(fmt.Sprintf("%.40s", long(400, 1)))) {
			t.Error("it is in a file")
		}
	}
}

// TestMarkedStay: what nobody has marked is not kept in place of what others have.
func TestMarkedStay(t *testing.T) {
	b := newBench(t, 1)
	b.set(func(s *promptcache.Settings) { s.Budget = 9000 }) // four of about 2,100 bytes
	for i, scope := range []string{"anna", "bert", "cleo", "dora"} {
		k := b.talk(scope, long(500, i))
		k.messages[0]["cache_control"] = map[string]any{"type": "ephemeral", "ttl": "1h"}
		k.say("keep this")
	}
	for i := range 4 {
		b.talk("emil", long(500, 10+i)).say("hello")
	}
	if s := b.cache.Status(); s.Entries != 4 || s.Marked != 4 || s.Evictions != 0 {
		t.Errorf("%+v", s)
	}
}

// TestMarksOfOne: a key that marks all that it says takes a part of the budget, and not all of it from everybody else.
func TestMarksOfOne(t *testing.T) {
	b := newBench(t, 1)
	b.set(func(s *promptcache.Settings) { s.Budget = 16 << 10 })
	for i := range 20 {
		k := b.talk("bert", long(300, i))
		k.messages[0]["cache_control"] = map[string]any{"type": "ephemeral", "ttl": "1h"}
		k.say("hello")
	}
	if s := b.cache.Status(); s.Marked < 8 {
		t.Fatalf("%+v", s)
	}
	var all []*talk
	for i, scope := range []string{"anna", "cleo", "dora"} {
		k := b.talk(scope, long(400, 100+i))
		k.say("hello")
		all = append(all, k)
	}
	b.pass(time.Minute)
	b.talk("bert", long(400, 200)).say("hello")
	for _, k := range all {
		u := k.say("again")
		near(t, "reused", u.Cached, u.Prompt, 90)
	}
	if s := b.cache.Status(); s.Bytes > 16<<10 {
		t.Errorf("%d bytes", s.Bytes)
	}
}
