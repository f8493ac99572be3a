package auth_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"onebit/appliance/auth"
	"onebit/store"
)

// refusal returns the *auth.Error of an error.
func refusal(t *testing.T, err error) *auth.Error {
	t.Helper()
	e, ok := errors.AsType[*auth.Error](err)
	if !ok {
		t.Fatalf("%v is no refusal", err)
	}
	return e
}

func TestRequestsPerMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		_, secret := b.key(t, b.identify(t, b.claim(t).Login), store.Key{RequestsPerMinute: 3})
		p := b.byKey(t, secret)
		for range 3 {
			b.begin(t, p, chat).End(auth.Usage{})
			time.Sleep(5 * time.Second)
		}
		e := refusal(t, second(b.Begin(t.Context(), p, chat)))
		if e.Status != 429 || e.Code != "rate_limit_exceeded" || e.RetryAfter != 45*time.Second || e.Wire().NoRetry {
			t.Errorf("the fourth got %d %s, again after %v", e.Status, e.Code, e.RetryAfter)
		}
		time.Sleep(e.RetryAfter - time.Millisecond)
		if _, err := b.Begin(t.Context(), p, chat); err == nil {
			t.Error("it was let in too early")
		}
		time.Sleep(time.Millisecond)
		b.begin(t, p, chat).End(auth.Usage{})
		if _, err := b.Begin(t.Context(), p, chat); err == nil {
			t.Error("a fourth in one minute was let in")
		}
	})
}

// second returns the error of a pair.
func second[T any](_ T, err error) error { return err }

func TestConcurrency(t *testing.T) {
	b := newBox(t)
	_, secret := b.key(t, b.identify(t, b.claim(t).Login), store.Key{Concurrency: 2, RequestsPerMinute: 4})
	p := b.byKey(t, secret)
	one, two := b.begin(t, p, chat), b.begin(t, p, chat)
	for range 10 {
		if e := refusal(t, second(b.Begin(t.Context(), p, chat))); e.Status != 429 || e.Code != "concurrency_limit_exceeded" || e.RetryAfter < time.Second {
			t.Fatalf("the third got %d %s, again after %v", e.Status, e.Code, e.RetryAfter)
		}
	}
	one.End(auth.Usage{})
	one.End(auth.Usage{}) // counts once
	three := b.begin(t, p, chat)
	if _, err := b.Begin(t.Context(), p, chat); err == nil {
		t.Error("ending twice made room twice")
	}
	if one.Context().Err() == nil {
		t.Error("the context of what has ended still runs")
	}
	two.End(auth.Usage{})
	three.End(auth.Usage{})
	if n := b.Running(); n != 0 {
		t.Errorf("%d still run", n)
	}
	b.begin(t, p, chat).End(auth.Usage{}) // the refused ones did not count against the minute
}

func TestTokensPerDay(t *testing.T) {
	dir := t.TempDir()
	var secret auth.Secret
	synctest.Test(t, func(t *testing.T) {
		b := openBox(t, dir)
		_, secret = b.key(t, b.identify(t, b.claim(t).Login), store.Key{TokensPerDay: 1000})
		p := b.byKey(t, secret)
		b.begin(t, p, chat).End(auth.Usage{Prompt: 500, Cached: 400, Completion: 499})
		b.begin(t, p, chat).End(auth.Usage{Prompt: 1})
		e := refusal(t, second(b.Begin(t.Context(), p, chat)))
		if e.Status != 429 || e.Code != "insufficient_quota" || !e.Wire().NoRetry {
			t.Errorf("past the quota: %d %s", e.Status, e.Code)
		}
		if want := 24 * time.Hour; e.RetryAfter <= want-time.Hour || e.RetryAfter > want {
			t.Errorf("again after %v, want at midnight", e.RetryAfter)
		}
		must(t, b.store.Flush(t.Context()))
	})
	synctest.Test(t, func(t *testing.T) { // a restart on the same day forgets nothing
		b := openBox(t, dir)
		p := b.byKey(t, secret)
		e := refusal(t, second(b.Begin(t.Context(), p, chat)))
		if e.Code != "insufficient_quota" {
			t.Errorf("after a restart: %s", e.Code)
		}
		time.Sleep(e.RetryAfter)
		b.begin(t, p, chat).End(auth.Usage{Prompt: 1}) // a new day
	})
}

