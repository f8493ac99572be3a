package runner_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"onebit/engine/batch"
)

// slow makes every pass take a time, in fake time.
func slow(d time.Duration) func([]batch.Step) error {
	return func([]batch.Step) error {
		time.Sleep(d)
		return nil
	}
}

// prompt is a native request that streams nothing and makes n letters.
func prompt(text string, n int, more ...string) string {
	return fmt.Sprintf(`{"prompt":%s,"n_predict":%d,"temperature":0%s}`, short(text), n, strings.Join(append([]string{""}, more...), ","))
}

func content(t *testing.T, r reply) string {
	t.Helper()
	if r.status != http.StatusOK {
		t.Fatalf("status %d: %s", r.status, r.body)
	}
	text, _ := r.json(t)["content"].(string)
	return text
}

// The answer to a conversation's next turn begins from all of the last one.
func TestConversationReuse(t *testing.T) {
	bubble(t, &fakeEngine{next: echo("fine")}, 2, 256, func(f *fixture) {
		f.ok("/v1/chat/completions", `{`+hi+`}`)
		v := f.ok("/v1/chat/completions", `{"temperature":0,"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"fine"},{"role":"user","content":"and you?"}]}`)
		if n := dig(v, "usage", "prompt_tokens_details", "cached_tokens"); n != 9.0 { // <|user|>hi<|end|><|assistant|>fine
			t.Errorf("%v cached tokens", n)
		}
	})
}

// When a client goes, its request is gone after the pass under way, wherever it
// stands.
func TestCancel(t *testing.T) {
	const pass = 20 * time.Millisecond
	long := strings.Repeat("x", 3000)
	tests := []struct {
		name  string
		busy  bool // another request holds the slot
		body  string
		after time.Duration
	}{
		{"generating, streaming", false, prompt("a", 3000, `"stream":true`), 10 * pass},
		{"generating, not streaming", false, prompt("a", 3000), 10 * pass},
		{"queued", true, prompt("a", 3000), 3 * pass},
		{"queued, streaming", true, prompt("a", 3000, `"stream":true`), 3 * pass},
		{"processing the prompt", false, prompt(long, 10), 2 * pass},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := &fakeEngine{during: slow(pass)}
			bubble(t, e, 1, 4096, func(f *fixture) {
				var other *call
				if tt.busy {
					other = f.begin("/completion", prompt("busy", 20))
					synctest.Wait()
				}
				c := f.begin("/completion", tt.body)
				time.Sleep(tt.after)
				c.cancel()
				c.wait()
				before := len(e.recorded())
				time.Sleep(2 * pass)
				if tt.busy {
					if text := string(f.get("/metrics").body); !strings.Contains(text, "llamacpp:requests_deferred 0\n") {
						t.Error("the request is still queued")
					}
					other.wait()
					return
				}
				if n := len(e.recorded()) - before; n > 1 {
					t.Errorf("%d passes after the client had gone", n)
				}
				var slots []map[string]any
				decode(t, f.get("/slots").body, &slots)
				if slots[0]["is_processing"] != false {
					t.Errorf("slots %s", short(slots))
				}
				if got := content(t, f.post("/completion", prompt("next", 3))); len(got) != 3 {
					t.Errorf("the next request got %q", got)
				}
			})
		})
	}
}

// A failure after the first bytes is an error event that ends the stream.
func TestFailureInStream(t *testing.T) {
	count := 0
	e := &fakeEngine{during: func([]batch.Step) error {
		if count++; count > 5 {
			return errors.New("the model broke")
		}
		return nil
	}}
	bubble(t, e, 1, 256, func(f *fixture) {
		for _, path := range []string{"/completion", "/v1/completions"} {
			count = 0
			events := f.events(path, prompt("a", 50, `"stream":true`))
			last := parse(t, events[len(events)-1])
			message, _ := dig(last, "error", "message").(string)
			if len(events) < 3 || !strings.Contains(message, "the model broke") || dig(last, "error", "type") != "server_error" {
				t.Errorf("%s: the stream ends with %s", path, events[len(events)-1])
			}
		}
	})
}

