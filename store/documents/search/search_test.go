package search_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onebit/store/documents"
	"onebit/store/documents/chunk"
	"onebit/store/documents/ingest"
	"onebit/store/documents/local"
	"onebit/store/documents/search"
)

var (
	ann = documents.Reader{Person: "ann"}
	ben = documents.Reader{Person: "ben"}
)

// topics embeds a text by what it is about.
type topics struct{ err error }

func (t topics) Model() string                              { return "topics" }
func (t topics) MaxTokens() int                             { return 100 }
func (t topics) Count(context.Context, string) (int, error) { return 1, nil }
func (t topics) Embed(_ context.Context, texts []string) ([][]float32, error) {
	if t.err != nil {
		return nil, t.err
	}
	var out [][]float32
	for _, s := range texts {
		v := []float32{0.01, 0.01, 0.01}
		for i, about := range []string{"flower rose tulip blossom", "car motor wheel vehicle", "bread cake oven baking"} {
			for _, w := range strings.Fields(about) {
				if strings.Contains(strings.ToLower(s), w) {
					v[i]++
				}
			}
		}
		out = append(out, v)
	}
	return out, nil
}

// backwards prefers short texts.
type backwards struct{}

func (backwards) Rerank(_ context.Context, _ string, texts []string) ([]float64, error) {
	var out []float64
	for _, t := range texts {
		out = append(out, 1/float64(len(t)))
	}
	return out, nil
}

type world struct {
	*testing.T
	k    *local.Keeper
	s    *search.Searcher
	e    *topics
	c, d documents.Collection
}

