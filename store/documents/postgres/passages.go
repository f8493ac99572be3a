package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/jackc/pgx/v5"
	"golang.org/x/text/unicode/norm"

	"onebit/store/documents"
	"onebit/store/documents/chunk"
)

// plain is a text as the index of words takes it: without the marks above and
// below letters, which people leave out when they search, and with nothing but
// spaces between words, or PostgreSQL would take "E-17" for a letter and a
// negative number, and "example.org" for one word.
func plain(text string) string {
	bare := strings.Map(func(r rune) rune {
		switch {
		case unicode.Is(unicode.Mn, r) && r < 0x370: // those of Latin letters
			return -1
		case unicode.IsLetter(r), unicode.IsDigit(r), unicode.IsMark(r):
			return r
		}
		return ' '
	}, norm.NFD.String(text))
	return documents.Searchable(norm.NFC.String(bare))
}

// open returns an attachment that is in progress, held until the transaction
// ends.
func open(ctx context.Context, t pgx.Tx, collection, file string) (attachment, error) {
	list, err := attachments(ctx, t, "collection = $1 and file = $2 for update", collection, file)
	switch {
	case err != nil:
		return attachment{}, err
	case len(list) == 0:
		return attachment{}, documents.ErrNotFound
	case list[0].Status != documents.InProgress:
		return attachment{}, fmt.Errorf("%w: the file is %s", documents.ErrConflict, list[0].Status)
	}
	return list[0], nil
}

// Cut stores an attachment's chunks.
func (k *Keeper) Cut(ctx context.Context, collection, file string, pages int, chunks []chunk.Chunk) error {
	return k.write(ctx, func(t pgx.Tx) error {
		a, err := open(ctx, t, collection, file)
		if err != nil {
			return err
		}
		if err := forget(ctx, t, a.n); err != nil {
			return err
		}
		var b pgx.Batch
		bytes := 0
		for i, c := range chunks {
			if c.Path == nil {
				c.Path = []string{}
			}
			text := strings.ReplaceAll(c.Text, "\x00", "")
			b.Queue("insert into passages (attachment, ordinal, path, text, page, start, stop, tokens, words) values ($1, $2, $3, $4, $5, $6, $7, $8, setweight(to_tsvector('words', $9), 'A') || to_tsvector('words', $10))",
				a.n, i, c.Path, text, c.Page, c.Start, c.End, c.Tokens, plain(strings.Join(c.Path, "\n")), plain(c.Text))
			bytes += len(text)
		}
		if err := t.SendBatch(ctx, &b).Close(); err != nil {
			return err
		}
		_, err = t.Exec(ctx, "update attachments set chunks = $1, embedded = 0, bytes = $2, pages = $3 where n = $4", len(chunks), bytes, pages, a.n)
		return err
	})
}

// slotOf returns in which of the two places vectors of a model stand.
func slotOf(ctx context.Context, q querier, collection, model, lock string) (int, error) {
	var slot int
	var shown, next string
	if err := q.QueryRow(ctx, "select slot, model, next from collections where id = $1"+lock, collection).Scan(&slot, &shown, &next); err != nil {
		return 0, err
	}
	return documents.Slot(slot, shown, next, model)
}

// Bare lists passages without a vector of a model.
func (k *Keeper) Bare(ctx context.Context, collection, file, model string, limit int) ([]documents.Text, error) {
	slot, err := slotOf(ctx, k.pool, collection, model, "")
	if err != nil {
		return nil, meaning(err)
	}
	rows, err := k.pool.Query(ctx, `select p.id, p.path, p.text from passages p join attachments a on a.n = p.attachment
		where a.collection = $1 and a.file = $2 and not exists (select 1 from vectors v where v.passage = p.id and v.slot = $3) order by p.id limit $4`,
		collection, file, slot, limit)
	if err != nil {
		return nil, meaning(err)
	}
	list, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (documents.Text, error) {
		var t documents.Text
		var c chunk.Chunk
		err := r.Scan(&t.ID, &c.Path, &c.Text)
		t.Text = c.Embedded()
		return t, err
	})
	return list, meaning(err)
}

