package store

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

//go:embed schema/*.sql
var schema embed.FS

// A schema's version is its major number times a thousand plus its minor one. Within a major, migrations only add: a
// program opens a database whose minor number is newer than it knows, so that a rolled-back firmware finds its data.
const minorsPerMajor = 1000

// step is one migration: the statements that lead to a version. The last of them sets user_version.
type step struct {
	version int
	sql     string
}

// embedded returns this program's migrations, oldest first.
func embedded() ([]step, error) {
	entries, err := fs.ReadDir(schema, "schema")
	if err != nil {
		return nil, err
	}
	var steps []step
	for _, e := range entries {
		v, err := strconv.Atoi(strings.TrimSuffix(e.Name(), ".sql"))
		if err != nil {
			return nil, fmt.Errorf("reading the name of migration %q: %w", e.Name(), err)
		}
		text, err := fs.ReadFile(schema, path.Join("schema", e.Name()))
		if err != nil {
			return nil, err
		}
		steps = append(steps, step{v, string(text)})
	}
	slices.SortFunc(steps, func(a, b step) int { return a.version - b.version })
	return steps, nil
}

// migrate brings the schema up to date, after a copy of what was there.
func (s *Store) migrate(ctx context.Context, w *writer, steps []step) error {
	known := steps[len(steps)-1].version
	var have int
	if err := (&txn{w: w}).row(ctx, "pragma user_version").Scan(&have); err != nil {
		return err
	}
	if err := compatible(have, known); err != nil {
		return err
	}
	if have >= known {
		return nil
	}
	if have != 0 {
		if _, err := s.snapshot(ctx, fmt.Sprintf("before-%d", known)); err != nil {
			return fmt.Errorf("copying the database before its migration: %w", err)
		}
	}
	for _, m := range steps {
		if m.version <= have {
			continue
		}
		if err := s.apply(ctx, w, m); err != nil {
			return fmt.Errorf("migrating to version %d: %w", m.version, err)
		}
	}
	return nil
}

// compatible returns ErrTooNew for a version that a program knowing another one must not touch.
func compatible(have, known int) error {
	if have/minorsPerMajor > known/minorsPerMajor {
		return fmt.Errorf("%w: its schema is %d, this program knows %d; the copy made before its migration is in the folder %s",
			ErrTooNew, have, known, snapshotFolder)
	}
	return nil
}

func (s *Store) apply(ctx context.Context, w *writer, m step) error {
	_, err := w.transact(ctx, s.now(), func(t *txn) error {
		// many statements at once cannot be prepared
		if _, err := w.conn.ExecContext(ctx, m.sql); err != nil {
			return err
		}
		var now int
		if err := w.conn.QueryRowContext(ctx, "pragma user_version").Scan(&now); err != nil {
			return err
		}
		if now != m.version {
			return fmt.Errorf("the migration set version %d", now)
		}
		return nil
	})
	return err
}
