package tck

import (
	"context"
	"errors"
	"fmt"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"onebit/extensions/abi"
	"onebit/extensions/meter"
)

// buffer asks laya_buffer itself for lengths that a host does not ask for: what it answers must be 0 or a place in memory
// for so many bytes, and a request of the greatest length must find one.
func (g *Guest) buffer(ctx context.Context) error {
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler().WithMemoryLimitPages(g.Limits.Memory))
	defer func() { _ = r.Close(ctx) }()
	budget := meter.NewBudget(g.Limits.Units, 1<<20) // for the start function; each call has one of its own
	if err := stubs(ctx, r, func(counter int64) int64 { return budget.Tick(counter) }); err != nil {
		return err
	}
	m, err := r.InstantiateWithConfig(ctx, g.metered, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		return fmt.Errorf("starting: %w", err)
	}
	call := func(name string, args ...uint64) ([]uint64, error) {
		budget = meter.NewBudget(g.Limits.Units, 1<<20)
		m.ExportedGlobal(meter.Units).(api.MutableGlobal).Set(uint64(budget.Begin()))
		m.ExportedGlobal(meter.Stack).(api.MutableGlobal).Set(uint64(g.Limits.Depth))
		return m.ExportedFunction(name).Call(ctx, args...)
	}
	if m.ExportedFunction(abi.Initialize) != nil {
		if _, err := call(abi.Initialize); err != nil {
			return fmt.Errorf("%s: %w", abi.Initialize, err)
		}
	}
	for _, n := range []uint32{0, 1, abi.MaxRequest, abi.MaxRequest + 1, 1 << 20, 1<<31 - 1, 1 << 31, 1<<32 - 1, abi.MaxRequest} {
		out, err := call(abi.Buffer, uint64(n))
		if err != nil {
			return fmt.Errorf("asked for %d bytes: %w", n, err)
		}
		at := uint32(out[0])
		if at == 0 && (n == 0 || n > abi.MaxRequest) {
			continue
		}
		if at == 0 {
			return fmt.Errorf("it refuses %d bytes, which a request may have", n)
		}
		if uint64(at)+uint64(n) > uint64(m.Memory().Size()) {
			return fmt.Errorf("asked for %d bytes it answers %#x, from where memory has fewer", n, at)
		}
	}
	return nil
}

// stubs offers all functions of the contract. None of them can do anything.
func stubs(ctx context.Context, r wazero.Runtime, next func(counter int64) int64) error {
	tick := api.GoModuleFunc(func(_ context.Context, _ api.Module, a []uint64) { a[0] = uint64(next(int64(a[0]))) })
	i64 := []api.ValueType{api.ValueTypeI64}
	_, err := r.NewHostModuleBuilder(meter.Module).NewFunctionBuilder().WithGoModuleFunction(tick, i64, i64).Export(meter.Tick).Instantiate(ctx)
	unable := func(name string) api.GoModuleFunc {
		return func(_ context.Context, m api.Module, a []uint64) {
			switch name {
			case "proc_exit":
				panic(errors.New("the guest ended itself"))
			case "args_sizes_get", "environ_sizes_get":
				m.Memory().WriteUint32Le(uint32(a[0]), 0)
				m.Memory().WriteUint32Le(uint32(a[1]), 0)
				a[0] = 0
			case "clock_time_get":
				m.Memory().WriteUint64Le(uint32(a[2]), 1_800_000_000_000_000_000)
				a[0] = 0
			case "args_get", "environ_get", "random_get", "sched_yield":
				a[0] = 0
			case "log":
			default:
				a[0] = uint64(8) // a bad file to WASI
			}
		}
	}
	for name, list := range map[string][]abi.Function{abi.HostModule: abi.Imports(), abi.WASIModule: abi.WASI()} {
		b := r.NewHostModuleBuilder(name)
		for _, f := range list {
			do := unable(f.Name)
			if name == abi.HostModule && f.Name != "log" {
				do = func(_ context.Context, _ api.Module, a []uint64) { a[0] = uint64(0xFFFFFFFFFFFFFFFC) } // unavailable
			}
			params, results := signature(f.Type)
			b = b.NewFunctionBuilder().WithGoModuleFunction(do, params, results).Export(f.Name)
		}
		_, e := b.Instantiate(ctx)
		err = errors.Join(err, e)
	}
	return err
}

// signature reads "(i32, f64) -> (i32)".
func signature(text string) (params, results []api.ValueType) {
	to := &params
	for i := 0; i+2 < len(text); i++ {
		switch text[i : i+3] {
		case "-> ":
			to = &results
		case "i32":
			*to = append(*to, api.ValueTypeI32)
		case "i64":
			*to = append(*to, api.ValueTypeI64)
		case "f64":
			*to = append(*to, api.ValueTypeF64)
		}
	}
	return params, results
}
