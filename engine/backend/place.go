package backend

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"onebit/engine"
	enginemodel "onebit/engine/model"
	"onebit/engine/recipe"
)

// bound says which devices alone can run a model, the usual one first, and what makes it so. A plain GGUF file is bound
// to no one device.
func (m Model) bound() (devices []engine.Device, because string) {
	switch {
	case m.Kind == GenAI:
		return []engine.Device{engine.ONNX}, "is a directory of ONNX Runtime GenAI"
	case m.Kind == Q4NX:
		return []engine.Device{engine.NPU}, "is a Q4NX directory"
	case m.Kind == Hub:
		return []engine.Device{engine.MLX}, "is an id of Hugging Face"
	case m.Kind == Container:
		return []engine.Device{engine.DS4}, "is a 1BP container"
	case m.Hadamard:
		return []engine.Device{engine.ROCm, engine.HRX}, "is Hadamard-rotated (onebit.hadamard_q4_0 = 32)"
	case m.Prism:
		return []engine.Device{engine.HRX}, "is Hadamard-rotated (prism.hadamard.version)"
	case m.compact():
		return []engine.Device{engine.HRX}, fmt.Sprintf("is of a type that hrx alone has (general.file_type = %d)", m.FileType)
	}
	return nil, ""
}

// place chooses the device.
func (p *planner) place(ctx context.Context, model Model) error {
	wish := p.o.Device
	p.auto = wish == engine.Auto || wish == ""
	devices, because := model.bound()
	if devices != nil {
		return p.placeBound(wish, devices, because)
	}
	switch {
	case wish == engine.NPU:
		return fmt.Errorf("--device npu takes a Q4NX directory (model.q4nx), not the GGUF file %q; use --device auto", p.o.Model)
	case wish == engine.ONNX:
		return fmt.Errorf("--device onnx takes a directory with genai_config.json, not the GGUF file %q; use --device auto", p.o.Model)
	case p.o.Adaptive && !p.auto && wish != engine.Vulkan:
		return fmt.Errorf("--adaptive runs on vulkan and rocm, not on --device %s; use --device vulkan or auto", wish)
	case !p.auto:
		p.plan.Device, p.plan.Why = wish, "as asked"
		if p.o.classified() {
			p.warn("--laya has no effect with --device %s; it takes --device auto", wish)
		}
	case p.o.classified():
		return p.candidates(ctx, model)
	default:
		if err := p.choose(ctx, model); err != nil {
			return err
		}
	}
	if p.plan.Device == engine.CPU {
		return p.checkBuiltin(model)
	}
	return nil
}

// placeBound handles models that only certain devices run.
func (p *planner) placeBound(wish engine.Device, devices []engine.Device, because string) error {
	if !p.auto && !slices.Contains(devices, wish) {
		return fmt.Errorf("--device %s: the model %q %s and runs on %s only; use --device %s or auto", wish, p.o.Model, because, choices(devices), devices[0])
	}
	if p.o.classified() && p.auto {
		return fmt.Errorf("--laya: the model %q %s and runs on %s only, so there is nothing to choose; leave --laya out", p.o.Model, because, choices(devices))
	}
	if p.o.Adaptive {
		return fmt.Errorf("--adaptive runs on vulkan and rocm, but the model %q %s and runs on %s only; leave --adaptive out", p.o.Model, because, choices(devices))
	}
	p.plan.Device, p.plan.Why = wish, "as asked"
	if p.auto {
		p.plan.Device, p.plan.Why = devices[0], "auto: the model "+because
	}
	return nil
}

