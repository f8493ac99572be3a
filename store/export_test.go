package store

import (
	"context"
	"maps"
	"slices"
	"time"

	"onebit/store/sqlite"
)

// NewIDAt is NewID at a moment.
func NewIDAt(t time.Time) string { return newID(t) }

// CheapPassphrases makes backups of a store cheap to lock.
func CheapPassphrases(s *Store) { s.scrypt = 4 }

// Tend does what is due, as Run does every minute.
func Tend(ctx context.Context, s *Store) { s.tend(ctx, &chores{}) }

// Exec runs statements on the writer.
func Exec(ctx context.Context, s *Store, query string) error {
	return s.w.Once(ctx, query)
}

// OpenWith opens a store with further migrations.
func OpenWith(ctx context.Context, cfg Config, more map[int]string) (*Store, error) {
	steps, err := embedded()
	if err != nil {
		return nil, err
	}
	for _, v := range slices.Sorted(maps.Keys(more)) {
		steps = append(steps, sqlite.Step{Version: v, SQL: more[v]})
	}
	return open(ctx, cfg, steps)
}

// Tender returns what Run calls every minute.
func Tender(s *Store) func(ctx context.Context) {
	var c chores
	return func(ctx context.Context) { s.tend(ctx, &c) }
}

// Versions are those of the embedded migrations, the oldest first.
func Versions() (all []int, err error) {
	steps, err := embedded()
	for _, s := range steps {
		all = append(all, s.Version)
	}
	return all, err
}

// OpenUpTo opens a store as the program did that knew no later version.
func OpenUpTo(ctx context.Context, cfg Config, version int) (*Store, error) {
	steps, err := embedded()
	if err != nil {
		return nil, err
	}
	return open(ctx, cfg, slices.DeleteFunc(steps, func(s sqlite.Step) bool { return s.Version > version }))
}

// Number is the one number that a query gives.
func Number(ctx context.Context, s *Store, query string) (n int64, err error) {
	err = s.r.Row(ctx, query).Scan(&n)
	return n, err
}

// Learn takes in the names of conversations on the disk, as Run does first.
func (s *Store) Learn(ctx context.Context) error { return s.learn(ctx) }

// MayKnow reports whether a name is looked for on the disk.
func (s *Store) MayKnow(name string) bool { return s.known.may([]string{name}) }
