//go:build unix

package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	main "onebit/appliance"
	"onebit/appliance/doctor"
	"onebit/engine"
)

// script writes a program for the shell and returns its path.
func script(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o777); err != nil {
		t.Fatal(err)
	}
	return path
}

// noServers hides what is installed on the machine that the tests run on.
func noServers(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	t.Setenv("PATH", dir)
	for _, name := range []string{
		"ONEBIT_LLAMA_SERVER", "ONEBIT_LEAN_SERVER", "ONEBIT_ZINC", "ONEBIT_DS4", "LEMONADE_MLX_SERVER", "ONEBIT_NPU", "ONEBIT_ONNX_SERVER",
	} {
		t.Setenv(name, "")
	}
	return dir
}

func TestDoctor(t *testing.T) {
	dir := noServers(t)
	server := script(t, filepath.Join(dir, "llama-server"),
		`case "$1" in --version) echo "version: 7 (x)" >&2;; --list-devices) echo "Available devices:"; echo "  Vulkan0: a card";; esac`)
	var out, errs bytes.Buffer
	if code := main.RunDoctor([]string{"--json"}, &out, &errs); code != 0 || errs.Len() > 0 {
		t.Fatalf("status %d, %s", code, errs.String())
	}
	var report doctor.Report
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	for _, want := range []doctor.Device{{Device: engine.CPU, Usable: true}, {Device: engine.Vulkan, Usable: true}, {Device: engine.HRX}} {
		if !slices.ContainsFunc(report.Devices, func(d doctor.Device) bool { return d.Device == want.Device && d.Usable == want.Usable }) {
			t.Errorf("no %+v in %+v", want, report.Devices)
		}
	}
	out.Reset()
	if code := main.RunDoctor(nil, &out, &errs); code != 0 {
		t.Errorf("status %d, %s", code, errs.String())
	}
	if want := server + " (PATH), version: 7 (x): Vulkan0\n"; !strings.Contains(out.String(), want) {
		t.Errorf("no %q in\n%s", want, out.String())
	}
}

