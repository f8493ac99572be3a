package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"onebit/appliance/config"
	"onebit/engine"
	"onebit/engine/backendtest"
)

func TestLoading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, &scripted{state: engine.Loading}, nil)
		for _, stream := range []bool{false, true} {
			a := s.chat("", stream)
			if e := refusal(t, a.body); a.status != 503 || e.Message != "model is loading" || a.header.Get("Retry-After") == "" {
				t.Errorf("%d %v %+v", a.status, a.header, e)
			}
		}
		if a := s.do(t.Context(), "GET", "/v1/models", ""); a.status != 200 {
			t.Errorf("the list of models while loading: %d", a.status)
		}
	})
}

func whole(_ context.Context, _ int, emit func(engine.Chunk) error) (engine.Usage, error) {
	return engine.Usage{Prompt: 1}, emit(engine.Chunk{Raw: []byte(`{"model":"x"}`)})
}

func TestRestarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Log("a request waits for a backend that comes back")
		begin := time.Now()
		b := &scripted{state: engine.Down, generate: whole, ready: func(ctx context.Context) error {
			select {
			case <-time.After(30 * time.Second):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}}
		if a := serve(t, b, nil).chat("", false); a.status != 200 || time.Since(begin) != 30*time.Second {
			t.Errorf("%d after %v", a.status, time.Since(begin))
		}
		t.Log("but not for ever")
		a := serve(t, b, func(l *config.Limits) { l.Ready = 10 * time.Second }).chat("", false)
		if e := refusal(t, a.body); a.status != 503 || a.header.Get("Retry-After") != "10" || !strings.Contains(e.Message, "10s") {
			t.Errorf("%d %v %s", a.status, a.header, a.body)
		}
		t.Log("and hears at once when waiting is in vain")
		b.ready = func(context.Context) error {
			return &engine.UnavailableError{Reason: "it died again", RetryAfter: 12 * time.Second}
		}
		if a := serve(t, b, nil).chat("", true); a.status != 503 || a.header.Get("Retry-After") != "12" {
			t.Errorf("%d %v %s", a.status, a.header, a.body)
		}
	})
}

func TestLostRequestIsSentAgainOnce(t *testing.T) {
	lost := fmt.Errorf("%w: EOF", engine.ErrLost)
	for _, c := range []struct {
		name   string
		script func(ctx context.Context, try int, emit func(engine.Chunk) error) (engine.Usage, error)
		tries  int
		status int
	}{
		{"it died of something else", func(ctx context.Context, try int, emit func(engine.Chunk) error) (engine.Usage, error) {
			if try == 1 {
				return engine.Usage{}, lost
			}
			return whole(ctx, try, emit)
		}, 2, 200},
		{"it went down between the calls", func(ctx context.Context, try int, emit func(engine.Chunk) error) (engine.Usage, error) {
			if try == 1 {
				return engine.Usage{}, &engine.UnavailableError{Reason: "down", RetryAfter: time.Second}
			}
			return whole(ctx, try, emit)
		}, 2, 200},
		{"it dies of the request", func(context.Context, int, func(engine.Chunk) error) (engine.Usage, error) {
			return engine.Usage{}, lost
		}, 2, 502},
		{"it refuses", func(context.Context, int, func(engine.Chunk) error) (engine.Usage, error) {
			return engine.Usage{}, &engine.StatusError{Status: 422}
		}, 1, 422},
		{"it fails in its own way", func(context.Context, int, func(engine.Chunk) error) (engine.Usage, error) {
			return engine.Usage{}, errors.New("odd")
		}, 1, 500},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &scripted{state: engine.Ready, generate: c.script}
				a := serve(t, b, nil).chat("", false)
				if a.status != c.status || b.tries != c.tries {
					t.Errorf("%d after %d tries, want %d after %d", a.status, b.tries, c.status, c.tries)
				}
			})
		})
	}
}

func TestStreamIsNotSentAgainAfterItsFirstEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &scripted{state: engine.Ready, generate: func(ctx context.Context, try int, emit func(engine.Chunk) error) (engine.Usage, error) {
			whole(ctx, try, emit)
			return engine.Usage{}, engine.ErrLost
		}}
		a := serve(t, b, nil).chat("", true)
		data := events(t, a.body)
		if b.tries != 1 || len(data) != 2 {
			t.Fatalf("%d tries, events %q", b.tries, data)
		}
		if e := refusal(t, data[1]); *e.Code != "backend_lost" {
			t.Errorf("got %+v", e)
		}
	})
}

