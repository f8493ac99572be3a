// Command quality measures what searches of the document store find: the
// labelled set of package corpus is brought in as on a box, with a real
// embedding model, and each question is asked by words, by vectors, by both, and
// by both with a reranker. `make bench-rag` runs it.
//
// The models are asked over HTTP, at servers that speak llama-server's dialect:
// this program starts none.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"onebit/store/documents"
	"onebit/store/documents/extract"
	"onebit/store/documents/ingest"
	"onebit/store/documents/local"
	"onebit/store/documents/postgres"
	"onebit/store/documents/ragbench/corpus"
	"onebit/store/documents/search"
)

const (
	recallAt = 8
	gainAt   = 10
)

type bench struct {
	embed, rerank, cache string
	postgres             string
	seed                 uint64
	limit                int
	gate, list           bool
	late, tokens         int
}

func main() {
	var b bench
	flag.StringVar(&b.embed, "embed", "http://127.0.0.1:8080", "where an embedding model is served")
	flag.StringVar(&b.rerank, "rerank", "", "where a reranking model is served, if one is")
	flag.StringVar(&b.cache, "cache", "", "a file that keeps vectors for the next run")
	flag.StringVar(&b.postgres, "postgres", "", "the DSN of a database to keep the set in, in a schema of its own that is left there; a file without")
	flag.Uint64Var(&b.seed, "seed", 1, "of the world")
	flag.IntVar(&b.limit, "limit", 512, "tokens that the embedding model takes")
	flag.BoolVar(&b.gate, "gate", false, "fail where hybrid does not beat both halves, or finds less than nine of ten")
	flag.BoolVar(&b.list, "list", false, "list what hybrid does not find")
	flag.IntVar(&b.late, "late", 16, "also rerank so many passages by the token vectors of the embedding model; 0 for none")
	flag.IntVar(&b.tokens, "late-tokens", 192, "tokens of a passage that are read for that")
	flag.Parse()
	if err := b.run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "quality:", err)
		os.Exit(1)
	}
}

func (b bench) run(ctx context.Context) (err error) {
	w, err := corpus.New(b.seed)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "quality")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	keeper, err := b.open(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, keeper.Close()) }()
	e := newRemote(b.embed, b.limit)
	if err := e.load(b.cache); err != nil {
		return err
	}
	s := &set{bench: b, world: w, keeper: keeper, embedder: e, remote: e, dir: dir}
	if err := s.bringIn(ctx); err != nil {
		return err
	}
	if err := s.ask(ctx); err != nil {
		return err
	}
	return e.save(b.cache)
}

func (b bench) open(ctx context.Context, dir string) (documents.Keeper, error) {
	if b.postgres == "" {
		return local.Open(ctx, local.Config{Dir: dir})
	}
	return postgres.Open(ctx, postgres.Config{DSN: b.postgres, Schema: fmt.Sprint("quality_", os.Getpid())})
}

// set is the labelled set in a store.
type set struct {
	bench
	world    *corpus.World
	keeper   documents.Keeper
	embedder ingest.Embedder
	remote   *remote
	dir      string
	id       string // of the collection
}

var me = documents.Reader{Person: "bench"}

func (s *set) bringIn(ctx context.Context) error {
	c, err := s.keeper.AddCollection(ctx, me, documents.Collection{Name: "quality"})
	if err != nil {
		return err
	}
	s.id = c.ID
	pages, words := 0, 0
	for _, d := range s.world.Documents {
		f, err := s.keeper.AddFile(ctx, me, documents.File{Name: d.Name}, strings.NewReader(d.Text))
		if err != nil {
			return err
		}
		if _, err := s.keeper.Attach(ctx, me, documents.Attachment{Collection: c.ID, File: f.ID}); err != nil {
			return err
		}
		pages += d.Pages
		words += d.Words
	}
	q, err := ingest.New(ingest.Config{
		Keeper: s.keeper, Temp: s.dir, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Embedder: func(context.Context) (ingest.Embedder, error) { return s.embedder, nil },
		Extract: func(ctx context.Context, f *os.File, name string) (*extract.Document, error) {
			if _, err := f.Seek(0, io.SeekStart); err != nil {
				return nil, err
			}
			b, err := io.ReadAll(f)
			if err != nil {
				return nil, err
			}
			return extract.Read(ctx, b, name, extract.Default())
		},
	})
	if err != nil {
		return err
	}
	begin := time.Now()
	chunks, err := s.wait(ctx, q)
	if err != nil {
		return err
	}
	fmt.Printf("%d documents, %d pages of %d words, cut into %d passages and embedded in %.1f s\n", len(s.world.Documents), pages, words/pages, chunks, time.Since(begin).Seconds())
	return nil
}

