package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"onebit/engine"
	"onebit/engine/backend"
)

// patience is how long a program may take to say what it is.
const patience = 10 * time.Second

// served lists the devices that somebody else's program serves, in the order of the report.
var served = [...]engine.Device{
	engine.Vulkan, engine.HRX, engine.ROCm, engine.Zinc, engine.DS4, engine.MLX, engine.NPU, engine.ONNX,
}

// llama says by which devices a llama-server is asked what it can run on, and how it names them.
var llama = map[engine.Device]string{engine.Vulkan: "Vulkan", engine.HRX: "HRX", engine.ROCm: "ROCm"}

// remedies say where a device's server comes from.
var remedies = map[engine.Device]string{
	engine.Vulkan: "install a llama-server built with Vulkan, or give --llama-server PATH",
	engine.HRX:    "install a llama-server built with HRX, or give --llama-server PATH",
	engine.ROCm:   "install a llama-server built with ROCm, or give --llama-server PATH",
	engine.Zinc:   "install zinc, or give --zinc PATH",
	engine.DS4:    "install ds4-server, or give --ds4 PATH",
	engine.MLX:    "install lemon-mlx-server, or give --mlx-server PATH",
	engine.NPU:    "install an NPU server, or give --npu PATH",
	engine.ONNX:   "install ryzenai-server, or set ONEBIT_ONNX_SERVER",
}

// servers looks for the programs and asks them what they are.
func (e *exam) servers() {
	for _, d := range served {
		name := string(d) + " server"
		p, err := e.Programs(d)
		if err != nil {
			e.missing[d] = err
			e.add(name, Miss, err.Error(), remedies[d])
			continue
		}
		e.programs[d] = p
		text := p.Path
		if p.From != "" {
			text += " (" + p.From + ")"
		}
		if v := e.version(p); v != "" {
			text += ", " + v
		}
		prefix, isLlama := llama[d]
		if !isLlama {
			e.add(name, OK, text, "")
			continue
		}
		list, err := e.devices(p)
		switch {
		case err != nil:
			e.missing[d] = fmt.Errorf("%s does not say what it can run on: %w", p.Path, err)
			e.add(name, Miss, text+": --list-devices failed: "+err.Error(), "run it by hand to see why; a library may be missing")
		case !slices.ContainsFunc(list, func(s string) bool { return strings.HasPrefix(s, prefix) }):
			e.missing[d] = fmt.Errorf("%s offers no %s device", p.Path, prefix)
			e.add(name, Miss, text+": its devices are "+strings.Join(orNone(list), ", "), e.why(d))
		default:
			e.add(name, OK, text+": "+strings.Join(list, ", "), "")
		}
	}
}

func orNone(list []string) []string {
	if len(list) == 0 {
		return []string{"none"}
	}
	return list
}

// why says what to do about a llama-server that offers no device of a kind.
func (e *exam) why(d engine.Device) string {
	switch {
	case e.render != nil:
		return "it can use no GPU while the render node cannot be opened; see there"
	case d != engine.Vulkan && e.kfd != nil:
		return "it can use no GPU while /dev/kfd cannot be opened; see there"
	case d == engine.HRX && e.library == "" && e.GOOS == "linux":
		return "hrx finds no device without the HSA runtime; see there"
	}
	return remedies[d]
}

// version asks a program for its version and returns the first line with a digit in it, "" when it does not say.
func (e *exam) version(p Program) string {
	ctx, cancel := context.WithTimeout(e.ctx, patience)
	defer cancel()
	out, err := e.Run(ctx, Call{Path: p.Path, Args: []string{"--version"}})
	if err != nil {
		return ""
	}
	for line := range strings.Lines(out) {
		if line = printable(strings.TrimSpace(line)); strings.ContainsAny(line, "0123456789") {
			return line
		}
	}
	return ""
}

// devices asks a llama-server what it can run on. Each program is asked once.
func (e *exam) devices(p Program) ([]string, error) {
	if list, ok := e.lists[p.Path]; ok {
		return list, nil
	}
	ctx, cancel := context.WithTimeout(e.ctx, patience)
	defer cancel()
	call := Call{Path: p.Path, Args: []string{"--list-devices"}}
	if e.library != "" {
		call.Env = []string{runtimeVar + "=" + e.library}
	}
	out, err := e.Run(ctx, call)
	if err != nil {
		return nil, err
	}
	list, err := backend.ParseDevices(out)
	if err == nil {
		e.lists[p.Path] = list
	}
	return list, err
}

// judge says for each device whether a model can run on it.
func (e *exam) judge() {
	add := func(d engine.Device, why error, how string) {
		if why != nil {
			how = why.Error()
		}
		e.report.Devices = append(e.report.Devices, Device{Device: d, Usable: why == nil, Why: printable(how)})
	}
	var short error
	if e.report.Memory > 0 && e.report.Available < leastMemory {
		short = fmt.Errorf("only %s of memory are available", gib(e.report.Available))
	}
	add(engine.CPU, short, "the built-in engine, kernels for "+e.Level)
	for _, d := range served {
		why := e.missing[d]
		if why == nil {
			why = e.blocked(d)
		}
		how := e.programs[d].Path
		if n := e.usableMemory(d); n > 0 && llama[d] != "" {
			how += ", up to " + gib(n)
		}
		add(d, why, how)
	}
}

// blocked says what keeps a device whose server is there from being used. A llama-server that lists a device has
// reached it already.
func (e *exam) blocked(d engine.Device) error {
	switch {
	case e.GOOS != "linux":
		return nil
	case d == engine.Zinc:
		return e.render
	case d == engine.NPU:
		return e.npu
	}
	return nil
}
