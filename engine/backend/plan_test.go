package backend_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onebit/engine"
	"onebit/engine/backend"
	"onebit/engine/recipe"
)

var update = flag.Bool("update", false, "write what is planned to the golden files")

// planCase is one command line on one machine.
type planCase struct {
	name    string // also the golden file's; what begins with "no " is a refusal
	box     map[string]string
	environ []string
	options backend.Options // paths begin with DIR
}

type options = backend.Options

// planOptions puts the box's folder into the paths of options.
func planOptions(b *box, o options) options {
	for _, s := range []*string{&o.Model, &o.LlamaServer, &o.Zinc, &o.DS4, &o.MLXServer, &o.NPU, &o.LibHSA, &o.MTP, &o.DFlash, &o.Mmproj, &o.LongModel, &o.Embed, &o.Rerank, &o.Recipes} {
		*s = b.path(*s)
	}
	return o
}

// runPlans holds cases to the golden files below testdata/plan/FOLDER.
func runPlans(t *testing.T, folder string, cases []planCase) {
	dir := filepath.Join("testdata", "plan", folder)
	seen, m := []string{}, models(t)
	for _, c := range cases {
		file := strings.ReplaceAll(c.name, " ", "-") + ".txt"
		if slices.Contains(seen, file) {
			t.Fatalf("two cases are called %q", c.name)
		}
		seen = append(seen, file)
		t.Run(c.name, func(t *testing.T) {
			b := newBox(t, m, c.box, slices.Clone(c.environ)...)
			p, err := backend.NewPlan(t.Context(), b.machine, planOptions(b, c.options))
			if refused := strings.HasPrefix(c.name, "no "); refused != (err != nil) {
				t.Fatalf("error %v", err)
			}
			golden(t, filepath.Join(dir, file), b.dump(p, err))
		})
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains(seen, e.Name()) {
			t.Errorf("the golden file %s belongs to no case", e.Name())
		}
	}
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got)\n%s", path, diff)
	}
}

const (
	plain = "DIR/m/plain.gguf"
	delta = "DIR/m/delta.gguf"
	h32   = "DIR/m/h32.gguf"
	mixed = "DIR/m/moe.gguf"
)