// wait runs the queue until everything is in.
func (s *set) wait(ctx context.Context, q *ingest.Queue) (chunks int, err error) {
	ctx, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	defer func() { stop(); err = errors.Join(err, <-done) }()
	for {
		counts, err := s.keeper.Counts(ctx, me, s.id, "")
		if err != nil {
			return 0, err
		}
		if counts[documents.InProgress] == 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	list, _, err := s.keeper.Attachments(ctx, me, s.id, "", "", documents.Page{Limit: 100})
	if err != nil {
		return 0, err
	}
	for _, a := range list {
		if a.Status != documents.Completed {
			return 0, fmt.Errorf("a document could not be brought in: %s", a.Problem)
		}
		chunks += a.Chunks
	}
	return chunks, nil
}

// way is one way to search.
type way struct {
	name     string
	mode     search.Mode
	reranker search.Reranker
}

func (s *set) ways() []way {
	list := []way{{"bm25", search.Words, nil}, {"vectors", search.Vectors, nil}, {"hybrid", search.Hybrid, nil}}
	if s.rerank != "" {
		list = append(list, way{"hybrid+rerank", search.Hybrid, &ranker{client: s.remote.client, url: s.rerank}})
	}
	if s.late > 0 {
		late := &ranker{client: s.remote.client, url: s.embed, late: true, tokens: s.tokens}
		list = append(list, way{"hybrid+late", search.Hybrid, search.First{Reranker: late, Most: s.late}})
	}
	return list
}

// score sums up how well questions were answered.
type score struct {
	n            int
	recall, gain float64
}

func (s *score) add(recall, gain float64) {
	s.n++
	s.recall += recall
	s.gain += gain
}

func (s score) String() string {
	if s.n == 0 {
		return "     -      -"
	}
	return fmt.Sprintf("%.4f %.4f", s.recall/float64(s.n), s.gain/float64(s.n))
}

// columns are the questions that are summed up together.
func columns() []string {
	return []string{"all", string(corpus.Dev), string(corpus.Test), string(corpus.Paraphrase), string(corpus.Keyword), string(corpus.Mixed), string(corpus.Local), string(corpus.Across)}
}

func (s *set) ask(ctx context.Context) error {
	scores := map[string]map[string]*score{}
	for _, w := range s.ways() {
		begin := time.Now()
		var err error
		if scores[w.name], err = s.measure(ctx, w); err != nil {
			return err
		}
		fmt.Printf("%s: %.0f ms a question, its embedding included\n", w.name, float64(time.Since(begin).Milliseconds())/float64(len(s.world.Questions)))
	}
	fmt.Printf("\nrecall@%d and nDCG@%d of %d questions\n%-14s", recallAt, gainAt, len(s.world.Questions), "")
	for _, c := range columns() {
		fmt.Printf("  %-13s", fmt.Sprintf("%s (%d)", c, scores["bm25"][c].n))
	}
	fmt.Println()
	for _, w := range s.ways() {
		fmt.Printf("%-14s", w.name)
		for _, c := range columns() {
			fmt.Printf("  %s", *scores[w.name][c])
		}
		fmt.Println()
	}
	return s.judge(scores)
}

// measure asks every question in one way.
func (s *set) measure(ctx context.Context, w way) (map[string]*score, error) {
	out := map[string]*score{}
	for _, c := range columns() {
		out[c] = &score{}
	}
	for _, q := range s.world.Questions {
		recall, gain, err := s.answer(ctx, w, q)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
		for _, c := range []string{"all", string(q.Half), string(q.Kind)} {
			out[c].add(recall, gain)
		}
		if s.list && w.mode == search.Hybrid && recall == 0 {
			fmt.Printf("not found by %s: %s (%s): %s\n", w.name, q.Text, q.Kind, q.Answer)
		}
	}
	return out, nil
}

// judge holds hybrid against the bars.
func (s *set) judge(scores map[string]map[string]*score) error {
	if !s.gate {
		return nil
	}
	var problems []error
	for _, c := range []string{"all", string(corpus.Dev), string(corpus.Test)} {
		h := scores["hybrid"][c]
		for _, half := range []string{"bm25", "vectors"} {
			if o := scores[half][c]; h.recall <= o.recall || h.gain <= o.gain {
				problems = append(problems, fmt.Errorf("hybrid (%s) does not beat %s (%s) on %s questions", h, half, o, c))
			}
		}
		if h.recall < 0.9*float64(h.n) {
			problems = append(problems, fmt.Errorf("hybrid finds too little on %s questions: %s", c, h))
		}
	}
	return errors.Join(problems...)
}

// answer asks one question. A passage is right when it is of the document and
// holds the whole answer; of overlapping ones the first counts.
func (s *set) answer(ctx context.Context, w way, q corpus.Question) (recall, gain float64, err error) {
	searcher, err := search.New(search.Config{
		Keeper:   s.keeper,
		Embedder: func(context.Context) (ingest.Embedder, error) { return s.embedder, nil },
		Reranker: func(context.Context) (search.Reranker, error) { return w.reranker, nil },
	})
	if err != nil {
		return 0, 0, err
	}
	a, err := searcher.Search(ctx, me, search.Query{Collections: []string{s.id}, Text: q.Text, K: max(recallAt, gainAt), Mode: w.mode, Rerank: w.reranker != nil})
	if err != nil {
		return 0, 0, err
	}
	at := slices.IndexFunc(a.Results, func(r search.Result) bool {
		return r.Name == q.Document && strings.Contains(flat(r.Text), flat(q.Answer))
	})
	if at < 0 {
		return 0, 0, nil
	}
	if at < recallAt {
		recall = 1
	}
	return recall, 1 / math.Log2(float64(at)+2), nil
}

// flat leaves out white space and what marks code, which readers of formats take
// away.
func flat(text string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(text, "`", "")), " ")
}
