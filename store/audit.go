package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"onebit/store/sqlite"
)

// AuditEntry is one line of the audit log. Each carries the hash of all lines up to it.
type AuditEntry struct {
	ID     int64 // 1, 2, 3 ...
	Time   time.Time
	Person string // id, or "system"
	Key    string // id of the API key it came with
	Action string // "key.create"
	Target string
	Detail string
	Hash   [32]byte
}

const (
	insertAudit = "insert into audit(id, time, person, key, action, target, detail, hash) values(?, ?, ?, ?, ?, ?, ?, ?)"
	readAudit   = "select id, time, person, key, action, target, detail, hash from audit where id > ? order by id limit ?"
	lastAudit   = "select id, hash from audit order by id desc limit 1"
)

// chained returns the hash of an entry: SHA-256 over the hash before it and every field with its length.
func (e AuditEntry) chained(before [32]byte) [32]byte {
	b := append([]byte(nil), before[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(e.ID))
	b = binary.BigEndian.AppendUint64(b, uint64(sqlite.Stamp(e.Time)))
	for _, f := range []string{e.Person, e.Key, e.Action, e.Target, e.Detail} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(f)))
		b = append(b, f...)
	}
	return sha256.Sum256(b)
}

// head returns the number of entries and the last one's hash.
func head(ctx context.Context, q querier) (id int64, hash [32]byte, err error) {
	var raw []byte
	err = q.Row(ctx, lastAudit).Scan(&id, &raw)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, hash, nil
	}
	copy(hash[:], raw)
	return id, hash, err
}

// audit appends an entry to the transaction.
func (t *txn) audit(ctx context.Context, a Actor, action, target, detail string) error {
	id, before, err := head(ctx, t)
	if err != nil {
		return err
	}
	e := AuditEntry{ID: id + 1, Time: t.now, Person: a.Person, Key: a.Key, Action: action, Target: target, Detail: detail}
	hash := e.chained(before)
	_, err = t.Exec(ctx, insertAudit, e.ID, sqlite.Stamp(e.Time), e.Person, e.Key, e.Action, e.Target, e.Detail, hash[:])
	return err
}

// Audit appends an entry. It is on the disk when the call returns, and nothing can change or delete it since.
func (s *Store) Audit(ctx context.Context, a Actor, action, target, detail string) error {
	err := s.write(ctx, func(t *txn) error { return t.audit(ctx, a, action, target, detail) })
	if err != nil {
		return fmt.Errorf("writing the audit log: %w", err)
	}
	return nil
}

func scanAudit(r sqlite.Row) (e AuditEntry, err error) {
	var at int64
	var hash []byte
	err = r.Scan(&e.ID, &at, &e.Person, &e.Key, &e.Action, &e.Target, &e.Detail, &hash)
	e.Time = sqlite.Moment(at)
	copy(e.Hash[:], hash)
	return e, err
}

// AuditLog returns up to limit entries after an id, oldest first. Admins only.
func (s *Store) AuditLog(ctx context.Context, a Actor, after int64, limit int) ([]AuditEntry, error) {
	if !a.Admin {
		return nil, ErrForbidden
	}
	all, err := entries(ctx, s.r, after, limit)
	if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", s.meaning(err))
	}
	return all, nil
}

func entries(ctx context.Context, q querier, after int64, limit int) ([]AuditEntry, error) {
	rows, err := q.Query(ctx, readAudit, after, limit)
	return sqlite.Collect(rows, err, scanAudit)
}

// VerifyAudit follows the chain from the first entry and returns how many there are. A changed, missing or inserted entry
// is [ErrCorrupt]. Entries cut off at the end show only against a backup's manifest, which holds count and hash.
func (s *Store) VerifyAudit(ctx context.Context) (int64, error) {
	var last AuditEntry
	for {
		some, err := entries(ctx, s.r, last.ID, 1000)
		if err != nil {
			return last.ID, fmt.Errorf("reading the audit log: %w", s.meaning(err))
		}
		if len(some) == 0 {
			return last.ID, nil
		}
		for _, e := range some {
			want := e.chained(last.Hash)
			if e.ID != last.ID+1 || !bytes.Equal(want[:], e.Hash[:]) {
				return last.ID, fmt.Errorf("%w: the audit log is not what was written, from entry %d on", ErrCorrupt, last.ID+1)
			}
			last = e
		}
	}
}
