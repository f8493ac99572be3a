package store

import (
	"context"
	"time"
)

// NewIDAt is NewID at a moment.
func NewIDAt(t time.Time) string { return newID(t) }

// CheapPassphrases makes backups of a store cheap to lock.
func CheapPassphrases(s *Store) { s.scrypt = 4 }

// Tend does what is due, as Run does every minute.
func Tend(ctx context.Context, s *Store) { s.tend(ctx, &chores{}) }

// Exec runs statements on the writer.
func Exec(ctx context.Context, s *Store, query string) error {
	_, err := s.w.conn.ExecContext(ctx, query)
	return err
}
