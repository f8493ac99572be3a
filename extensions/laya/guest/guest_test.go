package main_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/host"
	"onebit/extensions/laya"
	"onebit/extensions/laya/built"
	"onebit/extensions/payload"
	"onebit/extensions/tck"
	"onebit/extensions/worker"
)

// build builds the module.
func build(t testing.TB) []byte {
	t.Helper()
	for _, f := range []string{"main.go", "view.go", "../features.go", "../laya.go", "../runes.go", "../weights.bin", "../../build.sh", "../../guest/go/laya.go"} {
		if _, err := os.ReadFile(f); err != nil { // so that a cached result does not outlive it
			t.Fatal(err)
		}
	}
	out := filepath.Join(t.TempDir(), "laya.wasm")
	if b, err := exec.CommandContext(t.Context(), "bash", "../../build.sh", "one", ".", out).CombinedOutput(); err != nil {
		t.Fatalf("building the module: %v\n%s", err, b)
	}
	code, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// load takes the module in as a box does.
func load(t testing.TB) *tck.Guest {
	t.Helper()
	m, err := payload.ReadManifest(built.Manifest())
	if err != nil {
		t.Fatal(err)
	}
	g, err := tck.Load(t.Context(), tck.Module{Code: build(t), Manifest: m, Cache: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close(context.Background()) })
	return g
}

// question asks about a message as a box does.
func question(t testing.TB, text string) tck.Question {
	t.Helper()
	head, tail := payload.Cut(text)
	raw, err := payload.AppendRequest(nil, &abi.Request{V: abi.Version, ID: "r", Conversation: "c", Turn: 1, API: "chat", Model: "auto", Bytes: len(text), Head: head, Tail: tail})
	if err != nil {
		t.Fatal(err)
	}
	return tck.Question{Function: abi.Classify, Request: raw, Patience: 40}
}

// TestModule runs the kit's tests, with the manifest's samples, and compares the module's answers with those of the package on every
// labelled text.
func TestModule(t *testing.T) {
	g := load(t)
	for _, f := range g.Test(t.Context()) {
		if f.Err != nil {
			t.Errorf("%s: %v", f.Test, f.Err)
		}
	}
	m, err := laya.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	texts := texts(t)
	texts = append(texts, strings.Join(texts, "\n"), strings.Join(texts, "\n")[:1023], `quotes " and \ and `+"\t\n é 漢 \U0001f600")
	f := new(laya.Features)
	units := int64(0)
	for _, text := range texts {
		got, err := g.Ask(t.Context(), question(t, text))
		if err != nil {
			t.Fatalf("%.40q: %v", text, err)
		}
		want := m.Classify([]byte(text), len(text), f)
		if d := got.Decision; d == nil || d.Class != want.Class.String() || math.Abs(d.Confidence-float64(want.Confidence)) > 0.00011 {
			t.Errorf("%.40q: the module says %+v, the package %v", text, d, want)
		}
		units = max(units, got.Units)
	}
	t.Logf("%d texts; at most %d units", len(texts), units)
}

// texts are the labelled texts.
func texts(t *testing.T) (list []string) {
	files, err := filepath.Glob("../testdata/*-*.jsonl")
	if err != nil || len(files) != 30 {
		t.Fatalf("%d sets, %v", len(files), err)
	}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			var l struct{ Text string }
			if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
				t.Fatal(err)
			}
			list = append(list, l.Text)
		}
	}
	return list
}

// BenchmarkDecision: a whole decision in this process, with the reset that follows; quantiles, since means tell of other work.
func BenchmarkDecision(b *testing.B) {
	g := load(b)
	for _, n := range []int{50, 1000} {
		q := question(b, prose(n))
		b.Run(fmt.Sprint(n, " bytes"), func(b *testing.B) {
			measure(b, func() error { _, err := g.Ask(b.Context(), q); return err })
		})
	}
}

// prose is a text of so many bytes.
func prose(n int) string {
	return strings.Repeat("Could you explain, please, how this works? ", 24)[:n]
}

// measure reports quantiles.
func measure(b *testing.B, call func() error) {
	var all []time.Duration
	for b.Loop() {
		from := time.Now()
		if err := call(); err != nil {
			b.Fatal(err)
		}
		all = append(all, time.Since(from))
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
}

// TestMain is a worker's process too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == worker.Command {
		os.Exit(worker.Child(os.Args[2:], os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

// BenchmarkWorker: a whole decision in a worker, all in: the request's JSON is written, the answer read.
func BenchmarkWorker(b *testing.B) {
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	dir, program := b.TempDir(), []string{self, worker.Command}
	hash, err := worker.Add(dir, bytes.NewReader(build(b)), 8<<20, "")
	if err != nil {
		b.Fatal(err)
	}
	r, err := worker.Prepare(b.Context(), worker.PrepareConfig{Program: program, Dir: dir, SHA256: hash, Manifest: built.Manifest()})
	if err != nil {
		b.Fatal(err)
	}
	r.Limits.Deadline = 20 * time.Second
	w, err := worker.New(worker.Config{Program: program, Dir: dir, SHA256: hash, Manifest: r.Manifest, Limits: r.Limits, Granted: r.Granted,
		Setup: host.Setup{Warm: question(b, prose(1000)).Request}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() {
		if err := w.Run(context.Background()); err != nil {
			b.Error(err)
		}
	})
	defer group.Wait()
	defer w.Close()
	if err := w.Ready(b.Context()); err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{50, 1000} {
		text := prose(n)
		b.Run(fmt.Sprint(n, " bytes"), func(b *testing.B) {
			measure(b, func() error {
				res, err := w.Call(b.Context(), host.Call{Function: abi.Classify, Request: question(b, text).Request})
				if err != nil {
					return err
				}
				_, err = payload.ReadDecision(res.Answer, payload.Offer{Classes: r.Manifest.Classes})
				return err
			})
		})
	}
}
