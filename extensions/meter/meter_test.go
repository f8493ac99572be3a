package meter_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero/api"

	"onebit/extensions/meter"
	"onebit/extensions/module"
	"onebit/extensions/wasm"
	. "onebit/extensions/wasm/wasmtest"
)

// TestSemantics runs random modules plain and metered, in both engines: the same results, traps, memory and growth; and
// the same work counted, however it is sliced.
func TestSemantics(t *testing.T) {
	seeds := uint64(150)
	if testing.Short() {
		seeds = 30
	}
	calls, traps := 0, 0
	for seed := range seeds {
		b, params, _ := Random(seed)
		m := metered(t, b)
		plain := map[string]*guest{}
		counted := map[string]*guest{}
		for e := range engines {
			plain[e], counted[e] = start(t, e, b), start(t, e, m)
		}
		for f, letters := range params {
			name, args := fmt.Sprintf("f%d", f), arguments(letters, int(seed))
			used := int64(-1)
			for e := range engines {
				want := plain[e].call(t, name, 0, 0, args...)
				got := counted[e].call(t, name, plenty, 1000+int64(len(e)), args...)
				if used >= 0 && got.Used != used {
					t.Errorf("seed %d %s: %d units in the %s, %d in the other", seed, name, got.Used, e, used)
				}
				used, got.Used = got.Used, 0
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("seed %d, %s in the %s, plain and metered:\n%s", seed, name, e, diff)
				}
				calls++
				if want.Failure != "" {
					traps++
				}
			}
			if used < 1 {
				t.Errorf("seed %d %s: %d units", seed, name, used)
			}
		}
	}
	if traps == 0 || traps*2 > calls {
		t.Errorf("%d of %d calls trapped: the modules show little", traps, calls)
	}
}

// attacks are functions that a guest might be made of. Each is exported as "run".
var attacks = map[string]func(m *Module){
	"endless loop":            func(m *Module) { m.Func("run", "", "", "", Loop(With(wasm.OpBr, 0))) },
	"endless loop in a block": func(m *Module) { m.Func("run", "", "", "", Block(Loop(I32(1), With(wasm.OpBrIf, 0)))) },
	"br_table back":           func(m *Module) { m.Func("run", "", "", "", Loop(I32(0), Op(wasm.OpBrTable, 1, 0, 0))) },
	"recursion":               func(m *Module) { m.Func("run", "", "", "", Call(0)) },
	"indirect recursion":      func(m *Module) { m.Func("run", "", "", "", I32(0), Op(wasm.OpCallIndirect, 0, 0)); m.Table(0) },
	"fills": func(m *Module) {
		m.Func("run", "", "", "", Loop(I32(0), I32(0), I32(65536), Fill(), With(wasm.OpBr, 0)))
	},
	"copies": func(m *Module) {
		m.Func("run", "", "", "", Loop(I32(0), I32(1), I32(60000), Copy(), With(wasm.OpBr, 0)))
	},
	"growth by nothing": func(m *Module) {
		m.Func("run", "", "", "", Loop(I32(0), Op(wasm.OpMemoryGrow, 0, wasm.OpDrop), With(wasm.OpBr, 0)))
	},
	"growth to the end": func(m *Module) {
		m.Func("run", "", "", "", Loop(I32(1), Op(wasm.OpMemoryGrow, 0, wasm.OpDrop), With(wasm.OpBr, 0)))
	},
	"growth that is refused": func(m *Module) {
		m.Func("run", "", "", "", Loop(I32(-1), Op(wasm.OpMemoryGrow, 0, wasm.OpDrop), With(wasm.OpBr, 0)))
	},
	"table copies": func(m *Module) {
		m.Func("run", "", "", "", Loop(I32(0), I32(0), I32(1), Op(wasm.OpMisc, wasm.MiscTableCopy, 0, 0), With(wasm.OpBr, 0)))
		m.Table(0)
	},
	"2^44 calls without a loop": tower,
	"a loop with a result": func(m *Module) {
		m.Func("run", "", "i", "", Op(wasm.OpLoop, wasm.I32), I32(1), I32(1), With(wasm.OpBrIf, 0), Op(wasm.OpEnd))
	},
}

// tower makes 22 functions that each call the next four times.
func tower(m *Module) {
	for i := range uint32(22) {
		name := ""
		if i == 0 {
			name = "run"
		}
		m.Func(name, "", "", "", bytes4(Call(i+1)))
	}
	m.Func("", "", "", "")
}

func bytes4(b []byte) []byte { return slices.Concat(b, b, b, b) }

