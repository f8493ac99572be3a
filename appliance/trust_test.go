package main_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	main "onebit/appliance"
	"onebit/appliance/edge"
	"onebit/store"
)

// trusting starts a box and points everything that `1bit trust` writes at a folder of the test. It returns the box and
// where its plain HTTP port is.
func trusting(t *testing.T) (*edge.Box, string) {
	t.Helper()
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(home, "config"))
	s, err := store.Open(t.Context(), store.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	running := make(chan error, 2)
	go func() { running <- s.Run(ctx) }()
	b, err := edge.ListenBox(t.Context(), edge.BoxConfig{Host: "127.0.0.1", Name: "testbox", TLS: edge.TLSConfig{Mode: edge.ModeLocal}, Storage: s.TLS()}, http.NotFoundHandler())
	if err != nil {
		t.Fatal(err)
	}
	serving, end := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- b.Serve(serving) }()
	t.Cleanup(func() {
		end()
		<-served
		stop()
		<-running
		s.Close()
	})
	return b, fmt.Sprintf("127.0.0.1:%d", b.HTTPPort())
}

func run(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, said bytes.Buffer
	code = main.Run(t.Context(), strings.NewReader(stdin), &out, &said, args...)
	return code, out.String(), said.String()
}

func TestTrustEnv(t *testing.T) {
	b, addr := trusting(t)
	pem, fingerprint := b.Root()
	for _, given := range []string{fingerprint, edge.Words(fingerprint), ""} { // at last it is known
		args := []string{"trust", addr, "--env"}
		if given != "" {
			args = append(args, "--fingerprint", given)
		}
		code, out, said := run(t, "", args...)
		if code != 0 {
			t.Fatalf("%q: %s", given, said)
		}
		_, rest, ok := strings.Cut(out, "export NODE_EXTRA_CA_CERTS='")
		file, _, _ := strings.Cut(rest, "'")
		if kept, err := os.ReadFile(file); !ok || err != nil || !bytes.Equal(kept, pem) {
			t.Errorf("%q: the root is not in %q: %v", given, file, err)
		}
		if strings.Count(out, "\n") != 3 || !strings.Contains(out, "export SSL_CERT_FILE='") || !strings.Contains(out, "export REQUESTS_CA_BUNDLE='") {
			t.Errorf("%q: got %s", given, out)
		}
	}
	if code, _, said := run(t, "", "trust", "http://"+addr, "--env", "--fingerprint", strings.Repeat("00", 32)); code != 1 || !strings.Contains(said, "stand between") {
		t.Errorf("a wrong fingerprint: %d, %s", code, said)
	}
}

func TestTrustRefuses(t *testing.T) {
	b, addr := trusting(t)
	_, fingerprint := b.Root()
	answering := func(h http.HandlerFunc) string {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return strings.TrimPrefix(s.URL, "http://")
	}
	for _, c := range []struct {
		name string
		args []string
		code int
		said string
	}{
		{"no box", nil, 2, "which box?"},
		{"two boxes", []string{"a", "b"}, 2, "one box at a time"},
		{"an unknown option", []string{"a", "--yes"}, 2, "unknown option"},
		{"two things at once", []string{"a", "--env", "--remove"}, 2, "exclude"},
		{"an encrypted address", []string{"https://testbox.local"}, 1, "plain HTTP"},
		{"a path", []string{"../../etc"}, 1, "no name or address"},
		{"nobody to compare", []string{addr}, 1, "nobody is there to compare"},
		{"nobody to compare for --env", []string{addr, "--env"}, 1, "nobody is there to compare"},
		{"another fingerprint", []string{addr, "--fingerprint", strings.Repeat("ab", 32)}, 1, "stand between"},
		{"half a fingerprint", []string{addr, "--fingerprint", fingerprint[:16]}, 1, "64 hex digits"},
		{"nothing to remove", []string{addr, "--remove"}, 1, "no root of"},
		{"no box there", []string{answering(http.NotFound)}, 1, "404"},
		{"a page", []string{answering(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") })}, 1, "not one certificate"},
		{"a redirect", []string{answering(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://"+addr+r.URL.Path, http.StatusFound)
		})}, 1, "302"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out, said := run(t, "yes\n", append([]string{"trust"}, c.args...)...)
			if code != c.code || !strings.Contains(said, c.said) || out != "" {
				t.Errorf("got %d, %q", code, said)
			}
		})
	}
	if list, _ := filepath.Glob(filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "1bit/roots/*")); len(list) > 0 {
		t.Errorf("something was kept: %v", list)
	}
}

func TestTrustHelp(t *testing.T) {
	if code, out, _ := run(t, "", "trust", "--help"); code != 0 || !strings.HasPrefix(out, "usage: 1bit trust BOX") {
		t.Errorf("%d, %s", code, out)
	}
}
