package admin

import (
	"slices"
	"time"

	"onebit/appliance/auth"
	"onebit/engine"
	"onebit/store"
)

// Key is an API key. Its secret is shown once, when it is made.
type Key struct {
	ID                string     `json:"id"`
	Owner             string     `json:"owner" about:"a person's id"`
	Name              string     `json:"name"`
	Prefix            string     `json:"prefix" about:"its first characters, to recognise it by"`
	Models            []string   `json:"models" about:"patterns with * and ?; empty means all"`
	Endpoints         []string   `json:"endpoints" about:"such as /chat/completions; empty means all"`
	Collections       []string   `json:"collections" about:"empty means all that the owner may see"`
	Bind              bool       `json:"bind" about:"passages of its collections are added to chats"`
	Admin             bool       `json:"admin" about:"good for the control plane"`
	RequestsPerMinute int        `json:"requests_per_minute" about:"0 is no limit"`
	TokensPerDay      int64      `json:"tokens_per_day" about:"prompt and answer; 0 is no limit"`
	Concurrency       int        `json:"concurrency" about:"requests at once; 0 is no limit"`
	Privacy           string     `json:"privacy" about:"none, metadata or full: what the request log keeps"`
	Created           time.Time  `json:"created"`
	Expires           *time.Time `json:"expires" about:"null: never"`
	Revoked           *time.Time `json:"revoked" about:"null: it is not"`
	Used              *time.Time `json:"used" about:"null: never; to the minute or so"`
}

