package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"

	"onebit/engine"
	"onebit/engine/backend"
)

const chatUsage = `usage: 1bit chat [-m MODEL.gguf | --url URL] [--model NAME]

Talks to a model in the terminal. Without a terminal it reads one question from standard input and prints the answer.

  -m FILE           start this model for the talk, on the built-in engine
      --url URL     talk to a running server (http://127.0.0.1:8000); the key that it wants is $ONEBIT_KEY
      --model NAME  the model's name in requests (none)
  -h, --help        this text

In the terminal: /system TEXT sets the system message, /reset forgets the talk, /quit ends it; Ctrl-C stops an answer.
`

// chatOptions are the command line of `1bit chat`.
type chatOptions struct {
	file string // start this model, or
	url  string // talk to this server
	name string
}

// chatConfig reads the command line.
func chatConfig(args []string) (chatOptions, error) {
	var o chatOptions
	for ; len(args) > 0; args = args[2:] {
		to := map[string]*string{"-m": &o.file, "--url": &o.url, "--model": &o.name}[args[0]]
		switch {
		case args[0] == "-h" || args[0] == "--help":
			return o, errHelp
		case to == nil:
			return o, fmt.Errorf("unknown option %s", args[0])
		case len(args) == 1:
			return o, fmt.Errorf("%s needs a value", args[0])
		case args[1] == "":
			return o, fmt.Errorf("%s: the value is empty", args[0])
		}
		*to = args[1]
	}
	if o.file != "" && o.url != "" {
		return o, errors.New("-m and --url exclude each other")
	}
	return o, nil
}

// chat is `1bit chat`.
func (p program) chat(ctx context.Context, args []string) int {
	o, err := chatConfig(args)
	if errors.Is(err, errHelp) {
		fmt.Fprint(p.stdout, chatUsage)
		return 0
	}
	if err == nil {
		err = p.chatWith(ctx, o)
	}
	if err != nil {
		return p.fail("chat", errors.New(reasonOf(err)))
	}
	return 0
}

// chatWith talks to a server, or to a child that lives as long as the talk.
func (p program) chatWith(ctx context.Context, o chatOptions) error {
	terminal := isTerminal(p.stdin) && isTerminal(p.stdout)
	m := modelPlace{file: o.file, url: o.url, command: "chat"}
	if terminal {
		m.loading = p.stderr
	}
	return m.use(ctx, func(ctx context.Context, b engine.Backend) error { return p.converse(ctx, b, o.name, terminal) })
}

// modelPlace is where a command finds its model: in a file that it starts, or on a server.
type modelPlace struct {
	file, url string
	command   string
	loading   io.Writer // is told that a model is loaded; nil for nobody
}

// use does something with the model, which is a server's, or a child that lives as long as that.
func (m modelPlace) use(ctx context.Context, do func(context.Context, engine.Backend) error) error {
	if m.file == "" {
		c := backend.RemoteConfig{Name: "server", URL: m.url, Slots: 1}
		if key := os.Getenv("ONEBIT_KEY"); key != "" && m.url != "" { // it is for the server that is named, and for no other
			c.Transport = keyed{key, http.DefaultTransport}
		}
		if m.url == "" {
			c.URL = "http://127.0.0.1:8000"
		}
		remote, err := backend.NewRemote(c)
		if err != nil {
			return err
		}
		defer remote.Close()
		err = do(ctx, remote)
		if _, nobody := errors.AsType[*engine.UnavailableError](err); nobody && strings.Contains(err.Error(), "certificate signed by unknown authority") {
			err = fmt.Errorf("%w; `1bit trust` makes this computer trust a box, or name a file with its root in SSL_CERT_FILE", err)
		} else if nobody {
			err = fmt.Errorf("%w; start one with `1bit serve -m MODEL.gguf`, or give a model with -m", err)
		}
		return err
	}
	machine, err := backend.ThisMachine()
	if err != nil {
		return err
	}
	plan, err := backend.NewPlan(ctx, machine, backend.Options{Model: m.file, Alias: m.command, Device: engine.CPU, Parallel: 1})
	if e, ok := errors.AsType[*backend.ModelError](err); ok { // the options that it names are those of serve
		return fmt.Errorf("%s; give a chat model that the built-in engine runs, or by --url a server that has one", e.Fault)
	}
	if err != nil {
		return byName(m.file, err)
	}
	said := &tail{}
	child, err := newChild(plan.Primary, outputs{stdout: said, stderr: said, log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if m.loading != nil {
		fmt.Fprintf(m.loading, "loading %s ...\n", m.file)
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	var group sync.WaitGroup
	var failed error
	group.Go(func() { failed = child.Run(running) })
	err = do(running, child)
	stop()
	group.Wait()
	if failed != nil {
		return fmt.Errorf("%w\n%s", failed, said)
	}
	return err
}

// keyed sends a key with each request.
type keyed struct {
	key string
	to  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+k.key)
	return k.to.RoundTrip(r)
}

// isTerminal reports whether a person sits at the other end.
func isTerminal(f any) bool {
	file, ok := f.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// tail keeps the end of what a child says, for the case that it fails.
type tail struct {
	mu sync.Mutex
	b  []byte
}

// Write keeps the last 4 KiB.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if n := len(t.b) - 4<<10; n > 0 {
		t.b = append(t.b[:0], t.b[n:]...)
	}
	return len(p), nil
}

// String returns it.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.b))
}

var _ io.Writer = (*tail)(nil)
