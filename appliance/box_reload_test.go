//go:build unix

package main_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// configure writes the configuration of a box that runs, as one that is there from one moment to the next.
func (b startedBox) configure(t *testing.T, name, text string) {
	t.Helper()
	next := filepath.Join(b.state, "next")
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(b.state, name)); err != nil {
		t.Fatal(err)
	}
}

// TestReloadWholeOrNotAtAll has a configuration that changes everything fail at its certificate: nothing has changed.
func TestReloadWholeOrNotAtAll(t *testing.T) {
	b := startBox(t)
	file := model(t)
	b.configure(t, "1bit.yaml", "models: [{name: first, file: "+file+"}]\nlog: {keep: 1d}\n")
	b.ask(t, "POST", "/admin/v1/reload", "")
	look := func() string {
		return b.ask(t, "GET", "/admin/v1/settings", "") + b.ask(t, "GET", "/admin/v1/models", "") + b.ask(t, "GET", "/admin/v1/certificate", "")
	}
	before := look()
	b.configure(t, "1bit.yaml", "name: other\nmodels: [{name: second, file: "+file+"}]\nlog: {level: debug, keep: 2d}\nweb: {origins: ['https://chat.example.org']}\n"+
		"requests: {load: 1m}\nmemory: {limit: 1GiB}\ntelemetry: {otlp: 'https://collector.example.org'}\ntls: {mode: files, certificate: /nowhere/c.pem, key: /nowhere/k.pem}\n")
	code, body := b.send(t, "POST", "/admin/v1/reload", "")
	if code != http.StatusBadRequest || !strings.Contains(body, "/nowhere/c.pem") {
		t.Errorf("%d %s", code, body)
	}
	if after := look(); after != before {
		t.Errorf("what was\n%s\nis\n%s", before, after)
	}
	if status := b.ask(t, "GET", "/admin/v1/status", ""); !strings.Contains(status, "the one before is: reading the certificate /nowhere/c.pem") || !strings.Contains(status, `"name": "1bit"`) {
		t.Errorf("the status is %s", status)
	}
}

// TestSettingsWholeOrNotAtAll holds that a setting that cannot be taken on is not kept either: a box that kept it would not
// start again.
func TestSettingsWholeOrNotAtAll(t *testing.T) {
	b := startBox(t)
	b.configure(t, "1bit.yaml", "tls: {certificate: /nowhere/c.pem, key: /nowhere/k.pem}\n")
	b.ask(t, "POST", "/admin/v1/reload", "")
	code, body := b.send(t, "PATCH", "/admin/v1/settings", `{"values":{"tls.mode":"files","log.keep":"5d"}}`)
	if code != http.StatusBadRequest || !strings.Contains(body, "/nowhere/c.pem") {
		t.Errorf("%d %s", code, body)
	}
	b.ask(t, "POST", "/admin/v1/reload", "") // what is kept is read again
	if shown := b.ask(t, "GET", "/admin/v1/settings", ""); strings.Contains(shown, `"files"`) || strings.Contains(shown, "120h") {
		t.Errorf("it is kept: %s", shown)
	}
}

// TestTOMLIsFound has a box read the one or the other file of its state directory, and never choose between two.
func TestTOMLIsFound(t *testing.T) {
	b := startBox(t)
	b.configure(t, "1bit.toml", "name = \"attic\"\n[log]\nkeep = \"2d\"\n")
	b.ask(t, "POST", "/admin/v1/reload", "")
	if shown := b.ask(t, "GET", "/admin/v1/settings", ""); !strings.Contains(shown, filepath.Join(b.state, "1bit.toml")+":3") {
		t.Errorf("the settings are %s", shown)
	}
	b.configure(t, "1bit.yaml", "name: cellar\n")
	if code, body := b.send(t, "POST", "/admin/v1/reload", ""); code != http.StatusBadRequest || !strings.Contains(body, "keep one of them") {
		t.Errorf("with two files: %d %s", code, body)
	}
	if status := b.ask(t, "GET", "/admin/v1/status", ""); !strings.Contains(status, `"name": "attic"`) {
		t.Errorf("the status is %s", status)
	}
	if err := os.Remove(filepath.Join(b.state, "1bit.toml")); err != nil {
		t.Fatal(err)
	}
	b.ask(t, "POST", "/admin/v1/reload", "")
	if status := b.ask(t, "GET", "/admin/v1/status", ""); !strings.Contains(status, `"name": "cellar"`) {
		t.Errorf("the status is %s", status)
	}
}

