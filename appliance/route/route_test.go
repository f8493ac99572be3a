package route_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"onebit/appliance/route"
	"onebit/extensions"
	"onebit/extensions/abi"
	"onebit/extensions/laya/built"
	"onebit/extensions/laya/scorer"
	"onebit/extensions/policy"
	"onebit/extensions/worker"
)

// TestMain is a worker's process too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == worker.Command {
		os.Exit(worker.Child(os.Args[2:], os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadPolicy(t *testing.T) {
	const good = `{"classes": {"code": {"device": "hrx"}}}`
	if b, err := route.ReadPolicy(write(t, "p.json", good)); err != nil || string(b) != good {
		t.Errorf("%s, %v", b, err)
	}
	folder := t.TempDir()
	for path, want := range map[string]string{
		filepath.Join(folder, "none.json"):       "none.json\": it cannot be read: no such file",
		folder:                                   "it cannot be read: is a directory",
		write(t, "a.json", "classes: {}"):        "it is not JSON",
		write(t, "b.json", `{"default": "hrx"}`): "it has neither classes nor rules",
		write(t, "c.json", `{"classes": {"x": {"device": "hrx"}}}`): `unknown class "x"`,
		write(t, "d.json", `{"classes": {"code": {}}}`):             "has no device",
		write(t, "e.json", strings.Repeat(" ", 100_000)):            "at most 65536",
	} {
		if _, err := route.ReadPolicy(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestFindSource(t *testing.T) {
	const name = "laya_typed_decisions_q8_0.gguf"
	file, daemon, nothing := write(t, "mine.gguf", ""), write(t, "ggmlc", ""), t.TempDir()
	inGGUF, inSelf := write(t, "gguf/"+name, ""), write(t, name, "")
	home := filepath.Dir(filepath.Dir(filepath.Dir(write(t, "data/1bit/laya/"+name, ""))))
	home = filepath.Dir(home)
	for _, tt := range []struct {
		name, option string
		env          map[string]string
		want         string // in words, or the error
	}{
		{"nothing", "", nil, "the built-in classifier"},
		{"a file", file, nil, "mine.gguf in a llama-server"},
		{"a file and a daemon", file, map[string]string{"ONEBIT_LAYA_GGML": daemon}, "mine.gguf in ggmlc on hrx"},
		{"and a device", file, map[string]string{"ONEBIT_LAYA_GGML": daemon, "ONEBIT_LAYA_DEVICE": "vulkan"}, "mine.gguf in ggmlc on vulkan"},
		{"a folder", filepath.Dir(filepath.Dir(inGGUF)), nil, name + " in a llama-server"},
		{"a folder itself", filepath.Dir(inSelf), nil, name + " in a llama-server"},
		{"by variable", "", map[string]string{"ONEBIT_LAYA_MODEL": file}, "mine.gguf in a llama-server"},
		{"the option wins", file, map[string]string{"ONEBIT_LAYA_MODEL": nothing}, "mine.gguf in a llama-server"},
		{"the usual folder", "", map[string]string{"XDG_DATA_HOME": filepath.Join(home, "data")}, name + " in a llama-server"},
		{"an empty usual folder", "", map[string]string{"XDG_DATA_HOME": nothing}, "the built-in classifier"},
		{"a server", "http://localhost:8100", nil, "the decision model at http://localhost:8100"},
		{"no file", filepath.Join(nothing, "x.gguf"), nil, "--laya-model: there is no file"},
		{"no model in a folder", nothing, nil, "--laya-model: there is no " + name},
		{"no model in the variable's", "", map[string]string{"ONEBIT_LAYA_MODEL": nothing}, "ONEBIT_LAYA_MODEL: there is no " + name},
		{"no daemon", file, map[string]string{"ONEBIT_LAYA_GGML": filepath.Join(nothing, "x")}, "ONEBIT_LAYA_GGML: there is no file"},
		{"an encoder", file, map[string]string{"ONEBIT_LAYA_DEVICE": "npu"}, "ONEBIT_LAYA_DEVICE=npu"},
		{"a wording", "", map[string]string{"ONEBIT_LAYA_CLASS_VARIANT": "2"}, "the built-in classifier"},
		{"no wording", "", map[string]string{"ONEBIT_LAYA_CLASS_VARIANT": "3"}, "there are the wordings 0 to 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			env := func(name string) string {
				if v, ok := tt.env[name]; ok || name != "XDG_DATA_HOME" {
					return v
				}
				return nothing
			}
			s, err := route.FindSource(tt.option, env)
			got := s.String()
			if err != nil {
				got = err.Error()
			}
			if !strings.HasPrefix(got, tt.want) && (err == nil || !strings.Contains(got, tt.want)) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if err == nil && s.Builtin() != (tt.want == "the built-in classifier") {
				t.Errorf("built in: %v", s.Builtin())
			}
			if tt.name == "a wording" && s.Wording != 2 {
				t.Errorf("wording %d", s.Wording)
			}
		})
	}
}

// fixed says one class.
type fixed struct {
	class string
	err   error
}

func (f fixed) Score(context.Context, string) (scorer.Answer, error) {
	return scorer.Answer{Class: f.class, Confidence: 0.4}, f.err
}

// start runs a router until the test ends.
func start(t *testing.T, file string, s scorer.Scorer) *route.Router {
	t.Helper()
	if _, err := policy.Module(); err != nil {
		t.Skip(err)
	}
	if _, err := built.Module(); err != nil {
		t.Skip(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, err := route.New(route.Config{Program: []string{self, worker.Command}, Dir: t.TempDir(), Policy: []byte(file), Scorer: s, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		group.Wait()
	})
	return r
}

func ask(r *route.Router, says string) extensions.Outcome {
	var from []abi.Candidate
	for _, d := range []string{"vulkan", "hrx", "cpu"} {
		from = append(from, abi.Candidate{ID: d, Device: d, Model: "m", Healthy: true})
	}
	return r.Decide(context.Background(), extensions.Input{Model: "auto", Body: fmt.Appendf(nil, `{"messages":[{"role":"user","content":%q}]}`, says), Candidates: from})
}

func TestRouter(t *testing.T) {
	const file = `{"classes": {"code": {"device": "cpu"}}, "min_confidence": 0.3, "default": "vulkan"}`
	t.Run("built in", func(t *testing.T) {
		r := start(t, "", nil)
		if o := ask(r, "write a python function that checks if a string is a palindrome"); o.Class != "code" || o.Candidate != "hrx" || !r.Decides() {
			t.Errorf("%+v", o)
		}
	})
	t.Run("a policy", func(t *testing.T) {
		r := start(t, file, nil)
		first := ask(r, "write a python function that checks if a string is a palindrome")
		if first.Class != "code" || first.Candidate != "cpu" || first.Kept {
			t.Errorf("%+v", first)
		}
		if o := ask(r, "write a python function that checks if a string is a palindrome"); !o.Kept || o.Candidate != "cpu" {
			t.Errorf("%+v", o)
		}
		if o := ask(r, "what is the capital of Portugal"); o.Candidate != "vulkan" {
			t.Errorf("%+v", o)
		}
	})
	t.Run("a scorer", func(t *testing.T) {
		if o := ask(start(t, file, fixed{class: "code"}), "hello"); o.Class != "code" || o.Confidence != 0.4 || o.Candidate != "cpu" {
			t.Errorf("%+v", o)
		}
	})
	t.Run("a scorer that fails", func(t *testing.T) {
		if o := ask(start(t, file, fixed{err: context.DeadlineExceeded}), "hello"); o.Class != "" || o.Candidate != "vulkan" || !strings.Contains(o.Why, "unclassified") {
			t.Errorf("%+v", o)
		}
	})
	t.Run("a scorer without an opinion", func(t *testing.T) {
		if o := ask(start(t, file, fixed{err: scorer.ErrNoOpinion}), "hello"); o.Candidate != "vulkan" || strings.Contains(o.Why, "unclassified") {
			t.Errorf("%+v", o)
		}
	})
}

// TestRouterDoesNotStart: a policy that the module refuses is an error, not another policy.
func TestRouterDoesNotStart(t *testing.T) {
	if _, err := policy.Module(); err != nil {
		t.Skip(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, err := route.New(route.Config{Program: []string{self, worker.Command}, Dir: t.TempDir(), Policy: []byte(`{"classes": {"poem": 1}}`), Scorer: fixed{}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(t.Context()); err == nil || !strings.Contains(err.Error(), `unknown class "poem"`) {
		t.Errorf("%v", err)
	}
}
