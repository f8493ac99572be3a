package auth_test

import (
	"errors"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"onebit/appliance/auth"
	"onebit/store"
)

func TestIdentify(t *testing.T) {
	b := newBox(t)
	if _, err := b.Identify(t.Context(), request(t)); code(err) != "unclaimed" {
		t.Errorf("before the claim: %v", err)
	}
	anna := b.identify(t, b.claim(t).Login)
	if anna.Kind != auth.Login || !anna.Admin || anna.Name != "anna" || anna.Role != store.RoleAdmin {
		t.Errorf("anna is %+v", anna)
	}
	_, plain := b.key(t, anna, store.Key{})
	_, admin := b.key(t, anna, store.Key{Admin: true})
	if p := b.byKey(t, plain); p.Admin || p.Person != anna.Person || p.Kind != auth.KeyHolder || code(p.NeedAdmin()) != "admin_needed" {
		t.Errorf("an admin's plain key makes %+v", p)
	}
	if p := b.byKey(t, admin); !p.Admin || p.NeedAdmin() != nil {
		t.Errorf("an admin's admin key makes %+v", p)
	}
	for name, tt := range map[string]struct{ line, code string }{
		"nothing":       {"Accept: */*", "missing_api_key"},
		"not our form":  {"x-api-key: sk-something", "invalid_api_key"},
		"unknown key":   {"x-api-key: 1b_" + plain.Expose()[4:] + "a", "invalid_api_key"},
		"unknown login": {"Cookie: " + auth.Cookie + "=" + plain.Expose()[3:], "invalid_login"},
		"key as login":  {"Cookie: " + auth.Cookie + "=" + plain.Expose(), "invalid_login"},
	} {
		if _, err := b.Identify(t.Context(), request(t, tt.line)); code(err) != tt.code {
			t.Errorf("%s: got %v, want %s", name, err, tt.code)
		}
	}
	if p, err := b.Identify(auth.With(t.Context(), auth.Local()), request(t)); err != nil || p.Kind != auth.Socket || !p.Admin {
		t.Errorf("the box's own socket is %+v, %v", p, err)
	}
	if p := auth.From(t.Context()); p.Kind != auth.Anonymous || code(p.NeedAdmin()) != "missing_api_key" || p.MayUse("x") {
		t.Errorf("nobody is %+v", p)
	}
}

// Open WebUI's CVE-2026-45339: what a key may not do, it may not do by whichever header it is shown.
func TestSameKeyInEveryHeader(t *testing.T) {
	b := newBox(t)
	anna := b.identify(t, b.claim(t).Login)
	_, key := b.key(t, anna, store.Key{Models: []string{"gemma*"}, Endpoints: []string{"/v1/chat/*"}})
	styles := map[string]string{
		"bearer":      "Authorization: Bearer " + key.Expose(),
		"x-api-key":   "x-api-key: " + key.Expose(),
		"api-key":     "api-key: " + key.Expose(),
		"subprotocol": "Sec-WebSocket-Protocol: realtime, openai-insecure-api-key." + key.Expose(),
	}
	for name, line := range styles {
		t.Run(name, func(t *testing.T) {
			p, err := b.Identify(t.Context(), request(t, line))
			if err != nil {
				t.Fatal(err)
			}
			g, err := b.Begin(t.Context(), p, auth.Use{Endpoint: "/v1/chat/completions", Model: "gemma-3"})
			if err != nil {
				t.Fatal(err)
			}
			if err := g.Allow("qwen3"); code(err) != "model_not_allowed" {
				t.Errorf("another model later: %v", err)
			}
			g.End(auth.Usage{})
			if _, err := b.Begin(t.Context(), p, chat); code(err) != "model_not_allowed" {
				t.Errorf("another model: %v", err)
			}
			if _, err := b.Begin(t.Context(), p, auth.Use{Endpoint: "/v1/embeddings", Model: "gemma-3"}); code(err) != "endpoint_not_allowed" {
				t.Errorf("another endpoint: %v", err)
			}
			if code(p.NeedAdmin()) != "admin_needed" || p.MayUse("qwen3") || !p.MayUse("gemma-3") {
				t.Error("the key may more than it was made for")
			}
		})
	}
	t.Run("query", func(t *testing.T) {
		r := httptest.NewRequest("GET", "https://box.local/v1/models?api_key="+key.Expose(), nil)
		if _, err := b.Identify(t.Context(), r); code(err) != "api_key_in_query" {
			t.Errorf("got %v", err)
		}
	})
}

