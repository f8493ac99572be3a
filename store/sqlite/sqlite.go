// Package sqlite opens a database file the way all of ours are opened: a
// write-ahead log, one connection that writes, a few that read, each statement
// prepared once, deleted rows overwritten, and a ladder of migrations.
package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"
)

// Errors that callers branch on.
var (
	ErrNotFound = errors.New("not found")
	ErrConflict = errors.New("conflicts with what is there")
	ErrInvalid  = errors.New("not valid")
	ErrFull     = errors.New("the disk is full")
	ErrCorrupt  = errors.New("the database is damaged")
	ErrTooNew   = errors.New("the database is of a newer version")
	ErrClosed   = errors.New("the database is closed")
)

const readers = 4

const (
	writerOptions = "_journal_mode=WAL&_synchronous=FULL&_busy_timeout=5000&_foreign_keys=on&_txlock=immediate&_defensive=1" +
		"&_pragma=secure_delete(1)&_pragma=fullfsync(1)&_pragma=journal_size_limit(67108864)&_pragma=trusted_schema(0)"
	readerOptions = "_query_only=on&_busy_timeout=5000&_defensive=1&_pragma=trusted_schema(0)"
	usualCache    = 16 << 10 // KiB
)

// Config says what to open.
type Config struct {
	Path   string
	Schema fs.FS // files VERSION.sql; the last statement of each sets user_version
	// Cache is the memory of each reading connection for pages, in KiB; 0 for
	// 16 MiB. The system keeps pages too.
	Cache int
	// Copy, if it is set, is called before an older database is migrated.
	Copy func(ctx context.Context, version int) error
}

// A schema's version is its major number times a thousand plus its minor one.
// Within a major, migrations only add: a program opens a database whose minor
// number is newer than it knows, so that a rolled-back program finds its data.
const minorsPerMajor = 1000

// DB is an open database.
type DB struct {
	r      *reader
	w      *writer
	closed atomic.Bool
}

// Open opens or makes a database, migrates it and checks its structure.
func Open(ctx context.Context, c Config) (*DB, error) {
	steps, err := ladder(c.Schema)
	if err != nil {
		return nil, err
	}
	w, err := openWriter(ctx, c.Path)
	if err != nil {
		return nil, meaning(err)
	}
	d := &DB{w: w}
	if err := d.migrate(ctx, c, steps); err != nil {
		return nil, errors.Join(meaning(err), w.close())
	}
	var said string
	if err := w.conn.QueryRowContext(ctx, "pragma quick_check(1)").Scan(&said); err != nil || said != "ok" {
		return nil, errors.Join(fmt.Errorf("%w: %s", ErrCorrupt, said), err, w.close())
	}
	if d.r, err = openReader(c.Path, cmp.Or(c.Cache, usualCache)); err != nil {
		return nil, errors.Join(meaning(err), w.close())
	}
	return d, nil
}

// Close waits for a running write and closes.
func (d *DB) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	return errors.Join(d.r.db.Close(), d.w.close())
}

