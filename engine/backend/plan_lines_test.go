package backend_test

import (
	"slices"
	"testing"

	"onebit/engine"
	"onebit/engine/recipe"
)

// TestPlanLines has a row for each command line of section 4 with all options that it takes, and for the slots.
func TestPlanLines(t *testing.T) {
	var slots []planCase
	for _, d := range []engine.Device{engine.Vulkan, engine.HRX, engine.ROCm, engine.CPU, engine.Zinc, engine.DS4} {
		slots = append(slots, planCase{name: string(d) + " parallel 1", box: strix, options: options{Model: plain, Device: d, Parallel: 1}})
	}
	for _, d := range []engine.Device{engine.Vulkan, engine.HRX, engine.ROCm, engine.CPU} {
		slots = append(slots, planCase{name: string(d) + " parallel 4", box: strix, options: options{Model: plain, Device: d, Parallel: 4}})
	}
	split := []string{"ONEBIT_HRX_DECODE_SPLIT=0"}
	runPlans(t, "lines", slices.Concat(slots, []planCase{
		{name: "vulkan", box: strix, options: options{Model: plain, Alias: "a name", Device: engine.Vulkan, Context: 8192, FlashAttn: "off"}},
		{name: "hrx", box: strix, options: options{Model: plain, Device: engine.HRX, Context: 8192, FlashAttn: "auto"}},
		{name: "hrx decode split off", box: strix, environ: split, options: options{Model: plain, Device: engine.HRX}},
		{name: "hrx decode split off parallel", box: strix, environ: split, options: options{Model: plain, Device: engine.HRX, Parallel: 4}},
		{name: "hrx dispatch set by the user", box: strix, environ: []string{"GGML_HRX_DISABLE_DISPATCH=mine"}, options: options{Model: plain, Device: engine.HRX, Parallel: 4}},
		{name: "hrx delta net", box: strix, options: options{Model: delta, Device: engine.HRX}},
		{name: "hrx delta net parallel 1", box: strix, options: options{Model: delta, Device: engine.HRX, Parallel: 1}},
		{name: "cpu built-in", box: strix, options: options{Model: plain, Alias: "a name", Device: engine.CPU, Context: 8192}},
		{name: "cpu llama-server", box: modest, options: options{Model: delta, Device: engine.CPU, LlamaServer: "DIR/path/llama-server", Context: 8192, FlashAttn: "on", Parallel: 4}},
		{name: "rocm", box: strix, options: options{Model: plain, Device: engine.ROCm, Context: 8192}},
		{name: "lean", box: strix, options: options{Model: plain, Device: engine.Vulkan, Lean: true, Context: 8192}},
		{name: "lean on rocm", box: strix, options: options{Model: plain, Device: engine.ROCm, Lean: true, Context: 8192}},
		{name: "prefill split", box: strix, options: options{Model: plain, Device: engine.Vulkan, PrefillDevice: "hrx", PrefillMinTokens: 2000, Context: 8192, FlashAttn: "off"}},
		{name: "prefill split auto", box: strix, options: options{Model: plain, PrefillDevice: "hrx", Parallel: 2}},
		{name: "moe", box: strix, options: options{Model: mixed, Device: engine.Vulkan, Context: 8192, MoESlots: 200, MoESubst: "0.9", MoEPrefetch: 2, Parallel: 2}},
		{name: "moe auto", box: strix, options: options{Model: mixed, MoEAuto: true}},
		{name: "moe with a variable set", box: strix, environ: []string{"ONEBIT_MOE_SLOTS=7"}, options: options{Model: mixed, MoESlots: 200}},
		{name: "zinc", box: strix, options: options{Model: plain, Device: engine.Zinc, Context: 8192}},
		{name: "zinc with the variable set", box: strix, environ: []string{"RADV_PERFTEST=mine"}, options: options{Model: plain, Device: engine.Zinc}},
		{name: "ds4", box: strix, options: options{Model: "DIR/m/star.gguf", Device: engine.DS4, Context: 8192, SSDStreaming: true}},
		{name: "mlx", box: strix, options: options{Model: "a/Qwen3-0.6B-4bit", Device: engine.MLX, Context: 8192}},
		{name: "onnx", box: strix, options: options{Model: "DIR/m/onnx", Context: 8192}},
		{name: "npu", box: strix, options: options{Model: "DIR/m/npu", Context: 8192, NPUOptions: []string{"lane=fast", "x="}}},
		{name: "rag on hrx", box: strix, options: options{Model: plain, Device: engine.Vulkan, Embed: "DIR/m/embed.gguf", Rerank: "DIR/m/rerank.gguf", Context: 8192}},
		{name: "rag on vulkan", box: graphics, options: options{Model: plain, Embed: "DIR/m/embed.gguf", Rerank: "DIR/m/rerank.gguf"}},
		{name: "appended group", box: strix, options: options{Model: plain, Device: engine.Vulkan, Mmproj: "DIR/m/mmproj.gguf", Embed: "DIR/m/embed.gguf", Append: []string{"--metrics", "--slot-save-path", "/slots", "--cache-ram", "0"}}},
		{name: "as Lemonade starts it", box: strix, options: options{Model: plain, Device: engine.ROCm, Alias: "user.Qwen3", Context: 4096, Role: recipe.Chat}},
	}))
}

