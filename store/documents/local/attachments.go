package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"onebit/store/documents"
	"onebit/store/sqlite"
)

const attachmentColumns = "n, first, last, collection, file, batch, status, problem, created, attributes, chunk_max, chunk_overlap, chunks, embedded, bytes, pages"

// attachment is one with where its passages are.
type attachment struct {
	documents.Attachment
	n           int64
	first, last int64
}

func scanAttachment(r sqlite.Row) (attachment, error) {
	var a attachment
	var created int64
	var attributes string
	err := r.Scan(&a.n, &a.first, &a.last, &a.Collection, &a.File, &a.Batch, &a.Status, &a.Problem, &created, &attributes,
		&a.Chunking.Max, &a.Chunking.Overlap, &a.Chunks, &a.Embedded, &a.Bytes, &a.Pages)
	a.Created = sqlite.Moment(created)
	if err == nil {
		err = json.Unmarshal([]byte(attributes), &a.Attributes)
	}
	return a, err
}

// attachments reads them inside of a transaction.
func attachments(ctx context.Context, t *sqlite.Tx, where string, args ...any) ([]attachment, error) {
	rows, err := t.Query(ctx, "select "+attachmentColumns+" from attachments where "+where, args...)
	return sqlite.Collect(rows, err, scanAttachment)
}

func (k *Keeper) attachments(ctx context.Context, where string, args ...any) ([]attachment, error) {
	rows, err := k.db.Query(ctx, "select "+attachmentColumns+" from attachments where "+where, args...)
	list, err := sqlite.Collect(rows, err, scanAttachment)
	return list, meaning(err)
}

// Attach adds a file to a collection.
func (k *Keeper) Attach(ctx context.Context, by documents.Reader, a documents.Attachment) (documents.Attachment, error) {
	if err := k.own(ctx, by, a.Collection); err != nil {
		return documents.Attachment{}, fmt.Errorf("the collection: %w", err)
	}
	if _, err := k.File(ctx, by, a.File); err != nil {
		return documents.Attachment{}, fmt.Errorf("the file: %w", err)
	}
	attributes, err := documents.Attributes(a.Attributes)
	if err != nil {
		return documents.Attachment{}, err
	}
	err = k.write(ctx, func(t *sqlite.Tx) error {
		now := sqlite.Stamp(k.now())
		if err := t.One(ctx, "update collections set active = ? where id = ?", now, a.Collection); err != nil {
			return err
		}
		_, err := t.Exec(ctx, "insert into attachments (collection, file, batch, status, created, attributes, chunk_max, chunk_overlap) values (?, ?, ?, 'in_progress', ?, ?, ?, ?)",
			a.Collection, a.File, a.Batch, now, toJSON(attributes), a.Chunking.Max, a.Chunking.Overlap)
		return err
	})
	if err != nil {
		return documents.Attachment{}, err
	}
	return k.Attachment(ctx, by, a.Collection, a.File)
}

// Attachment returns one file of a collection.
func (k *Keeper) Attachment(ctx context.Context, by documents.Reader, collection, file string) (documents.Attachment, error) {
	if _, err := k.Collection(ctx, by, collection); err != nil {
		return documents.Attachment{}, err
	}
	list, err := k.attachments(ctx, "collection = ? and file = ?", collection, file)
	if err == nil && len(list) == 0 {
		err = documents.ErrNotFound
	}
	if err != nil {
		return documents.Attachment{}, err
	}
	return list[0].Attachment, nil
}

// Attachments lists the files of a collection in the order in which they came.
func (k *Keeper) Attachments(ctx context.Context, by documents.Reader, collection string, status documents.Status, batch string, p documents.Page) ([]documents.Attachment, bool, error) {
	if _, err := k.Collection(ctx, by, collection); err != nil {
		return nil, false, err
	}
	after, before, order, limit := p.Bounds()
	list, err := k.attachments(ctx, `collection = ?1 and (?2 = '' or status = ?2) and (?3 = '' or batch = ?3)
		and (?4 = '' or n > (select n from attachments where collection = ?1 and file = ?4))
		and (?5 = '' or n < (select n from attachments where collection = ?1 and file = ?5))
		order by n `+order+" limit ?6", collection, string(status), batch, after, before, limit)
	if err != nil {
		return nil, false, err
	}
	list, more := documents.Cut(list, limit)
	out := make([]documents.Attachment, len(list))
	for i, a := range list {
		out[i] = a.Attachment
	}
	return out, more, nil
}

// Counts returns how many attachments have each status.
func (k *Keeper) Counts(ctx context.Context, by documents.Reader, collection, batch string) (map[documents.Status]int, error) {
	if _, err := k.Collection(ctx, by, collection); err != nil {
		return nil, err
	}
	counts := map[documents.Status]int{}
	rows, err := k.db.Query(ctx, "select status, count(*) from attachments where collection = ?1 and (?2 = '' or batch = ?2) group by status", collection, batch)
	_, err = sqlite.Collect(rows, err, func(r sqlite.Row) (struct{}, error) {
		var s documents.Status
		var n int
		err := r.Scan(&s, &n)
		counts[s] = n
		return struct{}{}, err
	})
	return counts, meaning(err)
}