// TestAttacksEnd: each attack ends by a trap, within the budget but for one region, at the same count in both engines.
func TestAttacksEnd(t *testing.T) {
	for name, build := range attacks {
		t.Run(name, func(t *testing.T) {
			m := &Module{}
			m.Memory(1, 300)
			build(m)
			b := metered(t, m.Bytes())
			seen := map[string]outcome{}
			for e := range engines {
				g := start(t, e, b)
				g.slots = 10_000 // the interpreter has a ceiling of its own, of 2000 frames
				const units = 1_000_000
				first := g.call(t, "run", units, 10_000)
				if !strings.Contains(first.Failure, "unreachable") {
					t.Fatalf("%s: ended by %q", e, first.Failure)
				}
				deep := int64(g.ExportedGlobal(meter.Stack).Get()) < 0
				if !deep && (!g.budget.Exhausted() || first.Used < units || first.Used > units+2*65536) {
					t.Errorf("%s: %d of %d units used", e, first.Used, units)
				}
				if deep != strings.Contains(name, "recursion") {
					t.Errorf("%s: stack at its end: %v", e, deep)
				}
				if g.ticks < 10 && !deep && name != "growth to the end" && name != "fills" && name != "copies" {
					t.Errorf("%s: the host was visited %d times", e, g.ticks)
				}
				if !strings.HasPrefix(name, "growth") {
					if again := g.call(t, "run", units, 77_777); cmp.Diff(first, again) != "" {
						t.Errorf("%s: a second call differs: %+v, %+v", e, first, again)
					}
				}
				seen[e] = first
			}
			if diff := cmp.Diff(seen["interpreter"], seen["compiler"]); diff != "" {
				t.Errorf("the engines differ:\n%s", diff)
			}
		})
	}
}

// TestStartIsPaid: a start function runs on the budget of its instantiation.
func TestStartIsPaid(t *testing.T) {
	m := &Module{}
	m.Start(m.Func("", "", "", "", Loop(With(wasm.OpBr, 0))))
	b := metered(t, m.Bytes())
	for e := range engines {
		g, err := load(t, e, b, 500_000, 1000)
		if err == nil || !g.budget.Exhausted() {
			t.Errorf("%s: an endless start function ended with %v", e, err)
		}
	}
}

// TestFits: a call passes with exactly what it uses and fails with one unit less.
func TestFits(t *testing.T) {
	m := &Module{}
	m.Func("run", "", "i", "i", Times(0, 1000), I32(42))
	b := metered(t, m.Bytes())
	for e := range engines {
		g := start(t, e, b)
		used := g.call(t, "run", plenty, plenty).Used
		if used < 4000 || used > 10_000 {
			t.Fatalf("%s: %d units for 1000 rounds", e, used)
		}
		if o := g.call(t, "run", used, 100); o.Failure != "" || o.Results[0] != 42 {
			t.Errorf("%s: with %d units: %+v", e, used, o)
		}
		g.call(t, "run", used-1, 100)
		if g.budget.Within(int64(g.ExportedGlobal(meter.Units).Get())) {
			t.Errorf("%s: passed with one unit less", e)
		}
	}
}

// TestBulkIsPaidByLength compares a short and a long fill, and growth that happens with growth that does not.
func TestBulkIsPaidByLength(t *testing.T) {
	m := &Module{}
	m.Memory(1, 8)
	m.Func("fill", "i", "", "", I32(0), I32(1), Get(0), Fill())
	m.Func("grow", "i", "i", "", Get(0), Op(wasm.OpMemoryGrow, 0))
	b := metered(t, m.Bytes())
	for e := range engines {
		g := start(t, e, b)
		short, long := g.call(t, "fill", plenty, plenty, 1), g.call(t, "fill", plenty, plenty, 50_001)
		if long.Used-short.Used != 50_000 {
			t.Errorf("%s: 50000 bytes more cost %d units", e, long.Used-short.Used)
		}
		got, not := g.call(t, "grow", plenty, plenty, 2), g.call(t, "grow", plenty, plenty, 100)
		if got.Used-not.Used != 2*65536 || int32(got.Results[0]) != 1 || int32(not.Results[0]) != -1 {
			t.Errorf("%s: growth %+v, refused growth %+v", e, got, not)
		}
		if o := g.call(t, "fill", 1000, 1000, 1<<32-1); !g.budget.Exhausted() {
			t.Errorf("%s: a fill of 4 GiB: %+v", e, o)
		}
	}
}

