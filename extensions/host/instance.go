package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"onebit/extensions/abi"
	"onebit/extensions/meter"
	"onebit/extensions/wasm"
)

// Instance is one guest, set up and ready. It serves one goroutine at a time.
type Instance struct {
	m      *Module
	setup  Setup
	report Result

	guest        api.Module
	memory       *memory
	units, stack api.MutableGlobal
	globals      []api.MutableGlobal
	functions    map[string]api.Function

	image  *image   // the memory of the snapshot; nil when each call needs a new set-up
	saved  []uint64 // the globals of the snapshot
	hot    []span   // of memory: what calls usually write to
	calls  int      // that were reset
	broken error    // why the last reset failed
	busy   atomic.Bool
	closed bool
}

// Instance sets a guest up: start function, _initialize, laya_configure, one warm call of each deciding function, each on
// the budget of one call. The state that follows is the one that every call starts from. The error wraps a *SetupError, or
// says what is wrong with s.
func (m *Module) Instance(ctx context.Context, s Setup) (*Instance, error) {
	if m.closed.Load() {
		return nil, ErrClosed
	}
	total := 0
	for _, b := range s.Assets {
		total += len(b)
	}
	switch {
	case total > m.config.Limits.Assets:
		return nil, fmt.Errorf("setting up the guest: %d bytes of assets, at most %d", total, m.config.Limits.Assets)
	case len(s.Config) > abi.MaxConfig:
		return nil, fmt.Errorf("setting up the guest: %d bytes of configuration, at most %d", len(s.Config), abi.MaxConfig)
	case len(s.Config) > 0 && !m.Exports(abi.Configure):
		return nil, fmt.Errorf("setting up the guest: it takes no configuration: it has no %s", abi.Configure)
	}
	i := &Instance{m: m, setup: s}
	if err := i.build(ctx); err != nil {
		return nil, errors.Join(err, i.free(ctx))
	}
	return i, nil
}

// Clone makes another instance in the same state. Their memory is shared as long as neither writes to it. No call of i
// may be running.
func (i *Instance) Clone(ctx context.Context) (*Instance, error) {
	if i.closed || i.m.closed.Load() {
		return nil, ErrClosed
	}
	c := &Instance{m: i.m, setup: i.setup, report: i.report, saved: i.saved, image: i.image}
	if c.image != nil {
		c.image.take()
	}
	if err := c.rebuild(ctx); err != nil {
		return nil, errors.Join(err, c.free(ctx))
	}
	return c, nil
}

// Report says what setting up came to: units of all steps, pages and log.
func (i *Instance) Report() Result { return i.report }

// Close frees the instance. It is idempotent. No call may be running.
func (i *Instance) Close(ctx context.Context) error {
	if !i.busy.CompareAndSwap(false, true) {
		return ErrBusy
	}
	defer i.busy.Store(false)
	if i.closed {
		return nil
	}
	i.closed = true
	return i.free(ctx)
}

// free drops the guest and the snapshot.
func (i *Instance) free(ctx context.Context) error {
	err := i.drop(ctx)
	if i.image != nil {
		i.image.release()
		i.image = nil
	}
	return err
}

// drop drops the guest alone.
func (i *Instance) drop(ctx context.Context) error {
	var err error
	if i.guest != nil {
		err = i.guest.Close(ctx)
	}
	if i.memory != nil {
		i.memory.Free()
	}
	i.guest, i.memory, i.units, i.stack, i.globals, i.functions = nil, nil, nil, nil, nil, nil
	return err
}

// build runs the whole set-up and takes the snapshot.
func (i *Instance) build(ctx context.Context) error {
	i.report = Result{}
	if err := i.instantiate(ctx); err != nil {
		return err
	}
	if i.m.Exports(abi.Initialize) {
		s := i.scope(ctx, &Call{}, true)
		i.arm(s)
		err := i.invoke(s, i.functions[abi.Initialize], nil)
		if err := i.step(s, abi.Initialize, err); err != nil {
			return err
		}
	}
	if err := i.configure(ctx); err != nil {
		return err
	}
	for _, name := range []string{abi.Classify, abi.Route} {
		if i.setup.Warm == nil || !i.m.Exports(name) {
			continue
		}
		s := i.scope(ctx, &Call{Function: name, Request: i.setup.Warm}, true)
		_, err := i.ask(s, name, i.setup.Warm)
		if err := i.step(s, name, err); err != nil {
			return err
		}
	}
	return i.snapshot()
}

