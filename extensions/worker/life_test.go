package worker_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/host"
	"onebit/extensions/wasm/wasmtest"
	"onebit/extensions/worker"
)

// kill ends the process of a worker from outside, as a crash does.
func kill(t testing.TB, pid int) {
	t.Helper()
	p, err := os.FindProcess(pid)
	if err == nil {
		err = p.Kill()
		p.Release()
	}
	if err != nil {
		t.Error(err)
	}
}

// TestKillsLoseNoRequest kills process after process while clients ask; every request gets its own answer. It kills 50, and
// 1,000 with ONEBIT_ALL set.
func TestKillsLoseNoRequest(t *testing.T) {
	kills := 50
	if os.Getenv("ONEBIT_ALL") != "" {
		kills = 1000
	}
	for _, spare := range []bool{false, true} {
		t.Run(fmt.Sprintf("spare %v", spare), func(t *testing.T) { killsLoseNoRequest(t, kills, spare) })
	}
}

func killsLoseNoRequest(t *testing.T, kills int, spare bool) {
	cfg := prepared(t, t.TempDir(), echo())
	cfg.Limits.Deadline, cfg.Limits.Queue, cfg.Spare, cfg.Log = 10*time.Second, 64, spare, slog.New(slog.DiscardHandler)
	w, stop := keep(t, cfg)
	var over atomic.Bool
	var answers [4]atomic.Int64
	var group sync.WaitGroup
	for i := range answers {
		group.Go(func() {
			for j := 0; !over.Load(); j++ {
				want := fmt.Sprintf(`{"v":1,"id":"%d-%d"}`, i, j)
				r, err := w.Call(t.Context(), route(want))
				if err != nil || string(r.Answer) != want {
					t.Errorf("request %s got %q, %v", want, r.Answer, err)
					return
				}
				answers[i].Add(1)
			}
		})
	}
	last := 0
	for n := 0; n < kills && !t.Failed(); {
		if err := w.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		pid := w.Pid()
		if pid == 0 || pid == last {
			runtime.Gosched()
			continue
		}
		for i := range answers { // a call is sent three times at most: none is met by two kills here
			for before := answers[i].Load(); answers[i].Load() < before+2 && !t.Failed(); {
				runtime.Gosched()
			}
		}
		kill(t, pid)
		last = pid
		n++
	}
	over.Store(true)
	group.Wait()
	stop()
	if w.Restarts() < kills-1 {
		t.Errorf("%d restarts after %d kills", w.Restarts(), kills)
	}
	total := int64(0)
	for i := range answers {
		total += answers[i].Load()
	}
	t.Logf("%d answers, %d restarts", total, w.Restarts())
}

