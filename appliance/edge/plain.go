package edge

import (
	"net"
	"net/http"
	"strings"

	"onebit/engine/wire"
)

// plainHandler is what the plain HTTP port answers: challenges of a public authority, the trust page, and for the rest
// the way to HTTPS.
func (b *Box) plainHandler(certs *certificates) http.Handler {
	mux := http.NewServeMux()
	b.trustRoutes(mux)
	mux.HandleFunc("/", b.redirect)
	named := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !b.ours(hostname(r.Host)) {
			misdirected(w, r.Host)
			return
		}
		mux.ServeHTTP(w, r)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/.well-known/acme-challenge/") {
			if !certs.issuer.HandleHTTPChallenge(w, r) { // a nil issuer handles nothing
				http.NotFound(w, r)
			}
			return
		}
		named.ServeHTTP(w, r)
	})
}

// redirect sends browsers to HTTPS. Whatever changes something is refused instead: a program that was told the wrong
// address has shown its key to the network, and would go on doing so if it worked.
func (b *Box) redirect(w http.ResponseWriter, r *http.Request) {
	to := "https://" + hostPort(hostname(r.Host), b.port(), "443") + r.URL.RequestURI()
	if changes(r.Method) {
		(&wire.Error{
			Status: http.StatusForbidden, Type: wire.TypePermission, Code: "https_required", NoRetry: true,
			Message: "this address is not encrypted: use " + to + ", and replace a key that was sent here",
		}).Write(w)
		return
	}
	h := w.Header()
	h.Set("Location", to)
	h.Set("Cache-Control", "no-store") // the box may get another port or name
	w.WriteHeader(http.StatusPermanentRedirect)
}

// hostPort joins a host, an address perhaps, with a port unless it is the one that the scheme has anyway.
func hostPort(host, port, standard string) string {
	if port != standard {
		return net.JoinHostPort(host, port)
	}
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}
