package local

import (
	"context"

	"onebit/store/documents"
)

// WordsInMemory tells whether a collection's words are in memory as they are in
// the file.
func (k *Keeper) WordsInMemory(collection string, generation int64) bool {
	e := k.slabs.existing(collection)
	if e == nil {
		return false
	}
	e.words.mu.RLock()
	defer e.words.mu.RUnlock()
	return e.words.index != nil && e.words.generation == generation
}

// Stored finds passages by FTS5, whatever is in memory.
func (k *Keeper) Stored(ctx context.Context, collection, query string, f *documents.Filter, limit int) ([]documents.Scored, error) {
	a := asked{terms: documents.Terms(query), limit: limit}
	var err error
	if err = k.db.Scan(ctx, "select n from collections where id = ?", []any{collection}, &a.number); err != nil {
		return nil, err
	}
	if a.runs, a.filtered, err = k.allowed(ctx, collection, -1, f); err != nil {
		return nil, err
	}
	return k.stored(ctx, collection, a)
}
