package edge

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// forwarded are the headers in which proxies say for whom they ask.
func forwarded() []string {
	return []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Real-Ip", "Forwarded"}
}

// clientAddress makes RemoteAddr the address of the client: what trusted proxies say in X-Forwarded-For, and the peer
// itself when it is no such proxy. Whatever says more about the way is taken out of the request, so that no handler
// believes what anybody can write.
func clientAddress(next http.Handler, trusted []netip.Prefix) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if peer, err := netip.ParseAddrPort(r.RemoteAddr); err == nil && trusts(trusted, peer.Addr()) {
			if c := clientOf(r.Header.Values("X-Forwarded-For"), trusted); c.IsValid() {
				r.RemoteAddr = net.JoinHostPort(c.String(), "0")
			}
		}
		for _, h := range forwarded() {
			r.Header.Del(h)
		}
		next.ServeHTTP(w, r)
	})
}

func trusts(trusted []netip.Prefix, a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	return slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(a) })
}

// clientOf reads X-Forwarded-For from the end, which is what the nearest proxy wrote, to the first address that is no
// trusted proxy. What stands before it could be written by anybody. It returns no address when there is none.
func clientOf(values []string, trusted []netip.Prefix) netip.Addr {
	list := strings.Split(strings.Join(values, ","), ",")
	var last netip.Addr
	for _, s := range slices.Backward(list) {
		a, err := forwardedAddr(strings.TrimSpace(s))
		if err != nil {
			return last
		}
		if last = a; !trusts(trusted, a) {
			return a
		}
	}
	return last
}

// forwardedAddr reads an address, which some proxies write with a port.
func forwardedAddr(s string) (netip.Addr, error) {
	if a, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return a.Unmap().WithZone(""), nil
	}
	p, err := netip.ParseAddrPort(s)
	return p.Addr().Unmap().WithZone(""), err
}
