package doctor_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onebit/appliance/doctor"
	"onebit/engine"
)

var update = flag.Bool("update", false, "write the files under testdata anew")

// pools are machines as firmware and kernel set them up, with the truth about what can be had, in GiB.
var pools = []struct {
	name         string
	box          *box
	release      string
	vulkan, rocm float64
	status       doctor.Status // of the memory
	remedy       string
}{
	{"128 GB, small carve-out, pages limit raised", halo(125*gib, 118*gib, gib/2, gib/8, 112*gib, 0), "6.17.4", 112.4, 112, doctor.OK, ""},
	{"128 GB, small carve-out, half of the memory by default", halo(125*gib, 118*gib, gib/2, 0, 62.5*gib, 0), "6.16.9", 63, 62.5, doctor.Warn, "ttm.pages_limit=28573696 ttm.page_pool_size=28573696 (109 GiB)"},
	{"128 GB, carve-out of 96 GB", halo(31*gib, 27*gib, 96*gib, gib, 15.5*gib, 0), "6.17.0-rc3", 110.5, 95, doctor.OK, ""},
	{"128 GB, carve-out of 2 GB nearly full, 98 GB of GTT free", halo(123*gib, 116*gib, 2*gib, 2*gib/100*99, 98*gib, 0), "6.18.1", 98.02, 98, doctor.OK, ""},
	{"64 GB, an old kernel", halo(62*gib, 58*gib, gib/2, 0, 46*gib, 0), "6.14.0-37-generic", 46.5, 14.43, doctor.OK, ""},
	{"96 GB, most of the memory taken", halo(94*gib, 20*gib, gib/2, 0, 80*gib, 4*gib), "6.17.4", 20.5, 20, doctor.OK, ""},
	{"128 GB, carve-out of 64 GB", halo(62*gib, 57*gib, 64*gib, gib, 31*gib, gib), "6.17.4", 93, 63, doctor.OK, ""},
	{"32 GB, carve-out of 8 GB and little GTT", halo(23*gib, 20*gib, 8*gib, 0, 2*gib, 0), "6.17.4", 10, 8, doctor.Warn, "ttm.pages_limit=3670016 "},
}

// What a program can have is told within 5% of the truth (T16, T17).
func TestPools(t *testing.T) {
	for _, c := range pools {
		t.Run(c.name, func(t *testing.T) {
			c.box.files["proc/sys/kernel/osrelease"] = c.release + "\n"
			r := c.box.examine(t)
			if len(r.Cards) != 1 {
				t.Fatalf("cards: %+v", r.Cards)
			}
			for _, m := range []struct {
				name      string
				got       uint64
				truth     float64
				tolerance float64
			}{{"vulkan", r.Cards[0].Vulkan, c.vulkan, 0.05}, {"rocm", r.Cards[0].ROCm, c.rocm, 0.05}} {
				if got := float64(m.got) / gib; math.Abs(got-m.truth) > m.tolerance*m.truth {
					t.Errorf("%s can have %.1f GiB, not %.1f", m.name, got, m.truth)
				}
			}
			check := find(t, r, "gpu memory", c.status)
			if check.Status != c.status || !strings.Contains(check.Remedy, c.remedy) || (check.Remedy == "") != (c.remedy == "") {
				t.Errorf("%+v, want %s with %q", check, c.status, c.remedy)
			}
		})
	}
}

// A card with memory of its own does not count the machine's.
func TestDedicatedCard(t *testing.T) {
	b := halo(125*gib, 118*gib, 24*gib, gib, 62*gib, 0)
	b.files["sys/class/drm/card0/device/device"] = "0x744c\n"
	r := b.examine(t)
	if c := r.Cards[0]; c.Vulkan != 23*gib || c.ROCm != 23*gib || c.Integrated {
		t.Errorf("%+v", c)
	}
	if c := find(t, r, "gpu memory", doctor.OK); c.Status != doctor.OK {
		t.Errorf("%+v", c)
	}
}

