package pool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"onebit/engine"
	"onebit/engine/backend"
)

// Starter starts models as processes, the way that serve does.
type Starter struct {
	Machine        *backend.Machine
	Stdout, Stderr io.Writer // of the processes
	Log            *slog.Logger
	Limits         backend.Limits

	// Plan decides where a model runs; nil plans with Machine.
	Plan func(ctx context.Context, o backend.Options) (*backend.Plan, error)

	// Launch says how a process of a plan is started: the plan's options, and which of its children. Nil starts it as the
	// plan has it.
	Launch func(o backend.Options, n int, c backend.ChildSpec) backend.Launch

	// Wrap puts something before the process that answers chats, once all serve. What it returns is told of the end: a method
	// Park(ctx) error is called before the processes are asked to end, for as long as parkLimit. Nil puts nothing there.
	Wrap func(spec ModelSpec, c *Children) engine.Backend
}

// parkLimit is how long a model may take to put away what it will want again.
const parkLimit = 30 * time.Second

// EndLimit is how long the end of a model takes at most: it puts away what it has, and its processes end or are killed.
const EndLimit = parkLimit + 30*time.Second

// Children is a model with the processes that serve it.
type Children struct {
	Plan      *backend.Plan
	Processes []*backend.Child // in the order of Plan.Children
	backend   engine.Backend

	stop  context.CancelFunc
	park  sync.Once
	group sync.WaitGroup
	done  chan struct{}

	mu  sync.Mutex
	err error
}

var _ Instance = (*Children)(nil)

// Start plans where a model runs, starts its processes and waits until all of them serve; see the type Start. The
// instance is a *Children.
func (s *Starter) Start(ctx context.Context, spec ModelSpec) (Instance, error) {
	planned := s.Plan
	if planned == nil {
		planned = func(ctx context.Context, o backend.Options) (*backend.Plan, error) {
			return backend.NewPlan(ctx, s.Machine, o)
		}
	}
	plan, err := planned(ctx, spec.Options)
	if err != nil {
		return nil, err
	}
	c := &Children{Plan: plan, done: make(chan struct{})}
	for n, one := range plan.Children() {
		var launch backend.Launch
		if s.Launch != nil {
			launch = s.Launch(spec.Options, n, one)
		}
		child, err := backend.NewChild(backend.ChildConfig{
			Launch: launch, Conduit: launch != nil && one.Builtin,
			Name: one.Label(), Slots: one.Slots, Command: one.Command, Ready: one.Ready, Proof: one.Proof(), Parts: one.Parts(),
			Stdout: s.Stdout, Stderr: s.Stderr, Log: s.Log.With("model", spec.Name), Limits: s.Limits,
		})
		if err != nil {
			return nil, err
		}
		c.Processes = append(c.Processes, child)
	}
	c.backend = c.Processes[0]
	if plan.Primary.Dialect == backend.NPU {
		if c.backend, err = backend.NewChatML(backend.ChatMLConfig{Backend: c.Processes[0], OpenThink: plan.Primary.OpenThink}); err != nil {
			return nil, err
		}
	}
	c.run(context.WithoutCancel(ctx))
	for _, child := range c.Processes {
		if err := child.Ready(ctx); err != nil {
			gone := ctx.Err() == nil
			c.Stop()
			if why := c.why(); gone && why != nil {
				err = why // what the process died of says more
			}
			return nil, err
		}
	}
	if s.Wrap != nil {
		c.backend = s.Wrap(spec, c)
	}
	return c, nil
}

// run keeps the processes alive until Stop, or until one of them never came to serve.
func (c *Children) run(ctx context.Context) {
	ctx, c.stop = context.WithCancel(ctx)
	for _, child := range c.Processes {
		c.group.Go(func() {
			if err := child.Run(ctx); err != nil {
				c.mu.Lock()
				c.err = errors.Join(c.err, err)
				c.mu.Unlock()
			}
			c.stop() // without one of them the rest is not what was asked for
		})
	}
	go func() { // ends with the group, for which Stop waits
		c.group.Wait()
		close(c.done)
	}()
}

// Backend returns the process that answers chats.
func (c *Children) Backend() engine.Backend { return c.backend }

// Info returns what the main process says about its model.
func (c *Children) Info() engine.Info { return c.Processes[0].Info() }

// Done is closed when all processes have ended.
func (c *Children) Done() <-chan struct{} { return c.done }

// Err returns why the processes ended by themselves.
func (c *Children) Err() error { return c.why() }

func (c *Children) why() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Stop ends the processes.
func (c *Children) Stop() {
	c.park.Do(func() {
		p, ok := c.backend.(interface{ Park(context.Context) error })
		if !ok {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), parkLimit)
		defer cancel()
		_ = p.Park(ctx) // it tells its log; the end does not wait for more
	})
	c.stop()
	<-c.done
}

// String names the processes, for logs.
func (c *Children) String() string {
	return fmt.Sprintf("%s on %s", c.Plan.Name, c.Plan.Shown())
}

// Restarts is how often processes were started anew.
func (c *Children) Restarts() (n int) {
	for _, child := range c.Processes {
		n += child.Restarts()
	}
	return n
}
