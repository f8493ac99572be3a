// Package ingest brings files into collections: it reads them, cuts them, has
// them embedded and makes them findable, in the background.
//
// The keeper is the queue. An attachment in progress is work to do, and how far
// it has come is what the keeper holds of it: nothing, passages, passages with
// vectors. So a process that dies loses at most the piece it was at, and whoever
// runs next goes on from there. A document that cannot be read fails alone, with
// words for whoever sent it. While nobody can embed, everything waits.
//
// Files of one collection are taken in turn, collections beside each other.
package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"

	"onebit/store/documents"
	"onebit/store/documents/chunk"
	"onebit/store/documents/extract"
)

// ErrUnavailable says that nobody can embed at the moment.
var ErrUnavailable = errors.New("no embedding model is available now")

// Embedder makes vectors of texts.
type Embedder interface {
	// Model names the model. Vectors of different names are never compared.
	Model() string
	// MaxTokens is how long one text may be.
	MaxTokens() int
	// Count returns the tokens of a text, with those that the model adds.
	Count(ctx context.Context, text string) (int, error)
	// Embed returns one vector for each text. ErrUnavailable says to try later.
	Embed(ctx context.Context, texts []string) ([][]float32, error)
}

// Config is what a Queue works with.
type Config struct {
	Keeper documents.Keeper
	// Embedder returns the one to use from now on, or ErrUnavailable.
	Embedder func(ctx context.Context) (Embedder, error)
	// Extract reads a file; errors that are *extract.Error are the file's fault.
	Extract func(ctx context.Context, f *os.File, name string) (*extract.Document, error)
	Temp    string // a folder for files while they are read
	Log     *slog.Logger
	Workers int // collections at once; 0 for 1
	Batch   int // texts embedded at once; 0 for 32

	// Retry is the time after which work is tried again that failed for no fault
	// of a file's; it doubles up to 32 times as much. 0 for 2 s.
	Retry time.Duration
	// Tries is how often that is done before the file fails; 0 for 6. Waiting for
	// an embedder does not count.
	Tries int
}

// Queue works off what is in progress.
type Queue struct {
	Config
	wake chan struct{}

	mu    sync.Mutex
	busy  map[string]bool   // collections
	state map[string]*state // of attachments that failed for no fault of theirs
}

type state struct {
	tries int
	after time.Time
	wait  time.Duration
}

// New returns a queue that does nothing before Run.
func New(c Config) (*Queue, error) {
	if c.Keeper == nil || c.Embedder == nil || c.Extract == nil || c.Log == nil {
		return nil, errors.New("a queue needs a keeper, an embedder, a reader of files and a log")
	}
	if c.Workers <= 0 {
		c.Workers = 1
	}
	if c.Batch <= 0 {
		c.Batch = 32
	}
	if c.Retry <= 0 {
		c.Retry = 2 * time.Second
	}
	if c.Tries <= 0 {
		c.Tries = 6
	}
	return &Queue{Config: c, wake: make(chan struct{}, 1), busy: map[string]bool{}, state: map[string]*state{}}, nil
}

// Wake tells the queue that there is work. It never blocks.
func (q *Queue) Wake() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Run works until ctx ends. What is at work then is left in progress.
func (q *Queue) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for range q.Workers {
		wg.Go(func() { q.work(ctx) })
	}
	<-ctx.Done()
	return nil
}

// work is one worker: it takes work while there is some, and sleeps until it is
// woken or something may be tried again.
func (q *Queue) work(ctx context.Context) {
	for ctx.Err() == nil {
		did, err := q.step(ctx)
		if err != nil && ctx.Err() == nil {
			q.Log.Warn("bringing documents in", "err", err)
		}
		if did && err == nil {
			q.Wake() // for another worker
			continue
		}
		select {
		case <-ctx.Done():
		case <-q.wake:
		case <-time.After(q.Retry):
		}
	}
}

// step does one piece of work, if there is any.
func (q *Queue) step(ctx context.Context) (did bool, err error) {
	a, ok, err := q.take(ctx)
	if err != nil || !ok {
		if err == nil {
			did, err = q.change(ctx)
		}
		return did, err
	}
	defer q.release(a.Collection)
	if !q.stands(ctx, a) { // another worker ended it after the list was read
		return true, nil
	}
	err = q.bring(ctx, a)
	var refused *extract.Error
	switch {
	case err == nil:
		q.forgive(a)
	case ctx.Err() != nil, errors.Is(err, documents.ErrClosed):
		return false, nil
	case errors.Is(err, documents.ErrNotFound), errors.Is(err, documents.ErrConflict) && !q.stands(ctx, a):
		q.forgive(a) // deleted or cancelled meanwhile
	case errors.Is(err, documents.ErrFull), errors.Is(err, syscall.ENOSPC):
		return false, err // no fault of the file's: it waits for room
	case errors.As(err, &refused):
		q.forgive(a)
		return true, q.Keeper.Fail(ctx, a.Collection, a.File, refused.Error())
	case errors.Is(err, ErrUnavailable):
		return false, nil
	default:
		if q.again(a) {
			return true, err
		}
		q.forgive(a)
		q.Log.Error("a document cannot be brought in", "file", a.File, "err", err)
		return true, q.Keeper.Fail(ctx, a.Collection, a.File, "an internal error, which the box's log explains; try again later")
	}
	return true, nil
}

