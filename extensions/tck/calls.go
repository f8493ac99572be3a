package tck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/host"
	"onebit/extensions/wasm"
	"onebit/extensions/wasm/wasmtest"
)

func nobody() host.Services { return host.Services{} }

// outside is an address near the end of the 32-bit space.
const outside = -4

// imports are about the functions of abi.HostModule.
func imports() []Case {
	list := []Case{logs(), metrics(), still(), assets()}
	p := newProbe().text(wordsAt, "hello").text(wordsAt+16, "\xff\xfe")
	p.put(p.box("tokens", wordsAt, 5)).put(p.box("tokens", outside, 100)).put(p.box("tokens", wordsAt+16, 2))
	list = append(list, numbered("tokens: counts; -1 for a text outside of memory or not of UTF-8", p, Steady, 2, -1, -1))
	p = newProbe().text(wordsAt, "hello")
	p.put(p.box("embed", wordsAt, 5, outside, 64)).put(p.box("embed", wordsAt, 5, outAt, 64)).word(outAt + 4).put(p.box("embed", wordsAt, 5, outAt, 64))
	list = append(list, numbered("embed: writes numbers, answers how many; -5 the second time", p, vectors, -1, 2, 0x40000000, -5))
	question := `{"text":"hello","criteria":{"a":"first","b":"second"}}`
	p = newProbe().text(wordsAt, question)
	p.put(p.box("decide", wordsAt, int32(len(question)), outAt, 256)).put(p.box("embed", wordsAt, 5, outAt, 64))
	list = append(list, decides(p))
	p = newProbe().text(wordsAt, "{}")
	p.put(p.box("decide", wordsAt, 2, outAt, 256)).put(p.box("decide", wordsAt, 500000, outAt, 256))
	list = append(list, numbered("decide: -1 without criteria, or outside of memory", p, Willing, -1, -1))
	p = newProbe()
	p.put(p.box("text", 1, 2, outAt, 4)).word(outAt).put(p.box("text", 1, 8, outAt, 4)).put(p.box("text", 0, 0, outAt, 100)).
		put(p.box("text", 2, 4, outAt, 100)).put(p.box("text", 3, 0, outAt, 4)).put(p.box("text", 0, 0, outside, 100))
	list = append(list, numbered("text: the parts from an offset on, 0 at the end; -1 for another part or place", p, Steady, 4, little("syst"), 0, 8, 5, -1, -1))
	p = newProbe().text(wordsAt, question)
	p.put(p.box("tokens", wordsAt, 5)).put(p.box("embed", wordsAt, 5, outAt, 64)).put(p.box("decide", wordsAt, int32(len(question)), outAt, 64)).
		put(p.box("kv_get", wordsAt, 1, outAt, 8)).put(p.box("kv_set", wordsAt, 1, wordsAt, 1, 0)).
		put(p.call(abi.HostModule, "kv_add", wasmtest.I32(wordsAt), wasmtest.I32(1), wasmtest.I64(1), wasmtest.I32(0), wasmtest.I32(outAt))).
		put(p.call(abi.HostModule, "metric", wasmtest.I32(0), wasmtest.F64(1)))
	return append(list, unable(p))
}

// unable: a second question may be denied before anybody is looked for, and a host may count what nobody asks for.
func unable(p *probe) Case {
	return asked("-4 where nobody can do it", p.module(), func(ctx context.Context, l Loaded) error {
		r, err := l.Call(ctx, question(nobody()))
		got := words(r.Answer)
		if len(got) != 7 {
			return errors.Join(fmt.Errorf("it answers %d", got), err)
		}
		for i, v := range got {
			if v != -4 && (i != 2 || v != -5) && (i != 6 || v != 0) {
				err = errors.Join(err, fmt.Errorf("function %d answers %d, it must be -4", i+1, v))
			}
		}
		return err
	})
}

// little is the number that four letters are.
func little(s string) int64 { return words([]byte(s))[0] }

func vectors() host.Services {
	s := Willing()
	s.Embed = func(context.Context, string) ([]float32, error) { return []float32{0.5, 2}, nil }
	return s
}