// TestPlanDrafting has a row for each rule of section 7.
func TestPlanDrafting(t *testing.T) {
	const mtp, d8, d16 = "DIR/m/mtp.gguf", "DIR/m/dflash8.gguf", "DIR/m/dflash.gguf"
	fork := map[string]string{"path/llama-server": "Vulkan0", "path/libllama.so": "... onebit.draft_vocab ...", "path/libllama-common.so": ""}
	runPlans(t, "drafting", []planCase{
		{name: "mtp vulkan", box: strix, options: options{Model: plain, Device: engine.Vulkan, MTP: mtp}},
		{name: "mtp rocm", box: strix, options: options{Model: plain, Device: engine.ROCm, MTP: mtp}},
		{name: "mtp rocm max 3", box: strix, options: options{Model: plain, Device: engine.ROCm, MTP: mtp, DraftMax: 3}},
		{name: "mtp hrx", box: strix, options: options{Model: plain, Device: engine.HRX, MTP: mtp}},
		{name: "mtp max 4 p-min 0.5", box: strix, options: options{Model: plain, Device: engine.Vulkan, MTP: mtp, DraftMax: 4, DraftPMin: "0.5"}},
		{name: "mtp max 6 p-min 0.5", box: strix, options: options{Model: plain, Device: engine.Vulkan, MTP: mtp, DraftMax: 6, DraftPMin: "0.5"}},
		{name: "mtp max 8", box: strix, options: options{Model: plain, Device: engine.Vulkan, MTP: mtp, DraftMax: 8}},
		{name: "mtp and slots", box: strix, options: options{Model: plain, Device: engine.Vulkan, MTP: mtp, Parallel: 4}},
		{name: "dflash block of the file", box: strix, options: options{Model: plain, Device: engine.Vulkan, DFlash: d8}},
		{name: "dflash block unsaid", box: strix, options: options{Model: plain, Device: engine.Vulkan, DFlash: d16}},
		{name: "dflash max given", box: strix, options: options{Model: plain, Device: engine.Vulkan, DFlash: d8, DraftMax: 3}},
		{name: "dflash p-min given", box: strix, options: options{Model: plain, Device: engine.ROCm, DFlash: d8, DraftPMin: "0.7"}},
		{name: "dflash hrx", box: strix, options: options{Model: plain, Device: engine.HRX, DFlash: d8}},
		{name: "dflash rocm rotated lean", box: strix, options: options{Model: h32, DFlash: d8, Lean: true}},
		{name: "dflash rocm rotated", box: strix, options: options{Model: h32, DFlash: d8}},
		{name: "mtp and images", box: strix, options: options{Model: plain, Device: engine.Vulkan, MTP: mtp, Mmproj: "DIR/m/mmproj.gguf"}},
		{name: "images hrx", box: strix, options: options{Model: plain, Device: engine.HRX, Mmproj: "DIR/m/mmproj.gguf"}},
		{name: "images rocm", box: strix, options: options{Model: plain, Device: engine.ROCm, Mmproj: "DIR/m/mmproj.gguf"}},
		{name: "cut head on the fork", box: fork, options: options{Model: "DIR/m/flash-next.gguf", MTP: "DIR/m/mtp-cut.gguf"}},
		{name: "no cut head elsewhere", box: strix, options: options{Model: "DIR/m/flash-next.gguf", MTP: "DIR/m/mtp-cut.gguf"}},
		{name: "no two drafters", box: strix, options: options{Model: plain, MTP: mtp, DFlash: d8}},
		{name: "no mtp file", box: strix, options: options{Model: plain, MTP: "DIR/m/gone.gguf"}},
		{name: "no mmproj file", box: strix, options: options{Model: plain, Mmproj: "DIR/m/gone.gguf"}},
	})
}

