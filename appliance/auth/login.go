package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"onebit/store"
)

// Visitor is what is known of whoever comes to the door.
type Visitor struct {
	Address string // an IPv4 address, or the /64 of an IPv6 one
	Agent   string // what the program says it is
	Host    string // the name by which it came to the box, with its port
}

// VisitorOf returns the visitor that sends a request.
func VisitorOf(r *http.Request) Visitor {
	return Visitor{Address: address(r), Agent: printable(r.UserAgent()), Host: r.Host}
}

var errWrongLogin = unauthorized("wrong_login", "no such person, or another password")

// LoginPassword logs a person in by name and password. It takes as long for a name that nobody has.
func (a *Auth) LoginPassword(ctx context.Context, from Visitor, name string, password Secret) (Welcome, error) {
	if len(name) > 64 || len(password.text) > maxPassword {
		return Welcome{}, errWrongLogin
	}
	folded := strings.ToLower(name)
	if err := a.tries.login(a.now(), from.Address, folded); err != nil {
		a.log.Warn("too many tries to log in", "address", from.Address)
		return Welcome{}, err
	}
	record, person, err := a.store.Password(ctx, name)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return Welcome{}, fmt.Errorf("looking up a password: %w", err)
	}
	if err != nil {
		record = ""
	}
	fits, stale, err := a.hasher.verify(ctx, record, password)
	if err != nil {
		return Welcome{}, err
	}
	if !fits || !person.Active(a.now()) {
		a.refused(ctx, from, person.ID, "password")
		return Welcome{}, errWrongLogin
	}
	a.tries.pair.clear(folded + "\x00" + from.Address)
	if stale {
		a.strengthen(ctx, person, password)
	}
	return a.welcome(ctx, from, person)
}

// refused notes a login that was refused. What was typed is not noted: people type passwords where names belong.
func (a *Auth) refused(ctx context.Context, from Visitor, person, how string) {
	a.log.Warn("refused a login", "person", person, "by", how, "address", from.Address)
	if person == "" {
		return
	}
	if err := a.store.Audit(ctx, store.System(), "login.refuse", person, how+" from "+from.Address); err != nil {
		a.log.Error("noting a refused login", "err", err)
	}
}

// strengthen stores a password anew at today's cost. A failure leaves the old record, which is as good as it was.
func (a *Auth) strengthen(ctx context.Context, person store.Person, password Secret) {
	record, err := a.hasher.hash(ctx, password)
	if err == nil {
		err = a.store.SetPassword(ctx, store.System(), person.ID, record)
	}
	if err != nil {
		a.log.Warn("storing a password anew", "person", person.ID, "err", err)
	}
}

// welcome begins a login of a person.
func (a *Auth) welcome(ctx context.Context, from Visitor, person store.Person) (Welcome, error) {
	w := Welcome{Person: person, Login: random(""), Expires: a.now().Add(a.cfg.LoginLife)}
	l, err := a.store.CreateLogin(ctx, w.Login.hash(), store.Login{Person: person.ID, Expires: w.Expires, Agent: from.Agent, Address: from.Address})
	if err != nil {
		return Welcome{Person: person}, fmt.Errorf("beginning a login: %w", err)
	}
	if err := a.store.Audit(ctx, store.Actor{Person: person.ID}, "login.create", l.ID, "from "+from.Address); err != nil {
		return Welcome{Person: person}, fmt.Errorf("noting a login: %w", err)
	}
	return w, nil
}

// Logout ends the login by which p came in, and cuts what runs by it.
func (a *Auth) Logout(ctx context.Context, p *Principal) error {
	if p.Kind != Login {
		return errNeedKey
	}
	if err := a.store.DeleteLogin(ctx, p.Actor, p.Login); err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("ending a login: %w", err)
	}
	a.recheck(ctx)
	if err := a.store.Audit(ctx, p.Actor, "login.delete", p.Login, ""); err != nil {
		return fmt.Errorf("noting the end of a login: %w", err)
	}
	return nil
}

// SetCookie gives a browser its login. Logged out is an empty value and a time in the past.
func SetCookie(w http.ResponseWriter, login Secret, expires time.Time) {
	c := &http.Cookie{Name: Cookie, Value: login.text, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode, Expires: expires}
	if login.Empty() {
		c.MaxAge, c.Expires = -1, time.Time{}
	}
	http.SetCookie(w, c)
}

// account is what a newcomer chooses, or somebody who has lost the way in.
type account struct {
	name     string
	password Secret
	passkey  json.RawMessage
}

// newcomer checks what somebody wants to come in by, and makes it ready for the store.
func (a *Auth) newcomer(ctx context.Context, from Visitor, p passkeyPurpose, c account) (store.Newcomer, error) {
	n := store.Newcomer{Name: c.name}
	if err := checkName(c.name); err != nil {
		return n, err
	}
	if c.password.Empty() && len(c.passkey) == 0 {
		return n, invalid("no_credential", "a password or a passkey is needed")
	}
	if len(c.passkey) > 0 {
		key, err := a.finishPasskey(from, p, "", c.passkey)
		if err != nil {
			return n, err
		}
		n.Passkey = &key
	}
	if !c.password.Empty() {
		record, err := a.record(ctx, c.password, c.name, from.Host)
		if err != nil {
			return n, err
		}
		n.Password = record
	}
	return n, nil
}

// record checks a new password and returns what to store of it.
func (a *Auth) record(ctx context.Context, password Secret, names ...string) (string, error) {
	if err := checkPassword(password, names...); err != nil {
		return "", err
	}
	return a.hasher.hash(ctx, password)
}

// SetPassword changes the password of the person that p is, who shows the old one, and ends all other logins of theirs. A
// person who has none yet, but a passkey, shows an empty one.
func (a *Auth) SetPassword(ctx context.Context, from Visitor, p *Principal, old, password Secret) error {
	if p.Kind != Login {
		return errNeedKey
	}
	if err := a.tries.login(a.now(), from.Address, strings.ToLower(p.Name)); err != nil {
		return err
	}
	record, _, err := a.store.Password(ctx, p.Name)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("looking up a password: %w", err)
	}
	if record != "" {
		fits, _, err := a.hasher.verify(ctx, record, old)
		if err != nil {
			return err
		}
		if !fits {
			a.refused(ctx, from, p.Person, "password")
			return forbidden("wrong_password", "the old password is another")
		}
	}
	next, err := a.record(ctx, password, p.Name, from.Host)
	if err != nil {
		return err
	}
	if err := a.store.SetPassword(ctx, p.Actor, p.Person, next); err != nil {
		return fmt.Errorf("changing a password: %w", err)
	}
	return a.endOtherLogins(ctx, p)
}

func (a *Auth) endOtherLogins(ctx context.Context, p *Principal) error {
	logins, err := a.store.Logins(ctx, p.Actor, p.Person)
	if err != nil {
		return fmt.Errorf("listing logins: %w", err)
	}
	for _, l := range logins {
		if l.ID == p.Login {
			continue
		}
		if err := a.store.DeleteLogin(ctx, p.Actor, l.ID); err != nil && !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("ending a login: %w", err)
		}
	}
	a.recheck(ctx)
	return nil
}

// checkName returns why a person cannot be called so, or nil.
func checkName(name string) error {
	if name == "" || len(name) > 64 || strings.TrimSpace(name) != name || !plain(name) {
		return invalid("bad_name", "a name has 1 to 64 bytes of printable characters, and no space at either end")
	}
	return nil
}

// plain reports whether text has printable characters only.
func plain(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}
