package backend

import (
	"context"
	"fmt"

	"onebit/engine"
	"onebit/engine/recipe"
)

// deciderTokens is what a decision model reads of a question at most. It must have all of it in one batch.
const deciderTokens = "2048"

// PlanDecider plans a llama-server for a decision model, o.Model: on o.Device, or with auto on HRX0 where there is one, else on
// Vulkan0, else on the processor.
func PlanDecider(ctx context.Context, m *Machine, o Options) (ChildSpec, error) {
	p := &planner{m: m, o: o, plan: &Plan{}}
	model, err := Probe(o.Model, engine.Auto)
	if err == nil && model.Kind != GGUF {
		err = fmt.Errorf("the model %q is no GGUF file", o.Model)
	}
	if err != nil {
		return ChildSpec{}, err
	}
	s := ChildSpec{Device: engine.CPU, Role: recipe.Chat, Name: stem(o.Model), Ready: "/health", Slots: 1, ModelField: DropModel, Dialect: Llama}
	for _, d := range []engine.Device{engine.HRX, engine.Vulkan} {
		if s.Program != "" || o.Device != engine.Auto && o.Device != "" && o.Device != d {
			continue
		}
		if s.Program, _, err = p.offered(ctx, d); err != nil {
			return s, err
		}
		s.Device = d
	}
	if s.Program == "" {
		s.Device = engine.CPU
		if s.Program, err = m.find(cpuServer, o.LlamaServer); err != nil {
			return s, fmt.Errorf("a decision model runs on a llama-server, or in the daemon that ONEBIT_LAYA_GGML names: %w", err)
		}
	}
	if s.Device == engine.HRX {
		p.add(&s.Env, m.runtime(o.LibHSA)...)
	}
	s.Args = append(llamaHead(o.Model, s.Device), "-c", deciderTokens, "-b", deciderTokens, "-ub", deciderTokens, "-np", "1")
	return s, nil
}

// RuntimeOf are the variables that a program on HRX0 needs beside the environment; o names the library, or leaves it to us.
func RuntimeOf(m *Machine, o Options) []string { return m.runtime(o.LibHSA) }
