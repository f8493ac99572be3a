package extensions_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"onebit/extensions"
	"onebit/extensions/abi"
	"onebit/extensions/host"
)

// shelf keeps conversations in memory, as a store does on a disk.
type shelf struct {
	mu    sync.Mutex
	rows  map[string]extensions.Conversation
	names map[string]string
	order map[string][]string // of each row its names, the latest last
	finds int
}

func newShelf() *shelf {
	return &shelf{rows: map[string]extensions.Conversation{}, names: map[string]string{}, order: map[string][]string{}}
}

func (s *shelf) Put(c extensions.Conversation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range c.Names {
		s.names[n] = c.ID
		s.order[c.ID] = append(slices.DeleteFunc(s.order[c.ID], func(old string) bool { return old == n }), n)
	}
	s.rows[c.ID] = c
}

func (s *shelf) May([]string) bool { return true }

func (s *shelf) Find(_ context.Context, names []string) *extensions.Conversation {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finds++
	for _, n := range names {
		id, ok := s.names[n]
		if !ok {
			id = n
		}
		if c, ok := s.rows[id]; ok {
			c.Owner, c.Names = extensions.Owner{}, nil
			for _, name := range s.order[id] {
				if s.names[name] == id {
					c.Names = append(c.Names, name)
				}
			}
			c.Names = c.Names[max(0, len(c.Names)-8):] // as the store does
			return &c
		}
	}
	return nil
}

// chat is a request whose messages of the user are these.
func chat(texts ...string) extensions.Input {
	in := input("")
	var all []string
	for i, t := range texts {
		if i > 0 {
			all = append(all, fmt.Sprintf(`{"role":"assistant","content":"on %s"}`, texts[i-1]))
		}
		all = append(all, fmt.Sprintf(`{"role":"user","content":%q}`, t))
	}
	in.Body = fmt.Appendf(nil, `{"messages":[%s]}`, strings.Join(all, ","))
	return in
}

// picky is a policy that goes by what the last message of the user begins with.
func picky(asked *int) guest {
	return func(r abi.Request, _ host.Call) (string, error) {
		if !real(r) {
			return "", nil
		}
		if asked != nil {
			*asked++
		}
		at := []string{"small", "large"}
		if strings.HasPrefix(r.Head, "hard") {
			at = []string{"large", "small"}
		}
		b, err := json.Marshal(abi.Decision{V: 1, Action: abi.ActionRoute, Candidates: at, Class: "code", Confidence: 0.5, Reason: "secret " + r.Head})
		return string(b), err
	}
}

// affine is a manager with a policy and with something that survives a restart.
func affine(t testing.TB, g guest, everyTurn bool) *fixture {
	f := open(t)
	f.kept = newShelf()
	f.restart()
	b := module("m", abi.Policy)
	f.runner.guests[hashOf(b)] = g
	_, err := f.push(upload{module: b, manifest: manifest("m", `,"classes":["code"]`)})
	f.must(err)
	f.must(f.Activate(t.Context(), anna, "policy", extensions.Placement{Module: "m", EveryTurn: &everyTurn}))
	return f
}

func (f *fixture) restart() {
	f.stop()
	f.start()
}

func (f *fixture) decide(in extensions.Input) extensions.Outcome {
	f.t.Helper()
	return f.Decide(f.t.Context(), in)
}

// TestStays: a conversation stays where its first turn went, whatever the later ones say, over restarts, and however it is
// told apart. (T29: "commit it" does not go where a short question would.)
func TestStays(t *testing.T) {
	asked := 0
	f := affine(t, picky(&asked), false)
	var texts []string
	for turn := range 12 {
		texts = append(texts, []string{"hard: refactor all of it", "commit it"}[min(turn, 1)]+strings.Repeat("!", turn))
		o := f.decide(chat(texts...))
		why := strings.HasSuffix(o.Why, "; kept")
		if o.Candidate != "large" || o.Kept != (turn > 0) || why != (turn > 0) || asked != 1 || o.Class != "code" || o.Ranked[1] != "small" {
			t.Fatalf("turn %d: %+v, asked %d times", turn, o, asked)
		}
		if turn%3 == 2 {
			f.restart()
		}
	}
	if o := f.decide(chat("commit it")); o.Candidate != "small" || o.Kept {
		t.Errorf("another conversation: %+v", o)
	}
	for id, c := range f.kept.rows {
		if b, _ := json.Marshal(c); strings.Contains(string(b), "secret") || strings.Contains(string(b), "refactor") {
			t.Errorf("%s keeps words of the prompt: %s", id, b)
		}
	}
}

