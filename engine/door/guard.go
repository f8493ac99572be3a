// Package door is what stands between a network and a handler, in a server that has no other protection: a guard
// against pages of other sites that talk to us through a visitor's browser, and a bound on bodies that nobody reads.
package door

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"onebit/engine/wire"
)

// Guard refuses, with 403 and an error object, what a page of another site makes a visitor's browser send to us. There
// is no key to protect the API, so without this any page could use it.
//
// A server on loopback is reached by a loopback name only: a page whose own name was made to point at 127.0.0.1 still
// sends that name as its Host. And whatever changes something and says which page sent it (Origin) must come from a
// page of this machine, or from the same host that it talks to. Programs send no Origin, and may send no Host.
func Guard(next http.Handler, loopback bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case loopback && r.Host != "" && !loopbackName(Hostname(r.Host)):
			Refuse(w, "the host "+r.Host+" is not a name of this machine's loopback address")
		case Changes(r.Method) && r.Header.Get("Origin") != "" && !friendly(r.Header.Get("Origin"), r.Host):
			Refuse(w, "requests of pages from "+r.Header.Get("Origin")+" are not served")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// Refuse answers that a page of another site may not do this.
func Refuse(w http.ResponseWriter, why string) {
	(&wire.Error{Status: http.StatusForbidden, Type: wire.TypePermission, Code: "foreign_origin", Message: why}).Write(w)
}

// Changes reports whether a method may change something.
func Changes(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}

// friendly reports whether a page from origin may talk to the server that it calls host.
func friendly(origin, host string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" { // "null" too: a page that hides where it is from
		return false
	}
	return loopbackName(u.Hostname()) || (host != "" && SameHost(u, host))
}

// SameHost compares with the default port of the scheme filled in.
func SameHost(u *url.URL, host string) bool {
	port := u.Port()
	if port == "" && u.Scheme == "http" {
		port = "80"
	}
	if port == "" && u.Scheme == "https" {
		port = "443"
	}
	name, hostPort, err := net.SplitHostPort(host)
	if err != nil {
		name, hostPort = Hostname(host), port
	}
	return strings.EqualFold(u.Hostname(), name) && port == hostPort
}

// Hostname returns a Host header without port and brackets.
func Hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}

// loopbackName reports whether a name or address always means this machine.
func loopbackName(name string) bool {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.IsLoopback()
}
