package local

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"onebit/store/documents"
	"onebit/store/documents/chunk"
	"onebit/store/sqlite"
)

// Cut stores an attachment's chunks.
func (k *Keeper) Cut(ctx context.Context, collection, file string, pages int, chunks []chunk.Chunk) error {
	return k.write(ctx, func(t *sqlite.Tx) error {
		a, err := one(ctx, t, collection, file)
		if err != nil {
			return err
		}
		if a.Status != documents.InProgress {
			return fmt.Errorf("%w: the file is %s", sqlite.ErrConflict, a.Status)
		}
		if _, err := forget(ctx, t, a); err != nil {
			return err
		}
		first, last, bytes := int64(0), int64(-1), 0
		for i, c := range chunks {
			id, err := t.Insert(ctx, "insert into passages (attachment, ordinal, path, text, page, start, stop, tokens) values (?, ?, ?, ?, ?, ?, ?, ?)",
				a.n, i, toJSON(c.Path), c.Text, c.Page, c.Start, c.End, c.Tokens)
			if err != nil {
				return err
			}
			if i == 0 {
				first = id
			}
			last = id
			bytes += len(c.Text)
		}
		if n := last - first + 1; n != int64(len(chunks)) {
			return fmt.Errorf("%d passages took %d ids", len(chunks), n) // no other writer can have come between
		}
		_, err = t.Exec(ctx, "update attachments set chunks = ?, embedded = 0, bytes = ?, pages = ?, first = ?, last = ? where n = ?",
			len(chunks), bytes, pages, first, last, a.n)
		return err
	})
}

// slotOf returns in which of the two places vectors of a model stand.
func slotOf(ctx context.Context, scan func(context.Context, string, []any, ...any) error, collection, model string) (int, error) {
	var slot int
	var shown, next string
	if err := scan(ctx, "select slot, model, next from collections where id = ?", []any{collection}, &slot, &shown, &next); err != nil {
		return 0, err
	}
	return documents.Slot(slot, shown, next, model)
}

// Bare lists passages without a vector of a model.
func (k *Keeper) Bare(ctx context.Context, collection, file, model string, limit int) ([]documents.Text, error) {
	slot, err := slotOf(ctx, k.db.Scan, collection, model)
	if err != nil {
		return nil, meaning(err)
	}
	rows, err := k.db.Query(ctx, `select p.id, p.path, p.text from passages p join attachments a on a.n = p.attachment
		where a.collection = ? and a.file = ? and not exists (select 1 from vectors v where v.id = 2 * p.id + ?) order by p.id limit ?`,
		collection, file, slot, limit)
	list, err := sqlite.Collect(rows, err, func(r sqlite.Row) (documents.Text, error) {
		var t documents.Text
		var c chunk.Chunk
		var path string
		err := r.Scan(&t.ID, &path, &c.Text)
		if err == nil {
			err = json.Unmarshal([]byte(path), &c.Path)
		}
		t.Text = c.Embedded()
		return t, err
	})
	return list, meaning(err)
}

