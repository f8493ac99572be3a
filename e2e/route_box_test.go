//go:build unix

package e2e_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestBoxRoutePolicy routes in a box by a policy file: bound before the first request, read again when it changes, kept when the file is
// wrong, left alone where an admin has bound another, and gone with its line.
func TestBoxRoutePolicy(t *testing.T) {
	st := newStage(t)
	t.Setenv("STANDIN_LOG", filepath.Join(st.dir, "log"))
	file := st.file("policy.json", `{"rules": [{"name": "first", "prefer": ["large"]}]}`)
	models := fmt.Sprintf("programs: {llama_server: %q}\nmodels: [{name: small, file: %q, device: vulkan}, {name: large, file: %q, device: vulkan}]\n",
		standin(t, "llama-server"), st.gguf("small.gguf", nil), st.gguf("large.gguf", nil))
	state := boxState(t, models)
	b := startBox(t, state)
	b.claim()
	key, _ := b.key("")
	b.stop()
	if err := os.WriteFile(filepath.Join(state, "1bit.yaml"), []byte(models+fmt.Sprintf("extensions: {laya: true, route_policy: %q}\n", file)), 0o600); err != nil {
		t.Fatal(err)
	}
	b = startBox(t, state)
	n := 0
	route := func() string {
		n++
		res := b.send(key, "POST", "/v1/chat/completions", fmt.Sprintf(`{"model":"auto","messages":[{"role":"user","content":"conversation %d"}]}`, n))
		defer res.Body.Close()
		var body bytes.Buffer
		body.ReadFrom(res.Body)
		model := "none"
		for _, m := range []string{"small", "large"} {
			if strings.Contains(body.String(), `"model":"`+m+`"`) {
				model = m
			}
		}
		return model + ": " + res.Header.Get("X-1bit-Route-Why")
	}
	until := func(what string, model, why string) {
		t.Helper()
		got := ""
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
			if got = route(); strings.HasPrefix(got, model+": ") && strings.Contains(got, why) {
				return
			}
		}
		t.Fatalf("%s: %s\n%s", what, got, b.log)
	}
	if got := route(); !strings.HasPrefix(got, "large: ") || !strings.Contains(got, "rule first") {
		t.Errorf("the first request: %s", got)
	}
	until("at the start", "large", "rule first")
	os.WriteFile(file, []byte(`{"rules": [{"name": "second", "prefer": ["larg", "small"]}]}`), 0o600)
	until("changed", "small", "rule second")
	if status := fmt.Sprint(b.admin("GET", "/status", "")); !strings.Contains(status, "names larg: no model here") {
		t.Errorf("the status does not say that there is no such name: %s", status)
	}
	os.WriteFile(file, []byte(`{"rules": [{"name": "third", "preffer": ["large"]}]}`), 0o600)
	for end := time.Now().Add(time.Minute); !strings.Contains(b.log.String(), `unknown or repeated member \"preffer\"`) && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
	}
	if status := fmt.Sprint(b.admin("GET", "/status", "")); !strings.Contains(status, "preffer") {
		t.Errorf("the status does not say that the file is wrong: %s", status)
	}
	until("a wrong file", "small", "rule second")
	os.WriteFile(file, []byte(`{"rules": [{"name": "fourth", "prefer": ["large"]}]}`), 0o600)
	until("mended", "large", "rule fourth")
	b.admin("POST", "/bindings/policy/activate", `{"module":"policy","config":{"rules":[{"name":"by hand","prefer":["small"]}]}}`)
	until("an admin's own", "small", "rule by hand")
	os.WriteFile(file, []byte(`{"rules": [{"name": "fifth", "prefer": ["large"]}]}`), 0o600)
	for end := time.Now().Add(30 * time.Second); strings.Count(b.log.String(), "read the configuration") < 3 && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
	}
	until("an admin's own after a reload", "small", "rule by hand")
	b.stop()
	os.WriteFile(file, []byte(`{`), 0o600)
	code, _, errs := command(t, 30*time.Second, "appliance", "--state", state, "--port", "0", "--http-port", "0")
	if code != 1 || !strings.Contains(errs, "extensions.route_policy: ") || !strings.Contains(errs, "it is not JSON") {
		t.Errorf("a start with a wrong file: exit %d, %s", code, errs)
	}
}

// TestBoxRoutePolicyGoes: without its line the built-in policy decides nothing any more.
func TestBoxRoutePolicyGoes(t *testing.T) {
	st := newStage(t)
	file := st.file("policy.json", `{"rules": [{"name": "first", "prefer": ["large"]}]}`)
	models := fmt.Sprintf("programs: {llama_server: %q}\nmodels: [{name: small, file: %q, device: vulkan}]\n", standin(t, "llama-server"), st.gguf("small.gguf", nil))
	state := boxState(t, models+fmt.Sprintf("extensions: {route_policy: %q}\n", file))
	b := startBox(t, state)
	b.claim()
	listed := func(want bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
			got := fmt.Sprint(b.admin("GET", "/extensions", ""))
			if strings.Contains(got, "module:policy@") == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("want bound %v: %s", want, got)
			}
		}
	}
	listed(true)
	os.WriteFile(filepath.Join(state, "1bit.yaml"), []byte(models), 0o600)
	listed(false)
}

