package host_test

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/host"
	"onebit/extensions/wasm"
	. "onebit/extensions/wasm/wasmtest"
)

// Modes of a dirty guest: the first byte of its request.
const (
	modeReport byte = iota // changes nothing
	modeReturn
	modeTrap
	modeLoop
	modeExit
	modeRecurse
	modePointer
	modeLong
	modeGrow // to all that it may have
	modes
)

const state = 30000 // an address that a dirty guest changes

// dirty changes all that it can reach (globals of each type, bytes of its memory, bytes of new memory, its table and
// segments when volatile), then ends as its request says. Its answer in modeReport is a picture of that state.
func dirty(volatile bool) []byte {
	m := &Module{}
	exit := m.Import(abi.WASIModule, "proc_exit", "i", "")
	guest(m)
	m.Data(state, []byte("the state at the start"))
	gi, gl, gd := m.Global('i', I32(1)), m.Global('l', I64(2)), m.Global('d', F64(3))
	one, two := m.Func("", "", "i", "", I32(1)), m.Func("", "", "i", "", I32(2))
	m.Table(one, two)
	recurse := uint32(7) // exit, marker, buffer, one, two, mode, picture, recurse
	is := func(mode byte, then ...[]byte) []byte {
		return append(slices.Concat(Get(0), I32(int32(mode)), Op(0x46)), If(then...)...)
	}
	var tables []byte
	if volatile {
		tables = slices.Concat(I32(0), I32(1), I32(1), Op(wasm.OpMisc, wasm.MiscTableCopy, 0, 0))
	}
	last := slices.Concat(Op(wasm.OpMemorySize, 0), I32(1), Op(0x6b), I32(16), Op(0x74)) // the address of the last page
	m.Func("", "i", "", "",                                                              // change everything, then end
		I32(77), With(wasm.OpGlobalSet, gi), I64(77), With(wasm.OpGlobalSet, gl), F64(77), With(wasm.OpGlobalSet, gd),
		I32(state), I32(0x21212121), Store(), I32(answerAt+60), I32(0x21212121), Store(), tables,
		I32(1), Op(wasm.OpMemoryGrow, 0, 0x1a), I32(answerAt+40), last, Load(), Store(), last, I32(0x21212121), Store(),
		is(modeTrap, Op(wasm.OpUnreachable)), is(modeLoop, Loop(Op(0x0c, 0))), is(modeExit, I32(3), Call(exit)), is(modeRecurse, Call(recurse)),
		is(modeGrow, Loop(I32(1), Op(wasm.OpMemoryGrow, 0), I32(-1), Op(0x47, 0x0d, 0))))
	m.Func("", "", "", "", // the picture
		I32(answerAt), Op(wasm.OpMemorySize, 0), Store(),
		I32(answerAt+4), With(wasm.OpGlobalGet, gi), Store(),
		I32(answerAt+8), With(wasm.OpGlobalGet, gl), Op(0x37, 3, 0),
		I32(answerAt+16), With(wasm.OpGlobalGet, gd), Op(0x39, 3, 0),
		I32(answerAt+24), I32(state), Load(), Store(),
		I32(answerAt+28), I32(0), With(wasm.OpCallIndirect, m.Type("", "i")), Op(0), Store(),
		I32(answerAt+32), last, Load(), Store())
	m.Func("", "", "", "llll", Call(recurse))
	m.Func(abi.Route, "ii", "l", "",
		Get(0), Op(0x2d, 0, 0), Set(0), Get(0), Op(0x45, 0x04, 0x40), Call(6), packed(answerAt, 64), Op(0x0f, wasm.OpEnd),
		Get(0), Call(5),
		is(modePointer, packed(-65536, 100), Op(0x0f)), is(modeLong, packed(0, abi.MaxDecision+1), Op(0x0f)), packed(answerAt, 64))
	return m.Bytes()
}

func mode(m byte) host.Call { return host.Call{Function: abi.Route, Request: []byte{m}} }

// causes says how each mode ends.
var causes = map[byte]host.Cause{modeReturn: "", modeTrap: host.CauseTrap, modeLoop: host.CauseBudget, modeExit: host.CauseExit, modeRecurse: host.CauseStack,
	modePointer: host.CausePointer, modeLong: host.CauseAnswer, modeGrow: ""}

