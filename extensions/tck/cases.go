package tck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"onebit/extensions/abi"
	"onebit/extensions/host"
	"onebit/extensions/wasm"
	"onebit/extensions/wasm/wasmtest"
)

// refusals are modules that no host may take.
func refusals() (list []Case) {
	add := func(name string, change func(m *wasmtest.Module)) {
		m := &wasmtest.Module{}
		change(m)
		list = append(list, refused("refused: "+name, made(m)))
	}
	marker := func(m *wasmtest.Module) { m.Func(abi.Marker, "", "", "") }
	buffer := func(m *wasmtest.Module) { m.Func(abi.Buffer, "i", "i", "", wasmtest.I32(bufferAt)) }
	route := func(m *wasmtest.Module) { m.Func(abi.Route, "ii", "l", "", wasmtest.I64(0)) }
	whole := func(m *wasmtest.Module) { m.Memory(probePages, probePages); marker(m); buffer(m); route(m) }
	add("no memory", func(m *wasmtest.Module) { marker(m); m.Func(abi.Buffer, "i", "i", "", wasmtest.I32(0)); route(m) })
	add("no laya_abi_v1", func(m *wasmtest.Module) { m.Memory(probePages, probePages); buffer(m); route(m) })
	add("no laya_buffer", func(m *wasmtest.Module) { m.Memory(probePages, probePages); marker(m); route(m) })
	add("neither laya_classify nor laya_route", func(m *wasmtest.Module) { m.Memory(probePages, probePages); marker(m); buffer(m) })
	add("laya_route of another type", func(m *wasmtest.Module) {
		m.Memory(probePages, probePages)
		marker(m)
		buffer(m)
		m.Func(abi.Route, "i", "l", "", wasmtest.I64(0))
	})
	add("more memory than the limit", func(m *wasmtest.Module) { m.Memory(4000, 4000); marker(m); buffer(m); route(m) })
	add("a mutable global of type v128", func(m *wasmtest.Module) {
		whole(m)
		m.Global('v', append([]byte{0xfd, 0x0c}, make([]byte, 16)...))
	})
	add("a name of the meter", func(m *wasmtest.Module) { whole(m); m.Func("laya_meter_x", "", "", "") })
	add("a function that nobody offers", func(m *wasmtest.Module) { m.Import(abi.HostModule, "fetch", "ii", "i"); whole(m) })
	add("a function of another type", func(m *wasmtest.Module) { m.Import(abi.HostModule, "log", "i", ""); whole(m) })
	add("a module that nobody offers", func(m *wasmtest.Module) { m.Import("env", "log", "iii", ""); whole(m) })
	add("files", func(m *wasmtest.Module) { m.Import(abi.WASIModule, "path_open", "iiiiillii", "i"); whole(m) })
	for _, f := range abi.Imports() {
		if f.Capability == "" {
			continue
		}
		p := newProbe()
		p.call(abi.HostModule, f.Name)
		p.caps = nil
		list = append(list, refused("refused: "+f.Name+" without the grant of "+string(f.Capability), p.module()))
	}
	good := made(plain(wasmtest.I64(0)))
	cut := good
	cut.Code = good.Code[:len(good.Code)-3]
	return append(list, refused("refused: a module that is cut short", cut), refused("refused: no module", Module{Code: []byte("#!/bin/sh\n"), Manifest: good.Manifest}))
}

// exports are about what a guest exports.
func exports() []Case {
	size := func(n int32) *wasmtest.Module { // of a guest whose buffer is somewhere else
		m := &wasmtest.Module{}
		m.Memory(probePages, probePages)
		m.Func(abi.Marker, "", "", "", wasmtest.Op(wasm.OpUnreachable))
		m.Func(abi.Buffer, "i", "i", "", onFirst(m), wasmtest.I32(n))
		m.Func(abi.Route, "ii", "l", "", wasmtest.I64(0))
		return m
	}
	return []Case{
		echoes(),
		fails("laya_buffer: 0 refuses", made(size(0)), host.CauseAnswer, host.CausePointer, host.CauseTrap),
		fails("laya_buffer: an address outside of memory", made(size(probePages*wasm.PageSize-3)), host.CausePointer),
		same3("laya_route: 0 is no opinion", made(plain(wasmtest.I64(0))), ""),
		fails("an answer that ends outside of memory", made(warmed(packed(probePages*wasm.PageSize-1, 2))), host.CausePointer),
		fails("an answer that wraps round", made(warmed(packed(-1, 2))), host.CausePointer),
		fails("an answer of more than 16 KiB", made(warmed(packed(0, abi.MaxDecision+1))), host.CauseAnswer),
		classifies(), configures(), refusesConfig(), starts(),
	}
}