// TestDepthIsWeighted: functions with many locals may nest less deep, and the stack is whole after a return.
func TestDepthIsWeighted(t *testing.T) {
	depth := func(e, locals string) uint64 {
		m := &Module{}
		count := m.Global('i', I32(0))
		up := slices.Concat(With(wasm.OpGlobalGet, count), I32(1), Op(0x6a), With(wasm.OpGlobalSet, count))
		m.Func("run", "", "", locals, up, Call(0))
		g := start(t, e, metered(t, m.Bytes()))
		g.slots = 15_000
		g.call(t, "run", plenty, plenty)
		return g.ExportedGlobal(meter.GlobalName(int(count))).Get()
	}
	for e := range engines {
		thin, thick := depth(e, ""), depth(e, strings.Repeat("l", 500))
		if thin < 1000 || thin > 1900 || thick < 20 || thick > 40 {
			t.Errorf("%s: %d thin frames, %d thick ones", e, thin, thick)
		}
	}
	m := &Module{}
	leaf := m.Func("", "", "", "")
	m.Func("run", "", "", "i", Times(0, 1000, Call(leaf)))
	g := start(t, "compiler", metered(t, m.Bytes()))
	g.call(t, "run", plenty, plenty)
	if left := int64(g.ExportedGlobal(meter.Stack).Get()); left != meter.StackSlots {
		t.Errorf("%d slots after the call", left)
	}
}

// TestIndicesDoNotReachAdditions: indices that are out of range before the rewrite stay refused, though the rewrite
// adds globals, functions and types behind the guest's own.
func TestIndicesDoNotReachAdditions(t *testing.T) {
	bodies := map[string][]byte{
		"global":  slices.Concat(I64(1<<60), With(wasm.OpGlobalSet, 0)),
		"call":    Call(1),
		"element": nil,
		"type":    slices.Concat(I32(0), Op(wasm.OpCallIndirect, 1, 0)),
	}
	for name, body := range bodies {
		m := &Module{}
		m.Func("run", "", "", "", body)
		m.Table(0)
		if name == "element" {
			m = &Module{}
			m.Func("run", "", "", "")
			m.Table(1)
		}
		out, err := meter.Rewrite(m.Bytes(), module.Default())
		if _, ok := errors.AsType[*module.RefusalError](err); !ok {
			t.Errorf("%s: %v, %d bytes", name, err, len(out))
		}
	}
}

// TestRewriteIsPure: equal bytes for equal bytes, the input unchanged, and reserved names refused the second time.
func TestRewriteIsPure(t *testing.T) {
	b, _, _ := Random(3)
	before := slices.Clone(b)
	one, two := metered(t, b), metered(t, b)
	if !slices.Equal(one, two) || !slices.Equal(b, before) {
		t.Error("the rewrite depends on more than its input, or changes it")
	}
	if _, err := meter.Rewrite(one, module.Default()); err == nil || !strings.Contains(err.Error(), meter.Module) {
		t.Errorf("a metered module was metered again: %v", err)
	}
}

// TestGrowthOfTheModule: a body that would grow too much is refused, not given to the compiler.
func TestGrowthOfTheModule(t *testing.T) {
	m := &Module{}
	m.Func("run", "", "", "", slices.Repeat(Call(0), 60_000))
	if _, err := meter.Rewrite(m.Bytes(), module.Default()); err == nil || !strings.Contains(err.Error(), "counting its work") {
		t.Errorf("got %v", err)
	}
}

// TestEmptyModule: the rewrite makes the sections that a module lacks.
func TestEmptyModule(t *testing.T) {
	for e := range engines {
		g := start(t, e, metered(t, []byte(wasm.Header)))
		if v := g.ExportedGlobal(meter.Stack); v == nil || v.Type() != api.ValueTypeI64 {
			t.Errorf("%s: no counter", e)
		}
	}
}

func TestBudget(t *testing.T) {
	b := meter.NewBudget(100, 30)
	if c := b.Begin(); c != 30 {
		t.Fatalf("began with %d", c)
	}
	for _, step := range []struct{ counter, next, used int64 }{
		{-5, 30, 35},    // a slice more, and what was overdrawn
		{-20, 15, 85},   // only 35 are left
		{-1, -1, 101},   // nothing is left
		{-50, -50, 150}, // a guest that goes on stays below zero
	} {
		if next := b.Tick(step.counter); next != step.next {
			t.Errorf("after %d: counter %d, not %d", step.counter, next, step.next)
		}
		if b.Exhausted() != (step.next < 0) {
			t.Errorf("after %d: exhausted %v", step.counter, b.Exhausted())
		}
		if b.Within(step.next) != (step.next >= 0) {
			t.Errorf("after %d: within the budget: %v", step.counter, b.Within(step.next))
		}
		if step.next < 0 && b.Used(step.next) != step.used {
			t.Errorf("after %d: %d used, not %d", step.counter, b.Used(step.next), step.used)
		}
	}
}