// TestStateAfterCalls: whatever a call did and however it ended, the next one finds the state of the snapshot. With
// shared snapshots, with copied ones, and with a guest whose state cannot be kept in one.
func TestStateAfterCalls(t *testing.T) {
	kinds := []struct {
		name             string
		copied, volatile bool
	}{{"shared", false, false}, {"copied", true, false}, {"volatile", false, true}}
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			c := config(t, dirty(kind.volatile))
			c.Limits.Units = 2_000_000
			m := compile(t, c)
			if kind.copied {
				host.CopySnapshots(m)
			}
			if host.Volatile(m) != kind.volatile {
				t.Fatalf("volatile is %v", host.Volatile(m))
			}
			i := instance(t, m, host.Setup{})
			clone, err := i.Clone(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer clone.Close(t.Context())
			first, err := i.Call(t.Context(), mode(modeReport))
			if err != nil || first.Answer[0] != 1 || first.Answer[4] != 1 || string(first.Answer[24:28]) != "the " || first.Answer[28] != 1 {
				t.Fatalf("%q, %v", first.Answer, err)
			}
			for _, in := range []*host.Instance{i, clone} {
				stateAfter(t, in, first)
			}
		})
	}
}

func stateAfter(t *testing.T, i *host.Instance, first host.Result) {
	t.Helper()
	for how := modeReturn; how < modes; how++ {
		r, err := i.Call(t.Context(), mode(how))
		if cause := causes[how]; cause != "" {
			failure(t, err, cause)
		} else if err != nil {
			t.Fatalf("mode %d: %v", how, err)
		}
		if r.Units <= 0 || r.Pages < 2 {
			t.Errorf("mode %d: %d units, %d pages", how, r.Units, r.Pages)
		}
		if len(r.Answer) > 0 && !bytes.Equal(r.Answer[40:44], make([]byte, 4)) {
			t.Errorf("mode %d: a new page holds %q", how, r.Answer[40:44])
		}
		again, err := i.Call(t.Context(), mode(modeReport))
		if err != nil || !bytes.Equal(first.Answer, again.Answer) || again.Units != first.Units || again.Pages != first.Pages {
			t.Errorf("after mode %d:\n%q, %d units, %d pages, %v\nnot\n%q, %d units", how, again.Answer, again.Units, again.Pages, err, first.Answer, first.Units)
		}
	}
}

// TestHotPages: pages that calls write to are kept, within bounds, and are put back like all others: those that every call
// writes to, those that a later call writes to for the first time, and those behind the bounds.
func TestHotPages(t *testing.T) {
	m := &Module{}
	m.Memory(200, 200)
	m.Func(abi.Marker, "", "", "")
	m.Func(abi.Buffer, "i", "i", "", I32(bufferAt))
	m.Data(65536+8, []byte("kept"))
	at := slices.Concat(Get(2), I32(65536), Op(0x6c)) // local 2 counts down from the number of the request
	m.Func(abi.Route, "ii", "l", "ii", Get(0), Load(), Set(2),
		Loop(Get(3), at, Load(), Op(0x6a), Set(3), at, I32(-1), Store(), // sums what it finds, then spoils it
			Get(2), I32(1), Op(0x6b), With(wasm.OpLocalTee, 2), Op(0x0d, 0)),
		I32(answerAt), Get(3), Store(), I32(answerAt+4), I32(65536+8), Load(), Store(), I32(65536+8), I32(0), Store(), packed(answerAt, 8))
	for _, copied := range []bool{false, true} {
		module := compile(t, config(t, m.Bytes()))
		if copied {
			host.CopySnapshots(module)
		}
		i := instance(t, module, host.Setup{})
		for n, pages := range slices.Concat(slices.Repeat([]byte{5}, 20), slices.Repeat([]byte{199, 5, 100}, 20), slices.Repeat([]byte{3}, 4100)) {
			r, err := i.Call(t.Context(), host.Call{Function: abi.Route, Request: []byte{pages, 0, 0, 0}})
			if err != nil || string(r.Answer) != "\x00\x00\x00\x00kept" {
				t.Fatalf("call %d finds %q, %v", n, r.Answer, err)
			}
			spans, bytes := host.Hot(i)
			if spans > 16 || bytes > 256<<10 || !copied && (n == 19 || n == 4170) && spans < 3 || copied && spans > 0 {
				t.Fatalf("call %d: %d bytes in %d spans are kept", n, bytes, spans)
			}
		}
	}
}

// TestUnitsAreTheSame: two instances, two modules, a call after many: one count.
func TestUnitsAreTheSame(t *testing.T) {
	c := config(t, dirty(false))
	var want host.Result
	for n := range 2 {
		m := compile(t, c)
		for range 2 {
			i := instance(t, m, host.Setup{})
			for range 3 {
				got, err := i.Call(t.Context(), mode(modeReturn))
				if err != nil {
					t.Fatal(err)
				}
				if n == 0 && want.Units == 0 {
					want = got
				}
				if got.Units != want.Units || !bytes.Equal(got.Answer, want.Answer) {
					t.Errorf("%d units, not %d", got.Units, want.Units)
				}
			}
		}
	}
}

