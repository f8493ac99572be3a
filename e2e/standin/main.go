// Command standin plays the servers that `1bit serve` starts, without a model: llama-server, zinc, ds4-server,
// lemon-mlx-server, ryzenai-server and an NPU server. The name that it is started by says which; with the word daemon first
// it plays the daemon of a classifier. It writes down how it
// was started and what it was asked, and misbehaves when told to.
//
// Environment:
//
//	STANDIN_LOG          a file; each start, request and client that has gone is one JSON line of it
//	STANDIN_DEVICES      what --list-devices prints, with commas (HRX0,Vulkan0,ROCm0)
//	STANDIN_MODEL_TYPES  what --list-model-types prints, with spaces
//	STANDIN_LOAD         how long it loads (100ms)
//	STANDIN_STATE        bytes of a token in the files of --slot-save-path (64)
//	STANDIN_PREFILL      how long a token of a prompt takes that no slot has, with --slot-save-path (0s)
//	STANDIN_FAULT        what it does wrong to every request, see fault.go; a request may say so itself
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "standin:", err)
		os.Exit(1)
	}
}

// run does what the arguments say.
func run(args []string) error {
	switch {
	case slices.Contains(args, "--list-devices"):
		fmt.Println("Available devices:")
		for _, d := range strings.Split(setting("STANDIN_DEVICES", "HRX0,Vulkan0,ROCm0"), ",") {
			fmt.Printf("  %s: a device that is not there (98304 MiB, 98000 MiB free)\n", d)
		}
		return nil
	case slices.Contains(args, "--list-model-types"):
		fmt.Println(os.Getenv("STANDIN_MODEL_TYPES"))
		return nil
	case slices.Contains(args, "--version"):
		fmt.Println("version: 0 (standin)")
		return nil
	}
	if len(args) > 0 && args[0] == "daemon" {
		return classify(args[1:])
	}
	s := newServer(args)
	note(map[string]any{"event": "start", "program": filepath.Base(os.Args[0]), "args": args, "env": os.Environ()})
	if s.fault.kind == "exit-at-start" {
		os.Exit(3)
	}
	load, err := time.ParseDuration(setting("STANDIN_LOAD", "100ms"))
	if err != nil {
		return err
	}
	if s.kind == ds4 {
		time.Sleep(load) // it opens its port when it is done
		load = 0
	}
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:"+strconv.Itoa(s.port))
	if err != nil {
		return err
	}
	s.ready = time.Now().Add(load)
	return http.Serve(l, s.routes())
}

func setting(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

// note appends a line to the log.
func note(what map[string]any) {
	path := os.Getenv("STANDIN_LOG")
	if path == "" {
		return
	}
	what["pid"] = os.Getpid()
	line, err := json.Marshal(what)
	if err != nil {
		return
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = f.Write(append(line, '\n')) // one write: several stand-ins share the file
}

// kind is the program that is played.
type kind string

const (
	llama kind = "llama-server"
	zinc  kind = "zinc"
	ds4   kind = "ds4-server"
	mlx   kind = "lemon-mlx-server"
	onnx  kind = "ryzenai-server"
	npu   kind = "npu-server"
)

// played tells from a program's name what it plays.
func played(program string) kind {
	name := filepath.Base(program)
	for word, k := range map[string]kind{"zinc": zinc, "ds4": ds4, "mlx": mlx, "ryzenai": onnx, "onnx": onnx, "npu": npu} {
		if strings.Contains(name, word) {
			return k
		}
	}
	return llama
}

// server is the server that is played.
type server struct {
	kind   kind
	args   []string
	port   int
	model  string // the name that it knows itself by
	device string // Vulkan0 and its like; empty without one
	ready  time.Time
	fault  fault
	slots  chan struct{} // a place for each running generation
	table  *table        // nil without --slot-save-path
}

func newServer(args []string) *server {
	s := &server{kind: played(os.Args[0]), args: args, fault: readFault(os.Getenv("STANDIN_FAULT"))}
	s.port, _ = strconv.Atoi(s.value("--port", "-p"))
	s.device = s.value("--device")
	s.model = strings.TrimSuffix(filepath.Base(s.value("-m", "--model")), ".gguf")
	if s.kind == mlx {
		s.model = args[0]
	}
	n := 4
	if given, err := strconv.Atoi(s.value("-np", "--parallel")); err == nil && given > 0 {
		n = given
	}
	if s.kind != llama {
		n = 1
	}
	s.slots = make(chan struct{}, n)
	if s.kind == llama {
		s.table = newTable(s)
	}
	return s
}

// value returns what follows the last of the names among the arguments.
func (s *server) value(names ...string) string {
	for i := len(s.args) - 2; i >= 0; i-- {
		if slices.Contains(names, s.args[i]) {
			return s.args[i+1]
		}
	}
	return ""
}

func (s *server) has(flag string) bool { return slices.Contains(s.args, flag) }

// routes are what each kind answers.
func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	if s.kind != ds4 {
		mux.HandleFunc("GET /health", s.health)
	}
	if s.kind != npu {
		mux.HandleFunc("GET /v1/models", s.models)
		mux.HandleFunc("POST /v1/chat/completions", s.generate)
	}
	mux.HandleFunc("POST /v1/completions", s.generate)
	if s.kind == llama {
		s.llamaRoutes(mux)
	}
	return mux
}

func (s *server) loading() bool { return s.fault.kind == "never-ready" || time.Now().Before(s.ready) }

func (s *server) health(w http.ResponseWriter, _ *http.Request) {
	if s.loading() {
		refuse(w, http.StatusServiceUnavailable, "Loading model", "unavailable_error")
		return
	}
	answer(w, map[string]string{"status": "ok"})
}

func (s *server) models(w http.ResponseWriter, _ *http.Request) {
	answer(w, map[string]any{"object": "list", "data": []any{map[string]any{"id": s.model, "object": "model", "meta": map[string]int{"n_ctx": 4096}}}})
}

// answer writes a JSON object.
func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a client that has gone is the test's affair
}

// refuse writes an error object as llama-server has it.
func refuse(w http.ResponseWriter, status int, message, kind string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	answer(w, map[string]any{"error": map[string]any{"code": status, "message": message, "type": kind}})
}
