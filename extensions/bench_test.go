package extensions_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"onebit/extensions"
)

// talk is the body of a chat of so many bytes.
func talk(size int, line string) []byte {
	var m []map[string]string
	for i := 0; ; i++ {
		m = append(m, map[string]string{"role": []string{"user", "assistant"}[i%2], "content": strings.Repeat(line, 300/len(line))})
		b, err := json.Marshal(map[string]any{"model": "auto", "messages": m})
		if err != nil {
			panic(err)
		}
		if len(b) >= size && i%2 == 0 {
			return b
		}
	}
}

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
	for name, body := range map[string][]byte{"kept": input(prompt).Body, "kept, 10 KB": talk(10_000, "Line of what was said.\n"), "kept, 10 KB of code": talk(10_000, "if a == \"b\" {\n\treturn c\n}\n")} {
		b.Run(name, func(b *testing.B) {
			f := open(b)
			f.kept = newShelf()
			f.start()
			in := input("")
			in.Body = body
			var o extensions.Outcome
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				o = f.Decide(b.Context(), in)
			}
			if !o.Kept {
				b.Error(o)
			}
		})
	}
}
