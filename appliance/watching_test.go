//go:build unix

package main_test

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	main "onebit/appliance"
)

// listened is a system that takes what a program says of itself.
type listened struct {
	said chan string
	t    *testing.T
}

// listen makes the system that the environment names. What the box has said by its end is checked after that.
func listen(t *testing.T, atEnd func(listened)) listened {
	t.Helper()
	dir, err := os.MkdirTemp("", "1bit") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	l := listened{make(chan string, 1<<16), t}
	go func() {
		defer close(l.said)
		b := make([]byte, 4096)
		for {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			l.said <- string(b[:n])
		}
	}()
	t.Cleanup(func() {
		atEnd(l)
		c.Close()
		for range l.said { // until the reader has gone
		}
		os.RemoveAll(dir)
	})
	t.Setenv("NOTIFY_SOCKET", path)
	return l
}

// until reads until something that begins so has come, and returns all of that.
func (l listened) until(beginning string) string {
	l.t.Helper()
	limit := time.After(time.Minute)
	for {
		select {
		case text := <-l.said:
			if strings.HasPrefix(text, beginning) {
				return text
			}
		case <-limit:
			l.t.Errorf("the box did not say %s", beginning)
			return ""
		}
	}
}

// ask sends a request over the box's own socket, and wants it to succeed.
func (b startedBox) ask(t *testing.T, method, path, body string) string {
	t.Helper()
	status, text := b.send(t, method, path, body)
	if status >= 300 {
		t.Fatalf("%s %s: %d %s", method, path, status, text)
	}
	return text
}

// TestWhatABoxSays follows a box from its start to its end: what it tells the system that started it, what top shows,
// and what support writes.
func TestWhatABoxSays(t *testing.T) {
	l := listen(t, func(l listened) {
		// 30 s for answers, as long to put states away, and the end of the servers: more than the unit's TimeoutStopSec
		if text := l.until("STOPPING=1"); !strings.HasSuffix(text, "\nEXTEND_TIMEOUT_USEC=90000000") {
			t.Errorf("at its end it says %q", text)
		}
	})
	t.Setenv("WATCHDOG_USEC", "200000")
	t.Setenv("HOME", t.TempDir())
	b := startBox(t)
	if said := l.until("READY=1"); !strings.Contains(said, "serving https://") {
		t.Errorf("the system was told %q", said)
	}
	l.until("WATCHDOG=1")
	b.ask(t, "POST", "/admin/v1/reload", "")
	l.until("RELOADING=1")
	l.until("READY=1")

	ok(t, "Canary Admin\n"+password, "claim", "--code", b.code, b.address)
	key := ok(t, "", "key", "create", "laptop")
	out := ok(t, "", "top", "--once")
	for _, words := range []string{"1bit  dev  up ", "requests ", "running 0", "MODEL ", "of the box itself"} {
		if !strings.Contains(out, words) {
			t.Errorf("top does not show %q:\n%s", words, out)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Error("top moves the cursor of what is no terminal")
	}
	refused(t, 2, "usage: 1bit top", "", "top", "now")

	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	shown := ok(t, "", "support", "--out", file)
	files := unpack(t, file)
	for name, words := range map[string]string{
		"version.txt": "1bit dev", "status.json": `"problems"`, "models.json": "[", "config.txt": "listen.port: 0",
		"doctor.json": `"devices"`, "metrics.txt": "onebit_claimed 1", "log.txt": "ready",
	} {
		if !strings.Contains(files[name], words) || !strings.Contains(shown, name) {
			t.Errorf("%s does not hold %q: %.300s\n%s", name, words, files[name], shown)
		}
	}
	for name, text := range files {
		for _, canary := range []string{"canary", strings.TrimSpace(key), "PRIVATE KEY", b.code, strings.TrimSpace(password)} {
			if strings.Contains(strings.ToLower(text), strings.ToLower(canary)) {
				t.Errorf("%s holds %s", name, canary)
			}
		}
	}
	refused(t, 1, "exist", "", "support", "--out", file) // nothing is written over
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	var status struct{ Problems []string }
	if err := json.Unmarshal([]byte(b.ask(t, "GET", "/admin/v1/status", "")), &status); err != nil || status.Problems == nil {
		t.Errorf("%v %v", status, err)
	}
}

// TestSupportWithoutABox writes what there is where no box runs.
func TestSupportWithoutABox(t *testing.T) {
	state := t.TempDir()
	t.Setenv("ONEBIT_SOCKET", filepath.Join(state, "admin.sock"))
	t.Setenv("ONEBIT_TELEMETRY_WEBHOOK", "https://hook.example/canary")
	if err := os.WriteFile(filepath.Join(state, "1bit.yaml"), []byte("name: attic\ntls: {acme: {email: canary@example.org}}\nbackup: {passphrase: canary}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "b.tar.gz")
	ok(t, "", "support", "--out", file, "--state", state)
	files := unpack(t, file)
	if !strings.Contains(files["config.txt"], `name: "attic"`) || !strings.Contains(files["box.txt"], "no box runs") {
		t.Errorf("%v", files)
	}
	for name, text := range files {
		if strings.Contains(text, "canary") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// unpack reads a bundle.
func unpack(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(h.Name, "1bit-support/")] = string(text)
	}
}

func TestClean(t *testing.T) {
	in := `person=Ann ann="ANN" Ann Ann annual Joe Ann's, key 1b_abcdefghijklmnopqrst234567 Bearer x.y-z joe smith <a@b.example>
AGE-SECRET-KEY-1QQQ ABCDE-FGHIJ-KLMNO-PQRST-UVWXY-Z2345 hf_abcdefghijklmnopqr
-----BEGIN EC PRIVATE KEY-----
MHcC
-----END EC PRIVATE KEY-----
the end`
	out := main.Clean(in, "Ann", "Joe", "Joe Smith")
	for _, gone := range []string{"Ann ", "ANN", "Joe", "smith", "1b_", "x.y-z", "b.example", "1QQQ", "FGHIJ", "hf_", "MHcC"} {
		if strings.Contains(out, gone) {
			t.Errorf("%q is left in %s", gone, out)
		}
	}
	for _, kept := range []string{"annual", "person=person-", "'s, key", "the end"} {
		if !strings.Contains(out, kept) {
			t.Errorf("%q is gone from %s", kept, out)
		}
	}
	if again := main.Clean(in, "Ann", "Joe", "Joe Smith"); again == out {
		t.Error("two bundles have the same numbers")
	}
}
