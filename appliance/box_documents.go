package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"onebit/appliance/auth"
	"onebit/appliance/catalog"
	"onebit/appliance/config"
	"onebit/appliance/doctor"
	"onebit/appliance/pool"
	"onebit/appliance/queue"
	"onebit/appliance/shelf"
	"onebit/engine"
	"onebit/engine/gguf"
	"onebit/engine/tokenizer"
	"onebit/store"
	"onebit/store/documents"
	"onebit/store/documents/extract"
	"onebit/store/documents/ingest"
	"onebit/store/documents/search"
)

// shelves is the document store of a box.
type shelves struct {
	b        *box
	keeper   documents.Keeper
	queue    *ingest.Queue
	searcher *search.Searcher
	api      *shelf.Shelf
	reader   extract.Runner
	cache    string // folder of the compiled reader of PDF
	warm     sync.Once

	mu    sync.Mutex
	words *vocabulary // of the embedding model in use
}

// openShelves opens the document store. It works on nothing before run.
func (b *box) openShelves(ctx context.Context, c config.Documents) (_ *shelves, err error) {
	s := &shelves{b: b, cache: filepath.Join(b.options.state, "reader")}
	temp := filepath.Join(b.options.state, "documents.tmp")
	if err := errors.Join(os.RemoveAll(temp), os.MkdirAll(temp, 0o700), os.MkdirAll(s.cache, 0o700)); err != nil {
		return nil, fmt.Errorf("making room for documents: %w", err)
	}
	s.reader = extract.Runner{Program: []string{b.starts.Executable, readerCommand, s.cache}}
	keeper, err := b.openDocuments(ctx, c)
	if err != nil {
		return nil, err
	}
	s.keeper = keeper
	defer func() {
		if err != nil {
			err = errors.Join(err, keeper.Close())
		}
	}()
	if s.queue, err = ingest.New(ingest.Config{Keeper: keeper, Embedder: s.passages, Extract: s.extract, Temp: temp, Log: b.log}); err != nil {
		return nil, err
	}
	if s.searcher, err = search.New(search.Config{Keeper: keeper, Embedder: s.questions, Reranker: s.reranker}); err != nil {
		return nil, err
	}
	s.api, err = shelf.New(shelf.Config{Keeper: keeper, Searcher: s.searcher, Wake: s.queue.Wake, Enter: s.enter, Temp: temp, Log: b.log,
		Space: func() (uint64, error) { return doctor.Space(b.options.state) }})
	return s, err
}

// run brings documents in, and lets go of those whose time is over, until ctx ends.
func (s *shelves) run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() {
		for {
			if _, err := s.keeper.Expire(ctx, time.Now()); err != nil && ctx.Err() == nil {
				s.b.log.Warn("removing documents whose time is over", "error", err)
			}
			if err := s.queue.Adopt(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, ingest.ErrUnavailable) {
				s.b.log.Warn("moving documents to the embedding model", "error", err)
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Minute):
			}
		}
	})
	group.Go(func() { s.watchFolders(ctx) })
	return s.queue.Run(ctx)
}

// enter lets a request in: its key's scope and quotas hold here as everywhere.
func (s *shelves) enter(r *http.Request, endpoint string) (context.Context, shelf.Visit, error) {
	p, err := s.b.auth.Identify(r.Context(), r)
	if err != nil {
		return nil, shelf.Visit{}, err
	}
	g, err := s.b.auth.Begin(auth.With(r.Context(), p), p, auth.Use{Endpoint: endpoint})
	if err != nil {
		return nil, shelf.Visit{}, err
	}
	reader, err := s.behalf(r, p)
	if err != nil {
		g.End(auth.Usage{Failed: true})
		return nil, shelf.Visit{}, err
	}
	v := shelf.Visit{Reader: reader, End: func(status int) { g.End(auth.Usage{Failed: status >= http.StatusBadRequest}) }}
	if p.Key != nil {
		v.Collections = p.Key.Collections
	}
	return g.Context(), v, nil
}

// onBehalf is the header by which the console says for whom it acts: what it makes is that person's.
const onBehalf = "X-1bit-For"

