package egress

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// How long a name in .local is looked for.
const (
	systemLimit = 2 * time.Second        // in DNS and the hosts file, where few such names are
	localLimit  = 3 * time.Second        // on the link
	localAgain  = time.Second            // between two questions
	localGrace  = 100 * time.Millisecond // for the rest, once an address is known
)

// mostAddresses are as many as are waited for.
const mostAddresses = 64

// isLocal reports whether a name is one of the link: it ends in .local (RFC 6762, section 3).
func isLocal(host string) bool {
	return strings.HasSuffix(strings.ToLower(strings.TrimSuffix(host, ".")), ".local")
}

// Resolve finds the addresses of a host as a Client does: in DNS and in the hosts file, and what ends in .local and is not there by
// asking the link.
func Resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if !isLocal(host) {
		return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	}
	soon, cancel := context.WithTimeout(ctx, systemLimit)
	found, err := net.DefaultResolver.LookupNetIP(soon, "ip", host)
	cancel()
	if err == nil && len(found) > 0 {
		return found, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return askLink(ctx, host)
}

// askLink asks the machines of all links for a name, by one-shot queries (RFC 6762, section 5.1). Only answers from the link count,
// and of those only addresses on the link that they came over: whoever answers cannot send the box anywhere else.
func askLink(ctx context.Context, host string) ([]netip.Addr, error) {
	on, err := links()
	if err != nil {
		return nil, err
	}
	q := newLocalQuery(host)
	asking, cancel := context.WithTimeout(ctx, localLimit)
	answers := make(chan []netip.Addr)
	var group sync.WaitGroup
	open := openLocal()
	for _, s := range open {
		group.Go(func() { s.listen(asking, q, on, answers) })
	}
	defer group.Wait()
	defer func() {
		cancel()
		for _, s := range open {
			_ = s.conn.Close() // nothing is left to do about what it says
		}
	}()
	if q.send(open, on) == 0 {
		return nil, notThere(host, "DNS does not know it, and no network of this machine takes questions for names in .local")
	}
	again := time.NewTicker(localAgain)
	defer again.Stop()
	var found []netip.Addr
	var enough <-chan time.Time
	for {
		select {
		case more := <-answers:
			found = append(found, more...)
			if enough == nil {
				enough = time.After(localGrace)
			}
			if len(found) < mostAddresses {
				continue
			}
		case <-again.C:
			q.send(open, on)
			continue
		case <-enough:
		case <-asking.Done():
		}
		switch {
		case len(found) > 0:
			return inOrder(found), nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		}
		return nil, notThere(host, "DNS does not know it, and no machine near by answers to it")
	}
}

// notThere says that a name has no address.
func notThere(host, why string) error {
	return &net.DNSError{Err: why, Name: host, IsNotFound: true}
}

// inOrder puts addresses that need no interface to be named first, each once.
func inOrder(all []netip.Addr) []netip.Addr {
	rank := func(a netip.Addr) int {
		switch {
		case a.Is4():
			return 0
		case a.Zone() == "":
			return 1
		}
		return 2
	}
	slices.SortFunc(all, func(a, b netip.Addr) int { return cmp.Or(rank(a)-rank(b), a.Compare(b)) })
	return slices.Compact(all)
}

// localQuery is a question for the addresses of a name.
type localQuery struct {
	name string    // with its final dot
	ids  [2]uint16 // of the messages that ask for an address of IPv4 and of IPv6
}

func newLocalQuery(host string) localQuery {
	var b [4]byte
	_, _ = rand.Read(b[:]) // it never fails
	return localQuery{dns.Fqdn(host), [2]uint16{binary.BigEndian.Uint16(b[:]), binary.BigEndian.Uint16(b[2:])}}
}

// send puts the question on every link, and returns how often that worked.
func (q localQuery) send(open []localSocket, on []localLink) (sent int) {
	for i, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
		m := dns.Msg{MsgHdr: dns.MsgHdr{Id: q.ids[i]}, Question: []dns.Question{{Name: q.name, Qtype: kind, Qclass: dns.ClassINET}}}
		b, err := m.Pack()
		if err != nil {
			return 0 // it is no name
		}
		for _, s := range open {
			for _, l := range on {
				if s.send(b, l) == nil {
					sent++
				}
			}
		}
	}
	return sent
}

// read returns the addresses of the name in a message; none in what is no answer to the question.
func (q localQuery) read(message []byte) (found []netip.Addr) {
	var m dns.Msg
	if m.Unpack(message) != nil || !m.Response || m.Opcode != dns.OpcodeQuery || m.Rcode != dns.RcodeSuccess || !slices.Contains(q.ids[:], m.Id) {
		return nil
	}
	for _, r := range m.Answer {
		h := r.Header()
		if !strings.EqualFold(h.Name, q.name) || h.Class&^(1<<15) != dns.ClassINET { // the top bit tells those who keep answers to forget others
			continue
		}
		var a netip.Addr
		switch r := r.(type) {
		case *dns.A:
			a, _ = netip.AddrFromSlice(r.A)
		case *dns.AAAA:
			a, _ = netip.AddrFromSlice(r.AAAA)
		}
		if a.IsValid() {
			found = append(found, a.Unmap())
		}
	}
	return found
}

