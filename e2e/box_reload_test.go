//go:build unix

package e2e_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	dice "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// configure replaces the configuration of a box from one moment to the next.
func (b *appliance) configure(text string) {
	b.t.Helper()
	next := filepath.Join(b.state, "next")
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(b.state, "1bit.yaml")); err != nil {
		b.t.Fatal(err)
	}
}

// reload has the box read its configuration, and returns what it says.
func (b *appliance) reload() (int, string) {
	b.t.Helper()
	r, err := http.NewRequest("POST", "http://box/admin/v1/reload", nil)
	if err != nil {
		b.t.Fatal(err)
	}
	res, err := b.socket.Do(r)
	if err != nil {
		b.t.Fatalf("%v\n%s", err, b.log)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// soon waits for something that comes about in a moment.
func (b *appliance) soon(what string, ok func() bool) {
	b.t.Helper()
	for end := time.Now().Add(40 * time.Second); !ok(); time.Sleep(30 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("%s did not come about\n%s", what, b.log)
		}
	}
}

// freePorts are numbers that are free for TCP and UDP, below
// those that systems give out by themselves: nobody is given it between here and its use.
func freePorts(t *testing.T, n int) (ports []int) {
	t.Helper()
	for tries := 0; len(ports) < n; tries++ {
		addr := fmt.Sprintf("127.0.0.1:%d", 20000+dice.IntN(12000))
		l, err := net.Listen("tcp", addr)
		if err != nil && tries < 100 {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if u, err := net.ListenPacket("udp", addr); err == nil {
			defer u.Close()
			ports = append(ports, l.Addr().(*net.TCPAddr).Port)
		}
	}
	return ports
}

// operators is a certificate of somebody else's authority for 127.0.0.1, as files, and what to trust.
func operators(t *testing.T) (certificate, key string, trust *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"box.example.org"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certificate, key = filepath.Join(dir, "c.pem"), filepath.Join(dir, "k.pem")
	for file, block := range map[string]*pem.Block{certificate: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	trust = x509.NewCertPool()
	trust.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return certificate, key, trust
}

// announces reports whether a process has a socket on the port of multicast DNS.
func announces(t *testing.T, pid int) bool {
	t.Helper()
	own := map[string]bool{}
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if to, err := os.Readlink(f); err == nil {
			own[strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]")] = true
		}
	}
	for _, table := range []string{"udp", "udp6"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			continue // no such protocol here
		}
		for line := range strings.SplitSeq(string(text), "\n") {
			if f := strings.Fields(line); len(f) > 9 && strings.HasSuffix(f[1], ":14E9") && own[f[9]] {
				return true
			}
		}
	}
	return false
}

// TestBoxReloadsKeepOneProcess is T06: a configuration with a preloaded model that is saved again and again, and read by whoever
// asks for it beside that, leaves one process of the model: the same where nothing changed, else a new one in its place.
func TestBoxReloadsKeepOneProcess(t *testing.T) {
	program, file := standin(t, "llama-server"), newStage(t).gguf("small.gguf", nil)
	text := func(slots int, keep string) string {
		return fmt.Sprintf("programs: {llama_server: %q}\nmodels: [{name: small, file: %q, device: vulkan, preload: true, parallel: %d}]\nlog: {keep: %s}\n",
			program, file, slots, keep)
	}
	state := boxState(t, text(2, "1d"))
	t.Setenv("STANDIN_LOAD", "300ms")
	b := startBox(t, state)
	b.claim()
	alive := func() (slots []string) {
		for _, pid := range children(t, b.cmd.Process.Pid) {
			line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			args := strings.Split(string(line), "\x00")
			if i := slices.Index(args, "-np"); err == nil && i >= 0 {
				slots = append(slots, args[i+1])
			}
		}
		return slots
	}
	serves := func(n int) {
		t.Helper()
		b.soon("one process with its slots", func() bool {
			return strings.Contains(fmt.Sprint(b.admin("GET", "/models", "")), "state:loaded") && slices.Equal(alive(), []string{strconv.Itoa(n)})
		})
	}
	storm := func(texts ...string) {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 3 {
					b.admin("POST", "/reload", "")
				}
			})
		}
		for _, one := range texts {
			b.configure(one)
			b.admin("POST", "/reload", "")
		}
		all.Wait()
	}
	storm(text(2, "2d"), text(2, "1d"), text(2, "2d")) // while it loads
	serves(2)
	if n := strings.Count(b.log.String(), "a model is loaded"); n != 1 {
		t.Errorf("nothing of the model has changed, and it was started %d times", n)
	}
	storm(text(3, "1d"), text(3, "1d"), text(4, "1d"), text(3, "1d"))
	serves(3)
}