func (i *Instance) configure(ctx context.Context) error {
	if !i.m.Exports(abi.Configure) {
		return nil
	}
	config := i.setup.Config
	if len(config) == 0 {
		config = []byte("{}")
	}
	s := i.scope(ctx, &Call{Function: abi.Configure, Request: config}, true)
	answer, err := i.ask(s, abi.Configure, config)
	if err := i.step(s, abi.Configure, err); err != nil {
		return err
	}
	if len(answer) > 0 {
		return &SetupError{Step: abi.Configure, Refuse: strings.ToValidUTF8(string(answer), "?")}
	}
	return nil
}

// step adds one step of the set-up to the report.
func (i *Instance) step(s *scope, name string, err error) error {
	r := i.result(s)
	i.report.Units += r.Units
	i.report.HostCalls += r.HostCalls
	i.report.Pages = r.Pages
	i.report.Log = append(i.report.Log, r.Log...)
	if err != nil {
		return &SetupError{Step: name, Err: err}
	}
	return nil
}

// instantiate makes a guest and runs its start function.
func (i *Instance) instantiate(ctx context.Context) error {
	mem, err := newMemory(i.m.max)
	if err != nil {
		return &SetupError{Step: "start", Err: &CallError{Cause: CauseHost, Detail: err.Error()}}
	}
	i.memory = mem
	s := i.scope(ctx, &Call{}, true)
	give := experimental.MemoryAllocatorFunc(func(uint64, uint64) experimental.LinearMemory { return mem })
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions()
	g, err := i.m.runtime.InstantiateModule(experimental.WithMemoryAllocator(s, give), i.m.compiled, config)
	if err != nil {
		return &SetupError{Step: "start", Err: i.classify(s, err)}
	}
	i.guest = g
	i.units, i.stack = global(g, meter.Units), global(g, meter.Stack)
	for _, name := range i.m.globals {
		i.globals = append(i.globals, global(g, name))
	}
	i.functions = map[string]api.Function{}
	i.look()
	return i.step(s, "start", i.classify(s, nil))
}

// look finds the guest's functions. Each holds the stack of its last run, so they are found anew after a failure, which
// may have made it large.
func (i *Instance) look() {
	for _, f := range abi.Exports() {
		if f.Type != "" && i.m.Exports(f.Name) {
			i.functions[f.Name] = i.guest.ExportedFunction(f.Name)
		}
	}
}

func global(m api.Module, name string) api.MutableGlobal {
	return m.ExportedGlobal(name).(api.MutableGlobal)
}

// arm pays for one run.
func (i *Instance) arm(s *scope) {
	i.units.Set(uint64(s.budget.Begin()))
	i.stack.Set(uint64(i.m.config.Limits.Depth))
}

// invoke runs one function on the budget of s. The words hold parameters and the result.
func (i *Instance) invoke(s *scope, f api.Function, words []uint64) error {
	return i.classify(s, f.CallWithStack(s, words))
}

// classify says how a run ended. nil is a run that returned within its budget.
func (i *Instance) classify(s *scope, err error) error {
	if err == nil {
		if i.units != nil && !s.budget.Within(int64(i.units.Get())) {
			return &CallError{Cause: CauseBudget, Detail: i.spent()}
		}
		return nil
	}
	text, trace, _ := strings.Cut(err.Error(), "\n")
	e := &CallError{Cause: CauseTrap, Detail: strings.TrimPrefix(text, "wasm error: "), Trace: trace}
	var stop stopped
	var fault interface{ RuntimeError() }
	switch {
	case errors.As(err, &stop):
		e.Cause, e.Detail = s.failed, s.detail
	case s.budget.Exhausted():
		e.Cause, e.Detail = CauseBudget, i.spent()
	case i.stack != nil && int64(i.stack.Get()) < 0, strings.Contains(text, "stack overflow"):
		e.Cause, e.Detail = CauseStack, fmt.Sprintf("more than %d slots of stack", i.m.config.Limits.Depth)
	case errors.As(err, &fault):
		e.Cause = CauseHost
	}
	return e
}

