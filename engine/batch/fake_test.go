package batch_test

import (
	"context"
	"hash/fnv"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"onebit/engine/batch"
	"onebit/engine/model"
)

// The fake vocabulary: a token for each byte, and one that ends an answer.
const (
	end       = 256
	marker    = 257 // a control token
	vocabSize = 258
)

type vocabulary struct{}

func (vocabulary) IsEOG(id int32) bool { return id == end }

func (vocabulary) Piece(id int32, special bool) []byte {
	switch {
	case id < end:
		return []byte{byte(id)}
	case special:
		return []byte("<m>")
	}
	return nil
}

func encode(text string) []int32 {
	ids := make([]int32, len(text))
	for i := range len(text) {
		ids[i] = int32(text[i])
	}
	return ids
}

// fakeEngine computes logits from all tokens of a session, so that any mistake
// in what a session holds changes the answer.
type fakeEngine struct {
	next   func(tokens []int32) int32     // what follows tokens; nil is a letter made of all of them
	custom func(tokens []int32) []float32 // the logits, where they are to be others
	during func(steps []batch.Step) error

	mu     sync.Mutex
	passes []pass
	open   int // sessions
	made   int
}

// pass is what one Eval was given.
type pass []part

type part struct {
	session, tokens int
	logits          bool
}

type fakeSession struct {
	engine *fakeEngine
	id     int
	tokens []int32
}

func (e *fakeEngine) NewSession() (batch.Session, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open++
	e.made++
	return &fakeSession{engine: e, id: e.made - 1}, nil
}

func (s *fakeSession) Truncate(n int) { s.tokens = s.tokens[:min(n, len(s.tokens))] }

func (s *fakeSession) Close() {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	s.engine.open--
}

// tree returns the logits of a tree behind tokens.
func (e *fakeEngine) tree(tokens []int32, st *batch.Step) (outs [][]float32) {
	for _, at := range st.Tree.Logits {
		var path []int32
		for i := at; i >= 0; i = st.Tree.Parents[i] {
			path = append(path, st.Tokens[i])
		}
		slices.Reverse(path)
		outs = append(outs, e.logits(slices.Concat(tokens, path)))
	}
	return outs
}

func (e *fakeEngine) Eval(_ context.Context, steps []batch.Step) error {
	if e.during != nil {
		if err := e.during(steps); err != nil {
			return err
		}
	}
	var p pass
	for i := range steps {
		st := &steps[i]
		s := st.Session.(*fakeSession)
		if st.Tree != nil {
			p = append(p, part{s.id, len(st.Tokens) - st.Tree.From, true})
			st.Outs = e.tree(s.tokens, st)
			continue
		}
		p = append(p, part{s.id, len(st.Tokens), st.Logits})
		s.tokens = append(s.tokens, st.Tokens...)
		if st.Logits {
			st.Out = e.logits(s.tokens)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.passes = append(e.passes, p)
	return nil
}

func (e *fakeEngine) logits(tokens []int32) []float32 {
	if e.custom != nil {
		return e.custom(tokens)
	}
	out := make([]float32, vocabSize)
	next := letter
	if e.next != nil {
		next = e.next
	}
	out[next(tokens)] = 20
	return out
}

func (e *fakeEngine) recorded() []pass {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]pass(nil), e.passes...)
}

// letter returns a lower-case letter made of all tokens.
func letter(tokens []int32) int32 {
	h := fnv.New32a()
	for _, id := range tokens {
		h.Write([]byte{byte(id), byte(id >> 8)})
	}
	return int32('a' + h.Sum32()%26)
}

// say answers every prompt that ends in ':' with some tokens and the end.
func say(reply ...int32) func([]int32) int32 {
	return func(tokens []int32) int32 {
		for i := len(tokens) - 1; i >= 0; i-- {
			if tokens[i] == ':' {
				if n := len(tokens) - 1 - i; n < len(reply) {
					return reply[n]
				}
				break
			}
		}
		return end
	}
}

// slow makes every pass take a time.
func slow(d time.Duration) func([]batch.Step) error {
	return func([]batch.Step) error {
		time.Sleep(d)
		return nil
	}
}

// fixture is a scheduler at work in fake time.
type fixture struct {
	t    *testing.T
	s    *batch.Scheduler
	stop func()
}

// bubble runs a test with a scheduler. A goroutine or session left over at the
// end fails it.
func bubble(t *testing.T, e *fakeEngine, slots, tokens int, test func(f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := batch.New(batch.Config{
			Engine: e, Vocabulary: vocabulary{}, NewSampler: model.NewSampler, Slots: slots, Context: tokens, Log: slog.New(slog.DiscardHandler),
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.Run(ctx)
		}()
		f := &fixture{t: t, s: s, stop: sync.OnceFunc(func() {
			cancel()
			<-done
		})}
		test(f)
		f.stop()
		if e.open != 0 {
			t.Errorf("%d sessions are left open", e.open)
		}
	})
}

// call is a task under way. The fields after done are set when it is closed.
type call struct {
	gone chan struct{}
	done chan struct{}

	events []batch.Event
	text   string
	last   batch.Event
}

// begin submits a task that makes at most n tokens, greedily.
func (f *fixture) begin(prompt string, n int, change ...func(*batch.Options)) *call {
	f.t.Helper()
	o := &batch.Options{CachePrompt: true, Slot: -1, MaxTokens: n}
	for _, c := range change {
		c(o)
	}
	c := &call{gone: make(chan struct{}), done: make(chan struct{})}
	box := batch.NewMailbox()
	if err := f.s.Submit(&batch.Task{Prompt: encode(prompt), Options: o, Gone: c.gone, Box: box, Tag: prompt}); err != nil {
		f.t.Fatal(err)
	}
	go c.collect(box)
	return c
}

func (c *call) collect(box *batch.Mailbox) {
	defer close(c.done)
	var text strings.Builder
	for {
		select {
		case <-c.gone:
			return
		case <-box.Ready():
		}
		for _, e := range box.Take() {
			c.events = append(c.events, e)
			text.WriteString(e.Text)
			if c.last = e; e.Kind == batch.Done || e.Kind == batch.Failed {
				c.text = text.String()
				return
			}
		}
	}
}

// run waits for the whole answer of a task.
func (f *fixture) run(prompt string, n int, change ...func(*batch.Options)) *call {
	f.t.Helper()
	return f.begin(prompt, n, change...).wait(f.t)
}

// wait waits for an answer and fails the test when there is an error instead.
func (c *call) wait(t *testing.T) *call {
	t.Helper()
	<-c.done
	if c.last.Kind != batch.Done {
		t.Fatalf("the last event is of kind %v, with the error %v", c.last.Kind, c.last.Err)
	}
	return c
}

// alone returns the answer to a prompt that has the engine for itself.
func alone(t *testing.T, e *fakeEngine, prompt string, n int) (text string) {
	t.Helper()
	bubble(t, e, 1, 8192, func(f *fixture) { text = f.run(prompt, n).text })
	return text
}

func inSlot(id int) func(*batch.Options) { return func(o *batch.Options) { o.Slot = id } }

func stopAt(words ...string) func(*batch.Options) { return func(o *batch.Options) { o.Stop = words } }

func noReuse(o *batch.Options) { o.CachePrompt = false }
