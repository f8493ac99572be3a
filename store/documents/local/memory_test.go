package local_test

import (
	"database/sql"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"onebit/store/documents"
	"onebit/store/documents/chunk"
	"onebit/store/documents/local"
)

var ann = documents.Reader{Person: "ann"}

// bring puts a file of so many passages into a collection.
func bring(t *testing.T, k *local.Keeper, collection, name string, texts []string) documents.File {
	t.Helper()
	f, err := k.AddFile(t.Context(), ann, documents.File{Name: name}, strings.NewReader(name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Attach(t.Context(), ann, documents.Attachment{Collection: collection, File: f.ID, Attributes: map[string]any{"name": name}}); err != nil {
		t.Fatal(err)
	}
	chunks := make([]chunk.Chunk, len(texts))
	for i, text := range texts {
		chunks[i] = chunk.Chunk{Path: []string{"Part of " + name}, Text: text, End: len(text)}
	}
	if err := k.Cut(t.Context(), collection, f.ID, 1, chunks); err != nil {
		t.Fatal(err)
	}
	bare, err := k.Bare(t.Context(), collection, f.ID, "m", len(texts))
	if err != nil {
		t.Fatal(err)
	}
	v := make([]documents.Vector, len(bare))
	for i, b := range bare {
		v[i] = documents.Vector{ID: b.ID, Vector: []float32{1, float32(i%7) / 7, float32(i%11) / 11}}
	}
	if err := k.Embed(t.Context(), "m", v); err != nil {
		t.Fatal(err)
	}
	if err := k.Complete(t.Context(), collection, f.ID, "m", 3); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestWordsInMemory holds what is found by the index in memory against what FTS5
// finds, before and after files come and go.
func TestWordsInMemory(t *testing.T) {
	dir := t.TempDir()
	k := open(t, dir, nil)
	c, err := k.AddCollection(t.Context(), ann, documents.Collection{Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	texts := func(n int) []string {
		out := make([]string, n)
		for i := range out {
			var w []string
			for range 5 + r.IntN(30) {
				n := r.IntN(100) * r.IntN(100) / 20
				w = append(w, fmt.Sprintf([]string{"pump%d", "valves%d", "Größe%d", "k%[1]d_heap%[1]d", "E%[1]d-%[1]d", "x%d東京", "wells", "drops%d"}[min(r.IntN(24), 7)], n))
			}
			out[i] = strings.Join(w, " ")
		}
		return out
	}
	files := map[string]string{}
	for i := range 3 {
		name := fmt.Sprint("f", i)
		files[name] = bring(t, k, c.ID, name, texts(900)).ID
	}
	queries := []string{"pump30 valve7", "k20_heap20", "E17-17 and valves20?", "x31東京 grosse9", "groesse größe12 GRÖSSE80", "nothing of this", "東京", "f1"}
	type find func(f *documents.Filter, query string) ([]documents.Scored, error)
	all := func(f *documents.Filter, find find) (all [][]documents.Scored) {
		for _, q := range queries {
			hits, err := find(f, q)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, hits)
		}
		return all
	}
	ask := func(f *documents.Filter) [][]documents.Scored {
		return all(f, func(f *documents.Filter, q string) ([]documents.Scored, error) {
			return k.Words(t.Context(), ann, c.ID, q, f, 40)
		})
	}
	stored := func(f *documents.Filter) [][]documents.Scored {
		return all(f, func(f *documents.Filter, q string) ([]documents.Scored, error) {
			return k.Stored(t.Context(), c.ID, q, f, 40)
		})
	}
	same := func(when string, want, got [][]documents.Scored) {
		t.Helper()
		for i := range want {
			if len(want[i]) != len(got[i]) {
				t.Errorf("%s, %q: %d hits, FTS5 has %d", when, queries[i], len(got[i]), len(want[i]))
				continue
			}
			for j := range want[i] {
				w, g := want[i][j], got[i][j]
				if math.Abs(w.Score-g.Score) > 1e-4*(1+w.Score) || math.Abs(w.Share-g.Share) > 1e-4 {
					t.Errorf("%s, %q, hit %d: %+v, FTS5 has %+v", when, queries[i], j, g, w)
					break
				}
			}
		}
	}
	generation := func() int64 {
		c, err := k.Collection(t.Context(), ann, c.ID)
		if err != nil {
			t.Fatal(err)
		}
		return c.Generation
	}
	filter, err := documents.ParseFilter([]byte(`{"type":"eq","key":"name","value":"f1"}`))
	if err != nil {
		t.Fatal(err)
	}
	want, filtered := stored(nil), stored(filter)
	if err := k.Warm(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
	if !k.WordsInMemory(c.ID, generation()) {
		t.Fatal("the words are not in memory")
	}
	same("all", want, ask(nil))
	same("of one file", filtered, ask(filter))

	bring(t, k, c.ID, "f3", texts(50))
	if err := k.Detach(t.Context(), ann, c.ID, files["f0"]); err != nil {
		t.Fatal(err)
	}
	bring(t, k, c.ID, "f4", texts(300))
	if !k.WordsInMemory(c.ID, generation()) {
		t.Fatal("the words did not follow")
	}
	same("after changes", stored(nil), ask(nil))
}

// TestWordsComeIntoMemory: the first search of a larger collection has its words
// made in the background, and closing does not wait for ever.
func TestWordsComeIntoMemory(t *testing.T) {
	k := open(t, t.TempDir(), nil)
	c, err := k.AddCollection(t.Context(), ann, documents.Collection{Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	texts := make([]string, 2500)
	for i := range texts {
		texts[i] = fmt.Sprint("word", i)
	}
	f := bring(t, k, c.ID, "f", texts)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		hits, err := k.Words(t.Context(), ann, c.ID, "word77", nil, 5)
		if err != nil || len(hits) != 1 {
			t.Fatal(hits, err)
		}
		got, err := k.Collection(t.Context(), ann, c.ID)
		if err != nil {
			t.Fatal(err)
		}
		if k.WordsInMemory(c.ID, got.Generation) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the words do not come into memory")
		}
	}
	if err := k.DeleteFile(t.Context(), ann, f.ID); err != nil {
		t.Fatal(err)
	}
	if hits, err := k.Words(t.Context(), ann, c.ID, "word77", nil, 5); err != nil || len(hits) != 0 {
		t.Errorf("deleted words are found: %v, %v", hits, err)
	}
}

// TestOlderWords opens a store whose words stand in a table of one column, as an
// earlier program had it, and one whose table is missing.
func TestOlderWords(t *testing.T) {
	dir := t.TempDir()
	k := open(t, dir, nil)
	for _, name := range []string{"one", "two", "three"} {
		c, err := k.AddCollection(t.Context(), ann, documents.Collection{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		bring(t, k, c.ID, name, []string{"The well of " + name, "and more"})
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, local.FileName))
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{"drop table words_1", "create virtual table words_1 using fts5(body, content='', tokenize='porter unicode61 remove_diacritics 2')",
		"insert into words_1 (rowid, body) values (1, 'old')", "drop table words_2"} {
		if _, err := db.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	k = open(t, dir, nil)
	all, _, err := k.Collections(t.Context(), ann, documents.Page{})
	if err != nil || len(all) != 3 {
		t.Fatal(all, err)
	}
	for _, c := range all {
		hits, err := k.Words(t.Context(), ann, c.ID, "part of "+c.Name, nil, 5)
		if err != nil || len(hits) != 2 {
			t.Errorf("%s: %v, %v", c.Name, hits, err)
		}
		if hits, err := k.Words(t.Context(), ann, c.ID, "old", nil, 5); err != nil || len(hits) != 0 {
			t.Errorf("%s: %v, %v", c.Name, hits, err)
		}
	}
}
