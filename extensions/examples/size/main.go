//go:build wasip1

// Command size sends short prompts to small models and long ones to large models.
package main

import (
	"slices"

	laya "onebit/extensions/guest/go"
)

// step is a row of the table: prompts of fewer tokens than below go to a model.
type step struct {
	below int
	model string
}

var steps []step

//go:wasmexport laya_configure
func configure(address, length uint32) uint64 {
	return laya.Configure(address, length, func(config laya.JSON) (why string) {
		config.Get("steps").Each(func(_ string, s laya.JSON) {
			row := step{int(s.Get("below").Number()), s.Get("model").Text()}
			if row.below <= 0 || row.model == "" {
				why = "a step needs below, which is over 0, and model"
			}
			steps = append(steps, row)
		})
		return why
	})
}

//go:wasmexport laya_route
func route(address, length uint32) uint64 { return laya.Run(address, length, decide) }

// decide takes the first step that the prompt fits. Without a table it takes the smallest context that holds the prompt
// and an answer of its size.
func decide(r *laya.Request) laya.Decision {
	for _, s := range steps {
		if r.Tokens < s.below {
			return to(r, func(c laya.Candidate) bool { return c.Model == s.model }).Because("below the step of " + s.model)
		}
	}
	best := -1
	for i, c := range r.Candidates {
		if c.Healthy && c.Context >= 2*r.Tokens && (best < 0 || c.Context < r.Candidates[best].Context) {
			best = i
		}
	}
	if best < 0 {
		return laya.Decision{}
	}
	return laya.To(r.Candidates[best].ID).Because("the smallest context that fits")
}

// to routes to the healthy candidates that suit, the shortest queue first.
func to(r *laya.Request, suits func(laya.Candidate) bool) laya.Decision {
	fit := slices.DeleteFunc(slices.Clone(r.Candidates), func(c laya.Candidate) bool { return !c.Healthy || !suits(c) })
	slices.SortStableFunc(fit, func(a, b laya.Candidate) int { return a.Queue - b.Queue })
	if len(fit) == 0 {
		return laya.Decision{}
	}
	var ids []string
	for _, c := range fit {
		ids = append(ids, c.ID)
	}
	return laya.To(ids...)
}

func main() {}
