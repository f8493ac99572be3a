package auth_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"onebit/appliance/auth"
	"onebit/store"
)

func TestClaim(t *testing.T) {
	b := newBox(t)
	armed, err := b.Arm(t.Context())
	must(t, err)
	shown := b.console.String()
	root, ok := b.Root()
	if !ok {
		t.Fatal("the box has no root")
	}
	for _, want := range []string{armed.Code.Expose(), "https://box.local/claim#" + armed.Code.Expose(), root.String(), "words of ", "██"} {
		if !strings.Contains(shown, want) {
			t.Errorf("the console does not show %q:\n%s", want, shown)
		}
	}
	w, err := b.Claim(t.Context(), here, auth.Claim{Code: armed.Code, Name: "anna", Password: auth.NewSecret(good), BoxName: "kitchen", TLSMode: "local"})
	must(t, err)
	if w.Person.Name != "anna" || w.Person.Role != store.RoleAdmin || w.Recovery.Empty() {
		t.Errorf("welcomed as %+v", w)
	}
	if p := b.identify(t, w.Login); !p.Admin || p.Person != w.Person.ID {
		t.Errorf("she came in as %+v", p)
	}
	if got, err := b.store.Setting(t.Context(), "configuration"); err != nil || string(got) != `{"name":"kitchen","tls.mode":"local"}` {
		t.Errorf("the settings are %s, %v", got, err)
	}
	if len(b.claimed) != 1 {
		t.Errorf("the claim was told %d times", len(b.claimed))
	}
	if _, err := b.Claim(t.Context(), here, auth.Claim{Code: armed.Code, Name: "eve", Password: auth.NewSecret(good)}); refusal(t, err).Status != 410 {
		t.Errorf("a second claim: %v", err)
	}
	if got := b.actions(t); !strings.Contains(got, "claim.arm") || !strings.Contains(got, "login.create") {
		t.Errorf("the audit log has %q", got)
	}
	if again, err := b.Arm(t.Context()); err != nil || !again.Claimed || !strings.Contains(again.URL.Expose(), "/recover#") {
		t.Errorf("armed again: %+v, %v", again, err)
	}
}

// A mistake in the rest of a claim is told, and does not use the code up.
func TestClaimMistakes(t *testing.T) {
	b := newBox(t)
	armed, err := b.Arm(t.Context())
	must(t, err)
	right := auth.Claim{Code: armed.Code, Name: "anna", Password: auth.NewSecret(good)}
	tests := []struct {
		name   string
		change func(*auth.Claim)
		code   string
	}{
		{"no name", func(c *auth.Claim) { c.Name = "" }, "bad_name"},
		{"no credential", func(c *auth.Claim) { c.Password = auth.Secret{} }, "no_credential"},
		{"weak password", func(c *auth.Claim) { c.Password = auth.NewSecret("short") }, "weak_password"},
		{"the box's name as password", func(c *auth.Claim) { c.Password = auth.NewSecret("Box.Local:8443") }, "weak_password"},
		{"box name", func(c *auth.Claim) { c.BoxName = "My Box" }, "bad_box_name"},
		{"box name with a path", func(c *auth.Claim) { c.BoxName = "../etc" }, "bad_box_name"},
		{"TLS mode", func(c *auth.Claim) { c.TLSMode = "none" }, "bad_tls_mode"},
		{"passkey of thin air", func(c *auth.Claim) { c.Passkey = json.RawMessage(`{}`) }, "wrong_passkey"},
		{"mistyped code", func(c *auth.Claim) { c.Code = auth.NewSecret("00000-00000-00000-00000-00000-0000Z") }, "malformed_code"},
		{"another code", func(c *auth.Claim) { c.Code = auth.NewCode().Text() }, "wrong_code"},
		{"a proof of nothing", func(c *auth.Claim) { c.Proof = make([]byte, 32) }, "wrong_code"},
	}
	visitor := auth.Visitor{Address: "192.0.2.9", Host: "box.local:8443"}
	for _, tt := range tests {
		c := right
		tt.change(&c)
		if _, err := b.Claim(t.Context(), visitor, c); code(err) != tt.code {
			t.Errorf("%s: got %v, want %s", tt.name, err, tt.code)
		}
	}
	if _, err := b.Claim(t.Context(), visitor, right); err != nil {
		t.Errorf("after all the mistakes: %v", err)
	}
}

func TestClaimTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		armed, err := b.Arm(t.Context())
		must(t, err)
		try := func(from auth.Visitor, code auth.Secret) error {
			_, err := b.Claim(t.Context(), from, auth.Claim{Code: code, Name: "anna", Password: auth.NewSecret(good)})
			return err
		}
		for range 20 { // slips of the pen are no tries
			if err := try(here, auth.NewSecret("oops")); code(err) != "malformed_code" {
				t.Fatal(err)
			}
		}
		for i := range 5 {
			if err := try(here, auth.NewCode().Text()); code(err) != "wrong_code" {
				t.Errorf("try %d: %v", i+1, err)
			}
		}
		e := refusal(t, try(here, armed.Code)) // even the right one
		if e.Status != 429 || e.RetryAfter != time.Minute {
			t.Errorf("the sixth got %d, again after %v", e.Status, e.RetryAfter)
		}
		wrong := 0
		for n := range 200 { // from everywhere at once
			if code(try(from(n), auth.NewCode().Text())) == "wrong_code" {
				wrong++
			}
		}
		if wrong != 55 {
			t.Errorf("%d more tries from everywhere were let through in the minute, want 55", wrong)
		}
		time.Sleep(time.Minute)
		must(t, try(here, armed.Code))
	})
}

func TestClaimExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		claim := func(code auth.Secret) error {
			_, err := b.Claim(t.Context(), here, auth.Claim{Code: code, Name: "anna", Password: auth.NewSecret(good)})
			return err
		}
		if err := claim(auth.NewCode().Text()); code(err) != "no_code" {
			t.Errorf("before there is a code: %v", err)
		}
		first, err := b.Arm(t.Context())
		must(t, err)
		time.Sleep(30 * time.Minute)
		if err := claim(first.Code); code(err) != "no_code" {
			t.Errorf("after half an hour: %v", err)
		}
		next, err := b.Arm(t.Context())
		must(t, err)
		if err := claim(first.Code); code(err) != "wrong_code" {
			t.Errorf("the code before: %v", err)
		}
		time.Sleep(30*time.Minute - time.Second)
		must(t, claim(next.Code))
	})
}

// Of many who claim at once with the right code, one gets the box.
func TestClaimAtOnce(t *testing.T) {
	b := newBox(t)
	armed, err := b.Arm(t.Context())
	must(t, err)
	var all sync.WaitGroup
	results := make(chan error, 8)
	for n := range 8 {
		all.Go(func() {
			_, err := b.Claim(t.Context(), from(n), auth.Claim{Code: armed.Code, Name: "anna", Password: auth.NewSecret(good)})
			results <- err
		})
	}
	all.Wait()
	won := 0
	for range 8 {
		switch err := <-results; {
		case err == nil:
			won++
		case code(err) != "already_claimed" && code(err) != "no_code":
			t.Errorf("a loser got %v", err)
		}
	}
	people, err := b.store.People(t.Context(), store.System())
	must(t, err)
	if won != 1 || len(people) != 1 || len(b.claimed) != 1 {
		t.Errorf("%d won, there are %d people, it was told %d times", won, len(people), len(b.claimed))
	}
}

