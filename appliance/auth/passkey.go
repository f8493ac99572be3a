package auth

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"onebit/store"
)

// passkeyPurpose is what a passkey is being made or shown for. An answer to one purpose is no answer to another.
type passkeyPurpose string

const (
	toClaimPasskey  passkeyPurpose = "claim"
	toAcceptPasskey passkeyPurpose = "invite"
	toAddPasskey    passkeyPurpose = "add"
	toLoginPasskey  passkeyPurpose = "login"
)

// ceremonyLife is how long a person may take over a passkey.
const ceremonyLife = 5 * time.Minute

// ceremonies holds what has been asked of browsers and not been answered, by challenge.
type ceremonies struct {
	mu   sync.Mutex
	open map[string]ceremony
}

type ceremony struct {
	purpose passkeyPurpose
	person  string // id; of toAddPasskey
	handle  []byte // the user handle that the authenticator keeps
	name    string
	data    webauthn.SessionData
	expires time.Time
}

// mostCeremonies bounds them: whoever asks does not have to answer.
const mostCeremonies = 512

func (c *ceremonies) add(now time.Time, k ceremony) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[string]ceremony{}
	}
	if len(c.open) >= mostCeremonies {
		for challenge, old := range c.open {
			if !now.Before(old.expires) {
				delete(c.open, challenge)
			}
		}
	}
	if len(c.open) >= mostCeremonies {
		return tooMany("too_many_logins", "too many passkeys are being asked for at the moment", time.Minute)
	}
	k.expires = now.Add(ceremonyLife)
	c.open[k.data.Challenge] = k
	return nil
}

// take returns what was asked with a challenge. It can be answered once.
func (c *ceremonies) take(now time.Time, p passkeyPurpose, challenge string) (ceremony, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.open[challenge]
	delete(c.open, challenge)
	return k, ok && k.purpose == p && now.Before(k.expires)
}

// credential is a passkey as the store keeps it.
type credential struct {
	Handle     []byte              `json:"handle"`
	Credential webauthn.Credential `json:"credential"`
}

// holder is a person towards the WebAuthn library.
type holder struct {
	handle []byte
	name   string
	keys   []webauthn.Credential
}

func (h holder) WebAuthnID() []byte                         { return h.handle }
func (h holder) WebAuthnName() string                       { return h.name }
func (h holder) WebAuthnDisplayName() string                { return h.name }
func (h holder) WebAuthnCredentials() []webauthn.Credential { return h.keys }

var errPasskey = forbidden("wrong_passkey", "the passkey's answer is not good: it is for another box, too old, or altered")

// relyingParty returns the box as passkeys know it: by the name in the address bar. Passkeys do not work by IP address.
func relyingParty(from Visitor) (*webauthn.WebAuthn, error) {
	host := from.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if _, err := netip.ParseAddr(host); err == nil || host == "" || host[0] == '[' {
		return nil, invalid("no_passkeys_here", "passkeys need the box's name in the address, not its number")
	}
	must := true
	w, err := webauthn.New(&webauthn.Config{
		RPID: host, RPDisplayName: "1bit", RPOrigins: []string{"https://" + from.Host},
		AuthenticatorSelection: protocol.AuthenticatorSelection{
			RequireResidentKey: &must, ResidentKey: protocol.ResidentKeyRequirementRequired, UserVerification: protocol.VerificationRequired,
		},
	})
	if err != nil {
		return nil, invalid("no_passkeys_here", "passkeys do not work under this name of the box")
	}
	return w, nil
}

// PasskeyRequest asks for the options by which a browser makes a passkey.
type PasskeyRequest struct {
	Code  Secret // to claim the box, or of an invite
	Proof []byte // in place of the claim's code
	Name  string // of the person
}

// BeginClaimPasskey returns the options by which a browser makes the first admin's passkey, as JSON.
func (a *Auth) BeginClaimPasskey(ctx context.Context, from Visitor, q PasskeyRequest) (json.RawMessage, error) {
	if err := a.unclaimed(ctx); err != nil {
		return nil, err
	}
	if _, err := a.shown(toClaim, from, q.Code, q.Proof); err != nil {
		return nil, err
	}
	return a.beginPasskey(from, ceremony{purpose: toClaimPasskey, name: q.Name}, nil)
}

