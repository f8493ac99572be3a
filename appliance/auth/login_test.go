package auth_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"onebit/appliance/auth"
	"onebit/store"
)

func TestLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t, func(c *auth.Config) { c.LoginLife = time.Hour })
		b.claim(t)
		w, err := b.LoginPassword(t.Context(), here, "Anna", auth.NewSecret(good)) // names have no case
		must(t, err)
		p := b.identify(t, w.Login)
		if p.Kind != auth.Login || p.Person != w.Person.ID {
			t.Errorf("logged in as %+v", p)
		}
		for name, password := range map[string]string{"anna": "another password", "nobody": good, "": good, "anna\x00": good, strings.Repeat("n", 1000): good} {
			if _, err := b.LoginPassword(t.Context(), from(len(name)), name, auth.NewSecret(password)); code(err) != "wrong_login" {
				t.Errorf("%.10q with %q: %v", name, password, err)
			}
		}
		time.Sleep(time.Hour - time.Second)
		b.identify(t, w.Login)
		time.Sleep(time.Second)
		if _, err := b.Identify(t.Context(), request(t, "Cookie: "+auth.Cookie+"="+w.Login.Expose())); code(err) != "invalid_login" {
			t.Errorf("after its hour: %v", err)
		}
	})
}

func TestLoginTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		boss := b.identify(t, b.claim(t).Login)
		b.person(t, boss, "bob", store.RoleMember)
		time.Sleep(time.Minute)
		try := func(from auth.Visitor, name, password string) string {
			_, err := b.LoginPassword(t.Context(), from, name, auth.NewSecret(password))
			return code(err)
		}
		for range 5 {
			if got := try(here, "anna", "wrong password"); got != "wrong_login" {
				t.Fatal(got)
			}
		}
		if got := try(here, "ANNA", good); got != "too_many_tries" {
			t.Errorf("the sixth from here: %q", got)
		}
		if got := try(from(1), "anna", good); got != "" {
			t.Errorf("the owner from elsewhere: %q", got)
		}
		if got := try(here, "bob", good+"bob"); got != "" {
			t.Errorf("another person from here: %q", got)
		}
		for range 40 {
			try(here, "bob"+strings.Repeat("x", 3), "wrong password")
		}
		for n := range 30 {
			try(here, "b"+strings.Repeat("x", n), "wrong password")
		}
		if got := try(here, "bob", good+"bob"); got != "too_many_tries" {
			t.Errorf("an address that tried all names: %q", got)
		}
		for n := range 40 {
			try(from(n), "anna", "wrong password")
		}
		if got := try(from(99), "anna", good); got != "too_many_tries" {
			t.Errorf("a person whom all addresses tried: %q", got)
		}
		time.Sleep(time.Minute)
		if got := try(here, "anna", good); got != "" {
			t.Errorf("a minute later: %q", got)
		}
		if got := b.actions(t); !strings.Contains(got, "login.refuse") {
			t.Errorf("the audit log has %q", got)
		}
	})
}

func TestPasswordGrowsStronger(t *testing.T) {
	dir := t.TempDir()
	t.Run("old cost", func(t *testing.T) { openBox(t, dir).claim(t) })
	t.Run("new cost", func(t *testing.T) {
		b := openBox(t, dir, func(c *auth.Config) { c.Cost = auth.Cost{Memory: 128, Time: 2, Threads: 1} })
		_, err := b.LoginPassword(t.Context(), here, "anna", auth.NewSecret(good))
		must(t, err)
		record, _, err := b.store.Password(t.Context(), "anna")
		if err != nil || !strings.Contains(record, "m=128,t=2") {
			t.Errorf("the record is %q, %v", record, err)
		}
		_, err = b.LoginPassword(t.Context(), here, "anna", auth.NewSecret(good))
		must(t, err)
	})
}

func TestDisabledPersonCannotLogIn(t *testing.T) {
	b := newBox(t)
	boss := b.identify(t, b.claim(t).Login)
	w := b.person(t, boss, "bob", store.RoleMember)
	w.Person.Disabled = true
	must(t, b.store.UpdatePerson(t.Context(), boss.Actor, w.Person))
	if _, err := b.LoginPassword(t.Context(), here, "bob", auth.NewSecret(good+"bob")); code(err) != "wrong_login" {
		t.Errorf("got %v", err)
	}
}

