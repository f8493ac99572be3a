package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"onebit/engine/gguf"
	"onebit/engine/model"
	"onebit/engine/tensor"
	"onebit/engine/tokenizer"
)

const toolUsage = `usage: 1bit tool NAME [options]

  memory      [-t THREADS]                              the machine's read bandwidth in GB/s
  perplexity  -m FILE -f TEXT [-c TOKENS] [-t THREADS]   how well a model predicts a text
  mtp-draft-vocab --mtp HEAD --target FILE --ids FILE --out FILE
                                                        a draft head that proposes from part of the vocabulary
  hadamard    --in FILE --out FILE                      a rotated, stamped Q4_0 file

1bit tool NAME -h says more of the last two.
`

// tools are the tools by name.
func (p program) tools(ctx context.Context) map[string]command {
	all := toolCommands()
	for name, run := range map[string]command{
		"memory": func(args []string, stdout, stderr io.Writer) int {
			return p.report("tool memory", memory(args, stdout))
		},
		"perplexity": func(args []string, stdout, stderr io.Writer) int {
			return p.report("tool perplexity", perplexity(ctx, args, stdout, stderr))
		},
	} {
		all[name] = run
	}
	return all
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
	run, ok := p.tools(ctx)[args[0]]
	if !ok {
		fmt.Fprintf(p.stderr, "1bit tool: there is no tool %q\n%s", args[0], toolUsage)
		return 2
	}
	return run(args[1:], p.stdout, p.stderr)
}

func (p program) report(command string, err error) int {
	if err != nil {
		return p.fail(command, err)
	}
	return 0
}

// flags reads `-x VALUE` pairs into the given strings.
func flags(args []string, into map[string]*string) error {
	for len(args) > 0 {
		at, ok := into[args[0]]
		switch {
		case !ok:
			return fmt.Errorf("unknown option %q", args[0])
		case len(args) == 1:
			return fmt.Errorf("the option %s needs a value", args[0])
		}
		*at, args = args[1], args[2:]
	}
	return nil
}

// count reads a whole number of at least 1; the empty text is 0.
func count(option, text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("the option %s wants a whole number from 1 up, not %q", option, text)
	}
	return n, nil
}

// memory prints how fast the machine reads memory that no cache holds: the best of five passes over 1 GiB.
func memory(args []string, stdout io.Writer) error {
	var t string
	if err := flags(args, map[string]*string{"-t": &t}); err != nil {
		return err
	}
	threads, err := count("-t", t)
	if err != nil {
		return err
	}
	kernels, err := tensor.For(tensor.Detect())
	if err != nil {
		return err
	}
	team := tensor.NewTeam(max(threads, 1))
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
	fmt.Fprintf(stdout, "%.2f GB/s with %d threads\n", float64(len(buffer))/best.Seconds()/1e9, max(threads, 1))
	return nil
}

// perplexity prints a model's perplexity on a text, cut as llama-perplexity cuts it.
func perplexity(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var file, text, window, t string
	if err := flags(args, map[string]*string{"-m": &file, "-f": &text, "-c": &window, "-t": &t}); err != nil {
		return err
	}
	if file == "" || text == "" {
		return errors.New("-m FILE and -f TEXT are needed")
	}
	n, err := count("-c", window)
	if err != nil {
		return err
	}
	threads, err := count("-t", t)
	if err != nil {
		return err
	}
	if n == 0 {
		n = 512
	}
	b, err := os.ReadFile(text)
	if err != nil {
		return err
	}
	f, err := gguf.Open(file)
	if err != nil {
		return fmt.Errorf("opening %q: %w", file, err)
	}
	defer func() { _ = f.Close() }()
	vocabulary, err := tokenizer.New(f)
	if err != nil {
		return fmt.Errorf("reading the vocabulary of %q: %w", file, err)
	}
	level, err := tensor.LevelFromEnv()
	if err != nil {
		return err
	}
	m, err := model.Load(f, model.Config{Context: max(n, 512), Threads: threads, BatchThreads: threads, Level: level})
	if err != nil {
		return fmt.Errorf("loading %q: %w", file, err)
	}
	defer m.Close()
	cfg := model.PerplexityConfig{Window: n, BOS: -1, Progress: func(done, total int, p float64) {
		fmt.Fprintf(stderr, "[%d/%d] %.4f\n", done, total, p)
	}}
	if bos, ok := vocabulary.BOS(); ok && vocabulary.AddsBOS() {
		cfg.BOS = bos
	}
	ids := vocabulary.Encode(string(b), tokenizer.Options{AddSpecial: true})
	value, err := m.Perplexity(ctx, ids, cfg)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "PPL = %.4f (%d tokens, windows of %d, level %s)\n", value, len(ids), n, level)
	return nil
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
