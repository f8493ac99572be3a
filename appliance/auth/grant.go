package auth

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"onebit/store"
)

// Usage is what a request took.
type Usage struct {
	Model                      string // the box's name of it; empty: the model of the Use
	Prompt, Cached, Completion int64  // tokens; Cached is a part of Prompt
	Failed                     bool
}

// Grant is the leave to serve one request. End must be called when it has been served.
type Grant struct {
	Principal *Principal

	auth   *Auth
	use    Use
	ctx    context.Context
	cancel context.CancelCauseFunc
	ended  sync.Once
	held   bool // it is no use of the API: nothing is counted
}

// Context ends with the request's own, with End, and when the access is lost: its cause is then ErrRevoked.
func (g *Grant) Context() context.Context { return g.ctx }

// Begin grants p one use, or says why not: 401 to nobody, 403 outside the scope of its key, 429 when a quota is used up.
// A use whose model is not known yet may be begun without; Allow checks it later.
func (a *Auth) Begin(ctx context.Context, p *Principal, u Use) (*Grant, error) {
	if p == nil || p.Kind == Anonymous {
		return nil, errNeedKey
	}
	if err := p.scope().check(u); err != nil {
		return nil, err
	}
	l := limits{perMinute: a.cfg.Logins.RequestsPerMinute, concurrency: a.cfg.Logins.Concurrency}
	if p.Key != nil {
		l = limits{p.Key.RequestsPerMinute, p.Key.TokensPerDay, p.Key.Concurrency}
	}
	if p.Kind != Socket {
		if err := a.count(ctx, p, l); err != nil {
			return nil, err
		}
	}
	g := &Grant{Principal: p, auth: a, use: u}
	g.ctx, g.cancel = context.WithCancelCause(ctx)
	a.grants.add(g)
	// Identify and add are two steps: what was revoked between them would be missed by the recheck that revoking starts
	if err := a.lost(ctx, g); err != nil {
		g.cancel(err)
	}
	return g, nil
}

// Hold watches over a request that is no use of the API, such as one of the control plane: its context ends as that of
// a use does when the access is lost, and End counts nothing.
func (a *Auth) Hold(ctx context.Context, p *Principal) *Grant {
	g := &Grant{Principal: p, auth: a, held: true}
	g.ctx, g.cancel = context.WithCancelCause(ctx)
	a.grants.add(g)
	if err := a.lost(ctx, g); err != nil {
		g.cancel(err)
	}
	return g
}

// count counts a request in.
func (a *Auth) count(ctx context.Context, p *Principal, l limits) error {
	now := a.now()
	if !a.meters.has(p.subject()) && p.Key != nil {
		tokens, err := a.store.TokensToday(ctx, p.Key.ID)
		if err != nil {
			return fmt.Errorf("reading today's usage of a key: %w", err)
		}
		a.meters.start(p.subject(), meter{day: day(now), tokens: tokens, touched: now})
	}
	note, err := a.meters.begin(p.subject(), now, l)
	if note && p.Key != nil {
		a.store.TouchKey(p.Key.ID)
	}
	return err
}

// Allow checks what became known of a use after it had begun: its model and its collections. Call it before End.
func (g *Grant) Allow(model string, collections ...string) error {
	u := Use{Endpoint: g.use.Endpoint, Model: model, Collections: collections}
	if err := g.Principal.scope().check(u); err != nil {
		return err
	}
	g.auth.grants.change(g, u)
	return nil
}

// End counts the request out with what it took, and writes that down. Only the first call counts.
func (g *Grant) End(u Usage) {
	g.ended.Do(func() {
		a, p := g.auth, g.Principal
		use := a.grants.remove(g)
		g.cancel(nil)
		if p.Kind == Socket || g.held {
			return
		}
		a.meters.end(p.subject(), a.now(), u.Prompt+u.Completion)
		row := store.UsageRow{Key: p.Actor.Key, Person: p.Person, Model: use.Model, Endpoint: Endpoint(use.Endpoint),
			Requests: 1, Prompt: u.Prompt, Cached: u.Cached, Completion: u.Completion}
		if u.Model != "" {
			row.Model = u.Model
		}
		if u.Failed {
			row.Errors = 1
		}
		a.store.AddUsage(row)
	})
}

// lost returns why a running request may not go on, or nil. A store that cannot answer takes nobody's access.
func (a *Auth) lost(ctx context.Context, g *Grant) error {
	if g.Principal.Kind == Socket {
		return nil
	}
	p, err := a.principal(ctx, g.Principal.Kind, g.Principal.secret)
	if err == nil {
		if g.Principal.Admin && !p.Admin {
			err = forbidden("admin_needed", "the access is no longer an admin's")
		} else if !g.held {
			err = p.scope().check(a.grants.use(g))
		}
	}
	refusal, ok := errors.AsType[*Error](err)
	if !ok {
		return nil
	}
	cut := *refusal
	cut.revoked = true
	return &cut
}

// recheck cuts every running request whose access is lost.
func (a *Auth) recheck(ctx context.Context) {
	for _, g := range a.grants.all() {
		if err := a.lost(ctx, g); err != nil {
			g.cancel(err)
			a.log.Info("cut a running request", "person", g.Principal.Person, "key", g.Principal.Actor.Key, "why", err)
		}
	}
}

// grants holds what runs.
type grants struct {
	mu      sync.Mutex
	running map[*Grant]struct{}
}

func (s *grants) add(g *Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		s.running = map[*Grant]struct{}{}
	}
	s.running[g] = struct{}{}
}

func (s *grants) remove(g *Grant) Use {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, g)
	return g.use
}

func (s *grants) change(g *Grant, u Use) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.use = u
}

func (s *grants) use(g *Grant) Use {
	s.mu.Lock()
	defer s.mu.Unlock()
	return g.use
}

// all returns the grants whose contexts still run.
func (s *grants) all() []*Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*Grant, 0, len(s.running))
	for g := range s.running {
		if g.ctx.Err() == nil {
			list = append(list, g)
		}
	}
	return list
}

// Running returns how many uses have begun and not ended.
func (a *Auth) Running() int {
	a.grants.mu.Lock()
	defer a.grants.mu.Unlock()
	n := 0
	for g := range a.grants.running {
		if !g.held {
			n++
		}
	}
	return n
}

// meters holds a meter for each subject that was active of late.
type meters struct {
	mu sync.Mutex
	of map[string]*meter
}

func (t *meters) has(subject string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of[subject] != nil
}

// start begins to count, unless somebody else has meanwhile.
func (t *meters) start(subject string, m meter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.put(subject, m)
}

// put is start for who holds the lock.
func (t *meters) put(subject string, m meter) *meter {
	if t.of == nil {
		t.of = map[string]*meter{}
	}
	if t.of[subject] == nil {
		t.of[subject] = &m
	}
	return t.of[subject]
}

// begin counts a request in. note says that the store should hear of the use.
func (t *meters) begin(subject string, now time.Time, l limits) (note bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.put(subject, meter{day: day(now)})
	if err := m.begin(now, l); err != nil {
		return false, err
	}
	if now.Sub(m.noted) > 30*time.Second {
		m.noted, note = now, true
	}
	return note, nil
}

func (t *meters) end(subject string, now time.Time, tokens int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of[subject].end(now, tokens) // a meter with a running request is never forgotten
}

// forget drops the meters that nobody has needed for long. It looks only when there are many.
func (t *meters) forget(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.of) < 1000 {
		return
	}
	for subject, m := range t.of {
		if m.idle(now) {
			delete(t.of, subject)
		}
	}
}
