package runner_test

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"onebit/engine/runner"
)

// TestHostileSizes reads requests that are large in an unusual way. What they take is in proportion to their size.
func TestHostileSizes(t *testing.T) {
	r := runner.NewReader(fakeParts(&fakeEngine{}, 2, 1<<24))
	const n = 40_000
	for name, content := range map[string]string{
		"names of control tokens":          strings.Repeat("<|end|>", n),
		"names with text between":          strings.Repeat("<|end|>a", n),
		"beginnings of names":              strings.Repeat("<|end|", n),
		"different names, one in another":  strings.Repeat("<|<|user|><|system|>", n/2),
		"a name that is not there at last": strings.Repeat("<", 6*n) + "<|user|>",
	} {
		t.Run(name, func(t *testing.T) {
			body := []byte(`{"messages":[{"role":"user","content":` + quoted(content) + `}]}`)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, status, refusal := r.Chat(t.Context(), body)
			runtime.ReadMemStats(&after)
			if status != 200 {
				t.Fatalf("status %d: %s", status, refusal)
			}
			if took, most := after.TotalAlloc-before.TotalAlloc, uint64(400*len(body)); took > most {
				t.Errorf("reading %d bytes took %d MB, more than %d", len(body), took>>20, most>>20)
			}
		})
	}
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}
