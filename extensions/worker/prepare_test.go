package worker_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onebit/engine/sandbox"
	"onebit/extensions/abi"
	"onebit/extensions/host"
	"onebit/extensions/meter"
	"onebit/extensions/module"
	"onebit/extensions/wasm/wasmtest"
	"onebit/extensions/worker"
)

// misbehave is a child that a hostile module has taken over, or that meets its limits.
func misbehave(how string) {
	switch how {
	case "spins":
		for n := 0; ; n++ {
			_ = n
		}
	case "eats":
		for all := [][]byte{}; len(all) < 1<<20; {
			b := make([]byte, 16<<20)
			for i := range b {
				b[i] = 1
			}
			all = append(all, b)
		}
	case "sleeps":
		time.Sleep(time.Hour)
	case "leaves":
		fmt.Fprintln(os.Stderr, "fatal error: something")
		os.Exit(3)
	case "babbles":
		for {
			if _, err := os.Stdout.Write(bytes.Repeat([]byte("babble"), 1000)); err != nil {
				os.Exit(0)
			}
		}
	case "promises":
		os.Stdout.Write(bytes.Repeat([]byte{0xff}, 64))
		time.Sleep(time.Hour)
	case "floods":
		for {
			fmt.Fprintln(os.Stderr, strings.Repeat("flood", 1000))
		}
	case "answers-another", "answers-nonsense", "asks-for-ever", "hangs", "promises-much", "closes":
		takenOver(how)
	case "parent":
		parent(os.Args[3], os.Args[4])
	case "lies":
		os.Stdout.Write(worker.Frame(7, 0, []byte(`{"sha256":"`+strings.Repeat("0", 64)+`"}`)))
		time.Sleep(time.Hour)
	}
	os.Exit(0)
}

func rogueProgram(t testing.TB, how string) []string {
	t.Helper()
	return []string{program(t)[0], rogue, how}
}

// added adds a module.
func added(t testing.TB, b []byte) worker.PrepareConfig {
	t.Helper()
	dir := t.TempDir()
	hash, err := worker.Add(dir, bytes.NewReader(b), 8<<20, "")
	if err != nil {
		t.Fatal(err)
	}
	return worker.PrepareConfig{Program: program(t), Dir: dir, SHA256: hash, Manifest: manifest()}
}

func TestPrepareReports(t *testing.T) {
	m := &wasmtest.Module{}
	m.Import(abi.HostModule, "now_ms", "", "l")
	guest(m)
	m.Func(abi.Route, "ii", "l", "", mirror)
	b := m.Bytes()
	cfg := added(t, b)
	cfg.Manifest, cfg.Allowed = manifest(abi.CapNow, abi.CapKV), []abi.Capability{abi.CapNow, abi.CapText}
	r, err := worker.Prepare(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if r.CPU <= 0 || r.Wall <= 0 || r.Metered <= len(b) {
		t.Errorf("%+v", r)
	}
	want := worker.Report{
		SHA256: cfg.SHA256, Bytes: len(b), Metered: r.Metered, CPU: r.CPU, Wall: r.Wall, Manifest: r.Manifest, Limits: abi.Policy.Limits(),
		Imports: []worker.Import{{Module: abi.HostModule, Name: "now_ms"}}, Exports: []string{abi.Memory, abi.Marker, abi.Buffer, abi.Route},
		Granted: []abi.Capability{abi.CapNow},
	}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Error(diff)
	}
	if r.Manifest.Name != "guest" || len(r.Manifest.Capabilities) != 2 {
		t.Errorf("manifest %+v", r.Manifest)
	}
}

