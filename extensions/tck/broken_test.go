package tck_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"onebit/extensions/abi"
	"onebit/extensions/host"
	"onebit/extensions/meter"
	"onebit/extensions/module"
	"onebit/extensions/tck"
)

// broken is our host with one thing wrong.
type broken struct {
	load   func(m *tck.Module)
	call   func(c *host.Call)
	result func(r *host.Result, err error) error
}

func (b broken) Load(ctx context.Context, m tck.Module) (tck.Loaded, error) {
	if b.load != nil {
		b.load(&m)
	}
	l, err := tck.Own{}.Load(ctx, m)
	if err != nil {
		return nil, err
	}
	return brokenLoaded{l, b}, nil
}

type brokenLoaded struct {
	tck.Loaded
	b broken
}

func (l brokenLoaded) Call(ctx context.Context, c host.Call) (host.Result, error) {
	if l.b.call != nil {
		l.b.call(&c)
	}
	r, err := l.Loaded.Call(ctx, c)
	if l.b.result != nil {
		err = l.b.result(&r, err)
	}
	return r, err
}

// credulous takes every module, and gives no answer.
type credulous struct{}

func (credulous) Load(context.Context, tck.Module) (tck.Loaded, error) { return credulous{}, nil }
func (credulous) Call(context.Context, host.Call) (host.Result, error) { return host.Result{}, nil }
func (credulous) Close(context.Context) error                          { return nil }

// naive runs modules as wazero does: nothing is put back after a call, nothing is counted, and the functions of the host
// answer 0.
type naive struct{}

func (naive) Load(ctx context.Context, m tck.Module) (_ tck.Loaded, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("it lacks an export")
		}
	}()
	bounds := module.Default()
	code, err := meter.Rewrite(m.Code, bounds) // for its tick alone
	if err != nil {
		return nil, err
	}
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler().WithCloseOnContextDone(true))
	l := &naiveLoaded{runtime: r}
	if err := l.offer(ctx); err != nil {
		return nil, errors.Join(err, r.Close(ctx))
	}
	if l.guest, err = r.InstantiateWithConfig(ctx, code, wazero.NewModuleConfig().WithName("").WithStartFunctions()); err != nil {
		return nil, errors.Join(err, r.Close(ctx))
	}
	l.guest.ExportedGlobal(meter.Stack).(api.MutableGlobal).Set(1 << 40)
	if f := l.guest.ExportedFunction(abi.Initialize); f != nil {
		_, err = f.Call(ctx)
	}
	if l.guest.ExportedFunction(abi.Configure) != nil && err == nil {
		_, err = l.ask(ctx, abi.Configure, m.Config)
	}
	if err == nil {
		_, err = l.ask(ctx, abi.Route, []byte(`{"v":1}`))
	}
	return l, err
}

type naiveLoaded struct {
	runtime wazero.Runtime
	guest   api.Module
}

func (l *naiveLoaded) offer(ctx context.Context) error {
	i64 := []api.ValueType{api.ValueTypeI64}
	tick := api.GoModuleFunc(func(_ context.Context, _ api.Module, a []uint64) { a[0] = 1 << 40 })
	_, err := l.runtime.NewHostModuleBuilder(meter.Module).NewFunctionBuilder().WithGoModuleFunction(tick, i64, i64).Export(meter.Tick).Instantiate(ctx)
	for name, list := range map[string][]abi.Function{abi.HostModule: abi.Imports(), abi.WASIModule: abi.WASI()} {
		b := l.runtime.NewHostModuleBuilder(name)
		for _, f := range list {
			params, results := types(f.Type)
			zero := api.GoModuleFunc(func(_ context.Context, _ api.Module, a []uint64) {
				if len(results) > 0 {
					a[0] = 0
				}
			})
			b = b.NewFunctionBuilder().WithGoModuleFunction(zero, params, results).Export(f.Name)
		}
		_, e := b.Instantiate(ctx)
		err = errors.Join(err, e)
	}
	return err
}

