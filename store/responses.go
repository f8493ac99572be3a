package store

import (
	"context"
	"fmt"
	"time"

	"onebit/store/sqlite"
)

// responseDays is how long a response stays.
const responseDays = 30

// MaxResponse is the largest response that is kept, in bytes.
const MaxResponse = 8 << 20

const (
	insertResponse = "insert into responses(id, person, key, body, created, expires) values(?, nullif(?, ''), ?, ?, ?, ?)"
	// one made by a key is for that key, and for its person without one
	responseOf     = " where id = ?1 and person is nullif(?2, '') and (?3 = '' or key = ?3)"
	responseByID   = "select body from responses" + responseOf + " and expires > ?4"
	deleteResponse = "delete from responses" + responseOf
)

// PutResponse keeps what a model answered, for 30 days. What was made by a key can be read by that key, and by the person
// whose key it is when they show none; nobody else.
func (s *Store) PutResponse(ctx context.Context, a Actor, id string, body []byte) error {
	if len(body) > MaxResponse {
		return fmt.Errorf("keeping a response: %w: it is larger than %d bytes", ErrInvalid, MaxResponse)
	}
	err := s.write(ctx, func(t *txn) error {
		_, err := t.Exec(ctx, insertResponse, id, a.Person, a.Key, body, sqlite.Stamp(t.now), sqlite.Stamp(t.now.Add(responseDays*24*time.Hour)))
		return err
	})
	if err != nil {
		return fmt.Errorf("keeping a response: %w", err)
	}
	return nil
}

// Response returns what PutResponse was given.
func (s *Store) Response(ctx context.Context, a Actor, id string) (body []byte, err error) {
	if err := s.r.Row(ctx, responseByID, id, a.Person, a.Key, sqlite.Stamp(s.now())).Scan(&body); err != nil {
		return nil, fmt.Errorf("reading a response: %w", s.meaning(err))
	}
	return body, nil
}

// DeleteResponse forgets a response.
func (s *Store) DeleteResponse(ctx context.Context, a Actor, id string) error {
	err := s.write(ctx, func(t *txn) error { return t.One(ctx, deleteResponse, id, a.Person, a.Key) })
	if err != nil {
		return fmt.Errorf("deleting a response: %w", err)
	}
	return nil
}
