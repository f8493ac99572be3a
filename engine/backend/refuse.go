package backend

import (
	"errors"
	"fmt"
	"slices"

	"onebit/engine"
	"onebit/engine/recipe"
)

// llamaDevices are the devices that a llama-server drives.
var llamaDevices = []engine.Device{engine.Vulkan, engine.HRX, engine.ROCm}

// limited lists the options that not every device has.
var limited = []struct {
	name    string
	given   func(o Options) bool
	on      []engine.Device
	builtin bool // our own engine has it too
}{
	{"--flash-attn", func(o Options) bool { return o.FlashAttn != "" }, []engine.Device{engine.Vulkan, engine.HRX, engine.CPU}, false},
	{"--ssd-streaming", func(o Options) bool { return o.SSDStreaming }, []engine.Device{engine.DS4}, false},
	{"--prefill-device", func(o Options) bool { return o.PrefillDevice != "" }, []engine.Device{engine.Vulkan}, false},
	{"--lean", func(o Options) bool { return o.Lean }, []engine.Device{engine.Vulkan, engine.ROCm}, false},
	{"--mtp", func(o Options) bool { return o.MTP != "" }, llamaDevices, false},
	{"--dflash", func(o Options) bool { return o.DFlash != "" }, llamaDevices, false},
	{"--mmproj", func(o Options) bool { return o.Mmproj != "" }, llamaDevices, false},
	{"--moe-slots", Options.moe, []engine.Device{engine.Vulkan}, false},
	{"--parallel above 1", func(o Options) bool { return o.Parallel > 1 }, append(slices.Clone(llamaDevices), engine.CPU), true},
	{"--long-model", func(o Options) bool { return o.LongModel != "" }, llamaDevices, false},
	{"--embedding", func(o Options) bool { return o.Role == recipe.Embedding }, append(slices.Clone(llamaDevices), engine.CPU), true},
	{"--reranking", func(o Options) bool { return o.Role == recipe.Reranking }, append(slices.Clone(llamaDevices), engine.CPU), true},
	{"--npu-opt", func(o Options) bool { return len(o.NPUOptions) > 0 }, []engine.Device{engine.NPU}, false},
}

// checkDevice refuses options that the device lacks.
func (p *planner) checkDevice(d engine.Device) error {
	for _, l := range limited {
		if !l.given(p.o) || (slices.Contains(l.on, d) && (l.builtin || !p.builtin())) {
			continue
		}
		where := "--device " + string(d)
		if p.auto {
			where += ", which was chosen (" + p.plan.Why + ")"
		}
		if p.builtin() {
			where += ", on the built-in engine"
		}
		on := choices(l.on)
		if p.builtin() && slices.Contains(l.on, d) {
			on += " with --llama-server PATH"
		}
		return fmt.Errorf("%s is not available on %s; take --device %s, or leave it out", l.name, where, on)
	}
	if p.builtin() && p.o.Parallel > engine.BuiltinSlots {
		return fmt.Errorf("--parallel %d: the built-in engine on --device cpu has at most %d slots; take fewer, or give --llama-server PATH", p.o.Parallel, engine.BuiltinSlots)
	}
	if p.o.FlashAttn != "" && p.o.Lean {
		return errors.New("--flash-attn is not available with --lean on --device vulkan; leave one of them out")
	}
	return nil
}

// pairs are options that exclude each other, with the reason.
var pairs = []struct {
	a, b func(o Options) string // the option as given; empty when it is not
	why  string
}{
	{mtp, dflash, "both are draft models; pick one"},
	{lean, prefill, "they take different llama-servers; leave one of them out"},
	{mmproj, prefill, "the split has no image projector; leave one of them out"},
	{moe, prefill, "the split loads the model twice, whole; leave one of them out"},
	{moe, lean, "streaming experts takes vulkan's own llama-server; leave one of them out"},
	{moe, adaptive, "the second backend would load the whole model; leave one of them out"},
	{adaptive, lean, "adaptive runs vulkan's and rocm's own llama-servers; leave one of them out"},
	{adaptive, prefill, "adaptive shares no cache between devices; leave one of them out"},
	{adaptive, long, "each has its own rule for the second backend; pick one"},
	{adaptive, role, "a role takes one backend; leave --adaptive out"},
	{long, role, "a role serves no conversations; leave --long-model out"},
	{long, mmproj, "the long model has no image projector; leave one of them out"},
	{role, mtp, "a role generates no text; leave the draft model out"},
	{role, dflash, "a role generates no text; leave the draft model out"},
	{role, prefill, "a role generates no text; leave --prefill-device out"},
	{embed, embedding, "both answer /v1/embeddings; pick one"},
	{rerank, reranking, "both answer /v1/rerank; pick one"},
	{laya, adaptive, "each has its own rule for choosing a device; pick one"},
	{laya, long, "each has its own rule for choosing a device; pick one"},
	{laya, role, "a role serves no conversations; leave --laya out"},
	{laya, prefill, "the split runs on vulkan alone; leave --laya out"},
	{laya, lean, "--lean fixes the device; leave --laya out"},
}

