package plan

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
)

// Pool is memory that a model might be loaded into.
type Pool struct {
	Name      string
	Available uint64 // bytes that are free
}

// system is what a running system takes of a box's memory before a model is loaded.
const system = 8 * GiB

// Boxes returns the memory of the usual boxes, less what a running system takes.
func Boxes() []Pool {
	var all []Pool
	for _, n := range []uint64{64, 96, 128} {
		all = append(all, Pool{Name: fmt.Sprintf("%d GB box", n), Available: n*GiB - system})
	}
	return all
}

// Given returns a pool of so many GiB that are free. It refuses what is no amount of memory.
func Given(gib float64) (Pool, error) {
	if !(gib > 0 && gib <= 1<<20) {
		return Pool{}, fmt.Errorf("%v GiB is no amount of memory", gib)
	}
	return Pool{Name: fmt.Sprintf("%g GiB free", gib), Available: uint64(gib * GiB)}, nil
}

// Fit says how a model would fit into a pool. All sizes are in bytes.
type Fit struct {
	Usable  uint64 // the pool less the reserve
	Whole   bool   // all of the model and its cache fit
	Mapped  bool   // they fit when the per-layer embeddings stay in the file
	Spare   int64  // what is left of Usable with all loaded; negative when it is missing
	Context int    // the largest context that would fit, up to the trained one; 0 when none does
	Slots   *Slots // experts to hold in memory; nil for a dense model
}

// Fit computes how the model fits into a pool.
func (p Plan) Fit(pool Pool) Fit {
	f := Fit{Usable: pool.Available - min(pool.Available, Reserve(pool.Available))}
	f.Whole, f.Mapped = p.Resident() <= f.Usable, p.Mapped() <= f.Usable
	f.Spare = difference(f.Usable, p.Resident())
	f.Context = p.largest(f.Usable)
	if p.Experts != nil {
		s := p.Experts.Auto(pool.Available)
		f.Slots = &s
	}
	return f
}

// difference returns a - b, no further than an int64 goes.
func difference(a, b uint64) int64 {
	if a >= b {
		return int64(min(a-b, math.MaxInt64))
	}
	return -int64(min(b-a, math.MaxInt64))
}

// largest finds the largest context that fits into so many bytes, the per-layer embeddings left in the file.
func (p Plan) largest(usable uint64) int {
	weights := p.Weights.Total() - p.Weights.PerLayer
	low, high := 0, max(p.Trained, p.Context)/cacheBlock
	for low < high {
		mid := (low + high + 1) / 2
		if add(weights, p.layers.cache(mid*cacheBlock, p.Slots, p.Shared).Total()) <= usable {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low * cacheBlock
}

// Print writes the plan and how it fits into pools as tables for people.
func Print(w io.Writer, p Plan, pools []Pool) error {
	name := p.Name
	if name == "" {
		name = "model"
	}
	out := &strings.Builder{}
	fmt.Fprintf(out, "%s (%s)\n\n", printable(name), printable(p.Architecture))
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	p.printSizes(t)
	_ = t.Flush() // into memory
	fmt.Fprintln(out)
	p.printPools(t, pools)
	_ = t.Flush() // into memory
	p.printNotes(out, pools)
	_, err := io.WriteString(w, out.String())
	return err
}

// printSizes writes what the model takes, one row for each part.
func (p Plan) printSizes(w io.Writer) {
	row := func(what string, bytes uint64, about string) {
		if bytes == 0 {
			return
		}
		if about != "" {
			about = "\t" + about
		}
		fmt.Fprintf(w, "%s\t%10s%s\n", what, size(bytes), about)
	}
	row("dense weights", p.Weights.Dense, "")
	experts := ""
	if e := p.Experts; e != nil {
		experts = fmt.Sprintf("%d in %d layers, %s each", e.Total(), e.Layers, size(e.Mean))
	}
	row("experts", p.Weights.Experts, experts)
	row("embeddings", p.Weights.Embeddings, "")
	row("per-layer embeddings", p.Weights.PerLayer, "can stay in the file (-lm mmap -lzm on)")
	slots, share := fmt.Sprintf("%d slots", p.Slots), ""
	if p.Slots == 1 {
		slots = "1 slot"
	}
	if p.Shared {
		share = " that share it"
	}
	row("cache, whole context", p.Cache.Full, fmt.Sprintf("%d tokens, %s%s, %s a token", p.Context, slots, share, size(p.Cache.PerToken)))
	row("cache, windowed layers", p.Cache.Window, fmt.Sprintf("the last %d tokens", p.layers.width))
	row("recurrent state", p.Cache.State, slots)
	row("together", p.Resident(), "")
}

// printPools writes one row for each pool.
func (p Plan) printPools(w io.Writer, pools []Pool) {
	head := "memory\tfree\tusable\tthis context\tlargest context"
	if p.Experts != nil {
		head += "\t--moe-slots auto"
	}
	fmt.Fprintln(w, head)
	for _, pool := range pools {
		f := p.Fit(pool)
		fits := "fits, " + size(uint64(max(f.Spare, 0))) + " left"
		switch {
		case !f.Whole && f.Mapped:
			fits = "fits with the table in the file"
		case !f.Whole:
			fits = size(uint64(-f.Spare)) + " too large"
		}
		context := fmt.Sprint(f.Context)
		switch {
		case !p.layers.positional():
			context = "any"
			if !f.Mapped {
				context = "none"
			}
		case f.Context == 0:
			context = "none"
		case f.Context >= p.Trained/cacheBlock*cacheBlock && p.Trained > 0:
			context += " (trained)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s", printable(pool.Name), size(pool.Available), size(f.Usable), fits, context)
		if f.Slots != nil {
			low := ""
			if f.Slots.Warning != "" {
				low = ", too little memory"
			}
			fmt.Fprintf(w, "\t%d of %d (%s)%s", f.Slots.N, f.Slots.Total, size(f.Slots.Bytes), low)
		}
		fmt.Fprintln(w)
	}
}

// printNotes writes what the tables leave open.
func (p Plan) printNotes(w io.Writer, pools []Pool) {
	fmt.Fprint(w, "\nUsable is what is free less a reserve for work buffers and other programs: 15%, at least 8 GiB.\n")
	if p.Weights.Unknown > 0 {
		fmt.Fprintf(w, "%d tensors are of types that are not known here; their size is not counted.\n", p.Weights.Unknown)
	}
	if p.Experts == nil {
		return
	}
	for _, pool := range pools {
		if s := p.Experts.Auto(pool.Available); s.Warning != "" {
			fmt.Fprintf(w, "%s: %s.\n", printable(pool.Name), s.Warning)
		}
	}
}

// printable keeps a file's text from disturbing the terminal.
func printable(s string) string {
	if len(s) > 120 {
		s = s[:120]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == '\uFFFD' {
			return -1
		}
		return r
	}, s)
}

// size writes a number of bytes for people.
func size(n uint64) string {
	switch {
	case n >= GiB:
		return fmt.Sprintf("%.1f GiB", float64(n)/GiB)
	case n >= 1<<20:
		return fmt.Sprintf("%.2f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}
