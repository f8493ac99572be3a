//go:build unix

package e2e_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"onebit/e2e/rig"
)

// appliance is a started box.
type appliance struct {
	t      *testing.T
	state  string
	cmd    *exec.Cmd
	log    *tail
	done   chan struct{}
	port   string
	plain  string
	code   string // empty when it was claimed before
	client *http.Client
	socket *http.Client
}

var (
	boxAddress = regexp.MustCompile(`1bit appliance: https://[a-z0-9.-]+:(\d+)`)
	boxTrust   = regexp.MustCompile(`trust    http://[a-z0-9.-]+:(\d+)/trust`)
	boxCode    = regexp.MustCompile(`code    ([A-Z0-9]{5}(?:-[A-Z0-9]{5}){5})`)
)

// startBox starts a box over a state directory and waits until it says where it is.
func startBox(t *testing.T, state string, args ...string) *appliance {
	t.Helper()
	return openBox(t, exec.Command(binary, boxArguments(state, args...)...), state)
}

// boxArguments is the command line of a box on free ports of loopback.
func boxArguments(state string, args ...string) []string {
	return append([]string{"appliance", "--state", state, "--host", "127.0.0.1", "--port", "0", "--http-port", "0", "--set", "discovery=false"}, args...)
}

// openBox starts a box from its command line.
func openBox(t *testing.T, cmd *exec.Cmd, state string) *appliance {
	t.Helper()
	b := &appliance{t: t, state: state, log: &tail{}, done: make(chan struct{}), cmd: cmd}
	b.cmd.Stdout, b.cmd.Stderr = b.log, b.log
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { b.cmd.Wait(); close(b.done) }()
	t.Cleanup(b.stop)
	claimed := false
	if _, err := os.Stat(filepath.Join(state, "claimed-by-test")); err == nil {
		claimed = true
	}
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		text := b.log.String()
		address, trust, code := boxAddress.FindStringSubmatch(text), boxTrust.FindStringSubmatch(text), boxCode.FindStringSubmatch(text)
		if address != nil && trust != nil && (code != nil || claimed) {
			b.port, b.plain = address[1], trust[1]
			if code != nil {
				b.code = code[1]
			}
			break
		}
		select {
		case <-b.done:
			t.Fatalf("the box ended at once\n%s", text)
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("the box did not say where it is\n%s", text)
		}
	}
	b.socket = rig.Socket(state)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(b.admin("GET", "/certificate", "")["root"].(string))) {
		t.Fatal("the box shows no root")
	}
	b.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(b.client.CloseIdleConnections)
	t.Cleanup(b.socket.CloseIdleConnections)
	return b
}

func (b *appliance) stop() {
	select {
	case <-b.done:
		return
	default:
	}
	b.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-b.done:
	case <-time.After(45 * time.Second):
		b.cmd.Process.Kill()
		<-b.done
		b.t.Errorf("the box did not stop\n%s", b.log)
	}
}

// send sends a request over the network and returns the open response.
func (b *appliance) send(key, method, path, body string) *http.Response {
	b.t.Helper()
	r, err := http.NewRequest(method, "https://127.0.0.1:"+b.port+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	res, err := b.client.Do(r)
	if err != nil {
		b.t.Fatalf("%s %s: %v\n%s", method, path, err, b.log)
	}
	return res
}

// do sends a request and reads the answer.
func (b *appliance) do(key, method, path, body string) (int, string) {
	b.t.Helper()
	res := b.send(key, method, path, body)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatalf("%s %s: %v", method, path, err)
	}
	return res.StatusCode, string(text)
}

