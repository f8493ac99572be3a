package pool_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"onebit/appliance/pool"
	"onebit/engine"
	"onebit/engine/backend"
	"onebit/engine/runner"
)

// TestMain lets this program be the engine that it starts as a child.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "engine" {
		os.Exit(child(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// child serves a model as `1bit engine` does.
func child(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cfg := runner.Config{Log: slog.New(slog.DiscardHandler)}
	for i := 0; i+1 < len(args); i += 2 {
		n, _ := strconv.Atoi(args[i+1])
		switch args[i] {
		case "-m":
			cfg.Model = args[i+1]
		case "--host":
			cfg.Host = args[i+1]
		case "--port":
			cfg.Port = n
		case "--alias":
			cfg.Alias = args[i+1]
		case "-c":
			cfg.Context = n
		case "-np":
			cfg.Parallel = n
		}
	}
	r, err := runner.New(cfg)
	if err == nil {
		err = r.Run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// smollm2 returns the small model of the cache.
func smollm2(t *testing.T) string {
	t.Helper()
	root := os.Getenv("ONEBIT_TEST_MODELS")
	if root == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		root = filepath.Join(cache, "1bit", "models")
	}
	path := filepath.Join(root, "b179c9523d0e", "SmolLM2-135M-Instruct.Q4_1.gguf")
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v; `1bit model pull smollm2` obtains it", err)
	}
	return path
}

// parking is a backend that is told of its end.
type parking struct {
	*backend.Child
	park func()
}

func (p parking) Park(context.Context) error { p.park(); return nil }

// TestRealSwaps swaps real engines: one model under two names, in a box that holds one of them.
func TestRealSwaps(t *testing.T) {
	if testing.Short() {
		t.Skip("starts engines; `make test` runs it")
	}
	machine, err := backend.ThisMachine()
	if err != nil {
		t.Fatal(err)
	}
	path := smollm2(t)
	var specs []pool.ModelSpec
	for _, name := range []string{"first", "second", "broken"} {
		o := backend.Options{Model: path, Alias: name, Device: engine.CPU, Context: 512, Parallel: 2}
		if name == "broken" {
			o.Model = filepath.Join(t.TempDir(), "broken.gguf")
			if err := os.WriteFile(o.Model, []byte("GGUF, and then nothing"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s := pool.ModelSpec{Name: name, Options: o}
		if name != "broken" {
			if s.Need, err = pool.Estimate(o, engine.CPU); err != nil {
				t.Fatal(err)
			}
		}
		specs = append(specs, s)
	}
	one := specs[0].Need.Bytes + specs[0].Need.Host
	log := slog.New(slog.DiscardHandler)
	var mu sync.Mutex
	parked := map[string]int{}
	starter := &pool.Starter{Machine: machine, Log: log, Wrap: func(spec pool.ModelSpec, c *pool.Children) engine.Backend {
		return parking{c.Processes[0], func() { // the process serves until it has put away what it has
			mu.Lock()
			defer mu.Unlock()
			parked[spec.Name]++
			if state := c.Processes[0].State(); state != engine.Ready {
				t.Errorf("%s is %v when it is to put away what it has", spec.Name, state)
			}
		}}
	}}
	p, err := pool.New(pool.Config{
		Start: starter.Start, Log: log, Queue: pool.Queue{MaxWait: 50 * time.Millisecond}, Settle: time.Millisecond,
		Memory: func() pool.Budget { return pool.Budget{Host: pool.Memory{Total: one * 3 / 2, Free: one * 3}} },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Set(specs); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	ask := func(name string) (string, error) {
		raw := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"Which city is the capital of France?"}],"max_tokens":8,"temperature":0}`, name)
		said := ""
		_, err := p.Backend(name).Generate(t.Context(), &engine.Request{Kind: engine.Chat, Model: name, Raw: []byte(raw)}, func(c engine.Chunk) error {
			said = string(c.Raw)
			return nil
		})
		return said, err
	}
	const rounds = 6
	for range rounds {
		var all sync.WaitGroup
		for _, name := range []string{"first", "second", "first", "second"} {
			all.Go(func() {
				if said, err := ask(name); err != nil || !strings.Contains(said, "Paris") || !strings.Contains(said, `"`+name+`"`) {
					t.Errorf("%s said %s, %v", name, said, err)
				}
			})
		}
		all.Wait()
	}
	_, err = ask("broken")
	if u, ok := errors.AsType[*engine.UnavailableError](err); !ok || u.RetryAfter <= 0 {
		t.Errorf("the broken model: %v", err)
	}
	if said, err := ask("second"); err != nil || !strings.Contains(said, "Paris") {
		t.Errorf("second said %s, %v", said, err)
	}
	counts := p.Counts() // broken, first, second
	if n := counts[1].Loads + counts[2].Loads; n < rounds || counts[1].Requests+counts[2].Requests != 4*rounds+1 || counts[0].Failures != 1 {
		t.Errorf("%+v", counts)
	}
	loads := counts[1].Loads + counts[2].Loads
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	ended <- nil
	if n := parked["first"] + parked["second"]; uint64(n) != uint64(loads) {
		t.Errorf("of %d processes %d put away what they had", loads, n)
	}
	t.Logf("%d loads, %v each", loads, (counts[1].LoadTime+counts[2].LoadTime)/time.Duration(loads))
}
