package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	"onebit/engine/conduit"
	"onebit/engine/runner"
)

const engineUsage = `usage: 1bit engine -m MODEL.gguf [options]

The built-in engine alone: one model with llama-server's API. What the model is for decides what it answers: chats, or
/v1/embeddings, or /v1/rerank.

  -m, --model FILE           the model, a GGUF file (required)
      --host ADDR            address to listen on (127.0.0.1)
      --port N               port to listen on (8080; 0 takes a free one)
      --conduit FD           take connections from whoever has started it, in place of an address
  -a, --alias NAME           the model's name for clients (the file's name)
  -c, --ctx-size N           tokens of context, shared by all slots (what the model was trained with)
  -np, --parallel N          slots: requests that run at the same time (the engine chooses)
  -t, --threads N            workers while tokens are generated (what suits the machine)
  -tb, --threads-batch N     workers while a prompt is read (what suits the machine)
      --slot-save-path DIR   a folder for the state of slots: POST /slots/N?action=save and restore (none)
      --pooling TYPE         of an embedding model: mean, cls, last, rank or none (what its file says)
      --embedding, --reranking
                             taken, and of no effect: the model's file says it
  -h, --help                 this text
`

// exitLimit is how long the engine may take to end after a signal. Whoever started it may be dead and look for no
// orphan after two seconds.
const exitLimit = 1500 * time.Millisecond

// errHelp says that help was asked for.
var errHelp = errors.New("help was asked for")

// engine is `1bit engine`.
func (p program) engine(ctx context.Context, args []string) int {
	cfg, end, err := engineConfig(args)
	switch {
	case errors.Is(err, errHelp):
		fmt.Fprint(p.stdout, engineUsage)
		return 0
	case err == nil && cfg.Model == "":
		fmt.Fprint(p.stderr, engineUsage)
		return 2
	case err == nil:
		err = p.runEngine(ctx, cfg, end)
	}
	if err != nil {
		return p.fail("engine", err)
	}
	return 0
}

func (p program) runEngine(ctx context.Context, cfg runner.Config, end int) error {
	ctx, stop := untilSignal(ctx)
	defer stop()
	done := make(chan struct{})
	defer close(done)
	defer context.AfterFunc(ctx, func() {
		select {
		case <-done:
		case <-time.After(exitLimit):
			os.Exit(1)
		}
	})()
	l, err := engineListener(ctx, cfg, end)
	if err != nil {
		return err
	}
	defer l.Close()
	cfg.Listener, cfg.Version, cfg.Log = l, version, p.log(slog.LevelInfo)
	r, err := runner.New(cfg)
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// engineListener is where the engine's requests come from: an address, or an inherited end of a conduit.
func engineListener(ctx context.Context, cfg runner.Config, end int) (net.Listener, error) {
	if end != 0 {
		l, err := conduit.Listen(os.NewFile(uintptr(end), "conduit"))
		if err != nil {
			return nil, fmt.Errorf("--conduit %d: %w", end, err)
		}
		return l, nil
	}
	var lc net.ListenConfig
	addr := net.JoinHostPort(cfg.Host, strconv.Itoa(cfg.Port))
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", addr, err)
	}
	return l, nil
}

// engineConfig reads the command line. end is the descriptor of a conduit, 0 for none.
func engineConfig(args []string) (c runner.Config, end int, err error) {
	c = runner.Config{Host: "127.0.0.1", Port: 8080}
	texts := map[string]*string{"-m": &c.Model, "--model": &c.Model, "--host": &c.Host, "-a": &c.Alias, "--alias": &c.Alias, "--pooling": &c.Pooling, "--slot-save-path": &c.SlotDir}
	numbers := map[string]*int{
		"--port": &c.Port, "--conduit": &end, "-c": &c.Context, "--ctx-size": &c.Context, "-np": &c.Parallel, "--parallel": &c.Parallel,
		"-t": &c.Threads, "--threads": &c.Threads, "-tb": &c.BatchThreads, "--threads-batch": &c.BatchThreads,
	}
	for len(args) > 0 {
		name := args[0]
		if slices.Contains([]string{"--embedding", "--embeddings", "--rerank", "--reranking"}, name) {
			args = args[1:]
			continue
		}
		if name == "-h" || name == "--help" {
			return c, end, errHelp
		}
		text, number := texts[name], numbers[name]
		switch {
		case text == nil && number == nil:
			return c, end, fmt.Errorf("unknown option %s", name)
		case len(args) == 1:
			return c, end, fmt.Errorf("%s needs a value", name)
		case args[1] == "": // an empty address would be all addresses
			return c, end, fmt.Errorf("%s: the value is empty", name)
		case text != nil:
			*text = args[1]
		default:
			n, err := strconv.Atoi(args[1])
			if err != nil {
				return c, end, fmt.Errorf("%s: %q is not a whole number", name, args[1])
			}
			*number = n
		}
		args = args[2:]
	}
	if end != 0 && end < conduit.Descriptor {
		return c, end, fmt.Errorf("--conduit %d: descriptors that are inherited begin at %d", end, conduit.Descriptor)
	}
	return c, end, nil
}