func logs() Case {
	p := newProbe().text(wordsAt, "hello")
	for level := range int32(4) {
		p.do(p.box("log", level, wordsAt, 5))
	}
	p.do(p.box("log", 1, outside, 100))
	return asked("log: level and text; one outside of memory is dropped", p.module(), func(ctx context.Context, l Loaded) error {
		r, err := l.Call(ctx, question(Steady()))
		for level := abi.Debug; level <= abi.Error; level++ {
			err = errors.Join(err, contains(r.Log, level, "hello"))
		}
		if len(r.Log) != 4 {
			err = errors.Join(err, fmt.Errorf("%d lines", len(r.Log)))
		}
		return err
	})
}

func metrics() Case {
	p := newProbe()
	metric := func(id int32, v float64) []byte {
		return p.call(abi.HostModule, "metric", wasmtest.I32(id), wasmtest.F64(v))
	}
	p.put(metric(1, 2.5)).put(metric(2, 1)).put(metric(-1, 1))
	return asked("metric: by its place in the manifest; -1 for another", p.module(), func(ctx context.Context, l Loaded) error {
		var got []string
		s := Steady()
		s.Metric = func(name string, v float64) { got = append(got, fmt.Sprint(name, " ", v)) }
		r, err := l.Call(ctx, question(s))
		if fmt.Sprint(got, words(r.Answer)) != "[second 2.5] [0 -1 -1]" {
			err = errors.Join(err, fmt.Errorf("it counts %q and answers %d", got, words(r.Answer)))
		}
		return err
	})
}

// still: the services' clock goes on, the guest's does not.
func still() Case {
	p := newProbe()
	now := p.call(abi.HostModule, "now_ms")
	p.put64(now).put64(now)
	return asked("now_ms: the time, which stands still during a call", p.module(), func(ctx context.Context, l Loaded) error {
		at := time.UnixMilli(1_700_000_000_000)
		s := Steady()
		s.Now = func() time.Time { at = at.Add(time.Hour); return at }
		r, err := l.Call(ctx, question(s))
		w := words(r.Answer)
		if err != nil || len(w) != 4 {
			return errors.Join(err, fmt.Errorf("it answers %d", w))
		}
		first, second := time.UnixMilli(w[0]&0xffffffff|w[1]<<32), time.UnixMilli(w[2]&0xffffffff|w[3]<<32)
		if !first.Equal(second) || first.After(at) || at.Sub(first) > 24*time.Hour {
			return fmt.Errorf("it sees %v, then %v; the time is %v", first, second, at)
		}
		return nil
	})
}

func assets() Case {
	p := newProbe().text(wordsAt, "a.txtnone")
	take := func(name, length, offset int32) []byte { return p.box("asset", name, length, offset, outAt, 8) }
	codes := []([]byte){take(wordsAt, 5, 1), take(wordsAt+5, 4, 0), take(wordsAt, 5, 100)}
	p.extra = func(m *wasmtest.Module) {
		var body [][]byte
		for i, c := range codes {
			body = append(body, wasmtest.I32(outAt+16+4*int32(i)), c, wasmtest.Store())
		}
		m.Func(abi.Configure, "ii", "l", "", append(body, wasmtest.I64(0))...)
	}
	p.word(outAt + 16).word(outAt).word(outAt + 20).word(outAt + 24).put(p.box("asset", wordsAt, 5, 0, outAt+64, 8))
	m := p.module()
	m.Manifest.Kind, m.Config, m.Assets = abi.Classifier, []byte(`{}`), map[string][]byte{"a.txt": []byte("asset")}
	return asked("asset: only before the snapshot; -2 for another name, -5 later", m, func(ctx context.Context, l Loaded) error {
		r, err := l.Call(ctx, question(Steady()))
		if want := []int64{4, little("sset"), -2, 0, -5}; err != nil || fmt.Sprint(words(r.Answer)) != fmt.Sprint(want) {
			return errors.Join(err, fmt.Errorf("it answers %d, it must be %d", words(r.Answer), want))
		}
		return nil
	})
}

