package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"onebit/store/documents"
	"onebit/store/documents/extract"
	"onebit/store/documents/ingest"
	"onebit/store/documents/local"
)

var ann = documents.Reader{Person: "ann"}

// fake embeds a text as a sum of directions of its words.
type fake struct {
	model string
	dims  int
	most  int

	mu     sync.Mutex
	fails  []error // of the next calls of Embed
	calls  int
	embeds func() // called by Embed
}

func (f *fake) Model() string  { return f.model }
func (f *fake) MaxTokens() int { return f.most }
func (f *fake) Count(_ context.Context, t string) (int, error) {
	return len(strings.Fields(t)) + 2, nil
}

func (f *fake) Embed(_ context.Context, texts []string) ([][]float32, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if f.embeds != nil {
		f.embeds()
	}
	if len(f.fails) > 0 {
		err := f.fails[0]
		f.fails = f.fails[1:]
		if err != nil {
			return nil, err
		}
	}
	var out [][]float32
	for _, t := range texts {
		if n, _ := f.Count(context.Background(), t); n > f.most {
			return nil, fmt.Errorf("a text of %d tokens, %d are taken", n, f.most)
		}
		v := make([]float32, f.dims)
		for _, w := range strings.Fields(strings.ToLower(t)) {
			h := fnv.New32a()
			io.WriteString(h, w)
			v[h.Sum32()%uint32(f.dims)]++
		}
		v[0] += 0.1
		out = append(out, v)
	}
	return out, nil
}

// watched tells what the queue finished.
type watched struct {
	documents.Keeper
	ends chan string
}

func (w watched) Complete(ctx context.Context, c, f, m string, d int) error {
	err := w.Keeper.Complete(ctx, c, f, m, d)
	if err == nil {
		w.ends <- "complete " + f
	}
	return err
}

func (w watched) Fail(ctx context.Context, c, f, p string) error {
	err := w.Keeper.Fail(ctx, c, f, p)
	w.ends <- "failed " + f
	return err
}

func (w watched) Changed(ctx context.Context, c, m string, d int) error {
	err := w.Keeper.Changed(ctx, c, m, d)
	if err == nil {
		w.ends <- "changed " + c
	}
	return err
}

type world struct {
	*testing.T
	k       watched
	e       *fake
	read    func(name string) error // what reading a file of a name gives
	queue   *ingest.Queue
	stop    context.CancelFunc
	stopped chan struct{}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	k, err := local.Open(t.Context(), local.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, k: watched{k, make(chan string, 100)}, e: &fake{model: "m", dims: 64, most: 64}}
	t.Cleanup(func() {
		if w.stop != nil {
			w.end()
		}
		k.Close()
	})
	return w
}

