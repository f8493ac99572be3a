package plan_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"onebit/engine/plan"
)

const meminfo = `MemTotal:       131072000 kB
MemFree:         1000 kB
MemAvailable:   42260480 kB
Buffers:            1024 kB
HugePages_Total:       0
`

func TestParseMemory(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"sound", meminfo, ""},
		{"empty", "", "/proc/meminfo has no MemTotal"},
		{"old-kernel", "MemTotal: 1 kB\nMemFree: 1 kB\n", "/proc/meminfo has no MemAvailable"},
		{"no-number", "MemTotal: x kB\n", `MemTotal is "x kB"`},
		{"negative", "MemTotal: -1 kB\n", `MemTotal is "-1 kB"`},
		{"huge", "MemTotal: 99999999999999999999 kB\n", `MemTotal is "99999999999999999999 kB"`},
		{"too-large-in-bytes", "MemTotal: 18014398509481984 kB\n", `MemTotal is`},
		{"other-unit", "MemTotal: 1 MB\n", `MemTotal is "1 MB"`},
		{"no-unit", "MemTotal: 1\n", `MemTotal is "1"`},
		{"indented", " MemTotal: 1 kB\n", "has no MemTotal"},
	} {
		m, err := plan.ParseMemory([]byte(c.text))
		switch {
		case c.want == "":
			if err != nil || m.Total != 125*plan.GiB || m.Available != 42260480<<10 {
				t.Errorf("%s: %+v, error %v", c.name, m, err)
			}
		case err == nil || !strings.Contains(err.Error(), c.want):
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
}

func TestReadMemory(t *testing.T) {
	m, err := plan.ReadMemory(func(name string) ([]byte, error) {
		if name != "/proc/meminfo" {
			t.Errorf("%q was read", name)
		}
		return []byte(meminfo), nil
	})
	if err != nil || m.Available>>30 != 40 {
		t.Errorf("%+v, error %v", m, err)
	}
	_, err = plan.ReadMemory(func(string) ([]byte, error) { return nil, fs.ErrNotExist })
	if err == nil || !strings.Contains(err.Error(), "give a number") {
		t.Errorf("where there is no such file: error %v", err)
	}
	broken := errors.New("broken")
	if _, err := plan.ReadMemory(func(string) ([]byte, error) { return nil, broken }); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

func FuzzParseMemory(f *testing.F) {
	f.Add([]byte(meminfo))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := plan.ParseMemory(b)
		if err == nil && (m.Total%1024 != 0 || m.Available%1024 != 0) || err != nil && m != (plan.Memory{}) {
			t.Fatalf("%+v, error %v", m, err)
		}
	})
}