func TestUsageIsWrittenDown(t *testing.T) {
	b := newBox(t)
	boss := b.identify(t, b.claim(t).Login)
	k, secret := b.key(t, boss, store.Key{})
	g := b.begin(t, b.byKey(t, secret), auth.Use{Endpoint: "/v1/chat/completions"})
	must(t, g.Allow("qwen3"))
	g.End(auth.Usage{Prompt: 10, Cached: 4, Completion: 5, Failed: true})
	b.begin(t, boss, auth.Use{Endpoint: "/embeddings", Model: "e"}).End(auth.Usage{Prompt: 7})
	local := b.begin(t, auth.Local(), chat)
	local.End(auth.Usage{Prompt: 99})
	must(t, b.store.Flush(t.Context()))
	rows, err := b.store.UsageTotals(t.Context(), store.System(), store.UsageFilter{ByKey: true, ByPerson: true, ByModel: true, ByEndpoint: true})
	must(t, err)
	got := map[string]store.UsageRow{}
	for _, r := range rows {
		got[r.Model] = r
	}
	if r := got["qwen3"]; r.Key != k.ID || r.Person != boss.Person || r.Endpoint != "/chat/completions" || r.Requests != 1 || r.Errors != 1 || r.Prompt != 10 || r.Cached != 4 || r.Completion != 5 {
		t.Errorf("the key's row is %+v", r)
	}
	if r := got["e"]; r.Key != "" || r.Person != boss.Person || r.Prompt != 7 || r.Errors != 0 {
		t.Errorf("the login's row is %+v", r)
	}
	if len(rows) != 2 {
		t.Errorf("%d rows, want 2", len(rows))
	}
	if used, err := b.store.Key(t.Context(), store.System(), k.ID); err != nil || used.LastUsed.IsZero() {
		t.Errorf("the key was last used at %v, %v", used.LastUsed, err)
	}
}

func TestNobodyBeginsNothing(t *testing.T) {
	b := newBox(t)
	for _, p := range []*auth.Principal{nil, {}, auth.From(t.Context())} {
		if _, err := b.Begin(t.Context(), p, chat); refusal(t, err).Status != 401 {
			t.Errorf("%+v got %v", p, err)
		}
	}
}

func TestLoginLimits(t *testing.T) {
	b := newBox(t, func(c *auth.Config) { c.Logins = auth.Limits{Concurrency: 1} })
	anna := b.identify(t, b.claim(t).Login)
	g := b.begin(t, anna, chat)
	if _, err := b.Begin(t.Context(), anna, chat); code(err) != "concurrency_limit_exceeded" {
		t.Errorf("a second at once: %v", err)
	}
	b.begin(t, auth.Local(), chat).End(auth.Usage{})
	g.End(auth.Usage{})
}

