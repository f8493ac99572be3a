package backend

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"onebit/engine"
	"onebit/engine/plan"
	"onebit/engine/recipe"
)

// defaultSlots is what a llama-server opens when nobody tells it.
const defaultSlots = 4

// sideSlots is how many requests our own engine gets at once when it makes embeddings or scores: their texts share passes.
const sideSlots = 8

// spec makes the command line of a model that serves chat, or the role of o.
func (p *planner) spec(ctx context.Context, o Options, m Model, d engine.Device) (ChildSpec, error) {
	switch {
	case d == engine.CPU && p.builtin():
		return p.builtinSpec(o), nil
	case d == engine.CPU || slices.Contains(llamaDevices, d):
		return p.llamaSpec(ctx, o, m, d)
	}
	return p.otherSpec(ctx, o, m, d)
}

// builtinSpec is our own program on the processor.
func (p *planner) builtinSpec(o Options) ChildSpec {
	c := CPU(CPUConfig{Executable: p.m.Executable, Model: o.Model, Alias: o.Name(), Context: o.Context, Parallel: o.Parallel, SlotDir: slotDir(o)})(0)
	at := slices.Index(c.Args, "--port") + 1
	c.Args[at] = PortMark
	slots := max(1, o.Parallel)
	if o.role() != recipe.Chat && o.Parallel == 0 {
		slots = sideSlots
	}
	return ChildSpec{
		Device: engine.CPU, Role: o.role(), Name: o.Name(), Program: c.Path, Args: c.Args, Env: c.Env, Ready: "/health",
		Slots: slots, ModelField: KeepModel, Dialect: Llama, Builtin: true,
	}
}

// otherSpec is a program that is no llama-server.
func (p *planner) otherSpec(ctx context.Context, o Options, m Model, d engine.Device) (ChildSpec, error) {
	s := ChildSpec{Device: d, Role: recipe.Chat, Name: o.Name(), Ready: "/health", Slots: 1, ModelField: KeepModel, Dialect: Llama}
	given := map[engine.Device]string{engine.Zinc: o.Zinc, engine.DS4: o.DS4, engine.MLX: o.MLXServer, engine.NPU: o.NPU}[d]
	program, err := p.m.find(others[d], given)
	if d == engine.NPU && m.Architecture == privateType && (absent(err) || (err == nil && !p.serves(ctx, program, m.Architecture))) {
		return s, errPrivate
	}
	if err != nil {
		return s, fmt.Errorf("--device %s: %w", d, err)
	}
	s.Program = program
	size := strconv.Itoa(o.Context)
	switch d {
	case engine.Zinc:
		s.ModelField = DropModel
		s.Args = []string{"-m", o.Model, "-p", PortMark}
		s.Args = optional(s.Args, o.Context > 0, "-c", size)
		p.add(&s.Env, "RADV_PERFTEST=coop_matrix")
	case engine.DS4:
		s.Ready = "/v1/models"
		s.Args = []string{"-m", o.Model, "--host", "127.0.0.1", "--port", PortMark}
		s.Args = optional(s.Args, o.Context > 0, "--ctx", size)
		s.Args = optional(s.Args, o.SSDStreaming, "--ssd-streaming")
	case engine.MLX:
		s.ModelField, s.ModelID = RenameModel, o.Model
		s.Args = []string{o.Model, "--port", PortMark}
	case engine.ONNX:
		s.Args = []string{"-m", o.Model, "--port", PortMark}
		s.Args = optional(s.Args, o.Context > 0, "--ctx-size", size)
	case engine.NPU:
		s.Dialect, s.OpenThink = NPU, m.Architecture == privateType
		s.Args = []string{"-m", o.Model, "--host", "127.0.0.1", "--port", PortMark}
		s.Args = optional(s.Args, o.Context > 0, "--ctx-size", size)
		for _, kv := range o.NPUOptions {
			s.Args = append(s.Args, "--npu-opt", kv)
		}
	}
	return s, nil
}

// slotDir is where the child of a plan keeps the state of slots: what makes vectors or scores keeps none.
func slotDir(o Options) string {
	if o.role() != recipe.Chat {
		return ""
	}
	return o.SlotDir
}

// optional appends arguments when they are wanted.
func optional(args []string, wanted bool, more ...string) []string {
	if wanted {
		return append(args, more...)
	}
	return args
}

// privateType is the model_type of Qwen3.6-35B-A3B, which an add-on alone serves on the NPU.
const privateType = "qwen3_5_moe"

// errPrivate has the words that scripts look for.
var errPrivate = errors.New("the Qwen3.6-35B-A3B NPU route is not part of this build; build with -DONEBIT_NPU_PRIVATE=")

// serves asks an NPU server for the model types that it serves, which it lists one a line.
func (p *planner) serves(ctx context.Context, program, modelType string) bool {
	out, err := p.m.asked(ctx, program, nil, "--list-model-types")
	return err == nil && slices.Contains(strings.Fields(out), modelType)
}