// TestPlanRecipes has a row for each rule of section 9 that depends on the command line.
func TestPlanRecipes(t *testing.T) {
	runPlans(t, "recipes", []planCase{
		{name: "rotated-moe-ub1024", box: strix, options: options{Model: "DIR/m/h32-moe.gguf"}},
		{name: "rotated dense gets none", box: strix, options: options{Model: h32}},
		{name: "rocm-dflash-p-min", box: strix, options: options{Model: plain, Device: engine.ROCm, DFlash: "DIR/m/dflash8.gguf"}},
		{name: "flash-next", box: strix, options: options{Model: "DIR/m/flash-next.gguf"}},
		{name: "flash-next with experts in the file", box: strix, options: options{Model: "DIR/m/flash-next.gguf", MoESlots: 512}},
		{name: "own flags win", box: strix, options: options{Model: plain, Device: engine.Vulkan, Mmproj: "DIR/m/mmproj.gguf", Recipes: "DIR/m/long.json"}},
		{name: "role keeps its batch", box: strix, options: options{Model: plain, Device: engine.Vulkan, Role: recipe.Embedding, Recipes: "DIR/m/long.json"}},
		{name: "replaced", box: strix, environ: []string{"A=mine"}, options: options{Model: plain, Device: engine.Vulkan, Recipes: "DIR/m/long.json"}},
		{name: "off", box: strix, options: options{Model: "DIR/m/h32-moe.gguf", NoRecipes: true}},
		{name: "not on cpu", box: modest, options: options{Model: plain, Device: engine.CPU, LlamaServer: "llama-server", Recipes: "DIR/m/long.json"}},
		{name: "not beside the model", box: strix, options: options{Model: plain, Device: engine.Vulkan, Embed: "DIR/m/embed.gguf", Recipes: "DIR/m/long.json"}},
		{name: "known-bad reranker", box: strix, options: options{Model: "DIR/m/jina.gguf", Device: engine.HRX, Role: recipe.Reranking}},
		{name: "known-bad reranker beside", box: strix, options: options{Model: plain, Device: engine.Vulkan, Rerank: "DIR/m/jina.gguf"}},
		{name: "many slots on vulkan", box: strix, options: options{Model: plain, Device: engine.Vulkan, Parallel: 16}},
		{name: "no recipes file", box: strix, options: options{Model: plain, Recipes: "DIR/m/gone.json"}},
		{name: "no recipes without end", box: strix, options: options{Model: plain, Recipes: "/dev/zero"}},
		{name: "no recipes in it", box: strix, options: options{Model: plain, Recipes: "DIR/m/bad.json"}},
		{name: "no recipes and none", box: strix, options: options{Model: plain, Recipes: "DIR/m/long.json", NoRecipes: true}},
	})
}