// BeginInvitePasskey returns the options by which a newcomer's browser makes a passkey, as JSON.
func (a *Auth) BeginInvitePasskey(ctx context.Context, from Visitor, q PasskeyRequest) (json.RawMessage, error) {
	_, i, err := a.invite(ctx, from, q.Code)
	if err != nil {
		return nil, err
	}
	if q.Name == "" {
		q.Name = i.Name
	}
	return a.beginPasskey(from, ceremony{purpose: toAcceptPasskey, name: q.Name}, nil)
}

// BeginPasskey returns the options by which somebody who has logged in makes one more passkey, as JSON.
func (a *Auth) BeginPasskey(ctx context.Context, from Visitor, p *Principal) (json.RawMessage, error) {
	if p.Kind != Login {
		return nil, errNeedKey
	}
	_, keys, err := a.passkeysOf(ctx, p.Person)
	if err != nil {
		return nil, err
	}
	return a.beginPasskey(from, ceremony{purpose: toAddPasskey, person: p.Person, name: p.Name}, keys)
}

// AddPasskey takes the browser's answer to BeginPasskey.
func (a *Auth) AddPasskey(ctx context.Context, from Visitor, p *Principal, name string, answer json.RawMessage) error {
	if p.Kind != Login {
		return errNeedKey
	}
	key, err := a.finishPasskey(from, toAddPasskey, p.Person, answer)
	if err != nil {
		return err
	}
	if key.Name = printable(name); key.Name == "" {
		key.Name = "passkey"
	}
	if err := a.store.AddPasskey(ctx, p.Actor, key); err != nil {
		return fmt.Errorf("adding a passkey: %w", err)
	}
	return nil
}

// beginPasskey asks a browser for a new passkey. It leaves out the authenticators that have one of keys.
func (a *Auth) beginPasskey(from Visitor, k ceremony, keys []credential) (json.RawMessage, error) {
	if err := checkName(k.name); err != nil {
		return nil, err
	}
	party, err := relyingParty(from)
	if err != nil {
		return nil, err
	}
	k.handle = make([]byte, 32)
	rand.Read(k.handle)
	var have []protocol.CredentialDescriptor
	for _, c := range keys {
		have = append(have, c.Credential.Descriptor())
	}
	options, data, err := party.BeginRegistration(holder{handle: k.handle, name: k.name}, webauthn.WithExclusions(have))
	if err != nil {
		return nil, fmt.Errorf("asking for a passkey: %w", err)
	}
	k.data = *data
	if err := a.passkeys.add(a.now(), k); err != nil {
		return nil, err
	}
	return json.Marshal(options.Response)
}

// finishPasskey checks a browser's answer and returns the passkey that it has made.
func (a *Auth) finishPasskey(from Visitor, p passkeyPurpose, person string, answer json.RawMessage) (store.Passkey, error) {
	parsed, err := protocol.ParseCredentialCreationResponseBytes(answer)
	if err != nil {
		return store.Passkey{}, errPasskey
	}
	k, ok := a.passkeys.take(a.now(), p, parsed.Response.CollectedClientData.Challenge)
	if !ok || k.person != person {
		return store.Passkey{}, errPasskey
	}
	party, err := relyingParty(from)
	if err != nil {
		return store.Passkey{}, err
	}
	made, err := party.CreateCredential(holder{handle: k.handle, name: k.name}, k.data, parsed)
	if err != nil {
		a.log.Info("refused a new passkey", "err", err)
		return store.Passkey{}, errPasskey
	}
	text, err := json.Marshal(credential{Handle: k.handle, Credential: *made})
	if err != nil {
		return store.Passkey{}, fmt.Errorf("writing a passkey: %w", err)
	}
	return store.Passkey{ID: passkeyID(made.ID), Person: person, Name: "passkey", Credential: text, Created: a.now()}, nil
}

func passkeyID(raw []byte) string { return base64.RawURLEncoding.EncodeToString(raw) }

