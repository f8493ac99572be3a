package egress

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// RefusedError says that something of a request may not be reached.
type RefusedError struct {
	Host string // as in the URL, or the address that was refused; may be empty
	Why  string
}

// Error names the host and the reason.
func (e *RefusedError) Error() string {
	if e.Host == "" {
		return "the address is refused: " + e.Why
	}
	return fmt.Sprintf("%s is refused: %s", e.Host, e.Why)
}

// allowed reports whether the operator named a host, with or without its port.
func (c *Client) allowed(host, port string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	return c.allow[host] || c.allow[net.JoinHostPort(host, port)]
}

// normal returns an entry of the allow-list as it is looked up: host, or host:port.
func normal(entry string) (string, error) {
	s := strings.ToLower(strings.TrimSpace(entry))
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		host, port = strings.Trim(s, "[]"), ""
	}
	host = strings.TrimSuffix(host, ".")
	_, isAddress := netip.ParseAddr(host)
	if host == "" || (isAddress != nil && strings.ContainsAny(host, "/:@ ?#%*[]")) {
		return "", fmt.Errorf("%q is neither a host nor host:port", entry)
	}
	if port == "" {
		return host, nil
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("%q has no port between 1 and 65535", entry)
	}
	return net.JoinHostPort(host, port), nil
}

// defaultPorts are those of the schemes.
var defaultPorts = map[string]string{"http": "80", "https": "443"}

// port returns the port of a URL.
func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return defaultPorts[u.Scheme]
}

// CheckURL returns nil when a URL may be asked for as far as its text tells, and else a *RefusedError: it is no HTTPS
// (and its host is not allowed to do without), names a user, or spells its host in a way that programs read
// differently.
func (c *Client) CheckURL(u *url.URL) error {
	host := u.Hostname()
	refuse := func(why string) error { return &RefusedError{Host: host, Why: why} }
	if u.Scheme != "https" && u.Scheme != "http" {
		return refuse("its scheme is not https")
	}
	if u.Opaque != "" || host == "" {
		return refuse("it names no host")
	}
	if u.User != nil {
		return refuse("it names a user")
	}
	n, err := strconv.ParseUint(port(u), 10, 16)
	if err != nil || n == 0 || strings.HasSuffix(u.Host, ":") {
		return refuse("it has no port between 1 and 65535")
	}
	if c.allowed(host, port(u)) {
		return nil
	}
	if u.Scheme != "https" {
		return refuse("it is not https")
	}
	if n != 443 && n < 1024 {
		return refuse(fmt.Sprintf("port %d belongs to another service", n))
	}
	if err := checkHost(host); err != nil {
		return refuse(err.Error())
	}
	return nil
}

// checkHost refuses addresses that are not of the open network, and names that are no plain ones.
func checkHost(host string) error {
	if strings.Contains(host, ":") {
		a, err := netip.ParseAddr(host)
		if err != nil {
			return errors.New("it is no address")
		}
		return CheckAddress(a)
	}
	for _, r := range host {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '-' && r != '_' {
			return fmt.Errorf("it has the sign %q", r)
		}
	}
	name := strings.TrimSuffix(host, ".")
	last := name[strings.LastIndexByte(name, '.')+1:]
	if last == "" {
		return errors.New("it has an empty part")
	}
	if isLocal(name) {
		return errors.New("names in .local are of this network")
	}
	if numeric(last) { // what some programs read as an address in another base, or with fewer parts
		a, err := netip.ParseAddr(host)
		if err != nil {
			return errors.New("it is a number, but no address")
		}
		return CheckAddress(a)
	}
	return nil
}

// numeric reports whether a part of a name is a number, also one in base 16.
func numeric(s string) bool {
	if rest, ok := strings.CutPrefix(strings.ToLower(s), "0x"); ok {
		return strings.Trim(rest, "0123456789abcdef") == ""
	}
	return strings.Trim(s, "0123456789") == ""
}

// origin names who answers a URL: scheme, host and port.
func origin(u *url.URL) string {
	return u.Scheme + "://" + net.JoinHostPort(strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), port(u))
}
