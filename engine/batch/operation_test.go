package batch_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"onebit/engine/batch"
)

// take returns a session with a text, as a file would hold it.
func take(e *fakeEngine, text string) func(context.Context) (batch.Session, []int32, error) {
	return func(context.Context) (batch.Session, []int32, error) {
		s, err := e.NewSession()
		s.(*fakeSession).tokens = encode(text)
		return s, encode(text), err
	}
}

// holds is a write that only looks whether the session holds a text.
func holds(t *testing.T, text string) func(context.Context, batch.Session) error {
	return func(_ context.Context, s batch.Session) error {
		if got := s.(*fakeSession).tokens; !slices.Equal(got, encode(text)) {
			t.Errorf("the session holds %q, want %q", got, text)
		}
		return nil
	}
}

// TestSave: an operation waits for its slot, and keeps nothing else waiting.
func TestSave(t *testing.T) {
	e := &fakeEngine{next: say('a', 'b', 'c', 'd'), during: slow(time.Second)}
	bubble(t, e, 2, 256, func(f *fixture) {
		began := time.Now()
		first := f.begin("one:", 3, inSlot(0))
		time.Sleep(500 * time.Millisecond)
		saved := make(chan struct{})
		go func() {
			defer close(saved)
			n, err := f.s.Save(f.t.Context(), 0, func(ctx context.Context, s batch.Session) error {
				if d := time.Since(began); d != 3*time.Second {
					t.Errorf("the slot was there after %v", d)
				}
				time.Sleep(time.Minute) // a slow disk
				return holds(t, "one:ab")(ctx, s)
			})
			if n != 6 || err != nil {
				t.Errorf("saved %d tokens, %v", n, err)
			}
		}()
		first.wait(t)
		synctest.Wait()
		if st := f.s.States(); !st[0].Busy || st[1].Busy || st[0].Held != 6 {
			t.Errorf("states %+v", st)
		}
		pinned := f.begin("one:ab more:", 2, inSlot(0))
		for range 3 {
			f.run("two:", 2) // in the other slot
		}
		if d := time.Since(began); d > 20*time.Second {
			t.Errorf("others waited: %v", d)
		}
		<-saved
		pinned.wait(t)
		if d := time.Since(began); d < time.Minute || d > 70*time.Second {
			t.Errorf("a task for the slot came after %v", d)
		}
		if c := pinned.last.State.Timings; c.Cached != 6 || c.Snapshot {
			t.Errorf("the slot lost what was saved: %+v", c)
		}
	})
}

func TestSaveOfAnEmptySlot(t *testing.T) {
	bubble(t, &fakeEngine{}, 1, 64, func(f *fixture) {
		if n, err := f.s.Save(f.t.Context(), 0, holds(t, "")); n != 0 || err != nil {
			t.Errorf("%d tokens, %v", n, err)
		}
	})
}

// TestRestore: the first task finds what was restored, and it is told so; then it is the slot's own.
func TestRestore(t *testing.T) {
	e := &fakeEngine{next: say('x', 'y')}
	bubble(t, e, 2, 256, func(f *fixture) {
		f.run("something else:", 2, inSlot(1))
		if err := f.s.Restore(f.t.Context(), 1, take(e, "a long story:")); err != nil {
			t.Fatal(err)
		}
		if st := f.s.States()[1]; st.Busy || st.Held != 13 {
			t.Errorf("state %+v", st)
		}
		for i, want := range []batch.Timings{{Cached: 13, Snapshot: true, Prompt: 6}, {Cached: 18, Prompt: 1}} {
			c := f.run("a long story: more:", 2) // it finds the slot by itself
			got := c.last.State.Timings
			if c.text != "xy" || c.last.State.Slot != 1 || got.Cached != want.Cached || got.Snapshot != want.Snapshot || got.Prompt != want.Prompt {
				t.Errorf("task %d: %q in slot %d, %+v", i, c.text, c.last.State.Slot, got)
			}
		}
		if err := f.s.Restore(f.t.Context(), 0, take(e, "another:")); err != nil {
			t.Fatal(err)
		}
		if c := f.run("nothing alike:", 1, inSlot(0)).last.State.Timings; c.Cached != 0 || c.Snapshot {
			t.Errorf("a task that shares nothing: %+v", c)
		}
	})
}

// TestRestoreFails: the slot is empty then, and works.
func TestRestoreFails(t *testing.T) {
	e := &fakeEngine{next: say('x')}
	bubble(t, e, 1, 256, func(f *fixture) {
		f.run("one:", 1)
		damaged := errors.New("damaged")
		err := f.s.Restore(f.t.Context(), 0, func(context.Context) (batch.Session, []int32, error) { return nil, nil, damaged })
		if !errors.Is(err, damaged) || e.open != 0 {
			t.Errorf("%v, and %d sessions are open", err, e.open)
		}
		if c := f.run("one:", 1); c.text != "x" || c.last.State.Timings.Cached != 0 {
			t.Errorf("%q, %+v", c.text, c.last.State.Timings)
		}
	})
}

