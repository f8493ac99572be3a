package host_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/host"
)

// build makes the Go guest of testdata.
func build(t testing.TB) []byte {
	t.Helper()
	if testing.Short() {
		t.Skip("it builds Go's standard library for another target")
	}
	out := filepath.Join(t.TempDir(), "guest.wasm")
	c := exec.CommandContext(t.Context(), "go", "build", "-buildmode=c-shared", "-trimpath", "-o", out, "./testdata/guest")
	c.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=")
	if b, err := c.CombinedOutput(); err != nil {
		t.Fatalf("building the guest: %v\n%s", err, b)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestGoGuest runs what Go's own toolchain makes: it starts, sees nothing, answers the same in every call, and every
// failure is contained.
func TestGoGuest(t *testing.T) {
	c := config(t, build(t), abi.CapNow)
	i := instance(t, compile(t, c), host.Setup{Config: []byte(`{"limit":3}`), Warm: []byte(`{"head":"warm"}`)})
	s := host.Services{Now: func() time.Time { return time.Unix(1_700_000_000, 0) }}
	ask := func(head string) (string, host.Result, error) {
		b, err := json.Marshal(map[string]string{"head": head})
		if err != nil {
			t.Fatal(err)
		}
		r, err := i.Call(t.Context(), host.Call{Function: abi.Route, Request: b, Services: s, Seed: 7})
		return string(r.Answer), r, err
	}
	first, r, err := ask("three words here")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"args":0`, `"env":0`, `"calls":2`, `"words":3`, `"limit":3`, `"now":1700000000`, `"took":0`} {
		if !strings.Contains(first, want) {
			t.Errorf("%s lacks %s", first, want)
		}
	}
	if len(r.Log) != 2 || r.Log[0].Text != "calls: 2" || r.Log[1].Text != "and to the error output" {
		t.Errorf("the log is %+v", r.Log)
	}
	t.Logf("set up by %d units and %d pages, called by %d", i.Report().Units, i.Report().Pages, r.Units)
	for head, cause := range map[string]host.Cause{"panic": host.CauseTrap, "exit": host.CauseExit, "loop": host.CauseBudget, "garbage": "", "sleep": ""} {
		_, _, err := ask(head)
		if cause != "" {
			failure(t, err, cause)
		} else if err != nil {
			t.Errorf("%s: %v", head, err)
		}
		if again, r2, err := ask("three words here"); err != nil || again != first || r2.Units != r.Units {
			t.Errorf("after %s: %s, %d units, %v; before %s, %d units", head, again, r2.Units, err, first, r.Units)
		}
	}
}

// BenchmarkGoGuest: a call of what Go's toolchain makes, with encoding/json.
func BenchmarkGoGuest(b *testing.B) {
	i := instance(b, compile(b, config(b, build(b))), host.Setup{Warm: []byte(`{"head":"warm"}`)})
	median(b, func() error {
		_, err := i.Call(b.Context(), host.Call{Function: abi.Route, Request: []byte(`{"head":"three words here"}`)})
		return err
	})
}
