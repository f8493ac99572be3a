package backend_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"onebit/engine"
	"onebit/engine/backend"
	"onebit/engine/backendtest"
)

// fake is a process that exists in memory: a stand-in behind a network of its own.
type fake struct {
	network *backendtest.Network
	stop    func()
	deaf    bool // does not end when asked
	once    sync.Once
	ended   chan struct{}
	why     error
}

func (f *fake) Pid() int { return 1 }

func (f *fake) Wait() error {
	<-f.ended
	return f.why
}

func (f *fake) Terminate() {
	if !f.deaf {
		f.die(nil)
	}
}

func (f *fake) Kill() { f.die(errors.New("signal: killed")) }

func (f *fake) die(why error) {
	f.once.Do(func() {
		f.stop()
		f.why = why
		close(f.ended)
	})
}

// world starts fakes.
type world struct {
	mu      sync.Mutex
	begin   time.Time
	starts  []time.Duration // when processes were started
	running *fake           // the last one
	handler http.Handler    // what a new process serves
	dead    bool            // a new process ends at once
	deaf    bool
	owns    bool
	taken   bool
	proof   backend.Proof
}

func (w *world) launch(backend.Command) (backend.Process, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.starts = append(w.starts, time.Since(w.begin))
	f := &fake{network: backendtest.NewNetwork(), deaf: w.deaf, ended: make(chan struct{})}
	f.stop = f.network.Serve(w.handler)
	if w.dead {
		f.die(errors.New("exit status 1"))
	}
	w.running = f
	return f, nil
}

func (w *world) connect(int) (*backend.Remote, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return backend.NewRemote(backend.RemoteConfig{Name: "cpu", URL: "http://memory", Slots: 1, Dial: w.running.network.Dial})
}

// kill ends the process that runs.
func (w *world) kill() {
	w.mu.Lock()
	f := w.running
	w.mu.Unlock()
	f.Kill()
}

func (w *world) set(change func(*world)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w)
}

// child runs a Child among fakes until the test ends. The result of Run comes on the channel.
func child(t *testing.T, w *world) (*backend.Child, <-chan error, context.CancelFunc) {
	t.Helper()
	c, err := backend.NewChild(backend.ChildConfig{
		Name: "cpu", Slots: 1, Log: slog.New(slog.DiscardHandler), Proof: w.proof,
		Command: func(int) backend.Command { return backend.Command{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	if w.handler == nil {
		w.handler = &backendtest.Standin{Model: "m"}
	}
	w.begin = time.Now()
	backend.Fake(c, backend.World{
		Launch: w.launch, Connect: w.connect,
		Owns:  func(int, int) bool { return w.owns },
		Taken: func(int) bool { return w.taken },
	})
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	var group sync.WaitGroup
	group.Go(func() { result <- c.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		group.Wait()
	})
	return c, result, cancel
}

func TestChildLoadsAtFirst(t *testing.T) {
	c, err := backend.NewChild(backend.ChildConfig{
		Name: "cpu", Slots: 1, Log: slog.New(slog.DiscardHandler),
		Command: func(int) backend.Command { return backend.Command{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.State(); got != engine.Loading {
		t.Errorf("State = %v before Run", got)
	}
}

func TestChildServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, result, stop := child(t, &world{owns: true})
		if err := c.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		if events, err := generate(t.Context(), c, chat("", true)); err != nil || len(events) != 8 {
			t.Errorf("%d events, %v", len(events), err)
		}
		if c.Info().Context != 512 || c.State() != engine.Ready {
			t.Errorf("info %+v, state %v", c.Info(), c.State())
		}
		stop()
		if err := <-result; err != nil {
			t.Errorf("Run = %v after a stop", err)
		}
		if got := c.State(); got != engine.Stopped || c.Info().Context != 512 {
			t.Errorf("State = %v, info %+v after a stop", got, c.Info())
		}
		if e, ok := errors.AsType[*engine.UnavailableError](c.Ready(t.Context())); !ok || e.RetryAfter != 0 {
			t.Errorf("Ready = %v after a stop", e)
		}
	})
}

// after returns the gaps between starts, in seconds.
func gaps(starts []time.Duration) (out []int) {
	for i := 1; i < len(starts); i++ {
		out = append(out, int((starts[i] - starts[i-1]).Seconds()))
	}
	return out
}

func TestChildBacksOffWhileItCannotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{owns: true}
		c, _, _ := child(t, w)
		if err := c.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.set(func(w *world) { w.dead = true })
		w.kill()
		time.Sleep(150 * time.Second)
		w.mu.Lock()
		got := gaps(w.starts)
		w.mu.Unlock()
		if diff := cmp.Diff([]int{1, 2, 4, 8, 16, 30, 30, 30}, got[:8]); diff != "" {
			t.Errorf("seconds between starts (-want +got)\n%s", diff)
		}
	})
}

func TestChildFailuresAreForgotten(t *testing.T) {
	for _, c := range []struct {
		name string
		then func(t *testing.T, c *backend.Child) // after each restart, before the next kill
		want []int
	}{
		{"never, when it only starts", func(*testing.T, *backend.Child) {}, []int{1, 2, 4, 8}},
		{"after an answer", func(t *testing.T, c *backend.Child) {
			if _, err := generate(t.Context(), c, chat("", false)); err != nil {
				t.Error(err)
			}
		}, []int{1, 1, 1, 1}},
		{"not after a refusal", func(t *testing.T, c *backend.Child) {
			if _, err := generate(t.Context(), c, chat("refuse", false)); err == nil {
				t.Error("no refusal")
			}
		}, []int{1, 2, 4, 8}},
		{"after serving for half a minute", func(*testing.T, *backend.Child) { time.Sleep(31 * time.Second) }, []int{32, 32, 32, 32}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{owns: true}
				b, _, _ := child(t, w)
				if err := b.Ready(t.Context()); err != nil {
					t.Fatal(err)
				}
				for range 4 {
					c.then(t, b)
					w.kill()
					synctest.Wait()
					for b.State() != engine.Ready {
						time.Sleep(10 * time.Millisecond)
					}
				}
				w.mu.Lock()
				defer w.mu.Unlock()
				if diff := cmp.Diff(c.want, gaps(w.starts)); diff != "" {
					t.Errorf("seconds between starts (-want +got)\n%s", diff)
				}
			})
		})
	}
}

