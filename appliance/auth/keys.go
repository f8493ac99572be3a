package auth

import (
	"context"
	"fmt"
	"time"

	"onebit/appliance/queue"
	"onebit/store"
)

// Bounds on what a key may say.
const (
	maxPatterns    = 100
	maxPattern     = 200 // bytes
	maxPerMinute   = 100_000
	maxConcurrency = 10_000
)

// A guest pass is a key for a short while, with bounds where none are said.
const (
	guestLife        = 24 * time.Hour
	guestLongest     = 30 * 24 * time.Hour
	guestPerMinute   = 20
	guestConcurrency = 2
	guestPriority    = queue.Normal
)

// MayMakeKeys returns why p can neither make nor change keys, or nil: a key's limits are not for whoever they limit.
func (p *Principal) MayMakeKeys() error {
	switch {
	case p.Kind == Anonymous:
		return errNeedKey
	case p.Kind == KeyHolder && !p.Admin:
		return forbidden("admin_needed", "a key cannot make keys: log in")
	case p.Role == store.RoleGuest && p.Kind != Socket:
		return forbidden("member_needed", "a guest cannot make or change keys: ask an admin for a guest pass")
	}
	return nil
}

// UpdateKey changes a key of p's, or, where p is an admin, of anybody's. Who may not make keys may not widen one either.
func (a *Auth) UpdateKey(ctx context.Context, p *Principal, k store.Key) error {
	if err := p.MayMakeKeys(); err != nil {
		return err
	}
	if err := CheckKey(k); err != nil {
		return err
	}
	return a.store.UpdateKey(ctx, p.Actor, k)
}

// CreateKey makes an API key for p, or, where p is an admin, for another owner. It returns the key itself too: this once,
// since only its SHA-256 is stored. A key that is not an admin's cannot make keys, or it could make one with a wider scope.
func (a *Auth) CreateKey(ctx context.Context, p *Principal, k store.Key) (store.Key, Secret, error) {
	if err := p.MayMakeKeys(); err != nil {
		return store.Key{}, Secret{}, err
	}
	if err := CheckKey(k); err != nil {
		return store.Key{}, Secret{}, err
	}
	if !k.Expires.IsZero() && !k.Expires.After(a.now()) {
		return store.Key{}, Secret{}, invalid("bad_expiry", "the key would have expired already")
	}
	secret := random(keyPrefix)
	k.Prefix = secret.text[:8]
	made, err := a.store.CreateKey(ctx, p.Actor, k, secret.hash())
	if err != nil {
		return store.Key{}, Secret{}, fmt.Errorf("making a key: %w", err)
	}
	return made, secret, nil
}

// GuestPass makes a key for a visitor: it expires, after a day unless k says when, and has limits unless k has its own.
func (a *Auth) GuestPass(ctx context.Context, p *Principal, k store.Key) (store.Key, Secret, error) {
	now := a.now()
	if k.Expires.IsZero() {
		k.Expires = now.Add(guestLife)
	}
	if k.Expires.After(now.Add(guestLongest)) {
		return store.Key{}, Secret{}, invalid("bad_expiry", "a guest pass is good for up to 30 days")
	}
	if k.Admin {
		return store.Key{}, Secret{}, invalid("bad_key", "a guest pass is not an admin's")
	}
	if k.RequestsPerMinute == 0 {
		k.RequestsPerMinute = guestPerMinute
	}
	if k.Concurrency == 0 {
		k.Concurrency = guestConcurrency
	}
	if k.Priority == "" {
		k.Priority = guestPriority.String()
	}
	return a.CreateKey(ctx, p, k)
}

// CheckKey returns what is wrong with the settings of a key, new or changed, or nil.
func CheckKey(k store.Key) error {
	if err := checkName(k.Name); err != nil {
		return invalid("bad_name", "a key's name has 1 to 64 bytes of printable characters, and no space at either end")
	}
	for _, list := range [][]string{k.Models, k.Endpoints, k.Collections} {
		if len(list) > maxPatterns {
			return invalid("bad_scope", fmt.Sprintf("a scope has up to %d patterns", maxPatterns))
		}
		for _, p := range list {
			if p == "" || len(p) > maxPattern || !plain(p) {
				return invalid("bad_scope", fmt.Sprintf("a pattern has 1 to %d bytes of printable characters", maxPattern))
			}
		}
	}
	_, isPriority := queue.ParsePriority(k.Priority)
	switch {
	case k.Priority != "" && !isPriority:
		return invalid("bad_priority", "the priority is interactive, normal or background: the highest that the key's requests may have")
	case k.Weight < 0 || k.Weight > store.MaxWeight:
		return invalid("bad_weight", fmt.Sprintf("the weight is 1 to %d: how many shares of a model the key has beside others", store.MaxWeight))
	case k.RequestsPerMinute < 0 || k.RequestsPerMinute > maxPerMinute:
		return invalid("bad_limit", fmt.Sprintf("requests a minute are 0 for no limit, or up to %d", maxPerMinute))
	case k.Concurrency < 0 || k.Concurrency > maxConcurrency:
		return invalid("bad_limit", fmt.Sprintf("requests at once are 0 for no limit, or up to %d", maxConcurrency))
	case k.TokensPerDay < 0:
		return invalid("bad_limit", "tokens a day are 0 for no limit, or more")
	case k.Privacy != "" && k.Privacy != store.PrivacyNone && k.Privacy != store.PrivacyMetadata && k.Privacy != store.PrivacyFull:
		return invalid("bad_privacy", "the privacy is none, metadata or full")
	}
	return nil
}