// Health and the like answer while the model is busy and the queue is full.
func TestStatusNeverWaits(t *testing.T) {
	bubble(t, &fakeEngine{during: slow(time.Minute)}, 1, 256, func(f *fixture) {
		var calls []*call
		for range 20 {
			calls = append(calls, f.begin("/completion", prompt("a", 5)))
		}
		synctest.Wait()
		began := time.Now()
		for _, path := range []string{"/health", "/slots", "/props", "/v1/models", "/metrics"} {
			if r := f.get(path); r.status != http.StatusOK {
				t.Errorf("%s: status %d", path, r.status)
			}
		}
		if r := f.get("/slots?fail_on_no_slot=1"); r.status != http.StatusServiceUnavailable {
			t.Errorf("no slot is idle, but the status is %d", r.status)
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("it took %v", d)
		}
		for _, c := range calls {
			c.cancel()
			c.wait()
		}
		time.Sleep(2 * time.Minute) // for the pass under way to end
	})
}

// A stream that has nothing to say for long shows that it lives.
func TestPing(t *testing.T) {
	for _, tt := range []struct {
		name, more string
		pings      int
	}{
		{"as the server has it", "", 3},
		{"as the request has it", `,"sse_ping_interval":10`, 9},
		{"never", `,"sse_ping_interval":-1`, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, &fakeEngine{}, 1, 256, func(f *fixture) {
				f.engine.during = slow(95 * time.Second)
				r := f.begin("/completion", `{"prompt":"a","n_predict":1,"stream":true`+tt.more+`}`).wait()
				if n := strings.Count(string(r.body), ": ping\n\n"); n != tt.pings {
					t.Errorf("%d pings", n)
				}
				splitEvents(t, r.body)
			})
		})
	}
}

func TestTimings(t *testing.T) {
	bubble(t, &fakeEngine{during: slow(100 * time.Millisecond)}, 1, 256, func(f *fixture) {
		v := f.ok("/completion", prompt("12345678", 5))
		want := `{"cache_n":0,"predicted_ms":400,"predicted_n":5,"predicted_per_second":10,"predicted_per_token_ms":100,"prompt_ms":100,"prompt_n":8,"prompt_per_second":80,"prompt_per_token_ms":12.5}`
		if got := short(v["timings"]); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if text := string(f.get("/metrics").body); !strings.Contains(text, "llamacpp:tokens_predicted_total 5\n") || !strings.Contains(text, "llamacpp:prompt_tokens_total 8\n") ||
			!strings.Contains(text, "llamacpp:predicted_tokens_seconds 10\n") || !strings.Contains(text, "llamacpp:n_decode_total 5\n") {
			t.Errorf("metrics:\n%s", text)
		}
	})
}

func TestSlots(t *testing.T) {
	bubble(t, &fakeEngine{during: slow(time.Second)}, 2, 256, func(f *fixture) {
		var slots []map[string]any
		decode(t, f.get("/slots").body, &slots)
		if short(slots) != `[{"id":0,"is_processing":false,"n_ctx":256,"speculative":false},{"id":1,"is_processing":false,"n_ctx":256,"speculative":false}]` {
			t.Errorf("idle slots %s", short(slots))
		}
		c := f.begin("/completion", prompt("secret prompt", 10))
		time.Sleep(3500 * time.Millisecond)
		body := f.get("/slots").body
		decode(t, body, &slots)
		got := slots[0]
		if got["is_processing"] != true || got["n_prompt_tokens_processed"] != 13.0 || dig(got, "next_token", 0, "n_decoded") != 3.0 ||
			dig(got, "next_token", 0, "n_remain") != 7.0 || dig(got, "params", "n_predict") != 10.0 {
			t.Errorf("slot %s", short(got))
		}
		if strings.Contains(string(body), "secret") {
			t.Error("a listing shows a prompt")
		}
		c.wait()
	})
}
