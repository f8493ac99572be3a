package auth_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"onebit/appliance/auth"
	"onebit/engine"
	"onebit/store"
)

// box is an Auth on a real store in a folder of the test.
type box struct {
	*auth.Auth
	store   *store.Store
	log     *safeBuffer
	console *safeBuffer
	claimed chan struct{}
}

// safeBuffer is a buffer that several goroutines may write to.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// newBox returns a box that belongs to nobody. Its Auth and store run until the test, or its synctest bubble, ends.
func newBox(t *testing.T, change ...func(*auth.Config)) *box {
	t.Helper()
	return openBox(t, t.TempDir(), change...)
}

func openBox(t *testing.T, dir string, change ...func(*auth.Config)) *box {
	t.Helper()
	b := &box{log: &safeBuffer{}, console: &safeBuffer{}, claimed: make(chan struct{}, 8)}
	log := slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s, err := store.Open(t.Context(), store.Config{Dir: dir, Log: log, Clock: utc})
	if err != nil {
		t.Fatal(err)
	}
	b.store = s
	root := rootPEM(t)
	cfg := auth.Config{
		Store: s, Log: log, Console: b.console, Clock: utc, Cost: cheap,
		URL:   func() string { return "https://box.local" },
		Root:  func() []byte { return root },
		Words: func(fingerprint string) string { return "words of " + fingerprint[:4] },
		Settings: func(_ context.Context, values map[string]string) (map[string]json.RawMessage, error) {
			if values["tls.mode"] == "files" {
				return nil, &engine.InvalidError{Param: "tls.mode", Code: "invalid_value", Message: "there are no files"}
			}
			raw, err := json.Marshal(values)
			return map[string]json.RawMessage{"configuration": raw}, err
		},
		Claimed: func() { b.claimed <- struct{}{} },
	}
	for _, c := range change {
		c(&cfg)
	}
	if b.Auth, err = auth.New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{s.Run, b.Run} {
		running.Go(func() {
			if err := run(ctx); err != nil {
				t.Errorf("running: %v", err)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
		if err := s.Close(); err != nil {
			t.Errorf("closing the store: %v", err)
		}
	})
	return b
}

// utc is the boxes' clock: a day ends at the same moment wherever the tests run.
func utc() time.Time { return time.Now().UTC() }

var rootOnce = sync.OnceValues(func() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), err
})

func rootPEM(t *testing.T) []byte {
	t.Helper()
	root, err := rootOnce()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// here is a visitor of the box.
var here = auth.Visitor{Address: "192.0.2.7", Agent: "test", Host: "box.local"}

// from is a visitor from another address.
func from(n int) auth.Visitor {
	return auth.Visitor{Address: fmt.Sprintf("198.51.100.%d", n), Agent: "test", Host: "box.local"}
}

// claim makes a box anna's, and returns her login.
func (b *box) claim(t *testing.T) auth.Welcome {
	t.Helper()
	armed, err := b.Arm(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w, err := b.Claim(t.Context(), here, auth.Claim{Code: armed.Code, Name: "anna", Password: auth.NewSecret(good)})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// identify returns who shows a login.
func (b *box) identify(t *testing.T, login auth.Secret) *auth.Principal {
	t.Helper()
	p, err := b.Identify(t.Context(), request(t, "Cookie: "+auth.Cookie+"="+login.Expose()))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// person lets somebody in by an invite of by, and returns their login.
func (b *box) person(t *testing.T, by *auth.Principal, name string, role store.Role) auth.Welcome {
	t.Helper()
	i, err := b.Invite(t.Context(), by, store.Invite{Role: role})
	if err != nil {
		t.Fatal(err)
	}
	w, err := b.Accept(t.Context(), here, auth.Acceptance{Code: i.Code, Name: name, Password: auth.NewSecret(good + name)})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// key makes a key of p.
func (b *box) key(t *testing.T, p *auth.Principal, k store.Key) (store.Key, auth.Secret) {
	t.Helper()
	if k.Name == "" {
		k.Name = "test"
	}
	made, secret, err := b.CreateKey(t.Context(), p, k)
	if err != nil {
		t.Fatal(err)
	}
	return made, secret
}

// byKey returns who shows a key.
func (b *box) byKey(t *testing.T, key auth.Secret) *auth.Principal {
	t.Helper()
	p, err := b.Identify(t.Context(), request(t, "Authorization: Bearer "+key.Expose()))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// begin begins a use that must be granted.
func (b *box) begin(t *testing.T, p *auth.Principal, u auth.Use) *auth.Grant {
	t.Helper()
	g, err := b.Begin(t.Context(), p, u)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// actions lists what the audit log holds.
func (b *box) actions(t *testing.T) string {
	t.Helper()
	entries, err := b.store.AuditLog(t.Context(), store.System(), 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Action)
	}
	return strings.Join(all, " ")
}

var chat = auth.Use{Endpoint: "/v1/chat/completions", Model: "qwen3"}

// serve returns the door behind a test server, and a client that keeps its cookies to itself.
func (b *box) serve(t *testing.T, more http.Handler) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	for _, r := range b.Routes() {
		mux.Handle(r.Method+" "+r.Path, b.Handler())
	}
	if more != nil {
		mux.Handle("/", more)
	}
	s := httptest.NewTLSServer(mux)
	t.Cleanup(s.Close)
	s.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return s
}

// send sends a request and returns its answer, with the body read.
func send(t *testing.T, s *httptest.Server, method, path, body string, lines ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		name, value, _ := strings.Cut(l, ": ")
		r.Header.Add(name, value)
	}
	answer, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, string(text)
}

// secrets matches everything that looks like one of ours: keys and logins, and codes.
var secrets = regexp.MustCompile(`1b_[a-z2-7]{30,}|\b[a-z2-7]{52}\b|[0-9A-HJKMNP-TV-Z]{5}(-[0-9A-HJKMNP-TV-Z]{5}){5}`)
