package edge

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"
)

// The ways to prove the possession of a name.
const (
	ChallengeHTTP = "http-01"
	ChallengeALPN = "tls-alpn-01"
	ChallengeDNS  = "dns-01"
)

// ACME says how certificates of a public authority are obtained.
type ACME struct {
	Email      string            // may be empty
	Directory  string            // URL of the authority's directory; empty means Let's Encrypt
	Root       string            // PEM file that the directory's own certificate is checked against; empty means the system's
	Challenges []string          // http-01, tls-alpn-01, dns-01; empty means the first two
	Profile    string            // one of the authority's, such as shortlived; may be empty
	DNS        string            // provider for dns-01
	DNSOptions map[string]string // what the provider needs
}

// newIssuer makes the public authority's client. The challenges that need a port are answered by the box's own
// listeners, which certmagic finds taken.
func (c *certificates) newIssuer(log *zap.Logger) (*certmagic.ACMEIssuer, error) {
	a, at := c.cfg.ACME, c.at
	challenges := a.Challenges
	if len(challenges) == 0 {
		challenges = []string{ChallengeHTTP, ChallengeALPN}
	}
	for _, ch := range challenges {
		if ch != ChallengeHTTP && ch != ChallengeALPN && ch != ChallengeDNS {
			return nil, fmt.Errorf("there is no ACME challenge %q; there are %s, %s and %s", ch, ChallengeHTTP, ChallengeALPN, ChallengeDNS)
		}
	}
	t := certmagic.ACMEIssuer{
		CA: a.Directory, Email: a.Email, Agreed: true, Profile: a.Profile, Logger: log,
		ListenHost:              at.host,
		DisableHTTPChallenge:    at.plain == 0 || !slices.Contains(challenges, ChallengeHTTP),
		DisableTLSALPNChallenge: !slices.Contains(challenges, ChallengeALPN),
	}
	if t.CA == "" {
		t.CA = certmagic.LetsEncryptProductionCA
	}
	t.AltHTTPPort, t.AltTLSALPNPort = at.plain, at.secure
	if a.Root != "" {
		pem, err := os.ReadFile(a.Root)
		if err != nil {
			return nil, fmt.Errorf("reading the root of the ACME directory: %w", err)
		}
		t.TrustedRoots = x509.NewCertPool()
		if !t.TrustedRoots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate", a.Root)
		}
	}
	if slices.Contains(challenges, ChallengeDNS) {
		solver, err := dnsSolver(a.DNS, a.DNSOptions, log)
		if err != nil {
			return nil, err
		}
		t.DNS01Solver = solver
	}
	if t.DisableHTTPChallenge && t.DisableTLSALPNChallenge && t.DNS01Solver == nil {
		return nil, errors.New("no ACME challenge is left: http-01 needs the plain HTTP port")
	}
	return certmagic.NewACMEIssuer(c.public, t), nil
}
