package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"onebit/appliance/pool"
)

const (
	probeLimit = 5 * time.Second        // for the box to answer itself
	probePause = 100 * time.Millisecond // between two looks while it starts
	extension  = 30 * time.Second       // what is asked of the system while models load
)

// settle waits until the box answers its own port over TLS and the models that are to be loaded at the start are, or are
// known to fail. Then it tells the system, and goes on telling it for as long as the box answers.
func (b *box) settle(ctx context.Context) error {
	said := time.Time{}
	for b.answers(ctx) != nil || !b.preloaded() {
		if time.Since(said) > extension/3 {
			said = time.Now()
			b.system.say("EXTEND_TIMEOUT_USEC=" + strconv.FormatInt(extension.Microseconds(), 10))
		}
		if !pause(ctx, probePause) {
			return nil
		}
	}
	b.up.Store(true)
	b.system.say(b.serves())
	b.log.Info("ready", "after", time.Since(b.began).Round(time.Millisecond))
	if err := letGo(); err != nil {
		b.log.Debug("letting go of what the start needed", "error", err)
	}
	every := b.system.watchdog()
	for pause(ctx, cmp.Or(every/4, time.Hour)) { // one look may fail, and two
		if every == 0 {
			continue
		}
		if err := errors.Join(b.answers(ctx), b.store.Health(ctx)); err != nil && ctx.Err() == nil {
			b.log.Error("the box does not answer itself", "why", err)
			continue
		}
		b.system.say("WATCHDOG=1")
	}
	return nil
}

// serves is what the system is told once the box answers.
func (b *box) serves() string { return "READY=1\nSTATUS=serving " + b.edge.URL() }

// stops is what the system is told when the box begins to stop. Without the time that it may take, the system would kill the box
// half way where running answers, or states of conversations that are put away, take longer than it allows.
func stops(drain time.Duration) string {
	return "STOPPING=1\nEXTEND_TIMEOUT_USEC=" + strconv.FormatInt((drain+pool.EndLimit).Microseconds(), 10)
}

// pause waits; false says that ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// answers asks the box for its health as a client of the network would: over TLS, by its name.
func (b *box) answers(ctx context.Context) error {
	at, trust := b.edge.Self()
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", at)
		},
		TLSClientConfig: trust, DisableKeepAlives: true,
	}
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.edge.URL()+"/health", nil)
	if err != nil {
		return err
	}
	res, err := t.RoundTrip(r)
	if err != nil {
		return fmt.Errorf("asking the box for its health: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("asking the box for its health: it answers %s", res.Status)
	}
	return nil
}

// preloaded reports whether the models that are to be loaded at the start are loaded, or are known not to be.
func (b *box) preloaded() bool {
	for _, m := range b.pool.List() {
		configured, ok := b.now.Load().model(m.Name)
		if !ok || configured.Elsewhere() || !configured.Preload || m.Failures > 0 {
			continue
		}
		if m.Phase == pool.Loading || m.Phase == pool.Waiting && m.Reason == "" {
			return false
		}
	}
	return true
}

// ready reports whether a request for some model can be answered.
func (b *box) ready() bool {
	if !b.up.Load() {
		return false
	}
	failed := map[string]bool{}
	for _, s := range b.pool.List() {
		failed[s.Name] = s.Phase == pool.Failed
	}
	for _, m := range b.now.Load().models {
		if m.here() && !failed[m.Name] {
			return true
		}
	}
	return false
}
