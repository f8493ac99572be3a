package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"onebit/store/documents"
	"onebit/store/sqlite"
)

const collectionColumns = "id, owner, name, everyone, metadata, created, active, expires_after, chunk_max, chunk_overlap, model, dims, next, generation"

// seen is the condition under which a collection exists for somebody; its three
// arguments are whether everything does, and the person twice.
const seen = "(? or owner = ? or everyone or exists (select 1 from shares where collection = collections.id and person = ?))"

func scanCollection(r sqlite.Row) (documents.Collection, error) {
	var c documents.Collection
	var metadata string
	var created, active, expires int64
	err := r.Scan(&c.ID, &c.Owner, &c.Name, &c.Sharing.Everyone, &metadata, &created, &active, &expires,
		&c.Chunking.Max, &c.Chunking.Overlap, &c.Model, &c.Dims, &c.Next, &c.Generation)
	c.Created, c.Active = sqlite.Moment(created), sqlite.Moment(active)
	c.ExpiresAfter = time.Duration(expires) * time.Millisecond
	if err == nil {
		err = json.Unmarshal([]byte(metadata), &c.Metadata)
	}
	return c, err
}

// AddCollection makes an empty collection.
func (k *Keeper) AddCollection(ctx context.Context, by documents.Reader, c documents.Collection) (documents.Collection, error) {
	c, err := documents.NewCollection(by, c, k.now())
	if err != nil {
		return documents.Collection{}, err
	}
	err = k.write(ctx, func(t *sqlite.Tx) error {
		n, err := t.Insert(ctx, "insert into collections (id, owner, name, everyone, metadata, created, active, expires_after, chunk_max, chunk_overlap) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
			c.ID, c.Owner, c.Name, c.Sharing.Everyone, toJSON(c.Metadata), sqlite.Stamp(c.Created), sqlite.Stamp(c.Active),
			c.ExpiresAfter.Milliseconds(), c.Chunking.Max, c.Chunking.Overlap)
		if err != nil {
			return err
		}
		return errors.Join(share(ctx, t, c), createWords(ctx, t, n))
	})
	return c, err
}

func share(ctx context.Context, t *sqlite.Tx, c documents.Collection) error {
	if _, err := t.Exec(ctx, "delete from shares where collection = ?", c.ID); err != nil {
		return err
	}
	for _, p := range c.Sharing.People {
		if _, err := t.Exec(ctx, "insert or ignore into shares (collection, person) values (?, ?)", c.ID, p); err != nil {
			return err
		}
	}
	return nil
}

// Collection returns what is known of a collection.
func (k *Keeper) Collection(ctx context.Context, by documents.Reader, id string) (documents.Collection, error) {
	list, err := k.collections(ctx, "id = ? and "+seen, id, by.All, by.Person, by.Person)
	if err == nil && len(list) == 0 {
		err = documents.ErrNotFound
	}
	if err != nil {
		return documents.Collection{}, err
	}
	return list[0], nil
}

func (k *Keeper) collections(ctx context.Context, where string, args ...any) ([]documents.Collection, error) {
	rows, err := k.db.Query(ctx, "select "+collectionColumns+" from collections where "+where, args...)
	list, err := sqlite.Collect(rows, err, scanCollection)
	if err != nil {
		return nil, meaning(err)
	}
	for i := range list {
		rows, err := k.db.Query(ctx, "select person from shares where collection = ? order by person", list[i].ID)
		list[i].Sharing.People, err = sqlite.Collect(rows, err, func(r sqlite.Row) (p string, err error) { return p, r.Scan(&p) })
		if err != nil {
			return nil, meaning(err)
		}
	}
	return list, nil
}

// Collections lists those that exist for a reader.
func (k *Keeper) Collections(ctx context.Context, by documents.Reader, p documents.Page) ([]documents.Collection, bool, error) {
	after, before, order, limit := p.Bounds()
	list, err := k.collections(ctx, seen+" and id > ? and id < ? order by id "+order+" limit ?", by.All, by.Person, by.Person, after, cmp.Or(before, documents.LastID), limit)
	list, more := documents.Cut(list, limit)
	return list, more, err
}

// own returns nil where the reader may change a collection, and for others
// ErrNotFound, whether they see it or not.
func (k *Keeper) own(ctx context.Context, by documents.Reader, id string) error {
	var one int
	return meaning(k.db.Scan(ctx, "select 1 from collections where id = ? and (? or owner = ?)", []any{id, by.All, by.Person}, &one))
}

