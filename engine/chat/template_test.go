package chat_test

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onebit/engine/chat"
)

// noon is the present for the templates under test.
var noon = time.Date(2026, 7, 4, 12, 0, 0, 0, time.UTC)

func readJSON(t testing.TB, path string, v any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// TestConstructs renders templates of ours that between them use what Jinja2 offers to template authors.
func TestConstructs(t *testing.T) {
	var golden struct {
		Cases []struct {
			Name, Template, Want string
			Vars                 json.RawMessage
		}
	}
	readJSON(t, "testdata/constructs.json", &golden)
	for _, c := range golden.Cases {
		t.Run(c.Name, func(t *testing.T) {
			template, err := chat.Evaluate(c.Template)
			if err != nil {
				t.Fatal(err)
			}
			got, err := template.RenderExactly(t.Context(), c.Vars, noon)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.Want, got); diff != "" {
				translated, _ := chat.Translate(c.Template)
				t.Errorf("rendering differs from jinja2's (-want +got):\n%s\ntranslated: %s", diff, translated)
			}
		})
	}
}
