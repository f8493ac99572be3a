package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"

	"onebit/appliance/egress"
)

// Step is what of the way to a server failed.
type Step string

// The steps, in their order.
const (
	StepName        Step = "name"        // it has no address
	StepAddress     Step = "address"     // the box does not go there
	StepConnection  Step = "connection"  // nobody answers
	StepCertificate Step = "certificate" // it is not who it should be
	StepKey         Step = "key"         // it refuses the key
	StepList        Step = "list"        // it is no API, or has other troubles
)

// Finding is what one look at a server has found out.
type Finding struct {
	Host      string       // with the port
	Addresses []netip.Addr // that its name has; empty for an address that is written, and for a name that has none
	Step      Step         // where it failed; empty for nowhere
	Err       error        // and why
	Listed    bool         // it has answered with a list of models
	Missing   string       // that the model is not listed; empty when it is, or nothing is
}

// Examine looks once at a server, within 10 s: at its name, at whether the box goes to its addresses, at its certificate, at whether it
// takes the key and lists the model. It never fails; what is wrong is in what it finds.
func Examine(ctx context.Context, cfg Config) Finding {
	seen := &lookups{resolve: cfg.Resolve}
	if seen.resolve == nil {
		seen.resolve = egress.Resolve
	}
	cfg.Resolve = seen.Resolve
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler) // what it would say is in the finding
	}
	r, err := New(cfg)
	if err != nil {
		step := StepAddress
		if _, bad := Address(cfg.URL, cfg.Private); bad == nil {
			step = StepCertificate // the root that it is checked against
		}
		return Finding{Step: step, Err: err}
	}
	defer r.client.Close()
	f := Finding{Host: r.host, Err: r.look(ctx)}
	f.Missing, f.Listed = r.Problem(), r.listed
	addresses, asked := seen.found()
	f.Addresses = addresses
	if f.Err != nil {
		f.Step = stepOf(f.Err)
		if f.Step == StepConnection && asked && f.Addresses == nil {
			f.Step = StepName // it was still being looked for
		}
	}
	return f
}

// stepOf says what of the way failed.
func stepOf(err error) Step {
	if odd, ok := errors.AsType[*oddError](err); ok {
		return odd.step
	}
	if _, ok := errors.AsType[*egress.RefusedError](err); ok {
		return StepAddress
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return StepName
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return StepCertificate
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return StepCertificate
	}
	if _, ok := errors.AsType[tls.AlertError](err); ok {
		return StepCertificate
	}
	return StepConnection
}

// oddError is an answer to a look that is none as it should be.
type oddError struct {
	step Step
	text string
}

// Error says what it was.
func (e *oddError) Error() string { return e.text }

// lookups notes what a name resolves to. A connection that is given up may still be looking for its name.
type lookups struct {
	resolve func(ctx context.Context, host string) ([]netip.Addr, error)

	mu    sync.Mutex
	asked bool
	all   []netip.Addr
}

// Resolve finds the addresses of a host.
func (l *lookups) Resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	l.mu.Lock()
	l.asked = true
	l.mu.Unlock()
	all, err := l.resolve(ctx, host)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append([]netip.Addr(nil), all...)
	return all, err
}

func (l *lookups) found() (all []netip.Addr, asked bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all, l.asked
}
