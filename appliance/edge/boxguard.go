package edge

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"onebit/engine/wire"
)

// ours reports whether a name or an address, without port and brackets, is the box: one of its names, or an address
// that this machine has.
func (b *Box) ours(name string) bool {
	name = canonical(name)
	if b.names.Load().has(name) {
		return true
	}
	a, err := netip.ParseAddr(name)
	return err == nil && (b.held.has(a) || b.names.Load().exact[a.Unmap().String()])
}

// guard refuses requests that are not meant for this box, and those that pages of other sites send. A page whose own
// name was made to point at the box still sends that name as its host; so every host must be the box's. Whoever says
// which page it is must be one of the box's pages, or of a site that was allowed. Programs say nothing about a page.
func (b *Box) guard(origins map[string]bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !b.ours(hostname(r.Host)) {
			misdirected(w, r.Host)
			return
		}
		for _, origin := range r.Header.Values("Origin") {
			switch {
			case b.ownOrigin(origin, r.Host):
			case !origins[canonicalOrigin(origin)]:
				refuse(w, "requests of pages from "+origin+" are not served")
				return
			case allowPage(w, r, origin):
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

func misdirected(w http.ResponseWriter, host string) {
	(&wire.Error{Status: http.StatusMisdirectedRequest, Type: wire.TypeInvalid, Code: "misdirected_request", Message: "this is not the host " + host}).Write(w)
}

// ownOrigin reports whether a page comes from the box itself: from the host that it talks to, or from another of the
// box's names at the box's port.
func (b *Box) ownOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != "https" || u.Host == "" || !b.ours(u.Hostname()) {
		return false
	}
	return sameHost(u, host) || portOf(u) == b.port()
}

func portOf(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return "443"
}

// canonicalOrigin returns an origin in the form in which origins are compared.
func canonicalOrigin(origin string) string {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme == "" || u.Host == "" || (u.Path != "" && u.Path != "/") {
		return ""
	}
	host, scheme := strings.ToLower(u.Host), strings.ToLower(u.Scheme)
	if (scheme == "https" && u.Port() == "443") || (scheme == "http" && u.Port() == "80") {
		host = strings.TrimSuffix(host, ":"+u.Port())
	}
	return scheme + "://" + host
}

// allowPage lets a page of an allowed site read answers. It answers the question that browsers ask before a request
// itself, and returns true then. No cookies are allowed: such a page must send a key.
func allowPage(w http.ResponseWriter, r *http.Request, origin string) bool {
	h := w.Header()
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Allow-Origin", origin)
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		h.Set("Access-Control-Expose-Headers", "Retry-After, X-Request-Id, X-1bit-Documents, X-1bit-Search")
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		h.Set("Access-Control-Allow-Headers", asked)
	}
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}