func TestChildReadyWaitsForOneRestartAndNotForARowOfThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{owns: true}
		c, _, _ := child(t, w)
		if err := c.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.kill()
		synctest.Wait()
		if got := c.State(); got != engine.Down {
			t.Fatalf("State = %v after a kill", got)
		}
		if _, ok := errors.AsType[*engine.UnavailableError](second(generate(t.Context(), c, chat("", true)))); !ok {
			t.Error("Generate worked while the child was down")
		}
		if err := c.Ready(t.Context()); err != nil {
			t.Fatalf("waiting for the restart: %v", err)
		}
		w.set(func(w *world) { w.dead = true })
		w.kill() // the second failure in a row: a pause of 2 s
		synctest.Wait()
		begin := time.Now()
		e, ok := errors.AsType[*engine.UnavailableError](c.Ready(t.Context()))
		if !ok || time.Since(begin) != 0 {
			t.Fatalf("Ready = %v after %v, want a refusal at once", e, time.Since(begin))
		}
		if e.RetryAfter < 2*time.Second || e.RetryAfter > 4*time.Second || !strings.Contains(e.Reason, "killed") {
			t.Errorf("try again after %v because %q", e.RetryAfter, e.Reason)
		}
	})
}

func second[T any](_ T, err error) error { return err }

func TestChildReadyEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, _ := child(t, &world{owns: true, handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
		})})
		why := &engine.TimeoutError{Timer: "waiting", Limit: 3 * time.Second}
		ctx, cancel := context.WithTimeoutCause(t.Context(), why.Limit, why)
		defer cancel()
		if err := c.Ready(ctx); !errors.Is(err, why) {
			t.Errorf("Ready = %v, want the limit", err)
		}
	})
}

func TestChildDoesNotStart(t *testing.T) {
	broken := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/health" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	says := func(answer string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer) })
	}
	for _, c := range []struct {
		name  string
		world *world
		want  string
	}{
		{"it is healthy and makes no embedding", &world{owns: true, proof: backend.Vector, handler: broken}, "it cannot make an embedding: the backend answered 500"},
		{"its embeddings are none", &world{owns: true, proof: backend.Vector, handler: says(`{"data":[]}`)}, "it cannot make an embedding: the backend sent something"},
		{"it is healthy and ranks nothing", &world{owns: true, proof: backend.Score, handler: broken}, "it cannot rank a text: the backend answered 500"},
		{"its scores are none", &world{owns: true, proof: backend.Score, handler: says(`{"results":null}`)}, "it cannot rank a text: the backend sent something"},
		{"it exits", &world{dead: true}, "the cpu backend did not become ready: it ended: exit status 1"},
		{"it never gets healthy", &world{handler: http.NotFoundHandler()}, "the limit of 10m0s for starting a backend has passed"},
		{"it is healthy and cannot decode", &world{owns: true, handler: broken}, "it says that it is healthy, but it cannot generate: the backend answered 500"},
		{"a stranger has its port, each time", &world{owns: false}, "another process took the port"},
		{"it exits since the port is taken", &world{dead: true, taken: true}, "another process took the port"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, result, _ := child(t, c.world)
				if err := <-result; err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("Run = %v, want %q", err, c.want)
				}
				want := 1
				if strings.Contains(c.want, "port") {
					want = 3
				}
				if got := len(c.world.starts); got != want {
					t.Errorf("%d starts, want %d", got, want)
				}
			})
		})
	}
}

func TestChildExitEndsTheWaitForReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })}
		_, result, _ := child(t, w)
		time.Sleep(2 * time.Second) // in the middle of a look at /health that nobody answers
		begin := time.Now()
		w.kill()
		if err := <-result; err == nil || time.Since(begin) != 0 {
			t.Errorf("Run = %v after %v, want an error at once", err, time.Since(begin))
		}
	})
}

func TestChildThatDoesNotStopIsKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, result, stop := child(t, &world{owns: true, deaf: true})
		if err := c.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		stop()
		if err := <-result; err != nil {
			t.Errorf("Run = %v", err)
		}
		if got := time.Since(begin); got != 5*time.Second {
			t.Errorf("killed after %v, want 5 s", got)
		}
	})
}

func TestChildLostRequestHearsOfTheEndFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{owns: true}
		c, _, _ := child(t, w)
		if err := c.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		lost := make(chan error)
		go func() {
			_, err := generate(t.Context(), c, chat("stall", true))
			if c.State() == engine.Ready {
				err = errors.New("the child still counts as ready")
			}
			lost <- err
		}()
		synctest.Wait()
		w.kill()
		if err := <-lost; !errors.Is(err, engine.ErrLost) {
			t.Errorf("got %v, want ErrLost", err)
		}
		if err := c.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := generate(t.Context(), c, chat("", true)); err != nil {
			t.Errorf("the next request: %v", err)
		}
	})
}

func TestNewChildRefuses(t *testing.T) {
	good := backend.ChildConfig{Name: "cpu", Slots: 1, Log: slog.New(slog.DiscardHandler), Command: func(int) backend.Command { return backend.Command{} }}
	for name, spoil := range map[string]func(*backend.ChildConfig){
		"no name":    func(c *backend.ChildConfig) { c.Name = "" },
		"no slots":   func(c *backend.ChildConfig) { c.Slots = 0 },
		"no command": func(c *backend.ChildConfig) { c.Command = nil },
		"no log":     func(c *backend.ChildConfig) { c.Log = nil },
	} {
		cfg := good
		spoil(&cfg)
		if _, err := backend.NewChild(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestEnvironment(t *testing.T) {
	got := backend.Environment([]string{"A=1", "B="}, []string{"A=2", "B=2", "C=3"})
	if want := []string{"A=1", "B=", "C=3"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q: what the user has set wins", got, want)
	}
}

func TestCPUCommand(t *testing.T) {
	for _, c := range []struct {
		cfg  backend.CPUConfig
		want string
	}{
		{backend.CPUConfig{Executable: "/bin/1bit", Model: "a b.gguf", Alias: "m"}, "engine|-m|a b.gguf|--host|127.0.0.1|--port|7|--alias|m"},
		{backend.CPUConfig{Model: "m.gguf", Alias: "m", Context: 4096, Parallel: 4}, "engine|-m|m.gguf|--host|127.0.0.1|--port|7|--alias|m|-c|4096|-np|4"},
	} {
		got := backend.CPU(c.cfg)(7)
		if got.Path != c.cfg.Executable || strings.Join(got.Args, "|") != c.want || !slices.Equal(got.Env, []string{"ONEBIT_LOG=warn"}) {
			t.Errorf("got %q %q with %q, want %q", got.Path, got.Args, got.Env, c.want)
		}
	}
}

// TestChildReadyPath is about servers that say on another path that they serve, and about those that make no text.
func TestChildReadyPath(t *testing.T) {
	for _, c := range []struct {
		name  string
		ready string
		proof backend.Proof
		asked []string // the paths, in order, without those of the list of models afterwards
	}{
		{"as usual", "", backend.Token, []string{"/health", "/v1/completions"}},
		{"taken at its word", "", backend.Word, []string{"/health"}},
		{"another path", "/v1/models", backend.Word, []string{"/v1/models"}},
		{"another path and a token", "/v1/models", backend.Token, []string{"/v1/models", "/v1/completions"}},
		{"for embeddings", "", backend.Vector, []string{"/health", "/v1/embeddings"}},
		{"for ranking", "", backend.Score, []string{"/health", "/v1/rerank"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var asked []string
				standin := &backendtest.Standin{}
				w := &world{owns: true, begin: time.Now(), handler: http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
					mu.Lock()
					asked = append(asked, r.URL.Path)
					mu.Unlock()
					standin.ServeHTTP(out, r)
				})}
				b, err := backend.NewChild(backend.ChildConfig{
					Name: "ds4", Slots: 1, Log: slog.New(slog.DiscardHandler), Ready: c.ready, Proof: c.proof,
					Command: func(int) backend.Command { return backend.Command{} },
				})
				if err != nil {
					t.Fatal(err)
				}
				backend.Fake(b, backend.World{Launch: w.launch, Owns: func(int, int) bool { return true }, Taken: func(int) bool { return false }, Connect: w.connect})
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- b.Run(ctx) }()
				if err := b.Ready(t.Context()); err != nil {
					t.Fatal(err)
				}
				mu.Lock()
				got := slices.Clone(asked[:len(asked)-1])
				mu.Unlock()
				if diff := cmp.Diff(c.asked, got); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