// SetAttributes replaces attributes.
func (k *Keeper) SetAttributes(ctx context.Context, by documents.Reader, collection, file string, attributes map[string]any) (documents.Attachment, error) {
	if err := k.own(ctx, by, collection); err != nil {
		return documents.Attachment{}, err
	}
	attributes, err := documents.Attributes(attributes)
	if err != nil {
		return documents.Attachment{}, err
	}
	c := change{collection: collection, last: -1} // no passage goes, but filters find others
	err = k.write(ctx, func(t *sqlite.Tx) error {
		if err := t.One(ctx, "update attachments set attributes = ? where collection = ? and file = ?", toJSON(attributes), collection, file); err != nil {
			return err
		}
		return t.Scan(ctx, "update collections set generation = generation + 1 where id = ? returning generation", []any{collection}, &c.generation)
	})
	if err != nil {
		return documents.Attachment{}, err
	}
	k.slabs.follow(c)
	return k.Attachment(ctx, by, collection, file)
}

// one returns an attachment inside of a transaction.
func one(ctx context.Context, t *sqlite.Tx, collection, file string) (attachment, error) {
	list, err := attachments(ctx, t, "collection = ? and file = ?", collection, file)
	if err == nil && len(list) == 0 {
		err = sqlite.ErrNotFound
	}
	if err != nil {
		return attachment{}, err
	}
	return list[0], nil
}

// Detach removes a file from a collection.
func (k *Keeper) Detach(ctx context.Context, by documents.Reader, collection, file string) error {
	if err := k.own(ctx, by, collection); err != nil {
		return err
	}
	var gone change
	err := k.write(ctx, func(t *sqlite.Tx) error {
		a, err := one(ctx, t, collection, file)
		if err != nil {
			return err
		}
		if gone, err = forget(ctx, t, a); err != nil {
			return err
		}
		_, err = t.Exec(ctx, "delete from attachments where n = ?", a.n)
		return err
	})
	if err != nil {
		return err
	}
	k.slabs.follow(gone)
	k.gone()
	return nil
}

// end sets the status of an attachment that did not come to completion, and
// removes what was made of it.
func (k *Keeper) end(ctx context.Context, collection, where string, args []any, status documents.Status, problem string) error {
	var gone []change
	err := k.write(ctx, func(t *sqlite.Tx) error {
		gone = nil
		list, err := attachments(ctx, t, "collection = ? and status = 'in_progress' and "+where, append([]any{collection}, args...)...)
		if err != nil {
			return err
		}
		for _, a := range list {
			c, err := forget(ctx, t, a)
			if err != nil {
				return err
			}
			gone = append(gone, c)
			if _, err := t.Exec(ctx, "update attachments set status = ?, problem = ? where n = ?", string(status), problem, a.n); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	k.slabs.follow(gone...)
	k.gone()
	return nil
}

// Cancel ends those of a batch that are in progress.
func (k *Keeper) Cancel(ctx context.Context, by documents.Reader, collection, batch string) error {
	if err := k.own(ctx, by, collection); err != nil {
		return err
	}
	return k.end(ctx, collection, "batch = ?", []any{batch}, documents.Cancelled, "")
}

// Fail ends an attachment.
func (k *Keeper) Fail(ctx context.Context, collection, file, problem string) error {
	return k.end(ctx, collection, "file = ?", []any{file}, documents.Failed, problem)
}

// Unfinished lists attachments in progress.
func (k *Keeper) Unfinished(ctx context.Context, limit int) ([]documents.Attachment, error) {
	list, err := k.attachments(ctx, "status = 'in_progress' order by n limit ?", limit)
	out := make([]documents.Attachment, len(list))
	for i, a := range list {
		out[i] = a.Attachment
	}
	return out, err
}

// change is what a transaction did to what can be found in a collection.
type change struct {
	collection  string
	generation  int64 // after it; 0 when nothing that can be found changed
	first, last int64 // passages that are gone
}

// forget removes an attachment's passages, words and vectors.
func forget(ctx context.Context, t *sqlite.Tx, a attachment) (change, error) {
	c := change{collection: a.Collection, first: a.first, last: a.last}
	if a.Status == documents.Completed {
		if err := removeWords(ctx, t, a); err != nil {
			return c, err
		}
		err := t.Scan(ctx, "update collections set generation = generation + 1, active = ? where id = ? returning generation",
			[]any{sqlite.Stamp(time.Now()), a.Collection}, &c.generation)
		if err != nil {
			return c, err
		}
	}
	_, err1 := t.Exec(ctx, "delete from passages where attachment = ?", a.n)
	_, err2 := t.Exec(ctx, "update attachments set chunks = 0, embedded = 0, bytes = 0, first = 0, last = -1 where n = ?", a.n)
	return c, errors.Join(err1, err2)
}