// TestPrepareRefuses: what is wrong with a module comes back from the child as it was found.
func TestPrepareRefuses(t *testing.T) {
	asks := &wasmtest.Module{}
	asks.Import(abi.HostModule, "now_ms", "", "l")
	guest(asks)
	asks.Func(abi.Route, "ii", "l", "", mirror)
	lying := append([]byte("\x00asm\x01\x00\x00\x00"), 2, 5, 0xff, 0xff, 0xff, 0xff, 0x0f)
	for _, c := range []struct {
		name    string
		b       []byte
		change  func(*worker.PrepareConfig)
		section string
		reason  string
	}{
		{"not a module", []byte("hello"), nil, "module", "not WebAssembly"},
		{"a count that lies", lying, nil, "import", ""},
		{"no grant", asks.Bytes(), func(c *worker.PrepareConfig) { c.Manifest = manifest(abi.CapNow) }, "import", `capability "now"`},
		{"grant without asking", asks.Bytes(), func(c *worker.PrepareConfig) { c.Allowed = []abi.Capability{abi.CapNow} }, "import", `capability "now"`},
		{"no manifest", echo(), func(c *worker.PrepareConfig) { c.Manifest = nil }, "manifest", "there is none"},
		{"a bad manifest", echo(), func(c *worker.PrepareConfig) { c.Manifest = []byte(`{"name":1}`) }, "manifest", "name"},
		{"too large", echo(), func(c *worker.PrepareConfig) {
			c.Limits = map[abi.Kind]abi.Limits{abi.Policy: {Module: 20}, abi.Classifier: {Module: 10}}
		}, "module", "20 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := added(t, c.b)
			if c.change != nil {
				c.change(&cfg)
			}
			_, err := worker.Prepare(t.Context(), cfg)
			r, ok := errors.AsType[*module.RefusalError](err)
			if !ok || r.Section != c.section || !strings.Contains(r.Reason, c.reason) || r.Remedy == "" {
				t.Errorf("got %v, want a refusal of section %s for %q", err, c.section, c.reason)
			}
		})
	}
}

// TestPrepareIsBounded: whatever a child does, its parent hears soon what happened.
func TestPrepareIsBounded(t *testing.T) {
	for _, c := range []struct {
		how  string
		want worker.Exhausted
		said string
	}{
		{"spins", worker.ExhaustedCPU, ""},
		{"eats", worker.ExhaustedMemory, ""},
		{"sleeps", worker.ExhaustedWall, ""},
		{"leaves", "", "fatal error: something"},
		{"babbles", "", "broke the protocol"},
		{"promises", "", "broke the protocol"},
		{"floods", "", "flood"},
		{"lies", "", "another module"},
	} {
		t.Run(c.how, func(t *testing.T) {
			if c.how == "eats" && worker.Detecting {
				t.Skip("the race detector needs all memory there is; the same test without it shows this")
			}
			cfg := added(t, echo())
			cfg.Program, cfg.CPU, cfg.Wall, cfg.Memory = rogueProgram(t, c.how), 10*time.Second, 60*time.Second, 256<<20
			switch c.want {
			case worker.ExhaustedCPU:
				cfg.CPU = time.Second
			case worker.ExhaustedWall:
				cfg.Wall = 200 * time.Millisecond
			}
			_, err := worker.Prepare(t.Context(), cfg)
			if e, ok := errors.AsType[*worker.ExhaustedError](err); ok != (c.want != "") || ok && e.What != c.want {
				t.Errorf("got %v, want %q exhausted", err, c.want)
			}
			if err == nil || !strings.Contains(err.Error(), c.said) {
				t.Errorf("got %v, want %q", err, c.said)
			}
		})
	}
}

