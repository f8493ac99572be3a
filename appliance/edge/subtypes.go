package edge

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/brutella/dnssd"
	"github.com/miekg/dns"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

const (
	subtypeTTL = 75 * 60 // seconds; RFC 6762's for records that are shared
	mdnsPort   = 5353
	topBit     = 1 << 15 // of a question's class: answer to the asker alone
	rejoin     = 30 * time.Second
	secondWord = time.Second // between two announcements
)

// subtypes answers questions for the kinds of a service (RFC 6763, section 7.1), which the responder of the service
// itself does not know.
type subtypes struct {
	instance string   // escaped, with a final dot
	names    []string // such as _responses._sub._ai-gateway._tcp.local.
	services []dns.RR // what the good-bye takes back too: it is the last that the network hears
}

func newSubtypes(service dnssd.Service, kinds []string) *subtypes {
	s := &subtypes{instance: service.EscapedServiceInstanceName()}
	for _, k := range kinds {
		s.names = append(s.names, k+"._sub."+service.ServiceName())
	}
	return s
}

// records returns the pointers of all kinds. A life of 0 is a good-bye.
func (s *subtypes) records(ttl uint32) (out []dns.RR) {
	for _, n := range s.names {
		out = append(out, s.record(n, ttl))
	}
	return out
}

func (s *subtypes) record(name string, ttl uint32) dns.RR {
	return &dns.PTR{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypePTR, Class: dns.ClassINET, Ttl: ttl}, Ptr: s.instance}
}

// answer returns what to answer to a message of the network, or nil; alone says that only the asker wants it. A plain
// resolver asks from another port than mDNS's, and wants its question back.
func (s *subtypes) answer(message []byte, port int) (reply *dns.Msg, alone bool) {
	var q dns.Msg
	if err := q.Unpack(message); err != nil || q.Response || q.Opcode != dns.OpcodeQuery || q.Truncated {
		return nil, false
	}
	plain := port != mdnsPort
	reply = &dns.Msg{}
	reply.Response, reply.Authoritative = true, true
	for _, one := range q.Question {
		if one.Qtype != dns.TypePTR && one.Qtype != dns.TypeANY {
			continue
		}
		at := slices.IndexFunc(s.names, func(n string) bool { return strings.EqualFold(n, one.Name) })
		if at < 0 || s.known(q.Answer, s.names[at]) {
			continue
		}
		alone = alone || plain || one.Qclass&topBit != 0
		if plain {
			reply.Id = q.Id
			reply.Question = append(reply.Question, one)
		}
		reply.Answer = append(reply.Answer, s.record(s.names[at], subtypeTTL))
	}
	if len(reply.Answer) == 0 {
		return nil, false
	}
	return reply, alone
}

// known reports whether the asker has the answer for long enough.
func (s *subtypes) known(have []dns.RR, name string) bool {
	return slices.ContainsFunc(have, func(r dns.RR) bool {
		p, ok := r.(*dns.PTR)
		return ok && strings.EqualFold(p.Hdr.Name, name) && strings.EqualFold(p.Ptr, s.instance) && p.Hdr.Ttl >= subtypeTTL/2
	})
}

// run announces the kinds and answers until ctx ends, then says good-bye. No name of interfaces means all.
func (s *subtypes) run(ctx context.Context, interfaces []string) error {
	links, err := openLinks(interfaces)
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	for _, l := range links {
		group.Go(func() { s.serve(l) })
	}
	s.tell(links, s.records(subtypeTTL))
	again := time.NewTimer(secondWord) // RFC 6762, section 8.3: at least twice
	defer again.Stop()
	tick := time.NewTicker(rejoin)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-again.C:
			s.tell(links, s.records(subtypeTTL))
		case <-tick.C: // interfaces come and go
			for _, l := range links {
				l.join()
			}
		}
	}
	gone := s.records(0)
	for _, r := range s.services {
		r = dns.Copy(r)
		r.Header().Ttl = 0
		gone = append(gone, r)
	}
	s.tell(links, gone)
	for _, l := range links {
		_ = l.conn.Close() // nothing is left to do about what it says
	}
	group.Wait()
	return nil
}

