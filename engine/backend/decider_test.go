package backend_test

import (
	"strings"
	"testing"

	"onebit/engine"
	"onebit/engine/backend"
)

// TestPlanDecider has a row for each place where a decision model runs.
func TestPlanDecider(t *testing.T) {
	m := models(t)
	for _, c := range []struct {
		name    string
		box     map[string]string
		options options
		want    string // the device and part of the command line, or the refusal
	}{
		{"hrx first", strix, options{Model: "DIR/m/embed.gguf"}, "hrx -m DIR/m/embed.gguf --host 127.0.0.1 --port 4242 --device HRX0 -ngl 99 -c 2048 -b 2048 -ub 2048 -np 1"},
		{"as asked", strix, options{Model: "DIR/m/embed.gguf", Device: engine.Vulkan}, "vulkan -m DIR/m/embed.gguf --host 127.0.0.1 --port 4242 --device Vulkan0 -ngl 99"},
		{"on the processor", strix, options{Model: "DIR/m/embed.gguf", Device: engine.CPU}, "cpu -m DIR/m/embed.gguf --host 127.0.0.1 --port 4242 -ngl 0"},
		{"nowhere", bare, options{Model: "DIR/m/embed.gguf"}, "or in the daemon that ONEBIT_LAYA_GGML names"},
		{"no file", strix, options{Model: "DIR/m/gone.gguf"}, "no such file"},
		{"no GGUF", strix, options{Model: "DIR/m/npu"}, "is no GGUF file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBox(t, m, c.box)
			spec, err := backend.PlanDecider(t.Context(), b.machine, planOptions(b, c.options))
			got := string(spec.Device) + " " + strings.Join(spec.Command(4242).Args, " ")
			if err != nil {
				got = err.Error()
			}
			if got = strings.ReplaceAll(got, b.dir, "DIR"); !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
