package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"onebit/store/documents"
	"onebit/store/documents/words"
	"onebit/store/sqlite"
)

// Words of one collection are in the table words_N, N being the collection's
// number. The table has no copy of the text; with it is deleted what was added.

func createWords(ctx context.Context, t *sqlite.Tx, n int64) error {
	err := t.Once(ctx, fmt.Sprintf("create virtual table words_%d using fts5(path, body, content='', tokenize='porter unicode61 remove_diacritics 2')", n))
	if err != nil {
		return err
	}
	// headings and the document's name say what a passage is about
	if err := t.Once(ctx, fmt.Sprintf("insert into words_%[1]d (words_%[1]d, rank) values ('rank', 'bm25(2.0, 1.0)')", n)); err != nil {
		return err
	}
	// what is deleted is taken out of the index at once
	return t.Once(ctx, fmt.Sprintf("insert into words_%[1]d (words_%[1]d, rank) values ('secure-delete', 1)", n))
}

// renewWords makes tables of words anew that an earlier program made in another
// form, from the passages, which are the truth.
func (k *Keeper) renewWords(ctx context.Context) error {
	rows, err := k.db.QueryOnce(ctx, `select c.n, c.id from collections c left join sqlite_master m on m.type = 'table' and m.name = 'words_' || c.n
		where m.sql is null or instr(m.sql, 'fts5(path, body,') = 0`)
	type old struct {
		n  int64
		id string
	}
	list, err := sqlite.Collect(rows, err, func(r sqlite.Row) (o old, err error) { return o, r.Scan(&o.n, &o.id) })
	if err != nil {
		return meaning(err)
	}
	for _, o := range list {
		err := k.write(ctx, func(t *sqlite.Tx) error {
			if err := t.Once(ctx, fmt.Sprintf("drop table if exists words_%d", o.n)); err != nil {
				return err
			}
			if err := createWords(ctx, t, o.n); err != nil {
				return err
			}
			all, err := attachments(ctx, t, "collection = ? and status = 'completed'", o.id)
			for _, a := range all {
				if err := addWords(ctx, t, a); err != nil {
					return err
				}
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("making the words of collection %s anew: %w", o.id, err)
		}
	}
	return nil
}

func numberOf(ctx context.Context, t *sqlite.Tx, collection string) (n int64, err error) {
	return n, t.Scan(ctx, "select n from collections where id = ?", []any{collection}, &n)
}

// body is one passage's text for the indexes.
type body struct {
	id         int64
	path, text string
}

func bodies(ctx context.Context, t *sqlite.Tx, a attachment) ([]body, error) {
	rows, err := t.Query(ctx, "select id, path, text from passages where attachment = ? order by id", a.n)
	return sqlite.Collect(rows, err, scanBody)
}

func addWords(ctx context.Context, t *sqlite.Tx, a attachment) error {
	return eachWords(ctx, t, a, "insert into words_%d (rowid, path, body) values (?, ?, ?)")
}

func removeWords(ctx context.Context, t *sqlite.Tx, a attachment) error {
	return eachWords(ctx, t, a, "insert into words_%[1]d (words_%[1]d, rowid, path, body) values ('delete', ?, ?, ?)")
}

func eachWords(ctx context.Context, t *sqlite.Tx, a attachment, query string) error {
	n, err := numberOf(ctx, t, a.Collection)
	if err != nil {
		return err
	}
	list, err := bodies(ctx, t, a)
	if err != nil {
		return err
	}
	query = fmt.Sprintf(query, n)
	for _, b := range list {
		if err := t.Once(ctx, query, b.id, b.path, b.text); err != nil {
			return err
		}
	}
	return nil
}

// asked is a question as both indexes of words take it.
type asked struct {
	number   int64 // of the collection
	terms    []string
	runs     [][2]int64 // of passages that may be found
	filtered bool       // whether only those may
	limit    int
}

// Words finds passages of one collection by words.
func (k *Keeper) Words(ctx context.Context, by documents.Reader, collection, query string, filter *documents.Filter, limit int) ([]documents.Scored, error) {
	var generation int64
	a := asked{terms: documents.Terms(query), limit: limit}
	err := k.db.Scan(ctx, "select n, generation from collections where id = ? and "+seen, []any{collection, by.All, by.Person, by.Person}, &a.number, &generation)
	if err != nil {
		return nil, meaning(err)
	}
	if len(a.terms) == 0 || limit < 1 {
		return nil, nil
	}
	if a.runs, a.filtered, err = k.allowed(ctx, collection, generation, filter); err != nil || a.filtered && len(a.runs) == 0 {
		return nil, err
	}
	many, err := k.many(ctx, collection)
	if err != nil {
		return nil, err
	}
	if many {
		if index := k.slabs.wordsOf(collection, generation); index != nil {
			return k.ranked(ctx, index, a)
		}
	}
	return k.stored(ctx, collection, a)
}

// many tells collections whose words are worth to be in memory. It looks at no
// more than it must.
func (k *Keeper) many(ctx context.Context, collection string) (bool, error) {
	var n int64
	err := k.db.Scan(ctx, "select coalesce(sum(chunks), 0) from (select chunks from attachments where collection = ? and status = 'completed' limit ?)",
		[]any{collection, fewPassages}, &n)
	return n >= fewPassages, meaning(err)
}

// stored finds passages by FTS5.
func (k *Keeper) stored(ctx context.Context, collection string, a asked) ([]documents.Scored, error) {
	var passages int64
	err := k.db.Scan(ctx, "select coalesce(sum(chunks), 0) from attachments where collection = ? and status = 'completed'", []any{collection}, &passages)
	if err != nil {
		return nil, meaning(err)
	}
	w, err := k.match(ctx, a.number, passages, quoted(a.terms), true)
	if err != nil || w.match == "" {
		return nil, err
	}
	rows, err := k.db.Query(ctx, fmt.Sprintf("select rowid, -rank from words_%[1]d where words_%[1]d match ? order by rank, rowid", a.number), w.match)
	if missing(err) { // deleted since
		return nil, documents.ErrNotFound
	}
	if err != nil {
		return nil, meaning(err)
	}
	defer rows.Close()
	var out []documents.Scored
	for len(out) < a.limit && rows.Next() {
		var s documents.Scored
		if err := rows.Scan(&s.ID, &s.Score); err != nil {
			return nil, meaning(err)
		}
		s.Share = min(1, s.Score/w.weight)
		if !a.filtered || within(a.runs, s.ID) {
			out = append(out, s)
		}
	}
	return out, meaning(rows.Err())
}

// phrases are the scores of passages that have any of some phrases, in no order.
func (k *Keeper) phrases(ctx context.Context, n int64, match string) ([]words.Hit, error) {
	if match == "" {
		return nil, nil
	}
	rows, err := k.db.Query(ctx, fmt.Sprintf("select rowid, -rank from words_%[1]d where words_%[1]d match ?", n), match)
	if missing(err) {
		return nil, documents.ErrNotFound
	}
	list, err := sqlite.Collect(rows, err, func(r sqlite.Row) (h words.Hit, err error) { return h, r.Scan(&h.ID, &h.Score) })
	return list, meaning(err)
}

// within tells whether an id is in one of some ascending runs.
func within(runs [][2]int64, id int64) bool {
	i, found := slices.BinarySearchFunc(runs, id, func(run [2]int64, id int64) int { return cmp.Compare(run[0], id) })
	return found || i > 0 && id <= runs[i-1][1]
}

// quoted makes strings of FTS5 of terms, which hold no quotes.
func quoted(terms []string) []string {
	for i, t := range terms {
		terms[i] = `"` + t + `"`
	}
	return terms
}

// wanted is what a query looks for.
type wanted struct {
	match  string  // an expression
	weight float64 // the best score that a passage can have
}

// match picks the terms that say something.
func (k *Keeper) match(ctx context.Context, n, passages int64, all []string, must bool) (wanted, error) {
	counted := make([]documents.Counted, len(all))
	query := fmt.Sprintf("select count(*) from (select 1 from words_%d where words_%d match ? limit ?)", n, n)
	for i, t := range all {
		counted[i].Term = t
		err := k.db.Scan(ctx, query, []any{t, documents.Common(passages) + 1}, &counted[i].Passages)
		switch {
		case missing(err):
			return wanted{}, documents.ErrNotFound
		case err != nil:
			return wanted{}, meaning(err)
		}
	}
	picked, absent := documents.Pick(counted, passages, must)
	w := wanted{weight: absent}
	var out []string
	for _, c := range picked {
		out = append(out, c.Term)
		w.weight += documents.Weight(c.Passages, passages)
	}
	w.match = strings.Join(out, " OR ")
	return w, nil
}

func missing(err error) bool {
	return err != nil && !errors.Is(err, sqlite.ErrNotFound) && strings.Contains(err.Error(), "no such table")
}