// TestVolatile: what a host cannot restore is found wherever it stands.
func TestVolatile(t *testing.T) {
	for _, op := range []byte{wasm.MiscMemoryCopy, wasm.MiscMemoryFill, wasm.MiscTableCopy} {
		m := guest(&Module{})
		m.Table(m.Func("", "", "", ""))
		m.Func(abi.Route, "ii", "l", "", I32(0), I32(0), I32(0), append(Op(wasm.OpMisc, op), make([]byte, map[byte]int{wasm.MiscMemoryCopy: 2, wasm.MiscMemoryFill: 1, wasm.MiscTableCopy: 2}[op])...), I64(0))
		if got := host.Volatile(compile(t, config(t, m.Bytes()))); got != (op == wasm.MiscTableCopy) {
			t.Errorf("instruction %d: %v", op, got)
		}
	}
}

// TestLimits: each way to use too much ends the call by its cause, and the next call is served.
func TestLimits(t *testing.T) {
	loop := Loop(Op(0x0c, 0))
	tests := []struct {
		name   string
		cause  host.Cause
		change func(*host.Config)
		call   func(*host.Call)
		buffer []byte // body of laya_buffer
		route  []byte
		detail string
	}{
		{name: "loop on a budget", cause: host.CauseBudget, route: loop, change: func(c *host.Config) { c.Limits.Units = 100_000 }, detail: "100000 units"},
		{name: "loop in the buffer", cause: host.CauseBudget, buffer: loop, change: func(c *host.Config) { c.Limits.Units = 3_000_000 }},
		{name: "overdrawn at the end", cause: host.CauseBudget, route: slices.Repeat(Op(1), 2000), change: func(c *host.Config) { c.Limits.Units = 1000 }},
		{name: "loop on the clock", cause: host.CauseTimeout, route: loop, change: func(c *host.Config) { c.Limits.Units = math.MaxInt64; c.Limits.Deadline = 200 * time.Millisecond }, detail: "deadline"},
		{name: "deadline of the call", cause: host.CauseTimeout, route: loop, change: func(c *host.Config) { c.Limits.Units = math.MaxInt64; c.Limits.Deadline = time.Hour },
			call: func(c *host.Call) { c.Deadline = time.Now().Add(5 * time.Millisecond) }, detail: "deadline"},
		{name: "deadline of the past", cause: host.CauseTimeout, route: nil, call: func(c *host.Call) { c.Deadline = time.Unix(1, 0) }, detail: "before the call"},
		{name: "no buffer", cause: host.CauseAnswer, buffer: slices.Concat(I32(0), Op(0x0f)), detail: "refused 3 bytes"},
		{name: "buffer outside", cause: host.CausePointer, buffer: slices.Concat(I32(pageEnd-2), Op(0x0f)), detail: "outside"},
		{name: "buffer at the last address", cause: host.CausePointer, buffer: slices.Concat(I32(-1), Op(0x0f)), detail: "outside"},
		{name: "answer outside", cause: host.CausePointer, route: slices.Concat(packed(pageEnd-3, 4), Op(0x0f)), detail: "outside"},
		{name: "answer wraps", cause: host.CausePointer, route: slices.Concat(packed(-4, 8), Op(0x0f)), detail: "outside"},
		{name: "answer too long", cause: host.CauseAnswer, route: slices.Concat(packed(1, abi.MaxDecision+1), Op(0x0f)), detail: "at most 16384"},
		{name: "answer much too long", cause: host.CauseAnswer, route: slices.Concat(packed(1, -1), Op(0x0f))},
		{name: "unreachable", cause: host.CauseTrap, route: Op(wasm.OpUnreachable), detail: "unreachable"},
		{name: "division", cause: host.CauseTrap, route: slices.Concat(I32(1), I32(0), Op(0x6d, 0x1a)), detail: "divide by zero"},
		{name: "load outside", cause: host.CauseTrap, route: slices.Concat(I32(-1), Load(), Op(0x1a)), detail: "out of bounds"},
		{name: "stack", cause: host.CauseStack, route: slices.Concat(I32(0), I32(0), Call(2), Op(0x1a)), change: func(c *host.Config) { c.Limits.Depth = 100 }, detail: "100 slots"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := &Module{}
			m.Memory(1, 1)
			m.Func(abi.Marker, "", "", "")
			m.Func(abi.Buffer, "i", "i", "", Get(0), I32(9), Op(0x46), If(Op(0x41, 4, 0x0f)), tt.buffer, I32(bufferAt)) // serves 9 bytes
			m.Func(abi.Route, "ii", "l", "", Get(1), I32(9), Op(0x46), If(packed(answerAt, 2), Op(0x0f)), tt.route, packed(answerAt, 0))
			m.Data(answerAt, []byte("ok"))
			c := config(t, m.Bytes())
			if tt.change != nil {
				tt.change(&c)
			}
			i := instance(t, compile(t, c), host.Setup{})
			call := host.Call{Function: abi.Route, Request: []byte("bad")}
			if tt.call != nil {
				tt.call(&call)
			}
			r, err := i.Call(t.Context(), call)
			failure(t, err, tt.cause)
			if !strings.Contains(err.Error(), tt.detail) || strings.Contains(err.Error(), "\n") || r.Answer != nil {
				t.Errorf("%v; want %q", err, tt.detail)
			}
			c.Limits.Depth = 1000
			if r, err := i.Call(t.Context(), host.Call{Function: abi.Route, Request: []byte("then good")}); err != nil || string(r.Answer) != "ok" {
				t.Errorf("the next call: %q, %v", r.Answer, err)
			}
		})
	}
}

