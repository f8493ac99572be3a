package main_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	main "onebit/appliance"
	"onebit/appliance/config"
	"onebit/appliance/doctor"
	"onebit/appliance/pool"
	"onebit/engine"
)

const gib = 1 << 30

// card is a tree of /proc and /sys of a Strix Halo whose driver reports such memory, in bytes.
func card(t *testing.T, total, available, vram, vramUsed, gtt, gttUsed uint64) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"proc/meminfo":                                   fmt.Sprintf("MemTotal: %d kB\nMemAvailable: %d kB\n", total>>10, available>>10),
		"proc/sys/kernel/osrelease":                      "6.17.4",
		"sys/class/drm/card0/device/vendor":              "0x1002",
		"sys/class/drm/card0/device/device":              "0x1586",
		"sys/class/drm/card0/device/uevent":              "DRIVER=amdgpu",
		"sys/class/drm/card0/device/mem_info_vram_total": fmt.Sprint(vram),
		"sys/class/drm/card0/device/mem_info_vram_used":  fmt.Sprint(vramUsed),
		"sys/class/drm/card0/device/mem_info_gtt_total":  fmt.Sprint(gtt),
		"sys/class/drm/card0/device/mem_info_gtt_used":   fmt.Sprint(gttUsed),
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// resident is a loaded model that does nothing.
type resident struct {
	done chan struct{}
	open bool
}

func (r *resident) Backend() engine.Backend { return slots{} }
func (r *resident) Info() engine.Info       { return engine.Info{} }
func (r *resident) Done() <-chan struct{}   { return r.done }
func (r *resident) Err() error              { return nil }

// slots is a backend of which only the number of slots is asked.
type slots struct{ engine.Backend }

func (slots) Slots() int { return 1 }

func (r *resident) Stop() {
	if r.open {
		r.open = false
		close(r.done)
	}
}

// TestFullCarveOut is case T16: 2 GB carved out and 99% full, 98 GB of GTT free. Nobody is evicted.
func TestFullCarveOut(t *testing.T) {
	root := card(t, 125*gib, 118*gib, 2*gib, 2*gib-20<<20, 100*gib, 2*gib)
	synctest.Test(t, func(t *testing.T) {
		p, err := pool.New(pool.Config{
			Log:    slog.New(slog.DiscardHandler),
			Memory: func() pool.Budget { return main.Budget(doctor.ReadMemory(root), config.Memory{}) },
			Start: func(context.Context, pool.ModelSpec) (pool.Instance, error) {
				return &resident{done: make(chan struct{}), open: true}, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.Run(ctx) }()
		defer func() { stop(); <-ended }()
		var specs []pool.ModelSpec
		for i, d := range []engine.Device{engine.Vulkan, engine.ROCm, engine.Vulkan, engine.HRX} {
			specs = append(specs, pool.ModelSpec{Name: fmt.Sprint(i), Need: pool.Need{Device: d, Bytes: 20 * gib, Host: gib / 4}})
		}
		if err := p.Set(specs); err != nil {
			t.Fatal(err)
		}
		for range 120 { // two hours
			for _, s := range specs {
				if err := p.Load(t.Context(), s.Name); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Minute)
		}
		for _, c := range p.Counts() {
			if c.Evictions != 0 || c.Loads != 1 {
				t.Errorf("%+v", c)
			}
		}
	})
}

func TestBudget(t *testing.T) {
	for _, c := range []struct {
		name string
		m    doctor.Memory
		host pool.Memory // GiB
		all  uint64
	}{
		{"a large box", doctor.Memory{Host: doctor.Share{Total: 128 * gib, Free: 100 * gib}}, pool.Memory{Total: 112, Free: 92}, 0},
		{"a small box", doctor.Memory{Host: doctor.Share{Total: 16 * gib, Free: 12 * gib}}, pool.Memory{Total: 14, Free: 11}, 0},
		{"nothing free", doctor.Memory{Host: doctor.Share{Total: 16 * gib}}, pool.Memory{Total: 14, Free: 0}, 0},
		{"unknown", doctor.Memory{}, pool.Memory{}, 0},
		{"unified", doctor.Memory{Host: doctor.Share{Total: 128 * gib, Free: 100 * gib}, Unified: true, Carved: 2 * gib}, pool.Memory{Total: 112, Free: 92}, 114},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := main.Budget(c.m, config.Memory{})
			if b.Host.Total/gib != c.host.Total || b.Host.Free/gib != c.host.Free || b.Together/gib != c.all {
				t.Errorf("%+v", b)
			}
		})
	}
}

func TestBudgetAsConfigured(t *testing.T) {
	m := doctor.Memory{Host: doctor.Share{Total: 128 * gib, Free: 100 * gib}, Unified: true, Carved: 2 * gib}
	b := main.Budget(m, config.Memory{Reserve: 28 * gib, Limit: 64 * gib})
	if b.Host.Total != 64*gib || b.Together != 64*gib || b.Host.Free != 86*gib {
		t.Errorf("%+v", b)
	}
}
