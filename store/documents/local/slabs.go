package local

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"onebit/store/documents"
	"onebit/store/documents/vector"
	"onebit/store/sqlite"
)

// slabs holds the vectors of collections that were searched, the last used ones
// within a number of bytes.
type slabs struct {
	k      *Keeper
	memory int64

	mu   sync.Mutex
	all  map[string]*slab
	tick int64 // grows with each use
}

// slab is one collection's vectors. Its lock is held while it is made.
type slab struct {
	mu      sync.Mutex
	vectors *vector.Slab // nil before it is made, and after something that cannot be followed
	used    int64        // by slabs.mu
	bytes   int64        // by slabs.mu
}

func newSlabs(k *Keeper, memory int64) *slabs {
	return &slabs{k: k, memory: memory, all: map[string]*slab{}}
}

// entry returns a collection's slab, made or not.
func (s *slabs) entry(collection string) *slab {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.all[collection]
	if e == nil {
		e = &slab{}
		s.all[collection] = e
	}
	s.tick++
	e.used = s.tick
	return e
}

// existing returns a slab only if there is one.
func (s *slabs) existing(collection string) *slab {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[collection]
}

// forget drops a collection's slab.
func (s *slabs) forget(collection string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, collection)
}

// weigh notes what a slab takes, and drops the longest unused others while all
// together take too much.
func (s *slabs) weigh(collection string, e *slab, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[collection] != e {
		return // dropped meanwhile; whoever holds it uses it to the end
	}
	e.bytes = bytes
	for {
		var total int64
		oldest, at := "", s.tick+1
		for name, o := range s.all {
			total += o.bytes
			if o != e && o.used < at {
				oldest, at = name, o.used
			}
		}
		if total <= s.memory || oldest == "" {
			return
		}
		delete(s.all, oldest)
	}
}

// follow takes vectors out that a transaction deleted. A generation that was
// jumped over means that another change is on its way here, in either order:
// what is made anew from the file is right in any case.
func (s *slabs) follow(changes ...change) {
	for _, c := range changes {
		if c.generation == 0 {
			continue
		}
		e := s.existing(c.collection)
		if e == nil {
			continue
		}
		e.mu.Lock()
		if e.vectors != nil && e.vectors.Generation() == uint64(c.generation-1) {
			ids := make([]int64, 0, max(0, c.last-c.first+1))
			for id := c.first; id <= c.last; id++ {
				ids = append(ids, id)
			}
			e.vectors.Delete(ids...)
			e.vectors.SetGeneration(uint64(c.generation))
		} else {
			e.vectors = nil
		}
		e.mu.Unlock()
	}
}

// added puts the vectors of passages in that a transaction made findable.
func (s *slabs) added(collection string, generation, first, last int64) {
	e := s.existing(collection)
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.vectors == nil || e.vectors.Generation() != uint64(generation-1) {
		e.vectors = nil
		return
	}
	if err := s.read(context.Background(), e.vectors, collection, first, last); err != nil {
		e.vectors = nil // the next search makes it anew, and says what is wrong
		return
	}
	e.vectors.SetGeneration(uint64(generation))
}

const completedVectors = `select v.id / 2, v.vector from collections c join attachments a on a.collection = c.id join passages p on p.attachment = a.n
	join vectors v on v.id = 2 * p.id + c.slot where c.id = ? and a.status = 'completed' and p.id between ? and ? order by a.first, p.id`

// read puts the vectors of a run of passages into a slab.
func (s *slabs) read(ctx context.Context, to *vector.Slab, collection string, first, last int64) error {
	rows, err := s.k.db.Query(ctx, completedVectors, collection, first, last)
	if err != nil {
		return err
	}
	defer rows.Close()
	var blob sql.RawBytes // of the row, no copy
	v := make([]float32, 0, to.Dims())
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id, &blob); err != nil {
			return err
		}
		v = decodeVector(v, blob)
		if err := to.Put(id, v); err != nil {
			return err
		}
	}
	return rows.Err()
}

// get returns a collection's vectors as they are in the file now.
func (s *slabs) get(ctx context.Context, collection string) (*vector.Slab, error) {
	e := s.entry(collection)
	e.mu.Lock()
	defer e.mu.Unlock()
	for range 10 {
		var generation int64
		var dims int
		err := s.k.db.Scan(ctx, "select generation, dims from collections where id = ?", []any{collection}, &generation, &dims)
		switch {
		case err != nil:
			s.forget(collection)
			return nil, err
		case dims == 0:
			return nil, nil
		case e.vectors != nil && e.vectors.Generation() == uint64(generation) && e.vectors.Dims() == dims:
			return e.vectors, nil
		}
		made, err := vector.New(dims)
		if err != nil {
			return nil, err
		}
		if err := s.read(ctx, made, collection, 0, 1<<62); err != nil {
			return nil, err
		}
		made.SetGeneration(uint64(generation))
		e.vectors = made
		s.weigh(collection, e, made.Bytes())
		// something may have changed while it was read: look again
	}
	return e.vectors, nil // changed faster than it can be read: as of a moment ago
}

// Near finds passages by vectors.
func (k *Keeper) Near(ctx context.Context, by documents.Reader, collection, model string, v []float32, filter documents.Filter, most int) ([]documents.Scored, error) {
	c, err := k.Collection(ctx, by, collection)
	switch {
	case err != nil:
		return nil, err
	case c.Model == "":
		return nil, nil
	case c.Model != model:
		return nil, fmt.Errorf("%w: the collection has vectors of %q, not of %q", documents.ErrConflict, c.Model, model)
	}
	runs, filtered, err := k.allowed(ctx, collection, filter)
	if err != nil || filtered && len(runs) == 0 {
		return nil, err
	}
	vectors, err := k.slabs.get(ctx, collection)
	if err != nil || vectors == nil {
		return nil, meaning(err)
	}
	var slot int64
	if err := k.db.Scan(ctx, "select slot from collections where id = ?", []any{collection}, &slot); err != nil {
		return nil, meaning(err)
	}
	q := vector.Query{Vector: v, K: most, Exact: func(ctx context.Context, ids []int64, score func(int64, []float32)) error {
		return k.exact(ctx, slot, ids, score)
	}}
	if filtered {
		q.Allow = func(id int64) bool { return within(runs, id) }
	}
	hits, err := vectors.Search(ctx, q)
	if err != nil {
		return nil, errors.Join(documents.ErrInvalid, err)
	}
	out := make([]documents.Scored, len(hits))
	for i, h := range hits {
		out[i] = documents.Scored{ID: h.ID, Score: float64(h.Score)}
	}
	return out, nil
}

// exact reads vectors from the file.
func (k *Keeper) exact(ctx context.Context, slot int64, ids []int64, score func(int64, []float32)) error {
	var v []float32
	for _, id := range ids {
		var blob []byte
		err := k.db.Scan(ctx, "select vector from vectors where id = ?", []any{2*id + slot}, &blob)
		if errors.Is(err, sqlite.ErrNotFound) {
			continue // deleted since the scan
		}
		if err != nil {
			return meaning(err)
		}
		v = decodeVector(v, blob)
		score(id, v)
	}
	return nil
}
