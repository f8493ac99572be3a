package recipe_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onebit/engine"
	"onebit/engine/recipe"
)

func builtin(t *testing.T) *recipe.Set {
	t.Helper()
	s, err := recipe.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// line is the beginning of every command line of a llama-server.
func line(more ...string) []string {
	return append(strings.Fields("-m M --host 127.0.0.1 --port 1 --device Vulkan0 -ngl 99 --jinja"), more...)
}

func TestBuiltinApplies(t *testing.T) {
	dflash := line("--spec-type", "draft-dflash", "-md", "D", "-ngld", "99", "--spec-draft-n-max", "7")
	for _, c := range []struct {
		name string
		q    recipe.Query
		args []string
		want recipe.Result
	}{
		{"plain", recipe.Query{Device: engine.Vulkan, Architecture: "qwen3"}, line(), recipe.Result{}},
		{"rotated-moe", recipe.Query{Device: engine.ROCm, Architecture: "qwen3moe", Hadamard: true, MoE: true}, line(),
			recipe.Result{Args: []string{"-ub", "1024"}, Applied: []string{"recipe rotated-moe-ub1024: -ub 1024"}}},
		{"rotated-dense", recipe.Query{Device: engine.ROCm, Architecture: "qwen35", Hadamard: true}, line(), recipe.Result{}},
		{"rotated-moe-on-hrx", recipe.Query{Device: engine.HRX, Architecture: "qwen3moe", Hadamard: true, MoE: true}, line(), recipe.Result{}},
		{"rotated-moe-with-a-projector", recipe.Query{Device: engine.ROCm, Hadamard: true, MoE: true},
			line("--mmproj", "F", "-b", "4096", "-ub", "4096"), recipe.Result{}},
		{"dflash-on-rocm", recipe.Query{Device: engine.ROCm, Drafter: recipe.DFlash}, dflash,
			recipe.Result{Args: []string{"--spec-draft-p-min", "0.4"}, Applied: []string{"recipe rocm-dflash-p-min-0.4: --spec-draft-p-min 0.4"}}},
		{"dflash-on-vulkan", recipe.Query{Device: engine.Vulkan, Drafter: recipe.DFlash}, dflash,
			recipe.Result{Args: []string{"--spec-draft-p-min", "0"}, Applied: []string{"recipe dflash-p-min-0: --spec-draft-p-min 0"}}},
		{"dflash-with-a-given-p-min", recipe.Query{Device: engine.ROCm, Drafter: recipe.DFlash},
			append(slices.Clone(dflash), "--spec-draft-p-min", "0.7"), recipe.Result{}},
		{"rotated-moe-with-dflash", recipe.Query{Device: engine.ROCm, Drafter: recipe.DFlash, Hadamard: true, MoE: true}, dflash,
			recipe.Result{Args: []string{"-ub", "1024", "--spec-draft-p-min", "0.4"},
				Applied: []string{"recipe rotated-moe-ub1024: -ub 1024", "recipe rocm-dflash-p-min-0.4: --spec-draft-p-min 0.4"}}},
		{"flash-next", recipe.Query{Device: engine.Vulkan, Architecture: "qwen4exp", MoE: true, Drafter: recipe.MTP}, line(),
			recipe.Result{Args: []string{"-lm", "mmap", "-lzm", "on"}, Applied: []string{"recipe flash-next-mmap: -lm mmap -lzm on"}}},
		{"flash-next-with-moe-slots", recipe.Query{Device: engine.Vulkan, Architecture: "qwen4exp", MoE: true},
			line("-ot", "exps=CPU,per_layer_token_embd=CPU", "--no-host", "--no-repack", "--load-mode", "mmap"),
			recipe.Result{Args: []string{"-lzm", "on"}, Applied: []string{"recipe flash-next-mmap: -lzm on"}}},
		{"cpu-takes-none", recipe.Query{Device: engine.CPU, Drafter: recipe.DFlash}, dflash, recipe.Result{}},
		{"a-side-server-takes-none", recipe.Query{Device: engine.ROCm, Hadamard: true, MoE: true, Side: true, Role: recipe.Embedding}, line(), recipe.Result{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := slices.Clone(c.args)
			got := builtin(t).Apply(c.q, c.args, nil)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if !slices.Equal(before, c.args) {
				t.Errorf("the command line was changed to %q", c.args)
			}
		})
	}
}

func TestBuiltinWarns(t *testing.T) {
	for _, c := range []struct {
		name string
		q    recipe.Query
		want []string // ids
	}{
		{"jina-reranker-beside-the-model", recipe.Query{Device: engine.HRX, Architecture: "jina-bert-v2", Role: recipe.Reranking, Side: true}, []string{"jina-reranker-v1-hrx"}},
		{"jina-reranker-itself", recipe.Query{Device: engine.HRX, Architecture: "jina-bert-v2", Role: recipe.Reranking}, []string{"jina-reranker-v1-hrx"}},
		{"jina-reranker-on-vulkan", recipe.Query{Device: engine.Vulkan, Architecture: "jina-bert-v2", Role: recipe.Reranking}, nil},
		{"jina-embeddings-on-hrx", recipe.Query{Device: engine.HRX, Architecture: "jina-bert-v2", Role: recipe.Embedding}, nil},
		{"mtp-on-hrx", recipe.Query{Device: engine.HRX, Drafter: recipe.MTP}, []string{"drafting-on-hrx"}},
		{"mtp-on-vulkan", recipe.Query{Device: engine.Vulkan, Drafter: recipe.MTP, Parallel: 1}, nil},
		{"mtp-and-slots", recipe.Query{Device: engine.Vulkan, Drafter: recipe.MTP, Parallel: 4}, []string{"mtp-and-slots"}},
		{"15-slots-on-vulkan", recipe.Query{Device: engine.Vulkan, Parallel: 15}, nil},
		{"16-slots-on-vulkan", recipe.Query{Device: engine.Vulkan, Parallel: 16}, []string{"many-slots-on-vulkan"}},
		{"16-slots-on-rocm", recipe.Query{Device: engine.ROCm, Parallel: 16}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := builtin(t).Apply(c.q, line(), nil)
			var ids []string
			for _, w := range got.Warnings {
				id, text, _ := strings.Cut(strings.TrimPrefix(w, "recipe "), ": ")
				ids = append(ids, id)
				if text == "" {
					t.Errorf("the warning %q says nothing", w)
				}
			}
			if diff := cmp.Diff(c.want, ids); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if len(got.Args)+len(got.Env)+len(got.Applied) > 0 {
				t.Errorf("a warning added something: %+v", got)
			}
		})
	}
}