// stands tells whether an attachment is still the one that was taken, and to be
// brought in.
func (q *Queue) stands(ctx context.Context, a documents.Attachment) bool {
	now, err := q.Keeper.Attachment(ctx, documents.System(), a.Collection, a.File)
	return err == nil && now.Status == documents.InProgress && now.Created.Equal(a.Created)
}

// take picks the oldest attachment whose collection nobody is at work on.
func (q *Queue) take(ctx context.Context) (documents.Attachment, bool, error) {
	list, err := q.Keeper.Unfinished(ctx, 1000)
	if err != nil {
		return documents.Attachment{}, false, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for _, a := range list {
		if s := q.state[key(a)]; q.busy[a.Collection] || s != nil && now.Before(s.after) {
			continue
		}
		q.busy[a.Collection] = true
		return a, true, nil
	}
	return documents.Attachment{}, false, nil
}

func (q *Queue) release(collection string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.busy, collection)
}

func key(a documents.Attachment) string { return a.Collection + " " + a.File }

func (q *Queue) forgive(a documents.Attachment) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.state, key(a))
}

// again notes a failure and tells whether to try once more, later.
func (q *Queue) again(a documents.Attachment) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.state[key(a)]
	if s == nil {
		s = &state{wait: q.Retry}
		q.state[key(a)] = s
	}
	s.tries++
	s.after = time.Now().Add(s.wait)
	s.wait = min(2*s.wait, 32*q.Retry)
	return s.tries < q.Tries
}

// bring does everything that is still to do for an attachment.
func (q *Queue) bring(ctx context.Context, a documents.Attachment) error {
	e, err := q.Embedder(ctx)
	if err != nil {
		return err
	}
	c, err := q.Keeper.Collection(ctx, documents.System(), a.Collection)
	if err != nil {
		return err
	}
	if c.Model != "" && c.Model != e.Model() && c.Next != e.Model() {
		if err := q.Keeper.Change(ctx, c.ID, e.Model()); err != nil {
			return err
		}
	}
	if a.Chunks == 0 {
		if err := q.cut(ctx, a, c, e); err != nil {
			return err
		}
	}
	dims, err := q.embed(ctx, a.Collection, a.File, e)
	if err != nil {
		return err
	}
	if dims == 0 { // all were there already
		if dims, err = q.dims(ctx, e); err != nil {
			return err
		}
	}
	return q.Keeper.Complete(ctx, a.Collection, a.File, e.Model(), dims)
}

// dims asks for the size of a model's vectors.
func (q *Queue) dims(ctx context.Context, e Embedder) (int, error) {
	v, err := e.Embed(ctx, []string{"a"})
	if err != nil {
		return 0, err
	}
	if len(v) != 1 || len(v[0]) == 0 {
		return 0, fmt.Errorf("the embedding model %q returned no vector", e.Model())
	}
	return len(v[0]), nil
}

// cut reads the file and stores its chunks.
func (q *Queue) cut(ctx context.Context, a documents.Attachment, c documents.Collection, e Embedder) error {
	f, err := q.Keeper.File(ctx, documents.System(), a.File)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(q.Temp, "document-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	if err := q.Keeper.Content(ctx, documents.System(), a.File, tmp); err != nil {
		return err
	}
	d, err := q.Extract(ctx, tmp, f.Name)
	if err != nil {
		return err
	}
	o := options(a.Chunking, c.Chunking, e.MaxTokens())
	o.Name = stem(f.Name)
	chunks, err := split(ctx, d, o, e)
	if err != nil {
		return err
	}
	if len(chunks) == 0 {
		return &extract.Error{Reason: "it holds no text"}
	}
	// taken out and put in again while it was read, it may be wanted in other pieces: the next round sees how
	switch now, err := q.Keeper.Attachment(ctx, documents.System(), a.Collection, a.File); {
	case err != nil:
		return err
	case !now.Created.Equal(a.Created) || now.Chunking != a.Chunking:
		return documents.ErrConflict
	}
	return q.Keeper.Cut(ctx, a.Collection, a.File, d.Pages, chunks)
}

