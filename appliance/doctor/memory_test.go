package doctor_test

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"onebit/appliance/doctor"
	"onebit/engine"
)

// root writes the files of a made-up machine.
func (b *box) root(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range b.files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return dir
}

// TestReadMemory is case T17: on each of these boxes the pool is what the driver can allocate from, within 5 percent.
func TestReadMemory(t *testing.T) {
	old := halo(125*gib, 118*gib, gib/2, gib/4, 120*gib, gib)
	old.files["proc/sys/kernel/osrelease"] = "6.14.0\n"
	contained := machine(125*gib, 118*gib)
	contained.files["proc/self/cgroup"] = "0::/x\n"
	contained.files["sys/fs/cgroup/x/memory.max"] = "8589934592\n"
	contained.files["sys/fs/cgroup/x/memory.current"] = "1073741824\n"
	card := halo(62*gib, 50*gib, 24*gib, 4*gib, 31*gib, 0)
	card.files["sys/class/drm/card0/device/device"] = "0x744c\n"
	for _, c := range []struct {
		name         string
		box          *box
		vulkan, rocm doctor.Share // GiB
		host         doctor.Share
		unified      bool
	}{
		{"smallest carve-out, large GTT", halo(125*gib, 118*gib, gib/2, gib/4, 112*gib, gib), doctor.Share{Total: 112, Free: 111}, doctor.Share{Total: 112, Free: 111}, doctor.Share{Total: 125, Free: 118}, true},
		{"2 GB carve-out 99% full, 98 GB of GTT free", halo(125*gib, 118*gib, 2*gib, 2*gib-20<<20, 100*gib, 2*gib), doctor.Share{Total: 102, Free: 98}, doctor.Share{Total: 100, Free: 98}, doctor.Share{Total: 125, Free: 118}, true},
		{"half carved out", halo(62*gib, 58*gib, 64*gib, gib, 31*gib, 0), doctor.Share{Total: 95, Free: 94}, doctor.Share{Total: 64, Free: 63}, doctor.Share{Total: 62, Free: 58}, true},
		{"96 GB carved out", halo(31*gib, 27*gib, 96*gib, gib, 15*gib, 0), doctor.Share{Total: 111, Free: 110}, doctor.Share{Total: 96, Free: 95}, doctor.Share{Total: 31, Free: 27}, true},
		{"GTT allowed, memory taken", halo(125*gib, 20*gib, gib/2, 0, 120*gib, gib), doctor.Share{Total: 120, Free: 20}, doctor.Share{Total: 120, Free: 20}, doctor.Share{Total: 125, Free: 20}, true},
		{"old kernel", old, doctor.Share{Total: 120, Free: 118}, doctor.Share{Total: 14, Free: 14}, doctor.Share{Total: 125, Free: 118}, true},
		{"a card of its own", card, doctor.Share{Total: 24, Free: 20}, doctor.Share{Total: 24, Free: 20}, doctor.Share{Total: 62, Free: 50}, false},
		{"no card", machine(125*gib, 118*gib), doctor.Share{}, doctor.Share{}, doctor.Share{Total: 125, Free: 118}, false},
		{"a container", contained, doctor.Share{}, doctor.Share{}, doctor.Share{Total: 8, Free: 7}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := doctor.ReadMemory(c.box.root(t))
			near := func(what string, got, want uint64) {
				if w := float64(want) * gib; math.Abs(float64(got)-w) > 0.05*w {
					t.Errorf("%s: %.2f GiB, want %d", what, float64(got)/gib, want)
				}
			}
			for what, x := range map[string][2]doctor.Share{
				"vulkan": {m.Graphics[engine.Vulkan], c.vulkan}, "zinc": {m.Graphics[engine.Zinc], c.vulkan},
				"rocm": {m.Graphics[engine.ROCm], c.rocm}, "hrx": {m.Graphics[engine.HRX], c.rocm}, "host": {m.Host, c.host},
			} {
				near(what+" total", x[0].Total, x[1].Total)
				near(what+" free", x[0].Free, x[1].Free)
			}
			if m.Unified != c.unified {
				t.Errorf("%+v", m)
			}
		})
	}
}
