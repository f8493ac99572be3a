package edge

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/libdns/acmedns"
	"github.com/libdns/cloudflare"
	"github.com/libdns/digitalocean"
	"github.com/libdns/hetzner/v2"
	"github.com/libdns/rfc2136"
	"github.com/libdns/route53"
	"go.uber.org/zap"
)

// dnsProvider says what a provider needs and makes one. Options whose name ends in a question mark may be left out.
type dnsProvider struct {
	options []string
	make    func(o map[string]string) (certmagic.DNSProvider, error)
}

// dnsProviders are the services that can prove the possession of a name by a DNS record.
func dnsProviders() map[string]dnsProvider {
	return map[string]dnsProvider{
		"acmedns": {[]string{"username", "password", "subdomain", "server"}, func(o map[string]string) (certmagic.DNSProvider, error) {
			return &acmedns.Provider{Username: o["username"], Password: o["password"], Subdomain: o["subdomain"], ServerURL: o["server"]}, nil
		}},
		"cloudflare": {[]string{"token", "zone_token?"}, func(o map[string]string) (certmagic.DNSProvider, error) {
			return &cloudflare.Provider{APIToken: o["token"], ZoneToken: o["zone_token"]}, nil
		}},
		"digitalocean": {[]string{"token"}, func(o map[string]string) (certmagic.DNSProvider, error) {
			return &digitalocean.Provider{APIToken: o["token"]}, nil
		}},
		"hetzner": {[]string{"token"}, func(o map[string]string) (certmagic.DNSProvider, error) {
			return &hetzner.Provider{APIToken: o["token"]}, nil
		}},
		"rfc2136": {[]string{"server", "key_name", "key", "key_algorithm?"}, func(o map[string]string) (certmagic.DNSProvider, error) {
			algorithm := o["key_algorithm"]
			if algorithm == "" {
				algorithm = "hmac-sha256"
			}
			return &rfc2136.Provider{Server: o["server"], KeyName: o["key_name"], Key: o["key"], KeyAlg: algorithm}, nil
		}},
		"route53": {[]string{"access_key_id", "secret_access_key", "region?", "session_token?"}, func(o map[string]string) (certmagic.DNSProvider, error) {
			region := o["region"]
			if region == "" {
				region = "us-east-1"
			}
			return &route53.Provider{AccessKeyId: o["access_key_id"], SecretAccessKey: o["secret_access_key"], Region: region, SessionToken: o["session_token"]}, nil
		}},
		"webhook": {[]string{"url", "token?"}, func(o map[string]string) (certmagic.DNSProvider, error) {
			u, err := url.Parse(o["url"])
			if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
				return nil, fmt.Errorf("%q is no address of a webhook", o["url"])
			}
			return &webhook{url: strings.TrimSuffix(o["url"], "/"), token: o["token"], client: &http.Client{Timeout: 30 * time.Second}}, nil
		}},
	}
}

// DNSProviders returns the names of the providers for DNS-01, in order.
func DNSProviders() []string { return slices.Sorted(maps.Keys(dnsProviders())) }

// dnsSolver makes what answers DNS-01. Beside the provider's own options each takes: resolvers (addresses with ports,
// separated by commas), override_domain (where _acme-challenge points to by CNAME), propagation (how long to wait for
// the record to be seen; off does not look) and ttl.
func dnsSolver(provider string, options map[string]string, log *zap.Logger) (*certmagic.DNS01Solver, error) {
	p, ok := dnsProviders()[provider]
	if !ok {
		return nil, fmt.Errorf("there is no DNS provider %q; there are %s", provider, strings.Join(DNSProviders(), ", "))
	}
	rest := maps.Clone(options)
	solver := &certmagic.DNS01Solver{}
	m := &solver.DNSManager
	m.Logger, m.OverrideDomain = log, rest["override_domain"]
	if s := rest["resolvers"]; s != "" {
		m.Resolvers = strings.Split(strings.ReplaceAll(s, " ", ""), ",")
	}
	var err error
	switch s := rest["propagation"]; s {
	case "":
	case "off":
		m.PropagationTimeout = -1
	default:
		if m.PropagationTimeout, err = time.ParseDuration(s); err != nil {
			return nil, fmt.Errorf("reading the DNS option propagation: %w", err)
		}
	}
	if s := rest["ttl"]; s != "" {
		if m.TTL, err = time.ParseDuration(s); err != nil {
			return nil, fmt.Errorf("reading the DNS option ttl: %w", err)
		}
	}
	for _, name := range []string{"override_domain", "resolvers", "propagation", "ttl"} {
		delete(rest, name)
	}
	if err := p.check(provider, rest); err != nil {
		return nil, err
	}
	if m.DNSProvider, err = p.make(rest); err != nil {
		return nil, fmt.Errorf("setting the DNS provider %s up: %w", provider, err)
	}
	return solver, nil
}

// check refuses options that the provider does not have, and asks for those that it needs.
func (p dnsProvider) check(name string, options map[string]string) error {
	known := map[string]bool{}
	for _, o := range p.options {
		o, optional := strings.CutSuffix(o, "?")
		known[o] = true
		if !optional && options[o] == "" {
			return fmt.Errorf("the DNS provider %s needs the option %s", name, o)
		}
	}
	for _, o := range slices.Sorted(maps.Keys(options)) {
		if !known[o] {
			return fmt.Errorf("the DNS provider %s has no option %s; it has %s", name, o, strings.ReplaceAll(strings.Join(p.options, ", "), "?", ""))
		}
	}
	return nil
}
