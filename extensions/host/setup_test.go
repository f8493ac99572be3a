package host_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/host"
	"onebit/extensions/wasm"
	. "onebit/extensions/wasm/wasmtest"
)

// note appends a letter to the guest's notes: their length is at answerAt-4.
func note(letter byte) []byte {
	return slices.Concat(I32(answerAt-4), Load(), I32(answerAt), Op(0x6a), I32(int32(letter)), Op(0x3a, 0, 0),
		I32(answerAt-4), I32(answerAt-4), Load(), I32(1), Op(0x6a), Store())
}

// notes answers the notes.
func notes() []byte { return slices.Concat(I64(answerAt<<32), I32(answerAt-4), Load(), Op(0xad, 0x84)) }

// copyRequest appends the request to the notes; it takes (address, length) in locals 0 and 1.
func copyRequest() []byte {
	return slices.Concat(I32(answerAt-4), Load(), I32(answerAt), Op(0x6a), Get(0), Get(1), Copy(),
		I32(answerAt-4), I32(answerAt-4), Load(), Get(1), Op(0x6a), Store())
}

// diary is a guest that notes what is called, in which order and with what. extra bodies run in each step.
func diary(extra map[string][]byte) []byte {
	m := &Module{}
	m.Import(abi.HostModule, "log", "iii", "")
	m.Import(abi.HostModule, "asset", "iiiii", "i")
	guest(m)
	m.Data(64, []byte("weights"))
	m.Start(m.Func("", "", "", "", note('s'), extra["start"]))
	m.Func(abi.Initialize, "", "", "", note('i'), extra[abi.Initialize])
	m.Func(abi.Configure, "ii", "l", "", note('c'), copyRequest(), extra[abi.Configure], I64(0))
	m.Func(abi.Classify, "ii", "l", "", note('k'), copyRequest(), extra[abi.Classify], notes())
	m.Func(abi.Route, "ii", "l", "", note('r'), copyRequest(), extra[abi.Route], notes())
	return m.Bytes()
}

func TestSetupOrder(t *testing.T) {
	m := compile(t, config(t, diary(nil), abi.CapAsset))
	tests := []struct {
		name  string
		setup host.Setup
		want  string
	}{
		{"least", host.Setup{}, "sic{}"},
		{"configuration", host.Setup{Config: []byte(`{"a":1}`)}, `sic{"a":1}`},
		{"warm call", host.Setup{Warm: []byte("W")}, "sic{}kWrW"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			i := instance(t, m, tt.setup)
			clone, err := i.Clone(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer clone.Close(t.Context())
			for _, in := range []*host.Instance{i, clone} {
				for f, letter := range map[string]string{abi.Classify: "k", abi.Route: "r"} {
					r, err := in.Call(t.Context(), host.Call{Function: f, Request: []byte("Q")})
					if err != nil || string(r.Answer) != tt.want+letter+"Q" {
						t.Errorf("%s answers %q, %v; want %q", f, r.Answer, err, tt.want+letter+"Q")
					}
				}
				if rep := in.Report(); rep.Units <= 0 || rep.Pages != 1 {
					t.Errorf("the report is %+v", rep)
				}
			}
		})
	}
}

// TestSetupFails: each step runs within limits, and its failure names it.
func TestSetupFails(t *testing.T) {
	loop, trap := Loop(Op(0x0c, 0)), Op(wasm.OpUnreachable)
	for step, name := range map[string]string{"start": "start", abi.Initialize: abi.Initialize, abi.Configure: abi.Configure, abi.Classify: abi.Classify, abi.Route: abi.Route} {
		for cause, body := range map[host.Cause][]byte{host.CauseBudget: loop, host.CauseTrap: trap} {
			c := config(t, diary(map[string][]byte{step: body}), abi.CapAsset)
			c.Limits.Units = 2_000_000
			_, err := compile(t, c).Instance(t.Context(), host.Setup{Warm: []byte("W")})
			failure(t, err, cause)
			if e, ok := errors.AsType[*host.SetupError](err); !ok || e.Step != name || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", step, err)
			}
		}
	}
	refuse := guest(&Module{})
	refuse.Data(answerAt, []byte("no limit is given"))
	refuse.Func(abi.Configure, "ii", "l", "", packed(answerAt, 17))
	refuse.Func(abi.Route, "ii", "l", "", I64(0))
	_, err := compile(t, config(t, refuse.Bytes())).Instance(t.Context(), host.Setup{})
	if e, ok := errors.AsType[*host.SetupError](err); !ok || e.Refuse != "no limit is given" || e.Step != abi.Configure {
		t.Errorf("a refused configuration: %v", err)
	}
}

