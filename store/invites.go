package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"onebit/store/sqlite"
)

// Invite lets one newcomer in; the code is stored as its SHA-256 only.
type Invite struct {
	ID      string
	Role    Role
	Name    string // suggested name; empty: the newcomer chooses
	By      string // person
	Created time.Time
	Expires time.Time
	Until   time.Time // when the new person expires; zero: never
}

// Newcomer is somebody who makes an account: by an invite, or the first admin by the claim.
type Newcomer struct {
	Name     string
	Password string    // PHC string; empty: none
	Passkey  *Passkey  // nil: none
	Recovery *[32]byte // SHA-256 of the recovery key; nil: none
}

// ClaimRequest is everything that claiming the box sets at once.
type ClaimRequest struct {
	Admin    Newcomer
	Settings map[string]json.RawMessage
}

const (
	insertInvite = "insert into invites(id, hash, role, name, by, created, expires, until) values(?, ?, ?, ?, ?, ?, ?, ?)"
	inviteByHash = "select id, role, name, by, created, expires, until from invites where hash = ? and expires > ?"
	allInvites   = "select id, role, name, by, created, expires, until from invites where expires > ? order by created, id"
	deleteInvite = "delete from invites where id = ?"
)

func scanInvite(r sqlite.Row) (i Invite, err error) {
	var created, expires, until int64
	err = r.Scan(&i.ID, &i.Role, &i.Name, &i.By, &created, &expires, &until)
	i.Created, i.Expires, i.Until = sqlite.Moment(created), sqlite.Moment(expires), sqlite.Moment(until)
	return i, err
}

// CreateInvite makes an invite with a fresh id. Admins only.
func (s *Store) CreateInvite(ctx context.Context, a Actor, hash [32]byte, i Invite) (Invite, error) {
	if !a.Admin {
		return Invite{}, ErrForbidden
	}
	err := s.write(ctx, func(t *txn) error {
		i.ID, i.By, i.Created = newID(t.now), a.Person, sqlite.Moment(sqlite.Stamp(t.now))
		_, err := t.Exec(ctx, insertInvite, i.ID, hash[:], string(i.Role), i.Name, i.By, sqlite.Stamp(i.Created), sqlite.Stamp(i.Expires), sqlite.Stamp(i.Until))
		if err != nil {
			return err
		}
		return t.audit(ctx, a, "invite.create", i.ID, string(i.Role)+" "+i.Name)
	})
	if err != nil {
		return Invite{}, fmt.Errorf("creating an invite: %w", err)
	}
	return i, nil
}

// Invites returns those that are open, oldest first. Admins only.
func (s *Store) Invites(ctx context.Context, a Actor) ([]Invite, error) {
	if !a.Admin {
		return nil, ErrForbidden
	}
	rows, err := s.r.Query(ctx, allInvites, sqlite.Stamp(s.now()))
	all, err := sqlite.Collect(rows, err, scanInvite)
	if err != nil {
		return nil, fmt.Errorf("reading invites: %w", s.meaning(err))
	}
	return all, nil
}

// InviteByHash returns an open invite without using it.
func (s *Store) InviteByHash(ctx context.Context, hash [32]byte) (Invite, error) {
	i, err := scanInvite(s.r.Row(ctx, inviteByHash, hash[:], sqlite.Stamp(s.now())))
	if err != nil {
		return Invite{}, fmt.Errorf("reading an invite: %w", s.meaning(err))
	}
	return i, nil
}

// TakeInvite uses an invite up and makes its person with all credentials, in one step. A name that is taken is
// [ErrConflict], and the invite stays open.
func (s *Store) TakeInvite(ctx context.Context, hash [32]byte, n Newcomer) (Person, error) {
	var p Person
	err := s.write(ctx, func(t *txn) error {
		i, err := scanInvite(t.Row(ctx, inviteByHash, hash[:], sqlite.Stamp(t.now)))
		if err != nil {
			return err
		}
		if err := t.One(ctx, deleteInvite, i.ID); err != nil {
			return err
		}
		if n.Name == "" {
			n.Name = i.Name
		}
		if p, err = t.admit(ctx, n, Person{Role: i.Role, Expires: i.Until}); err != nil {
			return err
		}
		return t.audit(ctx, Actor{Person: p.ID}, "invite.take", i.ID, string(p.Role)+" "+p.Name)
	})
	if err != nil {
		return Person{}, fmt.Errorf("taking an invite: %w", err)
	}
	return p, nil
}

// admit makes a newcomer's person and credentials.
func (t *txn) admit(ctx context.Context, n Newcomer, p Person) (Person, error) {
	p.Name = n.Name
	p, err := t.addPerson(ctx, p)
	if err != nil {
		return p, err
	}
	if n.Password != "" {
		if err := t.One(ctx, setPassword, p.ID, n.Password); err != nil {
			return p, err
		}
	}
	if n.Passkey != nil {
		k := *n.Passkey
		k.Person = p.ID
		if err := t.addPasskey(ctx, k); err != nil {
			return p, err
		}
	}
	if n.Recovery != nil {
		return p, t.One(ctx, setRecovery, p.ID, n.Recovery[:])
	}
	return p, nil
}

// DeleteInvite takes an invite back. Admins only.
func (s *Store) DeleteInvite(ctx context.Context, a Actor, id string) error {
	return s.change(ctx, a, "invite.delete", id, func(t *txn) error {
		if !a.Admin {
			return ErrNotFound
		}
		return t.One(ctx, deleteInvite, id)
	})
}

// Claimed tells whether the box has had its first admin.
func (s *Store) Claimed(ctx context.Context) (bool, error) {
	var n int
	if err := s.r.Row(ctx, "select count(*) from claim").Scan(&n); err != nil {
		return false, fmt.Errorf("reading the claim: %w", s.meaning(err))
	}
	return n > 0, nil
}

// Claim makes the first admin and the settings that come with it, in one step. A second call is [ErrConflict], for ever.
func (s *Store) Claim(ctx context.Context, r ClaimRequest) (Person, error) {
	var p Person
	err := s.write(ctx, func(t *txn) (err error) {
		if p, err = t.admit(ctx, r.Admin, Person{Role: RoleAdmin}); err != nil {
			return err
		}
		if _, err := t.Exec(ctx, "insert into claim(one, time, person) values(1, ?, ?)", sqlite.Stamp(t.now), p.ID); err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(r.Settings)) {
			if err := allowedSetting(name, r.Settings[name]); err != nil {
				return err
			}
			if err := t.set(ctx, name, r.Settings[name]); err != nil {
				return err
			}
		}
		t.access = true
		return t.audit(ctx, Actor{Person: p.ID, Admin: true}, "box.claim", p.ID, p.Name)
	})
	if err != nil {
		return Person{}, fmt.Errorf("claiming the box: %w", err)
	}
	return p, nil
}