func TestDeadline(t *testing.T) {
	for _, c := range []struct {
		word   string
		stream bool
		status int
	}{
		{"stall", false, 504},
		{"stall_after", true, 200},
	} {
		t.Run(c.word, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				child := &backendtest.Standin{}
				s := standin(t, child, func(l *config.Limits) { l.Request, l.KeepAlive = 3000*time.Second, 0 })
				a := s.chat(c.word, c.stream)
				object := a.body
				if c.stream {
					data := events(t, a.body)
					object = data[len(data)-1]
				}
				if e := refusal(t, object); a.status != c.status || !strings.Contains(e.Message, "50m0s") || !strings.Contains(e.Message, "one request") {
					t.Errorf("%d %+v", a.status, e)
				}
				if got := time.Since(begin); got != 3000*time.Second {
					t.Errorf("ended after %v", got)
				}
				child.Gone(1)
			})
		})
	}
}

func TestClientGone(t *testing.T) {
	for _, c := range []struct {
		word   string
		stream bool
	}{
		{"stall", false},
		{"stall", true},
		{"stall_after", true},
		{"endless", true},
	} {
		t.Run(fmt.Sprint(c.word, " stream ", c.stream), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				child := &backendtest.Standin{}
				s := standin(t, child, nil)
				ctx, cancel := context.WithCancel(t.Context())
				if c.word == "endless" {
					req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1/v1/chat/completions", strings.NewReader(body(c.word, true)))
					if err != nil {
						t.Fatal(err)
					}
					res, err := s.client.Do(req)
					if err != nil {
						t.Fatal(err)
					}
					io.ReadFull(res.Body, make([]byte, 4096))
					cancel()
					res.Body.Close()
				} else {
					time.AfterFunc(time.Minute, cancel)
					s.do(ctx, "POST", "/v1/chat/completions", body(c.word, c.stream))
				}
				begin := time.Now()
				child.Gone(1)
				if got := time.Since(begin); got > time.Second {
					t.Errorf("the child heard of it after %v", got)
				}
				cancel()
			})
		})
	}
}

func TestClientGoneWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := make(chan error, 1)
		b := &scripted{state: engine.Down, ready: func(ctx context.Context) error {
			<-ctx.Done()
			left <- context.Cause(ctx)
			return context.Cause(ctx)
		}}
		s := serve(t, b, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		s.do(ctx, "POST", "/v1/chat/completions", body("", true))
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("the wait ended with %v", err)
		}
		synctest.Wait()
		if log := s.log.String(); !strings.Contains(log, "status=499") {
			t.Errorf("log %q", log)
		}
	})
}

func TestKeepAlive(t *testing.T) {
	pause := func(ctx context.Context, long time.Duration) error {
		select {
		case <-time.After(long):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		b := &scripted{state: engine.Ready, generate: func(ctx context.Context, _ int, emit func(engine.Chunk) error) (engine.Usage, error) {
			for range 2 {
				if err := pause(ctx, 40*time.Second); err != nil {
					return engine.Usage{}, err
				}
				if err := emit(engine.Chunk{Raw: []byte(`{"model":"x"}`)}); err != nil {
					return engine.Usage{}, err
				}
			}
			return engine.Usage{}, nil
		}}
		const event = "data: {\"model\":\"served\"}\n\n"
		want := strings.Repeat(": ping\n\n", 2) + event + strings.Repeat(": ping\n\n", 2) + event + "data: [DONE]\n\n"
		if a := serve(t, b, nil).chat("", true); a.body != want {
			t.Errorf("got %q, want %q", a.body, want)
		}
		if a := serve(t, b, func(l *config.Limits) { l.KeepAlive = 0 }).chat("", true); a.body != event+event+"data: [DONE]\n\n" {
			t.Errorf("switched off: got %q", a.body)
		}
		b.generate = func(ctx context.Context, _ int, _ func(engine.Chunk) error) (engine.Usage, error) {
			if err := pause(ctx, 20*time.Second); err != nil {
				return engine.Usage{}, err
			}
			return engine.Usage{}, &engine.StatusError{Status: 400, Body: []byte(`{"error":{"message":"late"}}`)}
		}
		a := serve(t, b, nil).chat("", true)
		if data := events(t, a.body); a.status != 200 || len(data) != 1 || refusal(t, data[0]).Message != "late" {
			t.Errorf("late refusal: %d %q", a.status, a.body)
		}
	})
}
