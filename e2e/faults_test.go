//go:build unix

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"
)

// The tests below are named after the cases from the field that they hold.

// TestRefusalKeepsItsStatus (T03): a child's refusal is no event of a stream, and keeps its type and counts.
func TestRefusalKeepsItsStatus(t *testing.T) {
	s := newStage(t).vulkan()
	for _, stream := range []bool{false, true} {
		r := s.post("/v1/chat/completions", chat("!overflow!", obj{"stream": stream}))
		v := r.json(t)
		message, _ := dig(v, "error", "message").(string)
		if r.status != 400 || !strings.HasPrefix(r.header.Get("Content-Type"), "application/json") || !strings.Contains(message, "maximum context length") ||
			dig(v, "error", "type") != "exceed_context_size_error" || dig(v, "error", "n_prompt_tokens") != 9000.0 || dig(v, "error", "n_ctx") != 4096.0 {
			t.Errorf("stream %v: %d %s", stream, r.status, r.body)
		}
	}
	for _, status := range []int{400, 422, 429, 500, 503} {
		for _, stream := range []bool{false, true} {
			r := s.post("/v1/chat/completions", chat(fmt.Sprintf("!status:%d!", status), obj{"stream": stream}))
			if r.status != status || dig(r.json(t), "error", "message") != "it was told to say so" || dig(r.json(t), "error", "type") != "told_error" {
				t.Errorf("%d, stream %v: %d %s", status, stream, r.status, r.body)
			}
			if again := r.header.Get("Retry-After"); (status == 429 || status == 503) != (again == "7") {
				t.Errorf("%d: retry-after %q", status, again)
			}
		}
	}
}

// TestNoOrphan (T08): a killed serve leaves no child, on any route.
func TestNoOrphan(t *testing.T) {
	for _, r := range routes() {
		t.Run(r.device, func(t *testing.T) {
			st := newStage(t)
			s := st.serve(r.args(t, st)...)
			pid := st.last("start").Pid
			if err := s.cmd.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			await(t, 2*time.Second, "the child ends with serve", func() bool { return !alive(pid) })
		})
	}
}

// TestReadyMeansThatItGenerates (T14): a server that is healthy by its own account and fails each request is not served.
func TestReadyMeansThatItGenerates(t *testing.T) {
	st := newStage(t, "STANDIN_FAULT=unhealthy")
	s := launchWith(t, st.env, "serve", "--port", "0", "-m", st.gguf("m.gguf", nil), "--device", "vulkan", "--llama-server", standin(t, "llama-server"))
	for {
		resp, err := http.Get(s.URL + "/health")
		if err != nil {
			break
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable {
			t.Fatalf("health says %d", resp.StatusCode)
		}
		time.Sleep(20 * time.Millisecond)
	}
	<-s.done
	if code := s.cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(s.log.String(), "cannot generate") {
		t.Errorf("exit %d: %s", code, s.log)
	}
}

// twoHops returns a server's address behind another proxy.
func twoHops(t *testing.T, s *server) string {
	target, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) {} // the client has gone
	front := httptest.NewServer(proxy)
	t.Cleanup(front.Close)
	return front.URL
}

// TestClientGone (T19): a client that goes is known to the child within a second, wherever its request stands, also
// through two proxies.
func TestClientGone(t *testing.T) {
	for _, hops := range []int{1, 2} {
		st := newStage(t)
		s := st.vulkan("--parallel", "1")
		if hops == 2 {
			s.URL = twoHops(t, s)
		}
		for _, c := range []struct {
			state, where string
			departure
		}{
			{"streaming", "endless", departure{text: "!endless!", at: "hold", stream: true, reads: true}},
			{"streaming and silent", "stall-after", departure{text: "!stall-after:2!", at: "hold", stream: true, reads: true}},
			{"not streaming", "stall", departure{text: "!stall!", at: "hold"}},
			{"prefill", "stall", departure{text: "!stall!", at: "hold", stream: true}},
		} {
			t.Run(fmt.Sprint(c.state, ", hops ", hops), func(t *testing.T) {
				st := st.in(t)
				before := len(st.log("gone"))
				went := st.leave(s, c.departure)
				st.wentWithin(went, before, c.where)
			})
		}
		t.Run(fmt.Sprint("queued, hops ", hops), func(t *testing.T) {
			st := st.in(t)
			before := len(st.log("gone"))
			held := len(st.log("hold"))
			holder, letGo := context.WithCancel(t.Context())
			var group sync.WaitGroup
			group.Go(func() {
				if resp, err := s.send(holder, "/v1/chat/completions", chat("!stall!", nil)); err == nil {
					resp.Body.Close()
				}
			})
			await(t, 5*time.Second, "the only slot is taken", func() bool { return len(st.log("hold")) > held })
			went := st.leave(s, departure{text: capital, at: "request", stream: true})
			st.wentWithin(went, before, "queued")
			letGo()
			group.Wait()
		})
		await(t, 5*time.Second, "the slot is free", func() bool {
			r, err := s.tryPost(t.Context(), "/v1/chat/completions", chat(capital, nil))
			return err == nil && r.status == 200
		})
	}
}

