package tck_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/host"
	"onebit/extensions/tck"
	"onebit/extensions/worker"
)

// TestMain is our own program in small.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == worker.Command {
		os.Exit(worker.Child(os.Args[2:], os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

// apart is a host that runs each module in a process of its own, as a box does.
type apart struct{ program, dir string }

func (a apart) Load(ctx context.Context, m tck.Module) (tck.Loaded, error) {
	manifest, err := json.Marshal(m.Manifest)
	if err != nil {
		return nil, err
	}
	hash, err := worker.Add(a.dir, bytes.NewReader(m.Code), 8<<20, "")
	if err != nil {
		return nil, err
	}
	program := []string{a.program, worker.Command}
	prepare := worker.PrepareConfig{Program: program, Dir: a.dir, SHA256: hash, Manifest: manifest, Allowed: m.Manifest.Capabilities}
	if m.Limits != (abi.Limits{}) {
		prepare.Limits = map[abi.Kind]abi.Limits{m.Manifest.Kind: m.Limits}
	}
	r, err := worker.Prepare(ctx, prepare)
	if err != nil {
		return nil, err
	}
	w, err := worker.New(worker.Config{
		Program: program, Dir: a.dir, SHA256: hash, Manifest: r.Manifest, Limits: r.Limits, Granted: r.Granted, Log: slog.New(slog.DiscardHandler),
		Setup: host.Setup{Config: m.Config, Assets: m.Assets, Warm: []byte(`{"v":1}`)},
	})
	if err != nil {
		return nil, err
	}
	l := &inProcess{Worker: w}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.stop = stop
	l.group.Go(func() { l.ended = w.Run(running) })
	wait, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := w.Ready(wait); err != nil {
		return nil, errors.Join(err, l.Close(ctx), l.ended)
	}
	return l, nil
}

// inProcess is a worker that runs.
type inProcess struct {
	*worker.Worker
	group sync.WaitGroup
	stop  func()
	ended error // of Run; read after group
}

func (l *inProcess) Close(context.Context) error {
	err := l.Worker.Close()
	l.group.Wait()
	l.stop()
	return err
}

// TestWorkerHost: a module in a process of its own sees the same host.
func TestWorkerHost(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range tck.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			if err := c.Try(t.Context(), apart{program, t.TempDir()}); err != nil {
				t.Error(err)
			}
		})
	}
}