func TestPrepareEndsWithItsContext(t *testing.T) {
	cfg := added(t, echo())
	cfg.Program = rogueProgram(t, "sleeps")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := worker.Prepare(ctx, cfg); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestAdd(t *testing.T) {
	dir := t.TempDir()
	b := []byte("a module")
	h := sha256.Sum256(b)
	want := hex.EncodeToString(h[:])
	for range 2 { // the second time it is there already
		if got, err := worker.Add(dir, bytes.NewReader(b), 100, want); err != nil || got != want {
			t.Errorf("%s, %v", got, err)
		}
	}
	if got, err := os.ReadFile(worker.ModulePath(dir, want)); err != nil || !bytes.Equal(got, b) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := worker.Add(dir, bytes.NewReader(b), 7, ""); !errors.Is(err, worker.ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	if _, err := worker.Add(dir, bytes.NewReader(b), 100, strings.Repeat("0", 64)); !errors.Is(err, worker.ErrHash) {
		t.Errorf("another hash: %v", err)
	}
	if err := worker.Remove(dir, want); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	for _, hash := range []string{"", "..", "../" + want[3:], strings.ToUpper(want)} {
		if err := worker.Remove(dir, hash); err == nil {
			t.Errorf("%q passes for a hash", hash)
		}
	}
}

// TestChangedOnDisk: a module that is no longer what its name says is not prepared.
func TestChangedOnDisk(t *testing.T) {
	cfg := added(t, echo())
	if err := os.WriteFile(worker.ModulePath(cfg.Dir, cfg.SHA256), []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := worker.Prepare(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), worker.ErrHash.Error()) {
		t.Errorf("got %v", err)
	}
}

// TestOldVersions: what other versions and machines made of a module goes when it is prepared again.
func TestOldVersions(t *testing.T) {
	cfg := added(t, echo())
	folder := filepath.Join(cfg.Dir, "compiled", cfg.SHA256)
	old := []string{filepath.Join(folder, "metered-0.wasm"), filepath.Join(folder, "unfinished-1"), filepath.Join(folder, "code", "other", "code")}
	for _, path := range old {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if _, err := worker.Prepare(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range old {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
}

// TestUnprepared: a worker does not compile what no child has compiled.
func TestUnprepared(t *testing.T) {
	cfg := added(t, echo())
	w, err := worker.New(worker.Config{
		Program: cfg.Program, Dir: cfg.Dir, SHA256: cfg.SHA256, Manifest: abi.Manifest{Kind: abi.Policy}, Limits: abi.Policy.Limits(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Hurry()
	if err := w.Run(t.Context()); !errors.Is(err, worker.ErrUnprepared) || w.Restarts() != 0 {
		t.Errorf("got %v after %d restarts", err, w.Restarts())
	}
	if w.State() != worker.Suspended {
		t.Errorf("state %v", w.State())
	}
	if _, err := w.Call(t.Context(), route("{}")); !errors.Is(err, worker.ErrUnavailable) {
		t.Errorf("a call: %v", err)
	}
}

// TestCodeOfAnotherVersion: code that is gone is not made by the worker, which has no right to keep it and no bound on time.
func TestCodeOfAnotherVersion(t *testing.T) {
	if len(sandbox.Supported().Missing()) > 0 {
		t.Skip("on this system nothing keeps a worker from writing code")
	}
	cfg := prepared(t, t.TempDir(), echo())
	if err := os.RemoveAll(filepath.Join(cfg.Dir, "compiled", cfg.SHA256, "code")); err != nil {
		t.Fatal(err)
	}
	w, err := worker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(t.Context()); !errors.Is(err, worker.ErrUnprepared) {
		t.Errorf("got %v", err)
	}
}

// TestRewriteVersion notices when the rewrite changes, so that what older releases left is not taken for it. Whoever sees
// it fail raises rewriteVersion and puts the new hash here.
func TestRewriteVersion(t *testing.T) {
	b, _, _ := wasmtest.Random(7)
	out, err := meter.Rewrite(b, host.Structure(abi.Policy.Limits()))
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.Sum256(out)
	got := hex.EncodeToString(h[:8])
	if want := map[int]string{1: "076573a7f9727646"}[worker.RewriteVersion]; got != want {
		t.Errorf("version %d of the rewrite writes %s, want %s", worker.RewriteVersion, got, want)
	}
}
