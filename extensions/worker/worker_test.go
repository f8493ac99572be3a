package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/host"
	"onebit/extensions/wasm"
	"onebit/extensions/wasm/wasmtest"
	"onebit/extensions/worker"
)

// rogue is a sub-command of the test binary: a child that does something else.
const rogue = "rogue"

// TestMain is our own program in small.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == worker.Command {
		os.Exit(worker.Child(os.Args[2:], os.Stdin, os.Stdout))
	}
	if len(os.Args) > 2 && os.Args[1] == rogue {
		misbehave(os.Args[2])
	}
	os.Exit(m.Run())
}

// program is the command line of a child.
func program(t testing.TB) []string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{path, worker.Command}
}

// Where guests take requests and have their answers.
const (
	bufferAt = 4096
	answerAt = 1024
)

// guest begins a guest after its imports.
func guest(m *wasmtest.Module) *wasmtest.Module {
	m.Memory(2, 16)
	m.Func(abi.Marker, "", "", "")
	m.Func(abi.Buffer, "i", "i", "", wasmtest.I32(bufferAt))
	return m
}

func packed(at, n int32) []byte { return wasmtest.I64(int64(at)<<32 | int64(n)) }

// mirror answers what it was asked.
var mirror = slices.Concat(wasmtest.Get(0), wasmtest.Op(0xad), wasmtest.I64(32), wasmtest.Op(0x86), wasmtest.Get(1), wasmtest.Op(0xad), wasmtest.Op(0x84))

// echo answers with the request; endless works for ever when it is asked to classify.
func echo() []byte {
	m := guest(&wasmtest.Module{})
	m.Func(abi.Route, "ii", "l", "", mirror)
	m.Func(abi.Classify, "ii", "l", "", wasmtest.Loop(wasmtest.With(wasm.OpBr, 0)), wasmtest.I64(0))
	return m.Bytes()
}

// prepared adds and prepares a module, and returns the configuration of a worker for it.
func prepared(t testing.TB, dir string, b []byte, caps ...abi.Capability) worker.Config {
	t.Helper()
	hash, err := worker.Add(dir, bytes.NewReader(b), 8<<20, "")
	if err != nil {
		t.Fatal(err)
	}
	r, err := worker.Prepare(t.Context(), worker.PrepareConfig{Program: program(t), Dir: dir, SHA256: hash, Manifest: manifest(caps...), Allowed: caps})
	if err != nil {
		t.Fatal(err)
	}
	r.Limits.Deadline = 20 * time.Second // a busy machine is no reason to fail
	return worker.Config{
		Program: program(t), Dir: dir, SHA256: hash, Manifest: r.Manifest, Limits: r.Limits, Granted: r.Granted,
		Log: slog.New(slog.NewTextHandler(testLog{t}, nil)),
	}
}

// testLog writes a log into a test's.
type testLog struct{ t testing.TB }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

func manifest(caps ...abi.Capability) []byte {
	b, err := json.Marshal(map[string]any{"name": "guest", "version": "1", "abi": 1, "kind": abi.Policy, "capabilities": append([]abi.Capability{}, caps...), "metrics": []string{"hits"}})
	if err != nil {
		panic(err)
	}
	return b
}

// keep runs a worker until the test ends, or stop is called.
func keep(t testing.TB, cfg worker.Config) (w *worker.Worker, stop func()) {
	t.Helper()
	w, err := worker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.Hurry()
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	var once sync.Once
	stop = func() {
		once.Do(func() {
			w.Close()
			group.Wait()
			cancel()
		})
	}
	t.Cleanup(stop)
	if err := w.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w, stop
}

func route(request string) host.Call {
	return host.Call{Function: abi.Route, Request: []byte(request)}
}

// TestCalls: every caller gets its own answer.
func TestCalls(t *testing.T) {
	cfg := prepared(t, t.TempDir(), echo())
	cfg.Limits.Queue = 64
	w, _ := keep(t, cfg)
	var group sync.WaitGroup
	for i := range 16 {
		group.Go(func() {
			for j := range 100 {
				want := fmt.Sprintf(`{"v":1,"id":"%d-%d"}`, i, j)
				r, err := w.Call(t.Context(), route(want))
				if err != nil || string(r.Answer) != want || r.Units <= 0 || r.Pages != 2 {
					t.Errorf("%+v, %v; want %s", r, err, want)
					return
				}
			}
		})
	}
	group.Wait()
	if w.Restarts() != 0 {
		t.Errorf("%d restarts", w.Restarts())
	}
}

