package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"sync/atomic"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/cpu"

	"onebit/extensions/abi"
	"onebit/extensions/meter"
	"onebit/extensions/module"
	"onebit/extensions/wasm"
)

// Module is compiled code. It is safe for concurrent use; its instances are not.
type Module struct {
	config   Config
	runtime  wazero.Runtime
	cache    wazero.CompilationCache
	compiled wazero.CompiledModule
	globals  []string // names of the guest's mutable globals
	max      uint64   // bytes that its memory can have
	volatile bool     // it can change state that a host cannot restore: tables, dropped segments
	copies   bool     // it does not share snapshots; for tests of what other systems do
	caps     map[abi.Capability]bool
	closed   atomic.Bool
}

// Structure returns the bounds that a module within l must keep before the rewrite: for module.Parse and meter.Rewrite.
func Structure(l abi.Limits) module.Limits {
	m := module.Default()
	m.Bytes, m.Code = l.Module, l.Module
	m.Pages = l.Memory
	return m
}

// Compile checks what the module imports and exports, and compiles it, or finds it compiled in the cache. It needs a
// machine for which wazero has a compiler: the interpreter, fifty times slower, is never taken instead.
func Compile(ctx context.Context, c Config) (*Module, error) {
	m := &Module{config: c, caps: map[abi.Capability]bool{}}
	for _, want := range c.Manifest.Capabilities {
		m.caps[want] = slices.Contains(c.Granted, want)
	}
	if err := m.judge(); err != nil {
		return nil, fmt.Errorf("compiling: %w", err)
	}
	if err := m.compile(ctx); err != nil {
		return nil, fmt.Errorf("compiling: %w", errors.Join(err, m.Close(ctx)))
	}
	return m, nil
}

// judge parses the metered module again: what the caller was given may have been changed on the way.
func (m *Module) judge() error {
	p, err := module.Parse(m.config.Metered, Structure(m.config.Limits).Metered())
	if err != nil {
		return err
	}
	tick := slices.IndexFunc(p.Imports, func(i module.Imported) bool { return i.Module == meter.Module })
	if tick < 0 || p.Imports[tick].Name != meter.Tick {
		return fmt.Errorf("the module is not metered: it does not import %s.%s", meter.Module, meter.Tick)
	}
	guest := *p
	guest.Imports = slices.Delete(slices.Clone(p.Imports), tick, tick+1)
	guest.Functions = append([]uint32{p.Imports[tick].Type}, p.Functions...) // indices stay
	if err := guest.Guest(func(c abi.Capability) bool { return m.caps[c] }); err != nil {
		return err
	}
	exported := map[string]uint32{}
	for _, e := range p.Exports {
		if e.Kind == 3 {
			exported[e.Name] = e.Index
		}
	}
	for _, name := range []string{meter.Units, meter.Stack} {
		if i, ok := exported[name]; !ok || p.Globals[i] != (module.Variable{Type: wasm.I64, Mutable: true}) {
			return fmt.Errorf("the module is not metered: it does not export %s", name)
		}
	}
	for i, g := range p.Globals {
		if !g.Mutable || uint32(i) == exported[meter.Units] || uint32(i) == exported[meter.Stack] {
			continue
		}
		if at, ok := exported[meter.GlobalName(i)]; !ok || at != uint32(i) {
			return fmt.Errorf("the module is not metered: it does not export %s", meter.GlobalName(i))
		}
		m.globals = append(m.globals, meter.GlobalName(i))
	}
	m.max = uint64(min(p.PagesMax, m.config.Limits.Memory)) * wasm.PageSize
	m.volatile = volatile(p)
	return nil
}

// volatile tells whether any function can change a table or drop a segment. Compilers do not emit such code for a program
// of one thread; a guest that has it is set up anew for each call.
func volatile(p *module.Module) bool {
	for _, s := range p.Sections {
		if s.ID != wasm.Code {
			continue
		}
		bodies := wasm.NewReader(s.Body)
		for range bodies.U32() {
			r := wasm.NewReader(bodies.Take(bodies.U32()))
			for range r.U32() {
				r.U32()
				r.Byte()
			}
			for r.Left() > 0 && r.Err() == nil {
				in := r.Instruction()
				if in.Op != wasm.OpMisc {
					continue
				}
				switch in.Sub {
				case wasm.MiscDataDrop, wasm.MiscElemDrop, wasm.MiscTableInit, wasm.MiscTableCopy:
					return true
				}
			}
		}
	}
	return false
}

func (m *Module) compile(ctx context.Context) (err error) {
	defer func() {
		if r := recover(); r != nil { // wazero's way to say that it has no compiler for this machine
			err = fmt.Errorf("no compiler for %s/%s: %v", runtime.GOOS, runtime.GOARCH, r)
		}
	}()
	rc := wazero.NewRuntimeConfigCompiler().WithMemoryLimitPages(max(m.config.Limits.Memory, 1)).WithDebugInfoEnabled(false).WithCoreFeatures(api.CoreFeaturesV2)
	if m.config.Cache != "" {
		if m.cache, err = wazero.NewCompilationCacheWithDir(CacheDir(m.config.Cache, m.config.Metered)); err != nil {
			return err
		}
		rc = rc.WithCompilationCache(m.cache)
	}
	m.runtime = wazero.NewRuntimeWithConfig(ctx, rc)
	if err := m.link(ctx); err != nil {
		return err
	}
	m.compiled, err = m.runtime.CompileModule(ctx, m.config.Metered)
	return err
}

// CacheDir is where Compile keeps the code of a metered module below dir: the name depends on the module, which holds
// the rewriter's work, on the compiler's version, and on the machine. What is elsewhere below dir is of no use here.
func CacheDir(dir string, metered []byte) string {
	h := sha256.Sum256(metered)
	return filepath.Join(dir, platform(), hex.EncodeToString(h[:16]))
}

// platform names the compiler and the machine in one short word.
func platform() string {
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path == "github.com/tetratelabs/wazero" {
				version = d.Version
			}
		}
	}
	h := sha256.Sum256(fmt.Appendf(nil, "%s %s %s %+v %+v", version, runtime.GOOS, runtime.GOARCH, cpu.X86, cpu.ARM64))
	return hex.EncodeToString(h[:8])
}

// Sweep removes compiled code of other versions and machines below dir.
func Sweep(dir string) error {
	root, err := os.OpenRoot(dir)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("sweeping compiled code: %w", err)
	}
	defer root.Close()
	d, err := root.Open(".")
	if err != nil {
		return fmt.Errorf("sweeping compiled code: %w", err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	for _, name := range names {
		if name != platform() && err == nil {
			err = root.RemoveAll(name)
		}
	}
	return err
}

// Exports tells whether the guest has a function of the contract: abi.Classify, abi.Route, …
func (m *Module) Exports(name string) bool {
	_, ok := m.compiled.ExportedFunctions()[name]
	return ok
}

// Close frees the module and every instance of it. It is idempotent. No call may be running.
func (m *Module) Close(ctx context.Context) error {
	if m.closed.Swap(true) {
		return nil
	}
	var err error
	if m.runtime != nil {
		err = m.runtime.Close(ctx)
	}
	if m.cache != nil {
		if e := m.cache.Close(ctx); err == nil {
			err = e
		}
	}
	return err
}
