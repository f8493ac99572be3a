// Package auth says who is calling and what they may: API keys and logins, what they are good for and how much of it,
// people and how they come in, the claim of a new box and the way back for an admin who is locked out.
//
// A request goes through three steps. [Extract] finds what it shows, [Auth.Identify] makes a [Principal] of that, and
// [Auth.Begin] grants one use: it checks the scope and counts the quotas. The [Grant] holds the request's context, which
// ends within a second of the moment when the access is revoked, changed or expires.
//
// What is stored lives in package store; quotas and the codes that are shown on the console live in memory.
package auth

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"onebit/store"
)

// Config is what an Auth works with. Store, Log and Console must be given.
type Config struct {
	Store   *store.Store
	Log     *slog.Logger
	Console io.Writer        // where codes are shown: the screen of the box, never a log
	Clock   func() time.Time // nil: time.Now; the store's clock

	Cost      Cost          // of a password check; zero: 32 MiB and three passes
	LoginLife time.Duration // of a login; 0: seven days
	Logins    Limits        // of each person that uses the API by login

	// Settings returns what to store, with the claim in one step, of values of the configuration by path: name and tls.mode. An
	// *engine.InvalidError says that they do not fit. Nil: a claim cannot choose them.
	Settings func(ctx context.Context, values map[string]string) (map[string]json.RawMessage, error)

	URL     func() string                                                        // the box's own address, such as https://box.local; nil or empty: the claim shows a code alone
	Root    func() []byte                                                        // the root certificate of the box as PEM; nil or empty: it has none
	Words   func(fingerprint string) string                                      // the words for the SHA-256 of a root in hexadecimal, which a person compares; nil: none
	Restore func(ctx context.Context, backup io.Reader, passphrase Secret) error // restores a backup in place of a claim; nil: it cannot
	Claimed func()                                                               // called once the box has been claimed or restored; nil: nobody cares
}

// Limits is what a principal may take. A limit of 0 is no limit.
type Limits struct {
	RequestsPerMinute int
	Concurrency       int
}

// Auth answers for one box. All methods are safe for concurrent use.
type Auth struct {
	cfg   Config
	store *store.Store
	log   *slog.Logger
	now   func() time.Time

	cache     cache
	meters    meters
	grants    grants
	hasher    *hasher
	tries     tries
	codes     codes
	passkeys  ceremonies
	door      http.Handler
	doorPaths map[string]bool // that door answers
	isClaimed atomic.Bool     // true once the store has said so; it never turns false again
}

// New returns an Auth. It starts nothing.
func New(cfg Config) (*Auth, error) {
	switch {
	case cfg.Store == nil:
		return nil, errors.New("auth needs a store")
	case cfg.Log == nil:
		return nil, errors.New("auth needs a log")
	case cfg.Console == nil:
		return nil, errors.New("auth needs a console to show codes on")
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.LoginLife == 0 {
		cfg.LoginLife = 7 * 24 * time.Hour
	}
	h, err := newHasher(cfg.Cost)
	if err != nil {
		return nil, err
	}
	a := &Auth{cfg: cfg, store: cfg.Store, log: cfg.Log, now: cfg.Clock, hasher: h, tries: newTries()}
	a.door = a.newDoor()
	return a, nil
}

// sweep is how often running requests are looked at for what passes without anybody's doing: an expiry.
const sweep = 400 * time.Millisecond

// Run cuts the running requests of whoever loses access. It returns nil when ctx ends.
func (a *Auth) Run(ctx context.Context) error {
	tick := time.NewTicker(sweep)
	defer tick.Stop()
	for {
		changed := a.store.AccessChanged()
		a.recheck(ctx)
		a.meters.forget(a.now())
		a.hasher.tidy()
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-tick.C:
		}
	}
}

// IsClaimed reports whether the box belongs to somebody.
func (a *Auth) IsClaimed(ctx context.Context) (bool, error) {
	if a.isClaimed.Load() {
		return true, nil
	}
	claimed, err := a.store.Claimed(ctx)
	if claimed && err == nil {
		a.isClaimed.Store(true)
	}
	return claimed, err
}

// cache holds what secrets open, as the store last said it. It is empty again with every change that the store tells.
type cache struct {
	mu      sync.Mutex
	changed <-chan struct{} // of the generation that known is of
	known   map[[32]byte]access
}

// cached bounds the cache.
const cached = 4096

// get returns what is known of a secret, and the generation to hand to put.
func (c *cache) get(s *store.Store, hash [32]byte) (x access, generation <-chan struct{}, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stale := c.known == nil
	select {
	case <-c.changed:
		stale = true
	default:
	}
	if stale {
		c.changed, c.known = s.AccessChanged(), map[[32]byte]access{}
	}
	x, ok = c.known[hash]
	return x, c.changed, ok
}

// put keeps what was read after get, unless something has changed meanwhile.
func (c *cache) put(hash [32]byte, x access, generation <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed != generation {
		return
	}
	if len(c.known) >= cached {
		clear(c.known)
	}
	c.known[hash] = x
}
