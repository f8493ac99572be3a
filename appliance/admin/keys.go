package admin

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"onebit/appliance/auth"
	"onebit/appliance/config"
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
	Priority          string     `json:"priority" about:"interactive, normal or background: the highest that its requests may have"`
	Weight            int        `json:"weight" about:"its shares of a model beside other keys"`
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
		Concurrency: k.Concurrency, Priority: k.Priority, Weight: k.Weight, Privacy: string(k.Privacy), Created: k.Created, Expires: moment(k.Expires),
		Revoked: moment(k.Revoked), Used: moment(k.LastUsed),
	}
}

// KeyChange is what is to be different about a key, or what a new one is. What is absent stays, or is the default.
type KeyChange struct {
	Name              *string    `json:"name,omitempty"`
	Models            *[]string  `json:"models,omitempty" about:"patterns with * and ?; one that fits no model is a warning, since the model may come later"`
	Endpoints         *[]string  `json:"endpoints,omitempty" about:"patterns with * and ?, with or without /v1; one that fits no path of the API is refused"`
	Collections       *[]string  `json:"collections,omitempty" about:"ids, or names that one collection alone has, of those that the owner may see"`
	Bind              *bool      `json:"bind,omitempty" about:"add passages of the collections to chats; there must be some"`
	RequestsPerMinute *int       `json:"requests_per_minute,omitempty"`
	TokensPerDay      *int64     `json:"tokens_per_day,omitempty"`
	Concurrency       *int       `json:"concurrency,omitempty"`
	Priority          *string    `json:"priority,omitempty" about:"interactive, normal or background: requests that say a higher one get this; interactive when a key is made"`
	Weight            *int       `json:"weight,omitempty" about:"1 to 100: its share of a busy model beside other keys, 1 when a key is made; only an admin raises it"`
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
	Set(&k.Priority, c.Priority)
	Set(&k.Weight, c.Weight)
	Set(&k.Expires, c.Expires)
	if c.Privacy != nil {
		k.Privacy = store.Privacy(*c.Privacy)
	}
	if c.Weight != nil && *c.Weight < 1 || c.Priority != nil && *c.Priority == "" {
		return &engine.InvalidError{Code: "invalid_value", Message: `"weight" is 1 to 100, and "priority" is interactive, normal or background: leave out what is to stay`}
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
	Secret   string   `json:"secret" about:"what a client sends; the box keeps only its hash"`
	Warnings []string `json:"warnings,omitempty" about:"what the key is not good for at the moment"`
}

// ChangedKey is a key after a change.
type ChangedKey struct {
	Key
	Warnings []string `json:"warnings,omitempty" about:"what the key is not good for at the moment"`
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
		}) (ChangedKey, error) {
			return a.changeKey(c, in.ID, in.KeyChange)
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
	warnings, err := a.named(c, &k, store.Key{})
	if err != nil {
		return MadeKey{}, err
	}
	create := a.cfg.Auth.CreateKey
	if in.Guest {
		create = a.cfg.Auth.GuestPass
	}
	made, secret, err := create(c.ctx(), c.who, k)
	if err != nil {
		return MadeKey{}, err
	}
	return MadeKey{shownKey(made), secret.Expose(), warnings}, nil
}

func (a *Admin) changeKey(c *call, id string, change KeyChange) (ChangedKey, error) {
	s := a.cfg.Store
	k, err := s.Key(c.ctx(), c.actor(), id)
	if err != nil {
		return ChangedKey{}, err
	}
	before := k
	if err := change.apply(&k); err != nil {
		return ChangedKey{}, err
	}
	warnings, err := a.named(c, &k, before)
	if err != nil {
		return ChangedKey{}, err
	}
	if err := a.cfg.Auth.UpdateKey(c.ctx(), c.who, k); err != nil {
		return ChangedKey{}, err
	}
	k, err = s.Key(c.ctx(), c.actor(), id)
	return ChangedKey{shownKey(k), warnings}, err
}

// named looks at what a key names that it did not name before. The id of a collection is the box's word, which nobody knows in
// advance: what is none is refused, and names become ids. So are endpoints, which are the same in every box. Models have names that people choose, and may come after their keys:
// a name of none is a warning.
func (a *Admin) named(c *call, k *store.Key, before store.Key) (warnings []string, err error) {
	owner := cmp.Or(k.Owner, c.who.Person)
	refused := errors.Join(c.who.MayMakeKeys(), auth.CheckKey(*k)) != nil || !c.who.Admin && owner != c.who.Person
	if refused { // by whoever makes the key; nobody is told before what there is
		return nil, nil
	}
	k.Collections = slices.Clone(k.Collections)
	for i, word := range k.Collections {
		if slices.Contains(before.Collections, word) {
			continue
		}
		id, others, err := a.cfg.Documents.Resolve(c.ctx(), owner, word)
		if err != nil {
			return nil, err
		}
		if id == "" {
			return nil, &engine.InvalidError{Param: "collections", Code: "collection_not_found",
				Message: fmt.Sprintf("the key's owner sees no collection that has the id %q, or alone this name; %s", word, thereAre(others))}
		}
		k.Collections[i] = id
	}
	slices.Sort(k.Collections)
	k.Collections = slices.Compact(k.Collections)
	if err := a.reached(k.Endpoints, before.Endpoints); err != nil {
		return nil, err
	}
	var models []string
	for _, m := range a.cfg.Box.Models() {
		models = append(models, m.Name)
	}
	for _, p := range k.Models {
		if !slices.Contains(before.Models, p) && !slices.ContainsFunc(models, func(name string) bool { return auth.Match(p, name) }) {
			warnings = append(warnings, fmt.Sprintf("no model is called %q at the moment; %s", p, thereAre(models)))
		}
	}
	return warnings, nil
}

// reached refuses endpoints that nothing answers: a key would wait for them in vain. A key keeps those that it has.
func (a *Admin) reached(wanted, before []string) error {
	all := a.cfg.Box.Endpoints()
	for _, p := range wanted {
		if !slices.Contains(before, p) && !slices.ContainsFunc(all, func(name string) bool { return auth.MatchEndpoint(p, name) }) {
			return &engine.InvalidError{Param: "endpoints", Code: "endpoint_not_found",
				Message: fmt.Sprintf("there is no endpoint %q in the API%s", p, config.Meant(auth.Endpoint(p), all))}
		}
	}
	return nil
}

// most is how many things a message names.
const most = 20

// thereAre names what there is.
func thereAre(all []string) string {
	switch {
	case len(all) == 0:
		return "there is none"
	case len(all) > most:
		return "there are " + strings.Join(all[:most], ", ") + " and more"
	}
	return "there are " + strings.Join(all, ", ")
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