// start runs a new queue.
func (w *world) start() {
	w.Helper()
	q, err := ingest.New(ingest.Config{Keeper: w.k, Temp: w.TempDir(), Log: slog.New(slog.DiscardHandler), Batch: 2, Workers: 2, Retry: time.Millisecond, Tries: 3,
		Embedder: func(context.Context) (ingest.Embedder, error) {
			if w.e == nil {
				return nil, ingest.ErrUnavailable
			}
			return w.e, nil
		},
		Extract: func(ctx context.Context, f *os.File, name string) (*extract.Document, error) {
			if w.read != nil {
				if err := w.read(name); err != nil {
					return nil, err
				}
			}
			if _, err := f.Seek(0, 0); err != nil {
				return nil, err
			}
			b, err := io.ReadAll(f)
			if err != nil {
				return nil, err
			}
			return extract.Read(ctx, b, name, extract.Default())
		}})
	if err != nil {
		w.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	w.queue, w.stop, w.stopped = q, stop, make(chan struct{})
	go func() {
		defer close(w.stopped)
		if err := q.Run(ctx); err != nil {
			w.Error(err)
		}
	}()
}

func (w *world) end() {
	w.stop()
	<-w.stopped
	w.stop = nil
}

func (w *world) collection() documents.Collection {
	w.Helper()
	c, err := w.k.AddCollection(w.Context(), ann, documents.Collection{Name: "c"})
	if err != nil {
		w.Fatal(err)
	}
	return c
}

func (w *world) add(c documents.Collection, name, content string) documents.Attachment {
	w.Helper()
	f, err := w.k.AddFile(w.Context(), ann, documents.File{Name: name}, strings.NewReader(content))
	if err != nil {
		w.Fatal(err)
	}
	a, err := w.k.Attach(w.Context(), ann, documents.Attachment{Collection: c.ID, File: f.ID})
	if err != nil {
		w.Fatal(err)
	}
	if w.queue != nil {
		w.queue.Wake()
	}
	return a
}

// wait returns what the queue finishes next.
func (w *world) wait() string {
	w.Helper()
	select {
	case s := <-w.k.ends:
		return s
	case <-time.After(time.Minute):
		w.Fatal("nothing is finished")
		return ""
	}
}

func (w *world) state(a documents.Attachment) documents.Attachment {
	w.Helper()
	a, err := w.k.Attachment(w.Context(), ann, a.Collection, a.File)
	if err != nil {
		w.Fatal(err)
	}
	return a
}

func (w *world) near(c documents.Collection, text string) int {
	w.Helper()
	v, err := w.e.Embed(w.Context(), []string{text})
	if err != nil {
		w.Fatal(err)
	}
	hits, err := w.k.Near(w.Context(), ann, c.ID, w.e.model, v[0], nil, 100)
	if err != nil {
		w.Fatal(err)
	}
	return len(hits)
}

const long = "# A\n\nOne two three four five six seven eight nine ten.\n\n## B\n\nRoses are red.\n\n## C\n\nViolets are blue.\n\n## D\n\nSugar is sweet.\n"

func TestFilesBecomeFindable(t *testing.T) {
	w := newWorld(t)
	w.start()
	c := w.collection()
	a := w.add(c, "a.md", long)
	if got := w.wait(); got != "complete "+a.File {
		t.Fatal(got)
	}
	if a = w.state(a); a.Chunks != 4 || a.Embedded != 4 || a.Status != documents.Completed {
		t.Errorf("%+v", a)
	}
	if n := w.near(c, "roses"); n != 4 {
		t.Errorf("%d passages are found", n)
	}
}

func TestBadFilesFailAlone(t *testing.T) {
	w := newWorld(t)
	w.read = func(name string) error {
		if name == "panic.txt" {
			return errors.New("the process that reads documents failed")
		}
		return nil
	}
	c := w.collection()
	bad, empty, broken, good := w.add(c, "a.pdf", "\x00\x01\x02"), w.add(c, "b.txt", ""), w.add(c, "panic.txt", "x"), w.add(c, "d.txt", "good text")
	w.start()
	got := map[string]bool{}
	for range 4 {
		got[w.wait()] = true
	}
	for _, want := range []string{"failed " + bad.File, "failed " + empty.File, "failed " + broken.File, "complete " + good.File} {
		if !got[want] {
			t.Errorf("missing: %s", want)
		}
	}
	if p := w.state(bad).Problem; !strings.Contains(p, "not read here") {
		t.Errorf("the person is told %q", p)
	}
	if p := w.state(broken).Problem; strings.Contains(p, "process") || p == "" {
		t.Errorf("the person is told %q", p)
	}
}

func TestWaitsForAnEmbedder(t *testing.T) {
	w := newWorld(t)
	w.e.fails = []error{ingest.ErrUnavailable, ingest.ErrUnavailable, ingest.ErrUnavailable, ingest.ErrUnavailable, ingest.ErrUnavailable, errors.New("connection refused")}
	w.start()
	a := w.add(w.collection(), "a.md", long)
	if got := w.wait(); got != "complete "+a.File {
		t.Errorf("%s, %q", got, w.state(a).Problem)
	}
}

// TestFullDiskDelays has no room for longer than other failures are tried again.
func TestFullDiskDelays(t *testing.T) {
	w := newWorld(t)
	for range 10 {
		w.e.fails = append(w.e.fails, documents.ErrFull, &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC})
	}
	w.start()
	a := w.add(w.collection(), "a.md", long)
	if got := w.wait(); got != "complete "+a.File {
		t.Errorf("%s, %q", got, w.state(a).Problem)
	}
}

// TestGoesOnWhereItStopped ends the queue at each call of the embedder in turn.
func TestGoesOnWhereItStopped(t *testing.T) {
	w := newWorld(t)
	c := w.collection()
	a := w.add(c, "a.md", long)
	rounds := 0
	w.e.embeds = func() {
		rounds++
		if rounds == 2 || rounds == 4 {
			w.stop() // as a kill would, between two batches
			w.e.fails = []error{context.Canceled}
		}
	}
	w.start()
	<-w.stopped
	if s := w.state(a); s.Status != documents.InProgress || s.Chunks != 4 || s.Embedded != 2 {
		t.Fatalf("after the first stop: %+v", s)
	}
	w.start()
	for w.state(a).Status == documents.InProgress {
		select {
		case <-w.stopped:
			w.start()
		case <-w.k.ends:
		case <-time.After(time.Minute):
			t.Fatal("it does not go on")
		}
	}
	if s := w.state(a); s.Embedded != 4 || s.Chunks != 4 {
		t.Errorf("%+v", s)
	}
	w.e.embeds = nil
	if n := w.near(c, "roses"); n != 4 {
		t.Errorf("%d passages are found, want 4, each once", n)
	}
}

func TestDeletedWhileAtWork(t *testing.T) {
	w := newWorld(t)
	c := w.collection()
	a, b := w.add(c, "a.md", long), w.add(c, "b.txt", "more")
	once := sync.OnceFunc(func() {
		if err := w.k.DeleteFile(context.Background(), ann, a.File); err != nil {
			t.Error(err)
		}
	})
	w.e.embeds = once
	w.start()
	if got := w.wait(); got != "complete "+b.File {
		t.Errorf("%s", got)
	}
	w.e.embeds = nil
	if n := w.near(c, "x"); n != 1 {
		t.Errorf("%d passages are found, want 1", n)
	}
}

