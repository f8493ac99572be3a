package vector_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onebit/store/documents/vector"
)

// corpus is vectors in clusters, as texts about subjects are.
type corpus struct {
	dims    int
	vectors [][]float32
	rand    *rand.Rand
	centres [][]float32
}

func newCorpus(n, dims int, seed uint64) *corpus {
	c := &corpus{dims: dims, rand: rand.New(rand.NewPCG(seed, 1))}
	for range max(1, n/100) {
		c.centres = append(c.centres, c.normal(nil, 1))
	}
	for range n {
		c.vectors = append(c.vectors, c.near())
	}
	return c
}

func (c *corpus) normal(around []float32, spread float64) []float32 {
	v := make([]float32, c.dims)
	var square float64
	for i := range v {
		x := c.rand.NormFloat64() * spread
		if around != nil {
			x += float64(around[i]) * math.Sqrt(float64(c.dims))
		}
		v[i] = float32(x)
		square += x * x
	}
	for i := range v {
		v[i] /= float32(math.Sqrt(square))
	}
	return v
}

func (c *corpus) near() []float32 { return c.normal(c.centres[c.rand.IntN(len(c.centres))], 0.8) }

func (c *corpus) slab(t testing.TB, l vector.Level) *vector.Slab {
	t.Helper()
	s, err := vector.NewAt(c.dims, l)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range c.vectors {
		if err := s.Put(int64(i), v); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// exact is the truth: every vector compared in float64.
func (c *corpus) exact(q []float32, k int) []int64 {
	scores := make([]float64, len(c.vectors))
	ids := make([]int64, len(c.vectors))
	for i, v := range c.vectors {
		ids[i] = int64(i)
		for j, x := range v {
			scores[i] += float64(x) * float64(q[j])
		}
	}
	slices.SortFunc(ids, func(a, b int64) int {
		if scores[a] != scores[b] {
			if scores[a] > scores[b] {
				return -1
			}
			return 1
		}
		return int(a - b)
	})
	return ids[:min(k, len(ids))]
}

func (c *corpus) read(_ context.Context, ids []int64, score func(int64, []float32)) error {
	for _, id := range ids {
		score(id, c.vectors[id])
	}
	return nil
}

// recall is the share of the exact hits that searches find.
func (c *corpus) recall(t testing.TB, s *vector.Slab, queries int, q vector.Query) float64 {
	t.Helper()
	found := 0
	for range queries {
		q.Vector = c.near()
		hits, err := s.Search(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		want := c.exact(q.Vector, q.K)
		for _, h := range hits {
			if slices.Contains(want, h.ID) {
				found++
			}
		}
	}
	return float64(found) / float64(queries*q.K)
}

func TestSearchFindsTheNearest(t *testing.T) {
	for _, l := range vector.Levels() {
		for _, dims := range []int{1, 3, 63, 64, 65, 384, 1000} {
			t.Run(fmt.Sprint(l, dims), func(t *testing.T) {
				c := newCorpus(700, dims, 7)
				s := c.slab(t, l)
				least := 0.99
				if dims < 8 {
					least = 0 // so few directions that most are ties
				}
				if got := c.recall(t, s, 20, vector.Query{K: 10, Exact: c.read}); got < least {
					t.Errorf("recall %.3f, want %.2f", got, least)
				}
			})
		}
	}
}

func TestLevelsAgree(t *testing.T) {
	c := newCorpus(5000, 384, 3)
	for range 5 {
		q := vector.Query{Vector: c.near(), K: 50}
		var want []vector.Hit
		for _, l := range vector.Levels() {
			got, err := c.slab(t, l).Search(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			if want == nil {
				want = got
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s differs from %s (-want +got):\n%s", l, vector.Levels()[0], d)
			}
		}
	}
}

func TestExtremesDoNotOverflow(t *testing.T) {
	for _, l := range vector.Levels() {
		s, err := vector.NewAt(8192, l)
		if err != nil {
			t.Fatal(err)
		}
		same, opposite := make([]float32, 8192), make([]float32, 8192)
		for i := range same {
			same[i] = 3e30
			opposite[i] = -3e30
		}
		if err := errors.Join(s.Put(1, same), s.Put(2, opposite), s.Put(3, make([]float32, 8192))); err != nil {
			t.Fatal(err)
		}
		hits, err := s.Search(t.Context(), vector.Query{Vector: same, K: 3})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []vector.Hit{{1, 1}, {3, 0}, {2, -1}} {
			if hits[i].ID != want.ID || math.Abs(float64(hits[i].Score-want.Score)) > 1e-3 {
				t.Errorf("%s: hit %d is %v, want %v", l, i, hits[i], want)
			}
		}
	}
}

func TestSignsFirst(t *testing.T) {
	c := newCorpus(20_000, 384, 5)
	for _, l := range vector.Levels() {
		s := c.slab(t, l)
		got := c.recall(t, s, 20, vector.Query{K: 10, Exact: c.read, Coarse: 1000})
		if got < 0.9 {
			t.Errorf("%s: recall %.3f, want 0.90", l, got)
		}
	}
}

func TestSearchIsTheSameWithAnyThreads(t *testing.T) {
	c := newCorpus(20_000, 64, 9)
	s := c.slab(t, vector.Generic)
	for _, coarse := range []int{0, 1} {
		q := vector.Query{Vector: c.near(), K: 20, Coarse: coarse, Threads: 1}
		one, err := s.Search(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		q.Threads = 5
		five, err := s.Search(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(one, five); d != "" {
			t.Errorf("coarse %d: (-one +five):\n%s", coarse, d)
		}
	}
}

func TestAllow(t *testing.T) {
	c := newCorpus(9000, 64, 11)
	s := c.slab(t, vector.Levels()[len(vector.Levels())-1])
	for _, coarse := range []int{0, 1} {
		hits, err := s.Search(t.Context(), vector.Query{Vector: c.near(), K: 10, Coarse: coarse,
			Allow: func(id int64) bool { return id%1000 == 7 }})
		if err != nil {
			t.Fatal(err)
		}
		if len(hits) != 9 {
			t.Errorf("coarse %d: %d hits, want all 9 that are allowed", coarse, len(hits))
		}
		for _, h := range hits {
			if h.ID%1000 != 7 {
				t.Errorf("coarse %d: found %d, which is not allowed", coarse, h.ID)
			}
		}
	}
}

func TestPutReplacesAndDeleteForgets(t *testing.T) {
	c := newCorpus(3000, 64, 13)
	s := c.slab(t, vector.Generic)
	q := c.near()
	if err := s.Put(17, q); err != nil {
		t.Fatal(err)
	}
	first := func() vector.Hit {
		hits, err := s.Search(t.Context(), vector.Query{Vector: q, K: 1})
		if err != nil || len(hits) != 1 {
			t.Fatalf("%v, %v", hits, err)
		}
		return hits[0]
	}
	if h := first(); h.ID != 17 || h.Score < 0.99 {
		t.Errorf("after Put the best is %v, want 17", h)
	}
	if n := s.Delete(17, 17, 99_999); n != 1 {
		t.Errorf("Delete says %d, want 1", n)
	}
	if h := first(); h.ID == 17 {
		t.Error("a deleted vector is found")
	}
	if err := s.Put(17, q); err != nil {
		t.Fatal(err)
	}
	if h := first(); h.ID != 17 {
		t.Errorf("put again, the best is %v", h)
	}
	if err := s.Put(-1, q); !errors.Is(err, vector.ErrOrder) {
		t.Errorf("an id before the others gives %v, want ErrOrder", err)
	}
}

func TestDeletedBytesAreGone(t *testing.T) {
	s, err := vector.New(64)
	if err != nil {
		t.Fatal(err)
	}
	secret := make([]float32, 64)
	for i := range secret {
		secret[i] = float32(i) - 20
	}
	if err := s.Put(1, secret); err != nil {
		t.Fatal(err)
	}
	var before, after bytes.Buffer
	if _, err := s.WriteTo(&before); err != nil {
		t.Fatal(err)
	}
	codes := before.Bytes()[32+12:][:64]
	s.Delete(1)
	if _, err := s.WriteTo(&after); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(after.Bytes(), codes) {
		t.Error("the file still holds a deleted vector")
	}
	if s.Holds(codes) {
		t.Error("memory still holds a deleted vector")
	}
}

func TestCompaction(t *testing.T) {
	c := newCorpus(12_000, 64, 15)
	s := c.slab(t, vector.Generic)
	before := s.Bytes()
	for id := range int64(12_000) {
		if id%3 != 0 {
			s.Delete(id)
		}
	}
	if s.Len() != 4000 {
		t.Fatalf("%d are left, want 4000", s.Len())
	}
	if got := s.Bytes(); got > before*2/3 {
		t.Errorf("%d bytes of %d are still in use", got, before)
	}
	for _, id := range []int64{0, 3, 6000, 11_997} {
		hits, err := s.Search(t.Context(), vector.Query{Vector: c.vectors[id], K: 1})
		if err != nil || len(hits) != 1 || hits[0].ID != id {
			t.Errorf("searching for vector %d finds %v, %v", id, hits, err)
		}
	}
	if err := s.Put(12_000, c.near()); err != nil {
		t.Error(err)
	}
}

func TestRefusals(t *testing.T) {
	if _, err := vector.New(0); err == nil {
		t.Error("0 dimensions are taken")
	}
	if _, err := vector.New(9000); err == nil {
		t.Error("9000 dimensions are taken")
	}
	s, err := vector.New(2)
	if err != nil {
		t.Fatal(err)
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, v := range [][]float32{nil, {1}, {1, 2, 3}, {nan, 1}, {inf, 1}} {
		if err := s.Put(1, v); err == nil {
			t.Errorf("%v is taken", v)
		}
		if _, err := s.Search(t.Context(), vector.Query{Vector: v, K: 1}); err == nil {
			t.Errorf("a search for %v is taken", v)
		}
	}
	if hits, err := s.Search(t.Context(), vector.Query{Vector: []float32{1, 0}, K: 3}); len(hits) != 0 || err != nil {
		t.Errorf("an empty slab finds %v, %v", hits, err)
	}
}

func TestExactErrors(t *testing.T) {
	c := newCorpus(100, 64, 17)
	s := c.slab(t, vector.Generic)
	boom := errors.New("boom")
	_, err := s.Search(t.Context(), vector.Query{Vector: c.near(), K: 1,
		Exact: func(context.Context, []int64, func(int64, []float32)) error { return boom }})
	if !errors.Is(err, boom) {
		t.Errorf("the error is %v", err)
	}
	_, err = s.Search(t.Context(), vector.Query{Vector: c.near(), K: 1,
		Exact: func(_ context.Context, ids []int64, score func(int64, []float32)) error {
			score(ids[0], []float32{1})
			return nil
		}})
	if err == nil {
		t.Error("a vector of another length is taken")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Search(ctx, vector.Query{Vector: c.near(), K: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled search gives %v", err)
	}
}

func TestChangesDuringSearches(t *testing.T) {
	c := newCorpus(6000, 64, 19)
	s := c.slab(t, vector.Generic)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 2))
			for i := range int64(100) {
				if w == 0 {
					id := int64(r.IntN(6000))
					s.Delete(id)
					if err := s.Put(6000+i, c.vectors[id]); err != nil {
						t.Error(err)
					}
					continue
				}
				q := c.vectors[r.IntN(6000)]
				if _, err := s.Search(t.Context(), vector.Query{Vector: q, K: 5, Coarse: 1 + w%2*100_000}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