// TestDoctorRemotes: of each model that another server runs the doctor says how far it comes, and what to do.
func TestDoctorRemotes(t *testing.T) {
	noServers(t)
	t.Setenv("HOME", t.TempDir())
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer sesame" {
			w.WriteHeader(401)
			return
		}
		fmt.Fprint(w, `{"data":[{"id":"theirs"}]}`)
	}))
	defer server.Close()
	closed := httptest.NewTLSServer(nil)
	closed.Close()
	state := t.TempDir()
	root := filepath.Join(state, "root.pem")
	pemOf := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(root, pemOf, 0o600); err != nil {
		t.Fatal(err)
	}
	configure := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(state, "1bit.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	configure(strings.NewReplacer("URL", server.URL+"/v1", "ROOT", root, "CLOSED", closed.URL).Replace(`models:
  - {name: good, remote: {url: URL, root: ROOT, key: sesame, model: theirs}}
  - {name: odd, remote: {url: URL, root: ROOT, key: sesame}}
  - {name: key, remote: {url: URL, root: ROOT, key: wrong}}
  - {name: strange, remote: {url: URL, key: sesame}}
  - {name: off, remote: {url: CLOSED}}
  - {name: inside, remote: {url: 'https://10.0.0.7/v1'}}
  - {name: away, remote: {url: URL, disabled: true}}
  - {name: local, file: nobodys.gguf}
`))
	run := func() map[string]doctor.Check {
		t.Helper()
		var out, errs bytes.Buffer
		main.RunDoctor([]string{"--state", state, "--json"}, &out, &errs)
		var report doctor.Report
		if err := json.Unmarshal(out.Bytes(), &report); err != nil {
			t.Fatalf("%v in %s%s", err, &out, &errs)
		}
		all := map[string]doctor.Check{}
		for _, c := range report.Checks {
			all[c.Name] = c
		}
		return all
	}
	got, host := run(), server.Listener.Addr().String()
	for name, want := range map[string]doctor.Check{
		"good":    {Status: doctor.OK, Text: host + ", allowed, its certificate is good, it takes the key"},
		"odd":     {Status: doctor.Warn, Text: `does not list the model "odd"`, Remedy: "model:"},
		"key":     {Status: doctor.Miss, Text: "refuses the key (401)", Remedy: "key_file:"},
		"strange": {Status: doctor.Miss, Text: "certificate", Remedy: "root:"},
		"off":     {Status: doctor.Miss, Text: "does not answer", Remedy: "see that the server runs"},
		"inside":  {Status: doctor.Miss, Text: "named in egress.private as host:port", Remedy: "1bit config check"},
		"away":    {Status: doctor.OK, Text: "it is disabled"},
	} {
		c := got["remote "+name]
		if c.Status != want.Status || !strings.Contains(c.Text, want.Text) || !strings.Contains(c.Remedy, want.Remedy) || strings.Contains(c.Text, "sesame") {
			t.Errorf("%s: %+v", name, c)
		}
	}
	if _, ok := got["remote local"]; ok || got["configuration"].Name != "" {
		t.Errorf("%+v", got)
	}
	configure("naem: x\nlisten: {port: x}\n")
	if c := run()["configuration"]; c.Status != doctor.Warn || !strings.Contains(c.Text, "2 mistakes in "+state) {
		t.Errorf("%+v", c)
	}
}

func TestDoctorOptions(t *testing.T) {
	for _, c := range []struct {
		arg  string
		code int
		text string
	}{{"-h", 0, "usage: 1bit doctor"}, {"--nope", 2, "unknown option --nope"}, {"json", 2, `"json" is no option: give a configuration as --config FILE`}} {
		var out, errs bytes.Buffer
		if code := main.RunDoctor([]string{c.arg}, &out, &errs); code != c.code || !strings.Contains(out.String()+errs.String(), c.text) {
			t.Errorf("%s: status %d, %s%s", c.arg, code, out.String(), errs.String())
		}
	}
}

// A server is looked for in this installation, then by the variable, then on PATH.
func TestFindServer(t *testing.T) {
	dir, prefix := noServers(t), t.TempDir()
	if p, err := main.FindServer(prefix, engine.Vulkan); err == nil || !strings.Contains(err.Error(), "no llama-server") {
		t.Errorf("%+v, error %v", p, err)
	}
	if p, err := main.FindServer(prefix, engine.CPU); err == nil {
		t.Errorf("for the cpu: %+v", p)
	}
	onPath := script(t, filepath.Join(dir, "llama-server"), "")
	named := script(t, filepath.Join(dir, "other", "server"), "")
	check := func(d engine.Device, path, from string) {
		t.Helper()
		if p, err := main.FindServer(prefix, d); err != nil || p.Path != path || p.From != from {
			t.Errorf("for %s: %+v, error %v", d, p, err)
		}
	}
	check(engine.Vulkan, onPath, "PATH")
	if p, err := main.FindServer(prefix, engine.ROCm); err == nil {
		t.Errorf("rocm's server was looked for on PATH: %+v", p)
	}
	t.Setenv("ONEBIT_LLAMA_SERVER", named)
	check(engine.Vulkan, named, "$ONEBIT_LLAMA_SERVER")
	ours := script(t, filepath.Join(prefix, "lib", "1bit", "vulkan", "llama-server"), "")
	check(engine.Vulkan, ours, "part of this installation")
	check(engine.HRX, named, "$ONEBIT_LLAMA_SERVER")
	t.Setenv("ONEBIT_LLAMA_SERVER", filepath.Join(dir, "missing"))
	if p, err := main.FindServer(prefix, engine.HRX); err == nil || !strings.Contains(err.Error(), "ONEBIT_LLAMA_SERVER names") {
		t.Errorf("a variable that names nothing: %+v, error %v", p, err)
	}
}

func TestRunCall(t *testing.T) {
	dir := t.TempDir()
	path := script(t, filepath.Join(dir, "echo"), `echo "$1 $X"; echo err >&2; exit 3`)
	out, err := main.RunCall(t.Context(), doctor.Call{Path: path, Args: []string{"a b"}, Env: []string{"X=y"}})
	if out != "a b y\nerr\n" || err == nil {
		t.Errorf("printed %q, error %v", out, err)
	}
	endless := script(t, filepath.Join(dir, "endless"), `while :; do echo 0123456789012345678901234567890123456789012345678901234567890123456789; done`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := main.RunCall(ctx, doctor.Call{Path: endless}); err == nil {
		t.Error("a program that was given up on has no error")
	}
}
