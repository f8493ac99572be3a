package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onebit/appliance/doctor"
	"onebit/engine"
	"onebit/engine/sandbox"
)

const gib = 1 << 30

// box is a made-up machine: files of its root, programs, and devices that it does not let us use.
type box struct {
	files    map[string]string
	programs map[engine.Device]string // path by device
	devices  map[string]string        // what --list-devices prints, by path of the program
	denied   []string                 // devices that we may not open
	env      map[string]string
	goos     string // "" is linux
	level    string // "" is avx512
	sandbox  sandbox.Support
	free     uint64 // of the disk; 0 is 500 GB
	calls    []doctor.Call
}

// machine is a Linux machine without a GPU. Sizes are in bytes.
func machine(total, available uint64) *box {
	return &box{files: map[string]string{
		"proc/cpuinfo":              "processor\t: 0\nmodel name\t: AMD RYZEN AI MAX+ 395 w/ Radeon 8060S\nflags\t\t: fpu\n",
		"proc/meminfo":              fmt.Sprintf("MemTotal: %d kB\nMemAvailable: %d kB\n", total>>10, available>>10),
		"proc/cmdline":              "BOOT_IMAGE=/vmlinuz root=/dev/sda2 quiet\n",
		"proc/sys/kernel/osrelease": "6.17.4-arch1-1\n",
		"proc/self/cgroup":          "0::/\n",
	}, level: "avx512", sandbox: sandbox.Support{Landlock: 7, Filter: true}}
}

// halo is a Strix Halo whose driver reports such memory. Sizes are in bytes.
func halo(total, available, vram, vramUsed, gtt, gttUsed uint64) *box {
	b := machine(total, available)
	for name, text := range map[string]string{
		"sys/class/drm/card0/device/vendor":              "0x1002",
		"sys/class/drm/card0/device/device":              "0x1586",
		"sys/class/drm/card0/device/uevent":              "DRIVER=amdgpu\nPCI_CLASS=38000",
		"sys/class/drm/card0/device/mem_info_vram_total": fmt.Sprint(vram),
		"sys/class/drm/card0/device/mem_info_vram_used":  fmt.Sprint(vramUsed),
		"sys/class/drm/card0/device/mem_info_gtt_total":  fmt.Sprint(gtt),
		"sys/class/drm/card0/device/mem_info_gtt_used":   fmt.Sprint(gttUsed),
		"sys/class/drm/card0-HDMI-A-1/status":            "connected",
		"sys/class/kfd/kfd/topology/nodes/0/properties":  "cpu_cores_count 32\nsimd_count 0\ngfx_target_version 0",
		"sys/class/kfd/kfd/topology/nodes/1/properties":  "simd_count 80\nvendor_id 4098\ndevice_id 5510\ngfx_target_version 110501",
		"sys/class/accel/accel0/device/fw_version":       "1.1.2.65",
		"dev/kfd":            "",
		"dev/dri/card0":      "",
		"dev/dri/renderD128": "",
		"dev/accel/accel0":   "",
		"opt/rocm-therock/7.10/lib/libhsa-runtime64.so.1": "",
	} {
		b.files[name] = text + "\n"
	}
	return b
}

// complete is a Strix Halo with everything in place.
func complete() *box {
	b := halo(125*gib, 118*gib, gib/2, gib/4, 112*gib, gib)
	b.programs = map[engine.Device]string{}
	b.devices = map[string]string{
		"/opt/1bit/vulkan/llama-server": "load_backend: loaded\nAvailable devices:\n  Vulkan0: Radeon 8060S Graphics (RADV GFX1151) (98304 MiB, 97000 MiB free)\n",
		"/opt/1bit/hrx/llama-server":    "Available devices:\n  HRX0: gfx1151\n  Vulkan0: Radeon\n",
		"/opt/1bit/rocm/llama-server":   "Available devices:\n  ROCm0: Radeon 8060S\n",
	}
	for d, name := range map[engine.Device]string{
		engine.Vulkan: "llama-server", engine.HRX: "llama-server", engine.ROCm: "llama-server", engine.Zinc: "zinc", engine.DS4: "ds4-server",
		engine.MLX: "lemon-mlx-server", engine.NPU: "npu-server", engine.ONNX: "ryzenai-server",
	} {
		b.programs[d] = "/opt/1bit/" + string(d) + "/" + name
	}
	b.files["home/cache/1bit/models/0123/model.gguf"] = strings.Repeat("x", 1<<20)
	b.files["home/cache/1bit/models/0123/model.gguf.ok"] = "stamp"
	return b
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// examine builds the box's root in a folder and lets the doctor look at it. The folder's name is taken out of texts.
func (b *box) examine(t testing.TB) doctor.Report {
	t.Helper()
	root := t.TempDir()
	for name, text := range b.files {
		path := filepath.Join(root, filepath.FromSlash(name))
		must(t, os.MkdirAll(filepath.Dir(path), 0o777))
		must(t, os.WriteFile(path, []byte(text), 0o666))
	}
	goos, free := b.goos, b.free
	if goos == "" {
		goos = "linux"
	}
	if free == 0 {
		free = 500e9
	}
	inside := func(path string) string {
		rel, err := filepath.Rel(root, path)
		must(t, err)
		return "/" + filepath.ToSlash(rel)
	}
	r := doctor.Examine(t.Context(), doctor.Box{
		Root: root, GOOS: goos, GOARCH: "amd64", Cores: 32, Level: b.level, Sandbox: b.sandbox,
		Models: filepath.Join(root, "home", "cache", "1bit", "models"), Prefix: filepath.Join(root, "usr"),
		Getenv: func(name string) string { return b.env[name] },
		Access: func(path string) error {
			if slices.Contains(b.denied, inside(path)) {
				return &fs.PathError{Op: "access", Path: path, Err: fs.ErrPermission}
			}
			return nil
		},
		Space: func(string) (uint64, error) { return free, nil },
		Programs: func(d engine.Device) (doctor.Program, error) {
			if p := b.programs[d]; p != "" {
				return doctor.Program{Path: p, From: "part of this installation"}, nil
			}
			return doctor.Program{}, fmt.Errorf("no program for %s", d)
		},
		Run: func(ctx context.Context, c doctor.Call) (string, error) {
			if _, ok := ctx.Deadline(); !ok {
				t.Error("a program was run without a limit")
			}
			b.calls = append(b.calls, c)
			switch {
			case c.Args[0] == "--version":
				return "\nversion: 11434 (abcdef)\nbuilt with GNU\n", nil
			case b.devices[c.Path] == "":
				return "error while loading shared libraries", errors.New("exit status 127")
			}
			return b.devices[c.Path], nil
		},
	})
	for i := range r.Checks {
		r.Checks[i].Text = strings.ReplaceAll(filepath.ToSlash(r.Checks[i].Text), filepath.ToSlash(root), "")
	}
	return r
}

// find returns the first check of a name that has a status, or just the first one.
func find(t testing.TB, r doctor.Report, name string, s doctor.Status) doctor.Check {
	t.Helper()
	var first *doctor.Check
	for i, c := range r.Checks {
		if c.Name == name && c.Status == s {
			return c
		}
		if c.Name == name && first == nil {
			first = &r.Checks[i]
		}
	}
	if first == nil {
		t.Fatalf("nothing is said about %q", name)
	}
	return *first
}
