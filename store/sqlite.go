package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"onebit/store/sqlite"
)

const readers = 4

const (
	// deleted rows are overwritten: an expired prompt must not live on in a free page
	writerOptions = "_journal_mode=WAL&_synchronous=FULL&_busy_timeout=5000&_foreign_keys=on&_txlock=immediate&_defensive=1" +
		"&_pragma=secure_delete(1)&_pragma=fullfsync(1)&_pragma=journal_size_limit(67108864)&_pragma=trusted_schema(0)"
	readerOptions = "_query_only=on&_busy_timeout=5000&_defensive=1&_pragma=cache_size(-16384)&_pragma=trusted_schema(0)"
	plainOptions  = "_busy_timeout=5000&_foreign_keys=on&_defensive=1&_pragma=secure_delete(1)&_pragma=trusted_schema(0)"
)

// querier is what reading needs: the readers, or the writer within a transaction.
type querier interface {
	query(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	row(ctx context.Context, query string, args ...any) *sql.Row
}

// reader is the pool of reading connections, with each statement prepared once.
type reader struct {
	db    *sql.DB
	stmts sync.Map // query -> *sql.Stmt
}

func openReader(path string) (*reader, error) {
	db, err := sql.Open("sqlite", sqlite.DSN(path, readerOptions))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(readers)
	db.SetMaxIdleConns(readers)
	return &reader{db: db}, nil
}

func (r *reader) stmt(ctx context.Context, query string) (*sql.Stmt, error) {
	if st, ok := r.stmts.Load(query); ok {
		return st.(*sql.Stmt), nil
	}
	st, err := r.db.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	if old, loaded := r.stmts.LoadOrStore(query, st); loaded {
		st.Close()
		return old.(*sql.Stmt), nil
	}
	return st, nil
}

func (r *reader) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	st, err := r.stmt(ctx, query)
	if err != nil {
		return nil, err
	}
	return st.QueryContext(ctx, args...)
}

func (r *reader) row(ctx context.Context, query string, args ...any) *sql.Row {
	st, err := r.stmt(ctx, query)
	if err != nil {
		// the same query again gives the caller the same error, in the shape of a row
		return r.db.QueryRowContext(ctx, query, args...)
	}
	return st.QueryRowContext(ctx, args...)
}

func (r *reader) close() error { return r.db.Close() }

// writer is the one connection that changes anything. A transaction holds turn.
type writer struct {
	db    *sql.DB
	conn  *sql.Conn
	turn  chan struct{}
	stmts map[string]*sql.Stmt
}

func openWriter(ctx context.Context, path string) (*writer, error) {
	db, err := sql.Open("sqlite", sqlite.DSN(path, writerOptions))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &writer{db: db, conn: conn, turn: make(chan struct{}, 1), stmts: map[string]*sql.Stmt{}}, nil
}

func (w *writer) close() error {
	w.turn <- struct{}{}
	defer func() { <-w.turn }()
	for _, st := range w.stmts {
		st.Close()
	}
	clear(w.stmts)
	return errors.Join(w.conn.Close(), w.db.Close())
}

// txn is a running write transaction.
type txn struct {
	w      *writer
	now    time.Time
	access bool // something changed that decides who may do what
}

func (t *txn) stmt(ctx context.Context, query string) (*sql.Stmt, error) {
	if st, ok := t.w.stmts[query]; ok {
		return st, nil
	}
	st, err := t.w.conn.PrepareContext(ctx, query)
	if err == nil {
		t.w.stmts[query] = st
	}
	return st, err
}

// exec runs a statement and returns how many rows it touched.
func (t *txn) exec(ctx context.Context, query string, args ...any) (int64, error) {
	st, err := t.stmt(ctx, query)
	if err != nil {
		return 0, err
	}
	r, err := st.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// touchOne runs a statement that must touch one row.
func (t *txn) touchOne(ctx context.Context, query string, args ...any) error {
	n, err := t.exec(ctx, query, args...)
	if err == nil && n == 0 {
		return ErrNotFound
	}
	return err
}

func (t *txn) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	st, err := t.stmt(ctx, query)
	if err != nil {
		return nil, err
	}
	return st.QueryContext(ctx, args...)
}

func (t *txn) row(ctx context.Context, query string, args ...any) *sql.Row {
	st, err := t.stmt(ctx, query)
	if err != nil {
		return t.w.conn.QueryRowContext(ctx, query, args...)
	}
	return st.QueryRowContext(ctx, args...)
}

// transact runs f between begin and commit. What it returns is final: the change is on the disk, or it never happened.
func (w *writer) transact(ctx context.Context, now time.Time, f func(t *txn) error) (access bool, err error) {
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	// neither end may be cut short: a begin that was done and not heard of would leave the writer inside a transaction for
	// ever, and after a commit the caller could not know which it was
	end := context.WithoutCancel(ctx)
	if err := ctx.Err(); err != nil {
		return false, err
	}
	t := &txn{w: w, now: now}
	if _, err := t.exec(end, "begin immediate"); err != nil {
		return false, err
	}
	done := false
	defer func() {
		if !done {
			// SQLite may have rolled back by itself already
			_, _ = t.exec(end, "rollback")
		}
	}()
	if err := f(t); err != nil {
		return false, err
	}
	if _, err := t.exec(end, "commit"); err != nil {
		return false, err
	}
	done = true
	return t.access, nil
}

// write runs f in a transaction and gives errors their meaning.
func (s *Store) write(ctx context.Context, f func(t *txn) error) error {
	if s.closed.Load() {
		return ErrClosed
	}
	access, err := s.w.transact(ctx, s.now(), f)
	if err != nil {
		err = s.meaning(err)
		if errors.Is(err, ErrFull) {
			s.full.Store(true)
		}
		return err
	}
	s.full.Store(false)
	if access {
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
	for _, pair := range [...][2]error{{sqlite.ErrConflict, ErrConflict}, {sqlite.ErrNotFound, ErrNotFound}, {sqlite.ErrInvalid, ErrInvalid}, {sqlite.ErrFull, ErrFull}} {
		if errors.Is(kind, pair[0]) {
			return pair[1]
		}
	}
	return ErrCorrupt
}

// check asks SQLite whether the structure of a database holds. All it finds wrong is ErrCorrupt.
func check(ctx context.Context, q querier) error {
	var said string
	if err := q.row(ctx, "pragma quick_check(1)").Scan(&said); err != nil {
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
