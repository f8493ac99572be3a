//go:build unix

package main_test

import (
	"bytes"
	"context"
	"encoding/json"
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

func TestDoctorOptions(t *testing.T) {
	for _, c := range []struct {
		arg  string
		code int
		text string
	}{{"-h", 0, "usage: 1bit doctor"}, {"--nope", 2, "unknown option --nope"}, {"json", 2, "unknown option json"}} {
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
