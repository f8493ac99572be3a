package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"runtime"
	"sync"
)

const readers = 4

const (
	readerOptions = "_query_only=on&_busy_timeout=5000&_defensive=1&_pragma=trusted_schema(0)"
	plainOptions  = "_busy_timeout=5000&_foreign_keys=on&_defensive=1&_pragma=secure_delete(1)&_pragma=trusted_schema(0)"
	usualCache    = 16 << 10 // KiB
)

// Reader is a pool of connections, with each statement prepared once.
type Reader struct {
	db    *sql.DB
	stmts sync.Map // query -> *sql.Stmt
}

// OpenReader opens a file for reading alone. Cache is the memory of each connection for pages, in KiB; 0 for 16 MiB.
func OpenReader(path string, cache int) (*Reader, error) {
	if cache == 0 {
		cache = usualCache
	}
	return openReader(path, fmt.Sprintf("%s&_pragma=cache_size(-%d)", readerOptions, cache), readers)
}

// OpenPlain opens a file over one connection, with nothing around it: to look at it, or to copy it.
func OpenPlain(path string) (*Reader, error) { return openReader(path, plainOptions, 1) }

func openReader(path, options string, connections int) (*Reader, error) {
	db, err := sql.Open("sqlite", dsn(path, options))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return &Reader{db: db}, nil
}

// Close closes the file.
func (r *Reader) Close() error { return r.db.Close() }

func (r *Reader) stmt(ctx context.Context, query string) (*sql.Stmt, error) {
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

// Query reads rows. The text of a query must be one of a few: each is prepared once and kept.
func (r *Reader) Query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	st, err := r.stmt(ctx, query)
	if err != nil {
		return nil, err
	}
	return st.QueryContext(ctx, args...)
}

// Row reads one row.
func (r *Reader) Row(ctx context.Context, query string, args ...any) *sql.Row {
	st, err := r.stmt(ctx, query)
	if err != nil {
		// the same query again gives the caller the same error, in the shape of a row
		return r.db.QueryRowContext(ctx, query, args...)
	}
	return st.QueryRowContext(ctx, args...)
}

// Once runs a statement that is not worth keeping prepared.
func (r *Reader) Once(ctx context.Context, query string, args ...any) error {
	_, err := r.db.ExecContext(ctx, query, args...)
	return err
}

// dsn names a database file with its options, which are already in query form.
func dsn(path, options string) string {
	path = filepath.ToSlash(path)
	if runtime.GOOS == "windows" {
		path = "/" + path
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + options
}
