package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"onebit/appliance/catalog"
	"onebit/engine/plan"
)

const modelUsage = `usage: 1bit model pull [--fallback NAME] NAME
       1bit model list
       1bit model plan FILE [--ctx-size N] [--parallel N] [--free GIB]
       1bit model import DIR --out FILE [--type TYPE]
       1bit model convert ... | quantize ...

plan says what a model takes and where it fits, before anything is loaded.
import makes a GGUF file of a folder of safetensors; convert and quantize drive an installed llama.cpp. -h says more.
pull obtains a model by name, verifies it and prints its path. Models: %s
`

// runModel is `1bit model`.
func runModel(args []string, stdout, stderr io.Writer) int {
	usage := fmt.Sprintf(modelUsage, catalog.Names())
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return 2
	}
	ours := args[0] == "list" || args[0] == "plan" || args[0] == "pull"
	if args[0] == "-h" || args[0] == "--help" || (ours && (slices.Contains(args, "-h") || slices.Contains(args, "--help"))) {
		fmt.Fprint(stdout, usage)
		return 0
	}
	switch args[0] {
	case "list":
		return listModels(stdout, stderr)
	case "plan":
		if err := planModel(args[1:], stdout); err != nil {
			fmt.Fprintf(stderr, "1bit model plan: %v\n", err)
			return 1
		}
		return 0
	case "pull":
		return pullModel(args[1:], stdout, stderr)
	}
	if run, ok := modelCommands()[args[0]]; ok {
		return run(args[1:], stdout, stderr)
	}
	fmt.Fprintf(stderr, "1bit model: unknown command %q\n%s", args[0], usage)
	return 2
}

// listModels prints the catalogue and says which files are in the cache.
func listModels(stdout, stderr io.Writer) int {
	cache, err := catalog.UserCache()
	if err != nil {
		fmt.Fprintf(stderr, "1bit model: %v\n", err)
		return 1
	}
	for _, e := range catalog.Entries() {
		state := "not here"
		if _, err := os.Stat(cache.Path(e)); err == nil {
			state = cache.Path(e)
		}
		fmt.Fprintf(stdout, "%-20s %6.0f MB  %-22s %s\n%20s %s\n", e.Name, float64(e.Size)/1e6, e.License, state, "", e.About)
	}
	return 0
}

// planModel prints what a model file takes and where it fits.
func planModel(args []string, stdout io.Writer) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return errors.New("the name of a GGUF file is needed first")
	}
	var context, parallel, free string
	if err := flags(args[1:], map[string]*string{"--ctx-size": &context, "--parallel": &parallel, "--free": &free}); err != nil {
		return err
	}
	var o plan.Options
	var err error
	if o.Context, err = count("--ctx-size", context); err != nil {
		return err
	}
	if o.Parallel, err = count("--parallel", parallel); err != nil {
		return err
	}
	pools := boxes()
	if free != "" {
		gib, err := strconv.ParseFloat(free, 64)
		if err != nil {
			return fmt.Errorf("the option --free wants GiB, not %q", free)
		}
		pool, err := plan.Given(gib)
		if err != nil {
			return err
		}
		pools = []plan.Pool{pool}
	}
	p, err := plan.Open(args[0], o)
	if err != nil {
		return err
	}
	return plan.Print(stdout, p, pools)
}

// boxes are the machines that a plan is made for: this one, where its memory can be told, and the usual ones.
func boxes() []plan.Pool {
	m, err := plan.ReadMemory(os.ReadFile)
	if err != nil {
		return plan.Boxes()
	}
	return append([]plan.Pool{{Name: "this machine", Available: m.Available}}, plan.Boxes()...)
}

