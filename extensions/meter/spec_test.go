package meter_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"onebit/extensions/meter"
	"onebit/extensions/module"
)

// specification finds the core tests of WebAssembly 2.0, which wazero's module carries.
func specification(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/tetratelabs/wazero").Output()
	dir := filepath.Join(strings.TrimSpace(string(out)), "internal", "integration_test", "spectest")
	if _, stat := os.Stat(dir); err != nil || stat != nil {
		t.Fatalf("the specification's tests are not in the module cache (go mod download brings them): %v, %v", err, stat)
	}
	return dir
}

// command is one step of a test script.
type command struct {
	Type, Filename, Name string
	Line                 int
	Action               struct {
		Type, Field, Module string
		Args                []value
	}
}

type value struct {
	Type     string          `json:"type"`
	LaneType string          `json:"lane_type"`
	Value    json.RawMessage `json:"value"`
}

// bits returns the value as the engine takes it: one word, or two for a vector.
func (v value) bits(t *testing.T) []uint64 {
	t.Helper()
	var one string
	if v.Type != "v128" {
		if err := json.Unmarshal(v.Value, &one); err != nil {
			t.Fatal(err)
		}
		return []uint64{number(t, one)}
	}
	var lanes []string
	if err := json.Unmarshal(v.Value, &lanes); err != nil {
		t.Fatal(err)
	}
	words := make([]uint64, 2)
	width := 128 / len(lanes)
	for i, lane := range lanes {
		n := number(t, lane)
		if width < 64 {
			n &= 1<<width - 1
		}
		words[i*width/64] |= n << (i * width % 64)
	}
	return words
}

func number(t *testing.T, s string) uint64 {
	t.Helper()
	if strings.HasPrefix(s, "nan") {
		return 0x7ff8000000000000
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// stage is one side of the comparison: a runtime, and the instances of one script.
type stage struct {
	r     wazero.Runtime
	last  api.Module
	named map[string]api.Module
}

func newStage(t *testing.T, config wazero.RuntimeConfig, dir string) *stage {
	t.Helper()
	ctx := t.Context()
	s := &stage{r: wazero.NewRuntimeWithConfig(ctx, config), named: map[string]api.Module{}}
	t.Cleanup(func() { s.r.Close(context.Background()) })
	i64 := []api.ValueType{api.ValueTypeI64}
	tick := func(_ context.Context, _ api.Module, stack []uint64) { stack[0] = plenty }
	if _, err := s.r.NewHostModuleBuilder(meter.Module).NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(tick), i64, i64).Export(meter.Tick).Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "testdata", "spectest.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.r.InstantiateWithConfig(ctx, b, wazero.NewModuleConfig().WithName("spectest")); err != nil {
		t.Fatal(err)
	}
	return s
}