// LiteLLM's CVE-2026-42208: what is shown as a key never becomes a part of a statement.
func TestHostileKeys(t *testing.T) {
	b := newBox(t)
	anna := b.identify(t, b.claim(t).Login)
	key, secret := b.key(t, anna, store.Key{})
	tail := secret.Expose()[3:]
	corpus := []string{
		"' or '1'='1", "' or 1=1 --", "1b_' or '1'='1' --", "'; drop table keys; --", "1b_%", "1b_" + "%" + tail[1:], "1b__" + tail[1:],
		"' union select * from keys --", "\" or \"\"=\"", "1b_" + tail + "' --", "1b_" + tail + "\x00", "x' and sleep(5) --", "1b_*", "${jndi:ldap://x}",
		key.ID, key.Prefix, "null", "undefined", "true", "[]", "{\"$ne\":null}", "1B_" + tail, "1b_" + "A" + tail[1:], "\xff\xfe", "1b_" + string(make([]byte, 52)),
	}
	for _, bad := range corpus {
		for _, header := range []string{"Authorization", "X-Api-Key"} {
			r := request(t)
			value := bad
			if header == "Authorization" {
				value = "Bearer " + bad
			}
			r.Header[header] = []string{value}
			if p, err := b.Identify(t.Context(), r); code(err) != "invalid_api_key" {
				t.Errorf("%s: %q makes %+v, %v", header, bad, p, err)
			}
		}
		r := request(t)
		r.Header["Cookie"] = []string{auth.Cookie + "=" + bad}
		if p, err := b.Identify(t.Context(), r); err == nil {
			t.Errorf("cookie %q makes %+v", bad, p)
		}
	}
	b.byKey(t, secret) // all is still there
}

// A page of another site gets nothing by a visitor's login, whatever it makes the browser send.
func TestForeignPages(t *testing.T) {
	b := newBox(t)
	login := b.claim(t).Login
	_, key := b.key(t, b.identify(t, login), store.Key{})
	cookie := "Cookie: " + auth.Cookie + "=" + login.Expose()
	tests := []struct {
		name, method string
		lines        []string
		code         string
	}{
		{"form of another site", "POST", []string{cookie, "Sec-Fetch-Site: cross-site", "Content-Type: text/plain"}, "cross_site_request"},
		{"form of a sister host", "POST", []string{cookie, "Sec-Fetch-Site: same-site"}, "cross_site_request"},
		{"older browser", "POST", []string{cookie, "Origin: https://evil.test"}, "cross_site_request"},
		{"hidden origin", "DELETE", []string{cookie, "Origin: null"}, "cross_site_request"},
		{"websocket", "GET", []string{cookie, "Upgrade: websocket", "Connection: Upgrade", "Origin: https://evil.test"}, "cross_site_request"},
		{"websocket over h2", "CONNECT", []string{cookie, "Origin: https://evil.test"}, "cross_site_request"},
		{"own page", "POST", []string{cookie, "Sec-Fetch-Site: same-origin", "Origin: https://box.local"}, ""},
		{"own websocket", "GET", []string{cookie, "Upgrade: websocket", "Origin: https://box.local"}, ""},
		{"own link", "GET", []string{cookie, "Sec-Fetch-Site: none"}, ""},
		{"a program", "POST", []string{cookie}, ""},
		{"another site with a key of its own", "POST", []string{"x-api-key: " + key.Expose(), "Sec-Fetch-Site: cross-site", "Origin: https://chat.test"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := request(t, tt.lines...)
			r.Method = tt.method
			if _, err := b.Identify(t.Context(), r); code(err) != tt.code {
				t.Errorf("got %v, want %q", err, tt.code)
			}
		})
	}
}

