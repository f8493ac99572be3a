package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"onebit/engine/gguf"
	"onebit/engine/model"
	"onebit/engine/tensor"
	"onebit/engine/tokenizer"
)

const toolUsage = `usage: 1bit tool NAME [options]

  memory           the machine's read bandwidth
  perplexity       how well a model predicts a text
  mtp-draft-vocab  a draft head that proposes from part of the vocabulary
  hadamard         a rotated, stamped Q4_0 file

1bit tool NAME -h says more.
`

// maxThreads is more than any machine that we know has cores.
const maxThreads = 1024

// toolCommands are the tools by name. What takes long ends with ctx.
func toolCommands(ctx context.Context) map[string]command {
	return map[string]command{
		"memory": runToolMemory, "perplexity": runToolPerplexity(ctx),
		"mtp-draft-vocab": runToolMTPDraftVocab, "hadamard": runToolHadamard,
	}
}

// tool is `1bit tool`.
func (p program) tool(ctx context.Context, args []string) int {
	if len(args) == 0 {
		fmt.Fprint(p.stderr, toolUsage)
		return 2
	}
	if args[0] == "-h" || args[0] == "--help" {
		fmt.Fprint(p.stdout, toolUsage)
		return 0
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	run, ok := toolCommands(ctx)[args[0]]
	if !ok {
		fmt.Fprintf(p.stderr, "1bit tool: there is no tool %q\n%s", args[0], toolUsage)
		return 2
	}
	return run(args[1:], p.stdout, p.stderr)
}

const memoryUsage = `usage: 1bit tool memory [-t THREADS]

Prints how fast the machine reads memory that no cache holds, in GB/s: the best
of five passes over 1 GiB.

  -t THREADS  readers (1)
`

// runToolMemory is `1bit tool memory`.
func runToolMemory(args []string, stdout, stderr io.Writer) int {
	o := newOptions("tool memory", memoryUsage, stdout, stderr)
	threads := o.whole("t", 1, 1, maxThreads)
	if status, done := o.parse(args, 0, 0); done {
		return status
	}
	return o.finish(memory(*threads, stdout))
}

func memory(threads int, stdout io.Writer) error {
	kernels, err := tensor.For(tensor.Detect())
	if err != nil {
		return err
	}
	team := tensor.NewTeam(threads)
	defer team.Close()
	arena := tensor.NewArena()
	defer arena.Close()
	buffer := arena.Bytes(1 << 30)
	for i := 0; i < len(buffer); i += 4096 {
		buffer[i] = 1 // else every page is the same page of zeros
	}
	best := time.Duration(1 << 62)
	for range 5 {
		begin := time.Now()
		kernels.ReadSum(team, buffer)
		best = min(best, time.Since(begin))
	}
	fmt.Fprintf(stdout, "%.2f GB/s with %d threads\n", float64(len(buffer))/best.Seconds()/1e9, threads)
	return nil
}

const perplexityUsage = `usage: 1bit tool perplexity -m MODEL -f TEXT [-c TOKENS] [-t THREADS]

Prints a model's perplexity on a text, which is cut as llama-perplexity cuts it.

  -m MODEL    a GGUF file that the built-in engine runs
  -f TEXT     a file, at most 64 MiB
  -c TOKENS   of a window (512)
  -t THREADS  workers (what suits the machine)
`

// measurement is what is asked of `1bit tool perplexity`.
type measurement struct {
	file, text      string
	window, threads int
}

// runToolPerplexity returns `1bit tool perplexity`, which ends with ctx.
func runToolPerplexity(ctx context.Context) command {
	return func(args []string, stdout, stderr io.Writer) int {
		o := newOptions("tool perplexity", perplexityUsage, stdout, stderr)
		var m measurement
		o.StringVar(&m.file, "m", "", "")
		o.StringVar(&m.text, "f", "", "")
		window, threads := o.whole("c", 512, 2, 1<<24), o.whole("t", 0, 1, maxThreads)
		if status, done := o.parse(args, 0, 0); done {
			return status
		}
		if m.file == "" || m.text == "" {
			return o.wrong("-m MODEL and -f TEXT are needed")
		}
		m.window, m.threads = *window, *threads
		return o.finish(m.run(ctx, o))
	}
}

// run prints the perplexity.
func (p measurement) run(ctx context.Context, o *options) error {
	text, err := readText(p.text)
	if err != nil {
		return err
	}
	f, err := gguf.Open(p.file)
	if err != nil {
		return fmt.Errorf("opening %q: %w", p.file, err)
	}
	defer func() { _ = f.Close() }()
	vocabulary, err := tokenizer.New(f)
	if err != nil {
		return fmt.Errorf("reading the vocabulary of %q: %w", p.file, err)
	}
	level, err := tensor.LevelFromEnv()
	if err != nil {
		return err
	}
	m, err := model.Load(f, model.Config{Context: max(p.window, 512), Threads: p.threads, BatchThreads: p.threads, Level: level})
	if err != nil {
		return fmt.Errorf("loading %q: %w", p.file, err)
	}
	defer m.Close()
	cfg := model.PerplexityConfig{Window: p.window, BOS: -1, Progress: func(done, total int, value float64) {
		o.log("[%d/%d] %.4f", done, total, value)
	}}
	if bos, ok := vocabulary.BOS(); ok && vocabulary.AddsBOS() {
		cfg.BOS = bos
	}
	ids := vocabulary.Encode(text, tokenizer.Options{AddSpecial: true})
	value, err := m.Perplexity(ctx, ids, cfg)
	if err != nil {
		return err
	}
	fmt.Fprintf(o.out, "PPL = %.4f (%d tokens, windows of %d, level %s)\n", value, len(ids), p.window, level)
	return nil
}

// readText reads a file of a size that is sensible for a text.
func readText(path string) (string, error) {
	const most = 64 << 20
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && len(b) > most {
		err = fmt.Errorf("%q is larger than %d MiB", path, most>>20)
	}
	return string(b), err
}

// levels names what the machine's processor can run, best first.
func levels() string {
	var names []string
	for _, l := range tensor.Levels() {
		names = append(names, l.String())
	}
	slices.Reverse(names)
	return strings.Join(names, " ")
}
