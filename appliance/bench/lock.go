package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"onebit/appliance/record"
)

// errBusy says that somebody else holds the lock.
var errBusy = errors.New("another benchmark is running")

// Lock waits until no other benchmark runs on this machine and keeps others waiting until release is called. waiting is
// called once when there is something to wait for.
func Lock(ctx context.Context, waiting func()) (release func() error, err error) {
	return lock(ctx, filepath.Join(os.TempDir(), "1bit-bench.lock"), waiting)
}

func lock(ctx context.Context, path string, waiting func()) (func() error, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for first := true; ; first = false {
		err := record.Lock(f, errBusy)
		if err == nil {
			return f.Close, nil // which gives the lock back
		}
		if !errors.Is(err, errBusy) {
			return nil, errors.Join(err, f.Close())
		}
		if first && waiting != nil {
			waiting()
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), f.Close())
		case <-again.C:
		}
	}
}
