package egress_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"

	"onebit/appliance/egress"
)

// FuzzURL holds that no text leads to a connection to an address that is not of the open network, where every name
// means this machine.
func FuzzURL(f *testing.F) {
	for _, u := range refused {
		f.Add(u)
	}
	f.Add("https://1.1.1.1/")
	f.Fuzz(func(t *testing.T, url string) {
		c, err := egress.New(egress.Config{
			Resolve: func(context.Context, string) ([]netip.Addr, error) {
				return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
			},
			Dial: func(_ context.Context, a netip.AddrPort) (net.Conn, error) {
				if err := egress.CheckAddress(a.Addr()); err != nil {
					t.Errorf("%q dials %v: %v", url, a, err)
				}
				return nil, errors.New("nobody there")
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.Get(t.Context(), url, egress.Limits{})
		if err == nil {
			res.Body.Close()
			t.Errorf("%q was reached", url)
		}
	})
}
