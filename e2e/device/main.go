//go:build unix

// Command device tries one device of this box with one model, from outside: it starts `1bit serve`, asks, streams, asks
// many times at once, kills the child, does so in a box whose servers are confined, starts and stops again, and looks each
// time whether the device's memory comes back. `make e2e-device DEVICE= MODEL=` runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// options is what the command line says.
type options struct {
	bin, device, model, llama, embed string
	question, expect, record         string
	parallel, loads                  int
	kill, boxes                      bool
	startTime                        time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin/1bit", "our program")
	flag.StringVar(&o.device, "device", "", "vulkan, hrx, rocm, cpu, npu ... (required)")
	flag.StringVar(&o.model, "model", "", "the model (required)")
	flag.StringVar(&o.llama, "llama-server", "", "the llama-server to use; empty: the one that serve finds")
	flag.StringVar(&o.embed, "embed", "", "a model for /v1/embeddings, served beside")
	flag.StringVar(&o.question, "question", "Which city is the capital of France?", "what is asked")
	flag.StringVar(&o.expect, "expect", "Paris", "what the answer must contain; empty: any text is right")
	flag.StringVar(&o.record, "record", "", "a file to which a line with the results is added")
	flag.IntVar(&o.parallel, "parallel", 0, "this many slots and as many clients at once")
	flag.IntVar(&o.loads, "loads", 0, "starts and stops after everything else")
	flag.BoolVar(&o.kill, "kill", false, "kill the child in the middle of an answer")
	flag.BoolVar(&o.boxes, "box", false, "try it in a box, whose servers are confined, too; behind `1bit engines` when we are root")
	flag.DurationVar(&o.startTime, "start-time", 5*time.Minute, "how long a start may take")
	flag.Parse()
	if o.device == "" || o.model == "" || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "usage: device -device NAME -model FILE [flags]; -h lists them")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	t := &trial{options: o, memory: deviceMemory()}
	t.run(ctx)
	if err := t.note(); err != nil {
		t.fail("record", err)
	}
	if len(t.failed) > 0 {
		fmt.Printf("%d checks failed: %s\n", len(t.failed), strings.Join(t.failed, ", "))
		stop()
		os.Exit(1)
	}
	fmt.Println("all checks passed")
}

// trial is one run over a device.
type trial struct {
	options
	memory func() (mib int, ok bool) // in use on the device
	failed []string
	passed []string
	speed  float64 // tokens a second of the streamed answer
	load   time.Duration
}

func (t *trial) ok(name, format string, args ...any) {
	t.passed = append(t.passed, name)
	fmt.Printf("ok    %-10s %s\n", name, fmt.Sprintf(format, args...))
}

func (t *trial) fail(name string, err error) {
	t.failed = append(t.failed, name)
	fmt.Printf("FAIL  %-10s %v\n", name, err)
}

// check runs one check, which returns what it saw.
func (t *trial) check(name string, run func() (string, error)) {
	saw, err := run()
	if err != nil {
		t.fail(name, err)
		return
	}
	t.ok(name, "%s", saw)
}

func (t *trial) run(ctx context.Context) {
	before, measured := t.memory()
	s, err := t.start(ctx)
	if err != nil {
		t.fail("health", err)
		return
	}
	t.load = s.load
	t.ok("health", "after %.2f s", s.load.Seconds())
	t.check("name", func() (string, error) { return s.named(ctx, t.device, filepath.Base(t.model)) })
	t.check("answer", func() (string, error) { return s.answered(ctx, t.question, t.expect) })
	t.check("stream", func() (string, error) {
		a, err := s.stream(ctx, t.question, 64)
		t.speed = a.speed
		return a.String(), errors.Join(err, a.right(t.expect))
	})
	if t.embed != "" {
		t.check("embed", func() (string, error) { return s.embedded(ctx) })
	}
	if t.parallel > 0 {
		t.check("parallel", func() (string, error) { return t.together(ctx, s) })
	}
	if t.kill {
		t.check("kill", func() (string, error) { return t.killed(ctx, s) })
	}
	if measured {
		used, _ := t.memory()
		t.ok("memory", "%d MiB in use before, %d while it serves", before, used)
	}
	t.check("stop", func() (string, error) { return t.stopped(s, before, measured) })
	if t.boxes {
		t.boxed(ctx, before, measured)
	}
	if t.loads > 0 {
		t.check("loads", func() (string, error) { return t.cycle(ctx, before, measured) })
	}
}

