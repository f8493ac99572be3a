//go:build unix

package e2e_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// leb writes a number as WebAssembly does; signed for constants.
func leb(n int64, signed bool) (b []byte) {
	for {
		low := byte(n & 0x7f)
		n >>= 7
		if !signed && n == 0 || signed && (n == 0 && low&0x40 == 0 || n == -1 && low&0x40 != 0) {
			return append(b, low)
		}
		b = append(b, low|0x80)
	}
}

func sized(b ...[]byte) []byte {
	all := bytes.Join(b, nil)
	return append(leb(int64(len(all)), false), all...)
}

func listed(items ...[]byte) []byte {
	return append(leb(int64(len(items)), false), bytes.Join(items, nil)...)
}

// policyModule makes a module that answers words where the request offers a candidate whose id begins with la, and has
// no opinion elsewhere. With always it answers in every case.
func policyModule(words string, always bool) []byte { return moduleWhere(`"id":"la`, words, always) }

// moduleWhere does so where the request has eight bytes in it.
func moduleWhere(mark, words string, always bool) []byte {
	const buffer, answer = 4096, 1024
	i32 := func(n int64) []byte { return append([]byte{0x41}, leb(n, true)...) }
	packed := append([]byte{0x42}, leb(answer<<32|int64(len(words)), true)...)
	section := func(id byte, b []byte) []byte { return append([]byte{id}, sized(b)...) }
	name := func(s string) []byte { return sized([]byte(s)) }
	export := func(s string, kind, index byte) []byte { return append(name(s), kind, index) }
	body := func(locals []byte, code ...[]byte) []byte { return sized(locals, bytes.Join(code, nil), []byte{0x0b}) }
	var wanted int64 // the eight bytes
	for i, c := range []byte(mark) {
		wanted |= int64(c) << (8 * i)
	}
	route := packed
	if !always {
		route = bytes.Join([][]byte{
			{0x20, 0, 0x20, 1, 0x6a}, i32(8), {0x6b, 0x21, 2}, // end = address + length - 8
			{0x02, 0x40, 0x03, 0x40},                   // block, loop
			{0x20, 0, 0x20, 2, 0x4b, 0x0d, 1},          // if address > end, leave
			{0x20, 0, 0x29, 0, 0},                      // eight bytes at address
			append([]byte{0x42}, leb(wanted, true)...), // are they those?
			{0x51, 0x04, 0x40}, packed, {0x0f, 0x0b},   // then return
			{0x20, 0}, i32(1), {0x6a, 0x21, 0}, {0x0c, 0, 0x0b, 0x0b}, // the next address
			{0x42, 0},
		}, nil)
	}
	return bytes.Join([][]byte{
		[]byte("\x00asm\x01\x00\x00\x00"),
		section(1, listed([]byte{0x60, 0, 0}, []byte{0x60, 1, 0x7f, 1, 0x7f}, []byte{0x60, 2, 0x7f, 0x7f, 1, 0x7e})),
		section(3, listed([]byte{0}, []byte{1}, []byte{2})),
		section(5, listed([]byte{1, 2, 16})),
		section(7, listed(export("memory", 2, 0), export("laya_abi_v1", 0, 0), export("laya_buffer", 0, 1), export("laya_route", 0, 2))),
		section(10, listed(body([]byte{0}), body([]byte{0}, i32(buffer)), body([]byte{1, 1, 0x7f}, route))),
		section(11, listed(append(append(append([]byte{0}, i32(answer)...), 0x0b), sized([]byte(words))...))),
	}, nil)
}