// moment returns a time, or nil for none.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// instant returns a time, zero for none.
func instant(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// some returns a list that JSON shows as one, empty or not.
func some(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

func shownKey(k store.Key) Key {
	return Key{
		ID: k.ID, Owner: k.Owner, Name: k.Name, Prefix: k.Prefix, Models: some(k.Models), Endpoints: some(k.Endpoints),
		Collections: some(k.Collections), Bind: k.Bind, Admin: k.Admin, RequestsPerMinute: k.RequestsPerMinute, TokensPerDay: k.TokensPerDay,
		Concurrency: k.Concurrency, Privacy: string(k.Privacy), Created: k.Created, Expires: moment(k.Expires),
		Revoked: moment(k.Revoked), Used: moment(k.LastUsed),
	}
}

// KeyChange is what is to be different about a key, or what a new one is. What is absent stays, or is the default.
type KeyChange struct {
	Name              *string    `json:"name,omitempty"`
	Models            *[]string  `json:"models,omitempty"`
	Endpoints         *[]string  `json:"endpoints,omitempty"`
	Collections       *[]string  `json:"collections,omitempty"`
	Bind              *bool      `json:"bind,omitempty" about:"add passages of the collections to chats; there must be some"`
	RequestsPerMinute *int       `json:"requests_per_minute,omitempty"`
	TokensPerDay      *int64     `json:"tokens_per_day,omitempty"`
	Concurrency       *int       `json:"concurrency,omitempty"`
	Privacy           *string    `json:"privacy,omitempty"`
	Expires           *time.Time `json:"expires,omitempty"`
}

// Set changes a value to the one that was sent; nil was not.
func Set[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

func (c KeyChange) apply(k *store.Key) error {
	Set(&k.Name, c.Name)
	Set(&k.Models, c.Models)
	Set(&k.Endpoints, c.Endpoints)
	Set(&k.Collections, c.Collections)
	Set(&k.Bind, c.Bind)
	Set(&k.RequestsPerMinute, c.RequestsPerMinute)
	Set(&k.TokensPerDay, c.TokensPerDay)
	Set(&k.Concurrency, c.Concurrency)
	Set(&k.Expires, c.Expires)
	if c.Privacy != nil {
		k.Privacy = store.Privacy(*c.Privacy)
	}
	if k.Bind && len(k.Collections) == 0 {
		return &engine.InvalidError{Param: "bind", Code: "invalid_value", Message: `"bind" needs "collections": which documents are to be added?`}
	}
	return nil
}

// NewKey is a key to make.
type NewKey struct {
	KeyChange
	Owner string `json:"owner,omitempty" about:"a person's id; you when empty; others only by admins"`
	Admin bool   `json:"admin,omitempty"`
	Guest bool   `json:"guest,omitempty" about:"a pass for a visitor: it expires after a day and has limits, unless they are given"`
}

// MadeKey is a new key, with the secret that is shown this once.
type MadeKey struct {
	Key
	Secret string `json:"secret" about:"what a client sends; the box keeps only its hash"`
}

type keyList struct {
	Keys []Key `json:"keys"`
}

func (a *Admin) keyRoutes() []route {
	s := a.cfg.Store
	return []route{
		op("GET", "/keys", everyone, "your keys; all of them for admins", func(c *call, _ struct{}) (keyList, error) {
			keys, err := s.Keys(c.ctx(), c.actor())
			out := keyList{Keys: []Key{}}
			for _, k := range keys {
				out.Keys = append(out.Keys, shownKey(k))
			}
			return out, err
		}),
		op("POST", "/keys", everyone, "make a key", a.makeKey),
		op("GET", "/keys/{id}", everyone, "one key", func(c *call, in identified) (Key, error) {
			k, err := s.Key(c.ctx(), c.actor(), in.ID)
			return shownKey(k), err
		}),
		op("PATCH", "/keys/{id}", everyone, "change a key", func(c *call, in struct {
			identified
			KeyChange
		}) (Key, error) {
			k, err := s.Key(c.ctx(), c.actor(), in.ID)
			if err != nil {
				return Key{}, err
			}
			if err := in.apply(&k); err != nil {
				return Key{}, err
			}
			if err := a.cfg.Auth.UpdateKey(c.ctx(), c.who, k); err != nil {
				return Key{}, err
			}
			k, err = s.Key(c.ctx(), c.actor(), in.ID)
			return shownKey(k), err
		}),
		op("DELETE", "/keys/{id}", everyone, "revoke a key; its running requests end within a second", func(c *call, in identified) (none, error) {
			return none{}, s.RevokeKey(c.ctx(), c.actor(), in.ID)
		}),
	}
}

func (a *Admin) makeKey(c *call, in NewKey) (MadeKey, error) {
	k := store.Key{Owner: in.Owner, Admin: in.Admin, Privacy: store.PrivacyMetadata}
	if err := in.apply(&k); err != nil {
		return MadeKey{}, err
	}
	if k.Owner == "" && c.who.Kind == auth.Socket {
		owner, err := a.onlyAdmin(c)
		if err != nil {
			return MadeKey{}, err
		}
		k.Owner = owner
	}
	create := a.cfg.Auth.CreateKey
	if in.Guest {
		create = a.cfg.Auth.GuestPass
	}
	made, secret, err := create(c.ctx(), c.who, k)
	if err != nil {
		return MadeKey{}, err
	}
	return MadeKey{shownKey(made), secret.Expose()}, nil
}

// onlyAdmin is whose keys the console makes when it does not say: the console itself is nobody.
func (a *Admin) onlyAdmin(c *call) (string, error) {
	people, err := a.cfg.Store.People(c.ctx(), c.actor())
	if err != nil {
		return "", err
	}
	people = slices.DeleteFunc(people, func(p store.Person) bool { return p.Role != store.RoleAdmin || p.Disabled })
	if len(people) == 0 {
		return "", &engine.InvalidError{Code: "unclaimed", Message: "the box belongs to nobody yet: claim it first, with `1bit claim` or at /claim"}
	}
	if len(people) > 1 {
		return "", &engine.InvalidError{Param: "owner", Code: "missing_required_parameter", Message: `there are several admins: say whose key it is, by "owner" with a person's id, or --for NAME on the command line`}
	}
	return people[0].ID, nil
}