// TestServices: what only the box can do reaches the call's services, and comes back.
func TestServices(t *testing.T) {
	m := &wasmtest.Module{}
	const out = "iiii"
	imports := map[string]uint32{}
	for _, f := range []struct{ name, params, results string }{
		{"tokens", "ii", "i"}, {"kv_add", "iilii", "i"}, {"kv_set", "iiiii", "i"}, {"kv_get", out, "i"}, {"text", out, "i"}, {"metric", "id", "i"},
		{"now_ms", "", "l"}, {"embed", out, "i"}, {"decide", out, "i"}, {"log", "iii", ""},
	} {
		imports[f.name] = m.Import(abi.HostModule, f.name, f.params, f.results)
	}
	guest(m)
	const key, value, question, vector, text, choice = 100, 110, 120, 1048, 1064, 1128
	ask := `{"text":"t","criteria":{"a":"A"}}`
	m.Data(key, []byte("key"))
	m.Data(value, []byte("value"))
	m.Data(question, []byte(ask))
	i32 := wasmtest.I32
	store := func(at int32, v ...[]byte) []byte {
		return slices.Concat(i32(at), slices.Concat(v...), wasmtest.Store())
	}
	call := func(name string) []byte { return wasmtest.Call(imports[name]) }
	body := func(asked ...[]byte) []byte {
		return slices.Concat(
			i32(1), i32(key), i32(3), call("log"),
			i32(0), wasmtest.F64(2.5), call("metric"), wasmtest.Op(0x1a),
			store(answerAt, i32(key), i32(3), call("tokens")),
			i32(key), i32(3), wasmtest.I64(5), i32(0), i32(answerAt+8), call("kv_add"), wasmtest.Op(0x1a),
			i32(value), i32(5), i32(value), i32(5), i32(60), call("kv_set"), wasmtest.Op(0x1a),
			store(answerAt+4, i32(value), i32(5), i32(text+40), i32(8), call("kv_get")),
			i32(0), i32(2), i32(text), i32(32), call("text"), wasmtest.Op(0x1a),
			slices.Concat(asked...),
			i32(answerAt+16), call("now_ms"), wasmtest.Op(0x37, 3, 0),
			packed(answerAt, 256))
	}
	m.Func(abi.Route, "ii", "l", "", body(i32(key), i32(3), i32(vector), i32(8), call("embed"), wasmtest.Op(0x1a)))
	m.Func(abi.Classify, "ii", "l", "", body(i32(question), i32(int32(len(ask))), i32(choice), i32(64), call("decide"), wasmtest.Op(0x1a)))
	w, _ := keep(t, prepared(t, t.TempDir(), m.Bytes(), abi.CapTokens, abi.CapKV, abi.CapText, abi.CapMetric, abi.CapNow, abi.CapEmbed, abi.CapDecide))

	var metrics []float64
	services := host.Services{
		Now:    func() time.Time { return time.UnixMilli(1234567890) },
		Tokens: func(_ context.Context, text string) (int, error) { return len(text) * 11, nil },
		Embed:  func(context.Context, string) ([]float32, error) { return []float32{1, 2}, nil },
		Decide: func(_ context.Context, text string, criteria map[string]string) (string, float64, map[string]float64, error) {
			return criteria["a"] + text, 0.5, map[string]float64{"a": 1}, nil
		},
		KV:     host.NewKeys(time.Now),
		Metric: func(name string, v float64) { metrics = append(metrics, v) },
	}
	for i, function := range []string{abi.Route, abi.Classify} {
		r, err := w.Call(t.Context(), host.Call{Function: function, Request: []byte("{}"), Services: services, Text: func(p abi.Part) string { return "xy the prompt" }})
		if err != nil || len(r.Answer) != 256 {
			t.Fatalf("%d bytes, %v", len(r.Answer), err)
		}
		a := r.Answer
		if a[0] != 33 || a[4] != 5 || a[8] != byte(5*(i+1)) || string(a[text-answerAt:][:11]) != " the prompt"[:11] || string(a[text+40-answerAt:][:5]) != "value" {
			t.Errorf("%s: tokens %d, kv_get %d, kv_add %d, text %q", function, a[0], a[4], a[8], a[text-answerAt:][:48])
		}
		if function == abi.Route && (a[vector-answerAt+3] != 0x3f || a[vector-answerAt+7] != 0x40) {
			t.Errorf("embed %x", a[vector-answerAt:][:8])
		}
		if function == abi.Classify && !strings.HasPrefix(string(a[choice-answerAt:]), `{"choice":"At","confidence":0.5,"scores":{"a":1}}`) {
			t.Errorf("decide %s", a[choice-answerAt:])
		}
		if len(r.Log) != 1 || r.Log[0] != (host.Line{Level: abi.Info, Text: "key"}) {
			t.Errorf("log %v", r.Log)
		}
	}
	if !slices.Equal(metrics, []float64{2.5, 2.5}) {
		t.Errorf("metrics %v", metrics)
	}
}

// TestGuestsOwnEnd: a guest that does not end is ended by its own process, which goes on.
func TestGuestsOwnEnd(t *testing.T) {
	cfg := prepared(t, t.TempDir(), echo())
	cfg.Limits.Units, cfg.Limits.Deadline = 1<<50, 30*time.Millisecond
	w, _ := keep(t, cfg)
	_, err := w.Call(t.Context(), host.Call{Function: abi.Classify, Request: []byte("{}")})
	if failed, ok := errors.AsType[*host.CallError](err); !ok || failed.Cause != host.CauseTimeout {
		t.Fatalf("got %v, want a timeout", err)
	}
	if w.Restarts() != 0 {
		t.Errorf("%d restarts", w.Restarts())
	}
}

// TestCallerGoesAway: a caller that gives up leaves at once; its call does not get in the way of others.
func TestCallerGoesAway(t *testing.T) {
	cfg := prepared(t, t.TempDir(), echo())
	cfg.Limits.Units, cfg.Limits.Deadline, cfg.Limits.Instances = 1<<50, time.Minute, 1
	w, stop := keep(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := w.Call(ctx, host.Call{Function: abi.Classify, Request: []byte("{}"), Deadline: time.Now().Add(300 * time.Millisecond)})
		done <- err
	}()
	for runtime.Gosched(); w.Waiting() == 0; runtime.Gosched() { // until the one above holds the instance
		short, end := context.WithTimeout(t.Context(), time.Millisecond)
		_, err := w.Call(short, route("{}"))
		end()
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller that left got %v", err)
	}
	if r, err := w.Call(t.Context(), route("later")); err != nil || string(r.Answer) != "later" {
		t.Errorf("%q, %v", r.Answer, err)
	}
	stop()
	if _, err := w.Call(t.Context(), route("{}")); !errors.Is(err, worker.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}