func when(given bool, name string) string {
	if given {
		return name
	}
	return ""
}

func mtp(o Options) string       { return when(o.MTP != "", "--mtp") }
func dflash(o Options) string    { return when(o.DFlash != "", "--dflash") }
func lean(o Options) string      { return when(o.Lean, "--lean") }
func prefill(o Options) string   { return when(o.PrefillDevice != "", "--prefill-device") }
func mmproj(o Options) string    { return when(o.Mmproj != "", "--mmproj") }
func moe(o Options) string       { return when(o.moe(), "--moe-slots") }
func adaptive(o Options) string  { return when(o.Adaptive, "--adaptive") }
func long(o Options) string      { return when(o.LongModel != "", "--long-model") }
func role(o Options) string      { return when(o.role() != recipe.Chat, "--"+string(o.Role)) }
func embed(o Options) string     { return when(o.Embed != "", "--embed") }
func rerank(o Options) string    { return when(o.Rerank != "", "--rerank") }
func embedding(o Options) string { return when(o.Role == recipe.Embedding, "--embedding") }
func reranking(o Options) string { return when(o.Role == recipe.Reranking, "--reranking") }
func laya(o Options) string {
	return when(o.classified() && (o.Device == engine.Auto || o.Device == ""), "--laya")
}

// checkOptions refuses what is wrong whatever the model is.
func (p *planner) checkOptions() error {
	if p.o.Device != "" && !p.o.Device.Known() {
		return fmt.Errorf("there is no device %q", p.o.Device)
	}
	for _, x := range pairs {
		if a, b := x.a(p.o), x.b(p.o); a != "" && b != "" {
			return fmt.Errorf("%s does not go with %s: %s", a, b, x.why)
		}
	}
	switch {
	case p.o.PrefillDevice != "" && p.o.PrefillDevice != string(engine.HRX):
		return fmt.Errorf("--prefill-device %s: the only device for it is hrx", p.o.PrefillDevice)
	case p.o.LongModel != "" && p.o.LongFrom < 1:
		return fmt.Errorf("--long-from %d: at least 1 token is needed", p.o.LongFrom)
	case p.o.Recipes != "" && p.o.NoRecipes:
		return errors.New("--recipes does not go with --no-recipes: pick one")
	}
	return nil
}

// idle warns of options that have no effect as things stand.
func (p *planner) idle() {
	o := p.o
	kind, _, _ := o.drafter()
	for _, x := range []struct {
		given bool
		says  string
	}{
		{o.MoESubst != "" && !o.moe(), "--moe-subst has no effect without --moe-slots"},
		{o.MoEPrefetch > 0 && !o.moe(), "--moe-prefetch has no effect without --moe-slots"},
		{o.PrefillMinTokens > 0 && o.PrefillDevice == "", "--prefill-min-tokens has no effect without --prefill-device hrx"},
		{o.DraftMax > 0 && kind == recipe.NoDrafter, "--mtp-max has no effect without --mtp or --dflash"},
		{o.DraftPMin != "" && kind == recipe.NoDrafter, "--mtp-p-min has no effect without --mtp or --dflash"},
		{o.Sticky && !o.Adaptive, "--adaptive-sticky has no effect without --adaptive"},
		{o.RoutePolicy != "" && !o.classified(), "--route-policy has no effect without --laya"},
		{o.Context > 0 && p.plan.Device == engine.MLX, "--ctx-size has no effect on --device mlx"},
		{o.FlashAttn != "" && o.PrefillDevice != "", "--flash-attn has no effect with --prefill-device, which has it on"},
	} {
		if x.given {
			p.warn("%s", x.says)
		}
	}
}