// UpdateCollection changes what its owner may.
func (k *Keeper) UpdateCollection(ctx context.Context, by documents.Reader, c documents.Collection) (documents.Collection, error) {
	if err := k.own(ctx, by, c.ID); err != nil {
		return documents.Collection{}, err
	}
	c, err := c.Checked()
	if err != nil {
		return documents.Collection{}, err
	}
	err = k.write(ctx, func(t *sqlite.Tx) error {
		err := t.One(ctx, "update collections set name = ?, everyone = ?, metadata = ?, expires_after = ?, chunk_max = ?, chunk_overlap = ?, active = ? where id = ?",
			c.Name, c.Sharing.Everyone, toJSON(c.Metadata), c.ExpiresAfter.Milliseconds(), c.Chunking.Max, c.Chunking.Overlap, sqlite.Stamp(k.now()), c.ID)
		if err != nil {
			return err
		}
		return share(ctx, t, c)
	})
	if err != nil {
		return documents.Collection{}, err
	}
	return k.Collection(ctx, by, c.ID)
}

// DeleteCollection removes a collection; the files stay.
func (k *Keeper) DeleteCollection(ctx context.Context, by documents.Reader, id string) error {
	if err := k.own(ctx, by, id); err != nil {
		return err
	}
	err := k.write(ctx, func(t *sqlite.Tx) error { return deleteCollection(ctx, t, id) })
	k.slabs.forget(id)
	k.gone()
	return err
}

func deleteCollection(ctx context.Context, t *sqlite.Tx, id string) error {
	var n int64
	if err := t.Scan(ctx, "select n from collections where id = ?", []any{id}, &n); err != nil {
		return err
	}
	if err := t.Once(ctx, fmt.Sprintf("drop table words_%d", n)); err != nil {
		return err
	}
	return t.One(ctx, "delete from collections where id = ?", id)
}

// Bytes returns what a collection's texts and vectors take.
func (k *Keeper) Bytes(ctx context.Context, by documents.Reader, id string) (int64, error) {
	var n int64
	err := k.db.Scan(ctx, "select (select coalesce(sum(bytes), 0) from attachments where collection = collections.id) from collections where id = ? and "+seen,
		[]any{id, by.All, by.Person, by.Person}, &n)
	return n, meaning(err)
}

// Touch notes activity, to the minute.
func (k *Keeper) Touch(ctx context.Context, id string) error {
	now := sqlite.Stamp(k.now())
	var active int64
	if err := k.db.Scan(ctx, "select active from collections where id = ?", []any{id}, &active); err != nil {
		return meaning(err)
	}
	if now-active < time.Minute.Milliseconds() {
		return nil
	}
	return k.write(ctx, func(t *sqlite.Tx) error {
		return t.One(ctx, "update collections set active = ? where id = ?", now, id)
	})
}

// Expire deletes what is past its time, and empties the log of what was deleted.
func (k *Keeper) Expire(ctx context.Context, now time.Time) (int, error) {
	at := sqlite.Stamp(now)
	rows, err := k.db.Query(ctx, "select id from collections where expires_after > 0 and active + expires_after <= ?", at)
	ids, err := sqlite.Collect(rows, err, func(r sqlite.Row) (id string, err error) { return id, r.Scan(&id) })
	if err != nil {
		return 0, meaning(err)
	}
	n := 0
	for _, id := range ids {
		if err := k.DeleteCollection(ctx, documents.System(), id); err != nil && !errors.Is(err, documents.ErrNotFound) {
			return n, err
		}
		n++
	}
	files, err := k.files(ctx, "expires > 0 and expires <= ? and owner <> ''", at)
	if err != nil {
		return n, err
	}
	for _, f := range files {
		if err := k.DeleteFile(ctx, documents.System(), f.ID); err != nil && !errors.Is(err, documents.ErrNotFound) {
			return n, err
		}
		n++
	}
	err = k.write(ctx, func(t *sqlite.Tx) error {
		left, err := t.Exec(ctx, "delete from files where owner = '' and created < ?", sqlite.Stamp(now.Add(-documents.Abandoned)))
		if left > 0 {
			k.gone()
		}
		return err
	})
	if err != nil {
		return n, err
	}
	return n, k.empty(ctx)
}