// TestPlanTwo has a row for each rule of sections 11 and 12: two backends for one model.
func TestPlanTwo(t *testing.T) {
	const mtp = "DIR/m/mtp.gguf"
	wrapper := []string{"ONEBIT_LLAMA_SERVER=DIR/v", "ONEBIT_LEAN_SERVER=DIR/r"}
	wrapped := map[string]string{"v": "Vulkan0", "r": "ROCm0"}
	runPlans(t, "two", []planCase{
		{name: "adaptive", box: strix, options: options{Model: plain, Adaptive: true, AdaptiveAt: 1}},
		{name: "adaptive at 8", box: strix, options: options{Model: plain, Adaptive: true, AdaptiveAt: 8, Context: 65536, Sticky: true}},
		{name: "adaptive mtp", box: strix, options: options{Model: plain, Device: engine.Vulkan, Adaptive: true, AdaptiveAt: 1, MTP: mtp, DraftMax: 3, FlashAttn: "on"}},
		{name: "adaptive parallel 4", box: strix, options: options{Model: plain, Adaptive: true, AdaptiveAt: 1, Parallel: 4}},
		{name: "adaptive at 0", box: strix, options: options{Model: plain, Adaptive: true}},
		{name: "adaptive drops the llama-server", box: strix, options: options{Model: plain, Adaptive: true, AdaptiveAt: 1, LlamaServer: "DIR/lib/1bit/hrx/llama-server"}},
		{name: "adaptive images", box: strix, options: options{Model: plain, Adaptive: true, AdaptiveAt: 1, Mmproj: "DIR/m/mmproj.gguf"}},
		{name: "adaptive with side servers", box: strix, options: options{Model: plain, Adaptive: true, AdaptiveAt: 2, Embed: "DIR/m/embed.gguf"}},
		{name: "adaptive through a wrapper", box: wrapped, environ: wrapper, options: options{Model: plain, Adaptive: true, AdaptiveAt: 2}},
		{name: "no adaptive on hrx", box: strix, options: options{Model: plain, Device: engine.HRX, Adaptive: true}},
		{name: "no adaptive for a rotated file", box: strix, options: options{Model: h32, Adaptive: true}},
		{name: "no adaptive with lean", box: strix, options: options{Model: plain, Adaptive: true, Lean: true}},
		{name: "no adaptive with prefill", box: strix, options: options{Model: plain, Adaptive: true, PrefillDevice: "hrx"}},
		{name: "no adaptive with experts in the file", box: strix, options: options{Model: mixed, Adaptive: true, MoEAuto: true}},
		{name: "no adaptive with a role", box: strix, options: options{Model: plain, Adaptive: true, Role: recipe.Embedding}},
		{name: "no adaptive without rocm", box: graphics, options: options{Model: plain, Adaptive: true, AdaptiveAt: 1}},
		{name: "no adaptive without vulkan", box: bare, options: options{Model: plain, Adaptive: true, AdaptiveAt: 1}},
		{name: "long", box: strix, options: options{Model: plain, LongModel: "DIR/m/h32-moe.gguf", LongFrom: 2048, Context: 20480}},
		{name: "long on vulkan with all", box: strix, options: options{Model: plain, Device: engine.Vulkan, LongModel: h32, LongFrom: 100, MTP: mtp, DraftMax: 6, FlashAttn: "on", Parallel: 2, LlamaServer: "DIR/lib/1bit/vulkan/llama-server"}},
		{name: "long with experts in the file", box: strix, options: options{Model: mixed, LongModel: h32, LongFrom: 2048, MoESlots: 9}},
		{name: "long with prefill", box: strix, options: options{Model: plain, LongModel: h32, LongFrom: 2048, PrefillDevice: "hrx"}},
		{name: "long on rocm", box: strix, options: options{Model: plain, Device: engine.ROCm, LongModel: h32, LongFrom: 2048}},
		{name: "long through a wrapper", box: wrapped, environ: wrapper, options: options{Model: plain, LongModel: h32, LongFrom: 2048}},
		{name: "no long without the stamp", box: strix, options: options{Model: plain, LongModel: mixed, LongFrom: 2048}},
		{name: "no long of two rotated files", box: strix, options: options{Model: h32, LongModel: "DIR/m/h32-moe.gguf", LongFrom: 2048}},
		{name: "no long file", box: strix, options: options{Model: plain, LongModel: "DIR/m/gone.gguf", LongFrom: 2048}},
		{name: "no long from 0", box: strix, options: options{Model: plain, LongModel: h32}},
		{name: "no long on cpu", box: strix, options: options{Model: plain, Device: engine.CPU, LongModel: h32, LongFrom: 1}},
		{name: "no long on zinc", box: strix, options: options{Model: plain, Device: engine.Zinc, LongModel: h32, LongFrom: 1}},
		{name: "no long with adaptive", box: strix, options: options{Model: plain, LongModel: h32, LongFrom: 1, Adaptive: true}},
		{name: "no long with images", box: strix, options: options{Model: plain, LongModel: h32, LongFrom: 1, Mmproj: "DIR/m/mmproj.gguf"}},
		{name: "no long with a role", box: strix, options: options{Model: plain, LongModel: h32, LongFrom: 1, Role: recipe.Reranking}},
		{name: "no long with laya", box: strix, options: options{Model: plain, LongModel: h32, LongFrom: 1, Laya: true}},
	})
}

