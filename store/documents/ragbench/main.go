// Command ragbench measures the document store at a size: what a hybrid search
// takes and finds, what memory and what start, beside sqlite-vec on the same
// vectors in the same run. `make bench-rag` runs it.
//
// Texts are made of words with frequencies as in languages, vectors lie in
// clusters as those of texts do. The store is built in one process and measured
// in another, so that memory is that of a box which has only just started. The
// embedding of the question is not in the times.
package main

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	_ "modernc.org/sqlite"
	_ "modernc.org/sqlite/vec"

	"onebit/store/documents"
	"onebit/store/documents/chunk"
	"onebit/store/documents/ingest"
	"onebit/store/documents/local"
	"onebit/store/documents/search"
	"onebit/store/documents/vector"
)

const (
	modelName = "ragbench"
	perFile   = 1000 // chunks
	words     = 60   // in a chunk
	k         = 10
)

type bench struct {
	chunks, dims, queries int
	dir                   string
	measure               bool
}

func main() {
	var b bench
	flag.IntVar(&b.chunks, "chunks", 100_000, "passages")
	flag.IntVar(&b.dims, "dims", 384, "numbers of a vector")
	flag.IntVar(&b.queries, "queries", 300, "searches of each kind")
	flag.StringVar(&b.dir, "dir", "", "where the store is built (a temporary folder)")
	flag.BoolVar(&b.measure, "measure", false, "measure what is in -dir")
	slab := flag.Int("slab", 0, "measure the vectors alone, so many of them, without a store")
	flag.Parse()
	if err := b.run(*slab); err != nil {
		fmt.Fprintln(os.Stderr, "ragbench:", err)
		os.Exit(1)
	}
}

func (b bench) run(slab int) error {
	ctx := context.Background()
	switch {
	case slab > 0:
		return b.vectorsAlone(ctx, slab)
	case b.measure:
		return b.measureStore(ctx)
	}
	dir, err := os.MkdirTemp(b.dir, "ragbench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b.dir = dir
	fmt.Printf("%d passages of %d words, vectors of %d numbers, %d processors, level %s\n", b.chunks, words, b.dims, runtime.GOMAXPROCS(0), vector.Levels()[len(vector.Levels())-1])
	begin := time.Now()
	if err := b.build(ctx); err != nil {
		return err
	}
	fmt.Printf("built in %.1f s\n", time.Since(begin).Seconds())
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, self, "-measure", "-dir", dir, "-chunks", strconv.Itoa(b.chunks), "-dims", strconv.Itoa(b.dims), "-queries", strconv.Itoa(b.queries))
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	return c.Run()
}

// world makes texts and vectors, the same ones each time.
type world struct {
	dims    int
	centres [][]float32
	zipf    *rand.Zipf
}

func newWorld(chunks, dims int) *world {
	w := &world{dims: dims, zipf: rand.NewZipf(rand.New(rand.NewPCG(9, 9)), 1.07, 8, 60_000)}
	r := rand.New(rand.NewPCG(1, 1))
	for range max(1, chunks/100) {
		w.centres = append(w.centres, unit(r, nil, dims))
	}
	return w
}

func unit(r *rand.Rand, around []float32, dims int) []float32 {
	v := make([]float32, dims)
	var square float64
	for i := range v {
		x := r.NormFloat64()
		if around != nil {
			x = 0.8*x + float64(around[i])*math.Sqrt(float64(dims))
		}
		v[i] = float32(x)
		square += x * x
	}
	for i := range v {
		v[i] /= float32(math.Sqrt(square))
	}
	return v
}

// vector is that of a passage; negative numbers are questions.
func (w *world) vector(i int) []float32 {
	r := rand.New(rand.NewPCG(uint64(int64(i)), 7))
	return unit(r, w.centres[r.IntN(len(w.centres))], w.dims)
}

func (w *world) text(n int) string {
	var t strings.Builder
	for i := range n {
		if i > 0 {
			t.WriteByte(' ')
		}
		t.WriteString(word(w.zipf.Uint64()))
	}
	return t.String()
}