func decides(p *probe) Case {
	p.do(wasmtest.I32(answerAt+8), wasmtest.I32(outAt), wasmtest.I32(256), wasmtest.Copy())
	p.n = 8 + 256
	return asked("decide: writes JSON, answers its length; it counts as the one question of a call", p.module(), func(ctx context.Context, l Loaded) error {
		r, err := l.Call(ctx, question(Willing()))
		if err != nil || len(r.Answer) != 264 {
			return errors.Join(err, fmt.Errorf("%d bytes", len(r.Answer)))
		}
		w := words(r.Answer[:8])
		var got struct {
			Choice     string
			Confidence float64
			Scores     map[string]float64
		}
		if w[0] < 1 || w[0] > 256 || json.Unmarshal(r.Answer[8:8+w[0]], &got) != nil || got.Choice != "a" || got.Confidence != 0.5 || len(got.Scores) != 2 {
			return fmt.Errorf("it answers %d and writes %.100q", w[0], r.Answer[8:])
		}
		if w[1] != -5 {
			return fmt.Errorf("embed after it answers %d, it must be -5", w[1])
		}
		return nil
	})
}

// keyCases are about what a guest stores.
func keyCases() []Case {
	set := func(p *probe, key, length, value, size, seconds int32) []byte {
		return p.box("kv_set", key, length, value, size, seconds)
	}
	add := func(p *probe, key, length int32, delta int64, at int32) []byte {
		return p.call(abi.HostModule, "kv_add", wasmtest.I32(key), wasmtest.I32(length), wasmtest.I64(delta), wasmtest.I32(0), wasmtest.I32(at))
	}
	p := newProbe().text(wordsAt, "keyvalue")
	p.put(p.box("kv_get", wordsAt, 3, outAt, 8)).put(set(p, wordsAt, 3, wordsAt+3, 5, 60)).put(p.box("kv_get", wordsAt, 3, outAt, 4)).word(outAt).
		put(p.box("kv_get", wordsAt, 3, outAt, 8)).word(outAt)
	get := numbered("kv_get: -2 for no such key, else the length, and the value only if it fits", p, Steady, -2, 0, 5, 0, 5, little("valu"))
	p = newProbe().text(wordsAt, "key")
	p.put(add(p, wordsAt, 3, 5, outAt)).word(outAt).put(add(p, wordsAt, 3, -7, outAt)).word(outAt).word(outAt + 4).put(set(p, wordsAt, 3, wordsAt, 3, 0)).put(add(p, wordsAt, 3, 1, outAt))
	sum := numbered("kv_add: the sum, 8 bytes little-endian; -1 for a value that is no number", p, Steady, 0, 5, 0, -2, -1, 0, -1)
	p = newProbe().text(wordsAt, "key")
	p.put(p.box("kv_get", outside, 100, outAt, 8)).put(p.box("kv_get", wordsAt, 3, outside, 100)).put(set(p, wordsAt, 3, outside, 100, 0)).
		put(set(p, outside, 100, wordsAt, 1, 0)).put(add(p, wordsAt, 3, 1, outside)).put(set(p, wordsAt, 3, wordsAt, 3, -1))
	wrong := numbered("kv: -1 for what lies outside of memory, and for less than no time", p, Steady, -1, -1, -1, -1, -1, -1)
	p = newProbe().text(wordsAt, "key")
	p.put(set(p, wordsAt, 3, wordsAt, 3, 0)).put(add(p, wordsAt, 3, 1, outAt))
	full := func() host.Services { s := Steady(); s.KV = fullKeys{}; return s }
	return []Case{get, sum, wrong, numbered("kv: -3 when a quota is used up", p, full, -3, -3), kept()}
}

// fullKeys have no room.
type fullKeys struct{ host.KV }

func (fullKeys) Set(context.Context, string, []byte, time.Duration) error { return host.ErrFull }
func (fullKeys) Add(context.Context, string, int64, time.Duration) (int64, error) {
	return 0, host.ErrFull
}