// Open WebUI's CVE-2026-44553: who has lost access keeps no live stream. Each way to lose it cuts what runs within a second,
// and leaves alone what it does not concern.
func TestCut(t *testing.T) {
	type scene struct {
		*box
		boss, bob *auth.Principal
		key       store.Key
	}
	update := func(t *testing.T, s scene, change func(*store.Person)) {
		person, err := s.store.Person(t.Context(), s.boss.Actor, s.bob.Person)
		must(t, err)
		change(&person)
		must(t, s.store.UpdatePerson(t.Context(), s.boss.Actor, person))
	}
	edit := func(t *testing.T, s scene, change func(*store.Key)) {
		k, err := s.store.Key(t.Context(), s.boss.Actor, s.key.ID)
		must(t, err)
		change(&k)
		must(t, s.store.UpdateKey(t.Context(), s.boss.Actor, k))
	}
	tests := []struct {
		name           string
		do             func(t *testing.T, s scene)
		byKey, byLogin string // the code of the cause, empty when it runs on
	}{
		{name: "nothing happens", do: func(*testing.T, scene) {}},
		{name: "key revoked", do: func(t *testing.T, s scene) { must(t, s.store.RevokeKey(t.Context(), s.bob.Actor, s.key.ID)) }, byKey: "revoked_api_key"},
		{name: "key deleted", do: func(t *testing.T, s scene) { must(t, s.store.DeleteKey(t.Context(), s.bob.Actor, s.key.ID)) }, byKey: "invalid_api_key"},
		{name: "key expires", do: func(*testing.T, scene) { time.Sleep(time.Hour) }, byKey: "expired_api_key"},
		{name: "model taken away", do: func(t *testing.T, s scene) { edit(t, s, func(k *store.Key) { k.Models = []string{"gemma*"} }) }, byKey: "model_not_allowed"},
		{name: "endpoint taken away", do: func(t *testing.T, s scene) { edit(t, s, func(k *store.Key) { k.Endpoints = []string{"/embeddings"} }) }, byKey: "endpoint_not_allowed"},
		{name: "key renamed", do: func(t *testing.T, s scene) { edit(t, s, func(k *store.Key) { k.Name = "other" }) }},
		{name: "login deleted", do: func(t *testing.T, s scene) { must(t, s.store.DeleteLogin(t.Context(), s.bob.Actor, s.bob.Login)) }, byLogin: "invalid_login"},
		{name: "logged out", do: func(t *testing.T, s scene) { must(t, s.Logout(t.Context(), s.bob)) }, byLogin: "invalid_login"},
		{name: "person disabled", do: func(t *testing.T, s scene) { update(t, s, func(p *store.Person) { p.Disabled = true }) }, byKey: "person_inactive", byLogin: "person_inactive"},
		{name: "person expires", do: func(t *testing.T, s scene) {
			update(t, s, func(p *store.Person) { p.Expires = time.Now().Add(time.Minute) })
			time.Sleep(time.Minute)
		}, byKey: "person_inactive", byLogin: "person_inactive"},
		{name: "no longer an admin", do: func(t *testing.T, s scene) { update(t, s, func(p *store.Person) { p.Role = store.RoleMember }) }, byKey: "admin_needed", byLogin: "admin_needed"},
		{name: "person deleted", do: func(t *testing.T, s scene) { must(t, s.store.DeletePerson(t.Context(), s.boss.Actor, s.bob.Person)) }, byKey: "invalid_api_key", byLogin: "invalid_login"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := scene{box: newBox(t)}
				s.boss = s.identify(t, s.claim(t).Login)
				s.bob = s.identify(t, s.person(t, s.boss, "bob", store.RoleAdmin).Login)
				var secret auth.Secret
				s.key, secret = s.box.key(t, s.bob, store.Key{Admin: true, Expires: time.Now().Add(time.Hour)})
				byKey, byLogin, others := s.begin(t, s.byKey(t, secret), chat), s.begin(t, s.bob, chat), s.begin(t, s.boss, chat)
				tt.do(t, s)
				time.Sleep(999 * time.Millisecond)
				for way, w := range map[string]struct {
					g    *auth.Grant
					want string
				}{"key": {byKey, tt.byKey}, "login": {byLogin, tt.byLogin}, "somebody else": {others, ""}} {
					cause := context.Cause(w.g.Context())
					if got := code(cause); got != w.want {
						t.Errorf("by %s: cut with %q (%v), want %q", way, got, cause, w.want)
					}
					if (w.want != "") != errors.Is(cause, auth.ErrRevoked) {
						t.Errorf("by %s: the cause %v is ErrRevoked: %v", way, cause, errors.Is(cause, auth.ErrRevoked))
					}
					w.g.End(auth.Usage{Prompt: 1})
				}
			})
		})
	}
}

// What was revoked between Identify and Begin does not run either.
func TestCutBeforeBegin(t *testing.T) {
	b := newBox(t)
	boss := b.identify(t, b.claim(t).Login)
	key, secret := b.key(t, boss, store.Key{})
	p := b.byKey(t, secret)
	must(t, b.store.RevokeKey(t.Context(), boss.Actor, key.ID))
	g := b.begin(t, p, chat)
	defer g.End(auth.Usage{})
	if cause := context.Cause(g.Context()); !errors.Is(cause, auth.ErrRevoked) {
		t.Errorf("it runs: %v", cause)
	}
}

// Over a real connection: an event stream ends within a second of the revocation, with its cause as the last event.
func TestCutStream(t *testing.T) {
	b := newBox(t)
	boss := b.identify(t, b.claim(t).Login)
	key, secret := b.key(t, boss, store.Key{})
	stream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := b.Identify(r.Context(), r)
		if err != nil {
			refusal(t, err).Wire().Write(w)
			return
		}
		g, err := b.Begin(r.Context(), p, chat)
		if err != nil {
			refusal(t, err).Wire().Write(w)
			return
		}
		defer g.End(auth.Usage{})
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: first\n\n")
		http.NewResponseController(w).Flush()
		<-g.Context().Done()
		fmt.Fprintf(w, "data: %v\n\n", context.Cause(g.Context()))
	})
	s := b.serve(t, stream)
	r, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/v1/chat/completions", nil)
	must(t, err)
	r.Header.Set("x-api-key", secret.Expose())
	answer, err := s.Client().Do(r)
	must(t, err)
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	if !lines.Scan() || lines.Text() != "data: first" {
		t.Fatalf("the stream begins with %q", lines.Text())
	}
	revoked := time.Now()
	must(t, b.store.RevokeKey(t.Context(), boss.Actor, key.ID))
	var last string
	for lines.Scan() {
		if lines.Text() != "" {
			last = lines.Text()
		}
	}
	if last != "data: the key has been revoked" {
		t.Errorf("the stream ends with %q", last)
	}
	t.Logf("ended %v after the revocation", time.Since(revoked))
	if got, _ := send(t, s, "POST", "/v1/chat/completions", "", "x-api-key: "+secret.Expose()); got.StatusCode != 401 {
		t.Errorf("the next request got %d", got.StatusCode)
	}
}