// TestFloods: loops round functions of the host end on the policy's own budget, and what they leave is bounded.
func TestFloods(t *testing.T) {
	lots := Op(0x41, 0x80, 0x80, 0x80, 0x0f) // 30 MiB
	tests := []struct {
		name, module, f string
		args            []byte
		reads           int32 // vectors in memory
	}{
		{"log", abi.HostModule, "log", slices.Concat(I32(1), I32(0), lots), 0},
		{"empty log", abi.HostModule, "log", slices.Concat(I32(1), I32(0), I32(0)), 0},
		{"tokens", abi.HostModule, "tokens", slices.Concat(I32(0), lots), 0},
		{"decide", abi.HostModule, "decide", slices.Concat(I32(0), I32(1<<20), I32(0), I32(0)), 0},
		{"kv_set", abi.HostModule, "kv_set", slices.Concat(I32(0), I32(1), I32(0), I32(1<<20), I32(0)), 0},
		{"prints", abi.WASIModule, "fd_write", slices.Concat(I32(1), I32(1<<16), I32(64), I32(8)), 64},
		{"prints nothing", abi.WASIModule, "fd_write", slices.Concat(I32(2), I32(0), I32(1024), I32(8)), 0},
		{"random", abi.WASIModule, "random_get", slices.Concat(I32(0), I32(1<<16)), 0},
		{"sleeps", abi.WASIModule, "poll_oneoff", slices.Concat(I32(0), I32(8192), I32(64), I32(8)), 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := function(t, tt.module, tt.f)
			params, results, _ := strings.Cut(f.Type, "->")
			m := &Module{}
			call := Call(m.Import(f.Module, f.Name, letters(params), letters(results)))
			if letters(results) != "" {
				call = append(call, 0x1a)
			}
			m.Memory(512, 512)
			m.Func(abi.Marker, "", "", "")
			m.Func(abi.Buffer, "i", "i", "", I32(bufferAt))
			for n := range tt.reads { // each of all memory
				m.Data(1<<16+8*n, []byte("\x00\x00\x00\x00\x00\x00\xe0\x01"))
			}
			m.Func(abi.Route, "ii", "l", "", Loop(tt.args, call, Op(0x0c, 0)), I64(0))
			c := config(t, m.Bytes(), allCapabilities()...)
			r, err := instance(t, compile(t, c), host.Setup{}).Call(t.Context(), host.Call{Function: abi.Route, Services: services()})
			failure(t, err, host.CauseBudget)
			bytes := 0
			for _, l := range r.Log {
				bytes += len(l.Text)
			}
			if bytes > abi.MaxLog || len(r.Log) > abi.MaxLog {
				t.Errorf("%d lines, %d bytes of log", len(r.Log), bytes)
			}
		})
	}
}

// TestNoOpinion: 0, and any answer of length 0, is an empty answer.
func TestNoOpinion(t *testing.T) {
	for _, body := range [][]byte{I64(0), packed(answerAt, 0), packed(pageEnd, 0)} {
		m := guest(&Module{})
		m.Func(abi.Route, "ii", "l", "", body)
		r, err := instance(t, compile(t, config(t, m.Bytes())), host.Setup{}).Call(t.Context(), mode(0))
		if err != nil || len(r.Answer) != 0 {
			t.Errorf("%q, %v", r.Answer, err)
		}
	}
}