// behalf is who a request is for.
func (s *shelves) behalf(r *http.Request, p *auth.Principal) (documents.Reader, error) {
	id := r.Header.Get(onBehalf)
	if p.Kind != auth.Socket || id == "" {
		return readerOf(p), nil
	}
	person, err := s.b.store.Person(r.Context(), store.System(), id)
	if err != nil {
		return documents.Reader{}, err
	}
	return documents.Reader{Person: person.ID}, nil
}

// readerOf is who somebody is to the document store. Documents are their owner's: that somebody runs the box opens
// nobody's, but for the console, which can read the disk anyway.
func readerOf(p *auth.Principal) documents.Reader {
	return documents.Reader{Person: p.Person, All: p.Kind == auth.Socket}
}

// extract reads a file in a process of its own.
func (s *shelves) extract(ctx context.Context, f *os.File, name string) (*extract.Document, error) {
	s.warm.Do(func() {
		c := exec.CommandContext(ctx, s.reader.Program[0], s.reader.Program[1:]...)
		c.Env = []string{}
		if said, err := c.CombinedOutput(); err != nil && ctx.Err() == nil {
			s.b.log.Warn("compiling the reader of PDF; each file takes longer", "error", err, "said", string(bytes.TrimSpace(said)))
		}
	})
	return s.reader.Extract(ctx, f, name)
}

// vocabulary is an embedding model's way to cut text, read from its file in this process: a document asks for thousands
// of counts.
type vocabulary struct {
	path, id string
	tokens   *tokenizer.Tokenizer
	most     int
}

const usualContext = 512

// openVocabulary reads a model's vocabulary. Its id tells files apart that have the same name.
func openVocabulary(name, path string) (_ *vocabulary, err error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	v := &vocabulary{path: path, most: usualContext}
	if n, ok := f.Uint(f.Architecture() + ".context_length"); ok && n > 0 {
		v.most = int(min(n, 8192))
	}
	if v.tokens, err = tokenizer.New(f); err != nil {
		return nil, err
	}
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	sum := sha256.New()
	if info, err := in.Stat(); err == nil {
		fmt.Fprintln(sum, info.Size())
	}
	if _, err := io.Copy(sum, io.LimitReader(in, 4<<20)); err != nil {
		return nil, err
	}
	v.id = name + "@" + hex.EncodeToString(sum.Sum(nil))[:12]
	return v, nil
}

// embedder embeds by a model of the box, which is loaded when it is needed.
type embedder struct {
	*vocabulary
	backend engine.Backend
	prefix  string
}

// passages embeds what is found, questions what is searched for.
func (s *shelves) passages(ctx context.Context) (ingest.Embedder, error) { return s.embedder(false) }

func (s *shelves) questions(ctx context.Context) (ingest.Embedder, error) { return s.embedder(true) }

func (s *shelves) embedder(question bool) (ingest.Embedder, error) {
	m, ok := s.model("embedding")
	if !ok {
		return nil, ingest.ErrUnavailable
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.words == nil || s.words.path != m.path {
		v, err := openVocabulary(m.Name, m.path)
		if err != nil {
			return nil, fmt.Errorf("the embedding model %q: %w", m.Name, err)
		}
		s.words = v
	}
	e := &embedder{vocabulary: s.words, prefix: catalog.PrefixesOf(m.Name).Passage}
	e.backend = s.b.pool.BackendFor(pool.Ask{Model: m.Name, Priority: queue.Background}) // nobody waits for what is brought in
	if question {
		e.backend, e.prefix = s.b.pool.Backend(m.Name), catalog.PrefixesOf(m.Name).Query
	}
	return e, nil
}

// model is the first model of a role whose file is there.
func (s *shelves) model(role string) (boxModel, bool) {
	now := s.b.now.Load()
	if now == nil {
		return boxModel{}, false
	}
	for _, m := range now.models {
		if m.Role == role && m.path != "" && m.problem == "" {
			return m, true
		}
	}
	return boxModel{}, false
}

func (e *embedder) Model() string  { return e.id }
func (e *embedder) MaxTokens() int { return e.most }

func (e *embedder) Count(_ context.Context, text string) (int, error) {
	return len(e.tokens.Encode(e.prefix+text, tokenizer.Options{AddSpecial: true})), nil
}

func (e *embedder) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	in := make([]string, len(texts))
	for i, t := range texts {
		in[i] = e.prefix + t
	}
	raw, err := json.Marshal(map[string]any{"input": in, "encoding_format": "float"})
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data []struct {
			Index     int       `json:"index"`
			Embedding []float32 `json:"embedding"`
		} `json:"data"`
	}
	if err := ask(ctx, e.backend, engine.Embedding, raw, &answer); err != nil {
		return nil, err
	}
	out := make([][]float32, len(texts))
	for _, d := range answer.Data {
		if d.Index >= 0 && d.Index < len(out) {
			out[d.Index] = d.Embedding
		}
	}
	for i, v := range out {
		if len(v) == 0 {
			return nil, fmt.Errorf("the embedding model returned no vector for text %d of %d", i+1, len(out))
		}
	}
	return out, nil
}

