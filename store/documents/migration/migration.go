// Package migration moves all documents from one keeper to another, either way,
// and proves that they arrived.
//
// Ids, owners, times and vectors stay as they are, so that clients go on as if
// nothing had happened and nothing is embedded again. What is in progress is
// taken up by the new keeper's queue. A move that broke off can be begun again:
// what has arrived is held against what was sent, not sent twice.
package migration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"onebit/store/documents"
	"onebit/store/documents/chunk"
)

// Report counts what was moved, or was there already and is the same.
type Report struct {
	Files, Collections, Attachments, Passages int
	Bytes                                     int64 // of files
}

// ErrDiffers says that the target holds something else under the same id.
var ErrDiffers = errors.New("the target differs")

// Run moves everything. say, which may be nil, is told what is at work.
func Run(ctx context.Context, from, to documents.Keeper, say func(string)) (Report, error) {
	m := &move{from: from, to: to, say: say}
	if m.say == nil {
		m.say = func(string) {}
	}
	if err := each(ctx, func(p documents.Page) ([]documents.File, bool, error) {
		return from.Files(ctx, documents.System(), "", p)
	}, func(f documents.File) string { return f.ID }, m.file); err != nil {
		return m.Report, err
	}
	err := each(ctx, func(p documents.Page) ([]documents.Collection, bool, error) {
		return from.Collections(ctx, documents.System(), p)
	}, func(c documents.Collection) string { return c.ID }, m.collection)
	return m.Report, err
}

// each walks a list from its beginning.
func each[T any](ctx context.Context, list func(documents.Page) ([]T, bool, error), id func(T) string, f func(context.Context, T) error) error {
	p := documents.Page{Ascending: true, Limit: 100}
	for {
		all, more, err := list(p)
		if err != nil {
			return err
		}
		for _, v := range all {
			if err := f(ctx, v); err != nil {
				return err
			}
			p.After = id(v)
		}
		if !more {
			return nil
		}
	}
}

type move struct {
	from, to documents.Keeper
	say      func(string)
	Report
}

func differs(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDiffers, fmt.Sprintf(format, args...))
}

// file sends one file. The hash that the target computes proves its bytes.
func (m *move) file(ctx context.Context, f documents.File) error {
	got, err := m.to.File(ctx, documents.System(), f.ID)
	if errors.Is(err, documents.ErrNotFound) {
		m.say(fmt.Sprintf("file %s (%s)", f.ID, f.Name))
		r, w := io.Pipe()
		done := make(chan error, 1)
		go func() {
			err := m.from.Content(ctx, documents.System(), f.ID, w)
			w.CloseWithError(err) // nil ends it
			done <- err
		}()
		got, err = m.to.AddFile(ctx, documents.System(), f, r)
		r.CloseWithError(io.ErrClosedPipe)
		if sent := <-done; err == nil {
			err = sent
		}
	}
	if err != nil {
		return fmt.Errorf("file %s: %w", f.ID, err)
	}
	if got.SHA256 != f.SHA256 || got.Owner != f.Owner || got.Bytes != f.Bytes {
		return differs("file %s has the hash %s there, %s here", f.ID, got.SHA256, f.SHA256)
	}
	m.Files++
	m.Bytes += f.Bytes
	return nil
}

func (m *move) collection(ctx context.Context, c documents.Collection) error {
	got, err := m.to.Collection(ctx, documents.System(), c.ID)
	if errors.Is(err, documents.ErrNotFound) {
		m.say(fmt.Sprintf("collection %s (%s)", c.ID, c.Name))
		got, err = m.to.AddCollection(ctx, documents.System(), c)
	}
	if err != nil {
		return fmt.Errorf("collection %s: %w", c.ID, err)
	}
	if got.Owner != c.Owner || got.Name != c.Name {
		return differs("collection %s belongs to another there", c.ID)
	}
	m.Collections++
	return each(ctx, func(p documents.Page) ([]documents.Attachment, bool, error) {
		return m.from.Attachments(ctx, documents.System(), c.ID, "", "", p)
	}, func(a documents.Attachment) string { return a.File }, func(ctx context.Context, a documents.Attachment) error {
		if err := m.attachment(ctx, c, a); err != nil {
			return fmt.Errorf("file %s in collection %s: %w", a.File, a.Collection, err)
		}
		m.Attachments++
		return nil
	})
}

