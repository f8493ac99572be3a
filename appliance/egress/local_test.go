package egress_test

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/miekg/dns"

	"onebit/appliance/egress"
)

// answer is a message that answers for attic.local, changed by a test.
func answer(t testing.TB, change func(*dns.Msg)) []byte {
	t.Helper()
	m := &dns.Msg{MsgHdr: dns.MsgHdr{Id: 7, Response: true, Authoritative: true}, Question: []dns.Question{{Name: "attic.local.", Qtype: dns.TypeA, Qclass: dns.ClassINET}}}
	m.Answer = []dns.RR{
		&dns.A{Hdr: dns.RR_Header{Name: "attic.local.", Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 120}, A: net.IPv4(192, 168, 1, 5)},
		&dns.AAAA{Hdr: dns.RR_Header{Name: "Attic.local.", Rrtype: dns.TypeAAAA, Class: dns.ClassINET | 1<<15, Ttl: 120}, AAAA: net.ParseIP("fe80::5")},
		&dns.A{Hdr: dns.RR_Header{Name: "cellar.local.", Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 120}, A: net.IPv4(192, 168, 1, 6)},
		&dns.TXT{Hdr: dns.RR_Header{Name: "attic.local.", Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: 120}, Txt: []string{"x"}},
	}
	if change != nil {
		change(m)
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestLocalAnswer: of what comes in, an answer to our question counts, and of that the addresses of the name.
func TestLocalAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*dns.Msg)
		host   string
		want   string
	}{
		"an answer":           {want: "[192.168.1.5 fe80::5]"},
		"to the other":        {change: func(m *dns.Msg) { m.Id = 8 }, want: "[192.168.1.5 fe80::5]"},
		"in capitals":         {host: "ATTIC.local.", want: "[192.168.1.5 fe80::5]"},
		"for another":         {host: "garage.local", want: "[]"},
		"to another question": {change: func(m *dns.Msg) { m.Id = 9 }, want: "[]"},
		"a question":          {change: func(m *dns.Msg) { m.Response = false }, want: "[]"},
		"an update":           {change: func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }, want: "[]"},
		"a refusal":           {change: func(m *dns.Msg) { m.Rcode = dns.RcodeNameError }, want: "[]"},
		"of another class":    {change: func(m *dns.Msg) { m.Answer[0].Header().Class = dns.ClassCHAOS }, want: "[fe80::5]"},
		"beside the answer":   {change: func(m *dns.Msg) { m.Extra, m.Answer = m.Answer, nil }, want: "[]"},
		"without an address":  {change: func(m *dns.Msg) { m.Answer[0].(*dns.A).A = nil }, want: "[fe80::5]"},
	} {
		host := c.host
		if host == "" {
			host = "attic.local"
		}
		if got := fmt.Sprint(egress.LocalAnswer(host, [2]uint16{7, 8}, answer(t, c.change))); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestLocalLink: answers count that come from the link, and of those the addresses on it.
func TestLocalLink(t *testing.T) {
	names, prefixes := []string{"eth0", "wlan0"}, []netip.Prefix{netip.MustParsePrefix("192.168.1.0/24"), netip.MustParsePrefix("2001:db8:1::/64")}
	for _, c := range []struct {
		name          string
		index         int
		from, address string
		link, want    string
	}{
		{"a neighbour", 1, "192.168.1.5", "192.168.1.5", "eth0", "192.168.1.5"},
		{"another address of the link", 1, "192.168.1.5", "::ffff:192.168.1.9", "eth0", "192.168.1.9"},
		{"where the system does not say the interface", 0, "192.168.1.5", "192.168.1.5", "eth0", "192.168.1.5"},
		{"a stranger", 1, "203.0.113.5", "192.168.1.5", "", "invalid IP"},
		{"a neighbour of another link", 2, "192.168.1.5", "192.168.1.5", "", "invalid IP"},
		{"somewhere else", 1, "192.168.1.5", "10.0.0.1", "eth0", "invalid IP"},
		{"this machine", 1, "192.168.1.5", "127.0.0.1", "eth0", "invalid IP"},
		{"many", 1, "192.168.1.5", "224.0.0.251", "eth0", "invalid IP"},
		{"an address of the link alone", 2, "fe80::5%wlan0", "fe80::5", "wlan0", "fe80::5%wlan0"},
		{"of another link, as it says itself", 2, "fe80::5%wlan0", "fe80::5%eth0", "wlan0", "fe80::5%wlan0"},
		{"by its zone", 0, "fe80::5%wlan0", "fe80::5", "wlan0", "fe80::5%wlan0"},
		{"a global address of the link", 2, "fe80::5%wlan0", "2001:db8:1::5", "wlan0", "2001:db8:1::5"},
		{"a global address elsewhere", 2, "fe80::5%wlan0", "2001:db8:2::5", "wlan0", "invalid IP"},
		{"this machine in IPv6", 2, "fe80::5%wlan0", "::1", "wlan0", "invalid IP"},
	} {
		link, a := egress.OverLink(names, prefixes, c.index, netip.MustParseAddr(c.from), netip.MustParseAddr(c.address))
		if link != c.link || a.String() != c.want {
			t.Errorf("%s: %q %v", c.name, link, a)
		}
	}
	all := []netip.Addr{netip.MustParseAddr("fe80::5%eth0"), netip.MustParseAddr("2001:db8:1::5"), netip.MustParseAddr("192.168.1.5"), netip.MustParseAddr("192.168.1.5")}
	if got := fmt.Sprint(egress.InOrder(all)); got != "[192.168.1.5 2001:db8:1::5 fe80::5%eth0]" {
		t.Errorf("in the order %s", got)
	}
}

// FuzzLocalAnswer holds that no message makes the reader fail, and that what is no answer to our question gives no address.
func FuzzLocalAnswer(f *testing.F) {
	f.Add(answer(f, nil))
	f.Add(answer(f, func(m *dns.Msg) { m.Compress = true }))
	f.Add(answer(f, func(m *dns.Msg) { m.Id = 9 }))
	f.Add([]byte("\x00\x07\x84\x00\x00\x00\xff\xff\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01"))
	f.Fuzz(func(t *testing.T, message []byte) {
		got := egress.LocalAnswer("attic.local", [2]uint16{7, 8}, message)
		if len(got) > 0 && (len(message) < 12 || message[0] != 0 || message[1] != 7 && message[1] != 8 || message[2]&0x80 == 0) {
			t.Errorf("%x gives %v", message, got)
		}
		for _, a := range got {
			if !a.IsValid() || a.Is4In6() {
				t.Errorf("%x gives %v", message, a)
			}
		}
	})
}
