package egress

import (
	"net"
	"net/netip"
)

// LocalAnswer reads a message as the answer to a question for the addresses of a name, whose messages had these ids.
func LocalAnswer(host string, ids [2]uint16, message []byte) []netip.Addr {
	q := newLocalQuery(host)
	q.ids = ids
	return q.read(message)
}

// OverLink is the name of the link that a message came over, and an address in it as that is dialled; empty and none for one that
// does not count. Each link has the index of its place, from 1 on.
func OverLink(names []string, prefixes []netip.Prefix, index int, from, address netip.Addr) (string, netip.Addr) {
	var on []localLink
	for i, name := range names {
		on = append(on, localLink{net.Interface{Index: i + 1, Name: name}, prefixes[i : i+1]})
	}
	l, ok := over(on, index, from)
	if !ok {
		return "", netip.Addr{}
	}
	a, ok := l.here(address)
	if !ok {
		return l.on.Name, netip.Addr{}
	}
	return l.on.Name, a
}

// InOrder is inOrder.
var InOrder = inOrder
