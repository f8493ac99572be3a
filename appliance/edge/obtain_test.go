package edge_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// gated is a storage that refuses to keep certificates of a name, or asks when one is to be made.
type gated struct {
	*memory
	refused atomic.Int64
	refuse  string
	asked   func(name string)
}

func (g *gated) Store(ctx context.Context, key string, value []byte) error {
	if g.refuse != "" && strings.Contains(key, g.refuse) {
		g.refused.Add(1)
		return errors.New("nothing can be kept")
	}
	return g.memory.Store(ctx, key, value)
}

func (g *gated) Lock(ctx context.Context, name string) error {
	if g.asked != nil {
		g.asked(name)
	}
	return g.memory.Lock(ctx, name)
}

// greet shakes hands with a box under a name, within 20 seconds.
func (b *running) greet(t *testing.T, name string) error {
	t.Helper()
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: 20 * time.Second}, Config: &tls.Config{RootCAs: poolOf(t, b), ServerName: name}}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, err := d.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(b.Port())))
	if err == nil {
		c.Close()
	}
	return err
}

// TestObtainingEndsWithTheBox stops a box that tries again and again to make a certificate: another box of the name, in
// the same process as after a restore, does not wait for that.
func TestObtainingEndsWithTheBox(t *testing.T) {
	kept := &gated{memory: newMemory(), refuse: "ends-early.local"}
	cfg := config()
	cfg.Storage, cfg.Name, cfg.Drain = kept, "ends-early", time.Millisecond
	b := serve(t, cfg, says("first"))
	ended := make(chan error, 1)
	go func() { ended <- b.greet(t, "ends-early.local") }()
	until(t, func() bool { return kept.refused.Load() > 0 })
	b.stop()
	if err := <-b.result; err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil {
		t.Error("there is a certificate")
	}
	cfg.Storage = newMemory()
	if err := serve(t, cfg, says("second")).greet(t, "ends-early.local"); err != nil {
		t.Errorf("the second box: %v", err)
	}
}

// TestRenamedWhileObtaining renames a box while a certificate for its old name is made, and back: the name serves at once.
func TestRenamedWhileObtaining(t *testing.T) {
	kept := &gated{memory: newMemory()}
	var b *running
	var renamed atomic.Bool
	kept.asked = func(name string) {
		if strings.Contains(name, "back-soon.local") && renamed.CompareAndSwap(false, true) {
			if err := b.SetNames("elsewhere", nil); err != nil {
				t.Error(err)
			}
		}
	}
	cfg := config()
	cfg.Storage, cfg.Name = kept, "back-soon"
	b = serve(t, cfg, says("here"))
	if err := b.greet(t, "back-soon.local"); err == nil || !renamed.Load() {
		t.Errorf("a name that was given up meanwhile: %v", err)
	}
	if err := b.SetNames("back-soon", nil); err != nil {
		t.Fatal(err)
	}
	if err := b.greet(t, "back-soon.local"); err != nil {
		t.Errorf("the name that is back: %v", err)
	}
}