// Every built-in recipe says whose figures it rests on.
func TestBuiltinHasSources(t *testing.T) {
	for _, r := range builtin(t).All() {
		if r.Source == "" || r.Why == "" || !strings.Contains(r.Source, "not measured by us") {
			t.Errorf("recipe %q: why %q, source %q", r.ID, r.Why, r.Source)
		}
	}
}

func parse(t *testing.T, text string) *recipe.Set {
	t.Helper()
	s, err := recipe.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// One flag stays one flag in whatever spelling, on the command line and among recipes.
func TestSpellings(t *testing.T) {
	for _, c := range []struct{ name, there, adds, want string }{
		{"short-then-long", "-ub 512", "--ubatch-size 1024", ""},
		{"long-then-short", "--ubatch-size 512", "-ub 1024", ""},
		{"batch-is-not-ubatch", "-b 512", "-ub 1024", "-ub 1024"},
		{"ctx-size", "--ctx-size 1", "-c 2", ""},
		{"flash-attn", "-fa on", "--flash-attn off", ""},
		{"gpu-layers", "-ngl 99", "--n-gpu-layers 1 --gpu-layers 2", ""},
		{"parallel", "-np 4", "--parallel 8", ""},
		{"draft-model", "-md D", "--spec-draft-model E", ""},
		{"draft-layers", "-ngld 99", "--spec-draft-ngl 0", ""},
		{"p-min", "--draft-p-min 0", "--spec-draft-p-min 1", ""},
		{"load-mode", "--load-mode mmap", "-lm none", ""},
		{"load-mode-of-older-servers", "--no-mmap", "-lm mmap", ""},
		{"lazy-mode", "--lazy-mode off", "-lzm on", ""},
		{"switched-off", "--no-kv-unified", "-kvu", ""},
		{"tensors", "-ot a=CPU", "--override-tensor b=CPU", ""},
		{"case-counts", "-c 1", "-C ff", "-C ff"},
		{"negative-values", "--seed -1", "-s -2", ""},
		{"a-value-is-no-flag", "--alias x", "--temp -0.5 -n -1", "--temp -0.5 -n -1"},
		{"one-of-two", "-fa on", "-fa off -ub 1024", "-ub 1024"},
		{"unknown-flags", "--new-flag 1", "--new-flag 2 --newer-flag a b", "--newer-flag a b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := withArgs(t, strings.Fields(c.adds)).Apply(recipe.Query{Device: engine.Vulkan}, strings.Fields(c.there), nil)
			if s := strings.Join(got.Args, " "); s != c.want {
				t.Errorf("with %q, a recipe of %q added %q, want %q", c.there, c.adds, s, c.want)
			}
			if (len(got.Applied) > 0) != (c.want != "") {
				t.Errorf("printed %q", got.Applied)
			}
		})
	}
}