// TestDeadlyCall: a call under which processes die is not sent for ever.
func TestDeadlyCall(t *testing.T) {
	cfg := prepared(t, t.TempDir(), echo())
	cfg.Limits.Units, cfg.Limits.Deadline, cfg.Log = 1<<50, 30*time.Second, slog.New(slog.DiscardHandler)
	w, _ := keep(t, cfg)
	done := make(chan error)
	go func() {
		_, err := w.Call(t.Context(), host.Call{Function: abi.Classify, Request: []byte("{}")})
		done <- err
	}()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	killed := map[int]bool{}
	for {
		select {
		case err := <-done:
			if failed, ok := errors.AsType[*host.CallError](err); (!ok || failed.Cause != worker.CauseDied) && !errors.Is(err, worker.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
			if len(killed) < 2 {
				t.Errorf("it gave up after %d deaths", len(killed))
			}
			return
		case <-tick.C:
			if pid := w.Pid(); pid != 0 && !killed[pid] {
				killed[pid] = true
				kill(t, pid)
			}
		}
	}
}

// TestBusy: what does not fit into the queue is told so at once.
func TestBusy(t *testing.T) {
	cfg := prepared(t, t.TempDir(), echo())
	cfg.Limits.Units, cfg.Limits.Deadline, cfg.Limits.Instances, cfg.Limits.Queue = 1<<50, 300*time.Millisecond, 1, 2
	w, _ := keep(t, cfg)
	var group sync.WaitGroup
	var busy, late atomic.Int64
	for range 8 {
		group.Go(func() {
			_, err := w.Call(t.Context(), host.Call{Function: abi.Classify, Request: []byte("{}")})
			failed, ok := errors.AsType[*host.CallError](err)
			switch {
			case errors.Is(err, worker.ErrBusy):
				busy.Add(1)
			case ok && failed.Cause == host.CauseTimeout:
				late.Add(1)
			default:
				t.Errorf("got %v", err)
			}
		})
	}
	group.Wait()
	if busy.Load() != 5 || late.Load() != 3 {
		t.Errorf("%d busy, %d late; want 5 and 3", busy.Load(), late.Load())
	}
}

// TestCloseDrains: calls that began are answered, those that wait too.
func TestCloseDrains(t *testing.T) {
	cfg := prepared(t, t.TempDir(), echo())
	cfg.Limits.Units, cfg.Limits.Deadline, cfg.Limits.Instances = 1<<50, 200*time.Millisecond, 1
	w, stop := keep(t, cfg)
	var group sync.WaitGroup
	group.Go(func() { w.Call(t.Context(), host.Call{Function: abi.Classify, Request: []byte("{}")}) })
	answered := make(chan error, 1)
	group.Go(func() {
		for {
			r, err := w.Call(t.Context(), route("waits"))
			if err != nil || string(r.Answer) != "waits" || w.Waiting() == 0 {
				answered <- err
				return
			}
		}
	})
	stop()
	group.Wait()
	if err := <-answered; err != nil && !errors.Is(err, worker.ErrClosed) {
		t.Error(err)
	}
	if w.State() != worker.Closed {
		t.Errorf("state %v", w.State())
	}
}

// TestRefusedConfiguration: a guest that refuses its configuration is not started again and again.
func TestRefusedConfiguration(t *testing.T) {
	m := guest(&wasmtest.Module{})
	m.Data(answerAt, []byte("no, thanks"))
	m.Func(abi.Configure, "ii", "l", "", packed(answerAt, 10))
	m.Func(abi.Route, "ii", "l", "", mirror)
	cfg := prepared(t, t.TempDir(), m.Bytes())
	var states []worker.State
	cfg.OnState = func(s worker.State) { states = append(states, s) }
	w, err := worker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	err = w.Run(t.Context())
	if e, ok := errors.AsType[*host.SetupError](err); !ok || e.Step != abi.Configure || e.Refuse != "no, thanks" {
		t.Errorf("got %v", err)
	}
	if w.Restarts() != 0 || !slices.Equal(states, []worker.State{worker.Suspended}) {
		t.Errorf("%d restarts, states %v", w.Restarts(), states)
	}
}

// TestAssets reach the guest before the snapshot.
func TestAssets(t *testing.T) {
	m := &wasmtest.Module{}
	asset := m.Import(abi.HostModule, "asset", "iiiii", "i")
	guest(m)
	m.Data(100, []byte("weights"))
	m.Func(abi.Initialize, "", "", "", wasmtest.I32(100), wasmtest.I32(7), wasmtest.I32(0), wasmtest.I32(answerAt), wasmtest.I32(16), wasmtest.Call(asset), wasmtest.Op(0x1a))
	m.Func(abi.Route, "ii", "l", "", packed(answerAt, 8))
	cfg := prepared(t, t.TempDir(), m.Bytes(), abi.CapAsset)
	cfg.Limits.Assets = 1 << 20
	cfg.Setup.Assets = map[string][]byte{"weights": []byte("12345678"), "other": make([]byte, 100_000)}
	w, _ := keep(t, cfg)
	if r, err := w.Call(t.Context(), route("{}")); err != nil || string(r.Answer) != "12345678" {
		t.Errorf("%q, %v", r.Answer, err)
	}
}

// TestSuspended: a program that ends at once is tried some times, with pauses, and then no more.
func TestSuspended(t *testing.T) {
	cfg := prepared(t, t.TempDir(), echo())
	cfg.Program, cfg.Log = rogueProgram(t, "leaves"), slog.New(slog.DiscardHandler)
	var states []worker.State
	cfg.OnState = func(s worker.State) { states = append(states, s) }
	w, err := worker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.Hurry()
	if err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "fatal error: something") {
		t.Errorf("got %v", err)
	}
	if !slices.Contains(states, worker.BackingOff) || states[len(states)-1] != worker.Suspended {
		t.Errorf("states %v", states)
	}
	if err := w.Ready(t.Context()); !errors.Is(err, worker.ErrUnavailable) {
		t.Errorf("ready: %v", err)
	}
}

// TestTakenOver: a process that a guest has taken over can fail its calls and nothing else: each ends soon.
func TestTakenOver(t *testing.T) {
	for _, how := range []string{"answers-another", "answers-nonsense", "asks-for-ever", "hangs", "promises-much", "closes"} {
		t.Run(how, func(t *testing.T) {
			cfg := prepared(t, t.TempDir(), echo())
			cfg.Program, cfg.Log, cfg.Limits.Deadline = rogueProgram(t, how), slog.New(slog.DiscardHandler), 20*time.Millisecond
			w, err := worker.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			w.Hurry()
			ctx, cancel := context.WithCancel(t.Context())
			var group sync.WaitGroup
			group.Go(func() { w.Run(ctx) })
			defer func() {
				cancel()
				group.Wait()
			}()
			c := route(strings.Repeat("x", abi.MaxRequest))
			c.Services.Tokens = func(context.Context, string) (int, error) { return 1, nil }
			for range 3 {
				r, err := w.Call(t.Context(), c)
				if failed, ok := errors.AsType[*host.CallError](err); r.Answer != nil || !errors.Is(err, worker.ErrUnavailable) && (!ok || failed.Cause != worker.CauseDied && failed.Cause != host.CauseTimeout) {
					t.Errorf("%d bytes, %v", len(r.Answer), err)
				}
			}
		})
	}
}