// warmed lets the first call, which is the warm one, pass: it answers nothing. The following ones run route. A global
// remembers.
func warmed(route ...[]byte) *wasmtest.Module {
	m := &wasmtest.Module{}
	g := m.Global('i', wasmtest.I32(0))
	m.Memory(probePages, probePages+4)
	m.Func(abi.Marker, "", "", "")
	m.Func(abi.Buffer, "i", "i", "", wasmtest.I32(bufferAt))
	code := [][]byte{
		wasmtest.With(wasm.OpGlobalGet, g), wasmtest.Op(0x45), // i32.eqz
		wasmtest.If(wasmtest.I32(1), wasmtest.With(wasm.OpGlobalSet, g), wasmtest.I64(0), wasmtest.Op(wasm.OpReturn)),
	}
	m.Func(abi.Route, "ii", "l", "i", append(code, route...)...)
	return m
}

// onFirst returns the address of a good buffer at the first call of laya_buffer, which is for the warm call.
func onFirst(m *wasmtest.Module) []byte {
	g := m.Global('i', wasmtest.I32(0))
	return append(append(wasmtest.With(wasm.OpGlobalGet, g), 0x45),
		wasmtest.If(wasmtest.I32(1), wasmtest.With(wasm.OpGlobalSet, g), wasmtest.I32(bufferAt), wasmtest.Op(wasm.OpReturn))...)
}

func echoes() Case {
	return asked("a request reaches the address that laya_buffer answers, and the answer is copied", made(plain(echo())), func(ctx context.Context, l Loaded) error {
		for _, n := range []int{2, 100, abi.MaxDecision} {
			c := question(host.Services{})
			c.Request = []byte(`"` + strings.Repeat("q", n-2) + `"`)
			r, err := l.Call(ctx, c)
			if err != nil {
				return err
			}
			if string(r.Answer) != string(c.Request) {
				return fmt.Errorf("%d bytes come back as %d: %.40q", n, len(r.Answer), r.Answer)
			}
		}
		c := question(host.Services{})
		c.Request = make([]byte, abi.MaxRequest+1)
		if _, err := l.Call(ctx, c); err == nil {
			return errors.New("a request of more than 64 KiB is passed on")
		}
		return nil
	})
}

func classifies() Case {
	m := plain(wasmtest.I64(0))
	m.Func(abi.Classify, "ii", "l", "", echo())
	return asked("laya_classify is asked by its name", made(m), func(ctx context.Context, l Loaded) error {
		c := question(host.Services{})
		c.Function = abi.Classify
		r, err := l.Call(ctx, c)
		if err == nil && string(r.Answer) != warm {
			err = fmt.Errorf("it answers %q", r.Answer)
		}
		return err
	})
}

// keep is code that copies (address, length) to a place and remembers the length there.
func keep(at int32) [][]byte {
	return [][]byte{wasmtest.I32(at), wasmtest.Get(1), wasmtest.Store(), wasmtest.I32(at + 4), wasmtest.Get(0), wasmtest.Get(1), wasmtest.Copy()}
}

func configures() Case {
	length := append(wasmtest.I32(outAt), wasmtest.Load()...)
	m := plain(wasmtest.I64((outAt+4)<<32), length, wasmtest.Op(0xad), wasmtest.Op(0x84))
	m.Func(abi.Configure, "ii", "l", "", append(keep(outAt), wasmtest.I64(0))...)
	c := made(m)
	c.Config = []byte(`{"a": [1, "\u00e9"]}`)
	return same3("laya_configure is given the operator's JSON", c, string(c.Config))
}

func refusesConfig() Case {
	m := plain(wasmtest.I64(0))
	m.Func(abi.Configure, "ii", "l", "", packed(wordsAt, 5))
	m.Data(wordsAt, []byte("wrong"))
	c := made(m)
	c.Config = []byte(`{}`)
	return Case{"laya_configure: an error text refuses the configuration", func(ctx context.Context, h Host) error {
		l, err := h.Load(ctx, c)
		if err == nil {
			return errors.Join(errors.New("the host takes it"), l.Close(ctx))
		}
		if !strings.Contains(err.Error(), "wrong") {
			return fmt.Errorf("the error does not have the guest's words: %w", err)
		}
		return nil
	}}
}

