package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/host"
)

// generation is one process with its links.
type generation struct {
	process  *process
	links    []*link
	ready    chan struct{} // closed when it serves or will not: see failed
	failed   error
	answered atomic.Bool // one call was answered
}

// startError says why a process did not come to serve. Final tells that the next one would not either.
type startError struct {
	err   error
	final bool
}

func (e *startError) Error() string { return "starting: " + e.err.Error() }
func (e *startError) Unwrap() error { return e.err }

// errLost says that the process died with the call.
var errLost = errors.New("the process ended before it answered")

// begin starts a process. The calling thread must live as long as it is wanted.
func (w *Worker) begin() (*generation, error) {
	n := w.cfg.Limits.Instances
	p, err := start(append(slices.Clone(w.cfg.Program), modeRun, strconv.Itoa(n)), n, w.room)
	if err != nil {
		return nil, &startError{err: err}
	}
	g := &generation{process: p, ready: make(chan struct{})}
	for _, c := range p.conns {
		g.links = append(g.links, newLink(c, maxFromChild))
	}
	go func() {
		defer close(g.ready)
		if g.failed = g.boot(w); g.failed != nil {
			p.kill("it did not come to serve")
		}
	}()
	return g, nil
}

// boot tells the child what it is and waits until it serves.
func (g *generation) boot(w *Worker) error {
	until := startDeadline()
	sent := w.spec.send(g.links[0], w.blobs) // a child that fails early says so before it goes
	f, err := g.links[0].await(context.Background(), until)
	switch {
	case err == nil && f.kind == kindReady && sent == nil:
		return nil
	case err == nil && f.kind == kindFailed:
		why, err := readFailure(f.payload)
		if err != nil {
			return &startError{err: err}
		}
		return &startError{err: why.error(), final: why.Final}
	case err == nil:
		err = fmt.Errorf("%w: kind %d at the start", errBreach, f.kind)
	}
	g.lose(err)
	<-g.process.ended
	return &startError{err: g.process.epitaph()}
}

// lose ends a process whose link failed. The calls on its other links find that out by themselves.
func (g *generation) lose(err error) {
	why := "" // it has its own
	switch {
	case errors.Is(err, errLate):
		why = "it did not answer in time"
	case errors.Is(err, errBreach), errors.Is(err, errFrame):
		why = err.Error()
	}
	g.process.kill(why)
}

// pending is a call that was sent.
type pending struct {
	g      *generation
	link   *link
	call   *host.Call
	id     uint64
	killAt time.Time
	asks   int
}

// mostAsks bounds the questions of one call: host calls, and the parts of the prompt.
const mostAsks = abi.MaxHostCalls + 8

// send sends a call to an instance. left is its time.
func (g *generation) send(id uint64, c *host.Call, slot int, left time.Duration) (*pending, error) {
	p := &pending{g: g, link: g.links[slot], call: c, id: id, killAt: time.Now().Add(left + Grace)}
	wire := wireCall{route: c.Function == abi.Route, texts: c.Text != nil, left: int64(left), seed: c.Seed, request: c.Request}
	if c.Services.Now != nil {
		wire.now = c.Services.Now().UnixNano()
	}
	p.link.told = false
	if err := p.link.send(kindCall, id, p.killAt, wire.append); err != nil {
		return nil, p.lost(err)
	}
	return p, nil
}

// lost gives the process up.
func (p *pending) lost(err error) error {
	p.g.lose(err)
	return fmt.Errorf("%w: %w", errLost, err)
}

// wait serves the call's questions, with the context of whoever asked, until its end. When ctx ends first the call is
// still out, and the error is ctx's.
func (p *pending) wait(ctx, caller context.Context) (outcome, error) {
	for {
		f, err := p.link.await(ctx, p.killAt)
		switch {
		case err == nil:
		case errors.Is(err, errLate):
			p.g.process.kill(fmt.Sprintf("a call took more than %v longer than it may", Grace))
			return outcome{failed: &host.CallError{Cause: host.CauseTimeout, Detail: "the deadline passed, and its process was killed"}}, nil
		case ctx.Err() != nil && errors.Is(err, ctx.Err()):
			return outcome{}, err
		default:
			return outcome{}, p.lost(err)
		}
		switch {
		case f.id == p.id && f.kind == kindResult:
			o, err := readOutcome(f.payload)
			if err != nil {
				return outcome{}, p.lost(err)
			}
			p.g.answered.Store(true)
			return o, nil
		case f.id == p.id && f.kind == kindAsk:
			if err := p.answer(caller, f.payload); err != nil {
				return outcome{}, p.lost(err)
			}
		default:
			return outcome{}, p.lost(fmt.Errorf("%w: kind %d for call %d in call %d", errBreach, f.kind, f.id, p.id))
		}
	}
}

// answer serves one question. The process's time stands still meanwhile: it is the box that is slow.
func (p *pending) answer(ctx context.Context, question []byte) error {
	from := time.Now()
	reply, ok := serve(ctx, p.call, question)
	if p.asks++; !ok || p.asks > mostAsks {
		return fmt.Errorf("%w: question %d of a call", errBreach, p.asks)
	}
	p.killAt = p.killAt.Add(time.Since(from))
	return p.link.send(kindAnswer, p.id, p.killAt, func(b []byte) []byte { return append(b, reply...) })
}

// nest starts processes and ends those that are left.
type nest struct {
	w     *Worker
	spare *generation
	all   []*generation
}

// lay starts a spare. One that cannot start is not missed until it is needed.
func (n *nest) lay() {
	if n.spare != nil {
		return
	}
	if g, err := n.w.begin(); err == nil {
		n.spare, n.all = g, append(n.all, g)
	}
}

// next returns a process that serves: the spare, or a new one.
func (n *nest) next(ctx context.Context) (*generation, error) {
	for {
		g, spare := n.spare, n.spare != nil
		n.spare = nil
		if !spare {
			var err error
			if g, err = n.w.begin(); err != nil {
				return nil, err
			}
			n.all = append(n.all, g)
		}
		select {
		case <-g.ready:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if g.failed == nil {
			return g, nil
		}
		<-g.process.ended
		n.left(g)
		if !spare {
			return nil, g.failed
		}
	}
}

// left forgets a process once it has ended.
func (n *nest) left(g *generation) {
	<-g.ready
	<-g.process.ended
	g.process.close()
	for i, o := range n.all {
		if o == g {
			n.all = append(n.all[:i], n.all[i+1:]...)
			return
		}
	}
}

// empty ends every process and waits for it.
func (n *nest) empty() {
	for len(n.all) > 0 {
		g := n.all[0]
		g.process.kill("the worker is closed")
		n.left(g)
	}
}
