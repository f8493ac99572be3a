package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"onebit/store"
)

// Kind is how a principal came in.
type Kind int

// The kinds.
const (
	Anonymous Kind = iota // shows nothing
	KeyHolder             // shows an API key
	Login                 // has logged in to the pages
	Socket                // speaks over the box's own socket
)

// String returns the kind as a word for logs.
func (k Kind) String() string {
	return [...]string{"anonymous", "key", "login", "socket"}[k]
}

// Principal is who asks. Nothing of it changes after Identify has made it.
type Principal struct {
	Kind Kind
	store.Actor
	Name  string     // of the person
	Role  store.Role // of the person
	Key   *store.Key // of a KeyHolder
	Login string     // id of the login of a Login

	secret [32]byte // by which it is looked up again
}

// Local is the principal of the box's own socket, which only who can write to it reaches. It is an admin.
func Local() *Principal {
	return &Principal{Kind: Socket, Actor: store.System(), Name: "console", Role: store.RoleAdmin}
}

// anonymous shows nothing and may nothing.
var anonymous = &Principal{}

// subject names whose requests are counted together: a key, or else a person.
func (p *Principal) subject() string {
	if p.Key != nil {
		return "key " + p.Key.ID
	}
	return "person " + p.Person
}

func (p *Principal) scope() scope {
	if p.Key == nil {
		return scope{}
	}
	return scope{p.Key.Endpoints, p.Key.Models, p.Key.Collections}
}

// MayUse reports whether the principal may use a model, for lists that show only such.
func (p *Principal) MayUse(model string) bool {
	return p.Kind != Anonymous && within(p.scope().models, model)
}

// MaySee reports whether the principal's key is good for a collection. Whose it is the store knows.
func (p *Principal) MaySee(collection string) bool {
	return p.Kind != Anonymous && within(p.scope().collections, collection)
}

// NeedAdmin refuses whoever is not an admin: 401 for nobody, 403 for somebody.
func (p *Principal) NeedAdmin() error {
	switch {
	case p.Kind == Anonymous:
		return errNeedKey
	case !p.Admin:
		return forbidden("admin_needed", "this is for admins")
	}
	return nil
}

type principalKey struct{}

// With returns a context that carries p.
func With(ctx context.Context, p *Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// From returns the principal that ctx carries; an anonymous one where it carries none.
func From(ctx context.Context) *Principal {
	if p, ok := ctx.Value(principalKey{}).(*Principal); ok {
		return p
	}
	return anonymous
}

var (
	errNeedKey = unauthorized("missing_api_key", "a key is needed: send it as Authorization: Bearer KEY, or as x-api-key")
	errKey     = unauthorized("invalid_api_key", "the key is not one of this box")
	errLogin   = unauthorized("invalid_login", "the login has ended: log in again")
)

// Identify returns who sends a request. Whatever it shows must be good: a wrong key is an error, not nobody. Who shows
// nothing is an error too; its message tells how to show something. A context that already carries the box's own socket
// stays with it.
//
// Errors that are an *Error are for the client; others are the store's.
func (a *Auth) Identify(ctx context.Context, r *http.Request) (*Principal, error) {
	if p := From(ctx); p.Kind == Socket {
		return p, nil
	}
	shown, err := Extract(r)
	if err != nil {
		return nil, err
	}
	if shown.Empty() {
		return nil, a.nothingShown(ctx, r)
	}
	if !shown.Key.Empty() {
		if !wellFormed(shown.Key.text, keyPrefix) {
			return nil, errKey
		}
		return a.principal(ctx, KeyHolder, shown.Key.hash())
	}
	if !wellFormed(shown.Login.text, "") {
		return nil, errLogin
	}
	if err := sameSite(r); err != nil {
		return nil, err
	}
	return a.principal(ctx, Login, shown.Login.hash())
}

// nothingShown says what to show.
func (a *Auth) nothingShown(ctx context.Context, r *http.Request) error {
	claimed, err := a.IsClaimed(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("asking whether the box is claimed: %w", err)
	case !claimed:
		return unauthorized("unclaimed", "the box belongs to nobody yet: claim it first, at /claim")
	case strings.Contains(r.URL.RawQuery, keyPrefix):
		return unauthorized("api_key_in_query", "a key in an address is not taken, since addresses end in logs; send it as Authorization: Bearer KEY")
	}
	return errNeedKey
}

// sameSite refuses what a page of another site makes a visitor's browser send along with the visitor's cookie. A
// WebSocket begins with a GET, but does more than read.
func sameSite(r *http.Request) error {
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") || r.Method == http.MethodConnect {
		r = r.Clone(r.Context())
		r.Method = http.MethodPost
	}
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return forbidden("cross_site_request", "a page of another site may not use this login")
	}
	return nil
}

// access is what a secret opens.
type access struct {
	key    *store.Key
	login  *store.Login
	person store.Person
}

// principal looks up what a secret opens, and refuses what no longer does.
func (a *Auth) principal(ctx context.Context, kind Kind, secret [32]byte) (*Principal, error) {
	x, generation, ok := a.cache.get(a.store, secret)
	if !ok {
		var err error
		if x, err = a.read(ctx, kind, secret); err != nil {
			return nil, err
		}
		a.cache.put(secret, x, generation)
	}
	return x.principal(kind, secret, a.now())
}

// read asks the store.
func (a *Auth) read(ctx context.Context, kind Kind, secret [32]byte) (x access, err error) {
	if kind == KeyHolder {
		k, person, err := a.store.KeyByHash(ctx, secret)
		if errors.Is(err, store.ErrNotFound) {
			return x, errKey
		}
		if err != nil {
			return x, fmt.Errorf("looking up a key: %w", err)
		}
		return access{key: &k, person: person}, nil
	}
	l, person, err := a.store.LoginByHash(ctx, secret)
	if errors.Is(err, store.ErrNotFound) {
		return x, errLogin
	}
	if err != nil {
		return x, fmt.Errorf("looking up a login: %w", err)
	}
	return access{login: &l, person: person}, nil
}

func (x access) principal(kind Kind, secret [32]byte, now time.Time) (*Principal, error) {
	if !x.person.Active(now) {
		return nil, unauthorized("person_inactive", "the person whose access this is may not use the box any more")
	}
	p := &Principal{Kind: kind, Name: x.person.Name, Role: x.person.Role, secret: secret}
	p.Person = x.person.ID
	if x.login != nil {
		if !now.Before(x.login.Expires) {
			return nil, errLogin
		}
		p.Login, p.Admin = x.login.ID, x.person.Role == store.RoleAdmin
		return p, nil
	}
	switch {
	case !x.key.Revoked.IsZero():
		return nil, unauthorized("revoked_api_key", "the key has been revoked")
	case !x.key.Active(now):
		return nil, unauthorized("expired_api_key", "the key has expired")
	}
	p.Key, p.Actor.Key = x.key, x.key.ID
	p.Admin = x.key.Admin && x.person.Role == store.RoleAdmin
	return p, nil
}