func encodeVector(v []float32) []byte {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

func decodeVector(dst []float32, b []byte) []float32 {
	dst = dst[:0]
	for ; len(b) >= 4; b = b[4:] {
		dst = append(dst, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return dst
}

// Vectors returns those of a file in a collection that are searched.
func (k *Keeper) Vectors(ctx context.Context, collection, file string) ([]documents.Vector, error) {
	rows, err := k.db.Query(ctx, `select p.id, v.vector from collections c join attachments a on a.collection = c.id join passages p on p.attachment = a.n
		join vectors v on v.id = 2 * p.id + c.slot where c.id = ? and a.file = ? order by p.id`, collection, file)
	list, err := sqlite.Collect(rows, err, func(r sqlite.Row) (documents.Vector, error) {
		var v documents.Vector
		var blob []byte
		err := r.Scan(&v.ID, &blob)
		v.Vector = decodeVector(nil, blob)
		return v, err
	})
	return list, meaning(err)
}

// Embed stores vectors.
func (k *Keeper) Embed(ctx context.Context, model string, vectors []documents.Vector) error {
	return k.write(ctx, func(t *sqlite.Tx) error {
		slots := map[string]int{}
		for _, v := range vectors {
			var collection string
			var n int64
			err := t.Scan(ctx, "select a.collection, a.n from passages p join attachments a on a.n = p.attachment where p.id = ?", []any{v.ID}, &collection, &n)
			if errors.Is(err, sqlite.ErrNotFound) {
				continue // deleted while it was embedded
			}
			if err != nil {
				return err
			}
			slot, ok := slots[collection]
			if !ok {
				if slot, err = slotOf(ctx, t.Scan, collection, model); err != nil {
					return err
				}
				// the first vectors say whose all are: a model that comes before the file is complete must not add to them
				if _, err := t.Exec(ctx, "update collections set model = ?, dims = ? where id = ? and model = ''", model, len(v.Vector), collection); err != nil {
					return err
				}
				slots[collection] = slot
			}
			blob := encodeVector(v.Vector)
			added, err := t.Exec(ctx, "insert into vectors (id, vector) values (?, ?) on conflict do nothing", 2*v.ID+int64(slot), blob)
			if err != nil {
				return err
			}
			if _, err := t.Exec(ctx, "update attachments set embedded = embedded + ?, bytes = bytes + ? where n = ? and status = 'in_progress'", added, added*int64(len(blob)), n); err != nil {
				return err
			}
		}
		return nil
	})
}

// Complete makes an attachment's passages findable.
func (k *Keeper) Complete(ctx context.Context, collection, file, model string, dims int) error {
	var a attachment
	var generation int64
	err := k.write(ctx, func(t *sqlite.Tx) (err error) {
		if a, err = one(ctx, t, collection, file); err != nil {
			return err
		}
		if a.Status != documents.InProgress {
			return fmt.Errorf("%w: the file is %s", sqlite.ErrConflict, a.Status)
		}
		slot, err := slotOf(ctx, t.Scan, collection, model)
		if err != nil {
			return err
		}
		var bare int
		err = t.Scan(ctx, "select count(*) from passages p where attachment = ? and not exists (select 1 from vectors v where v.id = 2 * p.id + ? and length(v.vector) = ?)",
			[]any{a.n, slot, 4 * dims}, &bare)
		if err != nil {
			return err
		}
		if bare > 0 {
			return fmt.Errorf("%w: %d passages have no vector of %q with %d numbers", sqlite.ErrConflict, bare, model, dims)
		}
		if a.Chunks == 0 { // taken out and put in again meanwhile
			return fmt.Errorf("%w: the file has not been cut", sqlite.ErrConflict)
		}
		if err := addWords(ctx, t, a); err != nil {
			return err
		}
		if err := t.One(ctx, "update attachments set status = 'completed', problem = '' where n = ?", a.n); err != nil {
			return err
		}
		err = t.Scan(ctx, `update collections set generation = generation + 1, active = ?1, model = case model when '' then ?2 else model end,
			dims = case model when '' then ?3 else dims end where id = ?4 and (model in ('', ?2) and dims in (0, ?3) or next = ?2) returning generation`,
			[]any{sqlite.Stamp(k.now()), model, dims, collection}, &generation)
		if errors.Is(err, sqlite.ErrNotFound) {
			return fmt.Errorf("%w: the collection has vectors of another model or size", sqlite.ErrConflict)
		}
		return err
	})
	if err != nil {
		return err
	}
	k.slabs.added(collection, generation, a.first, a.last)
	return nil
}

const passageColumns = "p.id, a.collection, a.file, p.ordinal, p.path, p.text, p.page, p.start, p.stop, p.tokens"

// Passages returns those that can be found, in the order of ids.
func (k *Keeper) Passages(ctx context.Context, by documents.Reader, ids []int64) ([]documents.Passage, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	return k.passages(ctx, by, "p.id in (select value from json_each(?))", toJSON(ids))
}

// PassagesOf returns those of a file in a collection, in order.
func (k *Keeper) PassagesOf(ctx context.Context, by documents.Reader, collection, file string) ([]documents.Passage, error) {
	if _, err := k.Attachment(ctx, by, collection, file); err != nil {
		return nil, err
	}
	return k.passages(ctx, by, "a.collection = ? and a.file = ?", collection, file)
}

func (k *Keeper) passages(ctx context.Context, by documents.Reader, where string, args ...any) ([]documents.Passage, error) {
	rows, err := k.db.Query(ctx, "select "+passageColumns+` from passages p join attachments a on a.n = p.attachment join collections on collections.id = a.collection
		where `+where+" and a.status = 'completed' and "+seen+" order by p.id", append(args, by.All, by.Person, by.Person)...)
	list, err := sqlite.Collect(rows, err, func(r sqlite.Row) (documents.Passage, error) {
		var p documents.Passage
		var path string
		err := r.Scan(&p.ID, &p.Collection, &p.File, &p.Ordinal, &path, &p.Text, &p.Page, &p.Start, &p.End, &p.Tokens)
		if err == nil {
			err = json.Unmarshal([]byte(path), &p.Path)
		}
		return p, err
	})
	return list, meaning(err)
}

// Change begins to move a collection to another model.
func (k *Keeper) Change(ctx context.Context, collection, model string) error {
	forgotten := false
	err := k.write(ctx, func(t *sqlite.Tx) error {
		forgotten = false
		var shown, next string
		if err := t.Scan(ctx, "select model, next from collections where id = ?", []any{collection}, &shown, &next); err != nil {
			return err
		}
		switch {
		case shown == "" || next == model || shown == model && next == "":
			return nil
		}
		if next != "" { // a change that is given up
			if err := giveUp(ctx, t, collection); err != nil {
				return err
			}
			forgotten = true
		}
		if shown == model {
			model = ""
		}
		return t.One(ctx, "update collections set next = ? where id = ?", model, collection)
	})
	if forgotten {
		k.slabs.forget(collection)
	}
	return err
}

// giveUp drops the vectors of the model that a collection was moving to. Files
// that came meanwhile, and have no others, are work for the queue again.
func giveUp(ctx context.Context, t *sqlite.Tx, collection string) error {
	if err := dropVectors(ctx, t, collection, "1 - c.slot"); err != nil {
		return err
	}
	list, err := attachments(ctx, t, `collection = ? and status in ('completed', 'in_progress') and exists (select 1 from passages p
		join collections c on c.id = attachments.collection where p.attachment = attachments.n and not exists (select 1 from vectors v where v.id = 2 * p.id + c.slot))`, collection)
	if err != nil {
		return err
	}
	for _, a := range list {
		if a.Status == documents.Completed {
			if err := removeWords(ctx, t, a); err != nil {
				return err
			}
		}
		_, err := t.Exec(ctx, `update attachments set status = 'in_progress', (embedded, bytes) =
			(select count(v.id), sum(length(cast(p.text as blob))) + coalesce(sum(length(v.vector)), 0) from passages p
			join collections c on c.id = attachments.collection left join vectors v on v.id = 2 * p.id + c.slot where p.attachment = attachments.n) where n = ?`, a.n)
		if err != nil {
			return err
		}
	}
	_, err = t.Exec(ctx, "update collections set generation = generation + 1 where id = ?", collection)
	return err
}

// dropVectors removes those of one slot, which is written in terms of c.
func dropVectors(ctx context.Context, t *sqlite.Tx, collection, slot string) error {
	_, err := t.Exec(ctx, "delete from vectors where id in (select 2 * p.id + "+slot+
		" from passages p join attachments a on a.n = p.attachment join collections c on c.id = a.collection where c.id = ?)", collection)
	return err
}

// Changed shows the vectors of the new model, and drops the old one's.
func (k *Keeper) Changed(ctx context.Context, collection, model string, dims int) error {
	err := k.write(ctx, func(t *sqlite.Tx) error {
		var bare int
		err := t.Scan(ctx, `select count(*) from passages p join attachments a on a.n = p.attachment join collections c on c.id = a.collection
			where c.id = ? and a.status = 'completed' and not exists (select 1 from vectors v where v.id = 2 * p.id + 1 - c.slot and length(v.vector) = ?)`,
			[]any{collection, 4 * dims}, &bare)
		if err != nil {
			return err
		}
		if bare > 0 {
			return fmt.Errorf("%w: %d passages have no vector of %q yet", sqlite.ErrConflict, bare, model)
		}
		if err := dropVectors(ctx, t, collection, "c.slot"); err != nil {
			return err
		}
		return t.One(ctx, "update collections set model = next, next = '', dims = ?, slot = 1 - slot, generation = generation + 1 where id = ? and next = ?", dims, collection, model)
	})
	if err != nil {
		return err
	}
	k.slabs.forget(collection)
	return nil
}

// Changing lists collections that move to another model.
func (k *Keeper) Changing(ctx context.Context) ([]documents.Collection, error) {
	return k.collections(ctx, "next <> '' order by id")
}