// llamaHead is how every llama-server's command line begins.
func llamaHead(model string, d engine.Device) []string {
	args := []string{"-m", model, "--host", "127.0.0.1", "--port", PortMark}
	if d == engine.CPU {
		return append(args, "-ngl", "0")
	}
	return append(args, "--device", unit[d], "-ngl", "99")
}

// llamaSpec is a llama-server.
func (p *planner) llamaSpec(ctx context.Context, o Options, m Model, d engine.Device) (ChildSpec, error) {
	s := ChildSpec{Device: d, Role: o.role(), Name: o.Name(), Ready: "/health", ModelField: KeepModel, Dialect: Llama}
	if s.Role != recipe.Chat {
		s.ModelField = DropModel
	}
	var err error
	if s.Program, err = p.llamaProgram(ctx, o, m, d); err != nil {
		return s, err
	}
	s.Args = optional(append(llamaHead(o.Model, d), "--jinja"), o.Context > 0, "-c", strconv.Itoa(o.Context))
	switch {
	case o.PrefillDevice != "":
		s.Args = append(s.Args, "-fa", "on")
		p.add(&s.Env, "ONEBIT_PREFILL_DEVICE=HRX0")
		if o.PrefillMinTokens > 0 {
			p.add(&s.Env, "ONEBIT_PREFILL_MIN_TOKENS="+strconv.Itoa(o.PrefillMinTokens))
		}
		s.Env = append(s.Env, p.m.runtime(o.LibHSA)...)
	case o.FlashAttn != "":
		s.Args = append(s.Args, "-fa", o.FlashAttn)
	}
	if o.moe() {
		if err := p.experts(&s, o, m); err != nil {
			return s, err
		}
	}
	if err := p.slots(&s, o, m); err != nil {
		return s, err
	}
	s.Args = append(s.Args, slotArgs(slotDir(o))...)
	p.stamps(&s, m)
	if err := p.drafting(&s, o); err != nil {
		return s, err
	}
	if o.Mmproj != "" {
		if err := readable("--mmproj", o.Mmproj); err != nil {
			return s, err
		}
		s.Args = append(s.Args, "--mmproj", o.Mmproj, "-b", "4096", "-ub", "4096")
	}
	p.finish(&s, o, m)
	return s, nil
}

// llamaProgram finds the llama-server of a route and makes sure that it has the device.
func (p *planner) llamaProgram(ctx context.Context, o Options, m Model, d engine.Device) (string, error) {
	from, needs, env := vulkanServer, []string{unit[d]}, []string(nil)
	switch {
	case d == engine.CPU:
		from, needs = cpuServer, nil
	case d == engine.ROCm:
		from = rocmServer
	case d == engine.HRX || o.PrefillDevice != "":
		from, env = hrxServer, p.m.runtime(o.LibHSA)
		if o.PrefillDevice != "" {
			needs = append(needs, unit[engine.HRX])
		}
	case o.Lean:
		from = leanServer
	case m.forkOnly():
		from = hrxServer
		p.note("the architecture %s is in the hrx build's llama-server alone; that one runs on Vulkan0", m.Architecture)
	}
	program, err := p.m.find(from, o.LlamaServer)
	if err != nil {
		return "", fmt.Errorf("%s: %w", p.asks(o, d), err)
	}
	for _, device := range needs {
		note, err := p.m.offers(ctx, program, env, device)
		if err != nil {
			return "", fmt.Errorf("%s: %w; %s", p.asks(o, d), err, from.remedy)
		}
		if note != "" {
			p.note("%s", note)
		}
	}
	return program, nil
}

// asks names what needs a llama-server, for messages.
func (p *planner) asks(o Options, d engine.Device) string {
	text := "--device " + string(d)
	if p.auto && d == p.plan.Device {
		text += " (" + p.plan.Why + ")"
	}
	switch {
	case o.PrefillDevice != "":
		text += " with --prefill-device hrx"
	case o.Lean:
		text += " with --lean"
	case o.role() != recipe.Chat:
		text += " with --" + string(o.Role)
	}
	return text
}

// experts makes a server stream a mixture model's experts from the file.
func (p *planner) experts(s *ChildSpec, o Options, m Model) error {
	if m.forkOnly() {
		return fmt.Errorf("--moe-slots takes vulkan's own llama-server, which lacks the architecture %s; leave it out", m.Architecture)
	}
	n := o.MoESlots
	if o.MoEAuto {
		free, err := p.m.Memory()
		if err != nil {
			return fmt.Errorf("--moe-slots auto: %w", err)
		}
		slots, err := plan.AutoSlots(o.Model, free)
		if err != nil {
			return fmt.Errorf("--moe-slots auto: %w", err)
		}
		n = slots.N
		p.note("--moe-slots auto: %v", slots)
		if slots.Warning != "" {
			p.warn("--moe-slots auto: %s", slots.Warning)
		}
	}
	path, err := filepath.Abs(o.Model)
	if err != nil {
		return fmt.Errorf("--moe-slots: %w", err)
	}
	s.Args = append(s.Args, "-ot", "exps=CPU,per_layer_token_embd=CPU", "--no-host", "--no-repack", "--load-mode", "mmap")
	p.add(&s.Env, "ONEBIT_MOE_FILE="+path, "ONEBIT_MOE_SLOTS="+strconv.Itoa(n), "ONEBIT_MOE_PREFETCH="+strconv.Itoa(o.MoEPrefetch))
	if o.MoESubst != "" {
		p.add(&s.Env, "ONEBIT_MOE_SUBST="+o.MoESubst)
	}
	return nil
}