// TestHostWorkIsCharged: bytes that the host moves cost units, so that a loop of calls ends in good time.
func TestHostWorkIsCharged(t *testing.T) {
	f := function(t, abi.HostModule, "text")
	i := instance(t, compile(t, config(t, probe(f, 1), abi.CapText)), host.Setup{})
	units := func(n uint64) int64 {
		_, _, r := asked(t, i, arguments([]uint64{0, 0, probeOut, n}, ""), host.Call{Text: func(abi.Part) string { return strings.Repeat("x", 1000) }})
		return r.Units
	}
	if a, b := units(0), units(900); b != a+900 {
		t.Errorf("%d units for nothing, %d for 900 bytes", a, b)
	}
	m := &Module{}
	random := m.Import(abi.WASIModule, "random_get", "ii", "i")
	guest(m).Func(abi.Route, "ii", "l", "", Loop(I32(0), I32(0xffff), Call(random), Op(0x1a, 0x0c, 0)), I64(0))
	c := config(t, m.Bytes())
	r, err := instance(t, compile(t, c), host.Setup{}).Call(t.Context(), mode(0))
	failure(t, err, host.CauseBudget)
	if r.Units < c.Limits.Units || r.Units > c.Limits.Units+1<<20 {
		t.Errorf("%d units", r.Units)
	}
}

// TestPanicOfServiceIsTheHosts: what breaks in the host is not the guest's fault, and harms nobody.
func TestPanicOfServiceIsTheHosts(t *testing.T) {
	i := instance(t, compile(t, config(t, probe(function(t, abi.HostModule, "metric"), 1), abi.CapMetric)), host.Setup{})
	var m map[string]float64
	c := host.Call{Function: abi.Route, Request: arguments([]uint64{0, 0}, ""), Services: host.Services{Metric: func(name string, v float64) { m[name] = v }}}
	_, err := i.Call(t.Context(), c)
	failure(t, err, host.CauseHost)
	c.Services = services()
	if _, err := i.Call(t.Context(), c); err != nil {
		t.Error(err)
	}
}

// TestCallRefuses: calls that cannot be made.
func TestCallRefuses(t *testing.T) {
	m := compile(t, config(t, say("{}")))
	i := instance(t, m, host.Setup{})
	for name, c := range map[string]host.Call{
		"not exported":   {Function: abi.Classify},
		"not a decision": {Function: abi.Buffer},
		"no function":    {},
		"large":          {Function: abi.Route, Request: make([]byte, abi.MaxRequest+1)},
	} {
		if r, err := i.Call(t.Context(), c); err == nil {
			t.Errorf("%s: %q", name, r.Answer)
		}
	}
	if !m.Exports(abi.Route) || m.Exports(abi.Classify) {
		t.Error("Exports is wrong")
	}
	other := instance(t, m, host.Setup{})
	for range 2 {
		if err := i.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if _, err := i.Call(t.Context(), host.Call{Function: abi.Route}); !errors.Is(err, host.ErrClosed) {
		t.Errorf("a call of a closed instance: %v", err)
	}
	if _, err := i.Clone(t.Context()); !errors.Is(err, host.ErrClosed) {
		t.Errorf("a clone of a closed instance: %v", err)
	}
	if _, err := other.Call(t.Context(), host.Call{Function: abi.Route}); err != nil {
		t.Errorf("closing one closed another: %v", err)
	}
	for range 2 {
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if _, err := other.Call(t.Context(), host.Call{Function: abi.Route}); !errors.Is(err, host.ErrClosed) {
		t.Errorf("a call of a closed module: %v", err)
	}
	if _, err := m.Instance(t.Context(), host.Setup{}); !errors.Is(err, host.ErrClosed) {
		t.Errorf("an instance of a closed module: %v", err)
	}
}

// TestServe: whoever waits for an answer has it before the guest's state goes back, and the next call finds it gone back.
func TestServe(t *testing.T) {
	i := instance(t, compile(t, config(t, counting())), host.Setup{})
	call := host.Call{Function: abi.Route, Request: []byte("{}")}
	for n := range 3 {
		answers := 0
		i.Serve(t.Context(), call, func(r host.Result, err error) {
			answers++
			if err != nil || string(r.Answer) != "\x01\x01" {
				t.Errorf("call %d answers %x, %v", n, r.Answer, err)
			}
			if _, err := i.Call(t.Context(), call); !errors.Is(err, host.ErrBusy) {
				t.Errorf("a call before the reset: %v", err)
			}
		})
		if answers != 1 {
			t.Errorf("%d answers", answers)
		}
	}
}