// tell says something to everybody that nobody has asked for.
func (s *subtypes) tell(links []*link, records []dns.RR) {
	for _, l := range links {
		l.everywhere(&dns.Msg{MsgHdr: dns.MsgHdr{Response: true, Authoritative: true}, Answer: records})
	}
}

// serve answers what comes in over a link until it is closed.
func (s *subtypes) serve(l *link) {
	buf := make([]byte, 9000) // RFC 6762's largest message
	for {
		n, index, from, err := l.read(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || from == nil {
			continue
		}
		reply, alone := s.answer(buf[:n], from.Port)
		if reply == nil {
			continue
		}
		to := l.group
		if alone {
			to = from
		}
		l.send(reply, index, to)
	}
}

// link is mDNS over one version of IP.
type link struct {
	conn       *net.UDPConn
	group      *net.UDPAddr
	v4         *ipv4.PacketConn // nil for version 6
	v6         *ipv6.PacketConn // nil for version 4
	interfaces []string
}

// openLinks opens what this machine has; one version of IP is enough.
func openLinks(interfaces []string) (out []*link, err error) {
	var all error
	for network, group := range map[string]net.IP{"udp4": dnssd.IPv4LinkLocalMulticast, "udp6": dnssd.IPv6LinkLocalMulticast} {
		l := &link{group: &net.UDPAddr{IP: group, Port: mdnsPort}, interfaces: interfaces}
		if l.conn, err = net.ListenUDP(network, l.group); err != nil {
			all = errors.Join(all, err)
			continue
		}
		// Not every system has every setting; what is missing makes some answers fail, not the box.
		if network == "udp4" {
			l.v4 = ipv4.NewPacketConn(l.conn)
			_ = l.v4.SetControlMessage(ipv4.FlagInterface, true)
			_ = l.v4.SetMulticastTTL(255)
		} else {
			l.v6 = ipv6.NewPacketConn(l.conn)
			_ = l.v6.SetControlMessage(ipv6.FlagInterface, true)
			_ = l.v6.SetMulticastHopLimit(255)
		}
		l.join()
		out = append(out, l)
	}
	if len(out) == 0 {
		return nil, all
	}
	return out, nil
}

// join listens on interfaces that are new.
func (l *link) join() {
	for _, i := range dnssd.MulticastInterfaces(l.interfaces...) {
		if l.v4 != nil {
			_ = l.v4.JoinGroup(i, l.group) // it says so when it was joined before
		} else {
			_ = l.v6.JoinGroup(i, l.group)
		}
	}
}

// read returns the next message and the interface it came over, 0 when that is unknown.
func (l *link) read(buf []byte) (n, index int, from *net.UDPAddr, err error) {
	var addr net.Addr
	if l.v4 != nil {
		var cm *ipv4.ControlMessage
		if n, cm, addr, err = l.v4.ReadFrom(buf); cm != nil {
			index = cm.IfIndex
		}
	} else {
		var cm *ipv6.ControlMessage
		if n, cm, addr, err = l.v6.ReadFrom(buf); cm != nil {
			index = cm.IfIndex
		}
	}
	from, _ = addr.(*net.UDPAddr)
	return n, index, from, err
}

// everywhere sends a message to the group over each interface.
func (l *link) everywhere(m *dns.Msg) {
	for _, i := range dnssd.MulticastInterfaces(l.interfaces...) {
		l.send(m, i.Index, l.group)
	}
}

// send sends a message over an interface. Whoever does not get it asks again.
func (l *link) send(m *dns.Msg, index int, to *net.UDPAddr) {
	b, err := m.Pack()
	if err != nil {
		return
	}
	if l.v4 != nil {
		_, _ = l.v4.WriteTo(b, &ipv4.ControlMessage{IfIndex: index}, to)
	} else {
		_, _ = l.v6.WriteTo(b, &ipv6.ControlMessage{IfIndex: index}, to)
	}
}
