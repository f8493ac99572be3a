package edge_test

import (
	"testing"

	"github.com/brutella/dnssd"
	"github.com/miekg/dns"

	"onebit/appliance/edge"
)

const (
	gatewayService  = "_ai-gateway._tcp.local."
	gatewayInstance = "my\\ box._ai-gateway._tcp.local."
)

func gatewayKinds() edge.Subtypes {
	return edge.NewSubtypes(dnssd.Service{Name: "my box", Type: "_ai-gateway._tcp", Domain: "local"}, "_chat-completions", "_responses")
}

func question(name string, kind, class uint16) *dns.Msg {
	m := &dns.Msg{}
	m.Id = 77
	m.Question = []dns.Question{{Name: name, Qtype: kind, Qclass: class}}
	return m
}

func TestSubtypes(t *testing.T) {
	const responses = "_responses._sub." + gatewayService
	know := func(ttl uint32) *dns.Msg {
		m := question(responses, dns.TypePTR, dns.ClassINET)
		m.Answer = []dns.RR{&dns.PTR{Hdr: dns.RR_Header{Name: responses, Rrtype: dns.TypePTR, Class: 1, Ttl: ttl}, Ptr: gatewayInstance}}
		return m
	}
	flagged := func(set func(*dns.Msg)) *dns.Msg {
		m := question(responses, dns.TypePTR, dns.ClassINET)
		set(m)
		return m
	}
	for _, c := range []struct {
		name     string
		q        *dns.Msg
		port     int
		answered bool
		alone    bool
	}{
		{"browser", question(responses, dns.TypePTR, dns.ClassINET), 5353, true, false},
		{"other case", question("_RESPONSES._sub."+gatewayService, dns.TypePTR, dns.ClassINET), 5353, true, false},
		{"anything", question(responses, dns.TypeANY, dns.ClassANY), 5353, true, false},
		{"to itself", question(responses, dns.TypePTR, dns.ClassINET|1<<15), 5353, true, true},
		{"plain resolver", question(responses, dns.TypePTR, dns.ClassINET), 40000, true, true},
		{"other kind", question("_music._sub."+gatewayService, dns.TypePTR, dns.ClassINET), 5353, false, false},
		{"the service itself", question(gatewayService, dns.TypePTR, dns.ClassINET), 5353, false, false},
		{"an address", question(responses, dns.TypeA, dns.ClassINET), 5353, false, false},
		{"known", know(4000), 5353, false, false},
		{"nearly forgotten", know(100), 5353, true, false},
		{"an answer", flagged(func(m *dns.Msg) { m.Response = true }), 5353, false, false},
		{"an update", flagged(func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }), 5353, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, err := c.q.Pack()
			if err != nil {
				t.Fatal(err)
			}
			m, alone := gatewayKinds().Answer(b, c.port)
			if (m != nil) != c.answered || alone != c.alone {
				t.Fatalf("answered %v, alone %v", m, alone)
			}
			if m == nil {
				return
			}
			if p, ok := m.Answer[0].(*dns.PTR); !ok || p.Ptr != gatewayInstance || p.Hdr.Name != responses || len(m.Answer) != 1 {
				t.Errorf("the answer is %v", m.Answer)
			}
			if plain := c.port != 5353; plain != (m.Id == 77) || plain != (len(m.Question) == 1) {
				t.Errorf("the reply is %v", m)
			}
		})
	}
}

func FuzzSubtypes(f *testing.F) {
	for _, m := range []*dns.Msg{question("_responses._sub."+gatewayService, dns.TypePTR, dns.ClassINET), question("x.local.", dns.TypeANY, dns.ClassANY)} {
		b, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte("\x00\x00\x00\x00\xff\xff\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x0c\x00\x01"))
	s := gatewayKinds()
	f.Fuzz(func(t *testing.T, message []byte) {
		m, _ := s.Answer(message, 5353)
		if m == nil {
			return
		}
		if _, err := m.Pack(); err != nil {
			t.Errorf("an answer that cannot be sent: %v", err)
		}
	})
}
