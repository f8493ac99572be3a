package edge_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"onebit/appliance/edge"
)

// plainly returns the address of the plain HTTP port, and a client that follows nothing.
func plainly(b *running) (string, *http.Client) {
	return fmt.Sprintf("http://127.0.0.1:%d", b.HTTPPort()), &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func TestTrustFiles(t *testing.T) {
	b := serve(t, config(), says("secret"))
	url, c := plainly(b)
	rootPEM, fingerprint := b.Root()
	block, _ := pem.Decode(rootPEM)
	if sum := sha256.Sum256(block.Bytes); hex.EncodeToString(sum[:]) != fingerprint {
		t.Error("the fingerprint is not the root's")
	}
	for _, f := range []struct{ path, kind string }{
		{"/trust", "text/html; charset=utf-8"},
		{"/trust/style.css", "text/css; charset=utf-8"},
		{"/trust/qr.svg", "image/svg+xml"},
		{"/trust/root.pem", "application/x-pem-file"},
		{"/trust/root.crt", "application/x-x509-ca-cert"},
		{"/trust/root.mobileconfig", "application/x-apple-aspen-config"},
		{"/trust/fingerprint", "text/plain; charset=utf-8"},
	} {
		t.Run(f.path, func(t *testing.T) {
			res, body := get(t, c, url+f.path)
			if res.StatusCode != 200 || res.Header.Get("Content-Type") != f.kind || res.Header.Get("X-Content-Type-Options") != "nosniff" {
				t.Fatalf("%d %v", res.StatusCode, res.Header)
			}
			switch f.path {
			case "/trust":
				for _, want := range []string{edge.Words(fingerprint), "testbox.local", b.URL()[strings.LastIndexByte(b.URL(), ':'):]} {
					if !strings.Contains(body, want) {
						t.Errorf("the page lacks %q", want)
					}
				}
				if csp := res.Header.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") {
					t.Errorf("the policy is %q", csp)
				}
			case "/trust/root.pem":
				if body != string(rootPEM) {
					t.Error("another certificate")
				}
			case "/trust/root.crt":
				if !bytes.Equal([]byte(body), block.Bytes) {
					t.Error("another certificate")
				}
			case "/trust/fingerprint":
				if body != fingerprint+"\n"+edge.Words(fingerprint)+"\n" {
					t.Errorf("got %q", body)
				}
			case "/trust/root.mobileconfig":
				checkProfile(t, body, block.Bytes)
			case "/trust/qr.svg":
				if err := xml.Unmarshal([]byte(body), new(struct{})); err != nil || !strings.HasPrefix(body, "<svg ") {
					t.Errorf("no picture: %v", err)
				}
			}
		})
	}
}

// checkProfile reads a profile as far as its certificate.
func checkProfile(t *testing.T, body string, der []byte) {
	t.Helper()
	var texts []string
	d := xml.NewDecoder(strings.NewReader(body))
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the profile is no XML: %v", err)
		}
		if c, ok := tok.(xml.CharData); ok && strings.TrimSpace(string(c)) != "" {
			texts = append(texts, string(c))
		}
	}
	all := strings.Join(texts, "\n")
	for _, want := range []string{"com.apple.security.root", "Configuration", base64.StdEncoding.EncodeToString(der)} {
		if !strings.Contains(all, want) {
			t.Errorf("the profile lacks %.40q", want)
		}
	}
}

func TestPlainPort(t *testing.T) {
	b := serve(t, config(), says("secret"))
	url, c := plainly(b)
	secure := fmt.Sprintf("https://127.0.0.1:%d", b.Port())
	for _, x := range []struct {
		name, method, path, host string
		want                     int
		location                 string
	}{
		{"front page", "GET", "/", "", 308, secure + "/"},
		{"path and query", "GET", "/v1/models?a=b&c=%20", "", 308, secure + "/v1/models?a=b&c=%20"},
		{"by name", "HEAD", "/x", "testbox.local", 308, fmt.Sprintf("https://testbox.local:%d/x", b.Port())},
		{"two slashes are no host", "GET", "//evil.test/", "", 307, "/evil.test/"},
		{"a key in the clear", "POST", "/v1/chat/completions", "", 403, ""},
		{"a foreign name", "GET", "/", "evil.test", 421, ""},
		{"a foreign name on the trust page", "GET", "/trust", "evil.test", 421, ""},
		{"a challenge that nobody set", "GET", "/.well-known/acme-challenge/x", "box.example.com", 404, ""},
		{"changing the trust page", "POST", "/trust", "", 403, ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			var headers []string
			if x.host != "" {
				headers = []string{"Host", x.host}
			}
			res, body := send(t, c, x.method, url+x.path, headers...)
			if res.StatusCode != x.want || res.Header.Get("Location") != x.location {
				t.Errorf("got %d to %q, want %d to %q", res.StatusCode, res.Header.Get("Location"), x.want, x.location)
			}
			if strings.Contains(body, "secret") {
				t.Error("the handler answers in the clear")
			}
		})
	}
}

func TestNoPlainPort(t *testing.T) {
	cfg := config()
	cfg.HTTPPort = -1
	b := serve(t, cfg, says("here"))
	if b.HTTPPort() != 0 || b.TrustURL() != "" {
		t.Errorf("port %d, %q", b.HTTPPort(), b.TrustURL())
	}
	if _, body := get(t, b.client(t, "h3"), "https://testbox.local/"); body != "here" {
		t.Errorf("got %q", body)
	}
}

