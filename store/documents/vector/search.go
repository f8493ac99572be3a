package vector

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	// coarseRows is the size from which sign bits are compared first.
	coarseRows = 300_000
	// coarseShare is the part of all rows, one in so many, that passes the
	// comparison of sign bits.
	coarseShare = 500
	// defaultPool is how many rows are scored exactly.
	defaultPool = 50
)

// Hit is a vector that was found.
type Hit struct {
	ID    int64
	Score float32 // cosine with the query, -1 to 1
}

// Query is what to search for.
type Query struct {
	Vector []float32
	K      int // hits wanted
	Pool   int // rows scored exactly; 0 for 50, or five times K if that is more

	// Allow, if it is set, tells which ids may be found. It is called from
	// several goroutines.
	Allow func(id int64) bool

	// Exact reads the vectors of ids, in any order, and calls score with each
	// that it finds; those that it does not find are no hits. Without it, scores
	// are those of the int8 numbers.
	Exact func(ctx context.Context, ids []int64, score func(id int64, v []float32)) error

	// Coarse is the number of rows from which sign bits are compared first; 0
	// for 300,000.
	Coarse int
	// Threads bounds the goroutines that scan; 0 for one for each processor.
	Threads int
}

// Search returns the best K vectors, best first; equal scores by id. The same
// slab and query give the same hits, however many goroutines scan.
func (s *Slab) Search(ctx context.Context, q Query) ([]Hit, error) {
	if q.K < 1 {
		return nil, nil
	}
	code, err := s.encodeQuery(q.Vector)
	if err != nil {
		return nil, fmt.Errorf("the query: %w", err)
	}
	if q.Pool <= 0 {
		q.Pool = max(defaultPool, 5*q.K)
	}
	q.Pool = max(q.Pool, q.K)
	hits, err := s.scan(ctx, q, code)
	if err != nil {
		return nil, err
	}
	if q.Exact != nil {
		if hits, err = s.rescore(ctx, q, hits); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(hits, better)
	return hits[:min(len(hits), q.K)], nil
}

func better(a, b Hit) int {
	return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.ID, b.ID))
}

func (s *Slab) encodeQuery(v []float32) (*query, error) {
	c := &query{signed: make([]int8, s.padded), unsigned: make([]uint8, s.padded), signs: make([]uint64, s.words)}
	var err error
	if c.scale, err = encode(c.signed, v, s.dims); err != nil {
		return nil, err
	}
	for i, x := range c.signed {
		switch {
		case s.biased:
			c.unsigned[i] = uint8(int(x) + 128)
		case x < 0:
			c.unsigned[i] = uint8(-x)
		default:
			c.unsigned[i] = uint8(x)
		}
		if x < 0 {
			c.signs[i/64] |= 1 << (i % 64)
		}
	}
	return c, nil
}

// rescore scores hits by the vectors that are kept for good.
func (s *Slab) rescore(ctx context.Context, q Query, hits []Hit) ([]Hit, error) {
	ids := make([]int64, len(hits))
	for i, h := range hits {
		ids[i] = h.ID
	}
	slices.Sort(ids)
	var norm float64
	for _, x := range q.Vector {
		norm += float64(x) * float64(x)
	}
	exact := hits[:0]
	var wrong error
	err := q.Exact(ctx, ids, func(id int64, v []float32) {
		if len(v) != s.dims {
			wrong = fmt.Errorf("vector %d has %d dimensions, the query %d", id, len(v), s.dims)
			return
		}
		exact = append(exact, Hit{id, cosine(q.Vector, v, norm)})
	})
	if err == nil {
		err = wrong
	}
	if err != nil {
		return nil, fmt.Errorf("reading vectors: %w", err)
	}
	return exact, nil
}

// cosine returns that of two vectors; square is the first one's length, squared.
func cosine(a, b []float32, square float64) float32 {
	var dot, other float64
	for i, x := range a {
		y := float64(b[i])
		dot += float64(x) * y
		other += y * y
	}
	if square == 0 || other == 0 {
		return 0
	}
	return float32(dot / math.Sqrt(square*other))
}

// scan finds the q.Pool best rows by their int8 numbers.
func (s *Slab) scan(ctx context.Context, q Query, code *query) ([]Hit, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.alive == 0 {
		return nil, ctx.Err()
	}
	coarse := q.Coarse
	if coarse <= 0 {
		coarse = coarseRows
	}
	var best *top
	if s.alive >= coarse {
		best = s.scanSigns(ctx, q, code)
	} else {
		best = s.scanAll(ctx, q, code)
	}
	return best.hits, ctx.Err()
}

// threads returns how many goroutines scan.
func (s *Slab) threads(q Query) int {
	n := q.Threads
	if n <= 0 {
		n = runtime.GOMAXPROCS(0)
	}
	return max(1, min(n, len(s.blocks)))
}

// each calls f with the number of each block, from several goroutines.
func (s *Slab) each(ctx context.Context, threads int, f func(worker, block int)) {
	var next atomic.Int64
	work := func(w int) {
		for ctx.Err() == nil {
			b := int(next.Add(1)) - 1
			if b >= len(s.blocks) {
				return
			}
			f(w, b)
		}
	}
	var wg sync.WaitGroup
	for w := 1; w < threads; w++ {
		wg.Go(func() { work(w) })
	}
	work(0)
	wg.Wait()
}

// rowsOf returns the rows of a block that are in use.
func (s *Slab) rowsOf(block int) int { return min(blockRows, len(s.ids)-block*blockRows) }