// word spells a number in syllables.
func word(n uint64) string {
	var b []byte
	for n += 20; n > 0; n /= 100 {
		b = append(b, "bdfgklmnprst"[n%100%12], "aeiou"[n%100/12%5], "lmnrst"[n%100/17%6])
	}
	return string(b)
}

func (b bench) build(ctx context.Context) error {
	w := newWorld(b.chunks, b.dims)
	keeper, err := local.Open(ctx, local.Config{Dir: b.dir})
	if err != nil {
		return err
	}
	me := documents.Reader{Person: "bench"}
	c, err := keeper.AddCollection(ctx, me, documents.Collection{Name: "bench"})
	if err != nil {
		return err
	}
	for first := 0; first < b.chunks; first += perFile {
		if err := b.addFile(ctx, keeper, w, file{c.ID, first, min(perFile, b.chunks-first)}); err != nil {
			return err
		}
	}
	if err := keeper.Close(); err != nil {
		return err
	}
	return b.buildPeer(ctx, w)
}

type file struct {
	collection   string
	first, count int
}

func (b bench) addFile(ctx context.Context, k *local.Keeper, w *world, f file) error {
	me := documents.Reader{Person: "bench"}
	d, err := k.AddFile(ctx, me, documents.File{Name: fmt.Sprint(f.first)}, strings.NewReader("x"))
	if err != nil {
		return err
	}
	if _, err := k.Attach(ctx, me, documents.Attachment{Collection: f.collection, File: d.ID}); err != nil {
		return err
	}
	chunks := make([]chunk.Chunk, f.count)
	for i := range chunks {
		chunks[i] = chunk.Chunk{Text: w.text(words), End: 1}
	}
	if err := k.Cut(ctx, f.collection, d.ID, 1, chunks); err != nil {
		return err
	}
	bare, err := k.Bare(ctx, f.collection, d.ID, modelName, f.count)
	if err != nil {
		return err
	}
	v := make([]documents.Vector, len(bare))
	for i, p := range bare {
		v[i] = documents.Vector{ID: p.ID, Vector: w.vector(f.first + i)}
	}
	if err := k.Embed(ctx, modelName, v); err != nil {
		return err
	}
	return k.Complete(ctx, f.collection, d.ID, modelName, b.dims)
}

func (b bench) peerPath() string { return filepath.Join(b.dir, "peer.db") }

// buildPeer fills a table of sqlite-vec with the same vectors.
func (b bench) buildPeer(ctx context.Context, w *world) error {
	db, err := sql.Open("sqlite", b.peerPath())
	if err != nil {
		return err
	}
	defer db.Close() //nolint:errcheck // the commit counts
	if _, err := db.ExecContext(ctx, fmt.Sprintf("create virtual table v using vec0(embedding float[%d] distance_metric=cosine)", b.dims)); err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	for i := range b.chunks {
		if _, err := tx.ExecContext(ctx, "insert into v (rowid, embedding) values (?, ?)", i+1, blob(w.vector(i))); err != nil {
			return errors.Join(err, tx.Rollback())
		}
	}
	return tx.Commit()
}

func blob(v []float32) []byte {
	var out []byte
	for _, x := range v {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
	}
	return out
}

// fixed embeds every question as the vector that was set.
type fixed struct{ v []float32 }

func (f *fixed) Model() string                              { return modelName }
func (f *fixed) MaxTokens() int                             { return 512 }
func (f *fixed) Count(context.Context, string) (int, error) { return 1, nil }
func (f *fixed) Embed(context.Context, []string) ([][]float32, error) {
	return [][]float32{f.v}, nil
}

// resident returns the memory of this process in MiB.
func resident() float64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return math.NaN()
	}
	n, _ := strconv.Atoi(strings.Fields(string(b))[1])
	return float64(n) * float64(os.Getpagesize()) / (1 << 20)
}