// TestPlanRoles has a row for each rule of section 14: roles of the model and servers beside it.
func TestPlanRoles(t *testing.T) {
	const e, r, bert = "DIR/m/embed.gguf", "DIR/m/rerank.gguf", "DIR/m/minilm.gguf"
	runPlans(t, "roles", []planCase{
		{name: "embedding hrx", box: strix, options: options{Model: e, Role: recipe.Embedding}},
		{name: "embedding vulkan with a context", box: strix, options: options{Model: e, Device: engine.Vulkan, Role: recipe.Embedding, Context: 2048, Alias: "nomic"}},
		{name: "reranking rocm", box: strix, options: options{Model: r, Device: engine.ROCm, Role: recipe.Reranking, Parallel: 2}},
		{name: "reranking auto vulkan", box: graphics, options: options{Model: r, Role: recipe.Reranking}},
		{name: "embedding without a GPU", box: modest, options: options{Model: e, Role: recipe.Embedding}},
		{name: "reranking on cpu by llama-server", box: modest, options: options{Model: r, Device: engine.CPU, Role: recipe.Reranking, LlamaServer: "llama-server"}},
		{name: "embedding with a reranker beside", box: graphics, options: options{Model: e, Role: recipe.Embedding, Rerank: r}},
		{name: "side servers without a GPU", box: modest, options: options{Model: plain, Embed: e, Rerank: r}},
		{name: "side servers on cpu as asked", box: strix, options: options{Model: plain, Device: engine.CPU, LlamaServer: "DIR/lib/1bit/vulkan/llama-server", Embed: e}},
		{name: "side server beside zinc", box: strix, options: options{Model: plain, Device: engine.Zinc, Embed: e}},
		{name: "side server beside npu", box: graphics, options: options{Model: "DIR/m/npu", NPU: "DIR/m/addon", Embed: e}},
		{name: "no embedding on a bare box", box: bare, options: options{Model: e, Role: recipe.Embedding}},
		{name: "no embedding on zinc", box: strix, options: options{Model: e, Device: engine.Zinc, Role: recipe.Embedding}},
		{name: "no reranking on ds4", box: strix, options: options{Model: r, Device: engine.DS4, Role: recipe.Reranking}},
		{name: "no role with mtp", box: strix, options: options{Model: e, Role: recipe.Embedding, MTP: "DIR/m/mtp.gguf"}},
		{name: "no role with dflash", box: strix, options: options{Model: e, Role: recipe.Embedding, DFlash: "DIR/m/dflash.gguf"}},
		{name: "no role with prefill", box: strix, options: options{Model: e, Role: recipe.Embedding, PrefillDevice: "hrx"}},
		{name: "no embedding twice", box: strix, options: options{Model: e, Role: recipe.Embedding, Embed: e}},
		{name: "no reranking twice", box: strix, options: options{Model: r, Role: recipe.Reranking, Rerank: r}},
		{name: "no side server on a bare box", box: bare, options: options{Model: plain, Embed: e}},
		{name: "bert beside on a bare box", box: bare, options: options{Model: plain, Embed: bert, Rerank: bert}},
		{name: "bert beside without a GPU", box: modest, options: options{Model: plain, Embed: bert}},
		{name: "bert beside on vulkan", box: graphics, options: options{Model: plain, Embed: bert}},
		{name: "bert beside on cpu as asked", box: graphics, options: options{Model: plain, Device: engine.CPU, Embed: bert}},
		{name: "bert beside by llama-server", box: modest, options: options{Model: plain, Device: engine.CPU, Embed: bert, LlamaServer: "llama-server"}},
		{name: "bert embedding on a bare box", box: bare, options: options{Model: bert, Role: recipe.Embedding, Context: 256}},
		{name: "bert reranking on a bare box", box: bare, options: options{Model: bert, Role: recipe.Reranking, Parallel: 2}},
		{name: "bert embedding by llama-server", box: modest, options: options{Model: bert, Device: engine.CPU, Role: recipe.Embedding, LlamaServer: "llama-server"}},
		{name: "no chat with bert", box: bare, options: options{Model: bert}},
		{name: "no side file", box: strix, options: options{Model: plain, Rerank: "DIR/m/gone.gguf"}},
		{name: "no side directory", box: strix, options: options{Model: plain, Embed: "DIR/m/npu"}},
	})
}