// localLink is a network that this machine is on.
type localLink struct {
	on       net.Interface
	prefixes []netip.Prefix
}

// links are those that take a question to many.
func links() ([]localLink, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var out []localLink
	for _, i := range all {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagMulticast == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		l := localLink{on: i}
		addresses, err := i.Addrs()
		if err != nil {
			continue // it has just gone
		}
		for _, a := range addresses {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				l.prefixes = append(l.prefixes, p.Masked())
			}
		}
		out = append(out, l)
	}
	return out, nil
}

// here returns an address as it is dialled, and whether it lies on the link.
func (l localLink) here(a netip.Addr) (netip.Addr, bool) {
	a = a.Unmap().WithZone("")
	if a.Is6() && a.IsLinkLocalUnicast() {
		return a.WithZone(l.on.Name), true
	}
	return a, !a.IsMulticast() && !a.IsLoopback() && slices.ContainsFunc(l.prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// over is the link that a message came over: the one with its index, where the system says that, and from its own addresses.
func over(on []localLink, index int, from netip.Addr) (localLink, bool) {
	for _, l := range on {
		if index != 0 && l.on.Index != index || index == 0 && from.Zone() != "" && from.Zone() != l.on.Name {
			continue
		}
		if _, ok := l.here(from); ok {
			return l, true
		}
	}
	return localLink{}, false
}

// mdnsPort is where questions for names of the link are asked.
const mdnsPort = 5353

// localSocket asks over one version of IP. Its port is not mDNS's, so that answers come to it alone (RFC 6762, section 6.7).
type localSocket struct {
	conn *net.UDPConn
	v4   *ipv4.PacketConn // nil for version 6
	v6   *ipv6.PacketConn // nil for version 4
}

// openLocal opens what this machine has: it may have one version of IP alone. Not every system has every setting; without, the link is
// told by the sender's address.
func openLocal() (all []localSocket) {
	if conn, err := net.ListenUDP("udp4", nil); err == nil {
		s := localSocket{conn: conn, v4: ipv4.NewPacketConn(conn)}
		_ = s.v4.SetControlMessage(ipv4.FlagInterface, true)
		_ = s.v4.SetMulticastTTL(255)
		all = append(all, s)
	}
	if conn, err := net.ListenUDP("udp6", nil); err == nil {
		s := localSocket{conn: conn, v6: ipv6.NewPacketConn(conn)}
		_ = s.v6.SetControlMessage(ipv6.FlagInterface, true)
		_ = s.v6.SetMulticastHopLimit(255)
		all = append(all, s)
	}
	return all
}

// send puts a message on a link.
func (s localSocket) send(b []byte, l localLink) error {
	if s.v4 != nil {
		if err := s.v4.SetMulticastInterface(&l.on); err != nil {
			return err
		}
		_, err := s.v4.WriteTo(b, nil, &net.UDPAddr{IP: net.IPv4(224, 0, 0, 251), Port: mdnsPort})
		return err
	}
	_, err := s.v6.WriteTo(b, nil, &net.UDPAddr{IP: net.ParseIP("ff02::fb"), Port: mdnsPort, Zone: l.on.Name})
	return err
}

// listen tells the addresses of a name until the socket is closed or ctx ends.
func (s localSocket) listen(ctx context.Context, q localQuery, on []localLink, to chan<- []netip.Addr) {
	buf := make([]byte, 9000) // RFC 6762's largest message
	for ctx.Err() == nil {
		n, index, from, err := s.read(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			select { // such as a machine that refuses; it must not keep a processor busy
			case <-ctx.Done():
			case <-time.After(localGrace / 10):
			}
			continue
		}
		link, ok := over(on, index, from.Addr())
		if !ok || from.Port() != mdnsPort {
			continue
		}
		var found []netip.Addr
		for _, a := range q.read(buf[:n]) {
			if a, ok := link.here(a); ok {
				found = append(found, a)
			}
		}
		if len(found) == 0 {
			continue
		}
		select {
		case to <- found:
		case <-ctx.Done():
		}
	}
}

// read returns the next message and the interface it came over, 0 when that is unknown.
func (s localSocket) read(buf []byte) (n, index int, from netip.AddrPort, err error) {
	var addr net.Addr
	if s.v4 != nil {
		var cm *ipv4.ControlMessage
		if n, cm, addr, err = s.v4.ReadFrom(buf); cm != nil {
			index = cm.IfIndex
		}
	} else {
		var cm *ipv6.ControlMessage
		if n, cm, addr, err = s.v6.ReadFrom(buf); cm != nil {
			index = cm.IfIndex
		}
	}
	if udp, ok := addr.(*net.UDPAddr); ok {
		from = netip.AddrPortFrom(udp.AddrPort().Addr().Unmap(), uint16(udp.Port))
	}
	return n, index, from, err
}
