package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"onebit/store/sqlite"
)

// ModelRecord is one model that the box knows.
type ModelRecord struct {
	ID          string // its name
	Path        string
	Digest      string // "sha256:..."
	Size        int64  // bytes
	Source      string // where it came from
	Role        string // "chat", "embedding", ...
	Pinned      bool
	Preload     bool
	TTLSeconds  int64 // 0: the box's default
	ContextSize int   // tokens; 0: the model's own
	Options     json.RawMessage
	Added       time.Time // of the first PutModel
}

const (
	modelColumns = "id, path, digest, size, source, role, pinned, preload, ttl, context, options, added"
	modelByID    = "select " + modelColumns + " from models where id = ?"
	allModels    = "select " + modelColumns + " from models order by id"
	putModel     = "insert into models(" + modelColumns + `) values(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		on conflict do update set path = excluded.path, digest = excluded.digest, size = excluded.size, source = excluded.source,
			role = excluded.role, pinned = excluded.pinned, preload = excluded.preload, ttl = excluded.ttl,
			context = excluded.context, options = excluded.options`
)

func scanModel(r sqlite.Row) (m ModelRecord, err error) {
	var options string
	var added int64
	err = r.Scan(&m.ID, &m.Path, &m.Digest, &m.Size, &m.Source, &m.Role, &m.Pinned, &m.Preload, &m.TTLSeconds, &m.ContextSize, &options, &added)
	if options != "" {
		m.Options = json.RawMessage(options)
	}
	m.Added = sqlite.Moment(added)
	return m, err
}

// PutModel adds a model or changes what is known of it. Admins only.
func (s *Store) PutModel(ctx context.Context, a Actor, m ModelRecord) error {
	if !a.Admin {
		return ErrForbidden
	}
	return s.change(ctx, a, "model.put", m.ID, func(t *txn) error {
		if m.ID == "" || m.Options != nil && !json.Valid(m.Options) {
			return fmt.Errorf("%w: a model needs a name, and its options are JSON", ErrInvalid)
		}
		_, err := t.Exec(ctx, putModel, m.ID, m.Path, m.Digest, m.Size, m.Source, m.Role, m.Pinned, m.Preload, m.TTLSeconds,
			m.ContextSize, string(m.Options), sqlite.Stamp(t.now))
		return err
	})
}

// Model returns one model, to everybody.
func (s *Store) Model(ctx context.Context, name string) (ModelRecord, error) {
	m, err := scanModel(s.r.Row(ctx, modelByID, name))
	if err != nil {
		return ModelRecord{}, fmt.Errorf("reading model %q: %w", name, s.meaning(err))
	}
	return m, nil
}

// Models returns all models by name, to everybody.
func (s *Store) Models(ctx context.Context) ([]ModelRecord, error) {
	all, err := modelsOf(ctx, s.r)
	if err != nil {
		return nil, fmt.Errorf("reading the models: %w", s.meaning(err))
	}
	return all, nil
}

func modelsOf(ctx context.Context, q querier) ([]ModelRecord, error) {
	rows, err := q.Query(ctx, allModels)
	return sqlite.Collect(rows, err, scanModel)
}

// DeleteModel forgets a model; its file stays. Admins only.
func (s *Store) DeleteModel(ctx context.Context, a Actor, name string) error {
	if !a.Admin {
		return ErrForbidden
	}
	return s.change(ctx, a, "model.delete", name, func(t *txn) error {
		return t.One(ctx, "delete from models where id = ?", name)
	})
}