// TestAlike: conversations that began with the same words are told apart where they part.
func TestAlike(t *testing.T) {
	for _, forget := range []bool{false, true} {
		t.Run(fmt.Sprint("restarts: ", forget), func(t *testing.T) {
			f := affine(t, picky(nil), false)
			ask := func(texts ...string) extensions.Outcome {
				if forget {
					f.restart()
				}
				return f.decide(chat(texts...))
			}
			first := ask("hello")
			same := ask("hello")
			a2 := ask("hello", "a")
			b2 := ask("hello", "b")
			a3, b3 := ask("hello", "a", "x"), ask("hello", "b", "x")
			again := ask("hello")
			b4, c2 := ask("hello", "b", "x", "y"), ask("hello", "c")
			edited := ask("hello", "a", "z")
			if same.Conversation != first.Conversation || a2.Conversation != first.Conversation || a3.Conversation != first.Conversation {
				t.Errorf("the first one does not go on: %q %q %q %q", first.Conversation, same.Conversation, a2.Conversation, a3.Conversation)
			}
			if b2.Conversation == a2.Conversation || b3.Conversation != b2.Conversation || b4.Conversation != b2.Conversation || !b2.Kept {
				t.Errorf("the second one: %q %q %q", b2.Conversation, b3.Conversation, b4.Conversation)
			}
			if again.Kept || again.Conversation == first.Conversation || c2.Conversation != again.Conversation || !c2.Kept {
				t.Errorf("the same opening anew: %+v, %+v", again, c2)
			}
			if !edited.Kept || edited.Conversation == first.Conversation {
				t.Errorf("a turn that was written anew: %+v", edited)
			}
		})
	}
}

// TestOwners: two keys never share a conversation, whatever they send; what is private does not reach the disk.
func TestOwners(t *testing.T) {
	f := affine(t, picky(nil), false)
	ids := map[string]bool{}
	for _, explicit := range []bool{false, true} {
		for _, who := range [][2]string{{"anna", "k1"}, {"anna", "k2"}, {"bert", "k3"}, {"anna", ""}, {"bert", ""}} {
			in := chat("hard: the same")
			in.Tenant, in.Key = who[0], who[1]
			if explicit {
				in.Header = http.Header{"X-Session-Id": {"the same"}}
			}
			o := f.decide(in)
			f.Settle(t.Context(), o, extensions.Served{Candidate: o.Candidate})
			if o.Kept || ids[o.Conversation] {
				t.Errorf("%v comes into somebody's conversation", who)
			}
			ids[o.Conversation] = true
			if o := f.decide(in); !o.Kept {
				t.Errorf("%v: %+v", who, o)
			}
		}
	}
	before, finds := len(f.kept.rows), f.kept.finds
	in := chat("hard: a secret")
	in.Private = true
	f.Settle(t.Context(), f.decide(in), extensions.Served{Candidate: "large", Tokens: 9})
	if o := f.decide(in); !o.Kept || len(f.kept.rows) != before || f.kept.finds != finds {
		t.Errorf("%+v; %d rows, %d before", o, len(f.kept.rows), before)
	}
	// a key that becomes private in the middle of a conversation is, and writes again when it is not any more
	later := chat("hard: soon a secret")
	f.Settle(t.Context(), f.decide(later), extensions.Served{Candidate: "large", Tokens: 9})
	before = len(f.kept.rows)
	was := f.kept.rows[f.decide(later).Conversation]
	later = chat("hard: soon a secret", "more")
	later.Private = true
	o := f.decide(later)
	f.Settle(t.Context(), o, extensions.Served{Candidate: "large", Tokens: 99, Response: "resp_secret"})
	if now := f.kept.rows[o.Conversation]; !o.Kept || now.Turns != was.Turns || now.Tokens != was.Tokens || len(f.kept.rows) != before {
		t.Errorf("%+v was written of what is private", now)
	}
	later.Private = false
	if f.Settle(t.Context(), f.decide(later), extensions.Served{Candidate: "large", Tokens: 10}); f.kept.rows[o.Conversation].Turns != 2 {
		t.Errorf("%+v", f.kept.rows[o.Conversation])
	}
	if n := f.Forget(func(o extensions.Owner) bool { return o.Key == "k1" }); n != 4 {
		t.Errorf("%d of one key were forgotten", n)
	}
}

