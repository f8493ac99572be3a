package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	extism "github.com/extism/go-sdk"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"onebit/extensions/abi"
	"onebit/extensions/host"
	"onebit/extensions/meter"
)

// ways are all ways of asking.
func (b *bencher) ways() (all []way, err error) {
	inC, err := b.read("cheapest")
	if err != nil {
		return nil, err
	}
	inGo, err := b.read("size")
	if err != nil {
		return nil, err
	}
	const prompt = 1000 // bytes; with four candidates the request has about 2 KB
	add := func(w way, e error) {
		all, err = append(all, w), errors.Join(err, e)
	}
	add(b.inWorker("C, in a worker", inC, prompt))
	add(b.inWorker("Go, in a worker", inGo, prompt))
	add(b.allIn("C, in a worker, with writing and reading JSON", inC, prompt))
	add(b.inProcess("C, in process", inC, prompt))
	add(b.inProcess("Go, in process", inGo, prompt))
	add(b.plain("C, plain wazero, state is kept", inC, prompt, false, false))
	add(b.plain("C, plain wazero with its deadline", inC, prompt, true, false))
	add(b.plain("C, plain wazero, fresh instance", inC, prompt, false, true))
	add(b.extism("C, Extism, state is kept", prompt, 0))
	add(b.extism("C, Extism with a timeout", prompt, 1000))
	if b.o.laya != "" {
		g, e := read(b.o.laya, filepath.Join(filepath.Dir(filepath.Dir(b.o.laya)), "laya.json"))
		if e != nil {
			return nil, e
		}
		add(b.allIn("Laya, 1 KB, in a worker, with JSON", g, prompt))
		add(b.inProcess("Laya, 1 KB, in process", g, prompt))
	}
	return all, err
}

// inProcess asks our host in this process: metered, with a clean state for each call.
func (b *bencher) inProcess(name string, g guest, size int) (way, error) {
	c, err := g.asked(size)
	if err != nil {
		return way{}, err
	}
	limits := g.parsed.Kind.Limits()
	limits.Deadline = 10 * time.Second
	metered, err := meter.Rewrite(g.module, host.Structure(limits))
	if err != nil {
		return way{}, err
	}
	m, err := host.Compile(b.ctx, host.Config{Metered: metered, Manifest: g.parsed, Limits: limits, Granted: g.parsed.Capabilities})
	if err != nil {
		return way{}, err
	}
	b.later(func() { _ = m.Close(context.Background()) })
	i, err := m.Instance(b.ctx, host.Setup{Warm: warm()})
	return way{name: name, call: func() error { return some(i.Call(b.ctx, c)) }}, err
}

// plain asks wazero without a meter, limits or a clean state; with its own deadline, or with a fresh instance for each call.
func (b *bencher) plain(name string, g guest, size int, deadline, fresh bool) (way, error) {
	c, err := g.asked(size)
	if err != nil {
		return way{}, err
	}
	r := wazero.NewRuntimeWithConfig(b.ctx, wazero.NewRuntimeConfigCompiler().WithCloseOnContextDone(deadline))
	b.later(func() { _ = r.Close(context.Background()) })
	code, err := r.CompileModule(b.ctx, g.module)
	if err != nil {
		return way{}, err
	}
	begin := func() (api.Module, error) {
		return r.InstantiateModule(b.ctx, code, wazero.NewModuleConfig().WithName("").WithStartFunctions("_initialize"))
	}
	m, err := begin()
	if err != nil {
		return way{}, err
	}
	return way{name: name, call: func() error {
		m, ctx := m, b.ctx
		if fresh {
			var err error
			if m, err = begin(); err != nil {
				return err
			}
			defer func() { _ = m.Close(ctx) }()
		}
		if deadline {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
		}
		return direct(ctx, m, c.Request)
	}}, nil
}

// direct is a call of the contract without a host.
func direct(ctx context.Context, m api.Module, request []byte) error {
	at, err := m.ExportedFunction(abi.Buffer).Call(ctx, uint64(len(request)))
	if err != nil {
		return err
	}
	if !m.Memory().Write(uint32(at[0]), request) {
		return errors.New("the buffer lies outside of memory")
	}
	out, err := m.ExportedFunction(abi.Route).Call(ctx, at[0], uint64(len(request)))
	if err != nil {
		return err
	}
	view, ok := m.Memory().Read(uint32(out[0]>>32), uint32(out[0]))
	if !ok || len(strings.Clone(string(view))) == 0 {
		return errors.New("no answer")
	}
	return nil
}

// extism asks the same policy as a plug-in of Extism. A timeout is in milliseconds; 0 is none.
func (b *bencher) extism(name string, size int, timeout uint64) (way, error) {
	module, err := os.ReadFile(filepath.Join(b.o.guests, "extism.wasm"))
	if err != nil {
		return way{}, err
	}
	c, err := guest{}.asked(size)
	if err != nil {
		return way{}, err
	}
	p, err := extism.NewPlugin(b.ctx, extism.Manifest{Wasm: []extism.Wasm{extism.WasmData{Data: module}}, Timeout: timeout}, extism.PluginConfig{}, nil)
	if err != nil {
		return way{}, err
	}
	b.later(func() { _ = p.Close(context.Background()) })
	return way{name: name, call: func() error {
		status, out, err := p.CallWithContext(b.ctx, "decide", c.Request)
		if err == nil && (status != 0 || len(out) == 0) {
			err = errors.New("no answer")
		}
		return err
	}}, nil
}