// types reads "(i32, f64) -> (i32)".
func types(text string) (params, results []api.ValueType) {
	to := &params
	for i := 0; i+3 <= len(text); i++ {
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

func (l *naiveLoaded) ask(ctx context.Context, name string, request []byte) ([]byte, error) {
	out, err := l.guest.ExportedFunction(abi.Buffer).Call(ctx, uint64(len(request)))
	if err != nil {
		return nil, err
	}
	l.guest.Memory().Write(uint32(out[0]), request)
	if out, err = l.guest.ExportedFunction(name).Call(ctx, out[0], uint64(len(request))); err != nil {
		return nil, err
	}
	b, _ := l.guest.Memory().Read(uint32(out[0]>>32), uint32(out[0]))
	return append([]byte(nil), b...), nil
}

func (l *naiveLoaded) Call(ctx context.Context, c host.Call) (host.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	answer, err := l.ask(ctx, c.Function, c.Request)
	return host.Result{Answer: answer}, err
}

func (l *naiveLoaded) Close(ctx context.Context) error { return l.runtime.Close(ctx) }

// faults are hosts with one thing wrong each.
func faults() map[string]tck.Host {
	service := func(change func(s *host.Services)) tck.Host {
		return broken{call: func(c *host.Call) { change(&c.Services) }}
	}
	return map[string]tck.Host{
		"takes everything": credulous{}, "is naive": naive{},
		"grants everything": broken{load: func(m *tck.Module) {
			for _, f := range abi.Imports() {
				m.Manifest.Capabilities = append(m.Manifest.Capabilities, f.Capability)
			}
		}},
		"forgets the configuration": broken{load: func(m *tck.Module) { m.Config = nil }},
		"forgets assets":            broken{load: func(m *tck.Module) { m.Assets = nil }},
		"forgets metrics' names":    broken{load: func(m *tck.Module) { m.Manifest.Metrics = nil }},
		"has no budget":             broken{load: func(m *tck.Module) { m.Limits = abi.Policy.Limits(); m.Limits.Units = 1 << 40 }},
		"has no clock":              service(func(s *host.Services) { s.Now = nil }),
		"has no tokens":             service(func(s *host.Services) { s.Tokens = nil }),
		"has no embeddings":         service(func(s *host.Services) { s.Embed = nil }),
		"has no decisions":          service(func(s *host.Services) { s.Decide = nil }),
		"has no keys":               service(func(s *host.Services) { s.KV = nil }),
		"forgets keys":              service(func(s *host.Services) { s.KV = host.NewKeys(time.Now) }),
		"has no text":               broken{call: func(c *host.Call) { c.Text = nil }},
		"invents services":          service(func(s *host.Services) { *s = tck.Willing() }),
		"always asks to route":      broken{call: func(c *host.Call) { c.Function = abi.Route }},
		"cuts requests":             broken{call: func(c *host.Call) { c.Request = c.Request[:1] }},
		"has one seed":              broken{call: func(c *host.Call) { c.Seed = 1 }},
		"says nothing":              broken{result: func(r *host.Result, err error) error { r.Answer = nil; return err }},
		"makes answers up":          broken{result: func(r *host.Result, err error) error { r.Answer = []byte("{}"); return err }},
		"drops the log":             broken{result: func(r *host.Result, err error) error { r.Log = nil; return err }},
		"hides failures":            broken{result: func(*host.Result, error) error { return nil }},
		"fails always":              broken{result: func(*host.Result, error) error { return errors.New("no") }},
		"counts by the clock":       broken{result: func(r *host.Result, err error) error { r.Units = time.Now().UnixNano(); return err }},
	}
}

// TestCasesCanFail: each case is failed by a host that is broken where the case looks, and says so without help from
// hosts that fail at everything.
func TestCasesCanFail(t *testing.T) {
	failed := map[string][]string{}
	hosts := faults()
	for name, h := range hosts {
		n := 0
		for _, c := range tck.Cases() {
			if err := c.Try(t.Context(), h); err != nil {
				n++
				failed[c.Name] = append(failed[c.Name], name)
			}
		}
		if n == 0 {
			t.Errorf("the host that %s keeps every promise", name)
		}
	}
	for _, c := range tck.Cases() {
		if len(failed[c.Name]) == 0 {
			t.Errorf("no broken host fails %q", c.Name)
		}
		t.Logf("%-70s %q", c.Name, failed[c.Name])
	}
}

// TestWrongGuests: what is wrong with a guest is found, by the test that looks for it and by no other.
func TestWrongGuests(t *testing.T) {
	for name, w := range wrongGuests() {
		t.Run(name, func(t *testing.T) {
			g, err := tck.Load(t.Context(), w.m)
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close(context.Background())
			found := false
			for _, f := range g.Test(t.Context()) {
				if f.Err != nil && (w.says == "" || !strings.Contains(f.Test, w.test)) {
					t.Errorf("%s: %v", f.Test, f.Err)
				}
				found = found || f.Err != nil && strings.Contains(f.Err.Error(), w.says)
			}
			if !found && w.says != "" {
				t.Errorf("it passes; a test of %q must say %q", w.test, w.says)
			}
		})
	}
}
