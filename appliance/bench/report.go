package bench

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// Comparison is what configurations reached.
type Comparison struct {
	Results []Result `json:"results"` // the baseline first
}

// Result is what one configuration reached.
type Result struct {
	Configuration
	Figures map[string]Figure `json:"figures"`
}

// Figure sums up the samples of one kind, in tokens a second.
type Figure struct {
	Best    float64   `json:"best"`
	Median  float64   `json:"median"`
	Change  float64   `json:"change"` // of the median against the baseline's, as a share of it
	Samples []float64 `json:"samples"`
}

// Median returns the middle of some values, the mean of the middle two when their number is even, 0 for none.
func Median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	n := len(v)
	if n == 0 {
		return 0
	}
	return (v[(n-1)/2] + v[n/2]) / 2
}

// compare sums the samples up.
func compare(configurations []Configuration, samples []map[string][]float64) *Comparison {
	c := &Comparison{}
	for i, conf := range configurations {
		r := Result{Configuration: conf, Figures: map[string]Figure{}}
		for name, s := range samples[i] {
			f := Figure{Best: slices.Max(s), Median: Median(s), Samples: s}
			if base := Median(samples[0][name]); base > 0 {
				f.Change = f.Median/base - 1
			}
			r.Figures[name] = f
		}
		c.Results = append(c.Results, r)
	}
	return c
}

// Print writes the comparison as a table.
func (c *Comparison) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "tok/s\t")
	for _, name := range figures {
		fmt.Fprintf(t, "%s\tbest\t\t", name)
	}
	fmt.Fprintln(t)
	for i, r := range c.Results {
		fmt.Fprintf(t, "%s\t", r.Name)
		for _, name := range figures {
			f := r.Figures[name]
			change := ""
			if i > 0 {
				change = fmt.Sprintf("%+.1f%%", f.Change*100)
			}
			fmt.Fprintf(t, "%.1f\t%.1f\t%s\t", f.Median, f.Best, change)
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}