// TestResponses: an answer's id leads to the conversation that it belongs to, over restarts and branches.
func TestResponses(t *testing.T) {
	asked := 0
	f := affine(t, picky(&asked), false)
	first := chat("hard: begin")
	o := f.decide(first)
	f.Settle(t.Context(), o, extensions.Served{Candidate: "large", Response: "resp_1", Tokens: 5000})
	for turn := 1; turn < 12; turn++ {
		if turn%4 == 0 {
			f.restart()
		}
		in := input("")
		in.Body = fmt.Appendf(nil, `{"input":"easy","previous_response_id":"resp_%d"}`, turn)
		next := f.decide(in)
		if next.Conversation != o.Conversation || next.Candidate != "large" || !next.Kept || asked != 1 {
			t.Fatalf("turn %d: %+v, asked %d times", turn, next, asked)
		}
		f.Settle(t.Context(), next, extensions.Served{Candidate: "large", Response: fmt.Sprint("resp_", turn+1), Tokens: 5000 + turn})
		in.Tenant, in.Key = "bert", "k9"
		if other := f.decide(in); other.Conversation == o.Conversation {
			t.Fatal("somebody else goes on from it")
		}
		asked = 1
	}
	if row := f.kept.rows[o.Conversation]; row.Turns != 12 || row.Tokens != 5011 {
		t.Errorf("%+v", row)
	}
}

// TestMoves: a conversation moves when its place is gone or not well and another is, and when its policy, asked in each turn,
// names one that does not cost the person a wait.
func TestMoves(t *testing.T) {
	long := strings.Repeat("word ", 8_000) // 10,000 tokens
	for name, tt := range map[string]struct {
		everyTurn bool
		turns     []string
		change    func(in *extensions.Input)
		at        string
		why       string
	}{
		"stays":                      {false, []string{"hard", "easy"}, nil, "large", "; kept"},
		"is gone":                    {false, []string{"hard", "easy"}, func(in *extensions.Input) { in.Candidates = in.Candidates[:1] }, "small", "; switched: large is gone"},
		"is not well":                {false, []string{"hard", "easy"}, func(in *extensions.Input) { in.Candidates[1].Healthy = false }, "small", "; switched: large is not well"},
		"nothing is well":            {false, []string{"hard", "easy"}, func(in *extensions.Input) { in.Candidates[0].Healthy, in.Candidates[1].Healthy = false, false }, "large", "; kept"},
		"a little prompt":            {true, []string{"hard", "easy"}, nil, "small", "; switched: the policy wants small"},
		"the policy is content":      {true, []string{"hard", "hard as well"}, nil, "large", "; kept"},
		"a large prompt":             {true, []string{"hard " + long, "easy"}, nil, "large", "; kept: small would take 1m40s more"},
		"a large prompt, a fast one": {true, []string{"hard " + long, "easy"}, func(in *extensions.Input) { in.Candidates[0].PromptS = 6000 }, "small", "; switched: the policy wants small"},
		"it is cached there as well": {true, []string{"hard " + long, "easy"}, func(in *extensions.Input) { in.Expect = func(string) int { return 9_900 } }, "small", "; switched: the policy wants small; cached=9900"},
		"it is cached nowhere":       {true, []string{"hard " + long, "easy"}, func(in *extensions.Input) { in.Expect = func(string) int { return 0 } }, "small", "; switched: the policy wants small"},
		"a long line before its place": {true, []string{"hard " + long, "easy"}, func(in *extensions.Input) {
			in.Wait = func(c string) time.Duration { return map[string]time.Duration{"large": 2 * time.Minute}[c] }
		}, "small", "; switched: the policy wants small"},
		"what it wants is not well": {true, []string{"hard", "easy"}, func(in *extensions.Input) { in.Candidates[0].Healthy = false }, "large", "; kept"},
	} {
		t.Run(name, func(t *testing.T) {
			f := affine(t, picky(nil), tt.everyTurn)
			o := f.decide(chat(tt.turns[0]))
			f.Settle(t.Context(), o, extensions.Served{Candidate: o.Candidate, Tokens: len(tt.turns[0])/4 + 20})
			in := chat(tt.turns...)
			if tt.change != nil {
				tt.change(&in)
			}
			f.restart()
			o = f.decide(in)
			if o.Candidate != tt.at || !strings.HasSuffix(o.Why, tt.why) || o.Ranked[0] != o.Candidate {
				t.Errorf("%+v", o)
			}
			if slices.Contains(o.Ranked[1:], "sick") {
				t.Errorf("what is not well is to be tried: %v", o.Ranked)
			}
		})
	}
}

