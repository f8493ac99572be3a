package meter_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"onebit/extensions/meter"
	"onebit/extensions/module"
)

// engines are both ways in which wazero runs code.
var engines = map[string]func() wazero.RuntimeConfig{
	"interpreter": wazero.NewRuntimeConfigInterpreter,
	"compiler":    wazero.NewRuntimeConfigCompiler,
}

const plenty = 1 << 40

// guest is one instance with its host.
type guest struct {
	api.Module
	budget *meter.Budget
	ticks  int
	slots  int64 // stack of a call
	plain  bool
}

// load runs a module in an engine; metered ones are paid for by budget units in slices.
func load(t testing.TB, engine string, b []byte, units, slice int64) (*guest, error) {
	t.Helper()
	ctx := t.Context()
	r := wazero.NewRuntimeWithConfig(ctx, engines[engine]().WithMemoryLimitPages(512))
	t.Cleanup(func() { r.Close(context.Background()) })
	g := &guest{budget: meter.NewBudget(units, slice), slots: meter.StackSlots}
	tick := func(_ context.Context, _ api.Module, stack []uint64) {
		g.ticks++
		stack[0] = uint64(g.budget.Tick(int64(stack[0])))
	}
	i64 := []api.ValueType{api.ValueTypeI64}
	host := r.NewHostModuleBuilder(meter.Module).NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(tick), i64, i64).Export(meter.Tick)
	if _, err := host.Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	m, err := r.InstantiateWithConfig(ctx, b, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		return g, err
	}
	g.Module = m
	g.plain = m.ExportedGlobal(meter.Units) == nil
	return g, nil
}

func (g *guest) set(name string, v int64) {
	g.ExportedGlobal(name).(api.MutableGlobal).Set(uint64(v))
}

// outcome is all that a call shows.
type outcome struct {
	Results []uint64
	Failure string // the trap's name
	Memory  uint64 // a hash
	Pages   uint32
	Used    int64
}

// call runs one function with a fresh budget.
func (g *guest) call(t testing.TB, name string, units, slice int64, args ...uint64) outcome {
	t.Helper()
	if !g.plain {
		g.budget = meter.NewBudget(units, slice)
		g.set(meter.Units, g.budget.Begin())
		g.set(meter.Stack, g.slots)
	}
	var o outcome
	results, err := g.ExportedFunction(name).Call(t.Context(), args...)
	o.Results = results
	if err != nil {
		o.Failure, _, _ = strings.Cut(err.Error(), "\n")
	}
	if mem := g.ExportedMemory("memory"); mem != nil {
		b, _ := mem.Read(0, mem.Size())
		h := fnv.New64a()
		h.Write(b)
		o.Memory, o.Pages = h.Sum64(), mem.Size()/65536
	}
	if !g.plain {
		o.Used = g.budget.Used(int64(g.ExportedGlobal(meter.Units).Get()))
	}
	return o
}

// metered rewrites b and checks the result again.
func metered(t testing.TB, b []byte) []byte {
	t.Helper()
	out, err := meter.Rewrite(b, module.Default())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := module.Parse(out, module.Default().Metered()); err != nil {
		t.Fatalf("the rewritten module does not pass: %v", err)
	}
	return out
}

// start loads a module that must load.
func start(t testing.TB, engine string, b []byte) *guest {
	t.Helper()
	g, err := load(t, engine, b, plenty, plenty)
	if err != nil {
		t.Fatalf("%s: %v", engine, err)
	}
	return g
}

// arguments makes values for a signature's letters.
func arguments(letters string, seed int) []uint64 {
	args := make([]uint64, len(letters))
	for i, c := range letters {
		switch v := int64(seed*(i+3)) - 5; c {
		case 'i':
			args[i] = api.EncodeI32(int32(v))
		case 'l':
			args[i] = api.EncodeI64(v << 7)
		case 'd':
			args[i] = api.EncodeF64(float64(v) / 4)
		default:
			panic(fmt.Sprintf("letter %q", c))
		}
	}
	return args
}
