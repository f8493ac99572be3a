package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"onebit/store/documents"
)

const attachmentColumns = "n, collection, file, batch, status, problem, created, attributes, chunk_max, chunk_overlap, chunks, embedded, bytes, pages"

type attachment struct {
	documents.Attachment
	n int64
}

func scanAttachment(r pgx.CollectableRow) (attachment, error) {
	var a attachment
	var created int64
	err := r.Scan(&a.n, &a.Collection, &a.File, &a.Batch, &a.Status, &a.Problem, &created, &a.Attributes,
		&a.Chunking.Max, &a.Chunking.Overlap, &a.Chunks, &a.Embedded, &a.Bytes, &a.Pages)
	a.Created = moment(created)
	return a, err
}

func attachments(ctx context.Context, q querier, where string, args ...any) ([]attachment, error) {
	rows, err := q.Query(ctx, "select "+attachmentColumns+" from attachments where "+where, args...)
	if err != nil {
		return nil, meaning(err)
	}
	list, err := pgx.CollectRows(rows, scanAttachment)
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
	err = k.write(ctx, func(t pgx.Tx) error {
		now := stamp(k.now())
		if err := one(ctx, t, "update collections set active = $1 where id = $2", now, a.Collection); err != nil {
			return err
		}
		_, err := t.Exec(ctx, "insert into attachments (collection, file, batch, status, created, attributes, chunk_max, chunk_overlap) values ($1, $2, $3, 'in_progress', $4, $5, $6, $7)",
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
	list, err := attachments(ctx, k.pool, "collection = $1 and file = $2", collection, file)
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
	list, err := attachments(ctx, k.pool, `collection = $1 and ($2 = '' or status = $2) and ($3 = '' or batch = $3)
		and ($4 = '' or n > (select n from attachments where collection = $1 and file = $4))
		and ($5 = '' or n < (select n from attachments where collection = $1 and file = $5))
		order by n `+order+" limit $6", collection, string(status), batch, after, before, limit)
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
	rows, err := k.pool.Query(ctx, "select status, count(*) from attachments where collection = $1 and ($2 = '' or batch = $2) group by status", collection, batch)
	if err != nil {
		return nil, meaning(err)
	}
	counts := map[documents.Status]int{}
	var s documents.Status
	var n int
	_, err = pgx.ForEachRow(rows, []any{&s, &n}, func() error { counts[s] = n; return nil })
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
	err = k.write(ctx, func(t pgx.Tx) error {
		return one(ctx, t, "update attachments set attributes = $1 where collection = $2 and file = $3", toJSON(attributes), collection, file)
	})
	if err != nil {
		return documents.Attachment{}, err
	}
	return k.Attachment(ctx, by, collection, file)
}

// Detach removes a file from a collection.
func (k *Keeper) Detach(ctx context.Context, by documents.Reader, collection, file string) error {
	if err := k.own(ctx, by, collection); err != nil {
		return err
	}
	return k.write(ctx, func(t pgx.Tx) error {
		if _, err := t.Exec(ctx, "update collections set generation = generation + 1, active = $1 where id = $2", stamp(k.now()), collection); err != nil {
			return err
		}
		return one(ctx, t, "delete from attachments where collection = $1 and file = $2", collection, file)
	})
}

// end sets the status of attachments that did not come to completion, and
// removes what was made of them.
func (k *Keeper) end(ctx context.Context, where string, args []any, status documents.Status, problem string) error {
	return k.write(ctx, func(t pgx.Tx) error {
		list, err := attachments(ctx, t, "status = 'in_progress' and "+where+" for update", args...)
		if err != nil {
			return err
		}
		for _, a := range list {
			if err := forget(ctx, t, a.n); err != nil {
				return err
			}
			if _, err := t.Exec(ctx, "update attachments set status = $1, problem = $2 where n = $3", string(status), problem, a.n); err != nil {
				return err
			}
		}
		return nil
	})
}

// forget removes an attachment's passages.
func forget(ctx context.Context, t pgx.Tx, n int64) error {
	if _, err := t.Exec(ctx, "delete from passages where attachment = $1", n); err != nil {
		return err
	}
	_, err := t.Exec(ctx, "update attachments set chunks = 0, embedded = 0, bytes = 0 where n = $1", n)
	return err
}

// Cancel ends those of a batch that are in progress.
func (k *Keeper) Cancel(ctx context.Context, by documents.Reader, collection, batch string) error {
	if err := k.own(ctx, by, collection); err != nil {
		return err
	}
	return k.end(ctx, "collection = $1 and batch = $2", []any{collection, batch}, documents.Cancelled, "")
}

// Fail ends an attachment.
func (k *Keeper) Fail(ctx context.Context, collection, file, problem string) error {
	return k.end(ctx, "collection = $1 and file = $2", []any{collection, file}, documents.Failed, problem)
}

// Unfinished lists attachments in progress.
func (k *Keeper) Unfinished(ctx context.Context, limit int) ([]documents.Attachment, error) {
	list, err := attachments(ctx, k.pool, "status = 'in_progress' order by n limit $1", limit)
	out := make([]documents.Attachment, len(list))
	for i, a := range list {
		out[i] = a.Attachment
	}
	return out, err
}