func (m *move) attachment(ctx context.Context, c documents.Collection, a documents.Attachment) error {
	if a.Status == documents.Completed && a.Chunks == 0 { // as an earlier program left files without text
		a.Status, a.Problem = documents.Failed, "it holds no text"
	}
	got, err := m.to.Attachment(ctx, documents.System(), a.Collection, a.File)
	if errors.Is(err, documents.ErrNotFound) {
		got, err = m.to.Attach(ctx, documents.System(), a)
	}
	if err != nil {
		return err
	}
	switch {
	case got.Status == documents.InProgress && a.Status == documents.Completed:
		if err := m.passages(ctx, c, a); err != nil {
			return err
		}
	case got.Status == documents.InProgress && a.Status == documents.Failed:
		return m.to.Fail(ctx, a.Collection, a.File, a.Problem)
	case got.Status == documents.InProgress && a.Status == documents.Cancelled:
		return m.to.Cancel(ctx, documents.System(), a.Collection, a.Batch)
	case got.Status == documents.InProgress && a.Status == documents.InProgress:
		return nil // the queue there begins with it anew
	case got.Status != a.Status:
		return differs("it is %s there, %s here", got.Status, a.Status)
	}
	if a.Status != documents.Completed {
		return nil
	}
	return m.compare(ctx, a)
}

// passages sends what was made of a file, with its vectors.
func (m *move) passages(ctx context.Context, c documents.Collection, a documents.Attachment) error {
	passages, err := m.from.PassagesOf(ctx, documents.System(), a.Collection, a.File)
	if err != nil {
		return err
	}
	chunks := make([]chunk.Chunk, len(passages))
	for i, p := range passages {
		chunks[i] = p.Chunk
	}
	if err := m.to.Cut(ctx, a.Collection, a.File, a.Pages, chunks); err != nil {
		return err
	}
	vectors, err := m.from.Vectors(ctx, a.Collection, a.File)
	if err != nil {
		return err
	}
	if len(vectors) < len(passages) {
		return nil // of a change of the model that is under way: the queue there makes them
	}
	bare, err := m.to.Bare(ctx, a.Collection, a.File, c.Model, len(passages)+1)
	if err != nil {
		return err
	}
	if len(bare) != len(vectors) {
		return differs("%d passages arrived of %d", len(bare), len(vectors))
	}
	for i := range vectors {
		vectors[i].ID = bare[i].ID
	}
	for part := range slices.Chunk(vectors, 500) {
		if err := m.to.Embed(ctx, c.Model, part); err != nil {
			return err
		}
	}
	return m.to.Complete(ctx, a.Collection, a.File, c.Model, c.Dims)
}

// compare holds what is there against what is here, passage by passage.
func (m *move) compare(ctx context.Context, a documents.Attachment) error {
	here, err := m.from.PassagesOf(ctx, documents.System(), a.Collection, a.File)
	if err != nil {
		return err
	}
	there, err := m.to.PassagesOf(ctx, documents.System(), a.Collection, a.File)
	if err != nil {
		return err
	}
	v, err := m.from.Vectors(ctx, a.Collection, a.File)
	if err != nil {
		return err
	}
	w, err := m.to.Vectors(ctx, a.Collection, a.File)
	if err != nil {
		return err
	}
	if len(v) < len(here) && len(there) == 0 {
		return nil // left to the queue there
	}
	if len(here) != len(there) || len(v) != len(w) {
		return differs("it has %d passages and %d vectors there, %d and %d here", len(there), len(w), len(here), len(v))
	}
	for i, p := range here {
		q := there[i]
		if p.Text != q.Text || p.Ordinal != q.Ordinal || p.Start != q.Start || p.End != q.End || !slices.Equal(p.Path, q.Path) {
			return differs("passage %d differs", i)
		}
	}
	for i := range v {
		if !slices.Equal(v[i].Vector, w[i].Vector) {
			return differs("vector %d differs", i)
		}
	}
	m.Passages += len(here)
	return nil
}
