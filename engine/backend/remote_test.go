package backend_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"onebit/engine"
	"onebit/engine/backend"
	"onebit/engine/backendtest"
	"onebit/engine/wire"
)

// remote returns a Remote to a handler in memory.
func remote(t *testing.T, handler http.Handler) *backend.Remote {
	t.Helper()
	return remoteWith(t, handler, false)
}

// remoteWith returns one that puts unstreamed chats together from streams, if that is wished.
func remoteWith(t *testing.T, handler http.Handler, assemble bool) *backend.Remote {
	t.Helper()
	network := backendtest.NewNetwork()
	stop := network.Serve(handler)
	r, err := backend.NewRemote(backend.RemoteConfig{Name: "far", URL: "http://memory/v1/", Slots: 2, Dial: network.Dial, Assemble: assemble})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Close()
		stop()
	})
	return r
}

// chat returns a request that tells the stand-in what to do.
func chat(word string, stream bool) *engine.Request {
	req := &engine.Request{Kind: engine.Chat, Stream: stream}
	req.Raw = []byte(`{"messages":[{"role":"user","content":"hi"}],"standin":"` + word + `"}`)
	if stream {
		req.Raw = []byte(strings.Replace(string(req.Raw), "{", `{"stream":true,`, 1))
	}
	return req
}

// generate runs a request and returns the emitted events.
func generate(ctx context.Context, b engine.Backend, req *engine.Request) (events []string, err error) {
	_, err = b.Generate(ctx, req, func(c engine.Chunk) error {
		events = append(events, string(c.Raw))
		return nil
	})
	return events, err
}

// ways are how a Remote reaches a server: on this machine and elsewhere.
var ways = []struct {
	name   string
	remote func(*testing.T, http.Handler) *backend.Remote
}{
	{"near", remote},
	{"far", func(t *testing.T, h http.Handler) *backend.Remote {
		t.Helper()
		return backend.Far(remote(t, h))
	}},
	{"in parts", func(t *testing.T, h http.Handler) *backend.Remote {
		t.Helper()
		return remoteWith(t, h, true)
	}},
}

func TestRemoteConforms(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			backendtest.Run(t, func(t *testing.T) backendtest.Subject {
				r := way.remote(t, &backendtest.Standin{Model: "m"})
				return backendtest.Subject{Backend: r, Good: `{}`, Bad: `{"standin":"refuse"}`, Long: `{"standin":"endless"}`}
			})
		})
	}
}

func TestRemoteFailures(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) { remoteFailures(t, way.remote) })
	}
}

func remoteFailures(t *testing.T, remote func(*testing.T, http.Handler) *backend.Remote) {
	status := func(want int) func(error) bool {
		return func(err error) bool {
			e, ok := errors.AsType[*engine.StatusError](err)
			return ok && e.Status == want
		}
	}
	is := func(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }
	none := func(err error) bool { return err == nil }
	for _, c := range []struct {
		word   string
		stream bool
		events int
		err    func(error) bool
	}{
		{"refuse", false, 0, status(400)},
		{"refuse", true, 0, status(400)},
		{"fail", true, 0, status(500)},
		{"overflow", true, 0, status(400)},
		{"hang_up", false, 0, is(engine.ErrLost)},
		{"hang_up", true, 0, is(engine.ErrLost)},
		{"cut", false, 0, is(engine.ErrLost)},
		{"cut", true, 2, is(engine.ErrLost)},
		{"cut_event", true, 2, is(engine.ErrLost)},
		{"no_done", true, 8, none},
		{"no_end", true, 7, is(engine.ErrLost)},
		{"error_first", true, 0, status(400)},
		{"error_event", true, 2, status(500)},
		{"error_field", true, 2, status(500)},
		{"garbage", false, 0, is(wire.ErrMalformed)},
		{"garbage", true, 2, is(wire.ErrMalformed)},
		{"empty", true, 8, none},
		{"torn", true, 8, none},
		{"torn", false, 1, none},
	} {
		t.Run(c.word, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				events, err := generate(t.Context(), remote(t, &backendtest.Standin{Model: "m"}), chat(c.word, c.stream))
				if len(events) != c.events || !c.err(err) {
					t.Errorf("stream %v: %d events, want %d; error %v", c.stream, len(events), c.events, err)
				}
				for _, e := range events {
					if _, err := wire.ReadDelta([]byte(e)); err != nil || strings.ToValidUTF8(e, "") != e {
						t.Errorf("event %q: %v", e, err)
					}
				}
			})
		})
	}
}

func TestRemoteMissingDoneAndUsageIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		req := chat("no_done", true)
		req.IncludeUsage = true // the stand-in was not told, so it sends no usage
		if _, err := generate(t.Context(), remote(t, &backendtest.Standin{}), req); !errors.Is(err, engine.ErrLost) {
			t.Errorf("got %v, want ErrLost: the usage that was asked for never came", err)
		}
	})
}

func TestRemoteCancelReachesTheServer(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) { cancelReachesTheServer(t, way.remote) })
	}
}

func cancelReachesTheServer(t *testing.T, remote func(*testing.T, http.Handler) *backend.Remote) {
	for _, c := range []struct {
		name, word string
		stream     bool
	}{
		{"before the headers", "stall", true},
		{"unstreamed", "stall", false},
		{"between events", "stall_after", true},
		{"while events come", "endless", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				standin := &backendtest.Standin{}
				r := remote(t, standin)
				why := &engine.TimeoutError{Timer: "the request", Limit: time.Minute}
				ctx, cancel := context.WithTimeoutCause(t.Context(), why.Limit, why)
				defer cancel()
				var err error
				if c.word == "endless" {
					// time stands still while somebody works: the client goes by itself
					events := 0
					_, err = r.Generate(ctx, chat(c.word, c.stream), func(engine.Chunk) error {
						if events++; events > 100 {
							return why
						}
						return nil
					})
				} else {
					_, err = generate(ctx, r, chat(c.word, c.stream))
				}
				if !errors.Is(err, why) {
					t.Errorf("got %v, want the limit that passed", err)
				}
				standin.Gone(1) // else the bubble is stuck and says so
			})
		})
	}
}

func TestRemoteWaitsForReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		r := remote(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if time.Since(begin) < 10*time.Second {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}))
		if err := r.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := time.Since(begin); got < 10*time.Second || got > 11*time.Second {
			t.Errorf("ready after %v, want after 10 s", got)
		}
	})
}

func TestRemoteNobodyThere(t *testing.T) {
	r, err := backend.NewRemote(backend.RemoteConfig{URL: "http://memory", Slots: 1, Dial: closed().Dial})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := errors.AsType[*engine.UnavailableError](r.Ready(t.Context())); !ok {
		t.Error("Ready did not say that nobody answers")
	}
	if _, err := generate(t.Context(), r, chat("", true)); !errors.Is(err, engine.ErrLost) {
		t.Errorf("Generate: %v, want ErrLost", err)
	}
}

func closed() *backendtest.Network {
	n := backendtest.NewNetwork()
	n.Close()
	return n
}

func TestNewRemoteRefuses(t *testing.T) {
	for _, url := range []string{"", "memory:80", "ftp://a", "http://", "http://[::1"} {
		if _, err := backend.NewRemote(backend.RemoteConfig{URL: url, Slots: 1}); err == nil {
			t.Errorf("accepted the address %q", url)
		}
	}
	if _, err := backend.NewRemote(backend.RemoteConfig{URL: "http://a"}); err == nil {
		t.Error("accepted no slots")
	}
}

func TestRemoteInfo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got, err := remote(t, &backendtest.Standin{Model: "m"}).Info(t.Context())
		want := engine.Info{Context: 512, Meta: []byte(`{"n_ctx":512,"n_params":7}`)}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got)\n%s", err, diff)
		}
	})
}

func TestRemoteRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := remote(t, &backendtest.Standin{})
		for _, c := range []struct{ method, target, body, want string }{
			{"POST", "/tokenize", `{"b":1,"a":2}`, `{"tokens":[1,2],"got":"{\"b\":1,\"a\":2}","type":"application/json"}`},
			{"GET", "/props?a=b%20c", "", `"query":"a=b%20c"}`},
		} {
			in, err := http.NewRequestWithContext(t.Context(), c.method, c.target, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			in.Header.Set("Content-Type", "application/json")
			res, err := r.Relay(in)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(res.Body)
			res.Body.Close()
			if err != nil || !strings.HasSuffix(string(got), c.want) {
				t.Errorf("%s: got %s, %v; want %s", c.target, got, err, c.want)
			}
		}
	})
}

// TestRemoteAssembles holds that an answer put together from a stream is the one that would have come in one piece, and
// that requests of which that cannot be said go out as they are.
func TestRemoteAssembles(t *testing.T) {
	for _, c := range []struct {
		name, more string
		kind       engine.Kind
		streamed   bool
	}{
		{"a chat", ``, engine.Chat, true},
		{"a chat with logprobs", `,"logprobs":true`, engine.Chat, false},
		{"a completion", ``, engine.Completion, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked []string
				standin := &backendtest.Standin{Model: "m"}
				handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					b, err := io.ReadAll(r.Body)
					if err != nil {
						t.Error(err)
					}
					asked = append(asked, string(b))
					r.Body = io.NopCloser(strings.NewReader(string(b)))
					standin.ServeHTTP(w, r)
				})
				req := &engine.Request{Kind: c.kind, Raw: []byte(`{"messages":[]` + c.more + `}`)}
				var answers []any
				var usages []engine.Usage
				for _, assemble := range []bool{false, true} {
					usage, err := remoteWith(t, handler, assemble).Generate(t.Context(), req, func(chunk engine.Chunk) error {
						var v any
						err := json.Unmarshal(chunk.Raw, &v)
						answers = append(answers, v)
						return err
					})
					if err != nil {
						t.Fatal(err)
					}
					usages = append(usages, usage)
				}
				if len(answers) != 2 || usages[0] != usages[1] {
					t.Fatalf("%d answers, usages %v", len(answers), usages)
				}
				if diff := cmp.Diff(answers[0], answers[1]); diff != "" {
					t.Errorf("(-in one piece +put together)\n%s", diff)
				}
				if got := strings.Contains(asked[1], `"stream":true`); got != c.streamed {
					t.Errorf("asked for %s", asked[1])
				}
			})
		})
	}
}

// TestRemoteCountsWhatIsLeft holds that an unstreamed chat whose client leaves costs what was made until then.
func TestRemoteCountsWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":null}}]}`+"\n\n")
			for range 7 {
				io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":"x"}}]}`+"\n\n")
			}
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		})
		ctx, leave := context.WithCancel(t.Context())
		go func() {
			synctest.Wait()
			leave()
		}()
		req := &engine.Request{Kind: engine.Chat, Raw: []byte(`{"messages":[{"role":"user","content":"tell me a long story"}]}`)}
		usage, err := remoteWith(t, handler, true).Generate(ctx, req, func(engine.Chunk) error { return errors.New("there is no answer yet") })
		if !errors.Is(err, context.Canceled) || usage.Completion != 7 || usage.Prompt < 10 || usage.Prompt > 50 {
			t.Errorf("got %+v, %v", usage, err)
		}
	})
}