func newWorld(t *testing.T) *world {
	t.Helper()
	k, err := local.Open(t.Context(), local.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Close() })
	w := &world{T: t, k: k, e: &topics{}}
	w.s, err = search.New(search.Config{Keeper: k,
		Embedder: func(context.Context) (ingest.Embedder, error) { return *w.e, w.e.err },
		Reranker: func(context.Context) (search.Reranker, error) { return backwards{}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	w.c, w.d = w.collection("c"), w.collection("d")
	w.add(w.c, "garden.md", map[string]any{"year": 2020}, "The rose is a flower for patient people", "A tulip blossom lasts two weeks")
	w.add(w.c, "garage.md", map[string]any{"year": 2021}, "The Trabant P50 had a motor of 18 horse powers", "A wheel needs air")
	w.add(w.d, "kitchen.md", nil, "Bread wants a hot oven", "cake")
	return w
}

func (w *world) collection(name string) documents.Collection {
	w.Helper()
	c, err := w.k.AddCollection(w.Context(), ann, documents.Collection{Name: name})
	if err != nil {
		w.Fatal(err)
	}
	return c
}

func (w *world) add(c documents.Collection, name string, attributes map[string]any, texts ...string) {
	w.Helper()
	ctx := w.Context()
	f, err := w.k.AddFile(ctx, ann, documents.File{Name: name}, strings.NewReader(name))
	if err != nil {
		w.Fatal(err)
	}
	if _, err := w.k.Attach(ctx, ann, documents.Attachment{Collection: c.ID, File: f.ID, Attributes: attributes}); err != nil {
		w.Fatal(err)
	}
	var chunks []chunk.Chunk
	for _, t := range texts {
		chunks = append(chunks, chunk.Chunk{Text: t, End: len(t)})
	}
	if err := w.k.Cut(ctx, c.ID, f.ID, 1, chunks); err != nil {
		w.Fatal(err)
	}
	bare, err := w.k.Bare(ctx, c.ID, f.ID, "topics", 100)
	if err != nil {
		w.Fatal(err)
	}
	for _, b := range bare {
		v, err := topics{}.Embed(ctx, []string{b.Text})
		if err != nil {
			w.Fatal(err)
		}
		if err := w.k.Embed(ctx, "topics", []documents.Vector{{ID: b.ID, Vector: v[0]}}); err != nil {
			w.Fatal(err)
		}
	}
	if err := w.k.Complete(ctx, c.ID, f.ID, "topics", 3); err != nil {
		w.Fatal(err)
	}
}

func (w *world) find(by documents.Reader, q search.Query) search.Answer {
	w.Helper()
	if q.Collections == nil {
		q.Collections = []string{w.c.ID}
	}
	a, err := w.s.Search(w.Context(), by, q)
	if err != nil {
		w.Fatal(err)
	}
	return a
}

func first(a search.Answer) string {
	if len(a.Results) == 0 {
		return ""
	}
	return a.Results[0].Text
}

func TestModes(t *testing.T) {
	w := newWorld(t)
	for _, test := range []struct {
		mode        search.Mode
		query, want string
	}{
		{search.Words, "P50", "The Trabant P50 had a motor of 18 horse powers"},
		{search.Words, "vehicle", ""},
		{search.Vectors, "vehicle", "The Trabant P50 had a motor of 18 horse powers"},
		{search.Hybrid, "vehicle", "The Trabant P50 had a motor of 18 horse powers"},
		{search.Hybrid, "tulip two weeks", "A tulip blossom lasts two weeks"},
	} {
		got := w.find(ann, search.Query{Text: test.query, Mode: test.mode})
		text := first(got)
		if test.query == "vehicle" && strings.HasPrefix(text, "A wheel") {
			text = test.want // both are about it
		}
		if text != test.want || got.Mode != test.mode {
			t.Errorf("%s %q: %q by %s", test.mode, test.query, first(got), got.Mode)
		}
	}
	a := w.find(ann, search.Query{Text: "The rose is a flower for patient people"})
	if r := a.Results[0]; r.Score < 0.7 || r.Score > 1 || r.Words <= 0 || r.Vector < 0.9 || r.Name != "garden.md" || r.Attributes["year"] != 2020.0 {
		t.Errorf("%+v", r)
	}
}

// TestWordsCountAsTheyFit asks for a name among other words that fit worse.
func TestWordsCountAsTheyFit(t *testing.T) {
	w := newWorld(t)
	all, some := w.find(ann, search.Query{Text: "Trabant P50", Mode: search.Words}), w.find(ann, search.Query{Text: "Trabant zyx wvu tsr", Mode: search.Words})
	if len(all.Results) == 0 || len(some.Results) == 0 || some.Results[0].Score > all.Results[0].Score/2 {
		t.Errorf("%+v, %+v", all.Results, some.Results)
	}
}

func TestSeveralCollections(t *testing.T) {
	w := newWorld(t)
	a := w.find(ann, search.Query{Text: "bread and rose", Collections: []string{w.c.ID, w.d.ID}, K: 2})
	if len(a.Results) != 2 || a.Results[0].Collection == a.Results[1].Collection {
		t.Errorf("%+v", a.Results)
	}
}

func TestFilterRerankAndScore(t *testing.T) {
	w := newWorld(t)
	f, err := documents.ParseFilter([]byte(`{"type":"gte","key":"year","value":2021}`))
	if err != nil {
		t.Fatal(err)
	}
	a := w.find(ann, search.Query{Text: "rose motor", Filter: f})
	for _, r := range a.Results {
		if r.Name != "garage.md" {
			t.Errorf("%s comes through the filter", r.Name)
		}
	}
	a = w.find(ann, search.Query{Text: "rose tulip flower", Rerank: true})
	if !a.Reranked || first(a) != "A wheel needs air" {
		t.Errorf("reranked %v: %q", a.Reranked, first(a))
	}
	if a = w.find(ann, search.Query{Text: "rose", MinScore: 0.72}); len(a.Results) != 1 {
		t.Errorf("%d results over the least score", len(a.Results))
	}
}

func TestWithoutAnEmbedder(t *testing.T) {
	w := newWorld(t)
	w.e.err = ingest.ErrUnavailable
	a := w.find(ann, search.Query{Text: "rose"})
	if a.Mode != search.Words || len(a.Results) == 0 {
		t.Errorf("%+v", a)
	}
	if _, err := w.s.Search(t.Context(), ann, search.Query{Collections: []string{w.c.ID}, Text: "x", Mode: search.Vectors}); !errors.Is(err, ingest.ErrUnavailable) {
		t.Errorf("vectors alone: %v", err)
	}
}

func TestSearchRefuses(t *testing.T) {
	w := newWorld(t)
	for _, q := range []search.Query{{Text: "x"}, {Collections: []string{w.c.ID}}, {Collections: []string{w.c.ID}, Text: strings.Repeat("x", 9000)},
		{Collections: []string{w.c.ID}, Text: "x", K: 51}, {Collections: []string{w.c.ID}, Text: "x", K: -1}} {
		if _, err := w.s.Search(t.Context(), ann, q); !errors.Is(err, documents.ErrInvalid) {
			t.Errorf("%+v: %v", q, err)
		}
	}
	for _, q := range []search.Query{{Collections: []string{w.c.ID}, Text: "rose"}, {Collections: []string{"vs_none"}, Text: "rose"}} {
		if _, err := w.s.Search(t.Context(), ben, q); !errors.Is(err, documents.ErrNotFound) {
			t.Errorf("by another: %v", err)
		}
	}
}

func TestFilters(t *testing.T) {
	a := map[string]any{"year": 2020.0, "lang": "de", "ok": true}
	for filter, want := range map[string]bool{
		`{"type":"eq","key":"lang","value":"de"}`:        true,
		`{"type":"eq","key":"year","value":"2020"}`:      false,
		`{"type":"ne","key":"lang","value":"en"}`:        true,
		`{"type":"ne","key":"missing","value":1}`:        true,
		`{"type":"gt","key":"year","value":2019}`:        true,
		`{"type":"gt","key":"year","value":2020}`:        false,
		`{"type":"lte","key":"year","value":2020}`:       true,
		`{"type":"lt","key":"lang","value":"en"}`:        true,
		`{"type":"lt","key":"missing","value":1}`:        false,
		`{"type":"gte","key":"ok","value":true}`:         false,
		`{"type":"in","key":"lang","value":["de","en"]}`: true,
		`{"type":"nin","key":"lang","value":["fr"]}`:     true,
		`{"type":"and","filters":[{"type":"eq","key":"ok","value":true},{"type":"eq","key":"lang","value":"en"}]}`: false,
		`{"type":"or","filters":[{"type":"eq","key":"ok","value":true},{"type":"eq","key":"lang","value":"en"}]}`:  true,
	} {
		f, err := documents.ParseFilter([]byte(filter))
		if err != nil {
			t.Errorf("%s: %v", filter, err)
			continue
		}
		if got := f.Match(a); got != want {
			t.Errorf("%s: %v", filter, got)
		}
	}
	deep := strings.Repeat(`{"type":"and","filters":[`, 20) + `{"type":"eq","key":"a","value":1}` + strings.Repeat("]}", 20)
	for _, bad := range []string{`{}`, `[]`, `{"type":"eq"}`, `{"type":"eq","key":"a","value":{}}`, `{"type":"like","key":"a","value":1}`,
		`{"type":"and"}`, `{"type":"in","key":"a","value":1}`, `{"type":"in","key":"a","value":[[]]}`, deep, `{"type":"eq","key":"a","value":null}`} {
		if _, err := documents.ParseFilter([]byte(bad)); !errors.Is(err, documents.ErrInvalid) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if f, err := documents.ParseFilter([]byte("null")); f != nil || err != nil {
		t.Errorf("null: %v, %v", f, err)
	}
}

func FuzzParseFilter(f *testing.F) {
	f.Add([]byte(`{"type":"and","filters":[{"type":"eq","key":"a","value":1},{"type":"in","key":"b","value":["x",true]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := documents.ParseFilter(b)
		if err == nil && p != nil {
			p.Match(map[string]any{"a": 1.0, "b": "x"})
			p.Match(nil)
		}
		if err != nil && !errors.Is(err, documents.ErrInvalid) {
			t.Error(err)
		}
	})
}

func TestOrderIsStable(t *testing.T) {
	w := newWorld(t)
	want := w.find(ann, search.Query{Text: "flower wheel"})
	for range 5 {
		if d := cmp.Diff(want.Results, w.find(ann, search.Query{Text: "flower wheel"}).Results); d != "" {
			t.Fatal(d)
		}
	}
}

// TestLargeFilters holds filters to bounds: each file of a collection is held against all of one.
func TestLargeFilters(t *testing.T) {
	in := func(n int) []byte {
		values := make([]int, n)
		b, err := json.Marshal(map[string]any{"type": "in", "key": "k", "value": values})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if f, err := documents.ParseFilter(in(10_000)); err != nil || !f.Match(map[string]any{"k": 0.0}) || f.Match(map[string]any{"k": "0"}) {
		t.Errorf("%v, %v", f, err)
	}
	many := []byte(`{"type":"and","filters":[` + string(in(6000)) + "," + string(in(6000)) + "]}")
	for _, b := range [][]byte{in(10_001), many, []byte(`{"type":"eq","key":"k","value":"` + strings.Repeat("x", 300<<10) + `"}`)} {
		if _, err := documents.ParseFilter(b); !errors.Is(err, documents.ErrInvalid) {
			t.Errorf("a filter of %d bytes: %v", len(b), err)
		}
	}
}

func TestManyCollections(t *testing.T) {
	k, err := local.Open(t.Context(), local.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	s, err := search.New(search.Config{Keeper: k, Embedder: func(context.Context) (ingest.Embedder, error) { return topics{}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []search.Query{{Text: "x", Collections: make([]string, search.MostCollections+1)}, {Text: "x", Collections: []string{"a"}, Mode: "guesses"}} {
		if _, err := s.Search(t.Context(), ann, q); !errors.Is(err, documents.ErrInvalid) {
			t.Errorf("%d collections, mode %q: %v", len(q.Collections), q.Mode, err)
		}
	}
}
