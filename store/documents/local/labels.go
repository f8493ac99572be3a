package local

import (
	"context"
	"encoding/json"
	"sync"

	"onebit/store/documents"
	"onebit/store/sqlite"
)

// labelled is what filters look at in a collection: the attributes of the files
// that can be found. Every change of one grows the collection's generation.
type labelled struct {
	mu         sync.Mutex
	generation int64
	files      []label // in the order of passages; nil before they are read
}

// label is one file.
type label struct {
	first, last int64
	attributes  map[string]any
}

// perLabel is about what a file takes beside its attributes, and perByte what
// each byte of those as JSON does.
const (
	perLabel = 80
	perByte  = 6
)

// labels returns the files of a collection, as of a generation or later.
func (k *Keeper) labels(ctx context.Context, collection string, generation int64) ([]label, error) {
	e := k.slabs.entry(collection)
	e.files.mu.Lock()
	defer e.files.mu.Unlock()
	if e.files.files != nil && e.files.generation == generation {
		return e.files.files, nil
	}
	files, bytes := []label{}, int64(0)
	rows, err := k.db.Query(ctx, "select first, last, attributes from attachments where collection = ? and status = 'completed' and last >= first order by first", collection)
	if err != nil {
		return nil, meaning(err)
	}
	_, err = sqlite.Collect(rows, nil, func(r sqlite.Row) (struct{}, error) {
		var l label
		var raw []byte
		err := r.Scan(&l.first, &l.last, &raw)
		if err == nil {
			err = json.Unmarshal(raw, &l.attributes)
		}
		files, bytes = append(files, l), bytes+perLabel+perByte*int64(len(raw))
		return struct{}{}, err
	})
	if err != nil {
		return nil, meaning(err)
	}
	e.files.files, e.files.generation = files, generation
	k.slabs.weigh(collection, e, &e.fileBytes, bytes)
	return files, nil
}

// allowed returns the runs of passages that a filter lets through, ascending,
// and whether it is any filter at all.
func (k *Keeper) allowed(ctx context.Context, collection string, generation int64, f *documents.Filter) ([][2]int64, bool, error) {
	if f == nil {
		return nil, false, nil
	}
	files, err := k.labels(ctx, collection, generation)
	if err != nil {
		return nil, true, err
	}
	var runs [][2]int64
	for _, l := range files {
		if !f.Match(l.attributes) {
			continue
		}
		if n := len(runs) - 1; n >= 0 && runs[n][1] == l.first-1 {
			runs[n][1] = l.last
		} else {
			runs = append(runs, [2]int64{l.first, l.last})
		}
	}
	return runs, true, nil
}
