package corpus_test

import (
	"html"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onebit/store/documents/ragbench/corpus"
)

func TestWorld(t *testing.T) {
	w, err := corpus.New(1)
	if err != nil {
		t.Fatal(err)
	}
	pages, words := 0, 0
	text := map[string]string{}
	for _, d := range w.Documents {
		pages += d.Pages
		words += d.Words
		text[d.Name] = d.Text
		if strings.ContainsAny(d.Text, "{}[]") {
			t.Errorf("%s: something was not filled in", d.Name)
		}
	}
	if pages < 300 || words/pages < 250 {
		t.Errorf("%d pages of %d words", pages, words/pages)
	}
	kinds := map[corpus.Kind]int{}
	halves := map[corpus.Half]int{}
	seen := map[string]bool{}
	for _, q := range w.Questions {
		kinds[q.Kind]++
		halves[q.Half]++
		if strings.ContainsAny(q.Text, "{}[]") || !strings.Contains(html.UnescapeString(text[q.Document]), q.Answer) {
			t.Errorf("%q: %s has no %q", q.Text, q.Document, q.Answer)
		}
		if seen[q.Text] {
			t.Errorf("%q is asked twice", q.Text)
		}
		seen[q.Text] = true
	}
	if len(w.Questions) < 150 || len(kinds) != 5 || min(halves[corpus.Dev], halves[corpus.Test]) < 75 {
		t.Errorf("%d questions of kinds %v, in halves %v", len(w.Questions), kinds, halves)
	}
	t.Logf("%d documents, %d pages, %d words; %d questions: %v, %v", len(w.Documents), pages, words, len(w.Questions), kinds, halves)
	again, err := corpus.New(1)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(w, again); diff != "" {
		t.Errorf("the same seed gave another world: %s", diff)
	}
}