func TestCard(t *testing.T) {
	r := complete().examine(t)
	want := []doctor.Card{{Name: "card0", Driver: "amdgpu", ID: "1002:1586", Target: "gfx1151", Integrated: true,
		VRAM: gib / 2, VRAMUsed: gib / 4, GTT: 112 * gib, GTTUsed: gib, Vulkan: 111*gib + gib/4, ROCm: 111 * gib}}
	if diff := cmp.Diff(want, r.Cards); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// Each thing that is wrong has one verdict and says what to do.
func TestMisses(t *testing.T) {
	well := complete().examine(t)
	for _, c := range []struct {
		name   string
		change func(b *box)
		check  string
		status doctor.Status
		text   string
		remedy string
	}{
		{"no AVX2", func(b *box) { b.level = "generic" }, "cpu", doctor.Warn, "kernels for generic", "AVX2"},
		{"no meminfo", func(b *box) { delete(b.files, "proc/meminfo") }, "memory", doctor.Warn, "cannot be told", "by hand"},
		{"little memory", func(b *box) { b.files["proc/meminfo"] = "MemTotal: 8000000 kB\nMemAvailable: 400000 kB\n" }, "memory", doctor.Miss, "0.4 GiB available", "stop what holds"},
		{"memory taken", func(b *box) { b.files["proc/meminfo"] = "MemTotal: 8000000 kB\nMemAvailable: 1900000 kB\n" }, "memory", doctor.Warn, "1.8 GiB available", "most of the memory is taken"},
		{"a container's limit", func(b *box) {
			b.files["proc/self/cgroup"] = "0::/docker/abc\n"
			b.files["sys/fs/cgroup/docker/memory.max"] = "8589934592\n"
			b.files["sys/fs/cgroup/docker/memory.current"] = "1073741824\n"
			b.files["sys/fs/cgroup/docker/abc/memory.max"] = "max\n"
		}, "memory", doctor.Warn, "allows 8.0 GiB, 7.0 GiB of it available", "memory limit"},
		{"a limit of version 1", func(b *box) {
			b.files["proc/self/cgroup"] = "4:memory:/x\n3:cpu:/y\n0::/\n"
			b.files["sys/fs/cgroup/memory/x/memory.limit_in_bytes"] = "8589934592\n"
		}, "memory", doctor.Warn, "allows 8.0 GiB, 8.0 GiB of it available", "memory limit"},
		{"a limit that is used up", func(b *box) {
			b.files["sys/fs/cgroup/memory.max"] = "8589934592\n"
			b.files["sys/fs/cgroup/memory.current"] = "8589934593\n"
		}, "memory", doctor.Miss, "allows 8.0 GiB, 0.0 GiB of it available", "allow this process more"},
		{"old kernel", func(b *box) { b.files["proc/sys/kernel/osrelease"] = "6.16.8\n" }, "kernel", doctor.Warn, "Linux 6.16.8", "6.16.9"},
		{"no Landlock", func(b *box) { b.sandbox.Landlock = 0 }, "sandbox", doctor.Warn, "can read and write the files", "landlock among its modules"},
		{"no filters", func(b *box) { b.sandbox.Filter = false }, "sandbox", doctor.Warn, "can reach the network", "6.12"},
		{"strange kernel", func(b *box) { b.files["proc/sys/kernel/osrelease"] = "custom\n" }, "kernel", doctor.Warn, `"custom" cannot be read`, "6.16.9"},
		{"IOMMU off", func(b *box) { b.files["proc/cmdline"] = "quiet amd_iommu=off\n" }, "npu", doctor.Miss, "amd_iommu=off disables it", "remove amd_iommu=off"},
		{"any IOMMU off", func(b *box) { b.files["proc/cmdline"] = "iommu=off\n" }, "npu", doctor.Miss, "iommu=off disables it", "remove iommu=off"},
		{"gttsize", func(b *box) { b.files["proc/cmdline"] = "amdgpu.gttsize=98304 ttm.pages_limit=25165824\n" }, "gpu memory", doctor.Warn, "amdgpu.gttsize=98304", "deprecated"},
		{"no driver for the card", func(b *box) { b.files["sys/class/drm/card0/device/uevent"] = "PCI_ID=1002:1586\n" }, "gpu", doctor.Miss, "Strix Halo (gfx1151), no driver", "amdgpu"},
		{"no access to kfd", func(b *box) { b.denied = []string{"/dev/kfd"} }, "compute", doctor.Miss, "/dev/kfd: permission denied", "usermod -aG render"},
		{"no access to the render node", func(b *box) { b.denied = []string{"/dev/dri/renderD128"} }, "render", doctor.Miss, "/dev/dri/renderD128: permission denied", "usermod -aG render"},
		{"no access to the NPU", func(b *box) { b.denied = []string{"/dev/accel/accel0"} }, "npu", doctor.Miss, "/dev/accel/accel0: permission denied", "usermod -aG render"},
		{"no NPU driver", func(b *box) { delete(b.files, "dev/accel/accel0") }, "npu", doctor.Miss, "no /dev/accel", "amdxdna"},
		{"no kfd", func(b *box) { delete(b.files, "dev/kfd") }, "compute", doctor.Miss, "no /dev/kfd", "HSA_AMD"},
		{"no HSA runtime", func(b *box) { delete(b.files, "opt/rocm-therock/7.10/lib/libhsa-runtime64.so.1") }, "hsa runtime", doctor.Miss, "under /opt/rocm-therock", "--hrx-libhsa"},
		{"a variable that names nothing", func(b *box) { b.env = map[string]string{"IREE_HAL_AMDGPU_LIBHSA_PATH": "/no/such/file"} }, "hsa runtime", doctor.Miss, "/no/such/file", "unset IREE_HAL_AMDGPU_LIBHSA_PATH"},
		{"no zinc", func(b *box) { delete(b.programs, engine.Zinc) }, "zinc server", doctor.Miss, "no program for zinc", "--zinc PATH"},
		{"a server that does not start", func(b *box) { b.devices = nil }, "vulkan server", doctor.Miss, "--list-devices failed: exit status 127", "by hand"},
		{"a server that prints something else", func(b *box) { b.devices["/opt/1bit/vulkan/llama-server"] = "hello\n" }, "vulkan server", doctor.Miss, "it prints no list", "by hand"},
		{"a server without devices", func(b *box) {
			b.devices["/opt/1bit/vulkan/llama-server"] = "Available devices:\n  (none)\n"
		}, "vulkan server", doctor.Miss, "its devices are none", "built with Vulkan"},
		{"a server without access", func(b *box) {
			b.devices["/opt/1bit/vulkan/llama-server"] = "Available devices:\n"
			b.denied = []string{"/dev/dri/renderD128"}
		}, "vulkan server", doctor.Miss, "its devices are none", "render node cannot be opened"},
		{"hrx without its runtime", func(b *box) {
			b.devices["/opt/1bit/hrx/llama-server"] = "Available devices:\n"
			delete(b.files, "opt/rocm-therock/7.10/lib/libhsa-runtime64.so.1")
		}, "hrx server", doctor.Miss, "its devices are none", "without the HSA runtime"},
		{"rocm without kfd", func(b *box) {
			b.devices["/opt/1bit/rocm/llama-server"] = "Available devices:\n"
			b.denied = []string{"/dev/kfd"}
		}, "rocm server", doctor.Miss, "its devices are none", "/dev/kfd cannot be opened"},
		{"no models", func(b *box) { delete(b.files, "home/cache/1bit/models/0123/model.gguf") }, "models", doctor.Warn, "none in", "1bit model pull"},
		{"full disk", func(b *box) { b.free = 5e9 }, "disk", doctor.Warn, "5.0 GB free", "XDG_CACHE_HOME"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := find(t, well, c.check, doctor.OK); got.Status != doctor.OK || got.Remedy != "" {
				t.Errorf("without the change: %+v", got)
			}
			b := complete()
			c.change(b)
			got := find(t, b.examine(t), c.check, c.status)
			if got.Status != c.status || !strings.Contains(got.Text, c.text) || !strings.Contains(got.Remedy, c.remedy) {
				t.Errorf("%+v, want %s, %q and %q", got, c.status, c.text, c.remedy)
			}
		})
	}
}