func TestChangeOfModel(t *testing.T) {
	w := newWorld(t)
	w.start()
	c := w.collection()
	w.add(c, "a.md", long)
	w.wait()
	w.end()
	w.e = &fake{model: "new", dims: 32, most: 6} // smaller than the passages were cut for
	w.start()
	if err := w.queue.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := w.wait(); got != "changed "+c.ID {
		t.Fatal(got)
	}
	got, err := w.k.Collection(t.Context(), ann, c.ID)
	if err != nil || got.Model != "new" || got.Dims != 32 || got.Next != "" {
		t.Errorf("%+v, %v", got, err)
	}
	if n := w.near(c, "roses"); n != 4 {
		t.Errorf("%d passages are found", n)
	}
	b := w.add(c, "b.txt", "more")
	if got := w.wait(); got != "complete "+b.File {
		t.Error(got)
	}
}

// TestModelChangesAtTheFirstFile stops in the middle of a collection's first file and goes on with another model, of
// the same size and of another.
func TestModelChangesAtTheFirstFile(t *testing.T) {
	for _, dims := range []int{64, 32} {
		w := newWorld(t)
		c := w.collection()
		a := w.add(c, "a.md", long)
		w.e.fails = []error{nil, ingest.ErrUnavailable}
		w.e.embeds = func() { w.e.fails = append(w.e.fails, ingest.ErrUnavailable) }
		w.start()
		for s := w.state(a); s.Embedded != 2; s = w.state(a) {
			time.Sleep(time.Millisecond)
		}
		w.end()
		if s := w.state(a); s.Embedded != 2 || s.Status != documents.InProgress {
			t.Fatalf("it stopped at %+v", s)
		}
		w.e = &fake{model: "new", dims: dims, most: 64}
		w.start()
		if got := w.wait(); got != "complete "+a.File {
			t.Fatal(got)
		}
		if got := w.wait(); got != "changed "+c.ID {
			t.Fatal(got)
		}
		v, err := w.k.Vectors(t.Context(), c.ID, a.File)
		if err != nil || len(v) != 4 {
			t.Fatalf("%d vectors, %v", len(v), err)
		}
		w.e.mu.Lock()
		calls := w.e.calls
		w.e.mu.Unlock()
		if calls < 2 {
			t.Errorf("the new model was asked %d times: the old one's vectors are among its", calls)
		}
	}
}

// TestPutInAgainWhileAtWork takes a file out and puts it in again, to be cut otherwise, while it is read and while it is
// embedded.
func TestPutInAgainWhileAtWork(t *testing.T) {
	for _, at := range []string{"read", "embed"} {
		w := newWorld(t)
		c := w.collection()
		a := w.add(c, "a.md", strings.Repeat(long, 3))
		again := sync.OnceFunc(func() {
			if err := w.k.Detach(context.Background(), ann, c.ID, a.File); err != nil {
				t.Error(err)
			}
			if _, err := w.k.Attach(context.Background(), ann, documents.Attachment{Collection: c.ID, File: a.File, Chunking: documents.Chunking{Max: 16}}); err != nil {
				t.Error(err)
			}
		})
		if at == "read" {
			w.read = func(string) error { again(); return nil }
		} else {
			w.e.embeds = again
		}
		w.start()
		if got := w.wait(); got != "complete "+a.File {
			t.Fatal(got)
		}
		s := w.state(a)
		if s.Chunking.Max != 16 || s.Chunks == 0 || s.Embedded != s.Chunks || w.near(c, "roses") != s.Chunks {
			t.Errorf("put in again while it was to %s: %+v", at, s)
		}
		all, err := w.k.PassagesOf(t.Context(), ann, c.ID, a.File)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range all {
			if p.Tokens > 16 {
				t.Errorf("put in again while it was to %s: a passage has %d tokens", at, p.Tokens)
			}
		}
	}
}

func TestNothingToFind(t *testing.T) {
	w := newWorld(t)
	w.start()
	a := w.add(w.collection(), "a.json", "[[[]]]")
	got := w.wait()
	if s := w.state(a); got != "failed "+a.File && s.Chunks == 0 {
		t.Errorf("%s: %+v", got, s)
	}
}

func TestLong(t *testing.T) {
	e := &fake{model: "m", dims: 8, most: 6}
	text := strings.Repeat("word ", 100)
	v, err := ingest.Long(t.Context(), e, []string{"a b", text, ""})
	if err != nil || len(v) != 3 || len(v[1]) != 8 {
		t.Fatalf("%v, %v", v, err)
	}
	e.most = 1 // absurd: two are added to each
	if _, err := ingest.Long(t.Context(), e, []string{"漢字"}); err == nil {
		t.Error("a model that takes nothing is no error")
	}
}