// DSN names a database file with its options, which are already in query form.
func DSN(path, options string) string {
	path = filepath.ToSlash(path)
	if runtime.GOOS == "windows" {
		path = "/" + path
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + options
}

// reader is the pool of reading connections.
type reader struct {
	db    *sql.DB
	stmts sync.Map // query -> *sql.Stmt
}

func openReader(path string, cache int) (*reader, error) {
	db, err := sql.Open("sqlite", DSN(path, fmt.Sprintf("%s&_pragma=cache_size(-%d)", readerOptions, cache)))
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

// Query reads rows. The text of a query must be one of a few: each is prepared
// once and kept.
func (d *DB) Query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	st, err := d.r.stmt(ctx, query)
	if err != nil {
		return nil, d.meaning(err)
	}
	rows, err := st.QueryContext(ctx, args...)
	return rows, d.meaning(err)
}

// QueryOnce is Query for a text that is not worth keeping.
func (d *DB) QueryOnce(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	rows, err := d.r.db.QueryContext(ctx, query, args...)
	return rows, d.meaning(err)
}

// Scan reads one row; none is ErrNotFound.
func (d *DB) Scan(ctx context.Context, query string, args []any, dest ...any) error {
	st, err := d.r.stmt(ctx, query)
	if err != nil {
		return d.meaning(err)
	}
	return d.meaning(st.QueryRowContext(ctx, args...).Scan(dest...))
}

// writer is the one connection that changes anything. A transaction holds turn.
type writer struct {
	db    *sql.DB
	conn  *sql.Conn
	turn  chan struct{}
	stmts map[string]*sql.Stmt
}

func openWriter(ctx context.Context, path string) (*writer, error) {
	// for the owner alone; the side files take their mode from it
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", DSN(path, writerOptions))
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

// Tx is a running write transaction.
type Tx struct{ w *writer }

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

// Exec runs a statement and returns how many rows it touched.
func (t *Tx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
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

// Insert runs a statement and returns the id of the row that it added.
func (t *Tx) Insert(ctx context.Context, query string, args ...any) (int64, error) {
	st, err := t.stmt(ctx, query)
	if err != nil {
		return 0, err
	}
	r, err := st.ExecContext(ctx, args...)
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
	_, err := t.w.conn.ExecContext(ctx, query, args...)
	return err
}

// Query reads rows inside of the transaction.
func (t *Tx) Query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	st, err := t.stmt(ctx, query)
	if err != nil {
		return nil, err
	}
	return st.QueryContext(ctx, args...)
}

// Scan reads one row inside of the transaction; none is ErrNotFound.
func (t *Tx) Scan(ctx context.Context, query string, args []any, dest ...any) error {
	st, err := t.stmt(ctx, query)
	if err != nil {
		return err
	}
	return meaning(st.QueryRowContext(ctx, args...).Scan(dest...))
}

// Write runs f between begin and commit. What it returns is final: the change
// is on the disk, or it never happened.
func (d *DB) Write(ctx context.Context, f func(*Tx) error) error {
	if d.closed.Load() {
		return ErrClosed
	}
	return d.meaning(d.w.transact(ctx, f))
}

func (w *writer) transact(ctx context.Context, f func(*Tx) error) error {
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

func (d *DB) meaning(err error) error {
	if err != nil && d.closed.Load() {
		return ErrClosed
	}
	return meaning(err)
}

// meaning turns SQLite's codes into the errors that callers branch on.
func meaning(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return ErrNotFound
	}
	if kind := Kind(err); kind != nil {
		return fmt.Errorf("%w (%w)", kind, err)
	}
	return err
}

// Kind returns the one of this package's errors that an error of SQLite, or of a
// disk without room, is; nil for others.
func Kind(err error) error {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		if kind := kindOf(e.Code()); kind != nil {
			return kind
		}
	}
	if full(err) {
		return ErrFull
	}
	return nil
}

func kindOf(code int) error {
	switch code {
	case codes.SQLITE_CONSTRAINT_UNIQUE, codes.SQLITE_CONSTRAINT_PRIMARYKEY:
		return ErrConflict
	case codes.SQLITE_CONSTRAINT_FOREIGNKEY:
		return ErrNotFound
	case codes.SQLITE_CONSTRAINT_CHECK, codes.SQLITE_CONSTRAINT_NOTNULL, codes.SQLITE_CONSTRAINT_DATATYPE, codes.SQLITE_TOOBIG:
		return ErrInvalid
	case codes.SQLITE_IOERR_SHMSIZE:
		// the index of the write-ahead log could not grow
		return ErrFull
	}
	switch code & 0xff {
	case codes.SQLITE_FULL:
		return ErrFull
	case codes.SQLITE_CORRUPT, codes.SQLITE_NOTADB:
		return ErrCorrupt
	}
	return nil
}

// step is one migration.
type step struct {
	version int
	sql     string
}

// ladder returns the migrations, oldest first.
func ladder(schema fs.FS) ([]step, error) {
	names, err := fs.Glob(schema, "*.sql")
	if err != nil {
		return nil, err
	}
	var steps []step
	for _, name := range names {
		v, err := strconv.Atoi(strings.TrimSuffix(name, ".sql"))
		if err != nil {
			return nil, fmt.Errorf("reading the name of migration %q: %w", name, err)
		}
		text, err := fs.ReadFile(schema, name)
		if err != nil {
			return nil, err
		}
		steps = append(steps, step{v, string(text)})
	}
	if len(steps) == 0 {
		return nil, errors.New("a schema has at least one step")
	}
	slices.SortFunc(steps, func(a, b step) int { return a.version - b.version })
	return steps, nil
}

// migrate brings the schema up to date.
func (d *DB) migrate(ctx context.Context, c Config, steps []step) error {
	known := steps[len(steps)-1].version
	var have int
	if err := d.w.conn.QueryRowContext(ctx, "pragma user_version").Scan(&have); err != nil {
		return err
	}
	if have/minorsPerMajor > known/minorsPerMajor {
		return fmt.Errorf("%w: its schema is %d, this program knows %d", ErrTooNew, have, known)
	}
	if have != 0 && have < known && c.Copy != nil {
		if err := c.Copy(ctx, known); err != nil {
			return fmt.Errorf("copying the database before its migration: %w", err)
		}
	}
	for _, m := range steps {
		if m.version <= have {
			continue
		}
		err := d.w.transact(ctx, func(t *Tx) error {
			if err := t.Once(ctx, m.sql); err != nil { // many statements at once cannot be prepared
				return err
			}
			var now int
			if err := d.w.conn.QueryRowContext(ctx, "pragma user_version").Scan(&now); err != nil {
				return err
			}
			if now != m.version {
				return fmt.Errorf("the migration set version %d", now)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("migrating to version %d: %w", m.version, err)
		}
	}
	return nil
}

// Row is a row, or rows at one of theirs.
type Row interface{ Scan(dest ...any) error }

// Collect reads all rows.
func Collect[T any](rows *sql.Rows, err error, scan func(Row) (T, error)) ([]T, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, meaning(rows.Err())
}

// Stamp and Moment turn times into milliseconds and back; 0 is the zero time.
func Stamp(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// Moment is the other way of Stamp.
func Moment(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// Checkpoint moves the write-ahead log into the file and empties it. It is not
// an error that a reader is in its way; the next one does more.
func (d *DB) Checkpoint(ctx context.Context) error {
	if d.closed.Load() {
		return ErrClosed
	}
	d.w.turn <- struct{}{}
	defer func() { <-d.w.turn }()
	var busy, pages, moved int
	return d.meaning(d.w.conn.QueryRowContext(ctx, "pragma wal_checkpoint(truncate)").Scan(&busy, &pages, &moved))
}