func TestSetPassword(t *testing.T) {
	b := newBox(t)
	first := b.claim(t).Login
	second, err := b.LoginPassword(t.Context(), here, "anna", auth.NewSecret(good))
	must(t, err)
	p := b.identify(t, second.Login)
	next := auth.NewSecret("another good password")
	if err := b.SetPassword(t.Context(), here, p, auth.NewSecret("wrong"), next); code(err) != "wrong_password" {
		t.Errorf("with another old one: %v", err)
	}
	if err := b.SetPassword(t.Context(), here, p, auth.NewSecret(good), auth.NewSecret("short")); code(err) != "weak_password" {
		t.Errorf("a weak one: %v", err)
	}
	must(t, b.SetPassword(t.Context(), here, p, auth.NewSecret(good), next))
	b.identify(t, second.Login)
	if _, err := b.Identify(t.Context(), request(t, "Cookie: "+auth.Cookie+"="+first.Expose())); code(err) != "invalid_login" {
		t.Errorf("the other login still works: %v", err)
	}
	if _, err := b.LoginPassword(t.Context(), here, "anna", auth.NewSecret(good)); code(err) != "wrong_login" {
		t.Errorf("the old password: %v", err)
	}
	_, err = b.LoginPassword(t.Context(), here, "anna", next)
	must(t, err)
}

func TestCookie(t *testing.T) {
	w := httptest.NewRecorder()
	auth.SetCookie(w, auth.NewSecret("value"), time.Now().Add(time.Hour))
	c := w.Result().Cookies()[0]
	if c.Name != "__Host-1bit" || c.Value != "value" || !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" {
		t.Errorf("the cookie is %+v", c)
	}
	w = httptest.NewRecorder()
	auth.SetCookie(w, auth.Secret{}, time.Time{})
	if c := w.Result().Cookies()[0]; c.MaxAge >= 0 || c.Value != "" {
		t.Errorf("taken away as %+v", c)
	}
}

