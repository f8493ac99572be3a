package auth_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"onebit/appliance/auth"
	"onebit/store"
)

// authenticator is a passkey device in software: one P-256 key.
type authenticator struct {
	key     *ecdsa.PrivateKey
	id      []byte
	handle  []byte
	counter uint32
	origin  string
	party   string
}

func newAuthenticator(t *testing.T) *authenticator {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	a := &authenticator{key: key, id: make([]byte, 16), origin: "https://box.local", party: "box.local"}
	rand.Read(a.id)
	return a
}

var b64 = base64.RawURLEncoding

// cborHead writes the head of a CBOR item.
func cborHead(major byte, n int) []byte {
	switch {
	case n < 24:
		return []byte{major<<5 | byte(n)}
	case n < 256:
		return []byte{major<<5 | 24, byte(n)}
	}
	return []byte{major<<5 | 25, byte(n >> 8), byte(n)}
}

func cborBytes(b []byte) []byte { return append(cborHead(2, len(b)), b...) }
func cborText(s string) []byte  { return append(cborHead(3, len(s)), s...) }

// publicKey is the COSE form of the key.
func (a *authenticator) publicKey(t *testing.T) []byte {
	t.Helper()
	point, err := a.key.PublicKey.Bytes()
	must(t, err)
	return bytes.Join([][]byte{{0xa5, 0x01, 0x02, 0x03, 0x26, 0x20, 0x01, 0x21}, cborBytes(point[1:33]), {0x22}, cborBytes(point[33:])}, nil)
}

// data is the authenticator data: user present and verified; with a new credential where there is one.
func (a *authenticator) data(credential []byte) []byte {
	party := sha256.Sum256([]byte(a.party))
	flags := byte(0x05)
	if credential != nil {
		flags |= 0x40
	}
	out := append(party[:], flags)
	out = binary.BigEndian.AppendUint32(out, a.counter)
	return append(out, credential...)
}

func (a *authenticator) clientData(t *testing.T, kind, challenge string) []byte {
	t.Helper()
	b, err := json.Marshal(map[string]any{"type": kind, "challenge": challenge, "origin": a.origin, "crossOrigin": false})
	must(t, err)
	return b
}

// make answers the options for a new passkey.
func (a *authenticator) make(t *testing.T, options json.RawMessage) json.RawMessage {
	t.Helper()
	var o struct {
		Challenge string `json:"challenge"`
		RP        struct{ ID string }
		User      struct{ ID string }
	}
	must(t, json.Unmarshal(options, &o))
	var err error
	a.handle, err = b64.DecodeString(o.User.ID)
	must(t, err)
	credential := bytes.Join([][]byte{make([]byte, 16), {0, byte(len(a.id))}, a.id, a.publicKey(t)}, nil)
	object := bytes.Join([][]byte{{0xa3}, cborText("fmt"), cborText("none"), cborText("attStmt"), {0xa0}, cborText("authData"), cborBytes(a.data(credential))}, nil)
	return a.answer(t, map[string]any{
		"clientDataJSON": b64.EncodeToString(a.clientData(t, "webauthn.create", o.Challenge)), "attestationObject": b64.EncodeToString(object), "transports": []string{"internal"},
	})
}

// show answers the options for a login.
func (a *authenticator) show(t *testing.T, options json.RawMessage) json.RawMessage {
	t.Helper()
	var o struct {
		Challenge string `json:"challenge"`
	}
	must(t, json.Unmarshal(options, &o))
	a.counter++
	data, client := a.data(nil), a.clientData(t, "webauthn.get", o.Challenge)
	hash := sha256.Sum256(client)
	digest := sha256.Sum256(append(bytes.Clone(data), hash[:]...))
	signature, err := ecdsa.SignASN1(rand.Reader, a.key, digest[:])
	must(t, err)
	return a.answer(t, map[string]any{
		"clientDataJSON": b64.EncodeToString(client), "authenticatorData": b64.EncodeToString(data),
		"signature": b64.EncodeToString(signature), "userHandle": b64.EncodeToString(a.handle),
	})
}

func (a *authenticator) answer(t *testing.T, response map[string]any) json.RawMessage {
	t.Helper()
	id := b64.EncodeToString(a.id)
	b, err := json.Marshal(map[string]any{"id": id, "rawId": id, "type": "public-key", "clientExtensionResults": map[string]any{}, "response": response})
	must(t, err)
	return b
}

// claimByPasskey claims a box with a passkey alone.
func (b *box) claimByPasskey(t *testing.T, a *authenticator) auth.Welcome {
	t.Helper()
	armed, err := b.Arm(t.Context())
	must(t, err)
	options, err := b.BeginClaimPasskey(t.Context(), here, auth.PasskeyRequest{Code: armed.Code, Name: "anna"})
	must(t, err)
	w, err := b.Claim(t.Context(), here, auth.Claim{Code: armed.Code, Name: "anna", Passkey: a.make(t, options)})
	must(t, err)
	return w
}

// show logs in with a passkey.
func (b *box) show(t *testing.T, a *authenticator) (auth.Welcome, error) {
	t.Helper()
	options, err := b.BeginPasskeyLogin(here)
	must(t, err)
	return b.LoginPasskey(t.Context(), here, a.show(t, options))
}