// note appends a letter to the text at outAt, whose length stands before it.
func note(letter byte) []byte {
	length := slices.Concat(wasmtest.I32(outAt), wasmtest.Load())
	return slices.Concat(length, wasmtest.I32(outAt+4), wasmtest.Op(0x6a), wasmtest.I32(int32(letter)), wasmtest.Op(0x3a, 0, 0),
		wasmtest.I32(outAt), length, wasmtest.I32(1), wasmtest.Op(0x6a), wasmtest.Store())
}

func starts() Case {
	length := append(wasmtest.I32(outAt), wasmtest.Load()...)
	m := plain(note('r'), wasmtest.I64((outAt+4)<<32), length, wasmtest.Op(0xad), wasmtest.Op(0x84))
	s := m.Func("", "", "", "", note('s'))
	m.Func(abi.Initialize, "", "", "", note('i'))
	m.Func(abi.Configure, "ii", "l", "", note('c'), wasmtest.I64(0))
	m.Start(s)
	c := made(m)
	c.Config = []byte(`{}`)
	return same3("start function, _initialize, laya_configure, one warm call, then each call from there", c, "sicrr")
}

// memories are about the state that calls begin with.
func memories() []Case {
	m := &wasmtest.Module{}
	i := m.Global('i', wasmtest.I32(40))
	l := m.Global('l', wasmtest.I64(50))
	m.Memory(probePages, probePages+4)
	m.Func(abi.Marker, "", "", "")
	m.Func(abi.Buffer, "i", "i", "", wasmtest.I32(bufferAt))
	m.Func(abi.Route, "ii", "l", "",
		wasmtest.With(wasm.OpGlobalGet, i), wasmtest.I32(1), wasmtest.Op(0x6a), wasmtest.With(wasm.OpGlobalSet, i),
		wasmtest.With(wasm.OpGlobalGet, l), wasmtest.I64(1), wasmtest.Op(0x7c), wasmtest.With(wasm.OpGlobalSet, l),
		wasmtest.I32(answerAt), wasmtest.With(wasm.OpGlobalGet, i), wasmtest.Op(0x3a, 0, 0),
		wasmtest.I32(answerAt+1), wasmtest.With(wasm.OpGlobalGet, l), wasmtest.Op(0x3c, 0, 0), packed(answerAt, 2))
	grow := plain(wasmtest.I32(answerAt), wasmtest.I32(1), wasmtest.Op(wasm.OpMemoryGrow, 0), wasmtest.Op(0x3a, 0, 0), packed(answerAt, 1))
	high := plain( // what it wrote into memory that it got is not there the next time
		wasmtest.I32(1), wasmtest.Op(wasm.OpMemoryGrow, 0), wasmtest.Op(wasm.OpDrop),
		wasmtest.I32(answerAt), wasmtest.Op(0x3f, 0), wasmtest.I32(16), wasmtest.Op(0x74), wasmtest.I32(8), wasmtest.Op(0x6b), wasmtest.Load(), wasmtest.Store(),
		wasmtest.Op(0x3f, 0), wasmtest.I32(16), wasmtest.Op(0x74), wasmtest.I32(8), wasmtest.Op(0x6b), wasmtest.I32(77), wasmtest.Store(),
		packed(answerAt, 4))
	return []Case{
		same3("globals are those of the snapshot", made(m), "\x2a\x34"),
		same3("memory has the size of the snapshot", made(grow), string([]byte{probePages + 1})),
		same3("memory that a call got is gone, and fresh memory is zero", made(high), "\x00\x00\x00\x00"),
		afterTrap(),
	}
}

// afterTrap: a guest that traps in between writes first; nothing of that is seen.
func afterTrap() Case {
	m := plain(note('r'), wasmtest.Get(0), wasmtest.Op(0x2d, 0, 0), wasmtest.I32('t'), wasmtest.Op(0x46), wasmtest.If(wasmtest.Op(wasm.OpUnreachable)),
		wasmtest.I64((outAt+4)<<32), wasmtest.I32(outAt), wasmtest.Load(), wasmtest.Op(0xad), wasmtest.Op(0x84))
	return asked("a call that traps leaves nothing behind", made(m), func(ctx context.Context, l Loaded) error {
		for n := range 3 {
			c := question(host.Services{})
			c.Request = []byte("trap")
			if _, err := l.Call(ctx, c); err == nil {
				return errors.New("a trap is no failure")
			}
			r, err := l.Call(ctx, question(host.Services{}))
			if err != nil || string(r.Answer) != "rr" {
				return errors.Join(fmt.Errorf("after trap %d it answers %q", n+1, r.Answer), err)
			}
		}
		return nil
	})
}