// TestFrontOfABox goes in by the front: to the claim, to the login, and to who one is.
func TestFrontOfABox(t *testing.T) {
	b := startBox(t)
	c := credulous()
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	to := func() string {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "https://"+b.address+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.Header.Get("Location")
	}
	if got := to(); got != "/claim" {
		t.Errorf("before the claim it leads to %s", got)
	}
	ok(t, "anna\n"+password, "claim", "--code", b.code, b.address)
	if got := to(); got != "/login" {
		t.Errorf("after it, to %s", got)
	}
}

// TestCopyHoldsTOML copies a box whose configuration is in TOML, and finds it under its name where it was not there.
func TestCopyHoldsTOML(t *testing.T) {
	b := startBox(t)
	b.configure(t, "1bit.toml", "name = \"attic\"\n")
	b.ask(t, "POST", "/admin/v1/reload", "")
	dir := t.TempDir()
	copied, phrase := filepath.Join(dir, "box.backup"), filepath.Join(dir, "phrase")
	if err := os.WriteFile(phrase, []byte("a passphrase of some length\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ok(t, "", "backup", copied, "--passphrase-file", phrase)
	for name, there := range map[string]string{"empty": "", "taken": "1bit.yaml"} {
		state := filepath.Join(dir, name)
		if err := os.Mkdir(state, 0o700); err != nil {
			t.Fatal(err)
		}
		if there != "" {
			if err := os.WriteFile(filepath.Join(state, there), []byte("name: cellar\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		ok(t, "", "restore", copied, "--passphrase-file", phrase, "--state", state)
		text, err := os.ReadFile(filepath.Join(state, "1bit.toml"))
		if (err == nil) != (there == "") || there == "" && string(text) != "name = \"attic\"\n" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}

// TestConfigurationGone takes the file away: nothing changes until somebody means it.
func TestConfigurationGone(t *testing.T) {
	b := startBox(t)
	b.configure(t, "1bit.yaml", "name: attic\n")
	b.ask(t, "POST", "/admin/v1/reload", "")
	if err := os.Remove(filepath.Join(b.state, "1bit.yaml")); err != nil {
		t.Fatal(err)
	}
	status := ""
	for end := time.Now().Add(time.Minute); !strings.Contains(status, "the configuration is gone"); {
		if status = b.ask(t, "GET", "/admin/v1/status", ""); time.Now().After(end) {
			t.Fatalf("nothing is said: %s", status)
		}
	}
	if !strings.Contains(status, `"name": "attic"`) {
		t.Errorf("the status is %s", status)
	}
	b.ask(t, "POST", "/admin/v1/reload", "")
	if status := b.ask(t, "GET", "/admin/v1/status", ""); !strings.Contains(status, `"name": "1bit"`) || strings.Contains(status, "gone") {
		t.Errorf("the status is %s", status)
	}
}

// TestClaimChoosesWhatCanBe refuses a claim with settings that the box could not take on, and would not start with.
func TestClaimChoosesWhatCanBe(t *testing.T) {
	b := startBox(t)
	b.configure(t, "1bit.yaml", "tls: {certificate: /nowhere/c.pem, key: /nowhere/k.pem}\n")
	b.ask(t, "POST", "/admin/v1/reload", "")
	claim := func(mode string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "POST", "https://"+b.address+"/claim",
			strings.NewReader(`{"code":"`+b.code+`","name":"anna","password":"`+strings.TrimSpace(password)+`","tls_mode":"`+mode+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		res, err := credulous().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(text)
	}
	if code, text := claim("files"); code != 400 || !strings.Contains(text, "/nowhere/c.pem") {
		t.Errorf("%d %s", code, text)
	}
	if code, text := claim("local"); code != 200 {
		t.Errorf("the code is used up: %d %s", code, text)
	}
}
