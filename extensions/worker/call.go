package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/host"
)

// Call asks the guest once. The guest has until the call's Deadline, at most the limit's from when it is sent; waiting for
// an instance ends with ctx or the Deadline. Errors are those named above, *host.CallError or ctx's own. A result comes
// with an error too, as far as the call went.
func (w *Worker) Call(ctx context.Context, c host.Call) (host.Result, error) {
	switch {
	case c.Function != abi.Classify && c.Function != abi.Route:
		return host.Result{}, fmt.Errorf("calling the guest: %q is no function to call", cut(c.Function, 80))
	case len(c.Request) > abi.MaxRequest:
		return host.Result{}, fmt.Errorf("calling the guest: a request of %d bytes, at most %d", len(c.Request), abi.MaxRequest)
	}
	if err := w.enter(); err != nil {
		return host.Result{}, err
	}
	w.complete(&c.Services)
	slot, err := w.slot(ctx, &c)
	if err != nil {
		w.calls.Done()
		return host.Result{}, err
	}
	o, p, err := w.ask(ctx, &c, slot)
	if p != nil { // the caller is gone, the call is not
		go func() {
			_, _ = p.wait(context.WithoutCancel(ctx), ctx)
			w.leave(slot)
		}()
		return host.Result{}, err
	}
	w.leave(slot)
	if err != nil {
		return host.Result{}, err
	}
	if c.Services.Metric != nil {
		for _, m := range o.metrics {
			c.Services.Metric(m.name, m.value)
		}
	}
	switch {
	case o.refused != "":
		return o.result, errors.New(o.refused)
	case o.failed != nil:
		return o.result, o.failed
	}
	return o.result, nil
}

// enter counts a call in.
func (w *Worker) enter() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.closed:
		return ErrClosed
	default:
	}
	switch w.state {
	case BackingOff, Suspended, Closed:
		return w.why
	}
	w.calls.Add(1)
	return nil
}

// leave gives the slot back and counts the call out.
func (w *Worker) leave(slot int) {
	w.put(slot)
	w.calls.Done()
}

// put gives an instance back.
func (w *Worker) put(slot int) {
	w.free.push(slot)
	w.slots <- struct{}{}
}

// stack are numbers of instances.
type stack struct {
	mu  sync.Mutex
	all []int
}

func (s *stack) push(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, n)
}

// pop is for whoever has taken from slots.
func (s *stack) pop() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.all[len(s.all)-1]
	s.all = s.all[:len(s.all)-1]
	return n
}

// Soon tells the process that a call is about to come, so that it wakes up while that is made ready: waking up costs more than
// what a small guest does. It never waits, and a call need not follow.
func (w *Worker) Soon() {
	if !spare || w.enter() != nil { // where it may not stay awake it would only wake up twice
		return
	}
	select {
	case <-w.slots:
	default: // all are at work
		w.calls.Done()
		return
	}
	slot := w.free.pop()
	defer w.leave(slot)
	s := w.look()
	if s.state != Ready {
		return
	}
	// One is enough until a call comes: nobody reads them where a process hangs.
	if l := s.now.links[slot]; !l.told {
		l.told = true
		if err := l.send(kindSoon, 0, time.Now(), nil); err != nil {
			s.now.lose(err)
		}
	}
}

// complete adds the worker's services to a call's.
func (w *Worker) complete(s *host.Services) {
	d := &w.cfg.Services
	if s.Now == nil {
		s.Now = d.Now
	}
	if s.Tokens == nil {
		s.Tokens = d.Tokens
	}
	if s.Embed == nil {
		s.Embed = d.Embed
	}
	if s.Decide == nil {
		s.Decide = d.Decide
	}
	if s.KV == nil {
		s.KV = d.KV
	}
	if s.Metric == nil {
		s.Metric = d.Metric
	}
}

// slot waits for an instance.
func (w *Worker) slot(ctx context.Context, c *host.Call) (int, error) {
	select {
	case <-w.slots:
		return w.free.pop(), nil
	default:
	}
	if w.waiting.Add(1) > int64(w.cfg.Limits.Queue) {
		w.waiting.Add(-1)
		return 0, ErrBusy
	}
	defer w.waiting.Add(-1)
	late, stop := timer(c.Deadline)
	defer stop()
	select {
	case <-w.slots:
		return w.free.pop(), nil
	case <-late:
		return 0, tooLate(false)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// timer ends at a time; never for the zero time.
func timer(at time.Time) (<-chan time.Time, func() bool) {
	if at.IsZero() {
		return nil, func() bool { return false }
	}
	t := time.NewTimer(time.Until(at))
	return t.C, t.Stop
}

// tooLate is the end of a call that was not answered in time. Sent tells that a process died with it.
func tooLate(sent bool) error {
	err := &host.CallError{Cause: host.CauseTimeout, Detail: "the deadline passed before the guest could begin"}
	if sent {
		return err
	}
	return fmt.Errorf("%w: %w", ErrWaited, err)
}

// ask sends a call until it is answered. A pending call is returned when ctx ended and the process still has it.
func (w *Worker) ask(ctx context.Context, c *host.Call, slot int) (outcome, *pending, error) {
	var last *generation
	for range sendings {
		g, err := w.current(ctx, c, last)
		if err != nil {
			return outcome{}, nil, err
		}
		left := w.cfg.Limits.Deadline
		if !c.Deadline.IsZero() {
			left = min(left, time.Until(c.Deadline))
		}
		if left <= 0 {
			return outcome{}, nil, tooLate(last != nil)
		}
		p, err := g.send(w.ids.Add(1), c, slot, left)
		if err == nil {
			var o outcome
			o, err = p.wait(ctx, ctx)
			switch {
			case err == nil:
				return o, nil, nil
			case ctx.Err() != nil && errors.Is(err, ctx.Err()):
				return outcome{}, p, err
			}
		}
		last = g
	}
	return outcome{}, nil, &host.CallError{Cause: CauseDied, Detail: fmt.Sprintf("%d processes ended under this call", sendings)}
}

// current waits for a process that serves and is not the one that died.
func (w *Worker) current(ctx context.Context, c *host.Call, last *generation) (*generation, error) {
	s := w.look()
	if s.state == Ready && s.now != last {
		return s.now, nil
	}
	late, stop := timer(c.Deadline)
	defer stop()
	for {
		switch s.state {
		case Ready:
			if s.now != last {
				return s.now, nil
			}
		case BackingOff, Suspended, Closed:
			return nil, s.why
		}
		select {
		case <-s.change:
		case <-late:
			return nil, tooLate(last != nil)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		s = w.look()
	}
}