// departure is how a client goes: when the child has noted an event and, if it reads, when it has got something. A client
// that went before would be missed: a child that only then comes to write finds the connection gone.
type departure struct {
	text, at      string
	stream, reads bool
}

// leave sends a request, goes and returns when.
func (s *stage) leave(v *server, d departure) time.Time {
	s.t.Helper()
	before := len(s.log(d.at))
	ctx, cancel := context.WithCancel(s.t.Context())
	var group sync.WaitGroup
	var got atomic.Bool
	group.Go(func() {
		resp, err := v.send(ctx, "/v1/chat/completions", chat(d.text, obj{"stream": d.stream}))
		if err == nil {
			_, err := io.CopyN(io.Discard, resp.Body, 1)
			got.Store(err == nil)
			_, _ = io.Copy(io.Discard, resp.Body) // until it is cancelled
			resp.Body.Close()
		}
	})
	await(s.t, 5*time.Second, "the child has the request", func() bool { return len(s.log(d.at)) > before && (got.Load() || !d.reads) })
	went := time.Now()
	cancel()
	group.Wait()
	return went
}

// wentWithin checks that the child has noted one more client that went, within a second.
func (s *stage) wentWithin(went time.Time, before int, where string) {
	s.t.Helper()
	await(s.t, 5*time.Second, "the child hears of it", func() bool { return len(s.log("gone")) > before })
	e := s.log("gone")[before]
	if late := time.UnixMilli(e.At).Sub(went); e.Where != where || late > time.Second {
		s.t.Errorf("the child heard of it after %v in %q, want %q", late, e.Where, where)
	}
}

// TestHealthUnderLoad (T21): requests that wait do not keep /health from answering.
func TestHealthUnderLoad(t *testing.T) {
	st := newStage(t)
	s := st.vulkan("--parallel", "4")
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	for i := range 40 {
		group.Go(func() {
			resp, err := s.send(ctx, "/v1/chat/completions", chat("!stall!", obj{"stream": i%2 == 0}))
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body) // until it is cancelled
				resp.Body.Close()
			}
		})
	}
	await(t, 10*time.Second, "40 requests are under way", func() bool { return len(st.log("request")) >= 40 })
	var took []time.Duration
	for range 300 {
		begin := time.Now()
		if status, _, body := s.get("/health"); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	t.Logf("/health with 40 requests on 4 slots: median %v, p99 %v", took[150], took[297])
}

// TestFailureInTheMiddle (T31): after the first byte a failure is an error event in the usual form, and then the end.
func TestFailureInTheMiddle(t *testing.T) {
	s := newStage(t).vulkan()
	for _, word := range []string{"error-event", "error-field", "cut-after:3", "die-after:3"} {
		t.Run(word, func(t *testing.T) {
			resp, err := s.send(t.Context(), "/v1/chat/completions", chat("!"+word+"!", obj{"stream": true}))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("%d, %v after %q", resp.StatusCode, err, body)
			}
			n, last := 0, map[string]any{}
			done, err := events(bytes.NewReader(body), func(v map[string]any) bool {
				n, last = n+1, v
				return true
			})
			message, _ := dig(last, "error", "message").(string)
			kind, _ := dig(last, "error", "type").(string)
			if err != nil || done || n < 3 || message == "" || kind == "" || strings.Contains(string(body), "\nerror:") {
				t.Errorf("%d events, done %v, %v: %q", n, done, err, body)
			}
			await(t, 15*time.Second, "the next request is answered", func() bool {
				r, err := s.tryPost(t.Context(), "/v1/chat/completions", chat(capital, nil))
				return err == nil && r.status == 200
			})
		})
	}
}

