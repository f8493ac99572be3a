package extensions_test

import (
	"fmt"
	"strings"
	"testing"

	"onebit/extensions"
)

// BenchmarkDecide is what the manager itself takes for a decision about a prompt of 1 KB, without the module's call.
func BenchmarkDecide(b *testing.B) {
	prompt := strings.Repeat("word ", 200)
	for name, bound := range map[string]bool{"default": false, "policy": true} {
		b.Run(name, func(b *testing.B) {
			f := open(b)
			if bound {
				f.activate("policy", f.add("m", say(`{"v":1,"action":"route","candidates":["large"]}`)))
			}
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				n++
				if o := f.Decide(b.Context(), input(fmt.Sprint(n, prompt))); o.Candidate == "" {
					b.Fatal(o)
				}
			}
		})
	}
	b.Run("kept", func(b *testing.B) {
		f := open(b)
		in := input(prompt)
		var o extensions.Outcome
		b.ReportAllocs()
		for b.Loop() {
			o = f.Decide(b.Context(), in)
		}
		if !o.Kept {
			b.Error(o)
		}
	})
}