// admin calls the control plane over the box's own socket and expects success.
func (b *appliance) admin(method, path, body string) map[string]any {
	b.t.Helper()
	r, err := http.NewRequest(method, "http://box/admin/v1"+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := b.socket.Do(r)
	if err != nil {
		b.t.Fatalf("%s %s over the socket: %v\n%s", method, path, err, b.log)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode >= 300 {
		b.t.Fatalf("%s %s over the socket: %d %s %v", method, path, res.StatusCode, text, err)
	}
	var v map[string]any
	if len(text) > 0 {
		if err := json.Unmarshal(text, &v); err != nil {
			b.t.Fatalf("%s %s: %v in %s", method, path, err, text)
		}
	}
	return v
}

// claim makes the first admin.
func (b *appliance) claim() {
	b.t.Helper()
	status, text := b.do("", "POST", "/claim", fmt.Sprintf(`{"code":%q,"name":"root","password":"correct horse battery"}`, b.code))
	if status != 200 || !strings.Contains(text, "recovery_key") {
		b.t.Fatalf("claiming: %d %s", status, text)
	}
	if err := os.WriteFile(filepath.Join(b.state, "claimed-by-test"), nil, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// key makes an API key; more are members of the request.
func (b *appliance) key(more string) (secret, id string) {
	b.t.Helper()
	made := b.admin("POST", "/keys", `{"name":"test"`+more+`}`)
	return made["secret"].(string), made["id"].(string)
}

// config writes the box's configuration into a new state directory.
func boxState(t *testing.T, config string) string {
	t.Helper()
	state := t.TempDir()
	if err := os.WriteFile(filepath.Join(state, "1bit.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return state
}

const parisQuestion = `"messages":[{"role":"user","content":"Which city is the capital of France?"}],"max_tokens":200,"temperature":0`

// TestBox goes the way of a household: start, claim, a key, a chat, a kill, and all is still there.
func TestBox(t *testing.T) {
	state := boxState(t, fmt.Sprintf("models: [{name: small, file: %q, ctx_size: 2048}]\n", smollm2(t)))
	b := startBox(t, state)
	if status, text := b.do("", "GET", "/health", ""); status != 200 || text != "{\"status\":\"ok\"}\n" {
		t.Errorf("health: %d %s", status, text)
	}
	if status, text := b.do("1b_guess", "POST", "/v1/chat/completions", "{"+parisQuestion+"}"); status != 401 {
		t.Errorf("a chat before the claim: %d %s", status, text)
	}
	if status, text := b.do("", "POST", "/claim", `{"code":"AAAAA-AAAAA-AAAAA-AAAAA-AAAAA-AAAAA","name":"eve","password":"correct horse battery"}`); status < 400 {
		t.Errorf("a guessed code: %d %s", status, text)
	}
	b.claim()
	if status, _ := b.do("", "POST", "/claim", fmt.Sprintf(`{"code":%q,"name":"eve","password":"correct horse battery"}`, b.code)); status < 400 {
		t.Errorf("a second claim: %d", status)
	}
	key, _ := b.key("")
	status, text := b.do(key, "POST", "/v1/chat/completions", "{"+parisQuestion+"}")
	if status != 200 || !strings.Contains(text, "Paris") || !strings.Contains(text, `"model":"small"`) {
		t.Fatalf("a chat: %d %s\n%s", status, text, b.log)
	}
	res := b.send(key, "POST", "/v1/chat/completions", "{"+parisQuestion+`,"stream":true}`)
	var said strings.Builder
	done, err := events(res.Body, func(e map[string]any) bool {
		for _, c := range e["choices"].([]any) {
			if s, ok := c.(map[string]any)["delta"].(map[string]any)["content"].(string); ok {
				said.WriteString(s)
			}
		}
		return true
	})
	res.Body.Close()
	if !done || err != nil || !strings.Contains(said.String(), "Paris") || res.ProtoMajor != 2 {
		t.Errorf("streamed: %q, %v, %v over %s", said.String(), done, err, res.Proto)
	}
	if status, text := b.do(key, "GET", "/admin/v1/status", ""); status != 403 {
		t.Errorf("the control plane by a plain key: %d %s", status, text)
	}
	usage := ""
	for end := time.Now().Add(10 * time.Second); !strings.Contains(usage, "requests:2"); time.Sleep(30 * time.Millisecond) {
		if usage = fmt.Sprint(b.admin("GET", "/usage?by=model", "")["usage"]); time.Now().After(end) {
			break
		}
	}
	if !strings.Contains(usage, "completion:16 ") || !strings.Contains(usage, "prompt:76 ") || !strings.Contains(usage, "requests:2") {
		t.Errorf("usage is %s", usage)
	}
	children := childrenOf(t, b.cmd.Process.Pid)
	if len(children) == 0 {
		t.Error("the box has no child")
	}
	b.cmd.Process.Kill()
	<-b.done
	for end := time.Now().Add(2 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		left := 0
		for _, pid := range children {
			if syscall.Kill(pid, 0) == nil {
				left++
			}
		}
		if left == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d children outlive the box", left)
		}
	}
	again := startBox(t, state)
	if again.code != "" {
		t.Error("a claimed box shows a code")
	}
	if status, text := again.do(key, "POST", "/v1/chat/completions", "{"+parisQuestion+"}"); status != 200 || !strings.Contains(text, "Paris") {
		t.Errorf("after a kill: %d %s\n%s", status, text, again.log)
	}
	if strings.Contains(again.log.String()+b.log.String(), key) {
		t.Error("the key is in the log")
	}
}

// childrenOf lists the processes that a process has started.
func childrenOf(t *testing.T, parent int) (pids []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range stats {
		raw, err := os.ReadFile(name)
		if err != nil {
			continue // it has gone
		}
		var pid, of int
		var state string
		rest := raw[bytes.LastIndexByte(raw, ')')+1:]
		if _, err := fmt.Sscan(string(rest), &state, &of); err != nil || of != parent {
			continue
		}
		if _, err := fmt.Sscan(string(raw), &pid); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestBoxRevokes cuts a running stream when its key is revoked.
func TestBoxRevokes(t *testing.T) {
	b := startBox(t, boxState(t, fmt.Sprintf("models: [{name: small, file: %q, ctx_size: 2048}]\n", smollm2(t))))
	b.claim()
	key, id := b.key("")
	res := b.send(key, "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"Count from 1 to 2000, one number a line."}],"max_tokens":1500,"stream":true,"ignore_eos":true}`)
	defer res.Body.Close()
	n, last := 0, ""
	var revoked time.Time
	_, err := events(res.Body, func(e map[string]any) bool {
		if n++; n == 5 {
			b.admin("DELETE", "/keys/"+id, "")
			revoked = time.Now()
		}
		if problem, ok := e["error"]; ok {
			last = fmt.Sprint(problem)
		}
		return true
	})
	if revoked.IsZero() || n > 1400 || !strings.Contains(last, "revoked") {
		t.Errorf("%d events, %v, %q", n, err, last)
	}
	if status, text := b.do(key, "GET", "/v1/models", ""); status != 401 {
		t.Errorf("the revoked key lists models: %d %s", status, text)
	}
	t.Run("upload", func(t *testing.T) {
		key, id := b.key("")
		out, in := io.Pipe()
		defer in.Close()
		form := multipart.NewWriter(in)
		go func() {
			form.WriteField("purpose", "assistants")
			if part, err := form.CreateFormFile("file", "a.txt"); err == nil {
				io.WriteString(part, "the rest never comes")
			}
		}()
		go func() {
			b.soon("the upload", func() bool { return b.admin("GET", "/status", "")["running"] == 1.0 })
			b.admin("DELETE", "/keys/"+id, "")
		}()
		r, err := http.NewRequestWithContext(t.Context(), "POST", "https://127.0.0.1:"+b.port+"/v1/files", out)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		r.Header.Set("Content-Type", form.FormDataContentType())
		res, err := b.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if text, err := io.ReadAll(res.Body); err != nil || res.StatusCode != 401 || !bytes.Contains(text, []byte("revoked")) {
			t.Errorf("%d %s %v", res.StatusCode, text, err)
		}
	})
}

// TestBoxReloads takes on a changed file, keeps what it has when the file is wrong, and says so.
func TestBoxReloads(t *testing.T) {
	file := smollm2(t)
	state := boxState(t, fmt.Sprintf("models: [{name: small, file: %q}]\n", file))
	b := startBox(t, state)
	b.claim()
	key, _ := b.key("")
	names := func() string {
		_, text := b.do(key, "GET", "/v1/models", "")
		return text
	}
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(state, "1bit.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		b.cmd.Process.Signal(syscall.SIGHUP)
	}
	eventually := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(30 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s did not come about\n%s\n%s", what, names(), b.log)
			}
		}
	}
	write(fmt.Sprintf("models: [{name: small, file: %q}, {name: second, file: %q}]\n", file, file))
	eventually("a second model", func() bool { return strings.Contains(names(), `"second"`) })
	write("modles: []\n")
	eventually("a problem in the status", func() bool {
		return strings.Contains(fmt.Sprint(b.admin("GET", "/status", "")["problems"]), "did you mean models?")
	})
	if !strings.Contains(names(), `"second"`) {
		t.Error("a wrong file took the models away")
	}
	write(fmt.Sprintf("models: [{name: third, file: %q}]\n", file))
	eventually("a third model", func() bool { return strings.Contains(names(), `"third"`) && !strings.Contains(names(), `"second"`) })
	if problems := b.admin("GET", "/status", "")["problems"]; fmt.Sprint(problems) != "[]" {
		t.Errorf("problems are left: %v", problems)
	}
}

// TestBoxSettings changes settings and models through the control plane; the file wins.
func TestBoxSettings(t *testing.T) {
	file := smollm2(t)
	folder := filepath.Dir(file)
	b := startBox(t, boxState(t, fmt.Sprintf("log: {level: warn}\nmodel_folders: [%q]\n", folder)))
	b.claim()
	b.admin("PATCH", "/settings", `{"values":{"log.keep":"3d"}}`)
	if text := fmt.Sprint(b.admin("GET", "/settings", "")); !strings.Contains(text, "72h0m0s") {
		t.Errorf("the setting is not there: %s", text)
	}
	added := b.admin("POST", "/models", fmt.Sprintf(`{"name":"mine","file":%q,"ttl":60}`, filepath.Base(file)))
	if added["name"] != "mine" || added["state"] != "unloaded" {
		t.Errorf("added %v", added)
	}
	b.admin("POST", "/models/mine/load", "")
	if text := fmt.Sprint(b.admin("GET", "/models", "")); !strings.Contains(text, "state:loaded") {
		t.Errorf("the model is not loaded: %s", text)
	}
	b.admin("PATCH", "/models/mine", `{"pinned":true}`)
	b.admin("POST", "/models/mine/unload", "")
	b.admin("DELETE", "/models/mine", "")
	for body, want := range map[string]string{
		`{"values":{"log.level":"debug"}}`:               "1bit.yaml:1",
		`{"values":{"programs.llama_server":"/bin/sh"}}`: "cannot be changed here",
		`{"values":{"log.keep":"soon"}}`:                 "is not a length of time",
	} {
		r, err := http.NewRequest("PATCH", "http://box/admin/v1/settings", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		res, err := b.socket.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != 400 || !strings.Contains(string(text), want) {
			t.Errorf("%s: %d %s", body, res.StatusCode, text)
		}
	}
	for _, file := range []string{"/etc/passwd", "../../etc/passwd", "a/../../b"} {
		r, _ := http.NewRequest("POST", "http://box/admin/v1/models", strings.NewReader(fmt.Sprintf(`{"name":"x","file":%q}`, file)))
		r.Header.Set("Content-Type", "application/json")
		res, err := b.socket.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != 400 {
			t.Errorf("the file %s: %d", file, res.StatusCode)
		}
	}
}

// openPaths are the only ones that answer somebody without a key over HTTPS.
var openPaths = map[string]bool{
	"/": true, "/health": true, "/claim": true, "/claim/passkey": true, "/claim/restore": true, "/login": true, "/login/passkey": true,
	"/login/passkey/answer": true, "/logout": true, "/invite": true, "/invite/passkey": true, "/recover": true,
	"/login/door.css": true, "/login/door.js": true,
}

// TestBoxTellsStrangersNothing walks everything that a box answers, as a stranger, before the claim and after it.
func TestBoxTellsStrangersNothing(t *testing.T) {
	b := startBox(t, boxState(t, fmt.Sprintf("models: [{name: canary-model, file: %q}]\n", smollm2(t))))
	met := map[string]bool{}
	walk := func() {
		t.Helper()
		routes := b.admin("GET", "/routes", "")["routes"].([]any)
		open := 0
		for _, raw := range routes {
			r := raw.(map[string]any)
			method, path := r["method"].(string), r["path"].(string)
			for strings.Contains(path, "{") {
				path = path[:strings.Index(path, "{")] + "x" + path[strings.Index(path, "}")+1:]
			}
			for _, key := range []string{"", "1b_3z6pmy5xtetzdzv233zw2kslvtkk5j6q7lu2ob32c2lmit5o524q"} {
				status, text := b.do(key, method, path, map[string]string{"POST": "{}", "PATCH": "{}"}[method])
				switch {
				case r["open"] == true:
					open++
					if strings.Contains(text, "canary-model") {
						t.Errorf("%s %s tells a stranger about models: %s", method, path, text)
					}
				case status != 401:
					t.Errorf("%s %s by a stranger: %d %s", method, path, status, text)
				}
			}
			if r["open"] == true && !openPaths[path] {
				t.Errorf("%s %s is open", method, path)
			}
			met[strings.Join(strings.Split(path, "/")[:min(4, strings.Count(path, "/")+1)], "/")] = true
		}
		if len(routes) < 130 || open == 0 {
			t.Errorf("the walk met %d routes, %d open ones", len(routes), open)
		}
		for _, path := range []string{"/v1/files", "/v1/vector_stores", "/vector_stores/x", "/v1/chat/completions", "/admin/v1/extensions", "/admin/v1/keys"} {
			if !met[path] {
				t.Errorf("the walk did not meet %s", path)
			}
		}
	}
	walk()
	b.claim()
	walk()
	for _, path := range []string{"/nothing", "/admin", "/admin/v1/nothing", "/v1/files", "/debug/pprof/", "/.git/config", "/v1/../admin/v1/status"} {
		if status, text := b.do("", "GET", path, ""); status != 401 && status != 404 && status != 301 && status != 307 {
			t.Errorf("GET %s by a stranger: %d %s", path, status, text)
		}
	}
	key, _ := b.key("")
	for _, r := range b.admin("GET", "/routes", "")["routes"].([]any) {
		r := r.(map[string]any)
		if r["part"] != "admin" {
			continue
		}
		path := regexp.MustCompile(`\{[a-z]+\}`).ReplaceAllString(r["path"].(string), "x")
		if status, text := b.do(key, r["method"].(string), path, map[string]string{"POST": "{}", "PATCH": "{}"}[r["method"].(string)]); status != 403 {
			t.Errorf("%v %s by a plain key: %d %s", r["method"], path, status, text)
		}
	}
}

// TestBoxCopied copies a box and brings it back: in place of a claim of another one, and from the command line.
func TestBoxCopied(t *testing.T) {
	model := fmt.Sprintf("models: [{name: small, file: %q, ctx_size: 2048}]\n", smollm2(t))
	first := startBox(t, boxState(t, model))
	first.claim()
	key, _ := first.key("")
	kept := member(t, first.upload(key, "kept.txt", "a document to keep"), "id")
	dir := t.TempDir()
	phrase, file := filepath.Join(dir, "phrase"), filepath.Join(dir, "box.backup")
	if err := os.WriteFile(phrase, []byte("a passphrase of some length\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, error) {
		out, err := exec.Command(binary, args...).CombinedOutput()
		return string(out), err
	}
	if out, err := run("backup", file, "--passphrase-file", phrase, "--socket", filepath.Join(first.state, "admin.sock")); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	if out, err := run("backup", "verify", file, "--passphrase-file", phrase); err != nil || !strings.Contains(out, "is whole") {
		t.Errorf("verify: %v %s", err, out)
	}
	if out, err := run("backup", file, "--passphrase-file", phrase, "--socket", filepath.Join(first.state, "admin.sock")); err == nil {
		t.Errorf("an old copy was written over: %s", out)
	}
	if out, err := run("restore", file, "--passphrase-file", phrase, "--state", first.state, "--replace"); err == nil || !strings.Contains(out, "stop it first") {
		t.Errorf("restoring a running box: %v %s", err, out)
	}

	second := startBox(t, boxState(t, model))
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	send := func(passphrase string, raw []byte) (int, string) {
		var body bytes.Buffer
		form := multipart.NewWriter(&body)
		form.WriteField("code", second.code)
		form.WriteField("passphrase", passphrase)
		part, err := form.CreateFormFile("backup", "box.backup")
		if err != nil {
			t.Fatal(err)
		}
		part.Write(raw)
		form.Close()
		r, err := http.NewRequest("POST", "https://127.0.0.1:"+second.port+"/claim/restore", &body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", form.FormDataContentType())
		res, err := second.client.Do(r)
		if err != nil {
			t.Fatalf("%v\n%s", err, second.log)
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(text)
	}
	if status, text := send("another passphrase", raw); status < 400 {
		t.Errorf("with the wrong passphrase: %d %s", status, text)
	}
	if status, text := send("a passphrase of some length", raw[:len(raw)/2]); status < 400 {
		t.Errorf("half a copy: %d %s", status, text)
	}
	if status, text := send("a passphrase of some length", raw); status >= 300 {
		t.Fatalf("restoring: %d %s\n%s", status, text, second.log)
	}
	for end := time.Now().Add(60 * time.Second); strings.Count(second.log.String(), "1bit appliance: https://") < 2; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the box did not start again\n%s", second.log)
		}
	}

	state := t.TempDir()
	if out, err := run("restore", file, "--passphrase-file", phrase, "--state", state); err != nil || !strings.Contains(out, "restored the state") {
		t.Fatalf("%v %s", err, out)
	}
	if err := os.WriteFile(filepath.Join(state, "claimed-by-test"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	third := startBox(t, state)
	if status, text := third.do(key, "GET", "/v1/files/"+kept+"/content", ""); status != 200 || text != "a document to keep" {
		t.Errorf("the document of the first box at the third: %d %s", status, text)
	}
	if status, text := third.do(key, "GET", "/v1/models", ""); status != 200 || third.code != "" || !strings.Contains(text, `"small"`) {
		t.Errorf("the key of the first box at the third: %d %s", status, text)
	}
}

// TestBoxSwaps serves two models that have room for one, while a third does not fit and a fourth is broken.
func TestBoxSwaps(t *testing.T) {
	file := smollm2(t)
	broken := filepath.Join(t.TempDir(), "broken.gguf")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(broken, raw[:len(raw)/3], 0o600); err != nil {
		t.Fatal(err)
	}
	b := startBox(t, boxState(t, fmt.Sprintf(`
memory: {limit: 520MiB}
models:
  - {name: one, file: %[1]q, ctx_size: 512, parallel: 1}
  - {name: two, file: %[1]q, ctx_size: 512, parallel: 1}
  - {name: vast, file: %[1]q, ctx_size: 1048576, parallel: 1}
  - {name: broken, file: %[2]q, ctx_size: 512, parallel: 1}
`, file, broken)))
	b.claim()
	key, _ := b.key("")
	ask := func(model string) (int, string) {
		return b.do(key, "POST", "/v1/chat/completions", `{"model":"`+model+`","max_tokens":4,"messages":[{"role":"user","content":"Hi"}]}`)
	}
	n := times(4, 40)
	type outcome struct {
		model, text string
		status      int
	}
	outcomes := make(chan outcome, 2*n)
	for i := range 2 * n {
		model := []string{"one", "two"}[i%2]
		go func() {
			status, text := ask(model)
			outcomes <- outcome{model, text, status}
		}()
		if i%4 == 3 {
			if status, text := ask("vast"); status != 507 || !strings.Contains(text, "GiB") {
				t.Errorf("a model that cannot fit: %d %s", status, text)
			}
			if status, text := ask("broken"); status != 503 && status != 400 && status != 500 && status != 502 {
				t.Errorf("a broken model: %d %s", status, text)
			}
		}
	}
	for range 2 * n {
		if o := <-outcomes; o.status != 200 || !strings.Contains(o.text, `"model":"`+o.model+`"`) {
			t.Errorf("a request for %s was lost: %d %s", o.model, o.status, o.text)
		}
	}
	for _, raw := range b.admin("GET", "/models", "")["models"].([]any) {
		m := raw.(map[string]any)
		if m["name"] == "broken" && m["problem"] == "" {
			t.Errorf("nothing is said about the broken model: %v", m)
		}
	}
}