// Many at once: the limits hold exactly, and nothing is left behind.
func TestManyAtOnce(t *testing.T) {
	b := newBox(t)
	boss := b.identify(t, b.claim(t).Login)
	key, secret := b.key(t, boss, store.Key{Concurrency: 5})
	var all sync.WaitGroup
	var mu sync.Mutex
	running, most := 0, 0
	for i := range 50 {
		all.Go(func() {
			for range 20 {
				p, err := b.Identify(t.Context(), request(t, "x-api-key: "+secret.Expose()))
				if err != nil {
					return // revoked below
				}
				g, err := b.Begin(t.Context(), p, chat)
				if err != nil {
					continue
				}
				mu.Lock()
				running++
				most = max(most, running)
				mu.Unlock()
				if g.Allow("qwen3") == nil {
					_ = g.Context().Err()
				}
				mu.Lock()
				running--
				mu.Unlock()
				g.End(auth.Usage{Prompt: 1})
			}
			if i == 25 {
				if err := b.store.RevokeKey(context.WithoutCancel(t.Context()), boss.Actor, key.ID); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if most > 5 || b.Running() != 0 {
		t.Errorf("%d ran at once, %d still run", most, b.Running())
	}
}

func TestGuestPass(t *testing.T) {
	b := newBox(t)
	boss := b.identify(t, b.claim(t).Login)
	k, secret, err := b.GuestPass(t.Context(), boss, store.Key{Name: "visitor"})
	must(t, err)
	if k.Expires.IsZero() || time.Until(k.Expires) > 25*time.Hour || k.RequestsPerMinute == 0 || k.Concurrency == 0 || k.Admin {
		t.Errorf("the pass is %+v", k)
	}
	if !strings.HasPrefix(secret.Expose(), k.Prefix) || !strings.HasPrefix(k.Prefix, "1b_") || len(k.Prefix) != 8 {
		t.Errorf("the visible part is %q", k.Prefix)
	}
	b.byKey(t, secret)
	for name, bad := range map[string]store.Key{"a year": {Name: "x", Expires: time.Now().AddDate(1, 0, 0)}, "admin": {Name: "x", Admin: true}, "past": {Name: "x", Expires: time.Now().Add(-time.Hour)}} {
		if _, _, err := b.GuestPass(t.Context(), boss, bad); refusal(t, err).Status != 400 {
			t.Errorf("%s: %v", name, err)
		}
	}
	guest := b.identify(t, b.person(t, boss, "gus", store.RoleGuest).Login)
	if _, _, err := b.CreateKey(t.Context(), guest, store.Key{Name: "x"}); code(err) != "member_needed" {
		t.Errorf("a guest makes a key: %v", err)
	}
}

func TestCheckKey(t *testing.T) {
	tests := []struct {
		name string
		key  store.Key
		code string
	}{
		{"plain", store.Key{Name: "x"}, ""},
		{"full", store.Key{Name: "x", Models: []string{"a/*"}, Endpoints: []string{"/chat/*"}, Collections: []string{"c"}, RequestsPerMinute: 60, TokensPerDay: 1e9, Concurrency: 4, Privacy: store.PrivacyFull}, ""},
		{"no name", store.Key{}, "bad_name"},
		{"name of control characters", store.Key{Name: "a\x1b[2J"}, "bad_name"},
		{"empty pattern", store.Key{Name: "x", Models: []string{""}}, "bad_scope"},
		{"endless pattern", store.Key{Name: "x", Models: []string{strings.Repeat("a", 201)}}, "bad_scope"},
		{"too many patterns", store.Key{Name: "x", Models: make([]string, 101)}, "bad_scope"},
		{"below zero", store.Key{Name: "x", RequestsPerMinute: -1}, "bad_limit"},
		{"tokens below zero", store.Key{Name: "x", TokensPerDay: -1}, "bad_limit"},
		{"concurrency below zero", store.Key{Name: "x", Concurrency: -1}, "bad_limit"},
		{"endless rate", store.Key{Name: "x", RequestsPerMinute: 1 << 30}, "bad_limit"},
		{"unknown privacy", store.Key{Name: "x", Privacy: "all"}, "bad_privacy"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := code(auth.CheckKey(tt.key)); got != tt.code {
				t.Errorf("got %q, want %q", got, tt.code)
			}
		})
	}
}