// dispatch switches kernels of hrx off, by a list of names.
const dispatch = "GGML_HRX_DISABLE_DISPATCH="

// slots appends the number of requests that run at the same time.
func (p *planner) slots(s *ChildSpec, o Options, m Model) error {
	s.Slots = defaultSlots
	if o.Parallel > 0 {
		s.Slots = o.Parallel
		s.Args = append(s.Args, "-np", strconv.Itoa(o.Parallel))
	}
	if s.Device != engine.HRX {
		return nil
	}
	var off []string
	if v, _ := p.m.variable("ONEBIT_HRX_DECODE_SPLIT"); v == "0" {
		off = append(off, "decode_split")
	}
	switch {
	case o.Parallel > 1 && m.deltaNet():
		return fmt.Errorf("--parallel %d is not available on --device hrx for the architecture %s, which it runs one sequence at a time; use --device vulkan, or --parallel 1", o.Parallel, m.Architecture)
	case o.Parallel > 1:
		s.Args = append(s.Args, "-kvu")
		off = append(off, "qwen.attention")
	case o.Parallel == 0 && m.deltaNet():
		s.Slots = 1
		s.Args = append(s.Args, "-np", "1")
	}
	p.add(&s.Env, p.m.runtime(o.LibHSA)...)
	if len(off) > 0 {
		p.add(&s.Env, dispatch+strings.Join(off, ","))
	}
	return nil
}

// stamps adds what a file's stamps ask for.
func (p *planner) stamps(s *ChildSpec, m Model) {
	switch {
	case s.Device == engine.ROCm && m.Hadamard:
		p.add(&s.Env, "GGML_W4A4_TENSORS=all")
	case s.Device == engine.HRX && m.Ternary:
		p.add(&s.Env, "GGML_HRX_TERNARY_Q4_0=1")
		p.note("the file is ternary (onebit.ternary_q4_0 = 128): GGML_HRX_TERNARY_Q4_0=1, which takes about 30%% of the file's size more GPU memory")
	}
}

// draftKey is the metadata key of a draft head that has a part of the vocabulary only.
const draftKey = "onebit.draft_vocab"

// drafting appends a draft model.
func (p *planner) drafting(s *ChildSpec, o Options) error {
	kind, file, option := o.drafter()
	if kind == recipe.NoDrafter {
		return nil
	}
	if err := readable(option, file); err != nil {
		return err
	}
	draft := probeGGUF(file)
	if draft.DraftVocab > 0 && !mentions(s.Program, draftKey) {
		return fmt.Errorf("%s %s drafts from %d tokens of the vocabulary (%s), which %s on --device %s cannot run: neither it nor the llama libraries beside it know that key; use the fork's llama-server, or the full head",
			option, file, draft.DraftVocab, draftKey, s.Program, s.Device)
	}
	most := o.DraftMax
	if most == 0 && kind == recipe.DFlash {
		// whole blocks: the server's own 3 throws most of the gain away
		block := int64(16)
		if draft.BlockSize > 1 {
			block = draft.BlockSize
		}
		most = int(block) - 1
	}
	s.Args = append(s.Args, "--spec-type", "draft-"+string(kind), "-md", file, "-ngld", "99")
	s.Args = optional(s.Args, most > 0, "--spec-draft-n-max", strconv.Itoa(most))
	s.Args = optional(s.Args, o.DraftPMin != "", "--spec-draft-p-min", o.DraftPMin)
	return nil
}

// readable makes sure that an option's file is there.
func readable(option, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("%s %s: %w", option, file, reason(err))
	}
	return f.Close()
}

// finish appends recipes, the role, and what the caller wants behind all.
func (p *planner) finish(s *ChildSpec, o Options, m Model) {
	var tail []string
	if s.Role != recipe.Chat {
		batch := "8192"
		if o.Context > 0 {
			batch = strconv.Itoa(o.Context)
		}
		tail = []string{"--" + string(s.Role), "-b", batch, "-ub", batch}
	}
	kind, _, _ := o.drafter()
	r := p.recipes.Apply(recipe.Query{
		Device: s.Device, Architecture: m.Architecture, Drafter: kind, Role: s.Role, MoE: m.Experts, Hadamard: m.Hadamard, Parallel: o.Parallel,
	}, slices.Concat(s.Args, tail), slices.Concat(p.m.Environ, s.Env))
	s.Args = slices.Concat(s.Args, r.Args, tail, o.Append)
	s.Env = append(s.Env, r.Env...)
	p.plan.Recipes = append(p.plan.Recipes, r.Applied...)
	p.plan.Warnings = append(p.plan.Warnings, r.Warnings...)
}
