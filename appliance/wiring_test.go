//go:build unix

package main_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	main "onebit/appliance"
)

// TestSettingsAtOnce has many change a setting each at the same time: none is lost.
func TestSettingsAtOnce(t *testing.T) {
	b := startBox(t)
	values := map[string]string{
		"memory.reserve": "1GiB", "memory.limit": "2GiB", "requests.body": "3MiB", "requests.limit": "4m0s", "requests.load": "5m0s",
		"requests.keep_alive": "6s", "log.level": "warn", "log.requests": "none", "backup.every": "9h0m0s", "backup.keep": "10",
	}
	var group sync.WaitGroup
	for name, value := range values {
		group.Go(func() { b.ask(t, "PATCH", "/admin/v1/settings", `{"values":{"`+name+`":"`+value+`"}}`) })
	}
	group.Wait()
	var now struct {
		Settings []struct{ Name, Value, Origin string }
	}
	if err := json.Unmarshal([]byte(b.ask(t, "GET", "/admin/v1/settings", "")), &now); err != nil {
		t.Fatal(err)
	}
	for _, s := range now.Settings {
		if want, ok := values[s.Name]; ok && (s.Value != want || s.Origin != "settings") {
			t.Errorf("%s is %s by %s, want %s", s.Name, s.Value, s.Origin, want)
		}
	}
}

// TestLeavingChangesNothing has clients ask for a reload and go: the configuration is not called wrong for that.
func TestLeavingChangesNothing(t *testing.T) {
	b := startBox(t)
	for range 30 {
		c, err := new(net.Dialer).DialContext(t.Context(), "unix", filepath.Join(b.state, "admin.sock"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "POST /admin/v1/reload HTTP/1.1\r\nHost: box\r\nContent-Length: 0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		c.Close()
		if status := b.ask(t, "GET", "/admin/v1/status", ""); strings.Contains(status, "the configuration is wrong") {
			t.Fatalf("the status is %s", status)
		}
	}
}

// TestChangesWhileTheFileIsWrong holds that a change is kept and explained when somebody has just broken the file.
func TestChangesWhileTheFileIsWrong(t *testing.T) {
	b := startBox(t)
	file := filepath.Join(b.state, "1bit.yaml")
	if err := os.WriteFile(file, []byte("naem: attic\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, body := b.send(t, "POST", "/admin/v1/models", `{"name":"m","file":"smollm2"}`)
	if code != http.StatusConflict || !strings.Contains(body, "configuration_wrong") || !strings.Contains(body, "did you mean name?") {
		t.Errorf("%d %s", code, body)
	}
	if err := os.WriteFile(file, []byte("name: attic\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.ask(t, "POST", "/admin/v1/reload", "")
	if models := b.ask(t, "GET", "/admin/v1/models", ""); !strings.Contains(models, `"name": "m"`) {
		t.Errorf("the models are %s", models)
	}
}

// send sends a request over the box's own socket, and returns whatever comes.
func (b startedBox) send(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(b.state, "admin.sock"))
	}}}
	r, err := http.NewRequestWithContext(t.Context(), method, "http://box"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := c.Do(r)
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

// TestSecretsOthersCanRead holds that the box complains about them.
func TestSecretsOthersCanRead(t *testing.T) {
	b := startBox(t)
	file := filepath.Join(b.state, "1bit.yaml")
	for text, wrong := range map[string]bool{"backup: {passphrase: correct horse battery}\n": true, "name: attic\n": false} {
		for mode, open := range map[os.FileMode]bool{0o644: true, 0o640: false} {
			if err := os.WriteFile(file, []byte(text), mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(file, mode); err != nil {
				t.Fatal(err)
			}
			b.ask(t, "POST", "/admin/v1/reload", "")
			status := b.ask(t, "GET", "/admin/v1/status", "")
			if strings.Contains(status, "holds secrets (backup.passphrase)") != (wrong && open) || strings.Contains(status, "horse") {
				t.Errorf("%q with %v: %s", text, mode, status)
			}
		}
	}
}

// TestLongStatePath holds that a path that is too long for a socket is said to be that.
func TestLongStatePath(t *testing.T) {
	state := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var said strings.Builder
	code := main.Run(ctx, strings.NewReader(""), io.Discard, &said, "appliance", "--state", state, "--host", "127.0.0.1", "--port", "0", "--http-port", "-1", "--set", "discovery=false")
	if code != 1 || !strings.Contains(said.String(), "choose a shorter --state") {
		t.Errorf("ended with %d: %s", code, said.String())
	}
}

// TestNobodyLearnsFolders asks for models that cannot be had as somebody with a plain key: no path is told.
func TestNobodyLearnsFolders(t *testing.T) {
	t.Setenv(stage, "broken") // the engine of this test fails
	b := startBox(t)
	ok(t, "anna\n"+password, "claim", "--code", b.code, b.address)
	key := strings.TrimSpace(ok(t, "", "key", "create", "laptop"))
	damaged := filepath.Join(b.state, "secret-folder", "damaged.gguf")
	if err := os.Mkdir(filepath.Dir(damaged), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(damaged, []byte("GGUF no more"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := "models:\n  - {name: absent, file: /secret-folder/none.gguf}\n  - {name: damaged, file: " + damaged + "}\n"
	if err := os.WriteFile(filepath.Join(b.state, "1bit.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b.ask(t, "POST", "/admin/v1/reload", "")
	if shown := b.ask(t, "GET", "/admin/v1/models", ""); !strings.Contains(shown, "secret-folder") {
		t.Errorf("an admin sees no reason: %s", shown)
	}
	for _, model := range []string{"absent", "damaged"} {
		code, body := b.chat(t, key, model)
		if code != 503 || strings.Contains(body, "secret-folder") || !strings.Contains(body, "an admin sees why") {
			t.Errorf("%s: %d %s", model, code, body)
		}
	}
}

// chat asks a model something over the network.
func (b startedBox) chat(t *testing.T, key, model string) (int, string) {
	t.Helper()
	c := credulous()
	r, err := http.NewRequestWithContext(t.Context(), "POST", "https://"+b.address+"/v1/chat/completions", strings.NewReader(`{"model":"`+model+`","messages":[{"role":"user","content":"hi"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}