func (s *Slab) scanAll(ctx context.Context, q Query, code *query) *top {
	threads := s.threads(q)
	tops := make([]*top, threads)
	sums := make([][]int32, threads)
	for w := range tops {
		tops[w], sums[w] = newTop(q.Pool), make([]int32, min(blockRows, len(s.blocks[0].scale)))
	}
	s.each(ctx, threads, func(w, n int) {
		b, rows := s.blocks[n], s.rowsOf(n)
		s.kernel(sums[w], code, b.codes, (rows+3)/4)
		s.collect(tops[w], q, code, scored{n * blockRows, sums[w][:rows], b.scale, b.sum})
	})
	return merge(tops)
}

// scored is a run of rows with the sums of a kernel.
type scored struct {
	first int
	sums  []int32
	scale []float32
	codes []int32 // sums of the codes
}

// collect offers rows to the best.
func (s *Slab) collect(t *top, q Query, code *query, r scored) {
	floor := t.floor()
	for i, sum := range r.sums {
		if s.biased {
			sum -= 128 * r.codes[i]
		}
		score := float32(sum) * r.scale[i] * code.scale
		if score < floor {
			continue
		}
		row := r.first + i
		if s.isDead(row) || (q.Allow != nil && !q.Allow(s.ids[row])) {
			continue
		}
		t.offer(Hit{s.ids[row], score})
		floor = t.floor()
	}
}

// scanSigns compares sign bits first, and int8 numbers of the rows with the
// fewest that differ.
func (s *Slab) scanSigns(ctx context.Context, q Query, code *query) *top {
	threads := s.threads(q)
	const excluded = math.MaxUint16
	apart := make([]uint16, len(s.ids)) // bits that differ
	counts := make([][]int, threads)
	for w := range counts {
		counts[w] = make([]int, s.padded+1)
	}
	s.each(ctx, threads, func(w, n int) {
		first, rows := n*blockRows, s.rowsOf(n)
		distances(apart[first:][:rows], s.blocks[n].signs, code.signs)
		for i, d := range apart[first:][:rows] {
			row := first + i
			if s.isDead(row) || (q.Allow != nil && !q.Allow(s.ids[row])) {
				apart[row] = excluded
				continue
			}
			counts[w][d]++
		}
	})
	limit := s.threshold(counts, max(s.alive/coarseShare, 4*q.Pool))
	tops := make([]*top, threads)
	for w := range tops {
		tops[w] = newTop(q.Pool)
	}
	allowed := q
	allowed.Allow = nil // excluded rows are out already
	s.each(ctx, threads, func(w, n int) {
		first, b := n*blockRows, s.blocks[n]
		rows := make([]int8, 4*s.padded)
		var sums [4]int32
		for i, d := range apart[first:][:s.rowsOf(n)] {
			if d > limit {
				continue
			}
			copy(rows, b.codes[i*s.padded:][:s.padded])
			s.kernel(sums[:], code, rows, 1)
			s.collect(tops[w], allowed, code, scored{first + i, sums[:1], b.scale[i:], b.sum[i:]})
		}
	})
	return merge(tops)
}

// threshold returns the number of differing bits up to which there are want
// rows.
func (s *Slab) threshold(counts [][]int, want int) uint16 {
	for d := range s.padded + 1 {
		for _, c := range counts {
			want -= c[d]
		}
		if want <= 0 {
			return uint16(d)
		}
	}
	return uint16(s.padded)
}

// distances counts in how many bits each row differs from the query.
func distances(dst []uint16, signs, q []uint64) {
	if len(q) == 6 { // 384 dimensions, the commonest
		a, b, c, d, e, f := q[0], q[1], q[2], q[3], q[4], q[5]
		for i := range dst {
			r := signs[i*6:][:6]
			dst[i] = uint16(bits.OnesCount64(r[0]^a) + bits.OnesCount64(r[1]^b) + bits.OnesCount64(r[2]^c) +
				bits.OnesCount64(r[3]^d) + bits.OnesCount64(r[4]^e) + bits.OnesCount64(r[5]^f))
		}
		return
	}
	n := len(q)
	for i := range dst {
		r, sum := signs[i*n:][:n], 0
		for j, w := range q {
			sum += bits.OnesCount64(r[j] ^ w)
		}
		dst[i] = uint16(sum)
	}
}

// top keeps the best hits: a heap with the worst of them first.
type top struct {
	hits []Hit
	most int
}

func newTop(most int) *top { return &top{make([]Hit, 0, min(most, blockRows)), most} }

// floor is the score below which nothing is taken.
func (t *top) floor() float32 {
	if len(t.hits) < t.most {
		return float32(math.Inf(-1))
	}
	return t.hits[0].Score
}

func (t *top) offer(h Hit) {
	if len(t.hits) < t.most {
		t.hits = append(t.hits, h)
		for i := len(t.hits) - 1; i > 0; {
			up := (i - 1) / 2
			if better(t.hits[i], t.hits[up]) <= 0 {
				return
			}
			t.hits[i], t.hits[up] = t.hits[up], t.hits[i]
			i = up
		}
		return
	}
	if better(h, t.hits[0]) >= 0 {
		return
	}
	t.hits[0] = h
	for i := 0; ; {
		worst := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(t.hits); c++ {
			if better(t.hits[c], t.hits[worst]) > 0 {
				worst = c
			}
		}
		if worst == i {
			return
		}
		t.hits[i], t.hits[worst] = t.hits[worst], t.hits[i]
		i = worst
	}
}

func merge(tops []*top) *top {
	t := tops[0]
	for _, o := range tops[1:] {
		for _, h := range o.hits {
			t.offer(h)
		}
	}
	return t
}