// TestErase: what is erased is gone, and its slot is the first to be taken.
func TestErase(t *testing.T) {
	e := &fakeEngine{}
	bubble(t, e, 2, 256, func(f *fixture) {
		f.run("one:", 1, inSlot(0))
		f.run("two:", 1, inSlot(1))
		if n, err := f.s.Erase(f.t.Context(), 1); n != 4 || err != nil || e.open != 1 {
			t.Errorf("erased %d tokens, %v; %d sessions are open", n, err, e.open)
		}
		if n, err := f.s.Erase(f.t.Context(), 1); n != 0 || err != nil {
			t.Errorf("erased %d tokens of nothing, %v", n, err)
		}
		if c := f.run("two:", 1); c.last.State.Slot != 1 || c.last.State.Timings.Cached != 0 {
			t.Errorf("slot %d, %+v", c.last.State.Slot, c.last.State.Timings)
		}
		if _, err := f.s.Erase(f.t.Context(), 2); err == nil {
			t.Error("a slot that is not there was erased")
		}
	})
}

// TestOperationsTakeTheirTurn: who came first has the slot first.
func TestOperationsTakeTheirTurn(t *testing.T) {
	e := &fakeEngine{during: slow(time.Second)}
	bubble(t, e, 1, 256, func(f *fixture) {
		f.begin("one:", 3)
		synctest.Wait()
		f.begin("two:", 3)
		synctest.Wait()
		erased := make(chan int, 1)
		go func() {
			n, err := f.s.Erase(f.t.Context(), 0)
			if err != nil {
				t.Error(err)
			}
			erased <- n
		}()
		synctest.Wait()
		last := f.begin("two: and more", 3).wait(t)
		if n := <-erased; n != 6 || last.last.State.Timings.Cached != 0 {
			t.Errorf("%d tokens were erased, want the second task's 6; the third found %+v", n, last.last.State.Timings)
		}
	})
}

// TestOperationsEnd: who does not wait any more is not served, and a stopping scheduler waits for who is.
func TestOperationsEnd(t *testing.T) {
	e := &fakeEngine{during: slow(time.Second)}
	bubble(t, e, 2, 256, func(f *fixture) {
		why := errors.New("nobody waits")
		ctx, cancel := context.WithCancelCause(f.t.Context())
		running := f.begin("one:", 5, inSlot(0))
		time.Sleep(1500 * time.Millisecond)
		cancel(why)
		if _, err := f.s.Erase(ctx, 0); !errors.Is(err, why) {
			t.Errorf("an operation that nobody wants: %v", err)
		}
		running.wait(t)
		ctx, cancel = context.WithCancelCause(f.t.Context())
		_, err := f.s.Save(ctx, 0, func(ctx context.Context, _ batch.Session) error {
			cancel(why)
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if !errors.Is(err, why) {
			t.Errorf("an operation that is cancelled while it runs: %v", err)
		}
		if c := f.run("one:", 1, inSlot(0)); c.last.State.Timings.Cached != 3 {
			t.Errorf("after that: %+v", c.last.State.Timings)
		}

		errs := make(chan error, 3)
		go func() {
			_, err := f.s.Save(f.t.Context(), 0, func(ctx context.Context, s batch.Session) error {
				<-ctx.Done()
				time.Sleep(time.Second) // it needs a moment to see that
				return errors.Join(context.Cause(ctx), holds(t, "one:")(ctx, s))
			})
			errs <- err
		}()
		go func() {
			errs <- f.s.Restore(f.t.Context(), 1, func(ctx context.Context) (batch.Session, []int32, error) {
				<-ctx.Done()
				return take(e, "late:")(ctx) // it is closed with all others
			})
		}()
		synctest.Wait()
		go func() {
			_, err := f.s.Erase(f.t.Context(), 0)
			errs <- err
		}()
		synctest.Wait()
		f.stop()
		stopped := 0
		for range 3 {
			if err := <-errs; errors.Is(err, batch.ErrStopped) {
				stopped++
			} else if err != nil {
				t.Error(err)
			}
		}
		if stopped != 2 { // the restoring one was done
			t.Errorf("%d operations were told", stopped)
		}
		if _, err := f.s.Erase(f.t.Context(), 0); !errors.Is(err, batch.ErrStopped) {
			t.Errorf("after the end: %v", err)
		}
	})
}