func kept() Case {
	p := newProbe().text(wordsAt, "key")
	p.put(p.call(abi.HostModule, "kv_add", wasmtest.I32(wordsAt), wasmtest.I32(3), wasmtest.I64(1), wasmtest.I32(0), wasmtest.I32(outAt))).word(outAt)
	return asked("kv: what is stored outlives the call", p.module(), func(ctx context.Context, l Loaded) error {
		s := Steady()
		for n := range int64(3) {
			r, err := l.Call(ctx, question(s))
			if err != nil || fmt.Sprint(words(r.Answer)) != fmt.Sprint([]int64{0, n + 1}) {
				return errors.Join(err, fmt.Errorf("call %d answers %d", n+1, words(r.Answer)))
			}
		}
		return nil
	})
}

// quotas are about how much a call may ask.
func quotas() []Case {
	p := newProbe().text(wordsAt, "hello")
	tokens := p.box("tokens", wordsAt, 5)
	p.locals = "i"
	p.do(wasmtest.Times(2, abi.MaxHostCalls+6, wasmtest.I32(outAt), wasmtest.I32(outAt), wasmtest.Load(), tokens, wasmtest.I32(-3), wasmtest.Op(0x46), wasmtest.Op(0x6a), wasmtest.Store()))
	p.word(outAt)
	calls := numbered("64 calls of the host, then -3", p, Steady, 6)
	p = newProbe().text(wordsAt, strings.Repeat("x", 3000))
	line := p.box("log", 1, wordsAt, 3000)
	p.do(line, line, line)
	return []Case{calls, asked("4 KiB of log in a call", p.module(), func(ctx context.Context, l Loaded) error {
		r, err := l.Call(ctx, question(Steady()))
		n := 0
		for _, l := range r.Log {
			n += len(l.Text)
		}
		if n == 0 || n > abi.MaxLog {
			err = errors.Join(err, fmt.Errorf("%d bytes are kept", n))
		}
		return err
	})}
}

// standards are about the functions for standard libraries.
func standards() []Case {
	p := newProbe()
	p.do(wasmtest.I32(outAt), wasmtest.I32(9), wasmtest.Store(), wasmtest.I32(outAt+4), wasmtest.I32(9), wasmtest.Store())
	p.put(p.wasi("args_sizes_get", outAt, outAt+4)).word(outAt).word(outAt + 4)
	p.do(wasmtest.I32(outAt), wasmtest.I32(9), wasmtest.Store())
	p.put(p.wasi("environ_sizes_get", outAt, outAt+4)).word(outAt).put(p.wasi("sched_yield"))
	empty := numbered("WASI: no arguments, no environment", p, Steady, 0, 0, 0, 0, 0, 0)
	p = newProbe()
	clock := func(at int32) []byte {
		return p.call(abi.WASIModule, "clock_time_get", wasmtest.I32(0), wasmtest.I64(0), wasmtest.I32(at))
	}
	p.put(clock(outAt)).put(clock(outAt + 8))
	difference := []byte{}
	for _, at := range []int32{outAt, outAt + 8} {
		difference = append(append(difference, wasmtest.I32(at)...), 0x29, 3, 0)
	}
	p.put(append(append(difference, wasm.OpI64Sub), 0x50)) // i64.eqz
	clocks := numbered("WASI: the time stands still during a call", p, Steady, 0, 0, 1)
	p = newProbe()
	p.put(p.wasi("fd_prestat_get", 3, outAt)).put(p.wasi("fd_close", 9))
	files := numbered("WASI: there are no files", p, Steady, 8, 8)
	return []Case{empty, clocks, files, random(), written(), exits()}
}

func exits() Case {
	m := &wasmtest.Module{}
	exit := m.Import(abi.WASIModule, "proc_exit", "i", "")
	g := m.Global('i', wasmtest.I32(0))
	m.Memory(probePages, probePages)
	m.Func(abi.Marker, "", "", "")
	m.Func(abi.Buffer, "i", "i", "", wasmtest.I32(bufferAt))
	m.Func(abi.Route, "ii", "l", "", wasmtest.With(wasm.OpGlobalGet, g), wasmtest.Op(0x45),
		wasmtest.If(wasmtest.I32(1), wasmtest.With(wasm.OpGlobalSet, g), wasmtest.I64(0), wasmtest.Op(wasm.OpReturn)),
		wasmtest.I32(0), wasmtest.Call(exit), wasmtest.I64(0))
	return fails("WASI: proc_exit ends the call as a trap does", made(m), host.CauseExit)
}

