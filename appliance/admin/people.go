package admin

import (
	"context"
	"time"

	"onebit/appliance/auth"
	"onebit/engine"
	"onebit/store"
)

// Person is somebody who may use the box.
type Person struct {
	ID       string     `json:"id"`
	Name     string     `json:"name"`
	Role     string     `json:"role" about:"admin, member or guest"`
	Created  time.Time  `json:"created"`
	Expires  *time.Time `json:"expires" about:"null: never"`
	Disabled bool       `json:"disabled"`
}

func shownPerson(p store.Person) Person {
	return Person{ID: p.ID, Name: p.Name, Role: string(p.Role), Created: p.Created, Expires: moment(p.Expires), Disabled: p.Disabled}
}

type personList struct {
	People []Person `json:"people"`
}

// NewPerson is somebody to add without an invite: they get keys, but cannot log in until they have a password.
type NewPerson struct {
	Name    string     `json:"name"`
	Role    string     `json:"role,omitempty" about:"member unless it is given"`
	Expires *time.Time `json:"expires,omitempty"`
}

// PersonChange is what is to be different about a person. What is absent stays.
type PersonChange struct {
	Name     *string    `json:"name,omitempty"`
	Role     *string    `json:"role,omitempty"`
	Expires  *time.Time `json:"expires,omitempty"`
	Disabled *bool      `json:"disabled,omitempty"`
}

// NewInvite is an invite to make.
type NewInvite struct {
	Role    string     `json:"role,omitempty" about:"member unless it is given"`
	Name    string     `json:"name,omitempty" about:"of the newcomer; they choose when it is empty"`
	Expires *time.Time `json:"expires,omitempty" about:"of the invite: seven days unless it is given"`
	Until   *time.Time `json:"until,omitempty" about:"when the newcomer's access ends"`
}

// Invite lets one newcomer in.
type Invite struct {
	ID      string     `json:"id"`
	Role    string     `json:"role"`
	Name    string     `json:"name"`
	By      string     `json:"by" about:"a person's id"`
	Created time.Time  `json:"created"`
	Expires time.Time  `json:"expires"`
	Until   *time.Time `json:"until"`
}

func shownInvite(i store.Invite) Invite {
	return Invite{ID: i.ID, Role: string(i.Role), Name: i.Name, By: i.By, Created: i.Created, Expires: i.Expires, Until: moment(i.Until)}
}

// MadeInvite is a new invite, with what is shown this once.
type MadeInvite struct {
	Invite
	Code string `json:"code"`
	URL  string `json:"url" about:"to send to the newcomer; empty where the box has no address"`
}

type inviteList struct {
	Invites []Invite `json:"invites"`
}

// Session is one login.
type Session struct {
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
	Agent   string    `json:"agent" about:"what the browser said it was"`
	Address string    `json:"address"`
	Current bool      `json:"current" about:"it is the one that asks"`
}

type sessionList struct {
	Logins []Session `json:"logins"`
}

// ArmedCode is what the console shows to whoever claims the box or is let back in. Only the box's own socket gives it.
type ArmedCode struct {
	Code    string    `json:"code"`
	URL     string    `json:"url" about:"where to use it; empty where the box has no address"`
	Expires time.Time `json:"expires"`
	Claimed bool      `json:"claimed" about:"it lets an admin back in, rather than claims the box"`
}

func roleOf(word string) (store.Role, error) {
	switch r := store.Role(word); r {
	case "":
		return store.RoleMember, nil
	case store.RoleAdmin, store.RoleMember, store.RoleGuest:
		return r, nil
	}
	return "", &engine.InvalidError{Param: "role", Code: "invalid_value", Message: "a role is admin, member or guest"}
}