// TestFailover: who was served elsewhere stays there, once that was well.
func TestFailover(t *testing.T) {
	f := affine(t, picky(nil), false)
	f.decide(chat("hard"))
	o := f.decide(chat("hard", "more"))
	if o.Candidate != "large" {
		t.Fatalf("nothing was served: %+v", o)
	}
	f.Settle(t.Context(), o, extensions.Served{Candidate: "small", Tokens: 100})
	f.restart()
	if o = f.decide(chat("hard", "more", "and more")); o.Candidate != "small" || !o.Kept || len(o.Ranked) != 2 || o.Ranked[1] != "large" {
		t.Errorf("%+v", o)
	}
	f.Settle(t.Context(), extensions.Outcome{Conversation: "unknown"}, extensions.Served{Candidate: "large"})
}

// TestRanked: only what the policy named is tried; without one all that are well, in the box's order.
func TestRanked(t *testing.T) {
	f := open(t)
	in := input("a")
	in.Candidates = append(in.Candidates, abi.Candidate{ID: "gpu", Device: "hrx", Healthy: true})
	if o := f.decide(in); strings.Join(o.Ranked, " ") != "gpu small large" {
		t.Errorf("without a policy: %v", o.Ranked)
	}
	f.activate("policy", f.add("m", say(`{"v":1,"action":"route","candidates":["sick","large"]}`)))
	in = chat("b")
	if o := f.decide(in); strings.Join(o.Ranked, " ") != "large" {
		t.Errorf("with a policy: %v", o.Ranked)
	}
}

