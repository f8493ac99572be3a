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
		if status := b.ask(t, "GET", "/admin/v1/status", ""); strings.Contains(status, "the configuration is not in force") {
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

// TestControlPlaneNamesNothingOfTheMachine has an admin try all that would make the box run a program of their choice, read
// a file of their choice, or fetch from where it may not (Lemonade's unauthenticated /params, LocalAI's command lines,
// Ollama's paths in names): not even an admin's login is good for that.
func TestControlPlaneNamesNothingOfTheMachine(t *testing.T) {
	b := startBox(t)
	before := b.ask(t, "GET", "/admin/v1/settings", "")
	var now struct {
		Settings []struct {
			Name, Value string
			Changeable  bool
		}
	}
	if err := json.Unmarshal([]byte(before), &now); err != nil {
		t.Fatal(err)
	}
	type attack struct{ method, path, body string }
	attacks := []attack{
		{"POST", "/models", `{"name":"x","file":"/etc/passwd"}`},
		{"POST", "/models", `{"name":"x","file":"../../etc/passwd"}`},
		{"POST", "/models", `{"name":"../x","file":"smollm2"}`},
		{"POST", "/models", `{"name":"x\u0000y","file":"smollm2"}`},
		{"POST", "/models", `{"name":"x","file":"smollm2","cmd":"/bin/sh"}`},
		{"POST", "/models", `{"name":"x","file":"smollm2","device":"/bin/sh"}`},
		{"POST", "/models", `{"name":"` + strings.Repeat("x", 500) + `","file":"smollm2"}`},
		{"POST", "/pulls", `{"model":"https://evil.test/x.gguf"}`},
		{"POST", "/pulls", `{"model":"http://169.254.169.254/latest/x.gguf"}`},
		{"POST", "/pulls", `{"model":"file:///etc/passwd"}`},
		{"POST", "/pulls", `{"model":"../../etc/passwd"}`},
		{"POST", "/backends/..%2f..%2fetc/rollback", ``},
	}
	for _, name := range []string{"llama_server_bin", "llama_server_args", "programs.args", "models", "models.cmd", "", "name\n"} {
		attacks = append(attacks, attack{"PATCH", "/settings", `{"values":{` + quoted(t, name) + `:"/bin/sh"}}`})
	}
	fixed := 0
	for _, s := range now.Settings {
		if !s.Changeable {
			fixed++
			attacks = append(attacks, attack{"PATCH", "/settings", `{"values":{` + quoted(t, s.Name) + `:"/bin/sh"}}`})
		}
	}
	if fixed < 20 {
		t.Errorf("only %d settings are out of reach", fixed)
	}
	for _, a := range attacks {
		if code, body := b.send(t, a.method, "/admin/v1"+a.path, a.body); code != 400 && code != 404 {
			t.Errorf("%s %s %s: %d %s", a.method, a.path, a.body, code, body)
		}
	}
	if after := b.ask(t, "GET", "/admin/v1/settings", ""); after != before {
		t.Errorf("the settings were\n%s\nand are\n%s", before, after)
	}
	if pulls := b.ask(t, "GET", "/admin/v1/pulls", ""); strings.Contains(pulls, `"id"`) {
		t.Errorf("downloads have begun: %s", pulls)
	}
}

func quoted(t *testing.T, text string) string {
	t.Helper()
	b, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestServersKeepNoPrompts holds that the box starts llama-servers without the memory of past prompts in which one
// conversation's was found in another's (llama.cpp #27148).
func TestServersKeepNoPrompts(t *testing.T) {
	t.Setenv("ONEBIT_SANDBOX", "off") // the program writes down how it was started
	dir := t.TempDir()
	program, args := filepath.Join(dir, "llama-server"), filepath.Join(dir, "args")
	script := "#!/bin/sh\necho \"$@\" >> " + args + "\n[ \"$1\" = --list-devices ] && echo 'Available devices:' && echo '  Vulkan0: AMD Radeon (1 MiB, 1 MiB free)'\nexit 1\n"
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	b := startBox(t)
	ok(t, "anna\n"+password, "claim", "--code", b.code, b.address)
	key := strings.TrimSpace(ok(t, "", "key", "create", "laptop"))
	text := "programs: {llama_server: " + program + "}\nmodels: [{name: m, file: " + model(t) + ", device: vulkan}]\n"
	if err := os.WriteFile(filepath.Join(b.state, "1bit.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b.ask(t, "POST", "/admin/v1/reload", "")
	code, body := b.chat(t, key, "m")
	lines, err := os.ReadFile(args)
	if err != nil {
		t.Fatalf("%v; the box answered %d %s", err, code, body)
	}
	if !strings.Contains(string(lines), "--cache-ram 0") || strings.Contains(string(lines), "--media-path") {
		t.Errorf("the server was started as\n%s", lines)
	}
}

// TestAccessLines holds that who comes to the door and to the control plane stands in the log, and with no word of theirs.
func TestAccessLines(t *testing.T) {
	b := startBox(t)
	ok(t, "anna\n"+password, "claim", "--code", b.code, b.address)
	c := credulous()
	r, err := http.NewRequestWithContext(t.Context(), "POST", "https://"+b.address+"/login", strings.NewReader(`{"name":"canary-name","password":"canary-password"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Request-Id", "mine")
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.Header.Get("X-Request-Id") != "mine" {
		t.Errorf("the headers are %v", res.Header)
	}
	b.ask(t, "POST", "/admin/v1/reload", "")
	b.ask(t, "GET", "/admin/v1/status", "")
	log := b.said.String()
	for _, line := range []string{
		`level=INFO msg=request method=POST path=/login status=401`, `level=INFO msg=request method=POST path=/claim status=200`,
		`level=INFO msg=request method=POST path=/admin/v1/reload status=204`,
	} {
		if !strings.Contains(log, line) {
			t.Errorf("the log does not say %s", line)
		}
	}
	if strings.Contains(log, "canary") || strings.Contains(log, "path=/admin/v1/status") {
		t.Errorf("the log is\n%s", log)
	}
}
