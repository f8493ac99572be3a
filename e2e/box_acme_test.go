//go:build unix

package e2e_test

import (
	"crypto/tls"
	"crypto/x509"
	bits "encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// publicName is the box's name for everybody, which points here for the authority.
const publicName = "box.example.com"

// everythingIsHere answers questions for the address of any name with that of this machine, over TCP as Pebble asks them,
// and returns where.
func everythingIsHere(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for {
					var size [2]byte
					if _, err := io.ReadFull(conn, size[:]); err != nil {
						return
					}
					q := make([]byte, bits.BigEndian.Uint16(size[:]))
					if _, err := io.ReadFull(conn, q); err != nil {
						return
					}
					a := answerOf(q)
					conn.Write(append(bits.BigEndian.AppendUint16(nil, uint16(len(a))), a...))
				}
			}()
		}
	}()
	return l.Addr().String()
}

// answerOf makes an answer of a question: 127.0.0.1 where it is for an IPv4 address, nothing else.
func answerOf(q []byte) []byte {
	const header = 12
	end := header
	for end < len(q) && q[end] != 0 {
		end += 1 + int(q[end])
	}
	end += 5 // the root, the type and the class
	if end > len(q) {
		return nil
	}
	address := q[end-4] == 0 && q[end-3] == 1
	a := append([]byte{q[0], q[1], 0x85, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, q[header:end]...)
	if address {
		a[7] = 1
		a = append(a, 0xc0, header, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 127, 0, 0, 1)
	}
	return a
}

// authority is an ACME server that runs until the test ends, or stop is called.
type authority struct {
	directory string // its address
	root      string // the PEM file of its own certificate
	stop      func()
	trust     *x509.CertPool // the root of what it signs
}

// startAuthority runs Pebble, which looks for the box at its two ports.
func startAuthority(b *appliance, port, plain int) *authority {
	t := b.t
	t.Helper()
	program := os.Getenv("ONEBIT_PEBBLE")
	if program == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		program = filepath.Join(cache, "1bit/tools/pebble-v2.10.3/pebble")
	}
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("the ACME test server is not there (%v): run `bash e2e/setup.sh pebble`", err)
	}
	certificate, key, own := operators(t)
	ports := freePorts(t, 2)
	a := &authority{directory: fmt.Sprintf("https://127.0.0.1:%d/dir", ports[0]), root: certificate}
	management := fmt.Sprintf("127.0.0.1:%d", ports[1])
	conf, err := json.Marshal(obj{"pebble": obj{
		"listenAddress": fmt.Sprintf("127.0.0.1:%d", ports[0]), "managementListenAddress": management,
		"certificate": certificate, "privateKey": key, "httpPort": plain, "tlsPort": port,
		"retryAfter": obj{"authz": 1, "order": 1}, "keyAlgorithm": "ecdsa",
		"profiles": obj{"default": obj{"description": "months", "validityPeriod": 7776000}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "pebble.json")
	if err := os.WriteFile(file, conf, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-strict", "-config", file, "-dnsserver", everythingIsHere(t))
	cmd.Env = append(os.Environ(), "PEBBLE_VA_NOSLEEP=1", "PEBBLE_AUTHZREUSE=0")
	said := &tail{}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a.stop = sync.OnceFunc(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	t.Cleanup(func() {
		a.stop()
		if t.Failed() {
			t.Logf("pebble said\n%s", said)
		}
	})
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: own}}}
	defer client.CloseIdleConnections()
	b.soon("the authority", func() bool {
		res, err := client.Get("https://" + management + "/roots/0")
		if err != nil {
			return false
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		a.trust = x509.NewCertPool()
		return err == nil && a.trust.AppendCertsFromPEM(text)
	})
	return a
}

// TestBoxChangesToACME gives a running box a certificate of a public authority, takes it away and gives it again, while
// an answer runs: the answer does not notice, and the second time nobody has to be asked.
func TestBoxChangesToACME(t *testing.T) {
	ports := freePorts(t, 2)
	usual := fmt.Sprintf("models: [{name: small, file: %q, ctx_size: 8192}]\nlisten: {host: 127.0.0.1, port: %d, http_port: %d}\ndiscovery: false\n",
		smollm2(t), ports[0], ports[1])
	state := boxState(t, usual)
	b := openBox(t, exec.Command(binary, "appliance", "--state", state), state)
	b.claim()
	key, _ := b.key("")
	res := b.send(key, "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"Count."}],"max_tokens":6000,"stream":true,"ignore_eos":true}`)
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

	a := startAuthority(b, ports[0], ports[1])
	public := usual + fmt.Sprintf("tls: {mode: acme, names: [%s], acme: {directory: %q, root: %q, challenges: [http-01]}}\n", publicName, a.directory, a.root)
	serial := func() string { // of what the box shows by its public name; empty when that is not the authority's
		conn, err := tls.Dial("tcp", "127.0.0.1:"+b.port, &tls.Config{ServerName: publicName, RootCAs: a.trust})
		if err != nil {
			return ""
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	took := func(text string) {
		t.Helper()
		b.configure(text)
		if code, said := b.reload(); code != 204 {
			t.Fatalf("the reload: %d %s", code, said)
		}
		if status, _ := b.do(key, "GET", "/v1/models", ""); status != 200 {
			t.Errorf("by the local root: %d", status)
		}
	}
	if serial() != "" {
		t.Fatal("the box has a certificate of the authority before it asked for one")
	}
	took(public)
	first := ""
	b.soon("a certificate of the authority", func() bool { first = serial(); return first != "" })
	if text := fmt.Sprint(b.admin("GET", "/certificate", "")); !strings.Contains(text, "acme") || !strings.Contains(text, publicName) {
		t.Errorf("the box says of its certificates: %s", text)
	}
	took(usual)
	if serial() != "" {
		t.Error("the authority's certificate is still shown")
	}
	a.stop()
	took(public)
	b.soon("the kept certificate", func() bool { return serial() != "" })
	if again := serial(); again != first {
		t.Errorf("the certificate %s was not kept: now %s", first, again)
	}
	took(usual)
	n := seen.Load()
	b.soon("another event of the stream", func() bool {
		select {
		case how := <-over:
			t.Fatalf("the stream ended with %s, after %d events\n%s", how, seen.Load(), b.log)
		default:
		}
		return seen.Load() > n
	})
}