// TestPlanRoutes has a row for each of section 2: from model to route, file stamps, and --device auto.
func TestPlanRoutes(t *testing.T) {
	var types, forks []planCase
	for _, n := range []string{"128", "129", "141", "142", "143"} {
		types = append(types, planCase{name: "file type " + n, box: strix, options: options{Model: "DIR/m/type" + n + ".gguf"}})
	}
	for _, a := range []string{"zaya", "opt", "codegen", "gptneo", "gptj"} {
		forks = append(forks, planCase{name: a + " on vulkan", box: strix, options: options{Model: "DIR/m/" + a + ".gguf", Device: engine.Vulkan}})
	}
	runPlans(t, "routes", slices.Concat(types, forks, []planCase{
		{name: "npu directory auto", box: strix, options: options{Model: "DIR/m/npu"}},
		{name: "npu directory npu", box: strix, options: options{Model: "DIR/m/npu/", Device: engine.NPU}},
		{name: "npu private with add-on", box: strix, environ: nil, options: options{Model: "DIR/m/npu35", NPU: "DIR/m/addon"}},
		{name: "gguf auto hrx", box: strix, options: options{Model: plain}},
		{name: "gguf hrx", box: strix, options: options{Model: plain, Device: engine.HRX}},
		{name: "gguf vulkan", box: strix, options: options{Model: plain, Device: engine.Vulkan}},
		{name: "gguf vulkan by the hrx build", box: map[string]string{"lib/1bit/hrx/llama-server": "HRX0 Vulkan0"}, options: options{Model: plain, Device: engine.Vulkan}},
		{name: "gguf cpu", box: strix, options: options{Model: plain, Device: engine.CPU}},
		{name: "gguf cpu by llama-server", box: modest, options: options{Model: plain, Device: engine.CPU, LlamaServer: "llama-server"}},
		{name: "gguf prefill split", box: strix, options: options{Model: plain, Device: engine.Vulkan, PrefillDevice: "hrx"}},
		{name: "lean auto", box: strix, options: options{Model: plain, Lean: true}},
		{name: "lean vulkan", box: strix, options: options{Model: plain, Device: engine.Vulkan, Lean: true}},
		{name: "gguf rocm", box: strix, options: options{Model: plain, Device: engine.ROCm}},
		{name: "gguf zinc", box: strix, options: options{Model: plain, Device: engine.Zinc}},
		{name: "gguf ds4", box: strix, options: options{Model: plain, Device: engine.DS4}},
		{name: "mlx id", box: strix, options: options{Model: "mlx-community/Qwen3-0.6B-4bit", Device: engine.MLX}},
		{name: "onnx directory auto", box: strix, options: options{Model: "DIR/m/onnx"}},
		{name: "onnx directory onnx", box: strix, options: options{Model: "DIR/m/onnx", Device: engine.ONNX}},
		{name: "h32 auto", box: strix, options: options{Model: h32}},
		{name: "h32 rocm", box: strix, options: options{Model: h32, Device: engine.ROCm}},
		{name: "h32 hrx", box: strix, options: options{Model: h32, Device: engine.HRX}},
		{name: "h32 with the variable set", box: strix, environ: []string{"GGML_W4A4_TENSORS=ffn"}, options: options{Model: h32}},
		{name: "another rotation is no h32", box: strix, options: options{Model: "DIR/m/h64.gguf"}},
		{name: "prism auto", box: strix, options: options{Model: "DIR/m/prism.gguf"}},
		{name: "ternary hrx", box: strix, options: options{Model: "DIR/m/ternary.gguf"}},
		{name: "ternary vulkan", box: strix, options: options{Model: "DIR/m/ternary.gguf", Device: engine.Vulkan}},
		{name: "container auto", box: strix, options: options{Model: "DIR/m/star.1bp"}},
		{name: "container named gguf", box: strix, options: options{Model: "DIR/m/star.gguf"}},
		{name: "auto mtp", box: strix, options: options{Model: plain, MTP: "DIR/m/mtp.gguf"}},
		{name: "auto mtp without vulkan", box: hrxOnly, options: options{Model: plain, MTP: "DIR/m/mtp.gguf"}},
		{name: "auto mmproj", box: strix, options: options{Model: plain, Mmproj: "DIR/m/mmproj.gguf"}},
		{name: "auto moe-slots", box: strix, options: options{Model: mixed, MoESlots: 64}},
		{name: "auto beyond hrx", box: strix, options: options{Model: "DIR/m/kimi-k3.gguf"}},
		{name: "auto delta net", box: strix, options: options{Model: delta}},
		{name: "auto delta net parallel", box: strix, options: options{Model: delta, Parallel: 4}},
		{name: "auto delta net parallel without vulkan", box: hrxOnly, options: options{Model: delta, Parallel: 4}},
		{name: "auto vulkan", box: graphics, options: options{Model: plain}},
		{name: "auto bare", box: bare, options: options{Model: plain, Alias: "q", Context: 2048, Parallel: 2}},
		{name: "auto without a GPU", box: modest, options: options{Model: plain}},
		{name: "auto without a GPU by llama-server", box: bare, environ: nil, options: options{Model: "DIR/m/mamba.gguf", LlamaServer: "DIR/m/tool"}},
		{name: "auto broken llama-server", box: map[string]string{"path/llama-server": "broken"}, options: options{Model: plain}},
		{name: "vulkan broken llama-server", box: map[string]string{"path/llama-server": "broken"}, options: options{Model: plain, Device: engine.Vulkan}},
		{name: "empty file", box: bare, options: options{Model: "DIR/m/empty.gguf"}},
		{name: "damaged file", box: strix, options: options{Model: "DIR/m/damaged.gguf"}},
		{name: "gguf by its first bytes", box: bare, options: options{Model: "DIR/m/unnamed"}},
		{name: "auto in words", box: bare, options: options{Model: plain, Device: engine.Auto, Role: recipe.Chat}},
	}))
}