// passkeysOf returns a person's passkeys, as records and as the library has them.
func (a *Auth) passkeysOf(ctx context.Context, person string) ([]store.Passkey, []credential, error) {
	records, err := a.store.Passkeys(ctx, store.System(), person)
	if err != nil {
		return nil, nil, fmt.Errorf("reading passkeys: %w", err)
	}
	keys := make([]credential, len(records))
	for i, r := range records {
		if err := json.Unmarshal(r.Credential, &keys[i]); err != nil {
			return nil, nil, fmt.Errorf("reading a passkey of %s: %w", person, err)
		}
	}
	return records, keys, nil
}

// BeginPasskeyLogin returns the options by which a browser shows one of its passkeys, as JSON. Nobody has been named yet:
// the browser knows who has one for this box.
func (a *Auth) BeginPasskeyLogin(from Visitor) (json.RawMessage, error) {
	if wait, ok := a.tries.address.try(a.now(), from.Address); !ok {
		return nil, tooMany("too_many_tries", "too many tries to log in", wait)
	}
	party, err := relyingParty(from)
	if err != nil {
		return nil, err
	}
	options, data, err := party.BeginDiscoverableLogin(webauthn.WithUserVerification(protocol.VerificationRequired))
	if err != nil {
		return nil, fmt.Errorf("asking for a passkey: %w", err)
	}
	if err := a.passkeys.add(a.now(), ceremony{purpose: toLoginPasskey, data: *data}); err != nil {
		return nil, err
	}
	return json.Marshal(options.Response)
}

// LoginPasskey logs in whoever the browser's answer to BeginPasskeyLogin shows.
func (a *Auth) LoginPasskey(ctx context.Context, from Visitor, answer json.RawMessage) (Welcome, error) {
	parsed, err := protocol.ParseCredentialRequestResponseBytes(answer)
	if err != nil {
		return Welcome{}, errPasskey
	}
	k, ok := a.passkeys.take(a.now(), toLoginPasskey, parsed.Response.CollectedClientData.Challenge)
	if !ok {
		return Welcome{}, errPasskey
	}
	party, err := relyingParty(from)
	if err != nil {
		return Welcome{}, err
	}
	person, record, stored, err := a.findPasskey(ctx, parsed.RawID)
	if err != nil {
		return Welcome{}, err
	}
	who := holder{handle: stored.Handle, name: person.Name, keys: []webauthn.Credential{stored.Credential}}
	shown, err := party.ValidateDiscoverableLogin(func(_, handle []byte) (webauthn.User, error) {
		if !bytes.Equal(handle, stored.Handle) {
			return nil, errPasskey
		}
		return who, nil
	}, k.data, parsed)
	if err != nil || shown.Authenticator.CloneWarning || !person.Active(a.now()) {
		a.refused(ctx, from, person.ID, "passkey")
		return Welcome{}, errPasskey
	}
	stored.Credential = *shown
	if record.Credential, err = json.Marshal(stored); err != nil {
		return Welcome{}, fmt.Errorf("writing a passkey: %w", err)
	}
	record.Used = a.now()
	if err := a.store.UpdatePasskey(ctx, store.System(), record); err != nil {
		return Welcome{}, fmt.Errorf("noting the use of a passkey: %w", err)
	}
	return a.welcome(ctx, from, person)
}

// findPasskey returns the passkey of a credential id, and whose it is. A box has a few dozen people at most: it looks
// through them.
func (a *Auth) findPasskey(ctx context.Context, raw []byte) (store.Person, store.Passkey, credential, error) {
	people, err := a.store.People(ctx, store.System())
	if err != nil {
		return store.Person{}, store.Passkey{}, credential{}, fmt.Errorf("listing people: %w", err)
	}
	id := passkeyID(raw)
	for _, person := range people {
		records, keys, err := a.passkeysOf(ctx, person.ID)
		if errors.Is(err, store.ErrNotFound) {
			continue // has left meanwhile
		}
		if err != nil {
			return store.Person{}, store.Passkey{}, credential{}, err
		}
		for i, r := range records {
			if r.ID == id {
				return person, r, keys[i], nil
			}
		}
	}
	return store.Person{}, store.Passkey{}, credential{}, errPasskey
}
