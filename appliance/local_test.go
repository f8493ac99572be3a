//go:build unix

package main_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	main "onebit/appliance"
)

// startedBox is a box that runs in the test's own process.
type startedBox struct {
	state, address, code, root string
	said                       *waitingBuffer
}

// waitingBuffer tells when what was written fits a pattern.
type waitingBuffer struct {
	mu   sync.Mutex
	b    bytes.Buffer
	want *regexp.Regexp
	met  chan struct{}
}

func (w *waitingBuffer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, err := w.b.Write(p)
	if w.want != nil && w.want.Match(w.b.Bytes()) {
		w.want = nil
		close(w.met)
	}
	return n, err
}

func (w *waitingBuffer) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

var (
	saidAddress = regexp.MustCompile(`1bit appliance: https://[a-z0-9.-]+:(\d+)`)
	saidCode    = regexp.MustCompile(`code    ([A-Z0-9]{5}(?:-[A-Z0-9]{5}){5})`)
	saidRoot    = regexp.MustCompile(`root    ([0-9A-F]{2}(?::[0-9A-F]{2}){31})`)
	aKey        = regexp.MustCompile(`^1b_[a-z2-7]{52}\n$`)
	aCode       = regexp.MustCompile(`(?m)^[A-Z0-9]{5}(-[A-Z0-9]{5}){5}$`)
)

// startBox starts a box that belongs to nobody, and points the commands at its socket.
func startBox(t *testing.T) startedBox {
	t.Helper()
	state, err := os.MkdirTemp("", "1bit") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("ONEBIT_SOCKET", filepath.Join(state, "admin.sock"))
	said := &waitingBuffer{want: regexp.MustCompile(`The code works once`), met: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan int, 1)
	go func() {
		done <- main.Run(ctx, strings.NewReader(""), io.Discard, said, "appliance", "--state", state, "--host", "127.0.0.1", "--port", "0", "--http-port", "-1", "--set", "discovery=false")
	}()
	t.Cleanup(func() {
		cancel()
		if code := <-done; code != 0 {
			t.Errorf("the box ended with %d:\n%s", code, said)
		}
		os.RemoveAll(state)
	})
	select {
	case <-said.met:
	case code := <-done:
		done <- code
		t.Fatalf("the box ended at once:\n%s", said)
	}
	text := said.String()
	address, code, root := saidAddress.FindStringSubmatch(text), saidCode.FindStringSubmatch(text), saidRoot.FindStringSubmatch(text)
	if address == nil || code == nil || root == nil {
		t.Fatalf("the box does not say where it is:\n%s", text)
	}
	return startedBox{state: state, address: "127.0.0.1:" + address[1], code: code[1], root: root[1], said: said}
}

// ok runs a command that must succeed, and returns what it prints.
func ok(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	code, out, said := run(t, stdin, args...)
	if code != 0 {
		t.Fatalf("1bit %s ended with %d: %s", strings.Join(args, " "), code, said)
	}
	return out
}

// refused runs a command that must fail with words.
func refused(t *testing.T, status int, words, stdin string, args ...string) {
	t.Helper()
	code, out, said := run(t, stdin, args...)
	if code != status || !strings.Contains(said, words) || out != "" {
		t.Errorf("1bit %s ended with %d, printed %q and said %q; want %d and %q", strings.Join(args, " "), code, out, said, status, words)
	}
}

// credulous is a client that believes whoever answers.
func credulous() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
}

