package backend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"onebit/engine"
)

// candidateDevices are those that a policy chooses among, in the order in which they are taken when it leaves it open. Each takes
// plain GGUF files.
var candidateDevices = []engine.Device{engine.HRX, engine.Vulkan, engine.ROCm, engine.Zinc, engine.CPU}

// candidates plans the model on each device that can have it. What cannot be planned is left out with a note.
func (p *planner) candidates(ctx context.Context, model Model) error {
	var specs []ChildSpec
	var without []string
	for _, d := range candidateDevices {
		spec, err := p.candidate(ctx, model, d)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			without = append(without, fmt.Sprintf("%s (%v)", d, err))
		default:
			specs = append(specs, spec)
		}
	}
	if len(specs) == 0 {
		return fmt.Errorf("--laya: no device can have the model: %s", strings.Join(without, "; "))
	}
	names := make([]engine.Device, len(specs))
	for i, s := range specs {
		names[i] = s.Device
	}
	p.note("--laya chooses %s; a backend starts when it is first chosen", choices(names))
	for _, w := range without {
		p.note("--laya: no candidate: %s", w)
	}
	p.plan.Mode, p.plan.Device, p.plan.Why = Classified, specs[0].Device, "--laya chooses for each conversation"
	p.plan.Primary, p.plan.Others = specs[0], specs[1:]
	return nil
}

// candidate plans the model on one device, as if it were asked for alone.
func (p *planner) candidate(ctx context.Context, model Model, d engine.Device) (ChildSpec, error) {
	one := *p
	one.o.Device, one.o.Laya, one.o.LayaModel, one.auto = d, false, "", false
	one.plan = &Plan{Mode: Single, Name: p.plan.Name, Device: d, Why: "as a candidate"}
	if err := one.checkDevice(d); err != nil {
		return ChildSpec{}, err
	}
	switch d {
	case engine.HRX, engine.Vulkan:
		program, why, err := one.offered(ctx, d)
		switch {
		case err != nil:
			return ChildSpec{}, err
		case program == "":
			return ChildSpec{}, errors.New(why)
		case d == engine.HRX && model.beyondHRX():
			return ChildSpec{}, fmt.Errorf("hrx does not have the architecture %s", model.Architecture)
		}
	case engine.CPU:
		if err := one.checkBuiltin(model); err != nil {
			return ChildSpec{}, err
		}
	}
	spec, err := one.spec(ctx, one.o, model, d)
	if err != nil {
		return ChildSpec{}, err
	}
	for _, l := range []struct {
		to   *[]string
		from []string
	}{{&p.plan.Recipes, one.plan.Recipes}, {&p.plan.Notes, one.plan.Notes}, {&p.plan.Warnings, one.plan.Warnings}} {
		for _, line := range l.from {
			if !slices.Contains(*l.to, line) {
				*l.to = append(*l.to, line)
			}
		}
	}
	return spec, nil
}