// pullModel obtains one model and prints its path on stdout; everything for people goes to stderr.
func pullModel(args []string, stdout, stderr io.Writer) int {
	var name, fallback string
	for len(args) > 0 {
		switch {
		case args[0] == "--fallback" && len(args) > 1:
			fallback, args = args[1], args[2:]
		case strings.HasPrefix(args[0], "-") || name != "":
			fmt.Fprintf(stderr, "1bit model pull: unexpected %q\n", args[0])
			return 2
		default:
			name, args = args[0], args[1:]
		}
	}
	if name == "" {
		fmt.Fprintf(stderr, "1bit model pull: the name of a model is needed; known are %s\n", catalog.Names())
		return 2
	}
	for _, n := range []string{name, fallback} { // a mistake in a name is told, not covered by the other model
		if _, ok := catalog.Find(n); !ok && n != "" {
			fmt.Fprintf(stderr, "1bit model: no model is called %q; known are %s\n", n, catalog.Names())
			return 1
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	path, err := pull(ctx, name, stderr)
	if err != nil && fallback != "" && fallback != name && ctx.Err() == nil {
		fmt.Fprintf(stderr, "1bit model: %v\n1bit model: taking %s instead\n", err, fallback)
		path, err = pull(ctx, fallback, stderr)
	}
	if err != nil {
		fmt.Fprintf(stderr, "1bit model: %v\n", err)
		return 1
	}
	fmt.Fprintln(stdout, path)
	return 0
}

func pull(ctx context.Context, name string, stderr io.Writer) (string, error) {
	e, _ := catalog.Find(name)
	cache, err := catalog.UserCache()
	if err != nil {
		return "", err
	}
	f := catalog.NewFetcher(cache)
	bar := newBar(stderr)
	f.Progress = bar.show
	f.Note = func(s string) { bar.end(); fmt.Fprintf(stderr, "1bit model: %s\n", s) }
	path, err := f.Fetch(ctx, e)
	bar.end()
	if errors.Is(err, context.Canceled) {
		return "", errors.New("stopped; what was downloaded is kept, run again to go on")
	}
	return path, err
}

// byName adds to an error about a model what helps someone who gave the name of a known one in place of a file.
func byName(model string, err error) error {
	if _, known := catalog.Find(model); err == nil || !known {
		return err
	}
	if _, there := os.Stat(model); there == nil {
		return err
	}
	return fmt.Errorf("%w; `1bit model pull %s` obtains the model of that name and prints its path", err, model)
}

// bar draws a progress bar on a terminal, and a line every ten percent elsewhere.
type bar struct {
	w       io.Writer
	tty     bool
	what    string
	start   time.Time
	from    int64
	last    time.Time
	decile  int64
	pending bool
}

func newBar(w io.Writer) *bar {
	b := &bar{w: w}
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil {
			b.tty = info.Mode()&os.ModeCharDevice != 0
		}
	}
	return b
}

func (b *bar) show(what string, done, total int64) {
	now := time.Now()
	if what != b.what {
		b.end()
		b.what, b.start, b.from, b.last, b.decile = what, now, done, time.Time{}, -1
	}
	if total <= 0 {
		return
	}
	rate := float64(done-b.from) / 1e6 / max(now.Sub(b.start).Seconds(), 1e-3)
	percent := 100 * done / total
	if !b.tty {
		if percent/10 > b.decile {
			b.decile = percent / 10
			fmt.Fprintf(b.w, "%s: %d%% of %.0f MB, %.1f MB/s\n", what, percent, float64(total)/1e6, rate)
		}
		return
	}
	if now.Sub(b.last) < 100*time.Millisecond && done < total {
		return
	}
	b.last, b.pending = now, true
	fill := int(30 * done / total)
	fmt.Fprintf(b.w, "\r%s [%s%s] %3d%% of %.0f MB, %.1f MB/s ", what, strings.Repeat("#", fill), strings.Repeat(".", 30-fill), percent, float64(total)/1e6, rate)
}

// end closes the line of a drawn bar.
func (b *bar) end() {
	if b.pending {
		fmt.Fprintln(b.w)
		b.pending = false
	}
}
