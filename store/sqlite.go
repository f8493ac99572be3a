package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"onebit/store/sqlite"
)

// querier is what reading needs: the readers, or the writer within a transaction.
type querier interface {
	Query(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	Row(ctx context.Context, query string, args ...any) *sql.Row
}

// txn is a running write transaction.
type txn struct {
	*sqlite.Tx
	now    time.Time
	access bool // something changed that decides who may do what
}

// write runs f in a transaction and gives errors their meaning.
func (s *Store) write(ctx context.Context, f func(t *txn) error) error {
	if s.closed.Load() {
		return ErrClosed
	}
	t := txn{now: s.now()}
	err := s.w.Transact(ctx, func(tx *sqlite.Tx) error {
		t.Tx = tx
		return f(&t)
	})
	if err != nil {
		err = s.meaning(err)
		if errors.Is(err, ErrFull) {
			s.full.Store(true)
		}
		return err
	}
	s.full.Store(false)
	if t.access {
		s.access.broadcast()
	}
	return nil
}

// meaning turns SQLite's codes into the errors that callers branch on.
func (s *Store) meaning(err error) error {
	if err == nil {
		return nil
	}
	if s.closed.Load() {
		return ErrClosed
	}
	return meaning(err)
}

func meaning(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return ErrNotFound
	}
	if kind := sqlite.Kind(err); kind != nil {
		return fmt.Errorf("%w (%w)", named(kind), err)
	}
	return err
}

// named gives a kind of package sqlite this package's own name.
func named(kind error) error {
	switch {
	case errors.Is(kind, sqlite.ErrInvalid):
		return ErrInvalid
	case errors.Is(kind, sqlite.ErrCorrupt):
		return ErrCorrupt
	}
	return kind
}

// check asks SQLite whether the structure of a database holds. All it finds wrong is ErrCorrupt.
func check(ctx context.Context, q interface {
	Row(ctx context.Context, query string, args ...any) *sql.Row
}) error {
	var said string
	if err := q.Row(ctx, "pragma quick_check(1)").Scan(&said); err != nil {
		return meaning(err)
	}
	if said != "ok" {
		return fmt.Errorf("%w: %s", ErrCorrupt, said)
	}
	return nil
}

// syncDir makes renames in a folder last.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // a folder cannot be synced there
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// fold is the form in which names are compared.
func fold(name string) string { return strings.ToLower(name) }
