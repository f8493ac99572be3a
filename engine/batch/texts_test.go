package batch_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"onebit/engine/batch"
	"onebit/engine/model"
)

// fakeEncoder takes ten tokens a pass; a text's vector is its tokens.
type fakeEncoder struct {
	during func(texts []model.Text) error // in every pass

	mu     sync.Mutex
	passes [][]int32 // the first token of each text
}

func (f *fakeEncoder) PassTokens() int { return 10 }

func (f *fakeEncoder) Encode(_ context.Context, texts []model.Text) error {
	var firsts []int32
	for i := range texts {
		firsts = append(firsts, texts[i].Tokens[0])
	}
	f.mu.Lock()
	f.passes = append(f.passes, firsts)
	f.mu.Unlock()
	if f.during != nil {
		if err := f.during(texts); err != nil {
			return err
		}
	}
	for i := range texts {
		for _, id := range texts[i].Tokens {
			texts[i].Out = append(texts[i].Out, float32(id))
		}
	}
	return nil
}

// some returns n texts of four tokens that begin with first, first+1, ...
func some(first int32, n int) []model.Text {
	texts := make([]model.Text, n)
	for i := range texts {
		texts[i].Tokens = []int32{first + int32(i), 0, 0, 0}
	}
	return texts
}

func right(texts []model.Text) bool {
	for _, t := range texts {
		if len(t.Out) != len(t.Tokens) || t.Out[0] != float32(t.Tokens[0]) {
			return false
		}
	}
	return true
}

// texts runs a test in fake time with a queue of an encoder.
func texts(t *testing.T, e *fakeEncoder, test func(t *testing.T, q *batch.Texts)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		q := batch.NewTexts(e)
		var running sync.WaitGroup
		running.Go(func() { q.Run(ctx) })
		synctest.Wait()
		test(t, q)
		cancel()
		running.Wait()
		if err := q.Encode(t.Context(), some(1, 1)); !errors.Is(err, batch.ErrStopped) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// TestTextsTakeTurns: a short request waits for one pass of a long one, and is then in the next.
func TestTextsTakeTurns(t *testing.T) {
	e := &fakeEncoder{}
	texts(t, e, func(t *testing.T, q *batch.Texts) {
		gate := make(chan struct{}) // of the bubble that waits for it
		e.during = func([]model.Text) error {
			if len(e.passes) == 1 {
				<-gate
			}
			return nil
		}
		long, short := some(100, 9), some(200, 1)
		var both sync.WaitGroup
		both.Go(func() {
			if err := q.Encode(t.Context(), long); err != nil || !right(long) {
				t.Errorf("long: %v %v", err, long)
			}
		})
		synctest.Wait()
		both.Go(func() {
			if err := q.Encode(t.Context(), short); err != nil || !right(short) {
				t.Errorf("short: %v %v", err, short)
			}
		})
		synctest.Wait()
		if m := q.Metrics(); m.Busy != 2 || m.Queued != 2 {
			t.Errorf("%d texts in the pass and %d requests waiting, not 2 and 2", m.Busy, m.Queued)
		}
		close(gate)
		both.Wait()
		if len(e.passes) != 5 || !slices.Contains(e.passes[1], 200) {
			t.Errorf("passes %v: not five, or the short text is not in the second", e.passes)
		}
		if m := q.Metrics(); m.Prompt != 40 || m.Passes != 5 || m.Taking != 10 || m.Longest != 4 || m.Queued+m.Busy != 0 {
			t.Errorf("counts %+v", m)
		}
	})
}

// TestTextsLongerThanAPass: one text that is more than a pass has a pass of its own.
func TestTextsLongerThanAPass(t *testing.T) {
	e := &fakeEncoder{}
	texts(t, e, func(t *testing.T, q *batch.Texts) {
		mixed := append(some(1, 1), model.Text{Tokens: make([]int32, 30)}, some(2, 1)[0])
		if err := q.Encode(t.Context(), mixed); err != nil || !right(mixed) || len(e.passes) != 3 {
			t.Errorf("%v, passes %v", err, e.passes)
		}
		if err := q.Encode(t.Context(), nil); err != nil {
			t.Errorf("no texts: %v", err)
		}
	})
}

// TestTextsLeave: what is left of a request that nobody waits for is not encoded.
func TestTextsLeave(t *testing.T) {
	e := &fakeEncoder{}
	texts(t, e, func(t *testing.T, q *batch.Texts) {
		gate := make(chan struct{})
		e.during = func([]model.Text) error { <-gate; return nil }
		ctx, cancel := context.WithCancel(t.Context())
		long := some(1, 20)
		failed := make(chan error, 1)
		go func() { failed <- q.Encode(ctx, long) }()
		synctest.Wait()
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) || long[0].Out != nil {
			t.Errorf("%v", err)
		}
		close(gate)
		if err := q.Encode(t.Context(), some(50, 1)); err != nil {
			t.Error(err)
		}
		if len(e.passes) != 2 {
			t.Errorf("passes %v: those of a client that had gone went on", e.passes)
		}
	})
}

// TestTextsFail: an error of the encoder ends the requests of that pass and no others.
func TestTextsFail(t *testing.T) {
	broken := errors.New("broken")
	e := &fakeEncoder{}
	e.during = func(texts []model.Text) error {
		if slices.ContainsFunc(texts, func(t model.Text) bool { return t.Tokens[0] == 66 }) {
			return broken
		}
		return nil
	}
	texts(t, e, func(t *testing.T, q *batch.Texts) {
		if err := q.Encode(t.Context(), some(66, 7)); !errors.Is(err, broken) {
			t.Errorf("%v", err)
		}
		if err := q.Encode(t.Context(), some(1, 7)); err != nil {
			t.Errorf("the next: %v", err)
		}
	})
}

// TestTextsStop: the end of Run ends what waits and what is in a pass.
func TestTextsStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		e := &fakeEncoder{during: func([]model.Text) error { <-ctx.Done(); return ctx.Err() }}
		q := batch.NewTexts(e)
		go q.Run(ctx)
		failed := make(chan error, 2)
		for i := range 2 {
			go func() { failed <- q.Encode(t.Context(), some(int32(i), 5)) }()
		}
		synctest.Wait()
		cancel()
		for range 2 {
			if err := <-failed; !errors.Is(err, batch.ErrStopped) {
				t.Errorf("%v", err)
			}
		}
	})
}
