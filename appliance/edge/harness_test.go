package edge_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"onebit/appliance/edge"
)

// memory is a TLSStorage that lasts as long as a test. It counts what is read.
type memory struct {
	mu     sync.Mutex
	values map[string][]byte
	locks  map[string]bool
	loads  map[string]int
}

func newMemory() *memory {
	return &memory{values: map[string][]byte{}, locks: map[string]bool{}, loads: map[string]int{}}
}

func (m *memory) Store(_ context.Context, key string, value []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values[key] = bytes.Clone(value)
	return nil
}

func (m *memory) Load(_ context.Context, key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loads[key]++
	v, ok := m.values[key]
	if !ok {
		return nil, fmt.Errorf("%s: %w", key, fs.ErrNotExist)
	}
	return bytes.Clone(v), nil
}

func (m *memory) Delete(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k := range m.values {
		if k == key || strings.HasPrefix(k, key+"/") {
			delete(m.values, k)
		}
	}
	return nil
}

func (m *memory) Exists(_ context.Context, key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k := range m.values {
		if k == key || strings.HasPrefix(k, key+"/") {
			return true
		}
	}
	return false
}

func (m *memory) List(_ context.Context, dir string, recursive bool) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for k := range m.values {
		rest, ok := strings.CutPrefix(k, dir+"/")
		if !ok {
			continue
		}
		if first, _, deeper := strings.Cut(rest, "/"); deeper && !recursive {
			k = path.Join(dir, first)
		}
		if !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: %w", dir, fs.ErrNotExist)
	}
	slices.Sort(out)
	return out, nil
}

func (m *memory) Stat(_ context.Context, key string) (edge.KeyInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.values[key]
	if !ok {
		return edge.KeyInfo{}, fmt.Errorf("%s: %w", key, fs.ErrNotExist)
	}
	return edge.KeyInfo{Key: key, Size: int64(len(v)), IsTerminal: true}, nil
}

func (m *memory) TryLock(_ context.Context, name string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locks[name] {
		return false, nil
	}
	m.locks[name] = true
	return true, nil
}

func (m *memory) Lock(ctx context.Context, name string) error {
	for {
		if ok, _ := m.TryLock(ctx, name); ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (m *memory) Unlock(_ context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.locks, name)
	return nil
}

func (m *memory) RenewLockLease(context.Context, string, time.Duration) error { return nil }

// read returns how often a key was read.
func (m *memory) read(key string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.loads[key]
}

// config is a box on free ports of loopback with an empty storage.
func config() edge.BoxConfig {
	return edge.BoxConfig{
		Host: "127.0.0.1", HTTP3: true, Name: "testbox", TLS: edge.TLSConfig{Mode: edge.ModeLocal},
		Storage: newMemory(), Drain: time.Minute, Log: slog.New(slog.DiscardHandler),
	}
}

// running is a box that serves, until the test ends.
type running struct {
	*edge.Box
	stop   context.CancelFunc // makes Serve return
	result <-chan error       // what it returned
}

// serve starts a box.
func serve(t testing.TB, cfg edge.BoxConfig, h http.Handler) *running {
	t.Helper()
	b, err := edge.ListenBox(t.Context(), cfg, h)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		result <- b.Serve(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			t.Error("Serve did not return")
		}
	})
	return &running{Box: b, stop: cancel, result: result}
}

// protocols are what a box speaks on one port.
var protocols = []string{"h1", "h2", "h3"}

// client speaks one protocol to a box, under whatever name, and trusts its root.
func (b *running) client(t testing.TB, protocol string) *http.Client {
	t.Helper()
	pem, _ := b.Root()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		t.Fatal("the root is no certificate")
	}
	return client(t, protocol, net.JoinHostPort("127.0.0.1", strconv.Itoa(b.Port())), pool)
}

// client speaks one protocol to addr, whatever the URL says.
func client(t testing.TB, protocol, addr string, pool *x509.CertPool) *http.Client {
	t.Helper()
	trust := &tls.Config{RootCAs: pool}
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, addr)
	}
	var tr http.RoundTripper
	switch protocol {
	case "h1":
		trust.NextProtos = []string{"http/1.1"}
		h := &http.Transport{TLSClientConfig: trust, DialContext: dial, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}
		t.Cleanup(h.CloseIdleConnections)
		tr = h
	case "h2":
		h := &http.Transport{TLSClientConfig: trust, DialContext: dial, ForceAttemptHTTP2: true}
		t.Cleanup(h.CloseIdleConnections)
		tr = h
	case "h3":
		h := &http3.Transport{TLSClientConfig: trust, Dial: func(ctx context.Context, _ string, tc *tls.Config, qc *quic.Config) (*quic.Conn, error) {
			return quic.DialAddr(ctx, addr, tc, qc)
		}}
		t.Cleanup(func() { h.Close() })
		tr = h
	}
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// get returns the status, the headers and the body of an answer.
func get(t testing.TB, c *http.Client, url string, headers ...string) (*http.Response, string) {
	t.Helper()
	return send(t, c, http.MethodGet, url, headers...)
}

func send(t testing.TB, c *http.Client, method, url string, headers ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		} else {
			r.Header.Add(headers[i], headers[i+1])
		}
	}
	res, err := c.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%s %s: reading: %v", method, url, err)
	}
	return res, string(body)
}

// says answers with a text.
func says(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) })
}

// writePair writes a chain and its key as an operator has them.
func writePair(t testing.TB, dir string, chain [][]byte, key *ecdsa.PrivateKey) {
	t.Helper()
	var out []byte
	for _, der := range chain {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"cert.pem": out, "key.pem": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// until waits for something that happens in the background.
func until(t testing.TB, done func() bool) {
	t.Helper()
	limit, tick := time.After(30*time.Second), time.NewTicker(2*time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-limit:
			t.Fatal("it did not happen within half a minute")
		case <-tick.C:
		}
	}
}

// poolOf trusts a box's root.
func poolOf(t testing.TB, b *running) *x509.CertPool {
	t.Helper()
	pem, _ := b.Root()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		t.Fatal("the root is no certificate")
	}
	return pool
}
