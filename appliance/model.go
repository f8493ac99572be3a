package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"onebit/appliance/catalog"
	"onebit/engine/plan"
)

const modelUsage = `usage: 1bit model pull [options] NAME | OWNER/NAME[:QUANT][@REVISION] | URL
       1bit model add FILE [--name NAME]
       1bit model list [--json]
       1bit model show NAME
       1bit model verify NAME... | --all
       1bit model rm NAME...
       1bit model plan FILE [--ctx-size N] [--parallel N] [--free GIB]
       1bit model import DIR --out FILE [--type TYPE]
       1bit model convert ... | quantize ...

pull obtains a model, verifies it and prints its path; one that is broken off goes on when it is run again.
      --include GLOB     files of the repository, such as 'UD-Q4_K_XL/*', in place of a quantisation
      --name NAME        what to call it (the file's name)
      --to DIR           a folder on another drive
      --sha256 HEX       the hash that the file of a URL must have
      --token-file FILE  the token for repositories that ask for one (or ONEBIT_HUB_TOKEN_FILE, or HF_TOKEN)
      --fallback NAME    the model to take when this one cannot be had
add takes in a model where it lies. list shows what is here, also in the folders of other programs, and what is known.
plan says what a model takes and where it fits, before anything is loaded.
import makes a GGUF file of a folder of safetensors; convert and quantize drive an installed llama.cpp. -h says more.
ONEBIT_MODELS names the folders of models, the first for new ones. Models: %s
`

// runModel is `1bit model`.
func runModel(args []string, stdout, stderr io.Writer) int {
	usage := fmt.Sprintf(modelUsage, catalog.Names())
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return 2
	}
	ours := map[string]func(args []string, stdout, stderr io.Writer) error{
		"list": listModels, "show": showModel, "verify": verifyModels, "rm": removeModels, "add": addModel,
	}
	run, ok := ours[args[0]]
	ok = ok || args[0] == "pull"
	if args[0] == "-h" || args[0] == "--help" || (ok && (slices.Contains(args, "-h") || slices.Contains(args, "--help"))) {
		fmt.Fprint(stdout, usage)
		return 0
	}
	switch {
	case args[0] == "pull":
		return pullModel(args[1:], stdout, stderr)
	case ok:
		if err := run(args[1:], stdout, stderr); err != nil {
			fmt.Fprintf(stderr, "1bit model %s: %v\n", args[0], err)
			return 1
		}
		return 0
	}
	if run, ok := modelCommands()[args[0]]; ok {
		return run(args[1:], stdout, stderr)
	}
	fmt.Fprintf(stderr, "1bit model: unknown command %q\n%s", args[0], usage)
	return 2
}

const planUsage = `usage: 1bit model plan FILE [--ctx-size N] [--parallel N] [--free GIB]

Says what a model takes and where it fits, before anything is loaded.

  --ctx-size N  tokens of context, shared by all slots (what the model was trained with)
  --parallel N  slots
  --free GIB    plan for so much memory, not for this machine and the usual ones
`

// runModelPlan is `1bit model plan`.
func runModelPlan(args []string, stdout, stderr io.Writer) int {
	o := newOptions("model plan", planUsage, stdout, stderr)
	context, parallel := o.whole("ctx-size", 0, 1, 1<<30), o.whole("parallel", 0, 1, 1<<20)
	free := o.Float64("free", 0, "")
	if status, done := o.parse(args, 0, 1); done {
		return status
	}
	if len(o.words) == 0 {
		return o.wrong("the name of a GGUF file is needed")
	}
	pools := boxes()
	if *free != 0 {
		pool, err := plan.Given(*free)
		if err != nil {
			return o.finish(err)
		}
		pools = []plan.Pool{pool}
	}
	return o.finish(planFile(o.words[0], plan.Options{Context: *context, Parallel: *parallel}, pools, stdout))
}

// planFile prints what a file takes and in which of the pools it fits.
func planFile(file string, o plan.Options, pools []plan.Pool, stdout io.Writer) error {
	p, err := plan.Open(file, o)
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