// Whatever takes the access away is seen by the next request.
func TestLostAccess(t *testing.T) {
	lose := map[string]struct {
		lose func(t *testing.T, b *box, boss, bob *auth.Principal, key store.Key)
		key  string
	}{
		"revoked": {func(t *testing.T, b *box, boss, bob *auth.Principal, key store.Key) {
			must(t, b.store.RevokeKey(t.Context(), boss.Actor, key.ID))
		}, "revoked_api_key"},
		"deleted": {func(t *testing.T, b *box, boss, bob *auth.Principal, key store.Key) {
			must(t, b.store.DeleteKey(t.Context(), boss.Actor, key.ID))
		}, "invalid_api_key"},
		"expired": {func(t *testing.T, b *box, boss, bob *auth.Principal, key store.Key) {
			time.Sleep(2 * time.Hour)
		}, "expired_api_key"},
		"person disabled": {func(t *testing.T, b *box, boss, bob *auth.Principal, key store.Key) {
			person, err := b.store.Person(t.Context(), boss.Actor, bob.Person)
			must(t, err)
			person.Disabled = true
			must(t, b.store.UpdatePerson(t.Context(), boss.Actor, person))
		}, "person_inactive"},
		"person deleted": {func(t *testing.T, b *box, boss, bob *auth.Principal, key store.Key) {
			must(t, b.store.DeletePerson(t.Context(), boss.Actor, bob.Person))
		}, "invalid_api_key"},
	}
	for name, tt := range lose {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBox(t)
				boss := b.identify(t, b.claim(t).Login)
				bob := b.identify(t, b.person(t, boss, "bob", store.RoleMember).Login)
				key, secret := b.key(t, bob, store.Key{Expires: time.Now().Add(time.Hour)})
				b.byKey(t, secret)
				tt.lose(t, b, boss, bob, key)
				if _, err := b.Identify(t.Context(), request(t, "x-api-key: "+secret.Expose())); code(err) != tt.key {
					t.Errorf("the next request got %v, want %s", err, tt.key)
				}
			})
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Other people's ids are not found, whichever call is asked, and by whichever way in.
func TestOthersIDs(t *testing.T) {
	b := newBox(t)
	ctx := t.Context()
	boss := b.identify(t, b.claim(t).Login)
	alice := b.identify(t, b.person(t, boss, "alice", store.RoleMember).Login)
	bob := b.identify(t, b.person(t, boss, "bob", store.RoleMember).Login)
	hers, _ := b.key(t, alice, store.Key{Name: "hers"})
	_, his := b.key(t, bob, store.Key{Name: "his"})
	for way, who := range map[string]*auth.Principal{"login": bob, "key": b.byKey(t, his)} {
		calls := map[string]func() error{
			"read her key":          func() error { _, err := b.store.Key(ctx, who.Actor, hers.ID); return err },
			"change her key":        func() error { k := hers; k.Name = "mine"; return b.store.UpdateKey(ctx, who.Actor, k) },
			"revoke her key":        func() error { return b.store.RevokeKey(ctx, who.Actor, hers.ID) },
			"delete her key":        func() error { return b.store.DeleteKey(ctx, who.Actor, hers.ID) },
			"read her":              func() error { _, err := b.store.Person(ctx, who.Actor, alice.Person); return err },
			"delete her login":      func() error { return b.store.DeleteLogin(ctx, who.Actor, alice.Login) },
			"set her password":      func() error { return b.store.SetPassword(ctx, who.Actor, alice.Person, "x") },
			"a key that is nowhere": func() error { _, err := b.store.Key(ctx, who.Actor, store.NewID()); return err },
		}
		for name, call := range calls {
			if err := call(); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("by %s: %s: got %v, want not found", way, name, err)
			}
		}
		keys, err := b.store.Keys(ctx, who.Actor)
		must(t, err)
		for _, k := range keys {
			if k.Owner != bob.Person {
				t.Errorf("by %s: bob sees the key %s of %s", way, k.Name, k.Owner)
			}
		}
	}
	if _, _, err := b.CreateKey(ctx, bob, store.Key{Name: "x", Owner: alice.Person}); err == nil {
		t.Error("bob makes a key for alice")
	}
	if _, _, err := b.CreateKey(ctx, bob, store.Key{Name: "x", Admin: true}); err == nil {
		t.Error("bob makes an admin key")
	}
	if _, _, err := b.CreateKey(ctx, b.byKey(t, his), store.Key{Name: "x"}); code(err) != "admin_needed" {
		t.Errorf("a key makes a key: %v", err)
	}
	if _, err := b.Invite(ctx, bob, store.Invite{Role: store.RoleAdmin}); code(err) != "admin_needed" {
		t.Errorf("bob invites an admin: %v", err)
	}
	if got, err := b.store.Key(ctx, alice.Actor, hers.ID); err != nil || got.Name != "hers" || !got.Revoked.IsZero() {
		t.Errorf("her key is now %+v, %v", got, err)
	}
}
