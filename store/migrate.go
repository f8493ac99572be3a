package store

import (
	"context"
	"embed"
	"fmt"
	"io/fs"

	"onebit/store/sqlite"
)

//go:embed schema/*.sql
var schema embed.FS

// embedded returns this program's migrations.
func embedded() (sqlite.Ladder, error) {
	files, err := fs.Sub(schema, "schema")
	if err != nil {
		return nil, err
	}
	return sqlite.ReadLadder(files)
}

// migrate brings the schema up to date, after a copy of what was there.
func (s *Store) migrate(ctx context.Context, w *sqlite.Writer, steps sqlite.Ladder) error {
	have, err := w.Version(ctx)
	if err != nil {
		return err
	}
	if err := compatible(have, steps); err != nil {
		return err
	}
	return w.Migrate(ctx, steps, func(ctx context.Context, version int) error {
		_, err := s.snapshot(ctx, fmt.Sprintf("before-%d", version))
		return err
	})
}

// compatible returns ErrTooNew for a version that a program with other migrations must not touch.
func compatible(have int, steps sqlite.Ladder) error {
	if !steps.Takes(have) {
		return fmt.Errorf("%w: its schema is %d, this program knows %d; the copy made before its migration is in the folder %s",
			ErrTooNew, have, steps.Known(), snapshotFolder)
	}
	return nil
}
