package batch

import (
	"context"
	"fmt"
	"slices"
)

// operation is work on what a slot holds. It waits in the queue like a task until the slot is idle. The slot is held then,
// and takes no task, while whoever asked works on its session in a goroutine of their own: passes for other slots go on.
type operation struct {
	slot   int
	empty  bool                    // the slot loses what it holds
	cancel context.CancelCauseFunc // tells who works on the session that the scheduler stops

	granted chan struct{} // closed when the slot is held, or never will be; the next three are set then
	err     error
	session Session // nil once the slot was emptied
	held    int     // tokens that the slot had

	released chan struct{} // closed when nobody works on the session any more; the next three are set then
	replaced bool
	next     Session // what the slot is to have
	tokens   []int32

	settled chan struct{} // closed when the slot takes tasks again
}

// Save calls write with the session of a slot, once that is idle, and returns how many tokens it has. Until write returns,
// the slot takes no task. The context that write gets also ends when the scheduler stops, which waits for write.
func (s *Scheduler) Save(ctx context.Context, slot int, write func(ctx context.Context, session Session) error) (tokens int, err error) {
	ctx, op, err := s.hold(ctx, &operation{slot: slot})
	if err != nil {
		return 0, err
	}
	err = write(ctx, op.session)
	s.release(op)
	return op.held, err
}

// Restore empties a slot, once it is idle, and gives it the session that read returns, with the tokens that it holds.
// After an error the slot is empty. Contexts are as in Save.
func (s *Scheduler) Restore(ctx context.Context, slot int, read func(ctx context.Context) (Session, []int32, error)) error {
	ctx, op, err := s.hold(ctx, &operation{slot: slot, empty: true})
	if err != nil {
		return err
	}
	session, tokens, err := read(ctx)
	if err == nil {
		op.replaced, op.next, op.tokens = true, session, tokens
	}
	s.release(op)
	return err
}

// Erase empties a slot, once it is idle, and returns how many tokens it had.
func (s *Scheduler) Erase(ctx context.Context, slot int) (tokens int, err error) {
	_, op, err := s.hold(ctx, &operation{slot: slot, empty: true})
	if err != nil {
		return 0, err
	}
	s.release(op)
	return op.held, nil
}

// hold waits until the operation has its slot. Who gets no error must call release.
func (s *Scheduler) hold(ctx context.Context, op *operation) (context.Context, *operation, error) {
	if op.slot < 0 || op.slot >= len(s.slots) {
		return ctx, nil, fmt.Errorf("there is no slot %d", op.slot)
	}
	op.granted, op.released, op.settled = make(chan struct{}), make(chan struct{}), make(chan struct{})
	ctx, op.cancel = context.WithCancelCause(ctx)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		op.cancel(nil)
		return ctx, nil, ErrStopped
	}
	s.queue = append(s.queue, waiting{op: op})
	s.mu.Unlock()
	s.rouse()
	select {
	case <-op.granted:
	case <-ctx.Done():
		if s.withdraw(op) {
			op.cancel(nil)
			return ctx, nil, context.Cause(ctx)
		}
		<-op.granted
	}
	if op.err != nil {
		op.cancel(nil)
		return ctx, nil, op.err
	}
	return ctx, op, nil
}

// withdraw takes an operation out of the queue. It reports whether it was there.
func (s *Scheduler) withdraw(op *operation) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.queue, func(w waiting) bool { return w.op == op })
	if at < 0 {
		return false
	}
	s.queue = slices.Delete(s.queue, at, at+1)
	return true
}

// release gives the slot back and waits until it takes tasks.
func (s *Scheduler) release(op *operation) {
	close(op.released)
	s.rouse()
	<-op.settled
	op.cancel(nil)
}

// grant lets an operation have an idle slot.
func (s *Scheduler) grant(sl *slot, op *operation) {
	op.held = len(sl.tokens)
	switch {
	case op.empty:
		s.reset(sl)
		sl.usedAt = 0
	default:
		if op.err = s.open(sl); op.err != nil {
			close(op.granted)
			return
		}
		op.session = sl.session
	}
	sl.held = op
	s.show(sl, true)
	close(op.granted)
}

// settle makes the slots idle that have been released.
func (s *Scheduler) settle() {
	for _, sl := range s.slots {
		if sl.held == nil {
			continue
		}
		select {
		case <-sl.held.released:
			s.settleSlot(sl)
		default:
		}
	}
}

func (s *Scheduler) settleSlot(sl *slot) {
	op := sl.held
	sl.held = nil
	if op.replaced {
		s.uses++
		sl.session, sl.tokens, sl.promptAt, sl.usedAt, sl.restored = op.next, op.tokens, len(op.tokens), s.uses, true
	}
	s.show(sl, false)
	close(op.settled)
}

// show makes the state of a slot without a task visible.
func (s *Scheduler) show(sl *slot, busy bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := &s.states[sl.id]
	*st = State{ID: st.ID, Busy: busy, Task: st.Task, Tag: st.Tag, Held: len(sl.tokens), Remain: -1}
}