// TestBoxMoves changes where and how a box listens while an answer runs: the answer ends where it began, and what comes
// later goes by the new configuration.
func TestBoxMoves(t *testing.T) {
	ports := freePorts(t, 4)
	certificate, key, trust := operators(t)
	models := fmt.Sprintf("models: [{name: small, file: %q, ctx_size: 8192}]\n", smollm2(t))
	at := func(port, plain int) string {
		return models + fmt.Sprintf("listen: {host: 127.0.0.1, port: %d, http_port: %d}\n", port, plain)
	}
	const quiet = "discovery: false\n"
	state := boxState(t, at(ports[0], ports[1])+quiet)
	b := openBox(t, exec.Command(binary, "appliance", "--state", state), state)
	b.claim()
	secret, _ := b.key("")

	res := b.send(secret, "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"Count."}],"max_tokens":1500,"stream":true,"ignore_eos":true}`)
	defer res.Body.Close()
	var seen atomic.Int64
	over := make(chan string, 1)
	go func() {
		done, err := events(res.Body, func(e map[string]any) bool {
			seen.Add(1)
			return e["error"] == nil
		})
		over <- fmt.Sprint(done, " ", err)
	}()
	b.soon("the stream", func() bool { return seen.Load() > 3 })
	runs := func() {
		t.Helper()
		select {
		case how := <-over:
			t.Fatalf("the stream has ended: %s, after %d events\n%s", how, seen.Load(), b.log)
		default:
		}
		n := seen.Load()
		b.soon("another event", func() bool { return seen.Load() > n })
	}
	page := func() int {
		t.Helper()
		r, err := http.NewRequest("GET", "https://127.0.0.1:"+b.port+"/v1/models", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+secret)
		r.Header.Set("Origin", "https://chat.example.org")
		res, err := b.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	took := func(text string) {
		t.Helper()
		b.configure(text)
		if code, said := b.reload(); code != 204 {
			t.Fatalf("the reload: %d %s", code, said)
		}
		runs()
	}

	b.configure(at(ports[2], ports[3]) + quiet) // nobody says so: it sees the file
	b.soon("the new port", func() bool {
		c, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", ports[2]))
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	b.port, b.plain = strconv.Itoa(ports[2]), strconv.Itoa(ports[3])
	if status, text := b.do(secret, "GET", "/v1/models", ""); status != 200 {
		t.Errorf("at the new port: %d %s", status, text)
	}
	for _, port := range ports[:2] {
		if c, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", port)); err == nil {
			c.Close()
			t.Errorf("the port %d is still open", port)
		}
	}
	if text := fmt.Sprint(b.admin("GET", "/status", "")["addresses"]); !strings.Contains(text, ":"+b.port) {
		t.Errorf("the status says %s", text)
	}
	runs()

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	b.configure(at(taken.Addr().(*net.TCPAddr).Port, ports[3]) + quiet)
	if code, said := b.reload(); code != 400 || !strings.Contains(said, "cannot listen on 127.0.0.1:") {
		t.Errorf("a port that is taken: %d %s", code, said)
	}
	if status, _ := b.do(secret, "GET", "/v1/models", ""); status != 200 {
		t.Errorf("after a port that is taken: %d", status)
	}
	runs()

	foreign := &tls.Config{RootCAs: trust}
	hello := func(c *tls.Config) error {
		conn, err := tls.Dial("tcp", "127.0.0.1:"+b.port, c)
		if err == nil {
			conn.Close()
		}
		return err
	}
	took(at(ports[2], ports[3]) + quiet + fmt.Sprintf("tls: {mode: files, certificate: %q, key: %q}\n", certificate, key))
	if err := hello(foreign); err != nil {
		t.Errorf("the operator's certificate is not shown: %v", err)
	}
	took(at(ports[2], ports[3]) + quiet)
	if hello(foreign) == nil {
		t.Error("the operator's certificate is still shown")
	}

	before := page()
	took(at(ports[2], ports[3]) + quiet + "web: {origins: ['https://chat.example.org']}\n")
	if after := page(); before != 403 || after != 200 {
		t.Errorf("a page of another site: %d, then %d", before, after)
	}

	if announces(t, b.cmd.Process.Pid) {
		t.Error("the box announces itself")
	}
	took(at(ports[2], ports[3]))
	b.soon("an announcement", func() bool { return announces(t, b.cmd.Process.Pid) })
	took(at(ports[2], ports[3]) + quiet)
	if announces(t, b.cmd.Process.Pid) {
		t.Error("the box still announces itself")
	}
	took(at(ports[0], ports[2]) + quiet) // one of its ports becomes the other
	b.port = strconv.Itoa(ports[0])
	if status, _ := b.do(secret, "GET", "/v1/models", ""); status != 200 {
		t.Errorf("at the first port again: %d", status)
	}
	t.Logf("%d events until the last change", seen.Load())
	if how := <-over; how != "true <nil>" {
		t.Errorf("the stream ended with %s, after %d events\n%s", how, seen.Load(), b.log)
	}
}

// TestBoxTellsElsewhere gives a box another collector and another webhook under load: from then on only those hear of it.
func TestBoxTellsElsewhere(t *testing.T) {
	first, second := startElsewhere(t), startElsewhere(t)
	text := func(to *elsewhere) string {
		return fmt.Sprintf("models: [{name: small, file: %q, ctx_size: 2048}]\ntelemetry: {otlp: %q, webhook: \"%s/hook\"}\negress: {private: [%q, %q]}\n",
			smollm2(t), to.URL, to.URL, strings.TrimPrefix(first.URL, "http://"), strings.TrimPrefix(second.URL, "http://"))
	}
	b := startBox(t, boxState(t, text(first)))
	b.claim()
	key, _ := b.key("")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var answered atomic.Int64
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			for ctx.Err() == nil {
				if status, text := b.do(key, "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"Hi"}],"max_tokens":2}`); status != 200 {
					t.Errorf("a chat: %d %s", status, text)
					return
				}
				answered.Add(1)
			}
		})
	}
	const firing = `"condition":"reload","severity":"warning","state":"firing"`
	wrong := func(to *elsewhere) {
		t.Helper()
		b.configure("bogus: 1\n")
		b.soon("an alert", func() bool { return strings.Contains(to.got("/hook"), firing) })
	}
	b.soon("spans at the first place", func() bool { return strings.Contains(first.got("/v1/traces"), "chat small") })
	wrong(first)
	b.configure(text(second))
	if code, said := b.reload(); code != 204 {
		t.Fatalf("the reload: %d %s", code, said)
	}
	n := answered.Load()
	b.soon("spans at the second place", func() bool { return strings.Contains(second.got("/v1/traces"), "chat small") && answered.Load() > n+3 })
	told := map[string]string{}
	for _, path := range []string{"/hook", "/v1/traces", "/v1/metrics"} {
		told[path] = first.got(path)
	}
	if !strings.Contains(told["/v1/metrics"], "gen_ai.client.token.usage") {
		t.Error("what the first collector was to get when it was left has not come")
	}
	wrong(second)
	n = answered.Load()
	b.soon("more answers", func() bool { return answered.Load() > n+3 })
	stop()
	group.Wait()
	b.cmd.Process.Signal(syscall.SIGTERM)
	<-b.done
	if !strings.Contains(second.got("/v1/metrics"), "gen_ai.client.token.usage") {
		t.Error("the second collector has got no metrics")
	}
	for path, before := range told {
		if after := first.got(path); after != before {
			t.Errorf("the first place still hears at %s: %d bytes more", path, len(after)-len(before))
		}
	}
}