// get asks the box for its models with a key.
func (b startedBox) get(t *testing.T, key string) int {
	t.Helper()
	c := credulous()
	r, err := http.NewRequestWithContext(t.Context(), "GET", "https://"+b.address+"/v1/models", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("x-api-key", strings.TrimSpace(key))
	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}

const password = "correct horse battery\n"

// The way of somebody with a terminal: claim the box, make keys, let people in, get back in.
func TestLocalCommands(t *testing.T) {
	b := startBox(t)
	ok(t, "anna\n"+password, "claim", "--code", b.code, b.address)
	key := ok(t, "", "key", "create", "laptop", "--model", "qwen*", "--model", "gemma*", "--endpoint", "/models", "--rpm", "60", "--tokens-per-day", "1000", "--concurrency", "2", "--priority", "background", "--weight", "2", "--privacy", "none", "--expires", "7d")
	if !aKey.MatchString(key) {
		t.Fatalf("the key is %q", key)
	}
	if got := b.get(t, key); got != 200 {
		t.Errorf("with the key: %d", got)
	}
	if got := b.get(t, "1b_"+strings.Repeat("a", 52)); got != 401 {
		t.Errorf("with another key: %d", got)
	}
	list := ok(t, "", "key", "list")
	if !regexp.MustCompile(`laptop .* background +2 `).MatchString(list) {
		t.Errorf("the list does not say the priority and the weight\n%s", list)
	}
	if !strings.Contains(list, "laptop") || !strings.Contains(list, "qwen*,gemma*,/models") || !strings.Contains(list, "anna") || strings.Contains(list, strings.TrimSpace(key)) {
		t.Errorf("the list is\n%s", list)
	}
	ok(t, "", "key", "update", "laptop", "--rpm", "0", "--model", "", "--name", "desk", "--priority", "normal")
	shown := ok(t, "", "key", "show", strings.TrimSpace(key))
	for _, want := range []string{`name +desk`, `models +all`, `endpoints +/models`, `requests a minute +no limit`, `tokens a day +1000`, `privacy +none`, `priority +up to normal`, `weight +2`} {
		if !regexp.MustCompile(want).MatchString(shown) {
			t.Errorf("it shows no %q:\n%s", want, shown)
		}
	}
	refused(t, 1, "interactive, normal or background", "", "key", "update", "desk", "--priority", "urgent")
	guest := ok(t, "", "key", "create", "visitor", "--guest")
	ok(t, "", "key", "revoke", "desk", "visitor")
	for _, k := range []string{key, guest} {
		if got := b.get(t, k); got != 401 {
			t.Errorf("with a revoked key: %d", got)
		}
	}
	if invite := ok(t, "", "person", "invite", "--role", "guest", "--until", "30d"); !aCode.MatchString(invite) || !strings.Contains(invite, "/invite#") {
		t.Errorf("the invite is %q", invite)
	}
	ok(t, "", "person", "add", "bob", "--role", "admin")
	refused(t, 1, "conflicts with what is there: somebody has this name already\n", "", "person", "add", "Bob")
	refused(t, 1, "say whose key it is", "", "key", "create", "x")
	bobs := ok(t, "", "key", "create", "x", "--for", "Bob", "--admin")
	ok(t, "", "person", "disable", "bob")
	if got := b.get(t, bobs); got != 401 {
		t.Errorf("with the key of a disabled person: %d", got)
	}
	if people := ok(t, "", "person", "list"); !regexp.MustCompile(`bob +admin .*disabled`).MatchString(people) {
		t.Errorf("the people are\n%s", people)
	}
	ok(t, "", "person", "enable", "bob")
	if got := b.get(t, bobs); got != 200 {
		t.Errorf("with the key of an enabled person: %d", got)
	}
	ok(t, "", "person", "rm", "bob")
	refused(t, 1, "conflicts", "", "person", "rm", "anna") // the last admin
	if code := ok(t, "", "admin", "recover"); !aCode.MatchString(code) || !strings.Contains(code, "/recover#") {
		t.Errorf("the way back in is %q", code)
	}
	for _, secret := range []string{key, guest, bobs, password} {
		if strings.Contains(b.said.String(), strings.TrimSpace(secret)) {
			t.Errorf("the box has said %.8s...", secret)
		}
	}
}

func TestLocalMistakes(t *testing.T) {
	t.Setenv("ONEBIT_SOCKET", filepath.Join(t.TempDir(), "none.sock"))
	refused(t, 1, "no box runs at", "", "key", "list")
	refused(t, 1, "no box runs at /nowhere", "", "person", "list", "--socket", "/nowhere")
	refused(t, 2, "1 more needed", "", "key", "create")
	refused(t, 2, `unexpected "b"`, "", "key", "create", "a", "b")
	refused(t, 2, "is no time", "", "key", "create", "a", "--expires", "soon")
	refused(t, 2, "is no whole number", "", "key", "create", "a", "--rpm", "-1")
	refused(t, 2, "not defined", "", "key", "list", "--all")
	refused(t, 2, "usage: 1bit key", "", "key")
	refused(t, 2, "usage: 1bit person", "", "person", "marry")
	refused(t, 2, "usage: 1bit admin", "", "admin")
	for _, name := range []string{"key", "person", "admin", "claim"} {
		if out := ok(t, "", name, "-h"); !strings.HasPrefix(out, "usage: 1bit "+name) {
			t.Errorf("1bit %s -h says %q", name, out)
		}
	}
}

func TestClaimCommand(t *testing.T) {
	b := startBox(t)
	refused(t, 1, "claim it first", "", "key", "create", "early")
	wrong := "00000-00000-00000-00000-00000-00000"
	refused(t, 1, "this is not a code", "", "claim", "--code", wrong, b.address)
	refused(t, 1, "it is not the one given", "", "claim", "--code", b.code, "--fingerprint", strings.Repeat("00:", 31)+"00", b.address)
	refused(t, 1, "there is no more input", "", "claim", "--code", b.code, b.address)
	refused(t, 1, "at least 12 characters", "anna\nshort\n", "claim", "--code", b.code, b.address)
	refused(t, 2, "https", "", "claim", "http://"+b.address)
	refused(t, 2, "give the box's address", "", "claim")
	recovery := ok(t, b.code+"\nanna\n"+password, "claim", "--fingerprint", b.root, "https://"+b.address)
	if !aCode.MatchString(recovery) {
		t.Errorf("the recovery key is %q", recovery)
	}
	refused(t, 1, "claimed already", "", "claim", "--code", b.code, b.address)
}

// Whoever stands between with a root of his own learns nothing that the box takes, and is found out.
func TestClaimThroughAStranger(t *testing.T) {
	b := startBox(t)
	stranger, err := tls.X509KeyPair(selfSigned(t))
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{stranger}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var posted sync.Map
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != "GET" {
			body, _ := io.ReadAll(r.Body)
			posted.Store("body", string(body))
		}
		// all is passed on to the real box, and its answer back
		c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
		q, _ := http.NewRequestWithContext(r.Context(), r.Method, "https://"+b.address+r.URL.RequestURI(), r.Body)
		q.Header = r.Header
		answer, err := c.Do(q)
		if err != nil {
			return
		}
		defer answer.Body.Close()
		w.WriteHeader(answer.StatusCode)
		io.Copy(w, answer.Body)
	}))
	refused(t, 1, "certificate", "anna\n"+password, "claim", "--code", b.code, l.Addr().(*net.TCPAddr).String())
	if body, ok := posted.Load("body"); ok {
		t.Errorf("it was sent %s", body)
	}
	ok(t, "anna\n"+password, "claim", "--code", b.code, b.address) // the code is still good
}

// selfSigned returns a certificate for 127.0.0.1 that nobody has reason to trust, and its key, as PEM.
func selfSigned(t *testing.T) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}