func (b bench) measureStore(ctx context.Context) error {
	w := newWorld(b.chunks, b.dims)
	before := resident()
	begin := time.Now()
	keeper, err := local.Open(ctx, local.Config{Dir: b.dir})
	if err != nil {
		return err
	}
	defer keeper.Close() //nolint:errcheck // nothing was written
	opened := time.Since(begin)
	e := &fixed{}
	s, err := search.New(search.Config{Keeper: keeper, Embedder: func(context.Context) (ingest.Embedder, error) { return e, nil }})
	if err != nil {
		return err
	}
	all, _, err := keeper.Collections(ctx, documents.System(), documents.Page{})
	if err != nil {
		return err
	}
	id := all[0].ID
	begin = time.Now()
	if _, err := keeper.Near(ctx, documents.System(), id, modelName, w.vector(-1), nil, k); err != nil {
		return err
	}
	fmt.Printf("opened in %.2f s (with a check of the structure), vectors in memory after %.2f s more\n", opened.Seconds(), time.Since(begin).Seconds())
	begin = time.Now()
	if err := keeper.Warm(ctx, id); err != nil {
		return err
	}
	fmt.Printf("words in memory after %.2f s more; until then they are found on the disk\n", time.Since(begin).Seconds())
	runtime.GC()
	fmt.Printf("memory: %.0f MiB, of which %.0f before anything was opened\n", resident(), before)
	peer, err := sql.Open("sqlite", b.peerPath())
	if err != nil {
		return err
	}
	defer peer.Close() //nolint:errcheck // nothing was written
	peer.SetMaxOpenConns(1)
	if err := b.compare(ctx, &sides{w: w, keeper: keeper, searcher: s, embedder: e, id: id, peer: peer}); err != nil {
		return err
	}
	fmt.Printf("memory after all searches: %.0f MiB\n", resident())
	return nil
}

type sides struct {
	w        *world
	keeper   *local.Keeper
	searcher *search.Searcher
	embedder *fixed
	id       string
	peer     *sql.DB
	times    map[string][]time.Duration
	found    map[string]int
}

// compare asks in turn, so that whatever else the machine does meets all alike.
func (b bench) compare(ctx context.Context, s *sides) error {
	s.times, s.found = map[string][]time.Duration{}, map[string]int{}
	truths := 0
	for q := range b.queries {
		v := s.w.vector(-2 - q)
		s.embedder.v = v
		common, rare := s.w.text(8), word(uint64(20_000+q*37))+" "+s.w.text(3)
		for _, step := range []struct {
			name string
			f    func() ([]int64, error)
		}{
			{"vectors", func() ([]int64, error) {
				return ids(s.keeper.Near(ctx, documents.System(), s.id, modelName, v, nil, k))
			}},
			{"words, usual", func() ([]int64, error) { return ids(s.keeper.Words(ctx, documents.System(), s.id, common, nil, k)) }},
			{"words, rare", func() ([]int64, error) { return ids(s.keeper.Words(ctx, documents.System(), s.id, rare, nil, k)) }},
			{"hybrid, usual", func() ([]int64, error) { return nil, s.hybrid(ctx, common) }},
			{"hybrid", func() ([]int64, error) { return nil, s.hybrid(ctx, rare) }},
			{"sqlite-vec", func() ([]int64, error) { return s.askPeer(ctx, v) }},
		} {
			if step.name == "sqlite-vec" && q%10 != 0 {
				continue // it takes long enough
			}
			begin := time.Now()
			got, err := step.f()
			s.times[step.name] = append(s.times[step.name], time.Since(begin))
			if err != nil {
				return fmt.Errorf("%s: %w", step.name, err)
			}
			if (step.name == "vectors" || step.name == "sqlite-vec") && q%10 == 0 {
				want := s.w.nearest(v, b.chunks)
				if step.name == "vectors" {
					truths++
				}
				for _, id := range got {
					if slices.Contains(want, id) {
						s.found[step.name]++
					}
				}
			}
		}
	}
	for _, name := range []string{"vectors", "words, usual", "words, rare", "hybrid, usual", "hybrid", "sqlite-vec"} {
		t := s.times[name]
		slices.Sort(t)
		line := fmt.Sprintf("%-13s p50 %7.2f ms  p99 %7.2f ms", name, ms(t[len(t)/2]), ms(t[len(t)*99/100]))
		if s.found[name] > 0 {
			line += fmt.Sprintf("  recall@%d %.4f", k, float64(s.found[name])/float64(truths*k))
		}
		fmt.Println(line)
	}
	fmt.Printf("sqlite-vec takes %.1f times as long as vectors\n", ratio(s.times["sqlite-vec"], s.times["vectors"]))
	return nil
}

