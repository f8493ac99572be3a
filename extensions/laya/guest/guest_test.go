package main_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/laya"
	"onebit/extensions/laya/built"
	"onebit/extensions/payload"
	"onebit/extensions/tck"
)

// load builds the module and takes it in as a box does.
func load(t testing.TB) *tck.Guest {
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
	m, err := payload.ReadManifest(built.Manifest())
	if err != nil {
		t.Fatal(err)
	}
	g, err := tck.Load(t.Context(), tck.Module{Code: code, Manifest: m, Cache: t.TempDir()})
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
	if err != nil || len(files) != 20 {
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
		b.Run(fmt.Sprint(n, " bytes"), func(b *testing.B) {
			q := question(b, strings.Repeat("Could you explain, please, how this works? ", 24)[:n])
			var all []time.Duration
			for b.Loop() {
				from := time.Now()
				if _, err := g.Ask(b.Context(), q); err != nil {
					b.Fatal(err)
				}
				all = append(all, time.Since(from))
			}
			slices.Sort(all)
			b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
		})
	}
}