// Without a GPU the built-in engine serves, and the reason why there is no GPU is told.
func TestNoCard(t *testing.T) {
	b := machine(16*gib, 12*gib)
	b.files["proc/cmdline"] = "nomodeset\n"
	b.files["proc/sys/kernel/osrelease"] = "5.15.0\n"
	r := b.examine(t)
	if c := find(t, r, "gpu", doctor.Miss); c.Status != doctor.Miss || !strings.Contains(c.Remedy, "remove nomodeset") {
		t.Errorf("%+v", c)
	}
	if c := find(t, r, "kernel", doctor.OK); c.Status != doctor.OK {
		t.Errorf("an old kernel matters without an AMD GPU: %+v", c)
	}
	if got := usable(r); !slices.Equal(got, []engine.Device{engine.CPU}) || !r.CanServe() {
		t.Errorf("usable: %v", got)
	}
}

func usable(r doctor.Report) []engine.Device {
	var all []engine.Device
	for _, d := range r.Devices {
		if d.Usable {
			all = append(all, d.Device)
		}
	}
	return all
}

func TestDevices(t *testing.T) {
	all := []engine.Device{engine.CPU, engine.Vulkan, engine.HRX, engine.ROCm, engine.Zinc, engine.DS4, engine.MLX, engine.NPU, engine.ONNX}
	for _, c := range []struct {
		name   string
		change func(b *box)
		lost   []engine.Device
	}{
		{"complete", func(*box) {}, nil},
		{"no render node", func(b *box) { b.denied = []string{"/dev/dri/renderD128"} }, []engine.Device{engine.Zinc}},
		{"no NPU", func(b *box) { delete(b.files, "dev/accel/accel0") }, []engine.Device{engine.NPU}},
		{"IOMMU off", func(b *box) { b.files["proc/cmdline"] = "amd_iommu=off\n" }, []engine.Device{engine.NPU}},
		{"no llama-server for hrx", func(b *box) { delete(b.programs, engine.HRX) }, []engine.Device{engine.HRX}},
		{"a llama-server without ROCm", func(b *box) { b.devices["/opt/1bit/rocm/llama-server"] = "Available devices:\n  Vulkan0: x\n" }, []engine.Device{engine.ROCm}},
		{"no memory for the engine", func(b *box) { b.files["proc/meminfo"] = "MemTotal: 8000000 kB\nMemAvailable: 1000 kB\n" }, []engine.Device{engine.CPU}},
		{"nothing at all", func(b *box) {
			b.files["proc/meminfo"] = "MemTotal: 8000000 kB\nMemAvailable: 1000 kB\n"
			b.programs = nil
		}, all},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := complete()
			c.change(b)
			r := b.examine(t)
			want := slices.DeleteFunc(slices.Clone(all), func(d engine.Device) bool { return slices.Contains(c.lost, d) })
			if diff := cmp.Diff(want, slices.Clip(append([]engine.Device{}, usable(r)...))); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if r.CanServe() != (len(want) > 0) {
				t.Errorf("it can serve: %v", r.CanServe())
			}
		})
	}
}