// TestSetupBounds: what does not fit is refused before anything runs.
func TestSetupBounds(t *testing.T) {
	c := config(t, diary(nil), abi.CapAsset)
	c.Limits.Assets = 10
	m := compile(t, c)
	for name, s := range map[string]host.Setup{
		"assets":        {Assets: map[string][]byte{"a": make([]byte, 6), "b": make([]byte, 5)}},
		"configuration": {Config: make([]byte, abi.MaxConfig+1)},
	} {
		if _, err := m.Instance(t.Context(), s); err == nil || !strings.Contains(err.Error(), "at most") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := compile(t, config(t, say("{}"))).Instance(t.Context(), host.Setup{Config: []byte("{}")}); err == nil || !strings.Contains(err.Error(), "takes no configuration") {
		t.Errorf("a configuration for a guest that takes none: %v", err)
	}
}

// TestAssets: they are read before the snapshot, by pieces, and the start function may read them too.
func TestAssets(t *testing.T) {
	read := func(at, offset, n int32) []byte {
		return slices.Concat(I32(64), I32(7), I32(offset), I32(at), I32(n), Call(1), Op(0x1a))
	}
	weights := []byte("0123456789")
	b := diary(map[string][]byte{
		"start":        slices.Concat(read(answerAt+1, 0, 3), I32(answerAt-4), I32(4), Store()),
		abi.Initialize: slices.Concat(read(answerAt+5, 8, 100), I32(answerAt-4), I32(7), Store()),
		abi.Configure:  slices.Concat(I32(answerAt), I32(64), I32(6), I32(0), I32(9000), I32(1), Call(1), Op(0x36, 2, 0), I32(answerAt-4), I32(4), Store()), // "weight" is missing
		abi.Route:      slices.Concat(I32(answerAt+4), I32(64), I32(7), I32(0), I32(9000), I32(1), Call(1), Op(0x36, 2, 0), I32(answerAt-4), I32(16), Store()),
	})
	c := config(t, b, abi.CapAsset)
	c.Limits.Assets = 100
	m := compile(t, c)
	early := diary(map[string][]byte{
		"start":        slices.Concat(read(answerAt+1, 0, 3), I32(answerAt-4), I32(4), Store()),
		abi.Initialize: slices.Concat(read(answerAt+5, 8, 100), I32(answerAt-4), I32(7), Store()),
	})
	c.Metered = config(t, early, abi.CapAsset).Metered
	s := host.Setup{Assets: map[string][]byte{"weights": weights}}
	r, err := instance(t, compile(t, c), s).Call(t.Context(), host.Call{Function: abi.Route, Request: []byte("Q")})
	if err != nil || string(r.Answer) != "s012i89c{}rQ" {
		t.Errorf("%q, %v", r.Answer, err)
	}
	r, err = instance(t, m, s).Call(t.Context(), host.Call{Function: abi.Route, Request: []byte("Q")})
	if err != nil || string(r.Answer[:8]) != "\xfe\xff\xff\xff\xfb\xff\xff\xff" {
		t.Errorf("missing, then denied: %x, %v", r.Answer, err)
	}
}

// TestSetupLog: what a guest says while it is set up is in the report.
func TestSetupLog(t *testing.T) {
	say := slices.Concat(I32(2), I32(64), I32(7), Call(0))
	i := instance(t, compile(t, config(t, diary(map[string][]byte{"start": say, abi.Configure: say}), abi.CapAsset)), host.Setup{})
	want := []host.Line{{Level: abi.Warn, Text: "weights"}, {Level: abi.Warn, Text: "weights"}}
	if got := i.Report(); !slices.Equal(got.Log, want) || got.HostCalls != 2 {
		t.Errorf("%+v", got)
	}
}

// TestSetupSeesNoServices: before the snapshot nobody answers, and time is fixed, so that a set-up gives one state.
func TestSetupSeesNoServices(t *testing.T) {
	m := &Module{}
	now := m.Import(abi.HostModule, "now_ms", "", "l")
	clock := m.Import(abi.WASIModule, "clock_time_get", "ili", "i")
	guest(m)
	m.Func(abi.Initialize, "", "", "", I32(answerAt), Call(now), Op(0x37, 3, 0), I32(0), I64(0), I32(answerAt+8), Call(clock), Op(0x1a))
	m.Func(abi.Route, "ii", "l", "", packed(answerAt, 16))
	i := instance(t, compile(t, config(t, m.Bytes(), abi.CapNow)), host.Setup{})
	r, err := i.Call(t.Context(), host.Call{Function: abi.Route, Services: host.Services{Now: time.Now}})
	if err != nil || string(r.Answer) != "\xfc\xff\xff\xff\xff\xff\xff\xff"+words(1_600_000_000_000_000_000) {
		t.Errorf("%x, %v", r.Answer, err)
	}
}

// TestCache: compiled code is found again, lies under the module's hash, and is swept when it is another platform's.
func TestCache(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "when", "missing")
	if err := host.Sweep(dir); err != nil {
		t.Fatal(err)
	}
	a, b := config(t, say("a")), config(t, say("b"))
	a.Cache, b.Cache = dir, dir
	files := func() (n int, newest time.Time) {
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			if !strings.HasPrefix(path, host.CacheDir(dir, a.Metered)) && !strings.HasPrefix(path, host.CacheDir(dir, b.Metered)) {
				t.Errorf("%s is nobody's", path)
			}
			info, err := d.Info()
			n++
			if info != nil && info.ModTime().After(newest) {
				newest = info.ModTime()
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return n, newest
	}
	compile(t, a)
	n, written := files()
	i := instance(t, compile(t, a), host.Setup{})
	if again, newer := files(); n != 1 || again != 1 || !newer.Equal(written) {
		t.Errorf("%d files, then %d", n, again)
	}
	if r, err := i.Call(t.Context(), host.Call{Function: abi.Route}); err != nil || string(r.Answer) != "a" {
		t.Errorf("from the cache: %q, %v", r.Answer, err)
	}
	compile(t, b)
	if n, _ := files(); n != 2 {
		t.Errorf("%d files for two modules", n)
	}
	other := filepath.Join(dir, "other")
	if err := os.MkdirAll(filepath.Join(other, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := host.Sweep(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(other); !os.IsNotExist(err) {
		t.Errorf("another platform's code is still there: %v", err)
	}
	if n, _ := files(); n != 2 {
		t.Errorf("the sweep took our code: %d files", n)
	}
}
