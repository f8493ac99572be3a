package store

import (
	"context"
	"fmt"
	"time"

	"onebit/store/sqlite"
)

// Login is one session of the web pages; the cookie's secret is stored as its SHA-256 only.
type Login struct {
	ID      string
	Person  string
	Created time.Time
	Expires time.Time
	Agent   string // what the client said it was
	Address string // where it came from
}

const (
	insertLogin = "insert into logins(id, hash, person, created, expires, agent, address) values(?, ?, ?, ?, ?, ?, ?)"
	loginByHash = `select l.id, l.person, l.created, l.expires, l.agent, l.address,
			p.id, p.name, p.role, p.created, p.expires, p.disabled
		from logins l join people p on p.id = l.person where l.hash = ? and l.expires > ?`
	loginsOf       = "select id, person, created, expires, agent, address from logins where person = ? order by created, id"
	deleteLogin    = "delete from logins where id = ? and (? or person = ?)"
	deleteLoginsOf = "delete from logins where person = ?"
)

func scanLogin(r sqlite.Row) (l Login, err error) {
	var created, expires int64
	err = r.Scan(&l.ID, &l.Person, &created, &expires, &l.Agent, &l.Address)
	l.Created, l.Expires = sqlite.Moment(created), sqlite.Moment(expires)
	return l, err
}

// CreateLogin records that a person has logged in, and returns the login with its fresh id.
func (s *Store) CreateLogin(ctx context.Context, hash [32]byte, l Login) (Login, error) {
	err := s.write(ctx, func(t *txn) error {
		l.ID, l.Created = newID(t.now), sqlite.Moment(sqlite.Stamp(t.now))
		_, err := t.Exec(ctx, insertLogin, l.ID, hash[:], l.Person, sqlite.Stamp(l.Created), sqlite.Stamp(l.Expires), l.Agent, l.Address)
		if err != nil {
			return err
		}
		return t.audit(ctx, Actor{Person: l.Person}, "login.create", l.ID, l.Address)
	})
	if err != nil {
		return Login{}, fmt.Errorf("creating a login: %w", err)
	}
	return l, nil
}

// LoginByHash returns a login that has not expired, and its person whatever state that is in: ask [Person.Active].
func (s *Store) LoginByHash(ctx context.Context, hash [32]byte) (Login, Person, error) {
	var l Login
	var p Person
	var created, expires, born, ends int64
	err := s.r.Row(ctx, loginByHash, hash[:], sqlite.Stamp(s.now())).Scan(&l.ID, &l.Person, &created, &expires, &l.Agent, &l.Address,
		&p.ID, &p.Name, &p.Role, &born, &ends, &p.Disabled)
	if err != nil {
		return Login{}, Person{}, fmt.Errorf("reading a login: %w", s.meaning(err))
	}
	l.Created, l.Expires = sqlite.Moment(created), sqlite.Moment(expires)
	p.Created, p.Expires = sqlite.Moment(born), sqlite.Moment(ends)
	return l, p, nil
}

// Logins returns a person's logins, oldest first.
func (s *Store) Logins(ctx context.Context, a Actor, person string) ([]Login, error) {
	if err := a.about(person); err != nil {
		return nil, err
	}
	rows, err := s.r.Query(ctx, loginsOf, person)
	all, err := sqlite.Collect(rows, err, scanLogin)
	if err != nil {
		return nil, fmt.Errorf("reading logins: %w", s.meaning(err))
	}
	return all, nil
}

// DeleteLogin ends a login.
func (s *Store) DeleteLogin(ctx context.Context, a Actor, id string) error {
	return s.change(ctx, a, "login.delete", id, func(t *txn) error {
		t.access = true
		return t.One(ctx, deleteLogin, id, a.Admin, a.who())
	})
}

// DeleteLoginsOf ends all logins of a person. There need not be one.
func (s *Store) DeleteLoginsOf(ctx context.Context, a Actor, person string) error {
	return s.change(ctx, a, "login.delete-all", person, func(t *txn) error {
		if err := a.about(person); err != nil {
			return err
		}
		t.access = true
		_, err := t.Exec(ctx, deleteLoginsOf, person)
		return err
	})
}