// together asks as many clients at once as there are slots.
func (t *trial) together(ctx context.Context, s *server) (string, error) {
	var group sync.WaitGroup
	errs := make([]error, t.parallel)
	answers := make([]answer, t.parallel)
	begin := time.Now()
	for i := range t.parallel {
		group.Go(func() {
			answers[i], errs[i] = s.stream(ctx, fmt.Sprintf("%s (%d)", t.question, i), 64)
		})
	}
	group.Wait()
	total := 0
	for i, a := range answers {
		if errs[i] == nil && a.pieces == 0 {
			errs[i] = fmt.Errorf("client %d got no text", i)
		}
		total += a.tokens
	}
	took := time.Since(begin).Seconds()
	return fmt.Sprintf("%d clients, %d tokens in %.2f s: %.0f t/s together", t.parallel, total, took, float64(total)/took), errors.Join(errs...)
}

// killed kills the child in the middle of an answer. The client must get an error, and the next one an answer.
func (t *trial) killed(ctx context.Context, s *server) (string, error) {
	kids, err := children(s.cmd.Process.Pid)
	if err != nil || len(kids) == 0 {
		return "", fmt.Errorf("serve has no child that could be killed (%w)", err)
	}
	victim := kids[0]
	a, err := s.streamUntil(ctx, "Write a long story about a river.", 2000, func(pieces int) {
		if pieces == 3 {
			if err := syscall.Kill(victim, syscall.SIGKILL); err != nil {
				fmt.Println("killing the child:", err)
			}
		}
	})
	switch {
	case err == nil:
		return "", fmt.Errorf("the stream of a dead child ended like a whole one after %d pieces", a.pieces)
	case !errors.Is(err, errEvent):
		return "", fmt.Errorf("the client got no error event, but: %w", err)
	}
	said := err
	begin := time.Now()
	if err := s.healthy(ctx, t.startTime); err != nil {
		return "", err
	}
	back := time.Since(begin)
	if _, err := s.answered(ctx, t.question, t.expect); err != nil {
		return "", fmt.Errorf("after the restart: %w", err)
	}
	return fmt.Sprintf("error event (%v), healthy again after %.2f s, answers", said, back.Seconds()), nil
}

// stopped ends the server. Nothing of it may be left, on the device neither.
func (t *trial) stopped(s *server, before int, measured bool) (string, error) {
	kids, err := children(s.cmd.Process.Pid)
	if err != nil {
		return "", err
	}
	took, err := s.stop()
	if err != nil {
		return "", err
	}
	for _, pid := range kids {
		if alive(pid) {
			return "", fmt.Errorf("child %d outlived serve", pid)
		}
	}
	if !measured {
		return fmt.Sprintf("in %.2f s; no way to read the device's memory", took.Seconds()), nil
	}
	after, err := t.returned(before)
	return fmt.Sprintf("in %.2f s, device memory at %d MiB (%d before)", took.Seconds(), after, before), err
}

// returned waits until the device's memory is where it was, give or take what drivers keep.
func (t *trial) returned(before int) (after int, err error) {
	const slack, patience = 16, 10 * time.Second
	for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		after, ok := t.memory()
		if !ok {
			return 0, errors.New("the device's memory cannot be read any more")
		}
		if after <= before+slack {
			return after, nil
		}
		if time.Since(begin) > patience {
			return after, fmt.Errorf("%d MiB in use, %d before the start", after, before)
		}
	}
}

// cycle starts, asks and stops again and again.
func (t *trial) cycle(ctx context.Context, before int, measured bool) (string, error) {
	begin := time.Now()
	most := 0
	for i := range t.loads {
		s, err := t.start(ctx)
		if err == nil {
			_, err = s.stream(ctx, t.question, 8)
			if used, ok := t.memory(); ok {
				most = max(most, used)
			}
			_, e := t.stopped(s, before, measured)
			err = errors.Join(err, e)
		}
		if err != nil {
			return "", fmt.Errorf("start %d of %d: %w", i+1, t.loads, err)
		}
		if done := i + 1; done%10 == 0 && done < t.loads {
			fmt.Printf("      %d starts and stops\n", done)
		}
	}
	last, _ := t.memory()
	return fmt.Sprintf("%d starts and stops in %.0f s; device memory %d MiB before, %d at most, %d at the end",
		t.loads, time.Since(begin).Seconds(), before, most, last), nil
}

// note adds a line about this run to the record.
func (t *trial) note() error {
	if t.record == "" {
		return nil
	}
	f, err := os.OpenFile(t.record, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	version, _ := exec.Command(t.bin, "version").Output()
	failed := "none"
	if len(t.failed) > 0 {
		failed = strings.Join(t.failed, " ")
	}
	_, err = fmt.Fprintf(f, "%s | %s | %s | %s | %s | load %.2f s | %.1f t/s | passed: %s | failed: %s\n",
		time.Now().UTC().Format("2006-01-02 15:04"), machine(), t.device, filepath.Base(t.model), strings.TrimSpace(string(version)),
		t.load.Seconds(), t.speed, strings.Join(t.passed, " "), failed)
	return errors.Join(err, f.Close())
}