// push uploads a module and returns the status, the answer and the hash.
func (b *appliance) push(module []byte, manifest string) (status int, answer, hash string) {
	b.t.Helper()
	var body bytes.Buffer
	f := multipart.NewWriter(&body)
	for _, part := range []struct {
		name  string
		bytes []byte
	}{{"manifest", []byte(manifest)}, {"module", module}} {
		w, err := f.CreateFormField(part.name)
		if err != nil {
			b.t.Fatal(err)
		}
		w.Write(part.bytes)
	}
	f.Close()
	sum := sha256.Sum256(module)
	hash = hex.EncodeToString(sum[:])
	r, err := http.NewRequest("POST", "http://box/admin/v1/extensions", &body)
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Content-Type", f.FormDataContentType())
	r.Header.Set("X-1bit-Sha256", hash)
	res, err := b.socket.Do(r)
	if err != nil {
		b.t.Fatalf("uploading: %v\n%s", err, b.log)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return res.StatusCode, string(text), hash
}

func manifestOf(name, version string) string {
	return fmt.Sprintf(`{"name":%q,"version":%q,"abi":1,"kind":"policy"}`, name, version)
}

// toLarge is what a module answers that prefers the model large.
func toLarge(generation string) string {
	return fmt.Sprintf(`{"v":1,"action":"route","candidates":["large"],"headers":{"x-laya-generation":%q},"reason":"large is better"}`, generation)
}

// twoModels is the configuration of a box with two chat models, which are the same file.
func twoModels(t *testing.T) string {
	file := smollm2(t)
	return fmt.Sprintf("models: [{name: small, file: %q, ctx_size: 2048, parallel: 4}, {name: large, file: %q, ctx_size: 2048, parallel: 4}]\n", file, file)
}

// choose asks for a few words in a conversation and returns who answered, and the headers.
func (b *appliance) choose(key, model, conversation string) (string, http.Header) {
	b.t.Helper()
	res := b.send(key, "POST", "/v1/chat/completions", fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%q}],"max_tokens":2,"temperature":0}`, model, conversation))
	defer res.Body.Close()
	var answer struct{ Model string }
	text, err := io.ReadAll(res.Body)
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err != nil || res.StatusCode != 200 {
		b.t.Fatalf("a chat in %q: %d %s %v\n%s", conversation, res.StatusCode, text, err, b.log)
	}
	return answer.Model, res.Header
}

// TestExtensions takes a module from upload to active and back, over a restart, a kill and a damaged file.
func TestExtensions(t *testing.T) {
	state := boxState(t, twoModels(t))
	b := startBox(t, state)
	b.claim()
	key, _ := b.key("")
	if model, h := b.choose(key, "auto", "before"); model != "small" || h.Get("X-1bit-Route") != "none 0.00 cpu" || h.Get("X-1bit-Route-Why") != "default" {
		t.Errorf("without a module: %s, %v", model, h)
	}
	for name, bad := range map[string]struct {
		module   []byte
		manifest string
		says     string
	}{
		"no module":        {[]byte("#!/bin/sh\nexec sh"), manifestOf("m", "1"), "this is not WebAssembly"},
		"counts that lie":  {[]byte("\x00asm\x01\x00\x00\x00\x01\x05\xff\xff\xff\xff\x0f"), manifestOf("m", "1"), "module refused: type"},
		"no manifest":      {policyModule("", true), "", "manifest"},
		"a void answer":    {policyModule(`{"v":1,"action":"route","candidates":["elsewhere"]}`, true), manifestOf("m", "1"), "hostile request 1"},
		"a sample missed":  {policyModule(toLarge("1"), false), strings.TrimSuffix(manifestOf("m", "1"), "}") + `,"samples":[{"request":{"v":1,"candidates":[{"id":"large"}]},"decision":{"v":1,"action":"reject"}}]}`, "sample 1"},
		"more than a page": {append(policyModule("", true), make([]byte, 9<<20)...), manifestOf("m", "1"), "bytes"},
	} {
		if status, answer, _ := b.push(bad.module, bad.manifest); status != 422 || !strings.Contains(answer, bad.says) {
			t.Errorf("%s: %d %s", name, status, answer)
		}
	}
	status, answer, hash := b.push(policyModule(toLarge("1"), false), manifestOf("larger", "1.0.0"))
	if status != 201 || !strings.Contains(answer, `"state": "ready"`) || !strings.Contains(answer, hash) {
		t.Fatalf("uploading: %d %s\n%s", status, answer, b.log)
	}
	if model, _ := b.choose(key, "auto", "uploaded"); model != "small" {
		t.Errorf("a module that is not bound decides for %s", model)
	}
	b.admin("POST", "/bindings/policy/activate", `{"module":"larger"}`)
	why := "module=larger@" + hash[:8] + "; large is better"
	if model, h := b.choose(key, "", "active"); model != "large" || h.Get("X-1bit-Route-Why") != why || h.Get("X-Laya-Generation") != "1" || h.Get("X-1bit-Route") != "none 0.00 cpu" {
		t.Errorf("active: %s, %v", model, h)
	}
	if model, h := b.choose(key, "small", "active"); model != "small" || h.Get("X-1bit-Route-Why") != "" {
		t.Errorf("a model that is named: %s, %v", model, h)
	}
	if model, h := b.choose(key, "auto", "before"); model != "small" || h.Get("X-1bit-Route-Why") != "default; kept" {
		t.Errorf("a conversation that had begun: %s, %v", model, h)
	}
	narrow, _ := b.key(`,"models":["small"]`)
	if model, h := b.choose(narrow, "auto", "narrow"); model != "small" || !strings.HasSuffix(h.Get("X-1bit-Route-Why"), "abstain") {
		t.Errorf("a key for one model: %s, %v", model, h)
	}
	if _, list := b.do(key, "GET", "/v1/models", ""); !strings.Contains(list, `"id":"auto"`) {
		t.Errorf("the list lacks auto: %s", list)
	}
	seats := fmt.Sprint(b.admin("GET", "/extensions", "")["bindings"])
	if !strings.Contains(seats, "stage:active") || !strings.Contains(seats, "causes:map[]") {
		t.Errorf("bindings: %s", seats)
	}
	b.admin("POST", "/bindings/policy/rollback", "")
	if model, h := b.choose(key, "auto", "back"); model != "small" || h.Get("X-1bit-Route-Why") != "default" {
		t.Errorf("after going back: %s, %v", model, h)
	}
	b.admin("POST", "/bindings/policy/rollback", "")
	bound := func(when string) {
		t.Helper()
		n := 0
		b.soon("a choice of the policy "+when, func() bool { // whose time for one is short: on a busy machine it may miss the first
			n++
			model, h := b.choose(key, "auto", fmt.Sprintf("%s, %d", when, n))
			return model == "large" && h.Get("X-1bit-Route-Why") == why
		})
	}
	for _, end := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		b.cmd.Process.Signal(end)
		<-b.done
		if end == syscall.SIGKILL { // what was compiled can be made again
			if err := os.RemoveAll(filepath.Join(state, "extensions", "compiled")); err != nil {
				t.Fatal(err)
			}
		}
		b = startBox(t, state)
		bound("after " + end.String())
	}
	b.cmd.Process.Signal(syscall.SIGTERM)
	<-b.done
	file := filepath.Join(state, "extensions", "modules", hash+".wasm")
	if err := os.WriteFile(file, []byte("rotten"), 0o600); err != nil {
		t.Fatal(err)
	}
	b = startBox(t, state)
	bound("with a damaged file")
	if !b.log.says("put the file of a module back", 1) {
		t.Errorf("with a damaged file\n%s", b.log)
	}
	b.cmd.Process.Signal(syscall.SIGTERM)
	<-b.done
	// now a signature is asked for, which nobody made
	b = startBox(t, state, "--set", "extensions.signatures=required", "--set", "extensions.trusted=RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3")
	if model, h := b.choose(key, "auto", "unsigned"); model != "small" || h.Get("X-1bit-Route-Why") != "default; module=larger@"+hash[:8]+"; error=absent" {
		t.Errorf("without a signature: %s, %v", model, h)
	}
	if problems := fmt.Sprint(b.admin("GET", "/status", "")["problems"]); !strings.Contains(problems, "larger@"+hash[:8]) || !strings.Contains(problems, "not signed") {
		t.Errorf("the status says %s", problems)
	}
	log := fmt.Sprint(b.admin("GET", "/extensions/log", "")["events"])
	for _, action := range []string{"refuse", "upload", "activate", "rollback"} {
		if !strings.Contains(log, "action:"+action) {
			t.Errorf("the log lacks %s: %s", action, log)
		}
	}
}

// TestExtensionsUnderLoad uploads, activates and goes back while clients stream. No request fails, and no conversation sees
// two modules. ONEBIT_ALL makes it 50 changes and 32 clients.
func TestExtensionsUnderLoad(t *testing.T) {
	changes, clients := 8, 6
	if os.Getenv("ONEBIT_ALL") != "" {
		changes, clients = 50, 32
	}
	b := startBox(t, boxState(t, twoModels(t)))
	b.claim()
	key, _ := b.key("")
	b.choose(key, "small", "warm")
	b.choose(key, "large", "warm")
	var group sync.WaitGroup
	var requests, conversations, failures atomic.Int64
	done := make(chan struct{})
	for n := range clients {
		group.Go(func() {
			for c := 0; ; c++ {
				select {
				case <-done:
					return
				default:
				}
				conversations.Add(1)
				was := ""
				for turn := range 4 {
					got, err := b.turn(key, fmt.Sprintf("%d-%d", n, c), turn)
					requests.Add(1)
					if err == nil && turn > 0 && got != was {
						err = fmt.Errorf("turn %d was decided by %q, the one before by %q", turn, got, was)
					}
					if err != nil && failures.Add(1) < 4 {
						t.Errorf("client %d, conversation %d: %v", n, c, err)
					}
					was = got
				}
			}
		})
	}
	for i := range changes {
		name := fmt.Sprintf("m%d", i)
		status, answer, _ := b.push(policyModule(toLarge(name), false), manifestOf(name, "1.0.0"))
		if status != 201 {
			t.Fatalf("uploading %s: %d %s\n%s", name, status, answer, b.log)
		}
		b.admin("POST", "/bindings/policy/activate", fmt.Sprintf(`{"module":%q}`, name))
		if i%2 == 1 {
			b.admin("POST", "/bindings/policy/rollback", "")
		}
	}
	time.Sleep(time.Second)
	close(done)
	group.Wait()
	t.Logf("%d uploads and activations, %d rollbacks; %d conversations, %d requests, %d failures", changes, changes/2, conversations.Load(), requests.Load(), failures.Load())
	if failures.Load() > 0 {
		t.Errorf("%d of %d requests failed\n%s", failures.Load(), requests.Load(), b.log)
	}
}

// turn streams one turn of a conversation and returns the generation of the module that decided.
func (b *appliance) turn(key, session string, turn int) (string, error) {
	body := fmt.Sprintf(`{"model":"auto","stream":true,"max_tokens":3,"messages":[{"role":"user","content":"Say %d."}]}`, turn)
	r, err := http.NewRequest("POST", "https://127.0.0.1:"+b.port+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("X-Session-Id", session)
	res, err := b.client.Do(r)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 200 || !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
		return "", fmt.Errorf("%d %s: %w", res.StatusCode, text, err)
	}
	// on a busy machine a module may be late: then the default policy decides, for the whole conversation
	why := res.Header.Get("X-1bit-Route-Why")
	if strings.Contains(why, "error=") && !strings.Contains(why, "error=timeout") && !strings.Contains(why, "error=breaker") {
		return "", fmt.Errorf("the module failed: %s", why)
	}
	return res.Header.Get("X-Laya-Generation"), nil
}

// TestExtCommands goes the same way by the command line.
func TestExtCommands(t *testing.T) {
	b := startBox(t, boxState(t, twoModels(t)))
	b.claim()
	dir := t.TempDir()
	run := func(want int, args ...string) string {
		t.Helper()
		cmd := exec.Command(binary, append([]string{"ext"}, args...)...)
		cmd.Env = append(os.Environ(), "ONEBIT_SOCKET="+filepath.Join(b.state, "admin.sock"))
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != want {
			t.Fatalf("1bit ext %v: %v\n%s\n%s", args, err, out, b.log)
		}
		return string(out)
	}
	file := filepath.Join(dir, "larger.wasm")
	for name, content := range map[string][]byte{
		"larger.wasm": policyModule(toLarge("1"), false), "larger.json": []byte(manifestOf("larger", "1.0.0")), "broken.wasm": []byte("no"), "config.json": []byte(`{}`),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out := run(1, "push", filepath.Join(dir, "broken.wasm")); !strings.Contains(out, "manifest") {
		t.Errorf("pushing what is no module: %s", out)
	}
	if out := run(0, "push", file, "--config", filepath.Join(dir, "config.json")); !strings.Contains(out, "larger 1.0.0 is ready") {
		t.Errorf("push: %s", out)
	}
	if out := run(0, "list"); !strings.Contains(out, "ready") {
		t.Errorf("list: %s", out)
	}
	run(1, "activate", "nobody")
	run(1, "activate")
	run(2, "shadow")
	run(0, "shadow", "larger")
	run(1, "rm", "larger")
	if out := run(0, "list"); !strings.Contains(out, "shadow") {
		t.Errorf("list: %s", out)
	}
	run(0, "activate", "--percent", "5")
	run(0, "activate", "policy", "--max-errors", "0.5", "--on-error", "reject")
	if out := run(0, "list"); !strings.Contains(out, "active  larger@") {
		t.Errorf("list: %s", out)
	}
	run(0, "rollback")
	run(0, "unbind", "policy")
	run(0, "rm", "larger@1.0.0")
	log := run(0, "log")
	for _, action := range []string{"refuse", "upload", "shadow", "canary", "activate", "rollback", "unbind", "delete"} {
		if !strings.Contains(log, "  "+action+"  ") {
			t.Errorf("the log lacks %s:\n%s", action, log)
		}
	}
}