func (s *sides) hybrid(ctx context.Context, text string) error {
	_, err := s.searcher.Search(ctx, documents.System(), search.Query{Collections: []string{s.id}, Text: text, K: 8})
	return err
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func ratio(a, b []time.Duration) float64 { return float64(a[len(a)/2]) / float64(b[len(b)/2]) }

func ids(hits []documents.Scored, err error) ([]int64, error) {
	var out []int64
	for _, h := range hits {
		out = append(out, h.ID)
	}
	return out, err
}

func (s *sides) askPeer(ctx context.Context, v []float32) ([]int64, error) {
	rows, err := s.peer.QueryContext(ctx, "select rowid from v where embedding match ? and k = ? order by distance", blob(v), k)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		out = append(out, id)
	}
	return out, rows.Err()
}

// nearest is the truth: all passages compared in float64. Ids are those that the
// store gave, from 1.
func (w *world) nearest(q []float32, n int) []int64 {
	type scored struct {
		id    int64
		score float64
	}
	best := make([]scored, 0, k+1)
	for i := range n {
		var dot float64
		for j, x := range w.vector(i) {
			dot += float64(x) * float64(q[j])
		}
		if len(best) == k && dot <= best[k-1].score {
			continue
		}
		at, _ := slices.BinarySearchFunc(best, dot, func(s scored, d float64) int {
			if s.score > d {
				return -1
			}
			return 1
		})
		best = slices.Insert(best, at, scored{int64(i + 1), dot})
		best = best[:min(len(best), k)]
	}
	out := make([]int64, len(best))
	for i, s := range best {
		out[i] = s.id
	}
	return out
}

// vectorsAlone measures a slab of a size that takes too long to build as a
// store.
func (b bench) vectorsAlone(ctx context.Context, n int) error {
	w := newWorld(n, b.dims)
	s, err := vector.New(b.dims)
	if err != nil {
		return err
	}
	begin := time.Now()
	for i := range n {
		if err := s.Put(int64(i+1), w.vector(i)); err != nil {
			return err
		}
	}
	fmt.Printf("%d vectors of %d numbers put in %.1f s, %.0f MiB\n", n, b.dims, time.Since(begin).Seconds(), float64(s.Bytes())/(1<<20))
	var times []time.Duration
	found, truths := 0, 0
	for q := range b.queries {
		v := w.vector(-2 - q)
		begin := time.Now()
		hits, err := s.Search(ctx, vector.Query{Vector: v, K: k, Exact: func(_ context.Context, ids []int64, score func(int64, []float32)) error {
			for _, id := range ids {
				score(id, w.vector(int(id-1)))
			}
			return nil
		}})
		if err != nil {
			return err
		}
		times = append(times, time.Since(begin))
		if q%20 == 0 {
			truths++
			want := w.nearest(v, n)
			for _, h := range hits {
				if slices.Contains(want, h.ID) {
					found++
				}
			}
		}
	}
	slices.Sort(times)
	fmt.Printf("vectors alone p50 %.2f ms  p99 %.2f ms  recall@%d %.4f\n", ms(times[len(times)/2]), ms(times[len(times)*99/100]), k, float64(found)/float64(truths*k))
	return nil
}
