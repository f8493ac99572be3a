package auth

import (
	"net/http"
	"strings"
)

// Cookie is the name of the login cookie. The prefix makes browsers insist on Secure, on the path / and on no domain, so
// that no other host of the network can set it.
const Cookie = "__Host-1bit"

// subprotocol is how a page shows its key when it opens a WebSocket, where it can set no header.
const subprotocol = "openai-insecure-api-key."

// keyPrefix begins every API key.
const keyPrefix = "1b_"

// longest bounds what is looked at as a secret: ours have less than 64 characters.
const longest = 256

// Credential is what a request shows of itself: an API key, or a login, or nothing.
type Credential struct {
	Key   Secret // an API key, from whichever header
	Login Secret // the value of the login cookie
}

// Empty reports whether nothing was shown.
func (c Credential) Empty() bool { return c.Key.Empty() && c.Login.Empty() }

// Extract finds what a request shows, wherever it does: Authorization: Bearer, x-api-key, api-key, the subprotocols of a
// WebSocket, the login cookie. It is the only code that reads any of them, so that no policy depends on which was used.
// A key in the query of an address is not looked at: addresses end in logs.
//
// A key goes before a login. Different keys in one request are refused, since nobody could say which one counts.
func Extract(r *http.Request) (Credential, error) {
	var c Credential
	add := func(shown string) error {
		shown = strings.TrimSpace(shown)
		switch {
		case shown == "" || shown == c.Key.text:
			return nil
		case len(shown) > longest:
			return unauthorized("invalid_api_key", "what was sent as a key is too long to be one")
		case !c.Key.Empty():
			return unauthorized("ambiguous_api_key", "the request shows two different keys: send one")
		}
		c.Key = Secret{shown}
		return nil
	}
	for _, value := range r.Header.Values("Authorization") {
		kind, token, _ := strings.Cut(strings.TrimSpace(value), " ")
		if !strings.EqualFold(kind, "Bearer") {
			continue // what a proxy in front adds for itself
		}
		if err := add(token); err != nil {
			return Credential{}, err
		}
	}
	for _, name := range []string{"X-Api-Key", "Api-Key"} {
		for _, value := range r.Header.Values(name) {
			if err := add(value); err != nil {
				return Credential{}, err
			}
		}
	}
	for _, value := range r.Header.Values("Sec-Websocket-Protocol") {
		for name := range strings.SplitSeq(value, ",") {
			if key, ok := strings.CutPrefix(strings.TrimSpace(name), subprotocol); ok {
				if err := add(key); err != nil {
					return Credential{}, err
				}
			}
		}
	}
	if c.Key.Empty() {
		login, err := loginCookie(r)
		if err != nil {
			return Credential{}, err
		}
		c.Login = login
	}
	return c, nil
}

// loginCookie returns the login cookie's value. Two of them are refused for the same reason as two keys.
func loginCookie(r *http.Request) (Secret, error) {
	var found Secret
	for _, c := range r.CookiesNamed(Cookie) {
		switch {
		case c.Value == "" || c.Value == found.text:
		case !found.Empty() || len(c.Value) > longest:
			return Secret{}, unauthorized("invalid_login", "the login cookie is not one that this box has set")
		default:
			found = Secret{c.Value}
		}
	}
	return found, nil
}

// wellFormed reports whether text can be one of our random secrets after its prefix. Only such a text is worth a look
// into the store.
func wellFormed(text, prefix string) bool {
	rest, ok := strings.CutPrefix(text, prefix)
	if !ok || len(rest) != 52 {
		return false
	}
	for i := range len(rest) {
		if c := rest[i]; (c < 'a' || c > 'z') && (c < '2' || c > '7') {
			return false
		}
	}
	return true
}