// choices joins devices for a sentence.
func choices(devices []engine.Device) string {
	words := make([]string, len(devices))
	for i, d := range devices {
		words[i] = string(d)
	}
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

func (p *planner) note(format string, args ...any) {
	p.plan.Notes = append(p.plan.Notes, fmt.Sprintf(format, args...))
}

func (p *planner) warn(format string, args ...any) {
	p.plan.Warnings = append(p.plan.Warnings, fmt.Sprintf(format, args...))
}

// choose is the rule of --device auto for a plain GGUF file: what an option needs; hrx where a llama-server lists HRX0,
// unless vulkan is known to do better; vulkan where one lists Vulkan0; else the processor.
func (p *planner) choose(ctx context.Context, model Model) error {
	if option := p.vulkanOption(); option != "" {
		p.plan.Device, p.plan.Why = engine.Vulkan, "auto: "+option+" runs on vulkan"
		return nil
	}
	hrx, noHRX, err := p.offered(ctx, engine.HRX)
	if err != nil {
		return err
	}
	move := p.better(model)
	if hrx != "" && move == "" {
		p.plan.Device, p.plan.Why = engine.HRX, "auto: "+filepath.Base(hrx)+" lists HRX0"
		return nil
	}
	vulkan, noVulkan, err := p.offered(ctx, engine.Vulkan)
	switch {
	case err != nil:
		return err
	case vulkan != "" && hrx != "":
		p.plan.Device, p.plan.Why = engine.Vulkan, "auto: "+move
	case vulkan != "":
		p.plan.Device, p.plan.Why = engine.Vulkan, "auto: "+filepath.Base(vulkan)+" lists Vulkan0"
	case hrx != "" && !model.beyondHRX():
		p.plan.Device, p.plan.Why = engine.HRX, "auto: "+filepath.Base(hrx)+" lists HRX0"
		p.warn("%s, but no llama-server with Vulkan0 is here (%s)", move, noVulkan)
		if p.oneSlot = p.o.Parallel > 1 && model.deltaNet(); p.oneSlot {
			p.warn("--parallel %d: hrx runs one sequence at a time on the architecture %s; it gets one slot", p.o.Parallel, model.Architecture)
		}
	default:
		p.plan.Device, p.plan.Why = engine.CPU, "auto: no GPU can be used: "+both(noHRX, noVulkan)
	}
	return nil
}

// both joins why there is neither hrx nor vulkan.
func both(noHRX, noVulkan string) string {
	switch noVulkan {
	case noHRX:
		return noHRX
	case strings.ReplaceAll(noHRX, "HRX0", "Vulkan0"):
		return strings.ReplaceAll(noHRX, "HRX0", "HRX0 or Vulkan0")
	}
	return noHRX + "; " + noVulkan
}

// vulkanOption returns the option that works on vulkan alone, so that auto means vulkan.
func (p *planner) vulkanOption() string {
	switch {
	case p.o.Adaptive:
		return "--adaptive"
	case p.o.moe():
		return "--moe-slots"
	case p.o.PrefillDevice != "":
		return "--prefill-device"
	case p.o.Lean:
		return "--lean"
	}
	return ""
}

// better says why vulkan does better than hrx; empty when it does not.
func (p *planner) better(model Model) string {
	switch {
	case p.o.MTP != "":
		return "--mtp drafts faster on vulkan than on hrx"
	case p.o.Mmproj != "":
		return "--mmproj is served on vulkan"
	case model.beyondHRX():
		return "hrx does not have the architecture " + model.Architecture
	case p.o.Parallel > 1 && model.deltaNet():
		return "hrx runs one sequence at a time on the architecture " + model.Architecture
	}
	return ""
}

// builtin reports whether the processor's work is done by our own engine: chats, and the roles of the architectures that
// it has for them.
func (p *planner) builtin() bool {
	return p.plan.Device == engine.CPU && p.o.LlamaServer == "" && (p.o.role() == recipe.Chat || p.encodes)
}

// encodes reports whether our own engine makes embeddings or scores with a model.
func encodes(model Model) bool {
	return slices.Contains(enginemodel.EncoderArchitectures(), model.Architecture)
}

// ModelError is why our own engine does not serve a model, with the options of `serve` that help. Other commands have others.
type ModelError struct{ Where, Fault, Options string }

func (e *ModelError) Error() string {
	if e.Where == "" {
		return e.Fault + ": " + e.Options
	}
	return e.Where + ": " + e.Fault + "; " + e.Options
}

// checkBuiltin refuses architectures that our own engine does not run. One that cannot be read is left to it.
func (p *planner) checkBuiltin(model Model) error {
	known := enginemodel.Architectures()
	switch {
	case p.builtin() && p.encodes && p.o.role() == recipe.Chat:
		return &ModelError{
			Fault:   fmt.Sprintf("the model %q makes embeddings or ranks texts (architecture %s)", p.o.Model, model.Architecture),
			Options: "give --embedding or --reranking, or --embed or --rerank beside a chat model",
		}
	case p.encodes:
		return nil
	}
	if !p.builtin() || model.Architecture == "" || slices.Contains(known, model.Architecture) {
		return nil
	}
	where := "--device cpu"
	if p.auto {
		where += ", which was chosen (" + p.plan.Why + ")"
	}
	return &ModelError{
		Where:   where,
		Fault:   fmt.Sprintf("the built-in engine does not run the architecture %.80q (it runs %s)", model.Architecture, strings.Join(known, ", ")),
		Options: "give --llama-server PATH to run it with llama.cpp, or a device that this box has",
	}
}
