package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"time"

	"onebit/appliance/config"
	"onebit/appliance/egress"
	"onebit/appliance/gateway"
	"onebit/appliance/pool"
	"onebit/appliance/remote"
	"onebit/engine"
	"onebit/engine/wire"
)

// maxRoot is the largest file with certificates that is read, in bytes.
const maxRoot = 1 << 20

// examineRemote says whether a model that another server runs can be asked, and how.
func (b *box) examineRemote(cfg config.Box, m *boxModel) {
	m.created, m.Device, m.why = time.Unix(0, 0), string(engine.Elsewhere), "another server runs it"
	c, key, err := remoteConfig(cfg, m.BoxModel)
	if err != nil {
		m.problem = err.Error()
		return
	}
	m.why = "another server runs it: " + c.URL
	if m.Remote.Disabled {
		m.problem = "it is disabled: nothing is sent to " + c.URL
		return
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", []string{c.URL, c.Model, key, string(c.Root), fmt.Sprint(c.Private, c.Slots, c.Timeout)}))
	m.version = "remote " + hex.EncodeToString(sum[:])
	c.Self, c.Log = b.self, b.log
	m.start = func(ctx context.Context, _ pool.ModelSpec) (pool.Instance, error) { return remote.Start(ctx, c) }
}

// remoteConfig reads what the configuration says of such a model, with the files that it names. The text is the key's, or
// its file's, to tell one from another.
func remoteConfig(cfg config.Box, m config.BoxModel) (c remote.Config, key string, err error) {
	key = string(m.Remote.Key)
	c = remote.Config{
		Name: m.Name, URL: m.Remote.URL, Model: cmp.Or(m.Remote.Model, m.Name), Token: egress.NewToken(key),
		Private: cfg.Egress.Private, Slots: m.Parallel, Timeout: m.Remote.Timeout,
	}
	if _, err := remote.Address(c.URL, c.Private); err != nil {
		return c, "", &remoteError{"url", err}
	}
	if m.Remote.KeyFile != "" {
		if c.Token, err = egress.ReadToken(m.Remote.KeyFile); err != nil {
			return c, "", &remoteError{"key_file", err}
		}
		text, err := readUpTo(m.Remote.KeyFile, maxRoot)
		if err != nil {
			return c, "", &remoteError{"key_file", fmt.Errorf("reading a key: %w", err)}
		}
		key = string(text)
	}
	if m.Remote.Root != "" {
		if c.Root, err = readUpTo(m.Remote.Root, maxRoot); err != nil {
			return c, "", &remoteError{"root", fmt.Errorf("reading the root of %s: %w", c.URL, err)}
		}
		if !x509.NewCertPool().AppendCertsFromPEM(c.Root) {
			return c, "", &remoteError{"root", fmt.Errorf("%s holds no certificate in PEM", m.Remote.Root)}
		}
	}
	return c, key, nil
}

// remoteError is what is wrong with one setting of such a model.
type remoteError struct {
	field string // such as key_file
	error
}

// Unwrap is what is wrong.
func (e *remoteError) Unwrap() error { return e.error }

// elsewhere is what the data plane has to know of a model that another server runs; nil for one of the box.
func (m boxModel) elsewhere() *gateway.Elsewhere {
	if !m.Elsewhere() {
		return nil
	}
	return &gateway.Elsewhere{Auto: m.Remote.Auto, Documents: m.Remote.Documents}
}

// here reports whether the model can be brought up.
func (m boxModel) here() bool { return m.path != "" || m.start != nil }

// trouble is what an admin should know of a model that another server runs.
func trouble(i pool.Instance) string {
	if r, ok := i.(*remote.Remote); ok {
		return r.Problem()
	}
	return ""
}

// resting reports whether an instance wants to be left alone for a while.
func resting(i pool.Instance) bool {
	r, ok := i.(*remote.Remote)
	return ok && r.State() != engine.Ready
}

// arrived reads which boxes a request came through, and refuses one that goes round in circles.
func (b *box) arrived(r *http.Request) (context.Context, error) {
	ctx, err := remote.Arrive(r.Context(), r.Header, b.self)
	if loop, ok := errors.AsType[*remote.LoopError](err); ok {
		return nil, &wire.Error{Status: http.StatusLoopDetected, Type: wire.TypeInvalid, Code: "loop_detected", Message: loop.Error(), NoRetry: true}
	}
	return ctx, err
}