// The command line sends a proof for the root that it sees. Whoever sits between with another root gets nothing by it.
func TestClaimByProof(t *testing.T) {
	b := newBox(t)
	armed, err := b.Arm(t.Context())
	must(t, err)
	c, err := auth.ParseCode(armed.Code.Expose())
	must(t, err)
	root, _ := b.Root()
	claim := func(proof []byte) error {
		_, err := b.Claim(t.Context(), here, auth.Claim{Proof: proof, Name: "anna", Password: auth.NewSecret(good)})
		return err
	}
	if err := claim(c.Proof(auth.ClientSide, auth.Fingerprint{1, 2, 3}, nil)); code(err) != "wrong_code" {
		t.Errorf("a proof for another root: %v", err)
	}
	if err := claim(c.Proof(auth.BoxSide, root, nil)); code(err) != "wrong_code" {
		t.Errorf("the box's own proof sent back: %v", err)
	}
	must(t, claim(c.Proof(auth.ClientSide, root, nil)))
}

// What a claim chooses must fit the box; where it does not, the box stays as it was, and so does the code.
func TestClaimSettings(t *testing.T) {
	b := newBox(t)
	armed, err := b.Arm(t.Context())
	must(t, err)
	c := auth.Claim{Code: armed.Code, Name: "anna", Password: auth.NewSecret(good), TLSMode: "files"}
	if _, err := b.Claim(t.Context(), here, c); err == nil || err.Error() != "there are no files" {
		t.Errorf("a mode that does not fit: %v", err)
	}
	s := b.serve(t, nil)
	body := `{"code":"` + armed.Code.Expose() + `","name":"anna","password":"` + good + `","tls_mode":"files"}`
	if got, text := send(t, s, "POST", "/claim", body, asJSON); got.StatusCode != 400 || !strings.Contains(text, "there are no files") {
		t.Errorf("as JSON: %d %s", got.StatusCode, text)
	}
	plain := newBox(t, func(c *auth.Config) { c.Settings = nil })
	armed, err = plain.Arm(t.Context())
	must(t, err)
	c.Code = armed.Code
	if _, err := plain.Claim(t.Context(), here, c); code(err) != "no_settings" {
		t.Errorf("a box without settings: %v", err)
	}
	if _, page := send(t, plain.serve(t, nil), "GET", "/claim", "", asPage); strings.Contains(page, "tls_mode") {
		t.Error("its page asks for the mode")
	}
}

func TestRestoreClaim(t *testing.T) {
	var got, passphrase string
	var fail error
	b := newBox(t, func(c *auth.Config) {
		c.Restore = func(_ context.Context, r io.Reader, p auth.Secret) error {
			all, err := io.ReadAll(r)
			got, passphrase = string(all), p.Expose()
			return errors.Join(err, fail)
		}
	})
	armed, err := b.Arm(t.Context())
	must(t, err)
	restore := func(code auth.Secret) error {
		return b.RestoreClaim(t.Context(), here, code, auth.NewSecret("open"), strings.NewReader("backup"))
	}
	if err := restore(auth.NewCode().Text()); code(err) != "wrong_code" || got != "" {
		t.Errorf("with another code: %v, read %q", err, got)
	}
	fail = store.ErrPassword
	if err := restore(armed.Code); !errors.Is(err, store.ErrPassword) {
		t.Errorf("with another passphrase: %v", err)
	}
	fail = nil
	must(t, restore(armed.Code)) // the failure did not use the code up
	if got != "backup" || passphrase != "open" || len(b.claimed) != 1 {
		t.Errorf("restored %q with %q, told %d times", got, passphrase, len(b.claimed))
	}
	if err := restore(armed.Code); code(err) != "already_claimed" {
		t.Errorf("once more: %v", err)
	}
	if err := newBox(t).RestoreClaim(t.Context(), here, armed.Code, auth.Secret{}, strings.NewReader("")); code(err) != "cannot_restore" {
		t.Errorf("a box without the hook: %v", err)
	}
}

func TestNewNeeds(t *testing.T) {
	for _, cfg := range []auth.Config{{}, {Console: io.Discard}} {
		if _, err := auth.New(cfg); err == nil {
			t.Errorf("%+v makes an auth", cfg)
		}
	}
}
