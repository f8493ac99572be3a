package main_test

import (
	"bytes"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	main "onebit/appliance"
	"onebit/extensions/abi"
	"onebit/extensions/wasm/wasmtest"
)

// answering writes a module that logs and answers words to laya_route, with its manifest, and returns its path.
func answering(t *testing.T, words, manifest string, change func(m *wasmtest.Module)) string {
	t.Helper()
	m := &wasmtest.Module{}
	log := m.Import(abi.HostModule, "log", "iii", "")
	if change != nil {
		change(m)
	}
	m.Memory(3, 3)
	m.Func(abi.Marker, "", "", "")
	m.Func(abi.Buffer, "i", "i", "", wasmtest.Get(0), wasmtest.I32(131072), wasmtest.Op(0x4d), wasmtest.If(wasmtest.I32(65536), wasmtest.Op(0x0f)), wasmtest.I32(0))
	m.Func(abi.Route, "ii", "l", "", wasmtest.I32(1), wasmtest.I32(2048), wasmtest.I32(6), wasmtest.Call(log), wasmtest.I64(1024<<32|int64(len(words))))
	m.Data(1024, []byte(words))
	m.Data(2048, []byte("\x1b[2Jhi"))
	file := filepath.Join(t.TempDir(), "m.wasm")
	if err := os.WriteFile(file, m.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if manifest != "" {
		if err := os.WriteFile(filepath.Join(filepath.Dir(file), "m.json"), []byte(manifest), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

const extManifest = `{"name":"m","version":"1","abi":1,"kind":"policy","samples":[{"request":{"candidates":[{"id":"small"}]},"decision":{"action":"route","candidates":["small"]}}]}`

// ext runs `1bit ext`.
func ext(t *testing.T, stdin string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = main.Run(t.Context(), strings.NewReader(stdin), &out, &errs, append([]string{"ext"}, args...)...)
	return status, out.String(), errs.String()
}

func TestExt(t *testing.T) {
	const routes = `{"v":1,"action":"route","candidates":["small"]}`
	good := answering(t, routes, extManifest, nil)
	nobody := answering(t, routes, "", nil)
	wrong := answering(t, routes, `{"name":"M","version":"1","abi":1,"kind":"policy"}`, nil)
	unoffered := answering(t, `{"v":1,"action":"route","candidates":["x"]}`, extManifest, nil)
	asking := answering(t, routes, extManifest, func(m *wasmtest.Module) { m.Import(abi.HostModule, "now_ms", "", "l") })
	request := filepath.Join(t.TempDir(), "r.json")
	if err := os.WriteFile(request, []byte(`{"candidates":[{"id":"small"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	marked := filepath.Join(t.TempDir(), "marked.json")
	if err := os.WriteFile(marked, []byte("\ufeff"+extManifest), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, stdin  string
		args         []string
		status       int
		stdout, errs string // part of them
	}{
		{"usage", "", nil, 2, "", "usage: 1bit ext new"},
		{"help", "", []string{"-h"}, 0, "usage: 1bit ext new", ""},
		{"an unknown word", "", []string{"fly"}, 2, "", "usage"},
		{"check", "", []string{"check", good}, 0, "a box would take it", ""},
		{"check says the budget", "", []string{"check", good}, 0, " of 50000000\n", ""},
		{"check says the stack", "", []string{"check", good}, 0, " of 131072 slots\n", ""},
		{"no manifest", "", []string{"check", nobody}, 1, "", "--manifest"},
		{"a manifest elsewhere", "", []string{"check", nobody, "--manifest", strings.TrimSuffix(good, "wasm") + "json"}, 0, "a box would take it", ""},
		{"a wrong manifest", "", []string{"check", wrong}, 1, "", "lower-case letters"},
		{"a capability that is not asked for", "", []string{"check", asking}, 1, "", "now"},
		{"no module", "", []string{"check", request, "--manifest", strings.TrimSuffix(good, "wasm") + "json"}, 1, "", "module refused"},
		{"no such file", "", []string{"check", "nowhere.wasm"}, 1, "", "nowhere.wasm"},
		{"a configuration that nobody takes", "", []string{"check", good, "--config", request}, 1, "", "laya_configure"},
		{"run a prompt", "", []string{"run", good, "--prompt", "hello"}, 0, routes, "units"},
		{"the log does not reach the terminal as it is", "", []string{"run", good, "--prompt", "hello"}, 0, "", `log info   "\x1b[2Jhi"`},
		{"run a request", "", []string{"run", "--request", request, good}, 0, routes, "units"},
		{"run from standard input", `{"candidates":[{"id":"small"}]}`, []string{"run", "--request", "-", good}, 0, routes, "units"},
		{"a mistake in a request", `{"candidate":[]}`, []string{"run", "--request", "-", good}, 1, "", `unknown field "candidate"`},
		{"neither", "", []string{"run", good}, 2, "", "--request and --prompt"},
		{"a request with an editor's mark", "\ufeff" + `{"candidates":[{"id":"small"}]}`, []string{"run", "--request", "-", good}, 0, routes, "units"},
		{"a request in UTF-16", "\xff\xfe{\x00}\x00", []string{"run", "--request", "-", good}, 1, "", "save it as UTF-8"},
		{"a manifest with an editor's mark", "", []string{"check", nobody, "--manifest", marked}, 0, "a box would take it", ""},
		{"a function that it lacks", "", []string{"run", good, "--prompt", "x", "--classify"}, 1, "", "it has no laya_classify"},
		{"a void decision", "", []string{"run", unoffered, "--prompt", "x"}, 1, "", `"x"`},
		{"test", "", []string{"test", unoffered}, 1, "FAIL sample 1", "tests failed"},
		{"a language that is not there", "", []string{"new", "cobol", "x"}, 2, "", "assemblyscript, c, go, rust"},
		{"a name that no module has", "", []string{"new", "go", filepath.Join(t.TempDir(), "My Policy")}, 1, "", "lower-case letters"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			status, out, errs := ext(t, tt.stdin, tt.args...)
			if status != tt.status || !strings.Contains(out, tt.stdout) || !strings.Contains(errs, tt.errs) {
				t.Errorf("status %d\n%s\n%s", status, out, errs)
			}
			if strings.Contains(out+errs, "\x1b") {
				t.Error("a control character of the module is printed")
			}
		})
	}
}

// TestPushMarked: what is sent of files that somebody wrote is without the mark of an editor, and what is in UTF-16 is not sent.
func TestPushMarked(t *testing.T) {
	dir, err := os.MkdirTemp("", "1bit") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for name, text := range map[string]string{"m.wasm": "\xff\xfe", "m.json": "\ufeff{}", "c.json": "\ufeff[]", "wide.json": "\xff\xfe{\x00"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	sent := map[string]string{}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		in, err := r.MultipartReader()
		if err != nil {
			b, _ := io.ReadAll(r.Body)
			sent["body"] = string(b)
			return
		}
		for part, err := in.NextPart(); err == nil; part, err = in.NextPart() {
			b, _ := io.ReadAll(part)
			sent[part.FormName()] = string(b)
		}
	})}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	t.Setenv("ONEBIT_SOCKET", filepath.Join(dir, "s"))
	at := func(name string) string { return filepath.Join(dir, name) }
	ext(t, "", "push", at("m.wasm"), "--config", at("c.json"))
	if want := (map[string]string{"module": "\xff\xfe", "manifest": "{}", "config": "[]"}); !maps.Equal(sent, want) {
		t.Errorf("sent %q", sent)
	}
	clear(sent)
	for _, args := range [][]string{{"push", at("m.wasm"), "--manifest", at("wide.json")}, {"activate", "m", "policy", "--config", at("wide.json")}} {
		if status, _, errs := ext(t, "", args...); status != 1 || !strings.Contains(errs, "save it as UTF-8") || len(sent) > 0 {
			t.Errorf("%q: status %d, %s, sent %q", args, status, errs, sent)
		}
	}
	if ext(t, "", "activate", "m", "policy", "--config", at("m.json")); !strings.Contains(sent["body"], `"config":{}`) {
		t.Errorf("sent %q", sent)
	}
}

func TestExtNew(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "my-policy")
	for n, want := range []int{0, 1} { // the second time the folder is not empty
		if status, out, errs := ext(t, "", "new", "c", dir); status != want {
			t.Fatalf("run %d: status %d\n%s\n%s", n+1, status, out, errs)
		}
	}
	for _, f := range []string{"policy.c", "laya.h", "my-policy.json", "Makefile", "README.md"} {
		if b, err := os.ReadFile(filepath.Join(dir, f)); err != nil || len(b) == 0 {
			t.Errorf("%s: %d bytes, %v", f, len(b), err)
		}
	}
}
