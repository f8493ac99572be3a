// Package search asks the document store: by words, by meaning, or by both.
//
// Words find names, numbers and rare terms; vectors find what is said in other
// words. Hybrid asks for fifty of each and weighs for each passage how near its
// vector is with how much of the question's weight its words have, so that words
// count for much where they fit and for little where the question is put in
// other ones. A keeper that does not know that share has the two orders joined
// by reciprocal rank, which needs no common scale. A reranker, where there is one, reads those
// that are left together with the question.
package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"onebit/store/documents"
	"onebit/store/documents/ingest"
)

// Mode says what is searched.
type Mode string

// The modes.
const (
	Hybrid  Mode = "hybrid"
	Words   Mode = "words"
	Vectors Mode = "vectors"
)

const (
	pool      = 50  // hits of each kind that are joined, and that a reranker reads
	rankShift = 60  // k of reciprocal rank fusion
	nearness  = 0.6 // of the weight is the vectors'
	spread    = 0.2 // of cosines from the first to the last hit, at least
	usual     = 8   // results, where nobody says
	most      = 50
	maxQuery  = 8 << 10 // bytes
)

// MostCollections is how many are searched at once.
const MostCollections = 32

// Reranker scores how well texts answer a question, larger is better.
type Reranker interface {
	Rerank(ctx context.Context, query string, texts []string) ([]float64, error)
}

// Config is what a Searcher works with.
type Config struct {
	Keeper   documents.Keeper
	Embedder func(ctx context.Context) (ingest.Embedder, error) // of questions
	Reranker func(ctx context.Context) (Reranker, error)        // nil, or a nil Reranker, for none
}

// Searcher answers queries.
type Searcher struct{ Config }

// New returns a Searcher.
func New(c Config) (*Searcher, error) {
	if c.Keeper == nil || c.Embedder == nil {
		return nil, errors.New("a searcher needs a keeper and an embedder")
	}
	return &Searcher{c}, nil
}

// Query is what to find.
type Query struct {
	Collections []string // ids; at least one
	Text        string
	K           int // results; 0 for 8, at most 50
	Mode        Mode
	Filter      *documents.Filter
	Rerank      bool    // where there is a reranker
	MinScore    float64 // results below are left out
}

// Result is a passage that was found.
type Result struct {
	documents.Passage
	Name   string  // of its file
	Score  float64 // 0 to 1: of the reranker, else as the mode weighs
	Words  float64 // BM25; 0 when words did not find it
	Vector float64 // cosine; 0 when vectors did not find it
	// Attributes are those of its file in the collection.
	Attributes map[string]any
}

// Answer is what a search found, and how.
type Answer struct {
	Results []Result
	// Mode is what was searched in the end: Words where nobody could embed.
	Mode     Mode
	Reranked bool
}

// found is a passage on its way to be a result.
type found struct {
	documents.Scored
	words, vector float64
}

// Search returns the best passages that exist for a reader.
func (s *Searcher) Search(ctx context.Context, by documents.Reader, q Query) (Answer, error) {
	if q.K == 0 {
		q.K = usual
	}
	q.Text = strings.TrimSpace(q.Text)
	switch {
	case len(q.Collections) == 0:
		return Answer{}, fmt.Errorf("%w: a search needs a collection", documents.ErrInvalid)
	case q.Text == "" || len(q.Text) > maxQuery:
		return Answer{}, fmt.Errorf("%w: a query has 1 to %d bytes", documents.ErrInvalid, maxQuery)
	case q.K < 1 || q.K > most:
		return Answer{}, fmt.Errorf("%w: 1 to %d results can be asked for", documents.ErrInvalid, most)
	case len(q.Collections) > MostCollections:
		return Answer{}, fmt.Errorf("%w: at most %d collections are searched at once", documents.ErrInvalid, MostCollections)
	case !slices.Contains([]Mode{"", Hybrid, Words, Vectors}, q.Mode):
		return Answer{}, fmt.Errorf("%w: a search is by hybrid, words or vectors", documents.ErrInvalid)
	}
	a := Answer{Mode: cmp.Or(q.Mode, Hybrid)}
	all, err := s.gather(ctx, by, q, &a)
	if err != nil {
		return Answer{}, err
	}
	for _, id := range q.Collections {
		if err := s.Keeper.Touch(ctx, id); err != nil && !errors.Is(err, documents.ErrNotFound) && !errors.Is(err, documents.ErrFull) {
			return Answer{}, err
		}
	}
	ranker, err := s.ranker(ctx, q)
	if err != nil {
		return Answer{}, err
	}
	want := q.K
	if ranker != nil {
		want = pool
	}
	if a.Results, err = s.results(ctx, by, all, want); err != nil {
		return Answer{}, err
	}
	if ranker != nil {
		switch err := rerank(ctx, ranker, q.Text, a.Results); {
		case err == nil:
			a.Reranked = true
		case !errors.Is(err, ingest.ErrUnavailable): // else the order stays
			return Answer{}, err
		}
	}
	a.Results = slices.DeleteFunc(a.Results, func(r Result) bool { return r.Score < q.MinScore })
	a.Results = a.Results[:min(len(a.Results), q.K)]
	return a, nil
}