// TestPlanRefusals has a row for each refusal that no other table has: what a device lacks, by name, also when auto
// chose it.
func TestPlanRefusals(t *testing.T) {
	var lacks []planCase
	set := func(name string, o options) { lacks = append(lacks, planCase{name: name, box: strix, options: o}) }
	for _, d := range []struct {
		device engine.Device
		model  string
	}{{engine.CPU, plain}, {engine.NPU, "DIR/m/npu"}, {engine.Zinc, plain}, {engine.DS4, plain}, {engine.MLX, "a/b"}, {engine.ONNX, "DIR/m/onnx"}} {
		o, no := options{Model: d.model, Device: d.device}, "no "+string(d.device)+" "
		for _, x := range []struct {
			name string
			with func(*options)
		}{
			{"mmproj", func(o *options) { o.Mmproj = "DIR/m/mmproj.gguf" }},
			{"mtp", func(o *options) { o.MTP = "DIR/m/mtp.gguf" }},
			{"dflash", func(o *options) { o.DFlash = "DIR/m/dflash.gguf" }},
			{"moe-slots", func(o *options) { o.MoESlots = 9 }},
			{"lean", func(o *options) { o.Lean = true }},
			{"flash-attn", func(o *options) { o.FlashAttn = "on" }},
			{"prefill-device", func(o *options) { o.PrefillDevice = "hrx" }},
		} {
			with := o
			x.with(&with)
			set(no+x.name, with)
		}
		if d.device != engine.CPU {
			o.Parallel = 2
			set(no+"parallel", o)
		}
	}
	auto := func(name string, o options) planCase {
		return planCase{name: "no auto cpu " + name, box: bare, options: o}
	}
	runPlans(t, "refusals", append(lacks,
		auto("mmproj", options{Model: plain, Mmproj: "DIR/m/mmproj.gguf"}),
		auto("mtp", options{Model: plain, MTP: "DIR/m/mtp.gguf"}),
		auto("dflash", options{Model: plain, DFlash: "DIR/m/dflash.gguf"}),
		auto("moe-slots", options{Model: mixed, MoEAuto: true}),
		auto("flash-attn", options{Model: plain, FlashAttn: "on"}),
		auto("architecture", options{Model: "DIR/m/mamba.gguf"}),
		planCase{name: "no cpu architecture", box: strix, options: options{Model: mixed, Device: engine.CPU}},
		planCase{name: "no auto npu mmproj", box: strix, options: options{Model: "DIR/m/npu", Mmproj: "DIR/m/mmproj.gguf"}},
		planCase{name: "no auto onnx lean", box: strix, options: options{Model: "DIR/m/onnx", Lean: true}},
		planCase{name: "no rocm flash-attn", box: strix, options: options{Model: plain, Device: engine.ROCm, FlashAttn: "on"}},
		planCase{name: "no rocm moe-slots", box: strix, options: options{Model: mixed, Device: engine.ROCm, MoESlots: 9}},
		planCase{name: "no hrx lean", box: strix, options: options{Model: plain, Device: engine.HRX, Lean: true}},
		planCase{name: "no hrx prefill-device", box: strix, options: options{Model: plain, Device: engine.HRX, PrefillDevice: "hrx"}},
		planCase{name: "no hrx moe-slots", box: strix, options: options{Model: mixed, Device: engine.HRX, MoESlots: 9}},
		planCase{name: "no hrx delta net parallel", box: strix, options: options{Model: delta, Device: engine.HRX, Parallel: 2}},
		planCase{name: "no vulkan ssd-streaming", box: strix, options: options{Model: plain, Device: engine.Vulkan, SSDStreaming: true}},
		planCase{name: "no vulkan npu-opt", box: strix, options: options{Model: plain, Device: engine.Vulkan, NPUOptions: []string{"a=b"}}},
		planCase{name: "no lean flash-attn", box: strix, options: options{Model: plain, Lean: true, FlashAttn: "on"}},
		planCase{name: "no lean with prefill", box: strix, options: options{Model: plain, Lean: true, PrefillDevice: "hrx"}},
		planCase{name: "no lean with experts in the file", box: strix, options: options{Model: mixed, Lean: true, MoESlots: 9}},
		planCase{name: "no prefill with experts in the file", box: strix, options: options{Model: mixed, PrefillDevice: "hrx", MoESlots: 9}},
		planCase{name: "no prefill with images", box: strix, options: options{Model: plain, PrefillDevice: "hrx", Mmproj: "DIR/m/mmproj.gguf"}},
		planCase{name: "no prefill on another device", box: strix, options: options{Model: plain, Device: engine.Vulkan, PrefillDevice: "rocm"}},
		planCase{name: "no experts of the fork's own", box: strix, options: options{Model: "DIR/m/zaya.gguf", Device: engine.Vulkan, MoESlots: 9}},
		planCase{name: "no experts of a dense model", box: strix, options: options{Model: plain, MoEAuto: true}},
		planCase{name: "no h32 on vulkan", box: strix, options: options{Model: h32, Device: engine.Vulkan}},
		planCase{name: "no h32 on cpu", box: strix, options: options{Model: h32, Device: engine.CPU}},
		planCase{name: "no h32 with laya", box: strix, options: options{Model: h32, Laya: true}},
		planCase{name: "no prism on rocm", box: strix, options: options{Model: "DIR/m/prism.gguf", Device: engine.ROCm}},
		planCase{name: "no prism with laya", box: strix, options: options{Model: "DIR/m/prism.gguf", LayaModel: "DIR"}},
		planCase{name: "no file type on vulkan", box: strix, options: options{Model: "DIR/m/type141.gguf", Device: engine.Vulkan}},
		planCase{name: "no container on vulkan", box: strix, options: options{Model: "DIR/m/star.1bp", Device: engine.Vulkan}},
		planCase{name: "no container with laya", box: strix, options: options{Model: "DIR/m/star.1bp", Laya: true}},
		planCase{name: "no npu directory on vulkan", box: strix, options: options{Model: "DIR/m/npu", Device: engine.Vulkan}},
		planCase{name: "no onnx directory on npu", box: strix, options: options{Model: "DIR/m/onnx", Device: engine.NPU}},
		planCase{name: "no gguf on npu", box: strix, options: options{Model: plain, Device: engine.NPU}},
		planCase{name: "no gguf on onnx", box: strix, options: options{Model: plain, Device: engine.ONNX}},
		planCase{name: "no npu private without add-on", box: strix, options: options{Model: "DIR/m/npu35"}},
		planCase{name: "no npu private without any", box: bare, options: options{Model: "DIR/m/npu35", Device: engine.NPU}},
		planCase{name: "no npu without a server", box: bare, options: options{Model: "DIR/m/npu"}},
		planCase{name: "no folder of gguf files", box: strix, options: options{Model: "DIR/m/folder"}},
		planCase{name: "no folder of safetensors", box: strix, options: options{Model: "DIR/m/hf"}},
		planCase{name: "no text file", box: strix, options: options{Model: "DIR/m/notes.txt"}},
		planCase{name: "no device file", box: strix, options: options{Model: "/dev/null"}},
		planCase{name: "no cpu slots without end", box: strix, options: options{Model: plain, Device: engine.CPU, Parallel: 257}},
		planCase{name: "no missing file", box: strix, options: options{Model: "DIR/m/gone.gguf"}},
		planCase{name: "no unknown device", box: strix, options: options{Model: plain, Device: "warp"}},
		planCase{name: "no laya with adaptive", box: strix, options: options{Model: plain, Laya: true, Adaptive: true}},
		planCase{name: "no laya with a role", box: strix, options: options{Model: plain, Laya: true, Role: recipe.Embedding}},
		planCase{name: "no laya with prefill", box: strix, options: options{Model: plain, Laya: true, PrefillDevice: "hrx"}},
		planCase{name: "no laya with lean", box: strix, options: options{Model: plain, Laya: true, Lean: true}},
	))
}

