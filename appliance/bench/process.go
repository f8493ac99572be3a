package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"
)

const (
	readyLimit = 15 * time.Minute // to load a large model from a cold drive
	stopLimit  = 20 * time.Second
	askEvery   = 100 * time.Millisecond
)

// Process starts a program as the server of a configuration.
type Process struct {
	Program string
	Args    []string // before those of the configuration
	Env     []string // nil is ours
	Output  io.Writer
}

// Start starts the program on a free port of loopback and waits until it is healthy. It implements the type of that name.
func (p Process) Start(ctx context.Context, c Configuration) (*Server, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	args := append(append([]string{}, p.Args...), c.Flags...)
	args = append(args, "--host", "127.0.0.1", "--port", strconv.Itoa(port))
	cmd := exec.CommandContext(ctx, p.Program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Env = p.Env
	said := &tail{to: p.Output}
	cmd.Stdout, cmd.Stderr = said, said
	cmd.WaitDelay = stopLimit
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	gone := make(chan error, 1)
	go func() { gone <- cmd.Wait() }()
	stop := sync.OnceValue(func() error { return end(cmd, gone) })
	url := "http://127.0.0.1:" + strconv.Itoa(port)
	if err := ready(ctx, url, gone); err != nil {
		return nil, errors.Join(fmt.Errorf("%w\n%s", err, said.last()), stop())
	}
	return &Server{URL: url, Stop: stop}, nil
}

// freePort returns a port that nobody listens on.
func freePort(ctx context.Context) (int, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// ready waits until a server is healthy. What comes out of gone is put back.
func ready(ctx context.Context, url string, gone chan error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyLimit, errors.New("the server did not become ready"))
	defer cancel()
	ask := time.NewTicker(askEvery)
	defer ask.Stop()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/health", nil)
		if err != nil {
			return err
		}
		if reply, err := http.DefaultClient.Do(r); err == nil {
			reply.Body.Close()
			if reply.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case err := <-gone:
			gone <- err
			return errors.New("the server ended before it was ready")
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ask.C:
		}
	}
}

// end asks a server to end, and ends it by force when it does not.
func end(cmd *exec.Cmd, gone chan error) error {
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		_ = cmd.Process.Kill() // it may be gone already
	}
	late := time.NewTimer(stopLimit)
	defer late.Stop()
	select {
	case err := <-gone:
		return ended(err)
	case <-late.C:
	}
	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return errors.Join(fmt.Errorf("the server did not end within %v of being asked to", stopLimit), ended(<-gone))
}

// ended passes on why a server could not be waited for. How it ended says nothing about its figures.
func ended(err error) error {
	if _, ok := errors.AsType[*exec.ExitError](err); ok || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// tail passes what is written on and keeps the end of it.
type tail struct {
	mu   sync.Mutex
	to   io.Writer
	kept []byte
}

func (t *tail) Write(b []byte) (int, error) {
	const keep = 2000
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, b...)
	t.kept = t.kept[max(0, len(t.kept)-keep):]
	if t.to != nil {
		_, _ = t.to.Write(b) // the server must not stop because nobody reads
	}
	return len(b), nil
}

func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.kept))
}
