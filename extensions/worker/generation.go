package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/host"
)

// generation is one process with the calls that it has.
type generation struct {
	process  *process
	link     *link
	ready    chan struct{} // closed when it serves or will not: see failed
	failed   error
	answered atomic.Bool // one call was answered
	watched  chan struct{}

	mu    sync.Mutex
	boxes map[uint64]box // by call
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
	p, err := start(append(append([]string(nil), w.cfg.Program...), modeRun), w.room)
	if err != nil {
		return nil, &startError{err: err}
	}
	g := &generation{process: p, boxes: map[uint64]box{}, ready: make(chan struct{}), watched: make(chan struct{})}
	g.link = newLink(p.conn, maxFromChild, g.find)
	go g.watch()
	go func() {
		defer close(g.ready)
		if g.failed = g.boot(w); g.failed != nil {
			p.kill("it did not come to serve")
		}
	}()
	return g, nil
}

// watch joins the ends of the process and of its link.
func (g *generation) watch() {
	defer close(g.watched)
	select {
	case <-g.process.ended:
	case <-g.link.down:
		why := ""
		if err := g.link.failure(); errors.Is(err, errBreach) {
			why = err.Error()
		}
		g.process.kill(why) // without a reason of ours it has its own
		<-g.process.ended
	}
	_ = g.link.fail(errLost)
}

// boot tells the child what it is and waits until it serves.
func (g *generation) boot(w *Worker) error {
	hello := make(box, 1)
	g.open(0, hello)
	defer g.close(0)
	sent := w.spec.send(g.link, w.blobs) // a child that fails early says so before it goes
	f, err := g.link.await(context.Background(), hello, startDeadline())
	switch {
	case err == nil && f.kind == kindReady && sent == nil:
		return nil
	case err == nil && f.kind == kindFailed:
		why, err := readFailure(f.payload)
		if err != nil {
			return &startError{err: err}
		}
		return &startError{err: why.error(), final: why.Final}
	case errors.Is(err, errLate):
		g.process.kill("it did not serve in time")
	}
	<-g.watched
	return &startError{err: g.process.epitaph()}
}

// find tells whose a frame is.
func (g *generation) find(f frame) (box, bool) {
	switch f.kind {
	case kindReady, kindFailed, kindAsk, kindResult:
	default:
		return nil, false
	}
	if (f.id == 0) != (f.kind == kindReady || f.kind == kindFailed) {
		return nil, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	b, ok := g.boxes[f.id]
	return b, ok
}

func (g *generation) open(id uint64, b box) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.boxes[id] = b
}

func (g *generation) close(id uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.boxes, id)
}

// pending is a call that was sent.
type pending struct {
	g      *generation
	call   *host.Call
	id     uint64
	box    box
	killAt time.Time
	asks   int
}

// mostAsks bounds the questions of one call: host calls, and the parts of the prompt.
const mostAsks = abi.MaxHostCalls + 8

// send sends a call. left is its time.
func (g *generation) send(id uint64, c *host.Call, left time.Duration) (*pending, error) {
	p := &pending{g: g, call: c, id: id, box: make(box, 1), killAt: time.Now().Add(left + Grace)}
	wire := wireCall{route: c.Function == abi.Route, texts: c.Text != nil, left: int64(left), seed: c.Seed, request: c.Request}
	if c.Services.Now != nil {
		wire.now = c.Services.Now().UnixNano()
	}
	g.open(id, p.box)
	if err := g.link.send(kindCall, id, p.killAt, wire.append); err != nil {
		g.close(id)
		return nil, fmt.Errorf("%w: %w", errLost, err)
	}
	return p, nil
}

// wait serves the call's questions, with the context of whoever asked, until its end. When ctx ends first the call is
// still out, and the error is ctx's.
func (p *pending) wait(ctx, caller context.Context) (outcome, error) {
	for {
		f, err := p.g.link.await(ctx, p.box, p.killAt)
		switch {
		case err == nil:
		case errors.Is(err, errLate):
			p.g.process.kill(fmt.Sprintf("a call took more than %v longer than it may", Grace))
			return outcome{failed: &host.CallError{Cause: host.CauseTimeout, Detail: "the deadline passed, and its process was killed"}}, nil
		case ctx.Err() != nil && errors.Is(err, ctx.Err()):
			return outcome{}, err
		default:
			return outcome{}, fmt.Errorf("%w: %w", errLost, err)
		}
		if f.kind == kindResult {
			o, err := readOutcome(f.payload)
			if err != nil {
				return outcome{}, fmt.Errorf("%w: %w", errLost, p.g.link.fail(fmt.Errorf("%w: an outcome: %w", errBreach, err)))
			}
			p.g.answered.Store(true)
			return o, nil
		}
		if err := p.answer(caller, f.payload); err != nil {
			return outcome{}, fmt.Errorf("%w: %w", errLost, err)
		}
	}
}

// answer serves one question. The process's time stands still meanwhile: it is the box that is slow.
func (p *pending) answer(ctx context.Context, question []byte) error {
	from := time.Now()
	reply, ok := serve(ctx, p.call, question)
	if p.asks++; !ok || p.asks > mostAsks {
		return p.g.link.fail(fmt.Errorf("%w: question %d of a call", errBreach, p.asks))
	}
	p.killAt = p.killAt.Add(time.Since(from))
	return p.g.link.send(kindAnswer, p.id, p.killAt, func(b []byte) []byte { return append(b, reply...) })
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
		<-g.watched
		n.left(g)
		if !spare {
			return nil, g.failed
		}
	}
}

// left forgets a process that has ended.
func (n *nest) left(g *generation) {
	<-g.ready
	<-g.watched
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