// TestPatience: while its place is busy and another is free, a conversation waits about as long as the other one would take.
func TestPatience(t *testing.T) {
	f := affine(t, picky(nil), false)
	o := f.decide(chat("hard"))
	f.Settle(t.Context(), o, extensions.Served{Candidate: "large", Tokens: 1500})
	for name, tt := range map[string]struct {
		free []string
		rate float64
		want time.Duration
	}{
		"its place is free":       {[]string{"large", "small"}, 100, 0},
		"nothing is free":         {nil, 100, 0},
		"another is free":         {[]string{"small"}, 100, 15 * time.Second},
		"another is slow":         {[]string{"small"}, 10, 30 * time.Second},
		"another is fast":         {[]string{"small"}, 10_000, 2 * time.Second},
		"what is free is no good": {[]string{"sick"}, 100, 0},
	} {
		in := chat("hard", "easy")
		in.Free, in.Candidates[0].PromptS = tt.free, tt.rate
		if o := f.decide(in); o.Patience != tt.want || o.Candidate != "large" {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// TestRequestCached: what a place has of the prompt is told.
func TestRequestCached(t *testing.T) {
	f := open(t)
	var seen abi.Request
	f.activate("policy", f.add("m", func(r abi.Request, _ host.Call) (string, error) {
		if real(r) {
			seen = r
		}
		return "", nil
	}))
	in := input("a")
	in.Candidates[1].Load = 0.5
	in.Expect = func(c string) int { return len(c) }
	if o := f.decide(in); !strings.HasSuffix(o.Why, "; cached=5") {
		t.Errorf("%+v", o)
	}
	if o := f.decide(in); !strings.HasSuffix(o.Why, "abstain; kept") {
		t.Errorf("%+v", o)
	}
	if c := seen.Candidates; c[0].Cached != 5 || c[1].Load != 0.5 || seen.Key != "k1" || seen.Hour != 3 {
		t.Errorf("%+v", seen)
	}
	if in.Candidates[0].Cached != 0 {
		t.Error("the caller's candidates were changed")
	}
}

// TestManyOverRestart: a thousand conversations go on where they were.
func TestManyOverRestart(t *testing.T) {
	f := affine(t, picky(nil), false)
	text := func(n int) string { return fmt.Sprint([]string{"hard ", "easy "}[n%2], n) }
	for n := range 1000 {
		f.decide(chat(text(n)))
	}
	f.restart()
	for n := range 1000 {
		if o := f.decide(chat(text(n), "more")); !o.Kept || o.Candidate != []string{"large", "small"}[n%2] {
			t.Fatalf("%d: %+v", n, o)
		}
	}
}

// TestManyOfOne: very many conversations of one key push out none of another's, of which nothing is on the disk.
func TestManyOfOne(t *testing.T) {
	f := affine(t, picky(nil), false)
	private := func(n int) extensions.Input {
		in := chat(fmt.Sprint("hard: quiet ", n))
		in.Key, in.Private = "quiet", true
		return in
	}
	for n := range 10 {
		f.decide(private(n))
	}
	for n := range 8192 + 100 {
		in := chat(fmt.Sprint("easy ", n))
		in.Key = "loud"
		f.decide(in)
		if n%1000 == 0 {
			f.decide(private(10 + n/1000)) // they come and go
		}
	}
	for n := range 19 {
		if o := f.decide(private(n)); !o.Kept {
			t.Errorf("conversation %d was pushed out: %+v", n, o)
		}
	}
	if n := f.Forget(func(extensions.Owner) bool { return true }); n != 8192 {
		t.Errorf("%d were remembered", n)
	}
}

// TestTogether: many requests of few conversations at a time end with one place for each.
func TestTogether(t *testing.T) {
	f := affine(t, picky(nil), false)
	var group sync.WaitGroup
	for n := range 200 {
		group.Go(func() {
			texts := []string{fmt.Sprint("hard ", n%7), fmt.Sprint("more ", n%3), "and more"}[:1+n%3]
			o := f.decide(chat(texts...))
			if o.Candidate == "" {
				t.Error("no candidate")
			}
			f.Settle(t.Context(), o, extensions.Served{Candidate: o.Candidate, Tokens: n})
			if n%50 == 0 {
				f.Forget(func(extensions.Owner) bool { return true })
			}
		})
	}
	group.Wait()
}

// FuzzKept: whatever stands on the disk, a conversation is served.
func FuzzKept(f *testing.F) {
	f.Add("small", []byte(`{"latest":"x","ranked":["small","gone"],"by":{"policy":"k"},"params":{"temperature":1},"rag":{"collection":"c"}}`), int64(0))
	f.Add("gone", []byte(`{"latest":7}`), int64(-5))
	f.Add("", []byte(`null`), int64(1<<40))
	f.Add("small", []byte(`{`), int64(1))
	f.Fuzz(func(t *testing.T, place string, detail []byte, until int64) {
		x, in := open(t), chat("a")
		first := x.Decide(t.Context(), in)
		x.kept = newShelf()
		x.kept.rows[first.Conversation] = extensions.Conversation{ID: first.Conversation, Place: place, Detail: detail, Until: time.Unix(until, 0), Tokens: int(until), Turns: int(until)}
		x.restart()
		o := x.Decide(t.Context(), in)
		if !slices.ContainsFunc(in.Candidates, func(c abi.Candidate) bool { return c.ID == o.Candidate && c.Healthy }) || o.Ranked[0] != o.Candidate {
			t.Fatalf("%+v", o)
		}
	})
}
