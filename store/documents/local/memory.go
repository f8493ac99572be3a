package local

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"

	"onebit/store/documents"
	"onebit/store/documents/words"
	"onebit/store/sqlite"
)

// fewPassages are found by FTS5 in a moment: such collections have no index of
// words in memory.
const fewPassages = 2000

// indexed is the index of one collection's words in memory. Whoever changes it
// or makes it holds the lock for writing; searches do not wait for that, since
// FTS5 has the same.
type indexed struct {
	mu         sync.RWMutex
	index      *words.Index // nil before it is made, and after something that it cannot follow
	generation int64        // of the collection, that it is as of
	making     bool         // by slabs.mu
}

// wordsOf returns a collection's words in memory, as they are in the file now.
// Where they are not there it has them made, for later searches, and returns nil.
func (s *slabs) wordsOf(collection string, generation int64) *words.Index {
	e := s.entry(collection)
	if !e.words.mu.TryRLock() {
		return nil
	}
	index, as := e.words.index, e.words.generation
	e.words.mu.RUnlock()
	if index != nil && as == generation {
		return index
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !e.words.making && s.ctx.Err() == nil {
		e.words.making = true
		s.work.Go(func() { s.makeWords(collection, e) })
	}
	return nil
}

// Warm reads a collection's vectors and words into memory, as its first searches
// would, and waits for both.
func (k *Keeper) Warm(ctx context.Context, collection string) error {
	_, _, err := k.slabs.get(ctx, collection)
	if err != nil {
		return meaning(err)
	}
	many, err := k.many(ctx, collection)
	if err != nil || !many {
		return err
	}
	e := k.slabs.entry(collection)
	k.slabs.mu.Lock()
	there := e.words.making || k.slabs.ctx.Err() != nil
	if !there {
		e.words.making = true
		k.slabs.work.Add(1)
	}
	k.slabs.mu.Unlock()
	if !there {
		defer k.slabs.work.Done()
		k.slabs.makeWords(collection, e)
	}
	return nil
}

// makeWords reads a collection's passages into an index. Changes that are made
// meanwhile wait for it, and are followed.
func (s *slabs) makeWords(collection string, e *slab) {
	defer func() {
		s.mu.Lock()
		e.words.making = false
		s.mu.Unlock()
	}()
	done, err := s.queue(s.ctx) // first: who waits for it must not hold up what follows changes
	if err != nil {
		return
	}
	defer done()
	e.words.mu.Lock()
	index := words.New()
	c, err := s.contents(s.ctx, collection)
	if err == nil {
		err = s.readWords(s.ctx, index, c.runs...)
	}
	if err != nil {
		index = nil // searches go on without, and try again
	} else {
		index.Trim()
	}
	e.words.index, e.words.generation = index, c.generation
	e.words.mu.Unlock()
	if index != nil {
		made(index.Bytes())
		s.weigh(collection, e, &e.wordBytes, index.Bytes())
	}
}

// readWords puts runs of passages into an index.
func (s *slabs) readWords(ctx context.Context, to *words.Index, runs ...[2]int64) error {
	for _, run := range runs {
		rows, err := s.k.db.Query(ctx, "select id, path, text from passages where id between ? and ? order by id", run[0], run[1])
		if err != nil {
			return err
		}
		err = eachRow(rows, func() error {
			b, err := scanBody(rows)
			if err == nil && !to.Put(words.Text{ID: b.id, Path: b.path, Body: b.text}) {
				err = errors.New("passages do not come in order")
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func scanBody(r sqlite.Row) (b body, err error) {
	var raw []byte
	var path []string
	if err := r.Scan(&b.id, &raw, &b.text); err != nil {
		return b, err
	}
	if len(raw) > len("null") { // shorter ones hold none
		if err := json.Unmarshal(raw, &path); err != nil {
			return b, err
		}
	}
	b.path, b.text = documents.Searchable(strings.Join(path, "\n")), documents.Searchable(b.text)
	return b, nil
}

// follow keeps an index as the file is after a change, or gives it up.
func (w *indexed) follow(generation int64, f func(*words.Index) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.index == nil || w.generation >= generation: // it was read after the change
	case w.generation == generation-1 && f(w.index):
		w.generation = generation
	default:
		w.index = nil
	}
}

// ranked finds passages by an index of words in memory: all words count, the
// common ones too. Phrases are FTS5's to find.
func (k *Keeper) ranked(ctx context.Context, index *words.Index, a asked) ([]documents.Scored, error) {
	q := words.Query{K: a.limit}
	if a.filtered {
		q.Allow = func(id int64) bool { return within(a.runs, id) }
	}
	all := int64(index.Len())
	var phrases []string
	var list []documents.Counted
	known := map[string]words.Word{}
	var whole float64 // the best score that a passage can have
	for _, t := range a.terms {
		switch found := index.Words(t); {
		case len(found) != 1:
			phrases = append(phrases, t)
		case found[0].Passages == 0:
			whole += documents.Weight(0, all) / 2
		default:
			known[t] = found[0]
			list = append(list, documents.Counted{Term: t, Passages: int64(found[0].Passages)})
		}
	}
	for _, c := range documents.Rarest(list, len(list)) {
		q.Words = append(q.Words, known[c.Term])
		whole += documents.Weight(c.Passages, all)
	}
	if len(phrases) > 0 {
		p, err := k.match(ctx, a.number, all, quoted(phrases), len(list) == 0)
		if err != nil {
			return nil, err
		}
		whole += p.weight
		if q.More, err = k.phrases(ctx, a.number, p.match); err != nil {
			return nil, err
		}
	}
	hits := index.Search(q)
	out := make([]documents.Scored, len(hits))
	for i, h := range hits {
		out[i] = documents.Scored{ID: h.ID, Score: h.Score, Share: min(1, h.Score/whole)}
	}
	return out, nil
}