// load makes a module the current one, or none when it fails.
func (s *stage) load(t *testing.T, b []byte, name string) string {
	m, err := s.r.InstantiateWithConfig(t.Context(), b, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	s.last = nil
	if err == nil {
		s.last = m
	}
	if name != "" {
		s.named[name] = s.last
	}
	return failure(err)
}

func failure(err error) string {
	if err == nil {
		return ""
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	return first
}

func (s *stage) invoke(t *testing.T, c command, args []uint64) ([]uint64, string) {
	m := s.last
	if c.Action.Module != "" {
		m = s.named[c.Action.Module]
	}
	if m == nil {
		return nil, noModule
	}
	if g := m.ExportedGlobal(meter.Stack); g != nil {
		g.(api.MutableGlobal).Set(meter.StackSlots)
	}
	f := m.ExportedFunction(c.Action.Field)
	if f == nil {
		t.Errorf("line %d: no function %s", c.Line, c.Action.Field)
		return nil, noModule
	}
	results, err := f.Call(t.Context(), args...)
	return results, failure(err)
}

// noModule is a call whose module could not be made, on either side.
const noModule = "no module"

// script plays one file on both stages.
type script struct {
	plain, metered              *stage
	calls, modules, out, closed int // closed: modules outside the profile; out: calls that need one
	skip                        map[string]bool
}

func (s *script) play(t *testing.T, dir string, c command) {
	switch c.Type {
	case "module", "assert_uninstantiable":
		s.module(t, dir, c)
	case "assert_invalid", "assert_malformed":
		if filepath.Ext(c.Filename) != ".wasm" {
			return // text
		}
		b, err := os.ReadFile(filepath.Join(dir, c.Filename))
		if err != nil {
			t.Fatal(err)
		}
		out, err := meter.Rewrite(b, module.Default())
		if err != nil {
			return
		}
		if _, plain := s.plain.r.CompileModule(t.Context(), b); plain == nil {
			return // the engine is milder than the specification here
		}
		if compiled, err := s.metered.r.CompileModule(t.Context(), out); err == nil {
			t.Errorf("line %d: invalid before the rewrite, valid after: %v", c.Line, compiled)
		}
	case "action", "assert_return", "assert_trap", "assert_exhaustion":
		s.call(t, c)
	}
}

func (s *script) module(t *testing.T, dir string, c command) {
	b, err := os.ReadFile(filepath.Join(dir, c.Filename))
	if err != nil {
		t.Fatal(err)
	}
	out, err := meter.Rewrite(b, module.Default())
	s.skip[c.Name], s.skip[""] = err != nil, err != nil
	if err != nil {
		s.closed++
		return
	}
	s.modules++
	want, got := s.plain.load(t, b, c.Name), s.metered.load(t, out, c.Name)
	if want != got && (want == "") != (got == "") {
		t.Errorf("line %d: plain: %q; metered: %q", c.Line, want, got)
	}
}

func (s *script) call(t *testing.T, c command) {
	if s.skip[c.Action.Module] || c.Action.Type != "invoke" {
		s.out++
		return
	}
	var args []uint64
	for _, a := range c.Action.Args {
		if strings.HasSuffix(a.Type, "ref") {
			return
		}
		args = append(args, a.bits(t)...)
	}
	want, why := s.plain.invoke(t, c, args)
	got, why2 := s.metered.invoke(t, c, args)
	if c.Type == "assert_exhaustion" && why != "" && why2 != "" {
		return // the count ends it before the engine does
	}
	if why != why2 || !slices.Equal(want, got) {
		t.Errorf("line %d, %s: plain %v %q, metered %v %q", c.Line, c.Action.Field, want, why, got, why2)
	}
	if why != noModule {
		s.calls++
	}
}

// TestSpecification plays the core tests on plain and metered modules: each call gives the same, and no invalid module
// becomes valid. Modules outside the profile are refused, and counted.
func TestSpecification(t *testing.T) {
	dir := specification(t)
	files, err := filepath.Glob(filepath.Join(dir, "v2", "testdata", "*.json"))
	if err != nil || len(files) < 100 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	var calls, modules, closed, out int
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var all struct{ Commands []command }
			if err := json.Unmarshal(b, &all); err != nil {
				t.Fatal(err)
			}
			config := func() wazero.RuntimeConfig {
				return wazero.NewRuntimeConfigCompiler().WithCoreFeatures(api.CoreFeaturesV2).WithMemoryLimitPages(module.Default().Pages)
			}
			s := &script{plain: newStage(t, config(), dir), metered: newStage(t, config(), dir), skip: map[string]bool{}}
			for _, c := range all.Commands {
				s.play(t, filepath.Dir(file), c)
			}
			calls, modules, closed, out = calls+s.calls, modules+s.modules, closed+s.closed, out+s.out
		})
	}
	summary := fmt.Sprintf("%d calls of %d modules; %d modules outside the profile, %d calls of them", calls, modules, closed, out)
	t.Log(summary)
	if calls < 40_000 {
		t.Errorf("too little was compared: %s", summary)
	}
}
