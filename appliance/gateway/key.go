package gateway

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"onebit/engine/wire"
)

// enter lets a request in, or says why not. The request that it returns goes on in its place.
func (g *Gateway) enter(r *http.Request, route string) (*http.Request, error) {
	if g.cfg.Door == nil {
		return r, g.admits(r, route)
	}
	ctx, err := g.cfg.Door.Enter(r, route)
	if err != nil {
		return r, err
	}
	return r.WithContext(ctx), nil
}

// admits refuses a request without the key. Who watches the program need not have one.
func (g *Gateway) admits(r *http.Request, route string) error {
	if g.cfg.Key == "" || route == "/health" {
		return nil
	}
	shown := r.Header.Get("X-Api-Key")
	if kind, value, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(kind, "Bearer") {
		shown = strings.TrimSpace(value)
	}
	// hashed, so that the comparison takes the same time whatever the lengths are
	want, got := sha256.Sum256([]byte(g.cfg.Key)), sha256.Sum256([]byte(shown))
	if subtle.ConstantTimeCompare(want[:], got[:]) == 1 {
		return nil
	}
	message := "a key is needed: send it as Authorization: Bearer KEY, or as x-api-key"
	if shown != "" {
		message = "the key is not the one that this server was started with"
	}
	return &wire.Error{Status: http.StatusUnauthorized, Type: "authentication_error", Code: "invalid_api_key", Message: message, NoRetry: true}
}
