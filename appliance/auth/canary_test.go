package auth_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"onebit/appliance/auth"
	"onebit/store"
)

// Everything secret that passes through is planted, and looked for afterwards in the log at its most talkative, in the audit
// log, in every error, and in the JSON and the printed form of every value.
func TestCanaries(t *testing.T) {
	b := newBox(t)
	var planted []string
	var said strings.Builder
	plant := func(s auth.Secret) auth.Secret {
		planted = append(planted, s.Expose())
		return s
	}
	show := func(values ...any) {
		for _, v := range values {
			fmt.Fprintf(&said, "%v\n%+v\n%#v\n%s\n%x\n", v, v, v, v, v)
			if err, ok := v.(error); ok {
				for ; err != nil; err = errors.Unwrap(err) {
					fmt.Fprintln(&said, err)
				}
			}
			text, err := json.Marshal(v)
			must(t, err)
			said.Write(text)
		}
	}
	password, wrong := plant(auth.NewSecret("canary-password-sings")), plant(auth.NewSecret("canary-wrong-password"))
	armed, err := b.Arm(t.Context())
	must(t, err)
	plant(armed.Code)
	show(armed)
	claim := auth.Claim{Code: armed.Code, Name: "anna", Password: password}
	bad := claim
	bad.Code = plant(auth.NewCode().Text())
	_, err = b.Claim(t.Context(), here, bad)
	show(claim, bad, err)
	w, err := b.Claim(t.Context(), here, claim)
	must(t, err)
	plant(w.Login)
	plant(w.Recovery)
	show(w)
	boss := b.identify(t, w.Login)
	show(boss)
	for range 7 {
		_, err := b.LoginPassword(t.Context(), here, "anna", wrong)
		show(err)
	}
	_, err = b.LoginPassword(t.Context(), from(1), plant(auth.NewSecret("canary-typed-as-a-name")).Expose(), password)
	show(err)
	key, secret := b.key(t, boss, store.Key{RequestsPerMinute: 1})
	plant(secret)
	p := b.byKey(t, secret)
	g := b.begin(t, p, chat)
	_, limited := b.Begin(t.Context(), p, chat)
	show(key, secret, p, limited, auth.Credential{Key: secret, Login: w.Login})
	must(t, b.store.RevokeKey(t.Context(), boss.Actor, key.ID))
	<-g.Context().Done()
	g.End(auth.Usage{})
	_, err = b.Identify(t.Context(), request(t, "x-api-key: "+secret.Expose()))
	show(err)
	i, err := b.Invite(t.Context(), boss, store.Invite{Role: store.RoleMember, Name: "bob"})
	must(t, err)
	plant(i.Code)
	show(i)
	_, err = b.Recover(t.Context(), here, auth.Recovery{Code: plant(auth.NewCode().Text()), Password: password})
	show(err)
	recovery := auth.Recovery{Code: w.Recovery, Password: plant(auth.NewSecret("canary-second-password"))}
	back, err := b.Recover(t.Context(), here, recovery)
	must(t, err)
	plant(back.Recovery)
	plant(back.Login)
	show(recovery, back)
	s := b.serve(t, nil)
	for _, path := range []string{"/login", "/recover", "/invite", "/claim"} {
		_, text := send(t, s, "POST", path, `{"name":"anna","password":"`+wrong.Expose()+`","code":"`+i.Code.Expose()+`x"}`, asJSON)
		said.WriteString(text)
		_, text = send(t, s, "POST", path, "name="+wrong.Expose()+"&password="+wrong.Expose()+"&code="+back.Recovery.Expose()+"x", asForm, asPage)
		said.WriteString(text)
	}
	entries, err := b.store.AuditLog(t.Context(), store.System(), 0, 1000)
	must(t, err)
	show(entries)
	said.WriteString(b.log.String())
	if len(entries) < 8 || !strings.Contains(b.log.String(), "refused a login") || !strings.Contains(b.log.String(), "cut a running request") {
		t.Errorf("the run did too little: %d entries, log:\n%s", len(entries), b.log.String())
	}
	for _, canary := range planted {
		for _, form := range []string{canary, fmt.Sprintf("%x", canary), strings.ReplaceAll(canary, "-", "")} {
			if at := strings.Index(said.String(), form); at >= 0 {
				t.Errorf("%.16s... was said: %q", canary, said.String()[max(0, at-80):at])
			}
		}
	}
	if found := secrets.FindString(said.String()); found != "" {
		t.Errorf("something that looks like a secret was said: %s", found)
	}
}