// On other systems the doctor says what it can and looks for no devices of Linux.
func TestOtherSystem(t *testing.T) {
	b := complete()
	b.goos = "darwin"
	delete(b.files, "proc/meminfo")
	r := b.examine(t)
	for _, c := range r.Checks {
		if c.Name == "kernel" || c.Name == "compute" || c.Name == "gpu" {
			t.Errorf("on darwin: %+v", c)
		}
	}
	if !r.CanServe() || len(r.Cards) != 0 {
		t.Errorf("%+v", r)
	}
}

// One program is asked once, with the HSA runtime where there is one.
func TestProgramsAreAskedOnce(t *testing.T) {
	b := complete()
	for _, d := range []engine.Device{engine.Vulkan, engine.HRX, engine.ROCm} {
		b.programs[d] = "/bin/llama-server"
	}
	b.devices["/bin/llama-server"] = "Available devices:\n  HRX0: a\n  Vulkan0: b\n  ROCm0: c\n"
	r := b.examine(t)
	lists := 0
	for _, c := range b.calls {
		if c.Args[0] != "--list-devices" {
			continue
		}
		lists++
		if len(c.Env) != 1 || !strings.HasPrefix(c.Env[0], "IREE_HAL_AMDGPU_LIBHSA_PATH=") || !strings.HasSuffix(filepath.ToSlash(c.Env[0]), "/opt/rocm-therock/7.10/lib/libhsa-runtime64.so.1") {
			t.Errorf("asked with %q", c.Env)
		}
	}
	if lists != 1 {
		t.Errorf("asked %d times", lists)
	}
	if got := usable(r); !slices.Contains(got, engine.HRX) || !slices.Contains(got, engine.ROCm) {
		t.Errorf("usable: %v", got)
	}
}

