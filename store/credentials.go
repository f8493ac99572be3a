package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"onebit/store/sqlite"
)

// Passkey is one WebAuthn credential. The store does not look into Credential.
type Passkey struct {
	ID         string // of the credential, base64url
	Person     string
	Name       string
	Credential json.RawMessage
	Created    time.Time
	Used       time.Time
}

func scanPasskey(r sqlite.Row) (k Passkey, err error) {
	var credential string
	var created, used int64
	err = r.Scan(&k.ID, &k.Person, &k.Name, &credential, &created, &used)
	k.Credential, k.Created, k.Used = json.RawMessage(credential), sqlite.Moment(created), sqlite.Moment(used)
	return k, err
}

const (
	setPassword   = "update people set password = ?2 where id = ?1"
	readPassword  = "select id, name, role, created, expires, disabled, password from people where fold = ? and password <> ''"
	setRecovery   = "update people set recovery = ?2 where id = ?1"
	byRecovery    = "select id, name, role, created, expires, disabled from people where recovery = ?"
	insertPasskey = "insert into passkeys(id, person, name, credential, created, used) values(?, ?, ?, ?, ?, 0)"
	updatePasskey = "update passkeys set name = ?, credential = ?, used = ? where id = ? and (? or person = ?)"
	deletePasskey = "delete from passkeys where id = ? and (? or person = ?)"
	passkeysOf    = "select id, person, name, credential, created, used from passkeys where person = ? order by created, id"
)

// change runs one statement about a person's record, which must touch a row, with its audit entry.
func (s *Store) change(ctx context.Context, a Actor, action, target string, f func(t *txn) error) error {
	err := s.write(ctx, func(t *txn) error {
		if err := f(t); err != nil {
			return err
		}
		return t.audit(ctx, a, action, target, "")
	})
	if err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}
	return nil
}

// SetPassword sets a person's password hash, in PHC form. The empty string removes it.
func (s *Store) SetPassword(ctx context.Context, a Actor, person, phc string) error {
	return s.change(ctx, a, "password.set", person, func(t *txn) error {
		if err := a.about(person); err != nil {
			return err
		}
		return t.One(ctx, setPassword, person, phc)
	})
}

// Password returns the password hash of the person with this name, and the person. One without a password is [ErrNotFound].
func (s *Store) Password(ctx context.Context, name string) (phc string, p Person, err error) {
	var created, expires int64
	err = s.r.Row(ctx, readPassword, fold(name)).Scan(&p.ID, &p.Name, &p.Role, &created, &expires, &p.Disabled, &phc)
	if err != nil {
		return "", Person{}, fmt.Errorf("reading a password: %w", s.meaning(err))
	}
	p.Created, p.Expires = sqlite.Moment(created), sqlite.Moment(expires)
	return phc, p, nil
}

// SetRecovery sets the SHA-256 of a person's recovery key.
func (s *Store) SetRecovery(ctx context.Context, a Actor, person string, hash [32]byte) error {
	return s.change(ctx, a, "recovery.set", person, func(t *txn) error {
		if err := a.about(person); err != nil {
			return err
		}
		return t.One(ctx, setRecovery, person, hash[:])
	})
}

// Recovery returns the person whose recovery key has this SHA-256. Whoever lets somebody in by it sets a new one.
func (s *Store) Recovery(ctx context.Context, hash [32]byte) (Person, error) {
	p, err := scanPerson(s.r.Row(ctx, byRecovery, hash[:]))
	if err != nil {
		return Person{}, fmt.Errorf("reading a recovery key: %w", s.meaning(err))
	}
	return p, nil
}

// AddPasskey adds a passkey of k.Person. An id that is known is [ErrConflict].
func (s *Store) AddPasskey(ctx context.Context, a Actor, k Passkey) error {
	return s.change(ctx, a, "passkey.add", k.ID, func(t *txn) error {
		if err := a.about(k.Person); err != nil {
			return err
		}
		return t.addPasskey(ctx, k)
	})
}

func (t *txn) addPasskey(ctx context.Context, k Passkey) error {
	if k.ID == "" || !json.Valid(k.Credential) {
		return fmt.Errorf("%w: a passkey needs an id and a credential in JSON", ErrInvalid)
	}
	_, err := t.Exec(ctx, insertPasskey, k.ID, k.Person, k.Name, string(k.Credential), sqlite.Stamp(t.now))
	return err
}

// Passkeys returns a person's passkeys, oldest first.
func (s *Store) Passkeys(ctx context.Context, a Actor, person string) ([]Passkey, error) {
	if err := a.about(person); err != nil {
		return nil, err
	}
	rows, err := s.r.Query(ctx, passkeysOf, person)
	all, err := sqlite.Collect(rows, err, scanPasskey)
	if err != nil {
		return nil, fmt.Errorf("reading passkeys: %w", s.meaning(err))
	}
	return all, nil
}

// UpdatePasskey changes a passkey's name, credential and last use. It is not audited: every login does it.
func (s *Store) UpdatePasskey(ctx context.Context, a Actor, k Passkey) error {
	if !json.Valid(k.Credential) {
		return fmt.Errorf("changing a passkey: %w: the credential is not JSON", ErrInvalid)
	}
	err := s.write(ctx, func(t *txn) error {
		return t.One(ctx, updatePasskey, k.Name, string(k.Credential), sqlite.Stamp(k.Used), k.ID, a.Admin, a.who())
	})
	if err != nil {
		return fmt.Errorf("changing a passkey: %w", err)
	}
	return nil
}

// DeletePasskey deletes a passkey.
func (s *Store) DeletePasskey(ctx context.Context, a Actor, id string) error {
	return s.change(ctx, a, "passkey.delete", id, func(t *txn) error {
		t.access = true
		return t.One(ctx, deletePasskey, id, a.Admin, a.who())
	})
}