// ask has a backend answer one request that is not streamed. That it cannot now is ErrUnavailable, that the request is
// wrong is not.
func ask(ctx context.Context, b engine.Backend, kind engine.Kind, raw []byte, answer any) error {
	_, err := b.Generate(ctx, &engine.Request{Kind: kind, Raw: raw}, func(c engine.Chunk) error { return json.Unmarshal(c.Raw, answer) })
	var invalid *engine.InvalidError
	var status *engine.StatusError
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case errors.As(err, &invalid), errors.As(err, &status) && status.Status < http.StatusInternalServerError:
		return err
	}
	return fmt.Errorf("%w: %w", ingest.ErrUnavailable, err)
}

// ranker orders passages by a reranking model of the box or, late, by the embedding model's vectors of all tokens.
type ranker struct {
	backend engine.Backend
	late    bool
	before  catalog.Prefixes // what the embedding model wants before texts
}

// What late interaction reads, which is what it costs: so many passages, and so many tokens of each.
const (
	latePassages = 16
	lateTokens   = 192
)

// reranker is the box's reranking model, nil without. That it cannot be asked leaves the order as it is.
func (s *shelves) reranker(context.Context) (search.Reranker, error) {
	if m, ok := s.model("reranking"); ok {
		return ranker{backend: s.b.pool.Backend(m.Name)}, nil
	}
	now := s.b.now.Load()
	if m, ok := s.model("embedding"); ok && now.cfg.Documents.Late {
		late := ranker{backend: s.b.pool.Backend(m.Name), late: true, before: catalog.PrefixesOf(m.Name)}
		return search.First{Reranker: late, Most: latePassages}, nil
	}
	return nil, nil
}

func (r ranker) Rerank(ctx context.Context, query string, texts []string) ([]float64, error) {
	body := map[string]any{"query": query, "documents": texts}
	if r.late {
		read := make([]string, len(texts))
		for i, t := range texts {
			read[i] = r.before.Passage + t
		}
		body = map[string]any{"query": r.before.Query + query, "documents": read, "late": true, "late_tokens": lateTokens}
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Results []struct {
			Index int     `json:"index"`
			Score float64 `json:"relevance_score"`
		} `json:"results"`
	}
	if err := ask(ctx, r.backend, engine.Rerank, raw, &answer); err != nil {
		return nil, err
	}
	out := make([]float64, len(texts))
	for _, a := range answer.Results {
		if a.Index >= 0 && a.Index < len(out) {
			out[a.Index] = a.Score
		}
	}
	if !r.late {
		squeeze(out)
	}
	return out, nil
}

// squeeze brings scores between 0 and 1, which thresholds are made for. Models that rank give any numbers; servers that
// have done it themselves are left alone.
func squeeze(scores []float64) {
	if !slices.ContainsFunc(scores, func(x float64) bool { return x < 0 || x > 1 }) {
		return
	}
	for i, x := range scores {
		scores[i] = 1 / (1 + math.Exp(-x))
	}
}
