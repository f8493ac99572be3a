// Package postgres keeps the document store in PostgreSQL with pgvector, for
// those who have outgrown one machine or already run it.
//
// Words are found by PostgreSQL's own text search, whose scores are no BM25 but
// serve the same end: an order that is joined with that of vectors. Vectors are
// compared exactly. What is deleted goes as PostgreSQL lets it go: it is out of
// every answer at once, and off the disk with the next vacuum.
package postgres

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"onebit/store/documents"
)

//go:embed schema.sql
var schema string

// version is the schema's.
const version = 1

// Config says which database.
type Config struct {
	DSN    string // as libpq takes it: a URL, or key=value pairs
	Schema string // in the database; "" for onebit
	Clock  func() time.Time
}

// Keeper is a documents.Keeper.
type Keeper struct {
	pool *pgxpool.Pool
	now  func() time.Time
}

var _ documents.Keeper = (*Keeper)(nil)

// lockNumber keeps two boxes from making the tables at once.
const lockNumber = 0x1b17d0c5

// Open connects, and makes the tables where there are none. The database needs
// the extension vector, which a superuser may have to create.
func Open(ctx context.Context, c Config) (*Keeper, error) {
	cfg, err := pgxpool.ParseConfig(c.DSN)
	if err != nil {
		return nil, errors.New("the DSN of PostgreSQL cannot be read") // the error would quote the password
	}
	if c.Schema == "" {
		c.Schema = "onebit"
	}
	cfg.ConnConfig.RuntimeParams["search_path"] = pgx.Identifier{c.Schema}.Sanitize() + ", public"
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connecting to PostgreSQL: %w", err)
	}
	k := &Keeper{pool: pool, now: c.Clock}
	if k.now == nil {
		k.now = time.Now
	}
	if err := k.prepare(ctx, c.Schema); err != nil {
		pool.Close()
		return nil, fmt.Errorf("preparing PostgreSQL: %w", err)
	}
	return k, nil
}

func (k *Keeper) prepare(ctx context.Context, name string) error {
	return k.write(ctx, func(t pgx.Tx) error {
		if _, err := t.Exec(ctx, "select pg_advisory_xact_lock($1)", lockNumber); err != nil {
			return err
		}
		if _, err := t.Exec(ctx, "create extension if not exists vector schema public"); err != nil {
			return fmt.Errorf("the extension vector (pgvector) is needed: %w", err)
		}
		for _, q := range []string{"create schema if not exists " + pgx.Identifier{name}.Sanitize(),
			"create table if not exists schema_version (version integer not null)"} {
			if _, err := t.Exec(ctx, q); err != nil {
				return err
			}
		}
		var have int
		err := t.QueryRow(ctx, "select version from schema_version").Scan(&have)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			if _, err := t.Exec(ctx, schema); err != nil {
				return err
			}
			_, err := t.Exec(ctx, "insert into schema_version values ($1)", version)
			return err
		case err != nil:
			return err
		case have > version:
			return fmt.Errorf("its tables are of version %d, this program knows %d", have, version)
		}
		return nil
	})
}

// Close closes the connections.
func (k *Keeper) Close() error {
	k.pool.Close()
	return nil
}

// write runs f in a transaction, and gives errors their meaning. A transaction
// that others got in the way of is tried again.
func (k *Keeper) write(ctx context.Context, f func(pgx.Tx) error) error {
	var err error
	for range 5 {
		err = pgx.BeginFunc(ctx, k.pool, f)
		var e *pgconn.PgError
		if !errors.As(err, &e) || e.Code != "40001" && e.Code != "40P01" {
			break
		}
	}
	return meaning(err)
}

func meaning(err error) error {
	var e *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgx.ErrNoRows):
		return documents.ErrNotFound
	case !errors.As(err, &e):
		if strings.Contains(err.Error(), "closed pool") { // the library's library has the value
			return documents.ErrClosed
		}
		return err
	}
	kind := map[string]error{"23505": documents.ErrConflict, "23503": documents.ErrNotFound, "23514": documents.ErrInvalid,
		"22021": documents.ErrInvalid, "22P05": documents.ErrInvalid, "53100": documents.ErrFull}[e.Code]
	if kind == nil {
		return err
	}
	return fmt.Errorf("%w (%w)", kind, err)
}

// querier is the pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// one runs a statement that must touch at least one row.
func one(ctx context.Context, t pgx.Tx, sql string, args ...any) error {
	tag, err := t.Exec(ctx, sql, args...)
	if err == nil && tag.RowsAffected() == 0 {
		err = documents.ErrNotFound
	}
	return err
}

func stamp(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func moment(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func toJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps of texts, numbers and booleans, which were checked
	}
	return string(b)
}
