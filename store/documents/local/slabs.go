package local

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"onebit/store/documents"
	"onebit/store/documents/vector"
	"onebit/store/documents/words"
	"onebit/store/sqlite"
)

// slabs holds the vectors and words of collections that were searched, the last
// used ones within a number of bytes.
type slabs struct {
	k      *Keeper
	memory int64
	ctx    context.Context //nolint:containedctx // of what works in the background
	stop   context.CancelFunc
	work   sync.WaitGroup

	// turn is had by whoever makes a slab: what all take while they are made is
	// bounded too
	turn chan struct{}

	mu   sync.Mutex
	all  map[string]*slab
	tick int64 // grows with each use
}

// slab is one collection in memory. Its lock is held while its vectors are made.
type slab struct {
	mu      sync.Mutex
	vectors *vector.Slab // nil before they are made, and after something that cannot be followed
	words   indexed
	slot    int64 // of the vectors: in which of the two places they stand in the file
	files   labelled

	// by slabs.mu
	used, vectorBytes, wordBytes, fileBytes int64
}

func newSlabs(k *Keeper, memory int64) *slabs {
	s := &slabs{k: k, memory: memory, all: map[string]*slab{}, turn: make(chan struct{}, makers)}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// makers is how many slabs are made at once.
const makers = 2

// queue waits for a turn to make a slab, which the function that it returns ends.
func (s *slabs) queue(ctx context.Context) (func(), error) {
	select {
	case s.turn <- struct{}{}:
		return func() { <-s.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// close ends what works in the background.
func (s *slabs) close() {
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	s.work.Wait()
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

// muchBytes is what was read for once of which the rest of the memory is given
// back to the system.
const muchBytes = 8 << 20

func made(bytes int64) {
	if bytes > muchBytes {
		debug.FreeOSMemory()
	}
}

// weigh notes what a part of a slab takes, and drops the longest unused other
// slabs while all together take too much.
func (s *slabs) weigh(collection string, e *slab, part *int64, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[collection] != e {
		return // dropped meanwhile; whoever holds it uses it to the end
	}
	*part = bytes
	for {
		var total int64
		oldest, at := "", s.tick+1
		for name, o := range s.all {
			total += o.vectorBytes + o.wordBytes + o.fileBytes
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

// follow takes out what a transaction deleted. A generation that was jumped over
// means that another change is on its way here, in either order: what is made
// anew from the file is right in any case.
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
		e.words.follow(c.generation, func(x *words.Index) bool { x.Delete(c.first, c.last); return true })
	}
}

// added puts in the passages that a transaction made findable.
func (s *slabs) added(collection string, generation, first, last int64) {
	e := s.existing(collection)
	if e == nil {
		return
	}
	e.mu.Lock()
	switch {
	case e.vectors == nil:
	case e.vectors.Generation() != uint64(generation-1), s.read(s.ctx, e.vectors, e.slot, [2]int64{first, last}) != nil:
		e.vectors = nil // the next search makes it anew, and says what is wrong
	default:
		e.vectors.SetGeneration(uint64(generation))
	}
	var vectorBytes, wordBytes int64
	if e.vectors != nil {
		vectorBytes = e.vectors.Bytes()
	}
	e.mu.Unlock()
	e.words.follow(generation, func(x *words.Index) bool {
		err := s.readWords(s.ctx, x, [2]int64{first, last})
		wordBytes = x.Bytes()
		return err == nil
	})
	s.weigh(collection, e, &e.vectorBytes, vectorBytes)
	if wordBytes > 0 {
		s.weigh(collection, e, &e.wordBytes, wordBytes)
	}
}

// contents is what can be found in a collection at one moment.
type contents struct {
	generation, slot int64
	dims             int
	runs             [][2]int64 // of ids, ascending
}

func (s *slabs) contents(ctx context.Context, collection string) (contents, error) {
	var c contents
	rows, err := s.k.db.Query(ctx, `select c.generation, c.slot, c.dims, coalesce(a.first, 0), coalesce(a.last, -1) from collections c
		left join attachments a on a.collection = c.id and a.status = 'completed' and a.last >= a.first where c.id = ? order by a.first`, collection)
	list, err := sqlite.Collect(rows, err, func(r sqlite.Row) (run [2]int64, err error) {
		return run, r.Scan(&c.generation, &c.slot, &c.dims, &run[0], &run[1])
	})
	if err == nil && len(list) == 0 {
		err = sqlite.ErrNotFound
	}
	for _, run := range list {
		switch n := len(c.runs) - 1; {
		case run[1] < run[0]:
		case n >= 0 && c.runs[n][1] == run[0]-1: // one long run is read at once
			c.runs[n][1] = run[1]
		default:
			c.runs = append(c.runs, run)
		}
	}
	return c, err
}

// read puts the vectors of runs of passages into a slab.
func (s *slabs) read(ctx context.Context, to *vector.Slab, slot int64, runs ...[2]int64) error {
	v := make([]float32, 0, to.Dims())
	for _, run := range runs {
		rows, err := s.k.db.Query(ctx, "select id, vector from vectors where id between ? and ? order by id", 2*run[0], 2*run[1]+1)
		if err != nil {
			return err
		}
		err = eachRow(rows, func() error {
			var id int64
			var blob sql.RawBytes // of the row, no copy
			if err := rows.Scan(&id, &blob); err != nil || id%2 != slot {
				return err
			}
			v = decodeVector(v, blob)
			return to.Put(id/2, v)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func eachRow(rows *sql.Rows, f func() error) error {
	defer rows.Close()
	for rows.Next() {
		if err := f(); err != nil {
			return err
		}
	}
	return rows.Err()
}

// get returns a collection's vectors as they are in the file now, and their
// slot.
func (s *slabs) get(ctx context.Context, collection string) (*vector.Slab, int64, error) {
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
			return nil, 0, err
		case dims == 0:
			return nil, 0, nil
		case e.vectors != nil && e.vectors.Generation() == uint64(generation) && e.vectors.Dims() == dims:
			return e.vectors, e.slot, nil
		}
		if err := s.makeVectors(ctx, collection, e); err != nil {
			return nil, 0, err
		}
		// something may have changed while it was read: look again
	}
	return e.vectors, e.slot, nil // changed faster than it can be read: as of a moment ago
}

func (s *slabs) makeVectors(ctx context.Context, collection string, e *slab) error {
	done, err := s.queue(ctx)
	if err != nil {
		return err
	}
	defer done()
	c, err := s.contents(ctx, collection)
	if err != nil {
		return err
	}
	v, err := vector.New(c.dims)
	if err != nil {
		return err
	}
	if err := s.read(ctx, v, c.slot, c.runs...); err != nil {
		return err
	}
	v.SetGeneration(uint64(c.generation))
	e.vectors, e.slot = v, c.slot
	made(v.Bytes())
	s.weigh(collection, e, &e.vectorBytes, v.Bytes())
	return nil
}

// Near finds passages by vectors.
func (k *Keeper) Near(ctx context.Context, by documents.Reader, collection, model string, v []float32, filter *documents.Filter, most int) ([]documents.Scored, error) {
	c, err := k.Collection(ctx, by, collection)
	if err != nil {
		return nil, err
	}
	if some, err := c.Near(model); err != nil || !some {
		return nil, err
	}
	runs, filtered, err := k.allowed(ctx, collection, c.Generation, filter)
	if err != nil || filtered && len(runs) == 0 {
		return nil, err
	}
	vectors, slot, err := k.slabs.get(ctx, collection)
	if err != nil || vectors == nil {
		return nil, meaning(err)
	}
	q := vector.Query{Vector: v, K: most, Pool: most + spare, Exact: func(ctx context.Context, ids []int64, score func(int64, []float32)) error {
		return k.exact(ctx, slot, ids, score)
	}}
	if filtered {
		q.Allow = func(id int64) bool { return within(runs, id) }
	}
	hits, err := vectors.Search(ctx, q)
	if err != nil {
		return nil, errors.Join(documents.ErrInvalid, err)
	}
	if len(hits) == 0 { // the vectors may have been another model's by then
		if now, err := k.Collection(ctx, by, collection); err != nil || now.Model != model {
			return nil, cmp.Or(err, fmt.Errorf("%w: the collection moved to another model", documents.ErrConflict))
		}
	}
	out := make([]documents.Scored, len(hits))
	for i, h := range hits {
		out[i] = documents.Scored{ID: h.ID, Score: float64(h.Score)}
	}
	return out, nil
}

// spare is how many more vectors are scored exactly than are asked for.
const spare = 50

// exact reads vectors from the file. One that was deleted since is left out.
func (k *Keeper) exact(ctx context.Context, slot int64, ids []int64, score func(int64, []float32)) error {
	at := make([]int64, len(ids))
	for i, id := range ids {
		at[i] = 2*id + slot
	}
	rows, err := k.db.Query(ctx, "select id, vector from vectors where id in (select value from json_each(?))", toJSON(at))
	if err != nil {
		return meaning(err)
	}
	var v []float32
	return meaning(eachRow(rows, func() error {
		var id int64
		var blob sql.RawBytes
		if err := rows.Scan(&id, &blob); err != nil {
			return err
		}
		v = decodeVector(v, blob)
		score(id/2, v)
		return nil
	}))
}
