package edge_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"onebit/appliance/trust"
)

// clientProgram returns a client that `setup.sh browsers` installs. Without ONEBIT_ALL its tests are left out.
func clientProgram(t *testing.T, variable string) string {
	t.Helper()
	if os.Getenv("ONEBIT_ALL") == "" {
		t.Skip("real clients are tried by `make test-all` only")
	}
	p := os.Getenv(variable)
	if p == "" {
		t.Fatalf("%s is not set: eval \"$(bash e2e/setup.sh browsers)\"", variable)
	}
	return p
}

// browser is Chromium with a home of its own, where it trusts a root.
type browser struct {
	program, home string
}

func newBrowser(t *testing.T, root *x509.Certificate) *browser {
	t.Helper()
	b := &browser{program: clientProgram(t, "ONEBIT_CHROMIUM"), home: t.TempDir()}
	m := &trust.Machine{System: "linux", Prefix: b.home, Home: b.home, Look: exec.LookPath, Say: func(line string) { t.Log(line) },
		Run: func(ctx context.Context, program string, args ...string) error {
			out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
			if err != nil {
				t.Fatalf("%s %v: %v\n%s", program, args, err, out)
			}
			return nil
		}}
	r := trust.Root{Host: "testbox.local", Cert: root}
	file := filepath.Join(b.home, "root.pem")
	if err := os.WriteFile(file, r.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.Install(t.Context(), r, file); err == nil || !strings.Contains(err.Error(), "by hand") {
		t.Fatalf("installing: %v", err) // this home has no system
	}
	return b
}

// open loads a page and returns what it became, and what Chromium noted about the network.
func (b *browser) open(t *testing.T, url string, args ...string) (dom, notes string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	file := filepath.Join(b.home, "net.json")
	all := append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir=" + filepath.Join(b.home, "profile"),
		"--log-net-log=" + file, "--virtual-time-budget=9000", "--dump-dom"}, append(args, url)...)
	cmd := exec.CommandContext(ctx, b.program, all...)
	cmd.Env = append(os.Environ(), "HOME="+b.home)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("Chromium: %v", err)
	}
	log, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(out), string(log)
}

// fetching answers the protocol of each request, and a page that asks for it many times.
func fetching() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/proto", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) })
	mux.HandleFunc("/page", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, `<pre id=o></pre><script>(async()=>{for(let i=0;i<12;i++){let t='?';try{t=await (await fetch('/proto?'+i,{cache:'no-store'})).text()}catch(e){t=''+e}document.getElementById('o').textContent+=t+' ';await new Promise(r=>setTimeout(r,400))}})()</script>`)
	})
	return mux
}

// TestChromium trusts the box's root by what `1bit trust` does, and loads pages. Chromium does not use HTTP/3 with a
// root that a person added; nothing may depend on it. It is made to here, so that the box is tried.
func TestChromium(t *testing.T) {
	b := serve(t, config(), fetching())
	c := newBrowser(t, b.RootCertificate())
	rules := "--host-resolver-rules=MAP testbox.local 127.0.0.1, MAP evil.test 127.0.0.1"
	origin := fmt.Sprintf("testbox.local:%d", b.Port())
	said := func(dom string) []string { return regexp.MustCompile(`HTTP/[0-9.]+`).FindAllString(dom, -1) }
	t.Run("by itself", func(t *testing.T) {
		dom, _ := c.open(t, "https://"+origin+"/page", rules)
		if got := said(dom); len(got) != 12 || strings.Join(got, "") != strings.Repeat("HTTP/2.0", 12) {
			t.Errorf("it used %v", got)
		}
	})
	t.Run("made to use HTTP/3", func(t *testing.T) {
		dom, _ := c.open(t, "https://"+origin+"/page", rules, "--origin-to-force-quic-on="+origin)
		if got := said(dom); len(got) != 12 || strings.Join(got, "") != strings.Repeat("HTTP/3.0", 12) {
			t.Errorf("it used %v", got)
		}
	})
	t.Run("by address", func(t *testing.T) {
		dom, _ := c.open(t, fmt.Sprintf("https://127.0.0.1:%d/page", b.Port()))
		if got := said(dom); len(got) != 12 {
			t.Errorf("it got %v", got)
		}
	})
	t.Run("under a name that was rebound", func(t *testing.T) {
		dom, notes := c.open(t, fmt.Sprintf("https://evil.test:%d/page", b.Port()), rules)
		if got := said(dom); len(got) > 0 || !strings.Contains(notes, `"net_error":-`) {
			t.Errorf("the page was served: %v", got)
		}
		if dom, _ := c.open(t, fmt.Sprintf("http://evil.test:%d/trust", b.HTTPPort()), rules); !strings.Contains(dom, "misdirected_request") {
			t.Errorf("plain HTTP answered %s", dom)
		}
	})
}

// TestChromiumRefusesForgedName is what a thief of the box's key could try. -207 is Chromium's "certificate invalid".
func TestChromiumRefusesForgedName(t *testing.T) {
	b := open(t, config())
	key := newKey(t)
	leaf := func(name string) *tls.Certificate {
		return &tls.Certificate{PrivateKey: key, Certificate: b.Sign(&x509.Certificate{
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			DNSNames: []string{name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}, key.Public())}
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		return leaf(h.ServerName), nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: says("SERVED")}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	c := newBrowser(t, b.RootCertificate())
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	rules := "--host-resolver-rules=MAP * 127.0.0.1"
	if dom, _ := c.open(t, "https://good.local:"+port+"/", rules); !strings.Contains(dom, "SERVED") {
		t.Errorf("a local name is refused: %s", dom)
	}
	dom, notes := c.open(t, "https://example.com:"+port+"/", rules)
	if strings.Contains(dom, "SERVED") || !strings.Contains(notes, `"net_error":-207`) {
		t.Errorf("a forged name is served: %s", dom)
	}
}

// TestCurl tries all protocols with a client that is not ours, by name and by address.
func TestCurl(t *testing.T) {
	program := clientProgram(t, "ONEBIT_CURL_HTTP3")
	e := http.NewServeMux()
	e.HandleFunc("/proto", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) })
	e.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 20 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			http.NewResponseController(w).Flush()
		}
	})
	b := serve(t, config(), e)
	file := filepath.Join(t.TempDir(), "root.pem")
	rootPEM, _ := b.Root()
	if err := os.WriteFile(file, rootPEM, 0o600); err != nil {
		t.Fatal(err)
	}
	curl := func(args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		out, err := exec.CommandContext(ctx, program, append([]string{"-sS", "-N", "--max-time", "20", "--cacert", file,
			"--connect-to", "::127.0.0.1:" + strconv.Itoa(b.Port())}, args...)...).CombinedOutput()
		return string(out), err
	}
	for flag, want := range map[string]string{"--http1.1": "HTTP/1.1", "--http2": "HTTP/2.0", "--http3-only": "HTTP/3.0"} {
		for _, host := range []string{"testbox.local", "127.0.0.1"} {
			base := fmt.Sprintf("https://%s:%d", host, b.Port())
			if out, err := curl(flag, base+"/proto"); out != want || err != nil {
				t.Errorf("%s %s: %q, %v", flag, host, out, err)
			}
			if out, err := curl(flag, base+"/events"); strings.Count(out, "data: ") != 20 || err != nil {
				t.Errorf("%s %s: %d events, %v", flag, host, strings.Count(out, "data: "), err)
			}
		}
		if out, err := curl(flag, fmt.Sprintf("https://evil.test:%d/proto", b.Port())); err == nil {
			t.Errorf("%s: a foreign name is served: %s", flag, out)
		}
	}
}