func (i *Instance) spent() string {
	return fmt.Sprintf("all of %d units are used up", i.m.config.Limits.Units)
}

// ask puts a request into the guest's buffer, calls a function of the form (address, length) -> answer, and copies the
// answer.
func (i *Instance) ask(s *scope, name string, request []byte) ([]byte, error) {
	i.arm(s)
	var words [2]uint64
	words[0] = uint64(len(request))
	if err := i.invoke(s, i.functions[abi.Buffer], words[:1]); err != nil {
		return nil, err
	}
	at := uint32(words[0])
	if at == 0 {
		return nil, &CallError{Cause: CauseAnswer, Detail: fmt.Sprintf("%s refused %d bytes", abi.Buffer, len(request))}
	}
	if !i.guest.Memory().Write(at, request) {
		return nil, &CallError{Cause: CausePointer, Detail: fmt.Sprintf("%s answered %d bytes at %#x, outside of memory", abi.Buffer, len(request), at)}
	}
	words[0], words[1] = uint64(at), uint64(len(request))
	if err := i.invoke(s, i.functions[name], words[:]); err != nil {
		return nil, err
	}
	at, n := uint32(words[0]>>32), uint32(words[0])
	if n > abi.MaxDecision {
		return nil, &CallError{Cause: CauseAnswer, Detail: fmt.Sprintf("an answer of %d bytes, at most %d", n, abi.MaxDecision)}
	}
	b, ok := i.guest.Memory().Read(at, n)
	if !ok {
		return nil, &CallError{Cause: CausePointer, Detail: fmt.Sprintf("%s answered %d bytes at %#x, outside of memory", name, n, at)}
	}
	return slices.Clone(b), nil
}

// result says what a run used.
func (i *Instance) result(s *scope) Result {
	s.flush()
	r := Result{Log: s.lines, HostCalls: s.hostCalls}
	if i.guest != nil {
		r.Units = s.budget.Used(int64(i.units.Get()))
		r.Pages = i.guest.Memory().Size() / wasm.PageSize
	}
	return r
}

// Call asks the guest once. Afterwards the instance is in the state of its snapshot again, whatever happened. The error is
// a *CallError, ErrBusy, ErrClosed, or says that the call cannot be made.
func (i *Instance) Call(ctx context.Context, c Call) (r Result, err error) {
	i.Serve(ctx, c, func(got Result, failed error) { r, err = got, failed })
	return r, err
}

// Serve is Call for somebody who waits elsewhere: answer is called once, with what Call would return, before the instance goes
// back to its snapshot. Serve returns when it has.
func (i *Instance) Serve(ctx context.Context, c Call, answer func(Result, error)) {
	if !i.busy.CompareAndSwap(false, true) {
		answer(Result{}, ErrBusy)
		return
	}
	defer i.busy.Store(false)
	s, err := i.begin(ctx, &c)
	if err != nil {
		answer(Result{}, err)
		return
	}
	said, err := i.ask(s, c.Function, c.Request)
	r := i.result(s)
	r.Answer = said
	answer(r, err)
	i.broken = i.reset(context.WithoutCancel(ctx), err != nil)
}

// begin is what comes before a call. The instance is busy.
func (i *Instance) begin(ctx context.Context, c *Call) (*scope, error) {
	switch {
	case i.closed || i.m.closed.Load():
		return nil, ErrClosed
	case c.Function != abi.Classify && c.Function != abi.Route || !i.m.Exports(c.Function):
		return nil, fmt.Errorf("calling the guest: it has no %q", c.Function)
	case len(c.Request) > abi.MaxRequest:
		return nil, fmt.Errorf("calling the guest: a request of %d bytes, at most %d", len(c.Request), abi.MaxRequest)
	}
	if i.broken != nil {
		if i.broken = i.rebuild(ctx); i.broken != nil {
			return nil, &CallError{Cause: CauseHost, Detail: i.broken.Error()}
		}
	}
	s := i.scope(ctx, c, false)
	if ctx.Err() != nil || !time.Now().Before(s.deadline) {
		return nil, &CallError{Cause: CauseTimeout, Detail: "the deadline passed before the call"}
	}
	return s, nil
}
