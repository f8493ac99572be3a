// Command bench times what a decision of a module costs: in a worker, in the same process, in plain wazero and in Extism, the
// ways in turn within one run; and how long a policy takes from its upload to being active in a box.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/host"
	"onebit/extensions/payload"
	"onebit/extensions/worker"
)

// options are the command line.
type options struct {
	bin, guests, laya  string
	rounds, calls, ups int
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin/1bit", "our program")
	flag.StringVar(&o.guests, "guests", "bin/bench", "folder with cheapest.wasm, size.wasm and extism.wasm")
	flag.StringVar(&o.laya, "laya", "", "the built-in classifier's module, beside its manifest; empty for none")
	flag.IntVar(&o.rounds, "rounds", 60, "rounds")
	flag.IntVar(&o.calls, "calls", 100, "calls of each way in a round")
	flag.IntVar(&o.ups, "uploads", 7, "uploads")
	flag.Parse()
	var err error
	if o.bin, err = filepath.Abs(o.bin); err == nil { // children start elsewhere
		err = bench(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// way is one way of asking a module, with what it took.
type way struct {
	name   string
	call   func() error
	took   []time.Duration
	rounds []time.Duration // the median of each
}

func bench(o options) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b := &bencher{ctx: ctx, o: o}
	defer b.close()
	ways, err := b.ways()
	if err != nil {
		return err
	}
	before := load()
	for round := range o.rounds + 1 {
		for i := range ways {
			w := &ways[(i+round)%len(ways)]
			for range o.calls {
				from := time.Now()
				if err := w.call(); err != nil {
					return fmt.Errorf("%s: %w", w.name, err)
				}
				if round > 0 { // the first warms up
					w.took = append(w.took, time.Since(from))
				}
			}
			if round > 0 {
				last := slices.Sorted(slices.Values(w.took[len(w.took)-o.calls:]))
				w.rounds = append(w.rounds, last[len(last)/2])
			}
		}
	}
	fmt.Printf("%s, %d processors, load %s before and %s after; %d rounds of %d calls\n\n", cpu(), runtime.NumCPU(), before, load(), o.rounds, o.calls)
	show(ways)
	return b.uploads()
}

// show prints the table. The first row is what the others are compared with. Other work on the machine makes a whole round slow;
// "calm" is the median of the round that a quarter of the rounds are faster than.
func show(ways []way) {
	fmt.Printf("| %-46s | calm us | p50 us | p99 us | calm : first |\n|---|---|---|---|---|\n", "")
	first := 0.0
	for _, w := range ways {
		calm, p50, p99 := at(w.rounds, 0.25), at(w.took, 0.5), at(w.took, 0.99)
		if first == 0 {
			first = calm
		}
		fmt.Printf("| %-46s | %7.1f | %6.1f | %6.0f | %12.2f |\n", w.name, calm, p50, p99, calm/first)
	}
}

// at is a quantile in microseconds.
func at(all []time.Duration, share float64) float64 {
	slices.Sort(all)
	return float64(all[int(share*float64(len(all)-1))]) / float64(time.Microsecond)
}

// bencher makes the ways, and ends what they started.
type bencher struct {
	ctx  context.Context
	o    options
	ends []func()
}

func (b *bencher) later(f func()) { b.ends = append(b.ends, f) }

func (b *bencher) close() {
	for _, f := range slices.Backward(b.ends) {
		f()
	}
}

// candidates are four, as in a box with four models.
func candidates() (all []abi.Candidate) {
	for i, name := range []string{"smollm2-135m", "qwen2.5-coder-7b", "llama-3.3-70b", "gemma-3-27b"} {
		all = append(all, abi.Candidate{ID: name, Backend: "llama-server", Device: "vulkan", Model: name, Context: 8192 << i, Healthy: true, Queue: i % 2, PromptS: 900, DecodeS: 40, Price: float64(4 - i)})
	}
	return all
}

// request is a request about a prompt of so many bytes.
func request(size int) *abi.Request {
	words := strings.Repeat("Please explain how the tides work, and why there are two of them in a day. ", size/70+1)[:size]
	head, tail := payload.Cut(words)
	return &abi.Request{
		V: abi.Version, ID: "0123456789abcdef", Conversation: strings.Repeat("0f", 16), Turn: 1, API: "chat", Model: "auto", Tenant: "0123456789abcdef",
		Tokens: size / 4, Bytes: size, Flags: abi.Flags{Stream: true}, Head: head, Tail: tail, Candidates: candidates(),
	}
}

// offer is what an answer to request may use.
func offer(classes []string) payload.Offer {
	o := payload.Offer{Classes: classes, Reject: true}
	for _, c := range candidates() {
		o.Candidates = append(o.Candidates, c.ID)
	}
	return o
}

// guest is a module with its manifest.
type guest struct {
	module, manifest []byte
	parsed           abi.Manifest
}

func read(module, manifest string) (g guest, err error) {
	if g.module, err = os.ReadFile(module); err != nil {
		return g, err
	}
	if g.manifest, err = os.ReadFile(manifest); err != nil {
		return g, err
	}
	g.parsed, err = payload.ReadManifest(g.manifest)
	return g, err
}

func (b *bencher) read(name string) (guest, error) {
	return read(filepath.Join(b.o.guests, name+".wasm"), filepath.Join(b.o.guests, name+".json"))
}

// warm is what a guest is asked before its snapshot: as in a box, something else than afterwards.
func warm() []byte {
	r := request(24)
	r.ID, r.Candidates = "warm", r.Candidates[:2]
	raw, err := payload.AppendRequest(nil, r)
	if err != nil {
		panic(err) // it is written here
	}
	return raw
}

func functionOf(k abi.Kind) string {
	if k == abi.Classifier {
		return abi.Classify
	}
	return abi.Route
}

// asked is the deciding call of a guest about a prompt.
func (g guest) asked(size int) (host.Call, error) {
	raw, err := payload.AppendRequest(nil, request(size))
	return host.Call{Function: functionOf(g.parsed.Kind), Request: raw, Text: func(abi.Part) string { return "" }}, err
}

// worker starts a guest as a box does: checked, rewritten and compiled in a child, then in a process of its own.
func (b *bencher) worker(g guest) (*worker.Worker, error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, err
	}
	b.later(func() { _ = os.RemoveAll(dir) })
	program := []string{b.o.bin, worker.Command}
	hash, err := worker.Add(dir, bytes.NewReader(g.module), 8<<20, "")
	if err != nil {
		return nil, err
	}
	r, err := worker.Prepare(b.ctx, worker.PrepareConfig{Program: program, Dir: dir, SHA256: hash, Manifest: g.manifest, Allowed: g.parsed.Capabilities})
	if err != nil {
		return nil, err
	}
	r.Limits.Deadline = 10 * time.Second // a busy machine is no failure
	w, err := worker.New(worker.Config{
		Program: program, Dir: dir, SHA256: hash, Manifest: r.Manifest, Limits: r.Limits, Granted: r.Granted,
		Setup: host.Setup{Warm: warm()}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	b.later(func() {
		cancel()
		if err := <-done; err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
	})
	return w, w.Ready(b.ctx)
}

// inWorker asks for the call alone.
func (b *bencher) inWorker(name string, g guest, size int) (way, error) {
	c, err := g.asked(size)
	if err != nil {
		return way{}, err
	}
	w, err := b.worker(g)
	return way{name: name, call: func() error { return some(w.Call(b.ctx, c)) }}, err
}

// allIn writes the request, asks, and reads the decision.
func (b *bencher) allIn(name string, g guest, size int) (way, error) {
	c, err := g.asked(size)
	if err != nil {
		return way{}, err
	}
	w, err := b.worker(g)
	r, o := request(size), offer(g.parsed.Classes)
	return way{name: name, call: func() error {
		c := c
		if c.Request, err = payload.AppendRequest(nil, r); err != nil {
			return err
		}
		res, err := w.Call(b.ctx, c)
		if err != nil {
			return err
		}
		d, err := payload.ReadDecision(res.Answer, o)
		if err == nil && d == nil {
			err = errors.New("no opinion")
		}
		return err
	}}, err
}

func some(r host.Result, err error) error {
	if err == nil && len(r.Answer) == 0 {
		return errors.New("no answer")
	}
	return err
}

// load is the machine's load average over a minute.
func load() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(raw), " ")
	return one
}

// cpu is the processor's name.
func cpu() string {
	raw, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(raw)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.Trim(name, " \t:\n")
		}
	}
	return runtime.GOARCH
}