func TestInvite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		boss := b.identify(t, b.claim(t).Login)
		until := time.Now().Add(time.Hour)
		i, err := b.Invite(t.Context(), boss, store.Invite{Role: store.RoleGuest, Name: "gus", Until: until})
		must(t, err)
		if i.URL.Expose() != "https://box.local/invite#"+i.Code.Expose() {
			t.Error("the address is another")
		}
		accept := func(code auth.Secret, name, password string) error {
			_, err := b.Accept(t.Context(), here, auth.Acceptance{Code: code, Name: name, Password: auth.NewSecret(password)})
			return err
		}
		if err := accept(auth.NewCode().Text(), "eve", good); code(err) != "wrong_code" {
			t.Errorf("another code: %v", err)
		}
		if err := accept(i.Code, "anna", good); code(err) != "name_taken" {
			t.Errorf("a name that is taken: %v", err)
		}
		if err := accept(i.Code, "", "short"); code(err) != "weak_password" {
			t.Errorf("a weak password: %v", err)
		}
		w, err := b.Accept(t.Context(), here, auth.Acceptance{Code: i.Code, Password: auth.NewSecret(good)})
		must(t, err)
		if w.Person.Name != "gus" || w.Person.Role != store.RoleGuest || !w.Person.Expires.Equal(until) || !w.Recovery.Empty() {
			t.Errorf("came in as %+v", w)
		}
		if err := accept(i.Code, "gus2", good); code(err) != "wrong_code" {
			t.Errorf("a second time: %v", err)
		}
		time.Sleep(time.Hour)
		if _, err := b.LoginPassword(t.Context(), here, "gus", auth.NewSecret(good)); code(err) != "wrong_login" {
			t.Errorf("the guest after an hour: %v", err)
		}
		late, err := b.Invite(t.Context(), boss, store.Invite{Role: store.RoleMember, Expires: time.Now().Add(time.Minute)})
		must(t, err)
		time.Sleep(time.Minute)
		if err := accept(late.Code, "late", good); code(err) != "wrong_code" {
			t.Errorf("after its minute: %v", err)
		}
		week, err := b.Invite(t.Context(), boss, store.Invite{Role: store.RoleMember})
		if left := time.Until(week.Invite.Expires); err != nil || left != 7*24*time.Hour {
			t.Errorf("an invite that does not say is good for %v, %v", left, err)
		}
		for name, bad := range map[string]store.Invite{"role": {Role: "king"}, "no role": {}, "a year": {Role: store.RoleMember, Expires: time.Now().AddDate(1, 0, 0)}, "gone": {Role: store.RoleGuest, Until: time.Now().Add(-1)}, "name": {Role: store.RoleGuest, Name: " "}} {
			if _, err := b.Invite(t.Context(), boss, bad); refusal(t, err).Status != 400 {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestRecoveryKey(t *testing.T) {
	b := newBox(t)
	w := b.claim(t)
	recover := func(key auth.Secret, password string) (auth.Welcome, error) {
		return b.Recover(t.Context(), here, auth.Recovery{Code: key, Password: auth.NewSecret(password)})
	}
	if _, err := recover(auth.NewCode().Text(), "another good password"); code(err) != "no_code" {
		t.Errorf("another key: %v", err)
	}
	if _, err := recover(w.Recovery, "short"); code(err) != "weak_password" {
		t.Errorf("a weak password: %v", err)
	}
	again, err := recover(w.Recovery, "another good password")
	must(t, err)
	if again.Person.ID != w.Person.ID || again.Recovery.Empty() || again.Recovery == w.Recovery {
		t.Errorf("came back as %+v", again)
	}
	if _, err := b.Identify(t.Context(), request(t, "Cookie: "+auth.Cookie+"="+w.Login.Expose())); code(err) != "invalid_login" {
		t.Errorf("the login from before: %v", err)
	}
	if _, err := recover(w.Recovery, "a third good password"); code(err) != "no_code" {
		t.Errorf("the key once more: %v", err)
	}
	if _, err := b.LoginPassword(t.Context(), here, "anna", auth.NewSecret(good)); code(err) != "wrong_login" {
		t.Errorf("the old password: %v", err)
	}
	if _, err := recover(again.Recovery, "a third good password"); err != nil {
		t.Errorf("the new key: %v", err)
	}
	if got := b.actions(t); strings.Count(got, "recovery.use") != 2 {
		t.Errorf("the audit log has %q", got)
	}
}

// Whoever stands at the box lets an admin back in, and nobody else: the code on the console makes no member an admin.
func TestLostAdmin(t *testing.T) {
	b := newBox(t)
	boss := b.identify(t, b.claim(t).Login)
	b.person(t, boss, "bob", store.RoleMember)
	arm := func() auth.Secret {
		a, err := b.Arm(t.Context())
		must(t, err)
		return a.Code
	}
	recover := func(key auth.Secret, name string) (auth.Welcome, error) {
		return b.Recover(t.Context(), here, auth.Recovery{Code: key, Name: name, Password: auth.NewSecret("another good password")})
	}
	code1 := arm()
	if _, err := recover(code1, "bob"); code(err) != "not_an_admin" {
		t.Errorf("for a member: %v", err)
	}
	if _, err := b.Claim(t.Context(), here, auth.Claim{Code: code1, Name: "eve", Password: auth.NewSecret(good)}); code(err) != "already_claimed" {
		t.Errorf("as a claim: %v", err)
	}
	w, err := recover(code1, "anna")
	must(t, err)
	if w.Person.ID != boss.Person || w.Recovery.Empty() {
		t.Errorf("came back as %+v", w)
	}
	if _, err := recover(code1, "anna"); code(err) != "no_code" {
		t.Errorf("a second time: %v", err)
	}
	fresh, err := recover(arm(), "carol") // where no admin is left who could be named
	must(t, err)
	if p := b.identify(t, fresh.Login); !p.Admin || p.Name != "carol" {
		t.Errorf("the new admin is %+v", p)
	}
	people, err := b.store.People(t.Context(), store.System())
	must(t, err)
	if len(people) != 3 {
		t.Errorf("%d people, want 3: nothing is wiped", len(people))
	}
}

func TestLogoutNeedsALogin(t *testing.T) {
	b := newBox(t)
	if err := b.Logout(t.Context(), auth.From(t.Context())); refusal(t, err).Status != 401 {
		t.Error(err)
	}
	var w *auth.Error
	if err := b.SetPassword(t.Context(), here, auth.Local(), auth.Secret{}, auth.NewSecret(good)); !errors.As(err, &w) || w.Status != 401 {
		t.Error(err)
	}
}