func random() Case {
	p := newProbe()
	p.put(p.wasi("random_get", outAt, 8)).word(outAt).word(outAt + 4)
	return asked("WASI: random bytes are a function of the request", p.module(), func(ctx context.Context, l Loaded) error {
		first, err := l.Call(ctx, question(Steady()))
		again, err2 := l.Call(ctx, question(Steady()))
		c := question(Steady())
		c.Seed = 8
		other, err3 := l.Call(ctx, c)
		if err := errors.Join(err, err2, err3, differ(first, again)); err != nil {
			return err
		}
		if string(other.Answer) == string(first.Answer) {
			return errors.New("another request has the same bytes")
		}
		return nil
	})
}

func written() Case {
	p := newProbe().text(wordsAt, "one\ntwo").text(wordsAt+16, string([]byte{0, wordsAt >> 8, 0, 0, 7, 0, 0, 0}))
	p.put(p.wasi("fd_write", 2, wordsAt+16, 1, outAt)).word(outAt)
	return asked("WASI: what is written to 1 and 2 goes to the debug log", p.module(), func(ctx context.Context, l Loaded) error {
		r, err := l.Call(ctx, question(Steady()))
		if fmt.Sprint(words(r.Answer)) != "[0 7]" {
			err = errors.Join(err, fmt.Errorf("it answers %d", words(r.Answer)))
		}
		return errors.Join(err, contains(r.Log, abi.Debug, "one"), contains(r.Log, abi.Debug, "two"))
	})
}

// budgets are about what ends a call.
func budgets() []Case {
	limited := func(m *wasmtest.Module, units int64) Module {
		out := made(m)
		out.Limits = abi.Policy.Limits()
		out.Limits.Units = units
		return out
	}
	endless := warmed(wasmtest.Loop(wasmtest.With(wasm.OpBr, 0)), wasmtest.I64(0))
	deep := warmed(wasmtest.Call(3), wasmtest.I64(0))
	deep.Func("", "", "", "", wasmtest.Call(3))
	var long [][]byte
	for range 3000 {
		long = append(long, wasmtest.I32(1), wasmtest.Op(wasm.OpDrop))
	}
	straight := warmed(append(long, wasmtest.I64(0))...)
	big := newProbe()
	big.put(append(wasmtest.I32(30000), wasm.OpMemoryGrow, 0))
	return []Case{
		fails("units: a loop without end", limited(endless, 1_000_000), host.CauseBudget),
		fails("units: a call that returns with less than nothing failed as well", limited(straight, 1000), host.CauseBudget),
		fails("stack: calls without end", made(deep), host.CauseStack),
		numbered("memory.grow over the limit answers -1", big, Steady, -1),
		late(limited(endless, 1<<50)), counted(),
	}
}

func late(m Module) Case {
	return asked("wall clock: a call ends at its deadline", m, func(ctx context.Context, l Loaded) error {
		c := question(Steady())
		c.Deadline = time.Now().Add(30 * time.Millisecond)
		_, err := l.Call(ctx, c)
		var e *host.CallError
		if !errors.As(err, &e) || e.Cause != host.CauseTimeout {
			return errors.Join(errors.New("it ends otherwise"), err)
		}
		return nil
	})
}

// counted: the count depends on the module and its input alone.
func counted() Case {
	m := plain(wasmtest.Times(2, 1000, wasmtest.I32(1), wasmtest.Op(wasm.OpDrop)), echo())
	return asked("units: the same question has the same count", made(m), func(ctx context.Context, l Loaded) error {
		first, err := l.Call(ctx, question(Steady()))
		again, err2 := l.Call(ctx, question(Willing()))
		if first.Units < 4000 || first.Units > 20000 {
			err = errors.Join(err, fmt.Errorf("6,000 instructions count %d units", first.Units))
		}
		return errors.Join(err, err2, differ(first, again))
	})
}
