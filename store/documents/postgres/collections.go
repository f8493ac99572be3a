package postgres

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"onebit/store/documents"
)

const collectionColumns = `id, owner, name, everyone, metadata, created, active, expires_after, chunk_max, chunk_overlap, model, dims, next, generation,
	(select array_agg(person order by person) from shares where collection = collections.id)`

// seen is the condition under which a collection exists for somebody, in terms
// of two arguments.
func seen(all, person int) string {
	return fmt.Sprintf("($%d or owner = $%d or everyone or exists (select 1 from shares where collection = collections.id and person = $%d))", all, person, person)
}

func scanCollection(r pgx.CollectableRow) (documents.Collection, error) {
	var c documents.Collection
	var created, active, expires int64
	err := r.Scan(&c.ID, &c.Owner, &c.Name, &c.Sharing.Everyone, &c.Metadata, &created, &active, &expires,
		&c.Chunking.Max, &c.Chunking.Overlap, &c.Model, &c.Dims, &c.Next, &c.Generation, &c.Sharing.People)
	c.Created, c.Active = moment(created), moment(active)
	c.ExpiresAfter = time.Duration(expires) * time.Millisecond
	return c, err
}

// storable refuses what PostgreSQL cannot keep.
func storable(c documents.Collection) error {
	if strings.ContainsRune(c.Name, 0) {
		return fmt.Errorf("%w: a collection's name has a zero byte", documents.ErrInvalid)
	}
	return nil
}

// AddCollection makes an empty collection.
func (k *Keeper) AddCollection(ctx context.Context, by documents.Reader, c documents.Collection) (documents.Collection, error) {
	c, err := documents.NewCollection(by, c, k.now())
	if err == nil {
		err = storable(c)
	}
	if err != nil {
		return documents.Collection{}, err
	}
	err = k.write(ctx, func(t pgx.Tx) error {
		_, err := t.Exec(ctx, "insert into collections (id, owner, name, everyone, metadata, created, active, expires_after, chunk_max, chunk_overlap) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
			c.ID, c.Owner, c.Name, c.Sharing.Everyone, c.Metadata, stamp(c.Created), stamp(c.Active), c.ExpiresAfter.Milliseconds(), c.Chunking.Max, c.Chunking.Overlap)
		if err != nil {
			return err
		}
		return share(ctx, t, c)
	})
	return c, err
}

func share(ctx context.Context, t pgx.Tx, c documents.Collection) error {
	if _, err := t.Exec(ctx, "delete from shares where collection = $1", c.ID); err != nil {
		return err
	}
	_, err := t.Exec(ctx, "insert into shares (collection, person) select $1, p from unnest($2::text[]) p on conflict do nothing", c.ID, c.Sharing.People)
	return err
}

func (k *Keeper) collections(ctx context.Context, where string, args ...any) ([]documents.Collection, error) {
	rows, err := k.pool.Query(ctx, "select "+collectionColumns+" from collections where "+where, args...)
	if err != nil {
		return nil, meaning(err)
	}
	list, err := pgx.CollectRows(rows, scanCollection)
	return list, meaning(err)
}

// Collection returns what is known of a collection.
func (k *Keeper) Collection(ctx context.Context, by documents.Reader, id string) (documents.Collection, error) {
	list, err := k.collections(ctx, "id = $1 and "+seen(2, 3), id, by.All, by.Person)
	if err == nil && len(list) == 0 {
		err = documents.ErrNotFound
	}
	if err != nil {
		return documents.Collection{}, err
	}
	return list[0], nil
}

// Collections lists those that exist for a reader.
func (k *Keeper) Collections(ctx context.Context, by documents.Reader, p documents.Page) ([]documents.Collection, bool, error) {
	after, before, order, limit := p.Bounds()
	list, err := k.collections(ctx, seen(1, 2)+" and id > $3 and id < $4 order by id "+order+" limit $5", by.All, by.Person, after, cmp.Or(before, documents.LastID), limit)
	list, more := documents.Cut(list, limit)
	return list, more, err
}

// own returns nil where the reader may change a collection.
func (k *Keeper) own(ctx context.Context, by documents.Reader, id string) error {
	var n int
	return meaning(k.pool.QueryRow(ctx, "select 1 from collections where id = $1 and ($2 or owner = $3)", id, by.All, by.Person).Scan(&n))
}

// UpdateCollection changes what its owner may.
func (k *Keeper) UpdateCollection(ctx context.Context, by documents.Reader, c documents.Collection) (documents.Collection, error) {
	if err := k.own(ctx, by, c.ID); err != nil {
		return documents.Collection{}, err
	}
	c, err := c.Checked()
	if err == nil {
		err = storable(c)
	}
	if err != nil {
		return documents.Collection{}, err
	}
	err = k.write(ctx, func(t pgx.Tx) error {
		err := one(ctx, t, "update collections set name = $1, everyone = $2, metadata = $3, expires_after = $4, chunk_max = $5, chunk_overlap = $6, active = $7 where id = $8",
			c.Name, c.Sharing.Everyone, c.Metadata, c.ExpiresAfter.Milliseconds(), c.Chunking.Max, c.Chunking.Overlap, stamp(k.now()), c.ID)
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
	return k.write(ctx, func(t pgx.Tx) error {
		return one(ctx, t, "delete from collections where id = $1 and ($2 or owner = $3)", id, by.All, by.Person)
	})
}

// Bytes returns what a collection's texts and vectors take.
func (k *Keeper) Bytes(ctx context.Context, by documents.Reader, id string) (int64, error) {
	var n int64
	err := k.pool.QueryRow(ctx, "select (select coalesce(sum(bytes), 0)::bigint from attachments where collection = collections.id) from collections where id = $1 and "+seen(2, 3),
		id, by.All, by.Person).Scan(&n)
	return n, meaning(err)
}

// Touch notes activity, to the minute.
func (k *Keeper) Touch(ctx context.Context, id string) error {
	now := stamp(k.now())
	var active int64
	if err := k.pool.QueryRow(ctx, "select active from collections where id = $1", id).Scan(&active); err != nil {
		return meaning(err)
	}
	if now-active < time.Minute.Milliseconds() {
		return nil
	}
	_, err := k.pool.Exec(ctx, "update collections set active = $1 where id = $2", now, id)
	return meaning(err)
}

// Expire deletes what is past its time.
func (k *Keeper) Expire(ctx context.Context, now time.Time) (int, error) {
	n := 0
	err := k.write(ctx, func(t pgx.Tx) error {
		n = 0
		a, err := t.Exec(ctx, "delete from collections where expires_after > 0 and active + expires_after <= $1", stamp(now))
		if err != nil {
			return err
		}
		_, err = t.Exec(ctx, `update collections set generation = generation + 1 where id in
			(select a.collection from attachments a join files f on f.id = a.file where f.expires > 0 and f.expires <= $1 and f.owner <> '')`, stamp(now))
		if err != nil {
			return err
		}
		b, err := t.Exec(ctx, "delete from files where expires > 0 and expires <= $1 and owner <> ''", stamp(now))
		if err != nil {
			return err
		}
		n = int(a.RowsAffected() + b.RowsAffected())
		_, err = t.Exec(ctx, "delete from files where owner = '' and created < $1", stamp(now.Add(-documents.Abandoned)))
		return err
	})
	return n, err
}