func TestPasskeys(t *testing.T) {
	b := newBox(t)
	hers, his := newAuthenticator(t), newAuthenticator(t)
	w := b.claimByPasskey(t, hers)
	anna := b.identify(t, w.Login)
	back, err := b.show(t, hers)
	must(t, err)
	if back.Person.ID != anna.Person {
		t.Errorf("logged in as %+v", back.Person)
	}
	i, err := b.Invite(t.Context(), anna, store.Invite{Role: store.RoleMember, Name: "bob"})
	must(t, err)
	options, err := b.BeginInvitePasskey(t.Context(), here, auth.PasskeyRequest{Code: i.Code})
	must(t, err)
	if _, err = b.Accept(t.Context(), here, auth.Acceptance{Code: i.Code, Passkey: his.make(t, options)}); err != nil {
		t.Fatal(err)
	}
	back, err = b.show(t, his)
	must(t, err)
	if back.Person.Name != "bob" {
		t.Errorf("logged in as %+v", back.Person)
	}
	second := newAuthenticator(t)
	options, err = b.BeginPasskey(t.Context(), here, anna)
	must(t, err)
	if !bytes.Contains(options, []byte(b64.EncodeToString(hers.id))) {
		t.Error("the authenticator that she has is not left out")
	}
	made := second.make(t, options)
	if err := b.AddPasskey(t.Context(), here, b.identify(t, back.Login), "phone", made); code(err) != "wrong_passkey" {
		t.Errorf("bob answers what anna was asked: %v", err)
	}
	if err := b.AddPasskey(t.Context(), here, anna, "phone", made); code(err) != "wrong_passkey" {
		t.Errorf("an answer counts twice: %v", err)
	}
	options, err = b.BeginPasskey(t.Context(), here, anna)
	must(t, err)
	must(t, b.AddPasskey(t.Context(), here, anna, "phone", second.make(t, options)))
	if back, err = b.show(t, second); err != nil || back.Person.ID != anna.Person {
		t.Errorf("with the second one: %+v, %v", back.Person, err)
	}
	keys, err := b.store.Passkeys(t.Context(), anna.Actor, anna.Person)
	must(t, err)
	if len(keys) != 2 || keys[0].Used.IsZero() || keys[1].Name != "phone" {
		t.Errorf("her passkeys are %+v", keys)
	}
}

func TestPasskeyRefusals(t *testing.T) {
	tests := []struct {
		name   string
		change func(a *authenticator)
	}{
		{"another box", func(a *authenticator) { a.party = "other.local" }},
		{"another site's page", func(a *authenticator) { a.origin = "https://evil.test" }},
		{"another port's page", func(a *authenticator) { a.origin = "https://box.local:8443" }},
		{"another key", func(a *authenticator) { a.key, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }},
		{"a credential that is nowhere", func(a *authenticator) { a.id = bytes.Repeat([]byte{7}, 16) }},
		{"another person's handle", func(a *authenticator) { a.handle = bytes.Repeat([]byte{7}, 32) }},
		{"a copy: its counter goes back", func(a *authenticator) { a.counter = 0 }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, a := newBox(t), newAuthenticator(t)
			b.claimByPasskey(t, a)
			a.counter = 5
			if _, err := b.show(t, a); err != nil {
				t.Fatal(err)
			}
			tt.change(a)
			if _, err := b.show(t, a); code(err) != "wrong_passkey" {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("late", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b, a := newBox(t), newAuthenticator(t)
			b.claimByPasskey(t, a)
			options, err := b.BeginPasskeyLogin(here)
			must(t, err)
			time.Sleep(5 * time.Minute)
			if _, err := b.LoginPasskey(t.Context(), here, a.show(t, options)); code(err) != "wrong_passkey" {
				t.Errorf("got %v", err)
			}
		})
	})
	t.Run("replayed", func(t *testing.T) {
		b, a := newBox(t), newAuthenticator(t)
		b.claimByPasskey(t, a)
		options, err := b.BeginPasskeyLogin(here)
		must(t, err)
		shown := a.show(t, options)
		if _, err := b.LoginPasskey(t.Context(), here, shown); err != nil {
			t.Fatal(err)
		}
		if _, err := b.LoginPasskey(t.Context(), here, shown); code(err) != "wrong_passkey" {
			t.Errorf("got %v", err)
		}
	})
	t.Run("by address", func(t *testing.T) {
		for _, host := range []string{"192.168.1.2", "192.168.1.2:8443", "[fe80::1]", "[fe80::1]:443", ""} {
			if _, err := newBox(t).BeginPasskeyLogin(auth.Visitor{Address: "x", Host: host}); code(err) != "no_passkeys_here" {
				t.Errorf("%q: %v", host, err)
			}
		}
	})
	t.Run("asked for without end", func(t *testing.T) {
		b := newBox(t)
		last := ""
		for n := range 600 {
			_, err := b.BeginPasskeyLogin(from(n))
			last = code(err)
		}
		if last != "too_many_logins" {
			t.Errorf("the 600th got %q", last)
		}
	})
	t.Run("not JSON", func(t *testing.T) {
		b := newBox(t)
		for _, bad := range []string{"", "{}", "null", "[]", `{"id":"x"}`, `{"id":"AA","rawId":"AA","type":"public-key","response":{}}`} {
			if _, err := b.LoginPasskey(t.Context(), here, json.RawMessage(bad)); code(err) != "wrong_passkey" {
				t.Errorf("%q: %v", bad, err)
			}
		}
	})
}
