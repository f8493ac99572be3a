package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"os"
)

// deleted rows are overwritten: an expired prompt must not live on in a free page
const writerOptions = "_journal_mode=WAL&_synchronous=FULL&_busy_timeout=5000&_foreign_keys=on&_txlock=immediate&_defensive=1" +
	"&_pragma=secure_delete(1)&_pragma=fullfsync(1)&_pragma=journal_size_limit(67108864)&_pragma=trusted_schema(0)"

// Writer is the one connection that changes anything. A transaction holds turn.
type Writer struct {
	db    *sql.DB
	conn  *sql.Conn
	turn  chan struct{}
	stmts map[string]*sql.Stmt
}

// OpenWriter opens a file for writing, and makes it when there is none.
func OpenWriter(ctx context.Context, path string) (*Writer, error) {
	// for the owner alone; the side files take their mode from it
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", dsn(path, writerOptions))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &Writer{db: db, conn: conn, turn: make(chan struct{}, 1), stmts: map[string]*sql.Stmt{}}, nil
}

// Close waits for a running transaction and closes.
func (w *Writer) Close() error {
	w.turn <- struct{}{}
	defer func() { <-w.turn }()
	for _, st := range w.stmts {
		st.Close()
	}
	clear(w.stmts)
	return errors.Join(w.conn.Close(), w.db.Close())
}

// Once runs statements outside of a transaction. Nobody else may use the writer meanwhile.
func (w *Writer) Once(ctx context.Context, query string, args ...any) error {
	_, err := w.conn.ExecContext(ctx, query, args...)
	return err
}

// Row reads one row outside of a transaction. Nobody else may use the writer meanwhile.
func (w *Writer) Row(ctx context.Context, query string, args ...any) *sql.Row {
	return w.conn.QueryRowContext(ctx, query, args...)
}

// Tx is a running write transaction.
type Tx struct{ w *Writer }

func (t *Tx) stmt(ctx context.Context, query string) (*sql.Stmt, error) {
	if st, ok := t.w.stmts[query]; ok {
		return st, nil
	}
	st, err := t.w.conn.PrepareContext(ctx, query)
	if err == nil {
		t.w.stmts[query] = st
	}
	return st, err
}

func (t *Tx) run(ctx context.Context, query string, args []any) (sql.Result, error) {
	st, err := t.stmt(ctx, query)
	if err != nil {
		return nil, err
	}
	return st.ExecContext(ctx, args...)
}

// Exec runs a statement and returns how many rows it touched.
func (t *Tx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	r, err := t.run(ctx, query, args)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// Insert runs a statement and returns the id of the row that it added.
func (t *Tx) Insert(ctx context.Context, query string, args ...any) (int64, error) {
	r, err := t.run(ctx, query, args)
	if err != nil {
		return 0, err
	}
	return r.LastInsertId()
}

// One runs a statement that must touch at least one row, else ErrNotFound.
func (t *Tx) One(ctx context.Context, query string, args ...any) error {
	n, err := t.Exec(ctx, query, args...)
	if err == nil && n == 0 {
		return ErrNotFound
	}
	return err
}

// Once runs a statement that is not worth keeping prepared.
func (t *Tx) Once(ctx context.Context, query string, args ...any) error {
	return t.w.Once(ctx, query, args...)
}

// Query reads rows inside of the transaction.
func (t *Tx) Query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	st, err := t.stmt(ctx, query)
	if err != nil {
		return nil, err
	}
	return st.QueryContext(ctx, args...)
}

// Row reads one row inside of the transaction.
func (t *Tx) Row(ctx context.Context, query string, args ...any) *sql.Row {
	st, err := t.stmt(ctx, query)
	if err != nil {
		return t.w.conn.QueryRowContext(ctx, query, args...)
	}
	return st.QueryRowContext(ctx, args...)
}

// Scan reads one row inside of the transaction; none is ErrNotFound.
func (t *Tx) Scan(ctx context.Context, query string, args []any, dest ...any) error {
	return meaning(t.Row(ctx, query, args...).Scan(dest...))
}

// Transact runs f between begin and commit. What it returns is final: the change is on the disk, or it never happened.
func (w *Writer) Transact(ctx context.Context, f func(*Tx) error) error {
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	// neither end may be cut short: a begin that was done and not heard of would
	// leave the writer inside a transaction for ever, and after a commit the
	// caller could not know which it was
	end := context.WithoutCancel(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	t := &Tx{w}
	if _, err := t.Exec(end, "begin immediate"); err != nil {
		return err
	}
	done := false
	defer func() {
		if !done {
			// SQLite may have rolled back by itself already
			_, _ = t.Exec(end, "rollback")
		}
	}()
	if err := f(t); err != nil {
		return err
	}
	if _, err := t.Exec(end, "commit"); err != nil {
		return err
	}
	done = true
	return nil
}