// TestBoxLayaModel classifies by a decision model on a server, in place of the built-in classifier.
func TestBoxLayaModel(t *testing.T) {
	st := newStage(t)
	decides := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/systemone" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		fmt.Fprint(w, `{"answers":{"cls":{"type":"choice","choice":"prose","confidence":0.37}}}`)
	}))
	defer decides.Close()
	b := startBox(t, boxState(t, fmt.Sprintf("programs: {llama_server: %q}\nmodels: [{name: small, file: %q, device: vulkan}]\negress: {private: [%q]}\nextensions: {laya: true, laya_model: %q}\n",
		standin(t, "llama-server"), st.gguf("small.gguf", nil), strings.TrimPrefix(decides.URL, "http://"), decides.URL)))
	b.claim()
	key, _ := b.key("")
	for text, want := range map[string]string{"write a python function": "prose 0.37 vulkan", strings.Repeat("x", 1024): "long_doc 1.00 vulkan"} {
		res := b.send(key, "POST", "/v1/chat/completions", fmt.Sprintf(`{"model":"auto","messages":[{"role":"user","content":%q}]}`, text))
		res.Body.Close()
		if got := res.Header.Get("X-1bit-Route"); got != want {
			t.Errorf("%.20s: %q, want %q; %s", text, got, want, res.Header.Get("X-1bit-Route-Why"))
		}
	}
}

// TestRouteCommand asks from the command line what would be chosen.
func TestRouteCommand(t *testing.T) {
	st := newStage(t)
	file := st.file("policy.json", byDevice)
	for name, c := range map[string]struct {
		args []string
		in   string
		want string
	}{
		"the built-in policy":  {[]string{"--state", "write a python function that checks if a string is a palindrome"}, "", "code 0.?? hrx\n"},
		"no hrx":               {[]string{"--state", "what is the capital of Portugal", "--devices", "zinc,cpu"}, "", "short 0.?? zinc\n"},
		"a policy":             {[]string{"--state", "explain the causes of the french revolution", "--policy", file}, "", "prose 0.?? vulkan\n"},
		"from standard input":  {[]string{"--state", "-", "--policy", file}, strings.Repeat("a long text ", 100), "long_doc 1.00 rocm\n"},
		"the class alone":      {[]string{"--classify", "--state", "regex for emails"}, "", "code 0.??\n"},
		"an unusual character": {[]string{"--classify", "--state", "写一首关于春天的诗"}, "", "prose 0.??\n"},
	} {
		cmd := exec.Command(binary, append([]string{"route"}, c.args...)...)
		cmd.Stdin = strings.NewReader(c.in)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		if ok, _ := filepath.Match(c.want, out.String()); err != nil || !ok || !strings.Contains(errs.String(), "classified in ") {
			t.Errorf("%s: %v, %q, %q", name, err, out.String(), errs.String())
		}
	}
	code, out, errs := command(t, 30*time.Second, "route", "--state", "write a python function", "--devices", "hrx,cpu", "--policy", st.file("odd.json", `{"classes":{"code":{"device":"hrxx"}},"default":"cpu"}`))
	if code != 0 || !strings.HasSuffix(out, " cpu\n") || !strings.Contains(errs, "the policy names hrxx: no device here is called so") {
		t.Errorf("a name that nobody has: exit %d, %q, %q", code, out, errs)
	}
	for want, args := range map[string][]string{
		"--state is needed":      {},
		"the text is empty":      {"--state", " "},
		"there is no device":     {"--state", "x", "--devices", "warp"},
		"it cannot be read":      {"--state", "x", "--policy", "/does/not/exist"},
		"there is no file":       {"--state", "x", "--laya-model", "/does/not/exist.gguf"},
		"not defined: -surprise": {"--state", "x", "--surprise"},
	} {
		if code, _, errs := command(t, 30*time.Second, append([]string{"route"}, args...)...); code == 0 || !strings.Contains(errs, want) {
			t.Errorf("%v: exit %d, %s", args, code, errs)
		}
	}
	st.daemon()
	cmd := exec.Command(binary, "route", "--classify", "--laya-model", filepath.Join(st.dir, "laya"), "--state", "code, please")
	cmd.Env = append(os.Environ(), st.env...)
	if out, err := cmd.Output(); err != nil || string(out) != "code 0.80\n" {
		t.Errorf("the daemon: %q, %v", out, err)
	}
}