// TestPlanPrograms has a row for each of section 3: the option, this build's copy, the variable, PATH.
func TestPlanPrograms(t *testing.T) {
	var cases []planCase
	for _, d := range []struct {
		device   engine.Device
		model    string
		build    string // folder and file
		variable string
		option   options
	}{
		{engine.Vulkan, plain, "vulkan/llama-server", "ONEBIT_LLAMA_SERVER", options{LlamaServer: "DIR/own"}},
		{engine.HRX, plain, "hrx/llama-server", "ONEBIT_LLAMA_SERVER", options{LlamaServer: "DIR/own"}},
		{engine.ROCm, plain, "rocm/llama-server", "ONEBIT_LEAN_SERVER", options{LlamaServer: "DIR/own"}},
		{engine.Zinc, plain, "zinc/zinc", "ONEBIT_ZINC", options{Zinc: "DIR/own"}},
		{engine.DS4, plain, "ds4/ds4-server", "ONEBIT_DS4", options{DS4: "DIR/own"}},
		{engine.MLX, "a/b", "mlx/lemon-mlx-server", "LEMONADE_MLX_SERVER", options{MLXServer: "DIR/own"}},
		{engine.NPU, "DIR/m/npu", "npu/1bit-npu-server", "ONEBIT_NPU", options{NPU: "DIR/own"}},
		{engine.ONNX, "DIR/m/onnx", "onnx/ryzenai-server", "ONEBIT_ONNX_SERVER", options{}},
	} {
		const all = "HRX0 Vulkan0 ROCm0 qwen3"
		here := map[string]string{"own": all, "named": all, "lib/1bit/" + d.build: all, "path/" + filepath.Base(d.build): all}
		without := func(key string) map[string]string {
			left := map[string]string{}
			for k, v := range here {
				if k != key {
					left[k] = v
				}
			}
			return left
		}
		named, o := []string{d.variable + "=DIR/named"}, options{Model: d.model, Device: d.device}
		if d.option.LlamaServer+d.option.Zinc+d.option.DS4+d.option.MLXServer+d.option.NPU != "" {
			d.option.Model, d.option.Device = d.model, d.device
			cases = append(cases, planCase{name: string(d.device) + " option", box: here, environ: named, options: d.option})
		}
		cases = append(cases,
			planCase{name: string(d.device) + " build", box: here, environ: named, options: o},
			planCase{name: string(d.device) + " variable", box: without("lib/1bit/" + d.build), environ: named, options: o})
		if d.device == engine.ROCm || d.device == engine.NPU {
			cases = append(cases, planCase{name: "no " + string(d.device) + " from PATH", box: without("lib/1bit/" + d.build), options: o})
		} else {
			cases = append(cases, planCase{name: string(d.device) + " PATH", box: without("lib/1bit/" + d.build), options: o})
		}
	}
	hsa := func(name string, box map[string]string, o options, environ ...string) planCase {
		o.Model, o.Device = plain, engine.HRX
		return planCase{name: "hsa " + name, box: box, environ: environ, options: o}
	}
	deep := map[string]string{"path/llama-server": "HRX0", "opt/rocm-therock/1/2/3/4/5/6/libhsa-runtime64.so.1": ""}
	runPlans(t, "programs", append(cases,
		hsa("option need not exist", strix, options{LibHSA: "DIR/gone/libhsa.so"}),
		hsa("of the build", map[string]string{"lib/1bit/hrx/llama-server": "HRX0", "lib/1bit/hrx/libhsa-runtime64.so.1": "", "opt/rocm-therock/lib/libhsa-runtime64.so.1": ""}, options{}),
		hsa("found", strix, options{}),
		hsa("too deep", deep, options{}),
		hsa("set by the user", strix, options{LibHSA: "DIR/x"}, "IREE_HAL_AMDGPU_LIBHSA_PATH=/mine"),
		planCase{name: "no option that is not there", box: strix, options: options{Model: plain, LlamaServer: "DIR/gone"}},
		planCase{name: "no option that cannot run", box: strix, options: options{Model: plain, LlamaServer: "DIR/m"}},
		planCase{name: "no variable that names nothing", box: graphics, environ: []string{"ONEBIT_LLAMA_SERVER=DIR/gone"}, options: options{Model: plain}},
		planCase{name: "no zinc at all", box: bare, options: options{Model: plain, Device: engine.Zinc}},
		planCase{name: "no ds4 at all", box: bare, options: options{Model: plain, Device: engine.DS4}},
		planCase{name: "no mlx at all", box: bare, options: options{Model: "a/b", Device: engine.MLX}},
		planCase{name: "no onnx at all", box: bare, options: options{Model: "DIR/m/onnx"}},
		planCase{name: "no vulkan at all", box: bare, options: options{Model: plain, Device: engine.Vulkan}},
		planCase{name: "no lean at all", box: graphics, options: options{Model: plain, Lean: true}},
		planCase{name: "no vulkan in the server", box: hrxOnly, options: options{Model: plain, Device: engine.Vulkan}},
		planCase{name: "no GPU in the server", box: modest, options: options{Model: plain, Device: engine.Vulkan}},
		planCase{name: "no hrx for the split", box: map[string]string{"path/llama-server": "Vulkan0"}, options: options{Model: plain, PrefillDevice: "hrx"}},
	))
}