// TestStrangeAnswers: torn text is repaired, late headers are waited for.
func TestStrangeAnswers(t *testing.T) {
	s := newStage(t).vulkan()
	r := s.post("/v1/chat/completions", chat("!torn-utf8!", obj{"stream": true}))
	if done, err := events(bytes.NewReader(r.body), func(map[string]any) bool { return true }); err != nil || !done || !utf8.Valid(r.body) {
		t.Errorf("torn text: done %v, %v: %q", done, err, r.body)
	}
	for _, stream := range []bool{false, true} {
		r := s.post("/v1/chat/completions", chat("!slow-headers:1500!", obj{"stream": stream}))
		if r.status != 200 || !strings.Contains(string(r.body), "Paris") {
			t.Errorf("late headers, stream %v: %d %s", stream, r.status, r.body)
		}
	}
}

// TestDeadBeforeTheFirstByte: a request that kills its child is sent twice and then given up; the child comes back.
func TestDeadBeforeTheFirstByte(t *testing.T) {
	st := newStage(t)
	s := st.vulkan()
	r := s.post("/v1/chat/completions", chat("!die-before!", obj{"stream": true}))
	if r.status != 502 || dig(r.json(t), "error", "code") != "backend_lost" || r.header.Get("X-Should-Retry") != "false" || len(st.log("request")) != 2 {
		t.Errorf("%d %s after %d attempts", r.status, r.body, len(st.log("request")))
	}
	s.waitHealthy(30 * time.Second)
	if r := s.post("/v1/chat/completions", chat(capital, nil)); r.status != 200 {
		t.Errorf("afterwards: %d %s", r.status, r.body)
	}
}

// TestRestart: a dead child is started again, the waits grow, /health tells the truth, and the metrics count.
func TestRestart(t *testing.T) {
	st := newStage(t, "STANDIN_LOAD=1s") // long enough to be seen
	s := st.vulkan()
	for round := range 2 {
		if err := syscall.Kill(st.last("start").Pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		await(t, 5*time.Second, "health says that it restarts", func() bool {
			status, _, body := s.get("/health")
			return status == 503 && strings.Contains(body, "restarting")
		})
		if r := s.post("/v1/chat/completions", chat(capital, nil)); round == 0 && r.status != 200 { // it waits
			t.Errorf("%d %s", r.status, r.body)
		}
		s.waitHealthy(30 * time.Second)
	}
	if _, _, body := s.get("/metrics"); !strings.Contains(body, `onebit_backend_restarts_total{backend="vulkan",device="vulkan"} 2`+"\n") {
		t.Errorf("metrics:\n%s", body)
	}
	if n := len(st.log("start")); n != 3 {
		t.Errorf("%d starts", n)
	}
}

// TestRestartBesideTheOther: while one of two backends is down the other serves.
func TestRestartBesideTheOther(t *testing.T) {
	st := newStage(t)
	st.env = append(st.env, "ONEBIT_LEAN_SERVER="+standin(t, "llama-server"), "STANDIN_LOAD=1s")
	s := st.serve("-m", st.gguf("m.gguf", nil), "--adaptive", "--adaptive-at", "4", "--llama-server", standin(t, "llama-server"))
	for _, e := range st.log("start") {
		if strings.Contains(strings.Join(e.Args, " "), "Vulkan0") {
			if err := syscall.Kill(e.Pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	await(t, 5*time.Second, "health says that one is down", func() bool {
		status, _, body := s.get("/health")
		var v struct{ Status string }
		return json.Unmarshal([]byte(body), &v) == nil && status == 200 && v.Status == "degraded"
	})
	if r := s.post("/v1/chat/completions", chat(capital, nil)); r.status != 200 || st.last("request").Device != "ROCm0" {
		t.Errorf("%d %s on %s", r.status, r.body, st.last("request").Device)
	}
	await(t, 15*time.Second, "both are back", func() bool {
		_, _, body := s.get("/health")
		return strings.HasPrefix(body, `{"status":"ok"`)
	})
}

// TestNeverReady: SIGTERM ends a serve whose child loads for ever, and takes the child with it.
func TestNeverReady(t *testing.T) {
	st := newStage(t, "STANDIN_FAULT=never-ready")
	s := launchWith(t, st.env, "serve", "--port", "0", "-m", st.gguf("m.gguf", nil), "--device", "vulkan", "--llama-server", standin(t, "llama-server"))
	await(t, 10*time.Second, "the child runs", func() bool { return len(st.log("start")) == 1 })
	if r := s.post("/v1/chat/completions", chat(capital, nil)); r.status != 503 || r.header.Get("Retry-After") == "" || dig(r.json(t), "error", "message") != "model is loading" {
		t.Errorf("%d %s", r.status, r.body)
	}
	s.stop()
	if s.err != nil || alive(st.last("start").Pid) {
		t.Errorf("%v; the child is alive: %v", s.err, alive(st.last("start").Pid))
	}
}
