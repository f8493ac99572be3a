package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// A schema's version is its major number times a thousand plus its minor one. Within a major, migrations only add: a
// program opens a database whose minor number is newer than it knows, so that a rolled-back program finds its data.
const minorsPerMajor = 1000

// Step is one migration: the statements that lead to a version. The last of them sets user_version.
type Step struct {
	Version int
	SQL     string
}

// Ladder is a schema's migrations, oldest first.
type Ladder []Step

// ReadLadder reads the files VERSION.sql of a schema.
func ReadLadder(schema fs.FS) (Ladder, error) {
	names, err := fs.Glob(schema, "*.sql")
	if err != nil {
		return nil, err
	}
	var steps Ladder
	for _, name := range names {
		v, err := strconv.Atoi(strings.TrimSuffix(name, ".sql"))
		if err != nil {
			return nil, fmt.Errorf("reading the name of migration %q: %w", name, err)
		}
		text, err := fs.ReadFile(schema, name)
		if err != nil {
			return nil, err
		}
		steps = append(steps, Step{v, string(text)})
	}
	if len(steps) == 0 {
		return nil, errors.New("a schema has at least one step")
	}
	slices.SortFunc(steps, func(a, b Step) int { return a.Version - b.Version })
	return steps, nil
}

// Known is the version that the ladder leads to.
func (l Ladder) Known() int { return l[len(l)-1].Version }

// Takes reports whether a program with this ladder may open a database of a version.
func (l Ladder) Takes(version int) bool { return version/minorsPerMajor <= l.Known()/minorsPerMajor }

// Version is the version of a database's schema; 0 for an empty one.
func (w *Writer) Version(ctx context.Context) (v int, err error) {
	return v, w.Row(ctx, "pragma user_version").Scan(&v)
}

// Migrate brings the schema up to date. It calls before, unless that is nil, when there is an older one.
func (w *Writer) Migrate(ctx context.Context, l Ladder, before func(ctx context.Context, version int) error) error {
	have, err := w.Version(ctx)
	if err != nil {
		return err
	}
	if !l.Takes(have) {
		return fmt.Errorf("%w: its schema is %d, this program knows %d", ErrTooNew, have, l.Known())
	}
	if have != 0 && have < l.Known() && before != nil {
		if err := before(ctx, l.Known()); err != nil {
			return fmt.Errorf("copying the database before its migration: %w", err)
		}
	}
	for _, m := range l {
		if m.Version <= have {
			continue
		}
		err := w.Transact(ctx, func(t *Tx) error {
			if err := t.Once(ctx, m.SQL); err != nil { // many statements at once cannot be prepared
				return err
			}
			now, err := w.Version(ctx)
			if err == nil && now != m.Version {
				err = fmt.Errorf("the migration set version %d", now)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("migrating to version %d: %w", m.Version, err)
		}
	}
	return nil
}