// gather asks for words and vectors, at the same time, and joins them.
func (s *Searcher) gather(ctx context.Context, by documents.Reader, q Query, a *Answer) ([]found, error) {
	want := max(pool, q.K)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var words []documents.Scored
	var wrong error
	var group sync.WaitGroup
	defer group.Wait()
	if a.Mode != Vectors {
		group.Go(func() {
			words, wrong = each(q.Collections, want, func(c string) ([]documents.Scored, error) {
				return s.Keeper.Words(ctx, by, c, q.Text, q.Filter, want)
			})
		})
	}
	var vectors []documents.Scored
	if a.Mode != Words {
		var err error
		vectors, err = s.vectors(ctx, by, q, want)
		switch {
		case errors.Is(err, ingest.ErrUnavailable) && a.Mode == Hybrid:
			a.Mode = Words
		case err != nil:
			stop() // nobody needs the words then
			return nil, err
		}
	}
	group.Wait()
	if wrong != nil {
		return nil, wrong
	}
	return join(words, vectors, a.Mode), nil
}

// vectors embeds the question once. A collection whose vectors are of another
// model (a change is under way) is searched by words alone.
func (s *Searcher) vectors(ctx context.Context, by documents.Reader, q Query, want int) ([]documents.Scored, error) {
	e, err := s.Embedder(ctx)
	if err != nil {
		return nil, err
	}
	v, err := ingest.Long(ctx, e, []string{q.Text})
	if err != nil {
		return nil, err
	}
	return each(q.Collections, want, func(c string) ([]documents.Scored, error) {
		hits, err := s.Keeper.Near(ctx, by, c, e.Model(), v[0], q.Filter, want)
		if errors.Is(err, documents.ErrConflict) {
			return nil, nil
		}
		return hits, err
	})
}

// each asks several collections and returns the best of all.
func each(collections []string, want int, ask func(string) ([]documents.Scored, error)) ([]documents.Scored, error) {
	var all []documents.Scored
	for _, c := range collections {
		hits, err := ask(c)
		if err != nil {
			return nil, err
		}
		all = append(all, hits...)
	}
	if len(collections) > 1 {
		slices.SortStableFunc(all, func(a, b documents.Scored) int { return cmp.Compare(b.Score, a.Score) })
	}
	return all[:min(len(all), want)], nil
}

// join makes one order of two.
func join(words, vectors []documents.Scored, mode Mode) []found {
	byID := map[int64]*found{}
	var order []*found
	note := func(h documents.Scored) *found {
		f := byID[h.ID]
		if f == nil {
			f = &found{Scored: documents.Scored{ID: h.ID}}
			byID[h.ID] = f
			order = append(order, f)
		}
		return f
	}
	lists := 2.0
	if mode != Hybrid {
		lists = 1
	}
	share := func(rank int) float64 { return (rankShift + 1) / float64(rankShift+1+rank) / lists }
	shares := false
	for i, h := range vectors {
		f := note(h)
		f.vector = h.Score
		f.Score += share(i)
	}
	for i, h := range words {
		f := note(h)
		f.words, f.Share = h.Score, h.Share
		f.Score += share(i)
		shares = shares || h.Share > 0
	}
	out := make([]found, len(order))
	for i, f := range order {
		out[i] = *f
	}
	switch {
	case mode == Vectors:
		for i := range out {
			out[i].Score = max(0, out[i].vector)
		}
	case shares || len(words) == 0:
		weigh(out, vectors)
	}
	slices.SortStableFunc(out, func(a, b found) int { return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(b.vector, a.vector)) })
	return out
}

