package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"onebit/store/documents"
	"onebit/store/documents/chunk"
	"onebit/store/sqlite"
)

// Words of one collection are in the table words_N, N being the collection's
// number. The table has no copy of the text; with it is deleted what was added.
const (
	maxTerms  = 12 // of a query that are looked for
	minCommon = 200
	common    = 20 // a term in more than one passage of so many says little
)

func createWords(ctx context.Context, t *sqlite.Tx, n int64) error {
	err := t.Once(ctx, fmt.Sprintf("create virtual table words_%d using fts5(body, content='', tokenize='porter unicode61 remove_diacritics 2')", n))
	if err != nil {
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
	id   int64
	text string
}

func bodies(ctx context.Context, t *sqlite.Tx, a attachment) ([]body, error) {
	rows, err := t.Query(ctx, "select id, path, text from passages where attachment = ? order by id", a.n)
	return sqlite.Collect(rows, err, func(r sqlite.Row) (body, error) {
		var b body
		var c chunk.Chunk
		var path string
		err := r.Scan(&b.id, &path, &c.Text)
		if err == nil {
			err = json.Unmarshal([]byte(path), &c.Path)
		}
		b.text = documents.Searchable(c.Embedded())
		return b, err
	})
}

func addWords(ctx context.Context, t *sqlite.Tx, a attachment) error {
	return eachWords(ctx, t, a, "insert into words_%d (rowid, body) values (?, ?)")
}

func removeWords(ctx context.Context, t *sqlite.Tx, a attachment) error {
	return eachWords(ctx, t, a, "insert into words_%[1]d (words_%[1]d, rowid, body) values ('delete', ?, ?)")
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
		if err := t.Once(ctx, query, b.id, b.text); err != nil {
			return err
		}
	}
	return nil
}

// Words finds passages of one collection by words.
func (k *Keeper) Words(ctx context.Context, by documents.Reader, collection, query string, filter documents.Filter, most int) ([]documents.Scored, error) {
	var n int64
	err := k.db.Scan(ctx, "select n from collections where id = ? and "+seen, []any{collection, by.All, by.Person, by.Person}, &n)
	if err != nil {
		return nil, meaning(err)
	}
	runs, filtered, err := k.allowed(ctx, collection, filter)
	if err != nil || filtered && len(runs) == 0 {
		return nil, err
	}
	match, err := k.match(ctx, collection, n, quoted(documents.Terms(query)))
	if err != nil || match == "" || most < 1 {
		return nil, err
	}
	rows, err := k.db.Query(ctx, fmt.Sprintf("select rowid, -rank from words_%[1]d where words_%[1]d match ? order by rank, rowid", n), match)
	if missing(err) { // deleted since
		return nil, documents.ErrNotFound
	}
	if err != nil {
		return nil, meaning(err)
	}
	defer rows.Close()
	var out []documents.Scored
	for len(out) < most && rows.Next() {
		var s documents.Scored
		if err := rows.Scan(&s.ID, &s.Score); err != nil {
			return nil, meaning(err)
		}
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

// match is the expression for the terms that say something: those in few
// passages, at most maxTerms; where all are common, the three rarest.
func (k *Keeper) match(ctx context.Context, collection string, n int64, all []string) (string, error) {
	if len(all) == 0 {
		return "", nil
	}
	var passages int64
	err := k.db.Scan(ctx, "select coalesce(sum(chunks), 0) from attachments where collection = ? and status = 'completed'", []any{collection}, &passages)
	if err != nil {
		return "", meaning(err)
	}
	limit := max(minCommon, passages/common)
	if passages <= limit {
		return strings.Join(all[:min(len(all), 4*maxTerms)], " OR "), nil
	}
	type counted struct {
		term string
		n    int64
	}
	var rare, rest []counted
	query := fmt.Sprintf("select count(*) from (select 1 from words_%d where words_%d match ? limit ?)", n, n)
	for _, t := range all {
		c := counted{term: t}
		err := k.db.Scan(ctx, query, []any{t, limit + 1}, &c.n)
		switch {
		case missing(err):
			return "", documents.ErrNotFound
		case err != nil:
			return "", meaning(err)
		case c.n == 0:
		case c.n > limit:
			rest = append(rest, c)
		default:
			rare = append(rare, c)
		}
	}
	if len(rare) == 0 {
		rare = rest[:min(len(rest), 3)]
	}
	var out []string
	for _, c := range rare[:min(len(rare), maxTerms)] {
		out = append(out, c.term)
	}
	return strings.Join(out, " OR "), nil
}

func missing(err error) bool {
	return err != nil && !errors.Is(err, sqlite.ErrNotFound) && strings.Contains(err.Error(), "no such table")
}
