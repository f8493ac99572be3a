// Package local keeps the document store in one SQLite file, with the vectors of
// collections that are searched in memory.
//
// The file is the truth. A slab of vectors in memory is made from it when a
// collection is first searched, follows each change, and knows the collection's
// generation: where the two differ, it is made anew. Words are in one FTS5 table
// for each collection, so that no collection's words weigh on another's scores;
// larger collections that are searched have them in memory too, made in the
// background, since FTS5 takes long to rank passages that have common words.
// What is deleted is overwritten, in the file, in the index of words and in
// memory.
package local

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"onebit/store/documents"
	"onebit/store/sqlite"
)

//go:embed schema/*.sql
var schema embed.FS

// cache is each connection's memory for pages, in KiB. Vectors are in memory
// already, and what else a search reads is little.
const cache = 2 << 10

// FileName is the database's, in the state directory.
const FileName = "documents.db"

// Config says where the keeper is.
type Config struct {
	Dir    string
	Clock  func() time.Time // nil for time.Now
	Memory int64            // bytes that vectors may take in memory; 0 for 1 GiB
}

// Keeper is a documents.Keeper.
type Keeper struct {
	db    *sqlite.DB
	aside string
	now   func() time.Time
	slabs *slabs

	// deleted is how often the log is still to be emptied: what was deleted stands
	// in it until then, and a reader may be in the way once
	deleted atomic.Int32
}

var _ documents.Keeper = (*Keeper)(nil)

// Open opens or makes the document store of a directory. Nobody else may have it
// open. A file that is damaged is set aside, never deleted, and an empty store
// takes its place: SetAside tells.
func Open(ctx context.Context, c Config) (*Keeper, error) {
	steps, err := fs.Sub(schema, "schema")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(c.Dir, FileName)
	db, err := sqlite.Open(ctx, sqlite.Config{Path: path, Schema: steps, Cache: cache})
	aside := ""
	if errors.Is(err, sqlite.ErrCorrupt) {
		if aside, err = setAside(path); err == nil {
			db, err = sqlite.Open(ctx, sqlite.Config{Path: path, Schema: steps, Cache: cache})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("opening the document store: %w", meaning(err))
	}
	k := &Keeper{db: db, aside: aside, now: c.Clock}
	if k.now == nil {
		k.now = time.Now
	}
	if c.Memory <= 0 {
		c.Memory = 1 << 30
	}
	k.slabs = newSlabs(k, c.Memory)
	if err := k.renewWords(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the document store: %w", err), k.Close())
	}
	return k, nil
}

// setAside renames a damaged file, with its log.
func setAside(path string) (string, error) {
	to := path + ".corrupt-" + time.Now().UTC().Format("20060102T150405.000Z")
	for _, suffix := range []string{"-wal", "-shm", ""} {
		if err := os.Rename(path+suffix, to+suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return to, nil
}

// SetAside names the damaged file that was found and set aside, "" where there
// was none.
func (k *Keeper) SetAside() string { return k.aside }

// Close closes the file.
func (k *Keeper) Close() error {
	k.slabs.close()
	return k.db.Close()
}

// meaning gives errors of the file the words of package documents.
func meaning(err error) error {
	for _, pair := range [][2]error{
		{sqlite.ErrNotFound, documents.ErrNotFound}, {sqlite.ErrConflict, documents.ErrConflict},
		{sqlite.ErrInvalid, documents.ErrInvalid}, {sqlite.ErrFull, documents.ErrFull}, {sqlite.ErrClosed, documents.ErrClosed},
	} {
		if errors.Is(err, pair[0]) {
			return errors.Join(pair[1], err)
		}
	}
	return err
}

func (k *Keeper) write(ctx context.Context, f func(*sqlite.Tx) error) error {
	return meaning(k.db.Write(ctx, f))
}

func toJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps of texts, numbers and booleans, which were checked
	}
	return string(b)
}

// emptyings is how often the log is emptied after something was deleted.
const emptyings = 3

// gone notes that something was deleted.
func (k *Keeper) gone() { k.deleted.Store(emptyings) }

// empty empties the log of what was deleted.
func (k *Keeper) empty(ctx context.Context) error {
	left := k.deleted.Load()
	if left == 0 {
		return nil
	}
	if err := k.Checkpoint(ctx); err != nil {
		return err
	}
	k.deleted.CompareAndSwap(left, left-1) // more was deleted meanwhile: from the beginning
	return nil
}

// Checkpoint writes the log into the file, so that nothing of what was deleted
// stays in the log.
func (k *Keeper) Checkpoint(ctx context.Context) error { return meaning(k.db.Checkpoint(ctx)) }
