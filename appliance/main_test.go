package main_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	main "onebit/appliance"
	"onebit/engine/backendtest"
	"onebit/engine/sandbox"
)

// The test binary is the program too: a copy of it that finds the variable set behaves as 1bit, except that the engine
// is replaced by what the variable says, since these tests have no model.
const stage = "ONEBIT_APPLIANCE_TEST"

func TestMain(m *testing.M) {
	if as := os.Getenv(stage); as != "" {
		if len(os.Args) > 1 && os.Args[1] == "engine" {
			os.Exit(standin(as, os.Args[2:]))
		}
		os.Exit(main.Run(context.Background(), os.Stdin, os.Stdout, os.Stderr, os.Args[1:]...))
	}
	if len(os.Args) > 1 && os.Args[1] == sandbox.Command {
		os.Exit(main.Run(context.Background(), os.Stdin, os.Stdout, os.Stderr, os.Args[1:]...))
	}
	os.Exit(m.Run())
}

// standin is an engine without a model. It says how it was started and serves, or fails as told.
func standin(as string, args []string) int {
	fmt.Fprintln(os.Stderr, "stand-in:", strings.Join(args, " "))
	values := map[string]string{}
	for i := 0; i+1 < len(args); i += 2 {
		values[args[i]] = args[i+1]
	}
	if as == "broken" {
		fmt.Fprintln(os.Stderr, "stand-in: the model is damaged")
		return 1
	}
	l, err := net.Listen("tcp", net.JoinHostPort(values["--host"], values["--port"]))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	server := &backendtest.Standin{Model: "child", Exit: os.Exit}
	err = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if as == "loading" && r.URL.Path == "/health" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		server.ServeHTTP(w, r)
	}))
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// model makes a file that passes for a model with everybody but an engine.
func model(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	if err := os.WriteFile(path, []byte("GGUF"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCommandLine(t *testing.T) {
	file := model(t)
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	port := fmt.Sprint(busy.Addr().(*net.TCPAddr).Port)
	missing := filepath.Join(t.TempDir(), "missing.gguf")
	for _, c := range []struct {
		name           string
		args           []string
		status         int
		stdout, stderr string // the beginnings
	}{
		{"nothing", nil, 2, "", "usage: 1bit COMMAND"},
		{"unknown", []string{"conjure"}, 2, "", `1bit: there is no command "conjure"`},
		{"help", []string{"-h"}, 0, "usage: 1bit COMMAND", ""},
		{"version", []string{"version"}, 0, "1bit dev\n", ""},
		{"version help", []string{"version", "-h"}, 0, "usage: 1bit version", ""},
		{"version, stray", []string{"version", "now"}, 2, "", "1bit version: unexpected \"now\"\nusage: 1bit version"},
		{"version, flag", []string{"--version"}, 0, "1bit dev\n", ""},
		{"serve without a model", []string{"serve"}, 2, "", "usage: 1bit serve -m"},
		{"serve help", []string{"serve", "-h"}, 0, "usage: 1bit serve -m", ""},
		{"serve, unknown option", []string{"serve", "--nonsense", "1"}, 1, "", "1bit serve: unknown option --nonsense\n"},
		{"serve, a missing file", []string{"serve", "-m", missing}, 1, "", "1bit serve: the model \"" + missing + "\" cannot be read: no such file"},
		{"serve, checks come before the port", []string{"serve", "-m", missing, "--port", port}, 1, "", "1bit serve: the model"},
		{"serve, a directory", []string{"serve", "-m", t.TempDir()}, 1, "", "1bit serve: the model"},
		{"serve, port taken", []string{"serve", "-m", file, "--port", port}, 1, "", "1bit serve: cannot listen on 127.0.0.1:" + port + ": listen tcp 127.0.0.1:" + port + ": bind: address already in use; give another port with --port N"},
		{"engine without a model", []string{"engine"}, 2, "", "usage: 1bit engine"},
		{"engine help", []string{"engine", "--help"}, 0, "usage: 1bit engine", ""},
		{"engine, no value", []string{"engine", "-m"}, 1, "", "1bit engine: -m needs a value\n"},
		{"engine, all addresses by mistake", []string{"engine", "-m", file, "--host", ""}, 1, "", "1bit engine: --host: the value is empty\n"},
		{"engine, no number", []string{"engine", "-m", file, "-np", "many"}, 1, "", "1bit engine: -np: \"many\" is not a whole number\n"},
		{"engine, port taken", []string{"engine", "-m", file, "--port", port}, 1, "", "1bit engine: cannot listen on 127.0.0.1:" + port + ": "},
		{"chat help", []string{"chat", "-h"}, 0, "usage: 1bit chat", ""},
		{"chat, no file", []string{"chat", "-m", ""}, 1, "", "1bit chat: -m: the value is empty\n"},
		{"chat, both", []string{"chat", "-m", file, "--url", "http://a"}, 1, "", "1bit chat: -m and --url exclude each other\n"},
		{"chat, a missing file", []string{"chat", "-m", missing}, 1, "", "1bit chat: the model"},
		{"chat, nobody there", []string{"chat", "--url", "http://127.0.0.1:1"}, 1, "", "1bit chat: no server answers on http://127.0.0.1:1: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			status := main.Run(t.Context(), strings.NewReader("hi"), &stdout, &stderr, c.args...)
			if status != c.status || !strings.HasPrefix(stdout.String(), c.stdout) || !strings.HasPrefix(stderr.String(), c.stderr) {
				t.Errorf("status %d, want %d\nstdout %q, want %q\nstderr %q, want %q", status, c.status, stdout.String(), c.stdout, stderr.String(), c.stderr)
			}
			if (c.stdout == "") != (stdout.Len() == 0) {
				t.Errorf("stdout %q", stdout.String())
			}
		})
	}
}

// TestHelp asks for the help of each command that the usage lists, and of each word that a command's own usage has behind
// it.
func TestHelp(t *testing.T) {
	help := func(words ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if status := main.Run(t.Context(), strings.NewReader(""), &stdout, &stderr, append([]string{"help"}, words...)...); status != 0 || stderr.Len() > 0 {
			t.Errorf("1bit help %s ends with %d: %s", strings.Join(words, " "), status, &stderr)
		}
		return stdout.String()
	}
	commands := regexp.MustCompile(`(?m)^  ([a-z]+) +[a-z]`).FindAllStringSubmatch(help(), -1)
	if len(commands) < 21 {
		t.Errorf("the usage lists %d commands", len(commands))
	}
	below := 0
	for _, c := range commands {
		name := c[1]
		said := help(name)
		if want := "usage: 1bit "; !strings.HasPrefix(said, want) || !strings.Contains(said, "1bit "+name) && name != "help" {
			t.Errorf("1bit help %s says %q", name, said)
		}
		seen := map[string]bool{}
		for _, word := range regexp.MustCompile(`(?m)^(?:usage:|      )? *1bit `+name+` ([a-z][a-z-]*(?:\|[a-z][a-z-]*)*)`).FindAllStringSubmatch(said, -1) {
			for one := range strings.SplitSeq(word[1], "|") {
				if !seen[one] {
					seen[one] = true
					below++
					if got := help(name, one); !strings.HasPrefix(got, "usage: 1bit "+name) {
						t.Errorf("1bit help %s %s says %q", name, one, got)
					}
				}
			}
		}
	}
	if below < 20 {
		t.Errorf("only %d words of commands were found", below)
	}
	for _, wrong := range []string{"conjure", "usage", "sandbox-exec", ""} {
		var stdout, stderr bytes.Buffer
		if status := main.Run(t.Context(), strings.NewReader(""), &stdout, &stderr, "help", wrong); status != 2 || !strings.HasPrefix(stderr.String(), "1bit: there is no command") {
			t.Errorf("1bit help %q ends with %d: %s%s", wrong, status, &stdout, &stderr)
		}
	}
}
