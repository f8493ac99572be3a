package pool_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"onebit/appliance/pool"
	"onebit/engine"
)

const gib = 1 << 30

// world is a box with one kind of memory and models that take it while they load and let it go when they have ended.
type world struct {
	t    *testing.T
	pool *pool.Pool
	all  sync.WaitGroup // of requests that the test sends and does not wait for

	mu       sync.Mutex
	total    uint64
	used     uint64        // by models
	others   uint64        // by other programs
	lag      time.Duration // until freed memory is seen
	load     time.Duration
	end      time.Duration
	broken   map[string]error
	starts   map[string]int
	stops    map[string]int
	cancels  int
	alive    map[string]*instance
	shared   bool // models are on a card
	slots    int  // of each model
	slotsOf  map[string]int
	loadOf   map[string]time.Duration
	overrun  int // loads that found too little memory
	badStops int // instances that were ended while a lease was held
}

type instance struct {
	w       *world
	spec    pool.ModelSpec
	serial  int
	done    chan struct{}
	ending  bool
	err     error
	holders int
}

func (i *instance) Backend() engine.Backend {
	return named{name: fmt.Sprintf("%s#%d", i.spec.Name, i.serial), slots: cmp.Or(i.w.slotsOf[i.spec.Name], i.w.slots)}
}
func (i *instance) Info() engine.Info     { return engine.Info{Context: i.serial} }
func (i *instance) Done() <-chan struct{} { return i.done }
func (i *instance) Err() error            { return i.err }
func (i *instance) Stop()                 { i.finish(nil); <-i.done }

// finish ends the instance once: its memory is free when it has ended.
func (i *instance) finish(err error) {
	w := i.w
	w.mu.Lock()
	if i.ending {
		w.mu.Unlock()
		return
	}
	i.ending = true
	if i.holders > 0 && err == nil {
		w.badStops++
	}
	w.mu.Unlock()
	time.Sleep(w.end)
	w.mu.Lock()
	defer w.mu.Unlock()
	i.err = err
	w.stops[i.spec.Name]++
	if w.alive[i.spec.Name] == i {
		delete(w.alive, i.spec.Name)
	}
	need := i.spec.Need.Bytes + i.spec.Need.Host
	if w.lag == 0 {
		w.used -= need
	} else {
		time.AfterFunc(w.lag, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.used -= need
		})
	}
	close(i.done)
}

// named is a backend that says its name.
type named struct {
	engine.Backend
	name  string
	slots int
}

func (n named) Name() string                { return n.name }
func (n named) Slots() int                  { return n.slots }
func (n named) State() engine.State         { return engine.Ready }
func (n named) Ready(context.Context) error { return nil }
func (n named) Generate(ctx context.Context, _ *engine.Request, emit func(engine.Chunk) error) (engine.Usage, error) {
	time.Sleep(time.Second)
	return engine.Usage{Completion: 1}, emit(engine.Chunk{Raw: []byte(n.name)})
}

// start takes memory in two steps, as loading does.
func (w *world) start(ctx context.Context, s pool.ModelSpec) (pool.Instance, error) {
	w.mu.Lock()
	w.starts[s.Name]++
	serial, broken, load := w.starts[s.Name], w.broken[s.Name], cmp.Or(w.loadOf[s.Name], w.load)
	w.mu.Unlock()
	need := s.Need.Bytes + s.Need.Host
	taken := uint64(0)
	for _, part := range []uint64{need / 3, need - need/3} {
		w.mu.Lock()
		w.used += part
		taken += part
		over := w.used+w.others > w.total
		if over {
			w.overrun++
		}
		w.mu.Unlock()
		timer := time.NewTimer(load / 2)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			w.mu.Lock()
			w.cancels++
			w.mu.Unlock()
			broken = context.Cause(ctx)
		}
		if over {
			broken = errors.New("out of memory")
		}
		if broken != nil {
			break
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if broken != nil {
		w.used -= taken
		return nil, broken
	}
	i := &instance{w: w, spec: s, serial: serial, done: make(chan struct{})}
	w.alive[s.Name] = i
	return i, nil
}

func (w *world) memory() pool.Budget {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := pool.Memory{Total: w.total, Free: w.total - min(w.total, w.used+w.others)}
	if w.shared {
		return pool.Budget{Graphics: map[engine.Device]pool.Memory{engine.Vulkan: m}}
	}
	return pool.Budget{Host: m}
}

// inBox runs a test in a box of so many GiB, in a bubble of time.
func inBox(t *testing.T, total uint64, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			t: t, total: total * gib, load: 10 * time.Second, end: time.Second, slots: 2,
			broken: map[string]error{}, starts: map[string]int{}, stops: map[string]int{}, alive: map[string]*instance{},
		}
		var err error
		w.pool, err = pool.New(pool.Config{Start: w.start, Memory: w.memory, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.pool.Run(ctx) }()
		f(t, w)
		w.all.Wait()
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		time.Sleep(time.Hour) // what lags has come
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.used != 0 || len(w.alive) != 0 {
			t.Errorf("%d bytes and %d instances are left", w.used, len(w.alive))
		}
		if w.overrun > 0 || w.badStops > 0 {
			t.Errorf("%d loads found too little memory, %d instances were ended in use", w.overrun, w.badStops)
		}
	})
}

func spec(name string, need uint64) pool.ModelSpec {
	return pool.ModelSpec{Name: name, Need: pool.Need{Bytes: need * gib}}
}

func (w *world) set(specs ...pool.ModelSpec) {
	w.t.Helper()
	if err := w.pool.Set(specs); err != nil {
		w.t.Fatal(err)
	}
}

// take acquires a lease and marks it at the instance.
func (w *world) take(ctx context.Context, name string) (*pool.Lease, func(), error) {
	l, err := w.pool.Acquire(ctx, pool.Ask{Model: name})
	if err != nil {
		return nil, nil, err
	}
	i := l.Instance.(*instance)
	w.mu.Lock()
	i.holders++
	w.mu.Unlock()
	return l, func() {
		w.mu.Lock()
		i.holders--
		w.mu.Unlock()
		l.Release()
	}, nil
}

// use acquires a lease, holds it so long and returns the name of the instance.
func (w *world) use(ctx context.Context, name string, hold time.Duration) (string, error) {
	l, release, err := w.take(ctx, name)
	if err != nil {
		return "", err
	}
	defer release()
	time.Sleep(hold)
	return l.Backend.Name(), nil
}

// must uses a model and wants no error.
func (w *world) must(name string, hold time.Duration) string {
	w.t.Helper()
	got, err := w.use(w.t.Context(), name, hold)
	if err != nil {
		w.t.Fatalf("%s: %v", name, err)
	}
	return got
}

func (w *world) phases() string {
	out := ""
	for _, s := range w.pool.List() {
		out += fmt.Sprintf("%s:%s ", s.Name, s.Phase)
	}
	return out
}

// expect checks where all models stand.
func (w *world) expect(phases string) {
	w.t.Helper()
	synctest.Wait()
	if got := w.phases(); got != phases+" " {
		w.t.Errorf("models stand at %s, want %s", got, phases)
	}
}

func (w *world) started(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.starts[name]
}
