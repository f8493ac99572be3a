package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"onebit/store/documents"
	"onebit/store/sqlite"
)

// Words of one collection are in the table words_N, N being the collection's
// number. The table has no copy of the text; with it is deleted what was added.
const (
	maxTerms  = 12 // of a query that are looked for
	minCommon = 1000
	common    = 20  // a term in more than one passage of so many says little
	most      = 2.2 // what BM25 gives at most for a term, but for its rarity: k1 + 1
)

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

func numberOf(ctx context.Context, t *sqlite.Tx, collection string) (n int64, err error) {
	return n, t.Scan(ctx, "select n from collections where id = ?", []any{collection}, &n)
}

// body is one passage's text for the index.
type body struct {
	id         int64
	path, text string
}

func bodies(ctx context.Context, t *sqlite.Tx, a attachment) ([]body, error) {
	rows, err := t.Query(ctx, "select id, path, text from passages where attachment = ? order by id", a.n)
	return sqlite.Collect(rows, err, func(r sqlite.Row) (body, error) {
		var b body
		var path []string
		var raw, text string
		err := r.Scan(&b.id, &raw, &text)
		if err == nil {
			err = json.Unmarshal([]byte(raw), &path)
		}
		b.path, b.text = documents.Searchable(strings.Join(path, "\n")), documents.Searchable(text)
		return b, err
	})
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

// Words finds passages of one collection by words.
func (k *Keeper) Words(ctx context.Context, by documents.Reader, collection, query string, filter documents.Filter, limit int) ([]documents.Scored, error) {
	var n int64
	err := k.db.Scan(ctx, "select n from collections where id = ? and "+seen, []any{collection, by.All, by.Person, by.Person}, &n)
	if err != nil {
		return nil, meaning(err)
	}
	runs, filtered, err := k.allowed(ctx, collection, filter)
	if err != nil || filtered && len(runs) == 0 {
		return nil, err
	}
	w, err := k.match(ctx, collection, n, quoted(documents.Terms(query)))
	if err != nil || w.match == "" || limit < 1 {
		return nil, err
	}
	rows, err := k.db.Query(ctx, fmt.Sprintf("select rowid, -rank from words_%[1]d where words_%[1]d match ? order by rank, rowid", n), w.match)
	if missing(err) { // deleted since
		return nil, documents.ErrNotFound
	}
	if err != nil {
		return nil, meaning(err)
	}
	defer rows.Close()
	var out []documents.Scored
	for len(out) < limit && rows.Next() {
		var s documents.Scored
		if err := rows.Scan(&s.ID, &s.Score); err != nil {
			return nil, meaning(err)
		}
		s.Share = min(1, s.Score/w.weight)
		if !filtered || within(runs, s.ID) {
			out = append(out, s)
		}
	}
	return out, meaning(rows.Err())
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

// match picks the terms that say something: those in few passages, at most
// maxTerms; where all are common, the three rarest. A term that is nowhere has
// half its weight: the question may be put in words of its own, or in another
// language, and then no passage has all of it.
func (k *Keeper) match(ctx context.Context, collection string, n int64, all []string) (wanted, error) {
	if len(all) == 0 {
		return wanted{}, nil
	}
	var passages int64
	err := k.db.Scan(ctx, "select coalesce(sum(chunks), 0) from attachments where collection = ? and status = 'completed'", []any{collection}, &passages)
	if err != nil {
		return wanted{}, meaning(err)
	}
	limit := max(minCommon, passages/common)
	type counted struct {
		term string
		n    int64
	}
	var absent float64
	var rare, rest []counted
	query := fmt.Sprintf("select count(*) from (select 1 from words_%d where words_%d match ? limit ?)", n, n)
	for _, t := range all {
		c := counted{term: t}
		err := k.db.Scan(ctx, query, []any{t, limit + 1}, &c.n)
		switch {
		case missing(err):
			return wanted{}, documents.ErrNotFound
		case err != nil:
			return wanted{}, meaning(err)
		case c.n == 0:
			absent += rarity(0, passages) / 2
		case c.n > limit:
			rest = append(rest, c)
		default:
			rare = append(rare, c)
		}
	}
	if len(rare) == 0 {
		rare = rest[:min(len(rest), 3)]
	}
	slices.SortStableFunc(rare, func(a, b counted) int { return cmp.Compare(a.n, b.n) })
	bound := maxTerms
	if passages <= limit {
		bound *= 4 // it costs little
	}
	w := wanted{weight: most * absent}
	var out []string
	for _, c := range rare[:min(len(rare), bound)] {
		out = append(out, c.term)
		w.weight += most * rarity(c.n, passages)
	}
	w.match = strings.Join(out, " OR ")
	return w, nil
}

// rarity is the weight of a term that so many of all passages have.
func rarity(n, all int64) float64 {
	return math.Log1p((max(0, float64(all-n)) + 0.5) / (float64(n) + 0.5))
}

func missing(err error) bool {
	return err != nil && !errors.Is(err, sqlite.ErrNotFound) && strings.Contains(err.Error(), "no such table")
}
