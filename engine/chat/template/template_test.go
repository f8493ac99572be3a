package template_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onebit/engine/chat/template"
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

// render evaluates a template with the members of a JSON object as its variables.
func render(ctx context.Context, t testing.TB, compiled *template.Template, vars json.RawMessage) (string, error) {
	t.Helper()
	v, err := template.Decode(vars, nil)
	if err != nil {
		t.Fatal(err)
	}
	return compiled.Render(ctx, v.AsDict().Data, len(vars), noon)
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
			compiled, err := template.Compile(c.Template)
			if err != nil {
				t.Fatal(err)
			}
			got, err := render(t.Context(), t, compiled, c.Vars)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.Want, got); diff != "" {
				translated, _ := template.Translate(c.Template)
				t.Errorf("rendering differs from jinja2's (-want +got):\n%s\ntranslated: %s", diff, translated)
			}
		})
	}
}

func sum(data string) string {
	h := sha256.Sum256([]byte(data))
	return hex.EncodeToString(h[:])
}

// published are the templates of model authors, by hash, with the hashes of what they render.
type published struct {
	Misses    []struct{ Template, Case, Reason string }
	Templates []struct {
		Name, SHA256 string
		Renderings   map[string]string
	}
}

// TestPublishedTemplates renders the templates that llama.cpp's source has as model authors publish them.
// ONEBIT_LLAMA_SOURCE may name several folders.
func TestPublishedTemplates(t *testing.T) {
	source := os.Getenv("ONEBIT_LLAMA_SOURCE")
	if source == "" {
		t.Skip("SKIPPED: ONEBIT_LLAMA_SOURCE names no llama.cpp source with chat templates; `make test-all` sets it")
	}
	var golden published
	readJSON(t, "testdata/renderings.json", &golden)
	var conversations []struct {
		Name string
		Vars json.RawMessage
	}
	readJSON(t, "testdata/conversations.json", &conversations)
	missing := map[string]string{}
	for _, m := range golden.Misses {
		missing[m.Template+"|"+m.Case] = m.Reason
	}
	sources := templateSources(t, source)
	found, equal, misses, all := 0, 0, 0, 0
	for _, g := range golden.Templates {
		all += len(g.Renderings)
		text, ok := sources[g.SHA256]
		if !ok {
			t.Logf("%s is not there", g.Name)
			continue
		}
		found++
		compiled, err := template.Compile(text)
		if err != nil {
			t.Errorf("%s: %v", g.Name, err)
			continue
		}
		for _, c := range conversations {
			want, ok := g.Renderings[c.Name]
			if !ok {
				continue
			}
			got, err := render(t.Context(), t, compiled, c.Vars)
			_, listed := missing[g.Name+"|"+c.Name]
			switch same := err == nil && sum(got) == want; {
			case same && listed:
				t.Errorf("%s, %s: listed as a miss, but equal", g.Name, c.Name)
			case listed:
				misses++
			case !same:
				t.Errorf("%s, %s: differs from jinja2's (error %v)", g.Name, c.Name, err)
			default:
				equal++
			}
		}
	}
	t.Logf("%d of %d templates found: %d of %d renderings equal byte for byte, %d listed as misses", found, len(golden.Templates), equal, all, misses)
	if found < 69 {
		t.Errorf("%d templates found in %s, expected at least 69", found, source)
	}
}

// templateSources are the texts of the templates in the folders that list names, by hash.
func templateSources(t *testing.T, list string) map[string]string {
	sources := map[string]string{}
	for _, dir := range filepath.SplitList(list) {
		for _, pattern := range []string{"*.jinja", "models/templates/*.jinja"} {
			paths, err := filepath.Glob(filepath.Join(dir, pattern))
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range paths {
				text, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				sources[sum(string(text))] = string(text)
			}
		}
	}
	return sources
}

func TestEvalError(t *testing.T) {
	for _, c := range []struct{ template, want string }{
		{"{{ x() }}", "x is an undefined value, not a function"},
		{"{{ 'a'.nope() }}", "'a'.nope is an undefined value, not a function"},
		{"{{ 1|nope }}", `the filter "nope" is not supported`},
		{"{{ 1 is nope }}", `the test "nope" is not supported`},
		{"{{ 'a' - 1 }}", "- needs numbers"},
		{"{{ 'a' + {} }}", "+ cannot join text and something else"},
		{"{% for x in 5 %}{% endfor %}", "cannot loop over a number"},
		{"{{ 1 // 0 }}", "division by zero"},
		{"{% set a, b = [1] %}", "expected 2 values to unpack"},
		{"{{ 'x'|items }}", "items needs an object, not a string"},
		{"{{ '{:5}'.format(1) }}", "format field {:5} is not supported"},
		{"{{ 'a'.split('') }}", "empty separator"},
		{"{{ [].pop() }}", "pop of an item that is not there"},
		{"{{ 'x'|fromjson }}", "fromjson: invalid character 'x' looking for beginning of value"},
	} {
		compiled, err := template.Compile(c.template)
		if err != nil {
			t.Errorf("%s: %v", c.template, err)
			continue
		}
		_, err = render(t.Context(), t, compiled, json.RawMessage(`{}`))
		eval, ok := errors.AsType[*template.EvalError](err)
		if !ok || eval.Reason != c.want {
			t.Errorf("%s: got %v, want %q", c.template, err, c.want)
		}
	}
}

func TestOutputLimit(t *testing.T) {
	compiled, err := template.Compile("{{ 'x' * 9000000 }}")
	if err != nil {
		t.Fatal(err)
	}
	_, err = render(t.Context(), t, compiled, json.RawMessage(`{}`))
	if limit, ok := errors.AsType[*template.LimitError](err); !ok || limit.What != "output" {
		t.Errorf("got %v, want the limit of output", err)
	}
}