// withArgs is a set with one recipe for each flag.
func withArgs(t *testing.T, args []string) *recipe.Set {
	t.Helper()
	number := regexp.MustCompile(`^-[0-9.]`)
	var list []string
	for _, a := range args {
		if strings.HasPrefix(a, "-") && !number.MatchString(a) {
			list = append(list, fmt.Sprintf(`{"id":"%d","measured":"m","args":[%q`, len(list), a))
		} else {
			list[len(list)-1] += fmt.Sprintf(",%q", a)
		}
	}
	return parse(t, `{"recipes":[`+strings.Join(list, "]},")+`]}]}`)
}

func TestFirstRecipeWins(t *testing.T) {
	s := parse(t, `{"recipes":[
		{"id":"one","measured":"m","args":["-ub","1"],"env":{"A":"1","B":"1"}},
		{"id":"two","measured":"m","args":["--ubatch-size","2","-b","2"],"env":{"B":"2","C":"2"}},
		{"id":"three","measured":"m","args":["-b","3"],"env":{"C":"3"}}]}`)
	got := s.Apply(recipe.Query{Device: engine.HRX}, nil, []string{"A=mine", "PATH=/bin"})
	want := recipe.Result{
		Args:    []string{"-ub", "1", "-b", "2"},
		Env:     []string{"B=1", "C=2"},
		Applied: []string{"recipe one: -ub 1 B=1", "recipe two: -b 2 C=2"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// A variable that is set to nothing is set.
func TestEmptyVariable(t *testing.T) {
	s := parse(t, `{"recipes":[{"id":"one","measured":"m","env":{"A":"1"}}]}`)
	if got := s.Apply(recipe.Query{Device: engine.HRX}, nil, []string{"A="}); len(got.Env)+len(got.Applied) > 0 {
		t.Errorf("added %v", got)
	}
}

func TestNoRecipes(t *testing.T) {
	var s *recipe.Set
	if diff := cmp.Diff(recipe.Result{}, s.Apply(recipe.Query{Device: engine.ROCm, Drafter: recipe.DFlash}, nil, nil)); diff != "" {
		t.Error(diff)
	}
	if got := s.All(); len(got) != 0 {
		t.Errorf("a nil set holds %v", got)
	}
}

func TestMatch(t *testing.T) {
	q := recipe.Query{Device: engine.Vulkan, Architecture: "qwen3moe", Drafter: recipe.MTP, MoE: true, Parallel: 4}
	for _, c := range []struct {
		match string
		want  bool
	}{
		{`{}`, true},
		{`{"device":["hrx","vulkan"]}`, true},
		{`{"device":["hrx"]}`, false},
		{`{"architecture":["qwen3moe"]}`, true},
		{`{"architecture":["qwen3"]}`, false},
		{`{"drafter":["mtp"]}`, true},
		{`{"drafter":["none","dflash"]}`, false},
		{`{"role":["chat"]}`, true},
		{`{"role":["embedding"]}`, false},
		{`{"moe":true}`, true},
		{`{"moe":false}`, false},
		{`{"hadamard_q4_0":false}`, true},
		{`{"hadamard_q4_0":true}`, false},
		{`{"min_parallel":4}`, true},
		{`{"min_parallel":5}`, false},
		{`{"device":["vulkan"],"architecture":["qwen3moe"],"drafter":["mtp"],"moe":true,"hadamard_q4_0":false}`, true},
		{`{"device":["vulkan"],"architecture":["qwen3moe"],"drafter":["mtp"],"moe":true,"hadamard_q4_0":true}`, false},
	} {
		s := parse(t, `{"recipes":[{"id":"one","measured":"m","args":["-x"],"match":`+c.match+`}]}`)
		if got := len(s.Apply(q, nil, nil).Args) > 0; got != c.want {
			t.Errorf("%s matched: %v", c.match, got)
		}
	}
}
