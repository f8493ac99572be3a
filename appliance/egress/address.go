package egress

import (
	"errors"
	"fmt"
	"net/netip"
)

// kept lists addresses that are nobody's on the open network, beyond those that netip has a word for. Of IPv6, all
// outside of the global block 2000::/3 is kept anyway.
var kept = []struct {
	prefix netip.Prefix
	what   string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "of this network"},
	{netip.MustParsePrefix("100.64.0.0/10"), "of a carrier's inner network"},
	{netip.MustParsePrefix("192.0.0.0/24"), "reserved for protocols"},
	{netip.MustParsePrefix("192.0.2.0/24"), "for examples in papers"},
	{netip.MustParsePrefix("192.88.99.0/24"), "of a relay"},
	{netip.MustParsePrefix("198.18.0.0/15"), "for measurements"},
	{netip.MustParsePrefix("198.51.100.0/24"), "for examples in papers"},
	{netip.MustParsePrefix("203.0.113.0/24"), "for examples in papers"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved"},
	{netip.MustParsePrefix("2001::/23"), "reserved for protocols"},
	{netip.MustParsePrefix("2001:db8::/32"), "for examples in papers"},
	{netip.MustParsePrefix("2002::/16"), "of a relay"},
	{netip.MustParsePrefix("3fff::/20"), "for examples in papers"},
}

var (
	global = netip.MustParsePrefix("2000::/3")
	nat64  = netip.MustParsePrefix("64:ff9b::/96") // the last 32 bits are an address of IPv4
)

// CheckAddress returns nil for an address of the open network, and for all others an error that says what they are:
// private, loopback, link-local, a carrier's, multicast, unspecified, reserved, or one of these inside of an address
// of IPv6.
func CheckAddress(a netip.Addr) error {
	if !a.IsValid() {
		return errors.New("no address")
	}
	if a.Zone() != "" {
		return fmt.Errorf("%v is an address of one link", a)
	}
	if inner := a.Unmap(); inner != a {
		return CheckAddress(inner)
	}
	if nat64.Contains(a) {
		b := a.As16()
		return CheckAddress(netip.AddrFrom4([4]byte(b[12:])))
	}
	for _, k := range []struct {
		is   bool
		what string
	}{
		{a.IsUnspecified(), "unspecified"},
		{a.IsLoopback(), "this machine"},
		{a.IsPrivate(), "private"},
		{a.IsLinkLocalUnicast(), "of one link"},
		{a.IsMulticast(), "of many hosts"},
	} {
		if k.is {
			return fmt.Errorf("%v is %s", a, k.what)
		}
	}
	for _, k := range kept {
		if k.prefix.Contains(a) {
			return fmt.Errorf("%v is %s", a, k.what)
		}
	}
	if a.Is6() && !global.Contains(a) {
		return fmt.Errorf("%v is not of the open network", a)
	}
	return nil
}