// takenOver is a process that came up as it should and then does as it likes.
func takenOver(how string) {
	os.Stdout.Write(worker.Frame(5, 0, nil))
	head := make([]byte, 13)
	if how == "hangs" {
		time.Sleep(time.Hour)
	}
	for { // past the frames of the specification, to a call
		if _, err := io.ReadFull(os.Stdin, head); err != nil {
			return
		}
		skip := int64(binary.LittleEndian.Uint32(head))
		if _, err := io.CopyN(io.Discard, os.Stdin, skip); err != nil {
			return
		}
		if head[4] == 3 {
			break
		}
	}
	id := binary.LittleEndian.Uint64(head[5:])
	switch how {
	case "answers-another":
		os.Stdout.Write(worker.ResultFrame(id+1, host.Result{Answer: []byte("{}")}, nil))
	case "answers-nonsense":
		os.Stdout.Write(worker.Frame(9, id, bytes.Repeat([]byte{7}, 100)))
	case "asks-for-ever":
		for {
			if _, err := os.Stdout.Write(worker.AskFrame(id, "x")); err != nil {
				return
			}
		}
	case "promises-much":
		os.Stdout.Write([]byte{0xff, 0xff, 0xff, 0x7f, 9})
	case "closes":
		os.Stdin.Close()
		os.Stdout.Close()
	}
	time.Sleep(time.Hour)
}

// TestNothingIsLeft: descriptors, goroutines and processes are as before after lives and deaths of all kinds.
func TestNothingIsLeft(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("counting descriptors and processes is done by /proc")
	}
	dir := t.TempDir()
	life := func() {
		cfg := prepared(t, dir, echo())
		cfg.Spare, cfg.Log = true, slog.New(slog.DiscardHandler)
		cfg.Limits.Deadline = 5 * time.Second
		w, stop := keep(t, cfg)
		for range 3 {
			if _, err := w.Call(t.Context(), route("{}")); err != nil {
				t.Error(err)
			}
			kill(t, w.Pid())
		}
		if _, err := w.Call(t.Context(), route("{}")); err != nil {
			t.Error(err)
		}
		stop()
		rogue := prepared(t, dir, echo())
		rogue.Program, rogue.Log = rogueProgram(t, "babbles"), slog.New(slog.DiscardHandler)
		if w, err := worker.New(rogue); err == nil {
			w.Hurry()
			w.Run(t.Context())
		}
	}
	life()
	files, goroutines := descriptors(t), runtime.NumGoroutine()
	for range 3 {
		life()
	}
	if n := descriptors(t); n > files {
		t.Errorf("%d descriptors, %d before", n, files)
	}
	for range 100 { // those that end may still be on their way
		if runtime.NumGoroutine() <= goroutines {
			break
		}
		runtime.Gosched()
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		b := make([]byte, 1<<20)
		t.Errorf("%d goroutines, %d before\n%s", n, goroutines, b[:runtime.Stack(b, true)])
	}
	if left := children(t); len(left) > 0 {
		t.Errorf("processes left: %v", left)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// children lists the processes whose parent we are.
func children(t *testing.T) (all []string) {
	t.Helper()
	paths, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no list of children: %v", err)
	}
	for _, path := range paths {
		if b, err := os.ReadFile(path); err == nil {
			all = append(all, strings.Fields(string(b))...)
		}
	}
	return all
}

// TestEndsWithItsParent: a worker does not outlive the box, however that ends.
func TestEndsWithItsParent(t *testing.T) {
	dir := t.TempDir()
	cfg := prepared(t, dir, echo())
	cmd := exec.Command(program(t)[0], rogue, "parent", dir, cfg.SHA256)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatal(err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	for range 1000 {
		p, err := os.FindProcess(pid)
		if err == nil {
			err = signalled(p)
		}
		if err != nil {
			return
		}
		time.Sleep(5 * time.Millisecond) // the kernel tells nobody but its new parent
	}
	t.Errorf("process %d is left", pid)
}

// parent is a box in small that prints the process of its worker and goes on for ever.
func parent(dir, hash string) {
	w, err := worker.New(worker.Config{
		Program: []string{os.Args[0], worker.Command}, Dir: dir, SHA256: hash, Limits: abi.Policy.Limits(),
		Manifest: abi.Manifest{Name: "guest", Kind: abi.Policy}, Log: slog.New(slog.DiscardHandler),
	})
	if err == nil {
		go func() {
			if err := w.Ready(context.Background()); err == nil {
				fmt.Println(w.Pid())
			}
		}()
		err = w.Run(context.Background())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