// weigh scores by nearness and by share, where there are both. A passage that
// vectors did not find is as near as the last one that they did, at most. Models
// whose cosines all lie close together have them spread, or words would decide
// alone.
func weigh(all []found, vectors []documents.Scored) {
	if len(vectors) == 0 {
		for i := range all {
			all[i].Score = all[i].Share
		}
		return
	}
	last, stretch := vectors[len(vectors)-1].Score, 1.0
	if d := vectors[0].Score - last; d > 0 {
		stretch = max(1, spread/d)
	}
	near := map[int64]bool{}
	for _, h := range vectors {
		near[h.ID] = true
	}
	for i, f := range all {
		v := last
		if near[f.ID] {
			v += (f.vector - last) * stretch
		}
		all[i].Score = min(1, max(0, nearness*v+(1-nearness)*f.Share))
	}
}

// results reads the best of what was found, as many as are wanted. A passage
// that is gone by now is left out, and the next one takes its place.
func (s *Searcher) results(ctx context.Context, by documents.Reader, all []found, want int) ([]Result, error) {
	var out []Result
	for len(out) < want && len(all) > 0 {
		n := min(len(all), want-len(out))
		some, err := s.read(ctx, by, all[:n])
		if err != nil {
			return nil, err
		}
		out, all = append(out, some...), all[n:]
	}
	return out, nil
}

func (s *Searcher) read(ctx context.Context, by documents.Reader, all []found) ([]Result, error) {
	ids := make([]int64, len(all))
	for i, f := range all {
		ids[i] = f.ID
	}
	passages, err := s.Keeper.Passages(ctx, by, ids)
	if err != nil {
		return nil, err
	}
	byID := make(map[int64]documents.Passage, len(passages))
	for _, p := range passages {
		byID[p.ID] = p
	}
	type file struct {
		name       string
		attributes map[string]any
	}
	files := map[string]file{}
	out := make([]Result, 0, len(all))
	for _, f := range all {
		p, ok := byID[f.ID]
		if !ok {
			continue
		}
		key := p.Collection + " " + p.File
		known, ok := files[key]
		if !ok {
			// the reader may see the collection, and so what is in it, without
			// owning the file
			d, err := s.Keeper.File(ctx, documents.System(), p.File)
			if errors.Is(err, documents.ErrNotFound) {
				continue
			}
			if err != nil {
				return nil, err
			}
			a, err := s.Keeper.Attachment(ctx, by, p.Collection, p.File)
			if errors.Is(err, documents.ErrNotFound) {
				continue
			}
			if err != nil {
				return nil, err
			}
			known = file{d.Name, a.Attributes}
			files[key] = known
		}
		out = append(out, Result{Passage: p, Name: known.name, Attributes: known.attributes, Score: f.Score, Words: f.words, Vector: f.vector})
	}
	return out, nil
}

// ranker returns the reranker for a query; nil for none.
func (s *Searcher) ranker(ctx context.Context, q Query) (Reranker, error) {
	if !q.Rerank || s.Reranker == nil {
		return nil, nil
	}
	return s.Reranker(ctx)
}

// rerank orders results by a reranker.
func rerank(ctx context.Context, r Reranker, query string, results []Result) error {
	if len(results) == 0 {
		return nil
	}
	texts := make([]string, len(results))
	for i, p := range results {
		texts[i] = p.Embedded()
	}
	scores, err := r.Rerank(ctx, query, texts)
	if err != nil {
		return err
	}
	if len(scores) != len(results) {
		return fmt.Errorf("the reranker returned %d scores for %d texts", len(scores), len(results))
	}
	for i := range results {
		results[i].Score = scores[i]
	}
	slices.SortStableFunc(results, func(a, b Result) int { return cmp.Compare(b.Score, a.Score) })
	return nil
}
