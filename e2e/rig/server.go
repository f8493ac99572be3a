package rig

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Serves runs a model server and ends the program, where that was started under the name llama-server. The server speaks
// as much of its dialect as it takes to be started by ours; context is how long a prompt it takes, and routes adds what it
// answers to requests.
func Serves(context int, routes func(mux *http.ServeMux, port string) error) {
	if !strings.HasPrefix(filepath.Base(os.Args[0]), "llama-server") {
		return
	}
	if err := serve(os.Args[1:], context, routes); err != nil {
		fmt.Fprintln(os.Stderr, "server:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve(args []string, context int, routes func(mux *http.ServeMux, port string) error) error {
	if slices.Contains(args, "--list-devices") {
		fmt.Println("Available devices:")
		return nil
	}
	i := slices.Index(args, "--port")
	if i < 0 || i+1 == len(args) {
		return fmt.Errorf("no --port in %q", args)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"status":"ok"}`) })
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"object":"list","data":[{"id":"bench","object":"model","meta":{"n_ctx":%d}}]}`, context)
	})
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // it is all the same
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"object":"text_completion","choices":[{"index":0,"text":"1","finish_reason":"stop"}]}`)
	})
	if err := routes(mux, args[i+1]); err != nil {
		return err
	}
	return http.ListenAndServe("127.0.0.1:"+args[i+1], mux)
}