// The runtime that came with us goes before the one under /opt.
func TestOwnRuntimeFirst(t *testing.T) {
	b := complete()
	b.files["usr/lib/1bit/hrx/lib/libhsa-runtime64.so.1"] = ""
	if c := find(t, b.examine(t), "hsa runtime", doctor.OK); c.Text != "/usr/lib/1bit/hrx/lib/libhsa-runtime64.so.1" {
		t.Errorf("%+v", c)
	}
}

func TestPrint(t *testing.T) {
	bare := machine(16*gib, 12*gib)
	for _, c := range []struct {
		name string
		box  *box
	}{{"complete", complete()}, {"bare", bare}} {
		t.Run(c.name, func(t *testing.T) {
			var b bytes.Buffer
			must(t, doctor.Print(&b, c.box.examine(t)))
			golden := filepath.Join("testdata", c.name+".golden")
			if *update {
				must(t, os.MkdirAll("testdata", 0o777))
				must(t, os.WriteFile(golden, b.Bytes(), 0o666))
			}
			want, err := os.ReadFile(golden)
			must(t, err)
			if diff := cmp.Diff(string(want), b.String()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestJSON(t *testing.T) {
	r := complete().examine(t)
	b, err := json.Marshal(r)
	must(t, err)
	var back doctor.Report
	must(t, json.Unmarshal(b, &back))
	if diff := cmp.Diff(r, back); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, want := range []string{`"usable_vulkan_bytes":119453777920`, `"status":"ok"`, `{"device":"vulkan","usable":true,`, `"memory_bytes":134217728000`} {
		if !bytes.Contains(b, []byte(want)) {
			t.Errorf("no %s in %s", want, b)
		}
	}
	if bare, err := json.Marshal(machine(gib, gib).examine(t)); err != nil || !bytes.Contains(bare, []byte(`"cards":[]`)) {
		t.Errorf("error %v in %s", err, bare)
	}
}

// The real machine is examined without trouble, by the functions that the program uses.
func TestThisMachine(t *testing.T) {
	dir := t.TempDir()
	free, err := doctor.Space(filepath.Join(dir, "not", "there"))
	if err != nil || free == 0 {
		t.Errorf("%d bytes are free, error %v", free, err)
	}
	if err := doctor.Access(dir); err != nil {
		t.Errorf("no access to our own folder: %v", err)
	}
	if err := doctor.Access(filepath.Join(dir, "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("access to what is not there: %v", err)
	}
}

// FuzzExamine checks that odd files of a system are told about and never end the doctor.
func FuzzExamine(f *testing.F) {
	f.Fuzz(func(t *testing.T, release, cmdline, cgroup, number, properties string) {
		b := complete()
		b.files["proc/sys/kernel/osrelease"] = release
		b.files["proc/cmdline"] = cmdline
		b.files["proc/self/cgroup"] = cgroup
		b.files["proc/meminfo"] = "MemTotal: " + number + " kB\nMemAvailable: " + number + " kB\n"
		b.files["sys/class/drm/card0/device/mem_info_gtt_total"] = number
		b.files["sys/class/kfd/kfd/topology/nodes/1/properties"] = properties
		r := b.examine(t)
		var out bytes.Buffer
		must(t, doctor.Print(&out, r))
		if strings.ContainsAny(out.String(), "\x1b\x00\r\t") {
			t.Fatalf("printed %q", out.String())
		}
		for _, c := range r.Cards {
			if c.Vulkan > c.VRAM+c.GTT || c.ROCm > c.Vulkan {
				t.Fatalf("%+v", c)
			}
		}
	})
}
