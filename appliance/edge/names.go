package edge

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// localDomains are the domains that the public name system does not have. The local authority may speak for them only.
// A function, since nothing may change them.
func localDomains() []string { return []string{"local", "localhost", "home.arpa", "internal", "lan"} }

// localPrefixes are the addresses that mean a machine near by. The local authority may speak for them only.
func localPrefixes() []netip.Prefix {
	var out []netip.Prefix
	for _, s := range []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "127.0.0.0/8", "fc00::/7", "fe80::/10", "::1/128"} {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// private reports whether a name or address is one of those that the local authority may speak for.
func private(name string) bool {
	if a, err := netip.ParseAddr(name); err == nil {
		a = a.Unmap().WithZone("")
		return slices.ContainsFunc(localPrefixes(), func(p netip.Prefix) bool { return p.Contains(a) })
	}
	return slices.ContainsFunc(localDomains(), func(d string) bool { return name == d || strings.HasSuffix(name, "."+d) })
}

// names is what the box is called. It does not change; a reload makes another.
type names struct {
	box       string // without a domain
	exact     map[string]bool
	wildcards []string // ".example.org" for *.example.org
	public    []string // names for a public authority, in the order given
	alias     string   // the name that the network knows the box by when another machine has its own; without a domain
}

// with returns the same names and one more, under which the network knows the box.
func (n *names) with(alias string) *names {
	more := *n
	more.exact = maps.Clone(n.exact)
	more.exact[alias], more.exact[alias+".local"] = true, true
	more.alias = alias
	return &more
}

// newNames takes the box's name and further names and addresses.
func newNames(box string, more []string) (*names, error) {
	n := &names{box: canonical(box), exact: map[string]bool{"localhost": true}}
	if !validName(n.box) || strings.Contains(n.box, ".") {
		return nil, fmt.Errorf("the box cannot be called %q: a name has letters, digits and hyphens", box)
	}
	n.exact[n.box] = true
	n.exact[n.box+".local"] = true
	for _, given := range more {
		name := canonical(given)
		addr, err := netip.ParseAddr(name)
		rest, wild := strings.CutPrefix(name, "*.")
		switch {
		case err == nil:
			name = addr.Unmap().String()
			n.exact[name] = true
		case !validName(rest):
			return nil, fmt.Errorf("%q is not a name of a host", given)
		case wild && strings.Contains(rest, "."):
			n.wildcards = append(n.wildcards, "."+rest)
		case wild:
			return nil, fmt.Errorf("%q covers too much", given)
		default:
			n.exact[name] = true
		}
		if !private(name) && (err == nil || strings.Contains(rest, ".")) && !slices.Contains(n.public, name) {
			n.public = append(n.public, name)
		}
	}
	return n, nil
}

// has reports whether name, in canonical form, is one of the box's names. Addresses count only when they were given.
func (n *names) has(name string) bool {
	return n.exact[name] || n.wildcard(name) != ""
}

// wildcard returns the pattern that covers name, or nothing.
func (n *names) wildcard(name string) string {
	for _, w := range n.wildcards {
		if label, ok := strings.CutSuffix(name, w); ok && label != "" && !strings.Contains(label, ".") {
			return "*" + w
		}
	}
	return ""
}

// canonical returns a name in the form in which names are compared.
func canonical(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// validName reports whether a name can be one of a host.
func validName(name string) bool {
	if name == "" || len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		if strings.ContainsFunc(label, func(r rune) bool {
			return r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z')
		}) {
			return false
		}
	}
	return true
}

// addresses knows which addresses this machine has. It asks the system again when its knowledge is seconds old.
type addresses struct {
	mu    sync.Mutex
	asked time.Time
	held  map[netip.Addr]bool
}

// fresh is how long the list of addresses is believed.
const fresh = 5 * time.Second

// has reports whether this machine has the address. All of 127.0.0.0/8 counts.
func (a *addresses) has(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	if addr.IsLoopback() {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held == nil || time.Since(a.asked) > fresh {
		a.ask()
	}
	return a.held[addr]
}

// ask lists the addresses. On failure the list stays as it was.
func (a *addresses) ask() {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return
	}
	a.asked, a.held = time.Now(), make(map[netip.Addr]bool, len(list))
	for _, l := range list {
		if p, err := netip.ParsePrefix(l.String()); err == nil {
			a.held[p.Addr().Unmap().WithZone("")] = true
		}
	}
}