// Size of a chunk where nobody says otherwise: long enough to hold a thought,
// short enough that its vector is about one.
const (
	usualMax     = 256
	usualOverlap = 32
)

func options(asked, collection documents.Chunking, most int) chunk.Options {
	c := asked
	if c.Max == 0 {
		c = collection
	}
	if c.Max == 0 {
		c = documents.Chunking{Max: usualMax, Overlap: usualOverlap}
	}
	return chunk.Options{Max: min(c.Max, most), Overlap: c.Overlap}
}

// stem is a file's name as a person says it, without folders and ending.
func stem(name string) string {
	name = name[strings.LastIndexAny(name, `/\`)+1:]
	name = strings.TrimSuffix(name, filepath.Ext(name))
	return strings.Join(strings.FieldsFunc(name, func(r rune) bool { return r == '_' || unicode.IsSpace(r) }), " ")
}

// split cuts with the model's own counting, whose first error ends it.
func split(ctx context.Context, d *extract.Document, o chunk.Options, e Embedder) ([]chunk.Chunk, error) {
	var failed error
	o.Count = func(text string) int {
		if failed != nil {
			return 1
		}
		n, err := e.Count(ctx, text)
		if err != nil {
			failed = err
			return 1
		}
		return n
	}
	chunks := chunk.Split(d, o)
	return chunks, failed
}

// embed gives vectors to the passages of a file that have none of the model,
// and returns their size, 0 when none was missing.
func (q *Queue) embed(ctx context.Context, collection, file string, e Embedder) (dims int, err error) {
	for {
		list, err := q.Keeper.Bare(ctx, collection, file, e.Model(), q.Batch)
		if err != nil || len(list) == 0 {
			return dims, err
		}
		texts := make([]string, len(list))
		for i, t := range list {
			texts[i] = t.Text
		}
		vectors, err := Long(ctx, e, texts)
		if err != nil {
			return dims, err
		}
		out := make([]documents.Vector, len(list))
		for i, v := range vectors {
			if dims == 0 {
				dims = len(v)
			}
			if len(v) != dims || dims == 0 {
				return dims, fmt.Errorf("the embedding model %q returned %d numbers after %d", e.Model(), len(v), dims)
			}
			out[i] = documents.Vector{ID: list[i].ID, Vector: v}
		}
		if err := q.Keeper.Embed(ctx, e.Model(), out); err != nil {
			return dims, err
		}
	}
}

// change moves collections to the model in use, one file at a time. Until all
// of a collection's vectors are there, the old ones are searched.
func (q *Queue) change(ctx context.Context) (did bool, err error) {
	list, err := q.Keeper.Changing(ctx)
	if err != nil || len(list) == 0 {
		return false, err
	}
	e, err := q.Embedder(ctx)
	if err != nil {
		if errors.Is(err, ErrUnavailable) {
			err = nil
		}
		return false, err
	}
	for _, c := range list {
		if c.Next != e.Model() || !q.reserve(c.ID) {
			continue
		}
		err := q.move(ctx, c, e)
		q.release(c.ID)
		if errors.Is(err, documents.ErrNotFound) || errors.Is(err, documents.ErrConflict) {
			continue // something changed meanwhile: the next round sees it
		}
		return err == nil, err
	}
	return false, nil
}

func (q *Queue) reserve(collection string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.busy[collection] {
		return false
	}
	q.busy[collection] = true
	return true
}

func (q *Queue) move(ctx context.Context, c documents.Collection, e Embedder) error {
	p := documents.Page{Ascending: true}
	for {
		list, more, err := q.Keeper.Attachments(ctx, documents.System(), c.ID, documents.Completed, "", p)
		if err != nil {
			return err
		}
		for _, a := range list {
			if _, err := q.embed(ctx, c.ID, a.File, e); err != nil {
				return err
			}
			p.After = a.File
		}
		if !more {
			break
		}
	}
	dims, err := q.dims(ctx, e)
	if err != nil {
		return err
	}
	return q.Keeper.Changed(ctx, c.ID, e.Model(), dims)
}

// Adopt begins to move all collections that have vectors of another model to the
// one in use. It is called when that has changed.
func (q *Queue) Adopt(ctx context.Context) error {
	e, err := q.Embedder(ctx)
	if err != nil {
		return err
	}
	var p documents.Page
	for {
		list, more, err := q.Keeper.Collections(ctx, documents.System(), p)
		if err != nil {
			return err
		}
		for _, c := range list {
			p.After = c.ID
			if c.Model == "" || c.Model == e.Model() && c.Next == "" || c.Next == e.Model() {
				continue
			}
			if err := q.Keeper.Change(ctx, c.ID, e.Model()); err != nil && !errors.Is(err, documents.ErrNotFound) {
				return err
			}
		}
		if !more {
			q.Wake()
			return nil
		}
	}
}
