package egress_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onebit/appliance/egress"
)

const canary = "hf_canaryCANARYcanary"

func TestTokenShowsNothing(t *testing.T) {
	token := egress.NewToken(" " + canary + "\n")
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%T"} {
		fmt.Fprintf(&out, verb+"\n", token)
		fmt.Fprintf(&out, verb+"\n", struct{ T egress.Token }{token})
		fmt.Fprintf(&out, verb+"\n", &token)
	}
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "token", token, "in", struct{ T egress.Token }{token})
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "token", token, "in", struct{ T egress.Token }{token})
	if err := json.NewEncoder(&out).Encode(map[string]any{"a": token, "b": &token, "c": struct{ T egress.Token }{token}}); err != nil {
		t.Fatal(err)
	}
	hex := fmt.Sprintf("%x", canary)
	if s := out.String(); strings.Contains(s, "canary") || strings.Contains(s, hex) {
		t.Errorf("the token is shown:\n%s", s)
	}
	if err := json.Unmarshal([]byte(`"x"`), &token); err == nil {
		t.Error("a token was read from JSON")
	}
}

func TestReadToken(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		text string
		good bool
	}{
		"plain": {canary + "\n", true}, "empty": {"\n", false}, "two lines": {"a\nb\n", false},
		"binary": {"a\x00b", false}, "huge": {strings.Repeat("x", 20<<10), false},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		token, err := egress.ReadToken(path)
		if (err == nil) != c.good || token.Empty() == c.good {
			t.Errorf("%s: empty %v, error %v", name, token.Empty(), err)
		}
	}
	if _, err := egress.ReadToken(filepath.Join(dir, "absent")); err == nil {
		t.Error("a token was read from no file")
	}
}

// TestTokenStaysHome follows a redirect to another host, and one back.
func TestTokenStaysHome(t *testing.T) {
	seen := map[string]string{}
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		seen[r.Host+r.URL.Path] = r.Header.Get("Authorization") + "|" + r.Header.Get("Cookie") + "|" + r.Header.Get("X-Api-Key") + "|" + r.Header.Get("Range") + "|" + r.Referer()
		switch r.URL.Path {
		case "/start":
			http.Redirect(rw, r, "/same", http.StatusFound)
		case "/same":
			http.Redirect(rw, r, "https://cdn.example.com/file", http.StatusFound)
		case "/file":
			http.Redirect(rw, r, "https://example.com:8443/other", http.StatusFound)
		default:
			io.WriteString(rw, "done")
		}
	})
	w.names["cdn.example.com"] = []string{public}
	w.cfg.Tokens = map[string]egress.Token{"https://Example.com": egress.NewToken(canary)}
	c := w.client(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://example.com/start?signed=secret", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Cookie", "c=1")
	req.Header.Set("X-Api-Key", "k")
	req.Header.Set("Range", "bytes=1-")
	res, err := c.Do(req, egress.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	bearer := "Bearer " + canary
	for at, want := range map[string]string{
		"example.com/start":      bearer + "|c=1|k|bytes=1-|",
		"example.com/same":       bearer + "|c=1|k|bytes=1-|",
		"cdn.example.com/file":   "|||bytes=1-|",
		"example.com:8443/other": "|||bytes=1-|",
	} {
		if seen[at] != want {
			t.Errorf("%s saw %q, want %q", at, seen[at], want)
		}
	}
	for _, bad := range []string{"http://example.com", "example.com", ""} {
		if _, err := egress.New(egress.Config{Tokens: map[string]egress.Token{bad: egress.NewToken("x")}}); err == nil {
			t.Errorf("a token for %q was taken", bad)
		}
	}
}