func TestWords(t *testing.T) {
	list := strings.Fields(edge.WordList())
	seen := map[string]bool{}
	for _, w := range list {
		if seen[w] || strings.ToLower(w) != w || len(w) > 8 {
			t.Errorf("the word %q does not fit", w)
		}
		seen[w] = true
	}
	if len(list) != 256 {
		t.Errorf("there are %d words", len(list))
	}
	zero := strings.Repeat("00", 32)
	if got := edge.Words(zero); got != strings.TrimSpace(strings.Repeat(list[0]+" ", 16)) {
		t.Errorf("got %q", got)
	}
	if edge.Words("00") != "" || edge.Words("x") != "" {
		t.Error("words for what is no fingerprint")
	}
}

func TestSameFingerprint(t *testing.T) {
	f := strings.Repeat("0a", 31) + "ff"
	words := edge.Words(f)
	for _, c := range []struct {
		given     string
		same, bad bool
	}{
		{f, true, false},
		{strings.ToUpper(f), true, false},
		{"sha256:" + f, true, false},
		{" SHA256:" + f + "\n", true, false},
		{strings.TrimSuffix(strings.Repeat("0A:", 31), ":") + ":FF", true, false},
		{words, true, false},
		{strings.ReplaceAll(strings.ToUpper(words), " ", "-"), true, false},
		{strings.Repeat("0a", 32), false, false},
		{edge.Words(strings.Repeat("0b", 32)), false, false},
		{f[:32], false, true},
		{"", false, true},
		{"yes", false, true},
		{words + " acid", false, true},
	} {
		same, err := edge.SameFingerprint(c.given, f)
		if same != c.same || (err != nil) != c.bad {
			t.Errorf("%q: %v, %v", c.given, same, err)
		}
	}
}

func FuzzSameFingerprint(f *testing.F) {
	of := strings.Repeat("0a", 32)
	f.Add(of)
	f.Add(edge.Words(of))
	f.Add("sha256:" + strings.Repeat("0A:", 31) + "0A")
	f.Fuzz(func(t *testing.T, given string) {
		same, err := edge.SameFingerprint(given, of)
		if same && err != nil {
			t.Error("the same, and an error")
		}
		if other := strings.Repeat("f5", 32); same {
			if also, _ := edge.SameFingerprint(given, other); also {
				t.Error("the same as two")
			}
		}
	})
}

func TestClientAddress(t *testing.T) {
	cfg := config()
	cfg.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("10.0.0.0/8")}
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.RemoteAddr, " ", r.Header.Get("X-Forwarded-For"), r.Header.Get("X-Real-Ip"), r.Header.Get("Forwarded"))
	})
	trusting := serve(t, cfg, echo)
	plain := serve(t, config(), echo)
	for _, p := range protocols {
		if _, body := get(t, trusting.client(t, p), "https://testbox.local/", "X-Forwarded-For", "6.6.6.6, 192.0.2.9, 10.1.2.3", "X-Real-IP", "7.7.7.7"); body != "192.0.2.9:0 " {
			t.Errorf("%s behind a proxy: %q", p, body)
		}
		if _, body := get(t, plain.client(t, p), "https://testbox.local/", "X-Forwarded-For", "6.6.6.6", "Forwarded", "for=6.6.6.6"); !strings.HasPrefix(body, "127.0.0.1:") || !strings.HasSuffix(body, " ") {
			t.Errorf("%s without a proxy: %q", p, body)
		}
	}
}

func TestClientOf(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for _, c := range []struct {
		name   string
		values []string
		want   string
	}{
		{"one", []string{"192.0.2.1"}, "192.0.2.1"},
		{"with a port", []string{"192.0.2.1:4711"}, "192.0.2.1"},
		{"version 6", []string{"2001:db8::1"}, "2001:db8::1"},
		{"version 6 with a port", []string{"[2001:db8::1]:4711"}, "2001:db8::1"},
		{"version 4 in 6", []string{"::ffff:192.0.2.1"}, "192.0.2.1"},
		{"through two proxies", []string{"192.0.2.1, 10.0.0.1"}, "192.0.2.1"},
		{"two headers", []string{"6.6.6.6", "192.0.2.1, fd00::1"}, "192.0.2.1"},
		{"written by the client", []string{"10.0.0.9, 192.0.2.1"}, "192.0.2.1"},
		{"proxies only", []string{"10.0.0.9, 10.0.0.1"}, "10.0.0.9"},
		{"nonsense", []string{"unknown"}, ""},
		{"nonsense before a proxy", []string{"192.0.2.1, _hidden, 10.0.0.1"}, "10.0.0.1"},
		{"empty", []string{""}, ""},
		{"none", nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := edge.ClientOf(c.values, trusted)
			if got.IsValid() != (c.want != "") || got.IsValid() && got.String() != c.want {
				t.Errorf("got %v, want %q", got, c.want)
			}
		})
	}
}

func FuzzClientOf(f *testing.F) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	f.Add("192.0.2.1, 10.0.0.1")
	f.Add("[2001:db8::1%eth0]:1, ::ffff:10.0.0.1")
	f.Add(",,")
	f.Fuzz(func(t *testing.T, value string) {
		a := edge.ClientOf([]string{value}, trusted)
		if a.IsValid() && (a.Is4In6() || a.Zone() != "") {
			t.Errorf("%v is not in the form in which addresses are compared", a)
		}
		// what a client writes before its own address changes nothing
		if b := edge.ClientOf([]string{value + ", 192.0.2.1, 10.0.0.1"}, trusted); b.String() != "192.0.2.1" {
			t.Errorf("the client became %v", b)
		}
	})
}

func FuzzOrigin(f *testing.F) {
	for _, s := range []string{"null", "https://chat.example.org:443", "http://[::1]:80/", "HTTPS://X", "https://a@b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, origin string) {
		c := edge.CanonicalOrigin(origin)
		if c != "" && edge.CanonicalOrigin(c) != c {
			t.Errorf("%q becomes %q, which becomes %q", origin, c, edge.CanonicalOrigin(c))
		}
	})
}