func (a *Admin) peopleRoutes() []route {
	s := a.cfg.Store
	return []route{
		op("GET", "/people", everyone, "the people of the box; only you, unless you are an admin", func(c *call, _ struct{}) (personList, error) {
			people, err := s.People(c.ctx(), c.actor())
			out := personList{People: []Person{}}
			for _, p := range people {
				out.People = append(out.People, shownPerson(p))
			}
			return out, err
		}),
		op("POST", "/people", admins, "add a person without an invite", func(c *call, in NewPerson) (Person, error) {
			role, err := roleOf(in.Role)
			if err != nil {
				return Person{}, err
			}
			p, err := s.CreatePerson(c.ctx(), c.actor(), store.Person{Name: trimmed(in.Name), Role: role, Expires: instant(in.Expires)})
			return shownPerson(p), err
		}),
		op("GET", "/people/{id}", everyone, "one person", func(c *call, in identified) (Person, error) {
			p, err := s.Person(c.ctx(), c.actor(), in.ID)
			return shownPerson(p), err
		}),
		op("PATCH", "/people/{id}", everyone, "change a person; yourself only your name, unless you are an admin", a.changePerson),
		op("DELETE", "/people/{id}", admins, "remove a person with their keys, logins, history and documents", func(c *call, in identified) (none, error) {
			if err := s.DeletePerson(c.ctx(), c.actor(), in.ID); err != nil { // first: they bring no more in
				return none{}, err
			}
			return none{}, a.cfg.Documents.Forget(context.WithoutCancel(c.ctx()), in.ID)
		}),
		op("GET", "/people/{id}/logins", everyone, "where a person is logged in", a.logins),
		op("DELETE", "/people/{id}/logins", everyone, "log a person out everywhere", func(c *call, in identified) (none, error) {
			return none{}, s.DeleteLoginsOf(c.ctx(), c.actor(), in.ID)
		}),
		op("DELETE", "/logins/{id}", everyone, "end one login", func(c *call, in identified) (none, error) {
			return none{}, s.DeleteLogin(c.ctx(), c.actor(), in.ID)
		}),
		op("POST", "/password", everyone, "change your password", func(c *call, in struct {
			Old string `json:"old"`
			New string `json:"new" about:"at least 12 characters"`
		}) (none, error) {
			return none{}, a.cfg.Auth.SetPassword(c.ctx(), auth.VisitorOf(c.r), c.who, auth.NewSecret(in.Old), auth.NewSecret(in.New))
		}),
		op("GET", "/invites", admins, "invites that nobody has used", func(c *call, _ struct{}) (inviteList, error) {
			all, err := s.Invites(c.ctx(), c.actor())
			out := inviteList{Invites: []Invite{}}
			for _, i := range all {
				out.Invites = append(out.Invites, shownInvite(i))
			}
			return out, err
		}),
		op("POST", "/invites", admins, "invite a newcomer", a.invite),
		op("DELETE", "/invites/{id}", admins, "take an invite back", func(c *call, in identified) (none, error) {
			return none{}, s.DeleteInvite(c.ctx(), c.actor(), in.ID)
		}),
		op("POST", "/claim-code", console, "make a new code: to claim the box, or to let an admin of a claimed one back in", func(c *call, _ struct{}) (ArmedCode, error) {
			armed, err := a.cfg.Auth.Arm(c.ctx())
			return ArmedCode{Code: armed.Code.Expose(), URL: armed.URL.Expose(), Expires: armed.Expires, Claimed: armed.Claimed}, err
		}),
	}
}

func (a *Admin) changePerson(c *call, in struct {
	identified
	PersonChange
}) (Person, error) {
	s := a.cfg.Store
	p, err := s.Person(c.ctx(), c.actor(), in.ID)
	if err != nil {
		return Person{}, err
	}
	if in.Role != nil {
		if p.Role, err = roleOf(*in.Role); err != nil {
			return Person{}, err
		}
	}
	Set(&p.Name, in.Name)
	Set(&p.Expires, in.Expires)
	Set(&p.Disabled, in.Disabled)
	if err := s.UpdatePerson(c.ctx(), c.actor(), p); err != nil {
		return Person{}, err
	}
	p, err = s.Person(c.ctx(), c.actor(), in.ID)
	return shownPerson(p), err
}

func (a *Admin) logins(c *call, in identified) (sessionList, error) {
	all, err := a.cfg.Store.Logins(c.ctx(), c.actor(), in.ID)
	out := sessionList{Logins: []Session{}}
	for _, l := range all {
		out.Logins = append(out.Logins, Session{ID: l.ID, Created: l.Created, Expires: l.Expires, Agent: l.Agent, Address: l.Address, Current: l.ID == c.who.Login && l.ID != ""})
	}
	return out, err
}

func (a *Admin) invite(c *call, in NewInvite) (MadeInvite, error) {
	role, err := roleOf(in.Role)
	if err != nil {
		return MadeInvite{}, err
	}
	made, err := a.cfg.Auth.Invite(c.ctx(), c.who, store.Invite{Role: role, Name: trimmed(in.Name), Expires: instant(in.Expires), Until: instant(in.Until)})
	if err != nil {
		return MadeInvite{}, err
	}
	return MadeInvite{shownInvite(made.Invite), made.Code.Expose(), made.URL.Expose()}, nil
}
