package documents_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"onebit/store/documents"
)

func TestTerms(t *testing.T) {
	for query, want := range map[string][]string{
		"":                     nil,
		"?!":                   nil,
		"What does E-17 mean?": {"What", "does", "E", "17", "mean", "E 17"},
		`max_heap "OR" x*`:     {"max", "heap", "OR", "x", "max heap"},
		"東京 tower":             {"東 京", "tower"},
	} {
		if diff := cmp.Diff(want, documents.Terms(query)); diff != "" {
			t.Errorf("%q: %s", query, diff)
		}
	}
}