// Vectors returns those of a file in a collection that are searched.
func (k *Keeper) Vectors(ctx context.Context, collection, file string) ([]documents.Vector, error) {
	rows, err := k.pool.Query(ctx, `select p.id, v.vector::real[] from collections c join attachments a on a.collection = c.id join passages p on p.attachment = a.n
		join vectors v on v.passage = p.id and v.slot = c.slot where c.id = $1 and a.file = $2 order by p.id`, collection, file)
	if err != nil {
		return nil, meaning(err)
	}
	list, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (documents.Vector, error) {
		var v documents.Vector
		return v, r.Scan(&v.ID, &v.Vector)
	})
	return list, meaning(err)
}

// Embed stores vectors.
func (k *Keeper) Embed(ctx context.Context, model string, vectors []documents.Vector) error {
	return k.write(ctx, func(t pgx.Tx) error {
		slots := map[string]int{}
		for _, v := range vectors {
			var collection string
			var n int64
			err := t.QueryRow(ctx, "select a.collection, a.n from passages p join attachments a on a.n = p.attachment where p.id = $1", v.ID).Scan(&collection, &n)
			if errors.Is(err, pgx.ErrNoRows) {
				continue // deleted while it was embedded
			}
			if err != nil {
				return err
			}
			slot, ok := slots[collection]
			if !ok {
				if slot, err = slotOf(ctx, t, collection, model, " for update"); err != nil {
					return err
				}
				// the first vectors say whose all are: a model that comes before the file is complete must not add to them
				if _, err := t.Exec(ctx, "update collections set model = $1, dims = $2 where id = $3 and model = ''", model, len(v.Vector), collection); err != nil {
					return err
				}
				slots[collection] = slot
			}
			tag, err := t.Exec(ctx, "insert into vectors (passage, slot, vector) select $1, $2, $3::real[]::vector where exists (select 1 from passages where id = $1) on conflict do nothing", v.ID, slot, v.Vector)
			if err != nil {
				return err
			}
			_, err = t.Exec(ctx, "update attachments set embedded = embedded + $1, bytes = bytes + $2 where n = $3 and status = 'in_progress'", tag.RowsAffected(), tag.RowsAffected()*int64(4*len(v.Vector)), n)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Complete makes an attachment's passages findable.
func (k *Keeper) Complete(ctx context.Context, collection, file, model string, dims int) error {
	return k.write(ctx, func(t pgx.Tx) error {
		slot, err := slotOf(ctx, t, collection, model, " for update")
		if err != nil {
			return err
		}
		a, err := open(ctx, t, collection, file)
		if err != nil {
			return err
		}
		var bare int
		err = t.QueryRow(ctx, "select count(*) from passages p where attachment = $1 and not exists (select 1 from vectors v where v.passage = p.id and v.slot = $2 and vector_dims(v.vector) = $3)",
			a.n, slot, dims).Scan(&bare)
		if err != nil {
			return err
		}
		if bare > 0 {
			return fmt.Errorf("%w: %d passages have no vector of %q with %d numbers", documents.ErrConflict, bare, model, dims)
		}
		if a.Chunks == 0 { // taken out and put in again meanwhile
			return fmt.Errorf("%w: the file has not been cut", documents.ErrConflict)
		}
		if _, err := t.Exec(ctx, "update attachments set status = 'completed', problem = '' where n = $1", a.n); err != nil {
			return err
		}
		err = one(ctx, t, `update collections set generation = generation + 1, active = $1, dims = case model when '' then $3 else dims end,
			model = case model when '' then $2 else model end where id = $4 and (model in ('', $2) and dims in (0, $3) or next = $2)`, stamp(k.now()), model, dims, collection)
		if errors.Is(err, documents.ErrNotFound) {
			return fmt.Errorf("%w: the collection has vectors of another model or size", documents.ErrConflict)
		}
		return err
	})
}

func (k *Keeper) passages(ctx context.Context, by documents.Reader, where string, args ...any) ([]documents.Passage, error) {
	args = append([]any{by.All, by.Person}, args...)
	rows, err := k.pool.Query(ctx, `select p.id, a.collection, a.file, p.ordinal, p.path, p.text, p.page, p.start, p.stop, p.tokens
		from passages p join attachments a on a.n = p.attachment join collections on collections.id = a.collection
		where a.status = 'completed' and `+seen(1, 2)+" and "+where+" order by p.id", args...)
	if err != nil {
		return nil, meaning(err)
	}
	list, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (documents.Passage, error) {
		var p documents.Passage
		err := r.Scan(&p.ID, &p.Collection, &p.File, &p.Ordinal, &p.Path, &p.Text, &p.Page, &p.Start, &p.End, &p.Tokens)
		return p, err
	})
	return list, meaning(err)
}

// Passages returns those that can be found, in the order of ids.
func (k *Keeper) Passages(ctx context.Context, by documents.Reader, ids []int64) ([]documents.Passage, error) {
	return k.passages(ctx, by, "p.id = any ($3)", ids)
}

// PassagesOf returns those of a file in a collection, in order.
func (k *Keeper) PassagesOf(ctx context.Context, by documents.Reader, collection, file string) ([]documents.Passage, error) {
	if _, err := k.Attachment(ctx, by, collection, file); err != nil {
		return nil, err
	}
	return k.passages(ctx, by, "a.collection = $3 and a.file = $4", collection, file)
}

// scored finds passages with what stands for FILTER in a query.
func (k *Keeper) scored(ctx context.Context, sql string, filter *documents.Filter, args ...any) ([]documents.Scored, error) {
	q := query{args}
	sql = strings.Replace(sql, "FILTER", q.matches(filter), 1)
	rows, err := k.pool.Query(ctx, sql, q.args...)
	if err != nil {
		return nil, meaning(err)
	}
	list, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (s documents.Scored, err error) { return s, r.Scan(&s.ID, &s.Score) })
	return list, meaning(err)
}

// Words finds passages of one collection by words.
func (k *Keeper) Words(ctx context.Context, by documents.Reader, collection, query string, filter *documents.Filter, most int) ([]documents.Scored, error) {
	if _, err := k.Collection(ctx, by, collection); err != nil {
		return nil, err
	}
	var terms []string
	for _, t := range documents.Terms(query) {
		if t = strings.Join(strings.Fields(plain(t)), " "); t != "" {
			terms = append(terms, "'"+t+"'")
		}
	}
	if len(terms) == 0 || most < 1 {
		return nil, nil
	}
	w, err := k.weigh(ctx, collection, terms)
	if err != nil || len(w.terms) == 0 {
		return nil, err
	}
	list, err := k.scored(ctx, ranking, filter, collection, strings.Join(w.terms, " | "), w.terms, w.weights, most)
	for i := range list {
		list[i].Share = min(1, list[i].Score/w.whole)
	}
	return list, err
}

// ranking is near to BM25: ts_rank grows with how often a word is there as BM25
// does with k1 = 1.2, headings counting more, and the length of a passage, beside
// the mean of those found, does the rest.
const ranking = `with t as materialized (select to_tsquery('words', q) as q, weight from unnest($3::text[], $4::float8[]) x (q, weight)),
	found as (select p.id, p.tokens / nullif(avg(p.tokens) over (), 0) as length,
			(select sum(t.weight * ts_rank('{0.75, 0.75, 0.75, 1}', p.words, t.q)) from t where p.words @@ t.q) as score
		from passages p join attachments a on a.n = p.attachment
		where a.collection = $1 and a.status = 'completed' and FILTER and p.words @@ to_tsquery('words', $2))
	select id, (score * 2.2 / (1.3 + 0.9 * coalesce(length, 1)))::float8 as score from found order by score desc, id limit $5`

// weighed is what of a question is looked for.
type weighed struct {
	terms   []string
	weights []float64
	whole   float64 // the best score that a passage can have
}

// weigh picks terms as the other keeper does, by the number of passages that
// have them.
func (k *Keeper) weigh(ctx context.Context, collection string, terms []string) (weighed, error) {
	var passages int64
	err := k.pool.QueryRow(ctx, "select coalesce(sum(chunks), 0)::bigint from attachments where collection = $1 and status = 'completed'", collection).Scan(&passages)
	if err != nil {
		return weighed{}, meaning(err)
	}
	limit := documents.Common(passages)
	rows, err := k.pool.Query(ctx, `select x.q, (select count(*) from (select 1 from passages p join attachments a on a.n = p.attachment
			where a.collection = $1 and a.status = 'completed' and p.words @@ to_tsquery('words', x.q) limit $3) few) from unnest($2::text[]) with ordinality x (q, i) order by i`,
		collection, terms, limit+1)
	if err != nil {
		return weighed{}, meaning(err)
	}
	counted, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (c documents.Counted, err error) { return c, r.Scan(&c.Term, &c.Passages) })
	if err != nil {
		return weighed{}, meaning(err)
	}
	picked, absent := documents.Pick(counted, passages, true)
	w := weighed{whole: absent}
	for _, c := range picked {
		weight := documents.Weight(c.Passages, passages)
		w.terms, w.weights, w.whole = append(w.terms, c.Term), append(w.weights, weight), w.whole+weight
	}
	return w, nil
}

// Near finds passages by vectors.
func (k *Keeper) Near(ctx context.Context, by documents.Reader, collection, model string, v []float32, filter *documents.Filter, most int) ([]documents.Scored, error) {
	c, err := k.Collection(ctx, by, collection)
	if err != nil {
		return nil, err
	}
	if some, err := c.Near(model); err != nil || !some {
		return nil, err
	}
	if len(v) != c.Dims {
		return nil, fmt.Errorf("%w: the vector has %d numbers, those of the collection %d", documents.ErrInvalid, len(v), c.Dims)
	}
	if most < 1 {
		return nil, nil
	}
	return k.scored(ctx, `select p.id, 1 - (v.vector <=> $1::real[]::vector) as score from collections c join attachments a on a.collection = c.id join passages p on p.attachment = a.n
		join vectors v on v.passage = p.id and v.slot = c.slot
		where c.id = $2 and c.model = $3 and a.status = 'completed' and FILTER order by v.vector <=> $1::real[]::vector, p.id limit $4`,
		filter, v, collection, model, most)
}

const ofCollection = "(select p.id from passages p join attachments a on a.n = p.attachment where a.collection = $1)"

// Change begins to move a collection to another model.
func (k *Keeper) Change(ctx context.Context, collection, model string) error {
	return k.write(ctx, func(t pgx.Tx) error {
		var shown, next string
		if err := t.QueryRow(ctx, "select model, next from collections where id = $1 for update", collection).Scan(&shown, &next); err != nil {
			return err
		}
		if shown == "" || next == model || shown == model && next == "" {
			return nil
		}
		_, err := t.Exec(ctx, "delete from vectors where slot = (select 1 - slot from collections where id = $1) and passage in "+ofCollection, collection)
		if err != nil {
			return err
		}
		if next != "" { // of a change that is given up: files that came meanwhile, and have no others, are work for the queue again
			_, err := t.Exec(ctx, `update attachments set status = 'in_progress', (embedded, bytes) =
				(select count(v.passage), sum(octet_length(p.text)) + 4 * coalesce(sum(vector_dims(v.vector)), 0) from passages p
				join collections c on c.id = attachments.collection left join vectors v on v.passage = p.id and v.slot = c.slot where p.attachment = attachments.n)
				where collection = $1 and status in ('completed', 'in_progress') and exists (select 1 from passages p join collections c on c.id = attachments.collection
				where p.attachment = attachments.n and not exists (select 1 from vectors v where v.passage = p.id and v.slot = c.slot))`, collection)
			if err != nil {
				return err
			}
			if _, err := t.Exec(ctx, "update collections set generation = generation + 1 where id = $1", collection); err != nil {
				return err
			}
		}
		if shown == model {
			model = ""
		}
		return one(ctx, t, "update collections set next = $2 where id = $1", collection, model)
	})
}

// Changed shows the vectors of the new model, and drops the old one's.
func (k *Keeper) Changed(ctx context.Context, collection, model string, dims int) error {
	return k.write(ctx, func(t pgx.Tx) error {
		var slot int
		if err := t.QueryRow(ctx, "select slot from collections where id = $1 for update", collection).Scan(&slot); err != nil {
			return err
		}
		var bare int
		err := t.QueryRow(ctx, `select count(*) from passages p join attachments a on a.n = p.attachment
			where a.collection = $1 and a.status = 'completed' and not exists (select 1 from vectors v where v.passage = p.id and v.slot = $2 and vector_dims(v.vector) = $3)`,
			collection, 1-slot, dims).Scan(&bare)
		if err != nil {
			return err
		}
		if bare > 0 {
			return fmt.Errorf("%w: %d passages have no vector of %q yet", documents.ErrConflict, bare, model)
		}
		if _, err := t.Exec(ctx, "delete from vectors where slot = $2 and passage in "+ofCollection, collection, slot); err != nil {
			return err
		}
		return one(ctx, t, "update collections set model = next, next = '', dims = $2, slot = 1 - slot, generation = generation + 1 where id = $1 and next = $3", collection, dims, model)
	})
}

// Changing lists collections that move to another model.
func (k *Keeper) Changing(ctx context.Context) ([]documents.Collection, error) {
	return k.collections(ctx, "next <> '' order by id")
}