// TestPlanLaya has a row for each rule of section 13: which devices a classified model may run on.
func TestPlanLaya(t *testing.T) {
	runPlans(t, "laya", []planCase{
		{name: "every device", box: strix, options: options{Model: plain, Laya: true, RoutePolicy: "p"}},
		{name: "a model of the classifier", box: strix, options: options{Model: plain, LayaModel: "DIR"}},
		{name: "parallel is not for zinc", box: strix, options: options{Model: plain, Laya: true, Parallel: 4}},
		{name: "a drafter is for llama-servers", box: strix, options: options{Model: plain, Laya: true, MTP: "DIR/m/mtp.gguf"}},
		{name: "experts are for vulkan", box: strix, options: options{Model: mixed, Laya: true, MoESlots: 64}},
		{name: "a delta net in parallel", box: strix, options: options{Model: delta, Laya: true, Parallel: 2}},
		{name: "with side servers", box: strix, options: options{Model: plain, Laya: true, Embed: "DIR/m/embed.gguf"}},
		{name: "a bare machine", box: bare, options: options{Model: plain, Laya: true}},
		{name: "no device", box: bare, options: options{Model: plain, Laya: true, Mmproj: "DIR/m/mmproj.gguf"}},
	})
}

// TestPlanIdle has a row for each option that has no effect as it stands.
func TestPlanIdle(t *testing.T) {
	v := options{Model: plain, Device: engine.Vulkan}
	one := func(name string, with func(*options)) planCase {
		o := v
		with(&o)
		return planCase{name: name, box: strix, options: o}
	}
	runPlans(t, "idle", []planCase{
		one("moe-subst", func(o *options) { o.MoESubst = "0.5" }),
		one("moe-prefetch", func(o *options) { o.MoEPrefetch = 1 }),
		one("prefill-min-tokens", func(o *options) { o.PrefillMinTokens = 1 }),
		one("mtp-max", func(o *options) { o.DraftMax = 1 }),
		one("mtp-p-min", func(o *options) { o.DraftPMin = "0.5" }),
		one("adaptive-sticky", func(o *options) { o.Sticky = true }),
		one("route-policy", func(o *options) { o.RoutePolicy = "p" }),
		one("laya on a device", func(o *options) { o.Laya = true }),
	})
}

// TestPlanSlotDir: where chats run, the state of slots is kept, and nowhere else.
func TestPlanSlotDir(t *testing.T) {
	keep := func(d engine.Device, o options) options {
		o.Model, o.Device, o.SlotDir = plain, d, "/var/slots"
		return o
	}
	runPlans(t, "slotdir", []planCase{
		{name: "cpu", box: strix, options: keep(engine.CPU, options{Parallel: 2})},
		{name: "cpu by llama-server", box: modest, options: keep(engine.CPU, options{LlamaServer: "llama-server"})},
		{name: "vulkan", box: strix, options: keep(engine.Vulkan, options{Parallel: 2})},
		{name: "hrx", box: strix, options: keep(engine.HRX, options{})},
		{name: "rocm", box: strix, options: keep(engine.ROCm, options{})},
		{name: "zinc has none", box: strix, options: keep(engine.Zinc, options{})},
		{name: "embeddings have none", box: strix, options: keep(engine.Vulkan, options{Role: recipe.Embedding})},
	})
}
