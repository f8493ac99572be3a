package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"onebit/store"
)

// inviteLife is how long an invite is good for unless it says.
const inviteLife = 7 * 24 * time.Hour

// Invited is an invite that was just made. Its code is shown once.
type Invited struct {
	Invite store.Invite
	Code   Secret
	URL    Secret // the code in its fragment; empty where the box has no address
}

// Invite makes an invite, which lets one newcomer in. Only admins may. Expires empty: seven days.
func (a *Auth) Invite(ctx context.Context, p *Principal, i store.Invite) (Invited, error) {
	if err := p.NeedAdmin(); err != nil {
		return Invited{}, err
	}
	now := a.now()
	if i.Name != "" {
		if err := checkName(i.Name); err != nil {
			return Invited{}, err
		}
	}
	if i.Expires.IsZero() {
		i.Expires = now.Add(inviteLife)
	}
	switch {
	case i.Role != store.RoleAdmin && i.Role != store.RoleMember && i.Role != store.RoleGuest:
		return Invited{}, invalid("bad_role", "a role is admin, member or guest")
	case !i.Expires.After(now) || i.Expires.After(now.Add(90*24*time.Hour)):
		return Invited{}, invalid("bad_expiry", "an invite is good for up to 90 days")
	case !i.Until.IsZero() && !i.Until.After(now):
		return Invited{}, invalid("bad_expiry", "the newcomer would have expired already")
	}
	code := NewCode()
	made, err := a.store.CreateInvite(ctx, p.Actor, code.Hash(), i)
	if err != nil {
		return Invited{}, fmt.Errorf("making an invite: %w", err)
	}
	out := Invited{Invite: made, Code: code.Text()}
	if url := a.url(); url != "" {
		out.URL = Secret{url + "/invite#" + code.Text().text}
	}
	return out, nil
}

// Acceptance is what a newcomer sends: the invite's code, and who they are. An invite that names its guest needs no name.
type Acceptance struct {
	Code     Secret
	Name     string
	Password Secret
	Passkey  json.RawMessage
}

var errInvite = forbidden("wrong_code", "no invite has this code: it may have been used, or have expired")

// invite looks up the invite of a code.
func (a *Auth) invite(ctx context.Context, from Visitor, code Secret) (Code, store.Invite, error) {
	c, err := ParseCode(code.text)
	if err != nil {
		return Code{}, store.Invite{}, err
	}
	if err := a.tries.guess(a.now(), from.Address); err != nil {
		return Code{}, store.Invite{}, err
	}
	i, err := a.store.InviteByHash(ctx, c.Hash())
	if errors.Is(err, store.ErrNotFound) || (err == nil && !a.now().Before(i.Expires)) {
		return Code{}, store.Invite{}, errInvite
	}
	if err != nil {
		return Code{}, store.Invite{}, fmt.Errorf("looking up an invite: %w", err)
	}
	a.tries.code.clear(from.Address)
	return c, i, nil
}

// Accept lets a newcomer in and uses the invite up, in one step.
func (a *Auth) Accept(ctx context.Context, from Visitor, s Acceptance) (Welcome, error) {
	code, i, err := a.invite(ctx, from, s.Code)
	if err != nil {
		return Welcome{}, err
	}
	if s.Name == "" {
		s.Name = i.Name
	}
	newcomer, err := a.newcomer(ctx, from, toAcceptPasskey, account{s.Name, s.Password, s.Passkey})
	if err != nil {
		return Welcome{}, err
	}
	person, err := a.store.TakeInvite(ctx, code.Hash(), newcomer)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return Welcome{}, errInvite
	case errors.Is(err, store.ErrConflict):
		return Welcome{}, &Error{Status: 409, Code: "name_taken", Message: "somebody of that name is here already"}
	case err != nil:
		return Welcome{}, fmt.Errorf("taking an invite: %w", err)
	}
	return a.welcome(ctx, from, person)
}

// Recovery is what somebody sends who has lost the way in: a recovery key and a new password, or the code that the
// console shows and the name of an admin.
type Recovery struct {
	Code     Secret
	Name     string // of the admin, with the console's code: one that is there, or a new one
	Password Secret
}

// Recover lets an admin back in with a new password and a new recovery key. All logins of theirs end. A recovery key is
// good once, for whom it was made; the console's code is good for any admin, and for making one where none is left.
func (a *Auth) Recover(ctx context.Context, from Visitor, s Recovery) (Welcome, error) {
	code, err := ParseCode(s.Code.text)
	if err != nil {
		return Welcome{}, err
	}
	if err := a.tries.guess(a.now(), from.Address); err != nil {
		return Welcome{}, err
	}
	person, console, err := a.recovering(ctx, code, s.Name)
	if err != nil {
		return Welcome{}, err
	}
	record, err := a.record(ctx, s.Password, person.Name, from.Host)
	if err != nil {
		return Welcome{}, err
	}
	if console && !a.codes.disarm(code) {
		return Welcome{}, errNoCode // somebody else was first
	}
	a.tries.code.clear(from.Address)
	return a.reset(ctx, from, person, record)
}

// recovering returns whom a code lets back in, and whether it is the one on the console.
func (a *Auth) recovering(ctx context.Context, code Code, name string) (person store.Person, console bool, err error) {
	person, err = a.store.Recovery(ctx, code.Hash())
	if err == nil && person.Active(a.now()) {
		return person, false, nil
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return person, false, fmt.Errorf("looking up a recovery key: %w", err)
	}
	if _, err := a.compare(toRecover, code, nil); err != nil {
		return person, false, err
	}
	person, err = a.admin(ctx, name)
	return person, true, err
}

// admin returns the admin of a name. A name that nobody has stands for an admin to be made.
func (a *Auth) admin(ctx context.Context, name string) (store.Person, error) {
	if err := checkName(name); err != nil {
		return store.Person{}, err
	}
	person, err := a.store.PersonByName(ctx, store.System(), name)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return store.Person{Name: name, Role: store.RoleAdmin}, nil
	case err != nil:
		return store.Person{}, fmt.Errorf("looking up a person: %w", err)
	case person.Role != store.RoleAdmin:
		return store.Person{}, forbidden("not_an_admin", "this person is not an admin; an admin can help them")
	}
	return person, nil
}

// reset gives an admin a new password and a new recovery key.
func (a *Auth) reset(ctx context.Context, from Visitor, person store.Person, record string) (Welcome, error) {
	system := store.System()
	var err error
	if person.ID == "" {
		if person, err = a.store.CreatePerson(ctx, system, person); err != nil {
			return Welcome{}, fmt.Errorf("making an admin: %w", err)
		}
	} else if !person.Active(a.now()) {
		person.Disabled, person.Expires = false, time.Time{}
		if err := a.store.UpdatePerson(ctx, system, person); err != nil {
			return Welcome{}, fmt.Errorf("enabling an admin: %w", err)
		}
	}
	next := NewCode()
	steps := []func() error{
		func() error { return a.store.SetRecovery(ctx, system, person.ID, next.Hash()) },
		func() error { return a.store.SetPassword(ctx, system, person.ID, record) },
		func() error { return a.store.DeleteLoginsOf(ctx, system, person.ID) },
		func() error { return a.store.Audit(ctx, system, "recovery.use", person.ID, "from "+from.Address) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return Welcome{}, fmt.Errorf("letting an admin back in: %w", err)
		}
	}
	a.recheck(ctx)
	w, err := a.welcome(ctx, from, person)
	w.Recovery = next.Text()
	return w, err
}
