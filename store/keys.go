package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"onebit/store/sqlite"
)

// Privacy says what the request log keeps.
type Privacy string

// The levels of privacy.
const (
	PrivacyNone     Privacy = "none"     // no row at all
	PrivacyMetadata Privacy = "metadata" // a row without prompt and answer
	PrivacyFull     Privacy = "full"     // a row with both, until it expires
)

// Key is an API key. The secret is stored as its SHA-256 only.
type Key struct {
	ID                string
	Owner             string // person
	Name              string
	Prefix            string   // the first 8 characters, to recognise it by
	Models            []string // empty: all
	Endpoints         []string // empty: all
	Collections       []string // empty: all
	Bind              bool     // passages of the collections are added to chats
	Admin             bool     // may call the admin API; only an admin may give it
	RequestsPerMinute int      // 0: no limit
	TokensPerDay      int64    // prompt and completion; 0: no limit
	Concurrency       int      // 0: no limit
	Priority          string   // the highest that its requests may have: interactive, normal or background; empty when created: interactive
	Weight            int      // of its share of a model beside other keys', 1 to MaxWeight; only an admin gives more than 1; 0 when created: 1
	Privacy           Privacy  // empty when created: metadata
	Created           time.Time
	Expires           time.Time // zero: never
	Revoked           time.Time // zero: it is not
	LastUsed          time.Time // to the minute or so
}

// anyPriority is the priority of keys whose requests may be as urgent as they say.
const anyPriority = "interactive"

// errShares is [ErrForbidden] to whoever would help themselves to what is others'.
var errShares = fmt.Errorf("%w: only an admin gives a key a larger weight, since it takes from all others", ErrForbidden)

// MaxWeight is how many shares of a model a key may have.
const MaxWeight = 100

// Active tells whether the key opens anything at a moment.
func (k Key) Active(now time.Time) bool {
	return k.Revoked.IsZero() && (k.Expires.IsZero() || now.Before(k.Expires))
}

const (
	keyColumns = `k.id, k.owner, k.name, k.prefix, k.models, k.endpoints, k.collections, k.admin, k.rpm, k.tpd, k.concurrency,
		k.privacy, k.created, k.expires, k.revoked, k.used, k.bind, k.priority, k.weight`
	keyByHash = "select " + keyColumns + `, p.id, p.name, p.role, p.created, p.expires, p.disabled
		from keys k join people p on p.id = k.owner where k.hash = ?`
	keyByID   = "select " + keyColumns + " from keys k where k.id = ?1 and (?2 or k.owner = ?3)"
	allKeys   = "select " + keyColumns + " from keys k where ?1 or k.owner = ?2 order by k.created, k.id"
	insertKey = `insert into keys(id, hash, owner, name, prefix, models, endpoints, collections, admin, rpm, tpd, concurrency,
			privacy, created, expires, revoked, used, bind, priority, weight)
		values(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, ?, ?, ?)`
	updateKey = `update keys set name = ?2, models = ?3, endpoints = ?4, collections = ?5, admin = ?6, rpm = ?7, tpd = ?8,
		concurrency = ?9, privacy = ?10, expires = ?11, bind = ?12, priority = ?13, weight = ?14 where id = ?1`
	revokeKey = "update keys set revoked = case when revoked = 0 then ?2 else revoked end where id = ?1 and (?3 or owner = ?4)"
	deleteKey = "delete from keys where id = ?1 and (?2 or owner = ?3)"
)

// scanKey reads a key and what follows it in the row.
func scanKey(r sqlite.Row, more ...any) (k Key, err error) {
	var models, endpoints, collections string
	var created, expires, revoked, used int64
	err = r.Scan(append([]any{&k.ID, &k.Owner, &k.Name, &k.Prefix, &models, &endpoints, &collections, &k.Admin,
		&k.RequestsPerMinute, &k.TokensPerDay, &k.Concurrency, &k.Privacy, &created, &expires, &revoked, &used, &k.Bind, &k.Priority, &k.Weight}, more...)...)
	if err != nil {
		return k, err
	}
	k.Created, k.Expires, k.Revoked, k.LastUsed = sqlite.Moment(created), sqlite.Moment(expires), sqlite.Moment(revoked), sqlite.Moment(used)
	if k.Models, err = words(models); err != nil {
		return k, err
	}
	if k.Endpoints, err = words(endpoints); err != nil {
		return k, err
	}
	k.Collections, err = words(collections)
	return k, err
}

// listed and words turn a list into text and back.
func listed(l []string) string {
	if len(l) == 0 {
		return ""
	}
	b, err := json.Marshal(l)
	if err != nil {
		panic(err) // strings always marshal
	}
	return string(b)
}

func words(text string) (l []string, err error) {
	if text == "" {
		return nil, nil
	}
	err = json.Unmarshal([]byte(text), &l)
	return l, err
}

