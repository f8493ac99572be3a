package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"onebit/store/sqlite"
)

// Role is what a person is to the box.
type Role string

// The roles.
const (
	RoleAdmin  Role = "admin"
	RoleMember Role = "member"
	RoleGuest  Role = "guest"
)

// Person is somebody who may use the box. Names are unique without regard to case.
type Person struct {
	ID       string
	Name     string // 1 to 64 characters
	Role     Role
	Created  time.Time
	Expires  time.Time // zero: never
	Disabled bool
}

// Active tells whether the person may do anything at a moment.
func (p Person) Active(now time.Time) bool {
	return !p.Disabled && (p.Expires.IsZero() || now.Before(p.Expires))
}

func scanPerson(r sqlite.Row) (p Person, err error) {
	var created, expires int64
	err = r.Scan(&p.ID, &p.Name, &p.Role, &created, &expires, &p.Disabled)
	p.Created, p.Expires = sqlite.Moment(created), sqlite.Moment(expires)
	return p, err
}

const (
	personByID   = "select id, name, role, created, expires, disabled from people where id = ?1 and (?2 or id = ?3)"
	personByName = "select id, name, role, created, expires, disabled from people where fold = ?1 and (?2 or id = ?3)"
	allPeople    = "select id, name, role, created, expires, disabled from people where ?1 or id = ?2 order by fold"
	insertPerson = "insert into people(id, name, fold, role, created, expires, disabled) values(?, ?, ?, ?, ?, ?, ?)"
	updatePerson = "update people set name = ?2, fold = ?3, role = ?4, expires = ?5, disabled = ?6 where id = ?1"
)

// CreatePerson makes a person with a fresh id and returns it. A name that is taken is [ErrConflict]. Admins only.
func (s *Store) CreatePerson(ctx context.Context, a Actor, p Person) (Person, error) {
	if !a.Admin {
		return Person{}, ErrForbidden
	}
	err := s.write(ctx, func(t *txn) (err error) {
		if p, err = t.addPerson(ctx, p); err != nil {
			return err
		}
		return t.audit(ctx, a, "person.create", p.ID, string(p.Role)+" "+p.Name)
	})
	if err != nil {
		return Person{}, fmt.Errorf("creating a person: %w", err)
	}
	return p, nil
}

func (t *txn) addPerson(ctx context.Context, p Person) (Person, error) {
	p.ID, p.Created = newID(t.now), sqlite.Moment(sqlite.Stamp(t.now))
	_, err := t.Exec(ctx, insertPerson, p.ID, p.Name, fold(p.Name), string(p.Role), sqlite.Stamp(p.Created), sqlite.Stamp(p.Expires), p.Disabled)
	if errors.Is(meaning(err), ErrConflict) {
		err = fmt.Errorf("%w: somebody has this name already", ErrConflict)
	}
	return p, err
}

// Person returns one person.
func (s *Store) Person(ctx context.Context, a Actor, id string) (Person, error) {
	p, err := scanPerson(s.r.Row(ctx, personByID, id, a.Admin, a.who()))
	if err != nil {
		return Person{}, fmt.Errorf("reading a person: %w", s.meaning(err))
	}
	return p, nil
}

// PersonByName returns one person. Case does not matter.
func (s *Store) PersonByName(ctx context.Context, a Actor, name string) (Person, error) {
	p, err := scanPerson(s.r.Row(ctx, personByName, fold(name), a.Admin, a.who()))
	if err != nil {
		return Person{}, fmt.Errorf("reading a person: %w", s.meaning(err))
	}
	return p, nil
}

// People returns everybody, by name; to a non-admin only themself.
func (s *Store) People(ctx context.Context, a Actor) ([]Person, error) {
	rows, err := s.r.Query(ctx, allPeople, a.Admin, a.who())
	all, err := sqlite.Collect(rows, err, scanPerson)
	if err != nil {
		return nil, fmt.Errorf("reading the people: %w", s.meaning(err))
	}
	return all, nil
}

// UpdatePerson changes name, role, expiry and whether the person is disabled. Non-admins may change only their own name.
// The last active admin stays one: [ErrConflict].
func (s *Store) UpdatePerson(ctx context.Context, a Actor, p Person) error {
	err := s.write(ctx, func(t *txn) error {
		old, err := scanPerson(t.Row(ctx, personByID, p.ID, a.Admin, a.who()))
		if err != nil {
			return err
		}
		if !a.Admin && (old.Role != p.Role || !old.Expires.Equal(p.Expires) || old.Disabled != p.Disabled) {
			return ErrForbidden
		}
		if _, err := t.Exec(ctx, updatePerson, p.ID, p.Name, fold(p.Name), string(p.Role), sqlite.Stamp(p.Expires), p.Disabled); err != nil {
			return err
		}
		if err := t.keepAnAdmin(ctx, old); err != nil {
			return err
		}
		t.access = true
		detail := fmt.Sprintf("%s %s, disabled %t, expires %d", p.Role, p.Name, p.Disabled, sqlite.Stamp(p.Expires))
		return t.audit(ctx, a, "person.update", p.ID, detail)
	})
	if err != nil {
		return fmt.Errorf("changing a person: %w", err)
	}
	return nil
}

// keepAnAdmin returns ErrConflict where a change of an admin has left none that lasts.
func (t *txn) keepAnAdmin(ctx context.Context, old Person) error {
	if old.Role != RoleAdmin {
		return nil
	}
	var n int
	err := t.Row(ctx, "select count(*) from people where role = 'admin' and disabled = 0 and expires = 0").Scan(&n)
	if err == nil && n == 0 {
		return fmt.Errorf("%w: nobody would be left to administer the box", ErrConflict)
	}
	return err
}

// DeletePerson deletes a person with all that is theirs: keys, credentials, logins, request log, blobs, where their
// conversations are and what extensions keep for them. Sums of usage and the audit log stay. Admins only; the last active admin stays: [ErrConflict].
func (s *Store) DeletePerson(ctx context.Context, a Actor, id string) error {
	err := s.write(ctx, func(t *txn) error {
		if err := a.admin(id); err != nil {
			return err
		}
		old, err := scanPerson(t.Row(ctx, personByID, id, true, ""))
		if err != nil {
			return err
		}
		if _, err := t.Exec(ctx, deletePersonRequests, id); err != nil {
			return err
		}
		if _, err := t.Exec(ctx, deletePersonBlobs, id); err != nil {
			return err
		}
		if _, err := t.Exec(ctx, deletePersonValues, id); err != nil {
			return err
		}
		if _, err := t.deleteConversationsOf(ctx, id); err != nil {
			return err
		}
		if _, err := t.Exec(ctx, deletePerson, id); err != nil {
			return err
		}
		if err := t.keepAnAdmin(ctx, old); err != nil {
			return err
		}
		t.access = true
		return t.audit(ctx, a, "person.delete", id, old.Name)
	})
	if err != nil {
		return fmt.Errorf("deleting a person: %w", err)
	}
	return nil
}

const (
	deletePerson         = "delete from people where id = ?"
	deletePersonRequests = "delete from requests where person = ?"
	deletePersonBlobs    = "delete from blobs where owner = ?"
)
