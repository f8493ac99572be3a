// Package sqlite opens a database file the way all of ours are opened: a
// write-ahead log, one connection that writes, a few that read, each statement
// prepared once, deleted rows overwritten, and a ladder of migrations.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
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

// DB is an open database.
type DB struct {
	r      *Reader
	w      *Writer
	closed atomic.Bool
}

// Open opens or makes a database, migrates it and checks its structure.
func Open(ctx context.Context, c Config) (*DB, error) {
	steps, err := ReadLadder(c.Schema)
	if err != nil {
		return nil, err
	}
	w, err := OpenWriter(ctx, c.Path)
	if err != nil {
		return nil, meaning(err)
	}
	d := &DB{w: w}
	if err := w.Migrate(ctx, steps, c.Copy); err != nil {
		return nil, errors.Join(meaning(err), w.Close())
	}
	var said string
	if err := w.Row(ctx, "pragma quick_check(1)").Scan(&said); err != nil || said != "ok" {
		return nil, errors.Join(fmt.Errorf("%w: %s", ErrCorrupt, said), err, w.Close())
	}
	if d.r, err = OpenReader(c.Path, c.Cache); err != nil {
		return nil, errors.Join(meaning(err), w.Close())
	}
	return d, nil
}

// Close waits for a running write and closes.
func (d *DB) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	return errors.Join(d.r.Close(), d.w.Close())
}

// Query reads rows. The text of a query must be one of a few: each is prepared
// once and kept.
func (d *DB) Query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	rows, err := d.r.Query(ctx, query, args...)
	return rows, d.meaning(err)
}

// QueryOnce is Query for a text that is not worth keeping.
func (d *DB) QueryOnce(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	rows, err := d.r.db.QueryContext(ctx, query, args...)
	return rows, d.meaning(err)
}

// Scan reads one row; none is ErrNotFound.
func (d *DB) Scan(ctx context.Context, query string, args []any, dest ...any) error {
	return d.meaning(d.r.Row(ctx, query, args...).Scan(dest...))
}

// Write runs f between begin and commit. What it returns is final: the change
// is on the disk, or it never happened.
func (d *DB) Write(ctx context.Context, f func(*Tx) error) error {
	if d.closed.Load() {
		return ErrClosed
	}
	return d.meaning(d.w.Transact(ctx, f))
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
	return d.meaning(d.w.Row(ctx, "pragma wal_checkpoint(truncate)").Scan(&busy, &pages, &moved))
}