// CreateKey makes a key with a fresh id. An empty Owner is the actor. Only admins make admin keys, keys of more than one share,
// and keys for others.
func (s *Store) CreateKey(ctx context.Context, a Actor, k Key, hash [32]byte) (Key, error) {
	if k.Owner == "" {
		k.Owner = a.Person
	}
	if k.Privacy == "" {
		k.Privacy = PrivacyMetadata
	}
	k.Priority, k.Weight = cmp.Or(k.Priority, anyPriority), cmp.Or(k.Weight, 1)
	err := s.write(ctx, func(t *txn) error {
		if err := a.about(k.Owner); err != nil {
			return err
		}
		if k.Admin && !a.Admin {
			return ErrForbidden
		}
		if k.Weight > 1 && !a.Admin {
			return errShares
		}
		k.ID, k.Created, k.Revoked, k.LastUsed = newID(t.now), sqlite.Moment(sqlite.Stamp(t.now)), time.Time{}, time.Time{}
		_, err := t.Exec(ctx, insertKey, k.ID, hash[:], k.Owner, k.Name, k.Prefix, listed(k.Models), listed(k.Endpoints),
			listed(k.Collections), k.Admin, k.RequestsPerMinute, k.TokensPerDay, k.Concurrency, string(k.Privacy),
			sqlite.Stamp(k.Created), sqlite.Stamp(k.Expires), k.Bind, k.Priority, k.Weight)
		if err != nil {
			return err
		}
		return t.audit(ctx, a, "key.create", k.ID, k.Name)
	})
	if err != nil {
		return Key{}, fmt.Errorf("creating a key: %w", err)
	}
	return k, nil
}

// KeyByHash returns the key whatever state it is in, and its owner: ask [Key.Active] and [Person.Active].
func (s *Store) KeyByHash(ctx context.Context, hash [32]byte) (Key, Person, error) {
	var p Person
	var created, expires int64
	k, err := scanKey(s.r.Row(ctx, keyByHash, hash[:]), &p.ID, &p.Name, &p.Role, &created, &expires, &p.Disabled)
	if err != nil {
		return Key{}, Person{}, fmt.Errorf("reading a key: %w", s.meaning(err))
	}
	p.Created, p.Expires = sqlite.Moment(created), sqlite.Moment(expires)
	return k, p, nil
}

// Keys returns the actor's keys, or everybody's to an admin, oldest first.
func (s *Store) Keys(ctx context.Context, a Actor) ([]Key, error) {
	rows, err := s.r.Query(ctx, allKeys, a.Admin, a.who())
	all, err := sqlite.Collect(rows, err, func(r sqlite.Row) (Key, error) { return scanKey(r) })
	if err != nil {
		return nil, fmt.Errorf("reading keys: %w", s.meaning(err))
	}
	return all, nil
}

// Key returns one key.
func (s *Store) Key(ctx context.Context, a Actor, id string) (Key, error) {
	k, err := scanKey(s.r.Row(ctx, keyByID, id, a.Admin, a.who()))
	if err != nil {
		return Key{}, fmt.Errorf("reading a key: %w", s.meaning(err))
	}
	return k, nil
}

// UpdateKey changes a key's name, scopes, limits, privacy and expiry. Only an admin makes it an admin key, or its share larger.
func (s *Store) UpdateKey(ctx context.Context, a Actor, k Key) error {
	err := s.write(ctx, func(t *txn) error {
		old, err := scanKey(t.Row(ctx, keyByID, k.ID, a.Admin, a.who()))
		if err != nil {
			return err
		}
		if k.Admin && !old.Admin && !a.Admin {
			return ErrForbidden
		}
		if k.Weight > old.Weight && !a.Admin {
			return errShares
		}
		if _, err := t.Exec(ctx, updateKey, k.ID, k.Name, listed(k.Models), listed(k.Endpoints), listed(k.Collections),
			k.Admin, k.RequestsPerMinute, k.TokensPerDay, k.Concurrency, string(k.Privacy), sqlite.Stamp(k.Expires), k.Bind, k.Priority, k.Weight); err != nil {
			return err
		}
		t.access = true
		return t.audit(ctx, a, "key.update", k.ID, k.Name)
	})
	if err != nil {
		return fmt.Errorf("changing a key: %w", err)
	}
	return nil
}

// RevokeKey ends a key for ever. It stays in the list. Revoking it again changes nothing.
func (s *Store) RevokeKey(ctx context.Context, a Actor, id string) error {
	return s.change(ctx, a, "key.revoke", id, func(t *txn) error {
		t.access = true
		return t.One(ctx, revokeKey, id, sqlite.Stamp(t.now), a.Admin, a.who())
	})
}

// DeleteKey deletes a key. Its usage stays.
func (s *Store) DeleteKey(ctx context.Context, a Actor, id string) error {
	return s.change(ctx, a, "key.delete", id, func(t *txn) error {
		t.access = true
		if err := t.One(ctx, deleteKey, id, a.Admin, a.who()); err != nil {
			return err
		}
		_, err := t.Exec(ctx, deleteScopeConversations, Actor{Key: id}.scope())
		return err
	})
}
