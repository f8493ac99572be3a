package runner_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"onebit/engine/runner"
)

// slow makes every pass take a time, in fake time.
func slow(d time.Duration) func([]runner.Step) error {
	return func([]runner.Step) error {
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

// Requests that arrive together decode together, and each answer is the one it
// gets alone.
func TestBatching(t *testing.T) {
	const n = 4
	alone := make([]string, n)
	for i := range n {
		bubble(t, &fakeEngine{}, 1, 256, func(f *fixture) {
			alone[i] = content(t, f.post("/completion", prompt(strings.Repeat("x", 3+40*i), 10+i)))
		})
	}
	e := &fakeEngine{during: slow(time.Millisecond)}
	bubble(t, e, n, 256, func(f *fixture) {
		var calls []*call
		for i := range n {
			calls = append(calls, f.begin("/completion", prompt(strings.Repeat("x", 3+40*i), 10+i)))
			synctest.Wait()
		}
		for i, c := range calls {
			if got := content(t, c.wait()); got != alone[i] {
				t.Errorf("request %d: %q together, %q alone", i, got, alone[i])
			}
		}
	})
	widest := 0
	for _, p := range e.recorded() {
		widest = max(widest, len(p))
	}
	if widest != n {
		t.Errorf("at most %d requests shared a pass, want %d", widest, n)
	}
}

// While one request's long prompt is processed, another's tokens keep coming,
// and no pass takes long.
func TestLongPromptDoesNotStopOthers(t *testing.T) {
	e := &fakeEngine{during: func(steps []runner.Step) error {
		for _, s := range steps {
			time.Sleep(time.Duration(len(s.Tokens)) * time.Millisecond)
		}
		return nil
	}}
	bubble(t, e, 2, 8192, func(f *fixture) {
		writer := f.begin("/completion", prompt("w", 400))
		time.Sleep(10 * time.Millisecond)
		long := f.begin("/completion", prompt(strings.Repeat("x", 4000), 1))
		writer.wait()
		long.wait()
	})
	together := 0
	for i, p := range e.recorded() {
		sum := 0
		for _, part := range p {
			sum += part.tokens
		}
		if len(p) == 2 {
			together++
			if sum > 101 {
				t.Errorf("pass %d holds %d tokens while another request decodes", i, sum)
			}
		}
		if sum > 504+126 {
			t.Errorf("pass %d holds %d tokens", i, sum)
		}
	}
	if together < 30 {
		t.Errorf("only %d passes served both", together)
	}
}

// A short prompt does not wait for the whole of a long one before it.
func TestShortPromptBesideLong(t *testing.T) {
	e := &fakeEngine{during: slow(100 * time.Millisecond)}
	bubble(t, e, 2, 8192, func(f *fixture) {
		long := f.begin("/completion", prompt(strings.Repeat("x", 6000), 1))
		synctest.Wait()
		began := time.Now()
		short := f.begin("/completion", prompt("y", 1))
		short.wait()
		if d := time.Since(began); d > 300*time.Millisecond {
			t.Errorf("the short prompt took %v", d)
		}
		long.wait()
	})
}

func TestPrefixReuse(t *testing.T) {
	const base = "a long beginning that two prompts share: "
	tests := []struct {
		name          string
		first, second string
		cached        int
	}{
		{"the same prompt", prompt(base, 4), prompt(base, 4), len(base) - 1},
		{"a longer prompt", prompt(base, 4), prompt(base+"And more", 4), len(base)},
		{"another end", prompt(base+"x", 4), prompt(base+"y", 4), len(base)},
		{"a shorter prompt", prompt(base+"x", 4), prompt(base, 4), len(base) - 1},
		{"another prompt", prompt(base, 4), prompt("something else", 4), 0},
		{"reuse switched off", prompt(base, 4), prompt(base, 4, `"cache_prompt":false`), 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var alone string
			bubble(t, &fakeEngine{}, 1, 256, func(f *fixture) { alone = content(t, f.post("/completion", tt.second)) })
			bubble(t, &fakeEngine{}, 1, 256, func(f *fixture) {
				f.ok("/completion", tt.first)
				v := f.ok("/completion", tt.second)
				if v["content"] != alone {
					t.Errorf("answer %v, alone %q", v["content"], alone)
				}
				timings := v["timings"]
				if dig(timings, "cache_n") != float64(tt.cached) || (dig(timings, "cache") == "live") != (tt.cached > 0) {
					t.Errorf("timings %s, want %d cached", short(timings), tt.cached)
				}
			})
		})
	}
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

// Which slot a request gets.
func TestSlotChoice(t *testing.T) {
	long := strings.Repeat("one conversation ", 5)
	system := "be brief. "
	tests := []struct {
		name     string
		requests []string
		slots    []int
	}{
		{"the same prompt again", []string{prompt(long, 1), prompt(long, 1)}, []int{0, 0}},
		{"an unused slot for another prompt", []string{prompt(long, 1), prompt("other", 1)}, []int{0, 1}},
		{"the least recently used slot", []string{prompt("a", 1), prompt("b", 1), prompt("c", 1), prompt("d", 1)}, []int{0, 1, 2, 0}},
		{"the longest beginning", []string{prompt(long+"x", 1), prompt(long+"xyz", 1, `"id_slot":1`), prompt(long+"xyw", 1)}, []int{0, 1, 1}},
		{"a conversation is not lost for a short common beginning", []string{prompt(system+long+long, 1), prompt(system+"hello there", 1)}, []int{0, 1}},
		{"a slot of choice", []string{prompt("a", 1, `"id_slot":2`)}, []int{2}},
		{"a slot of choice, though another has the prompt", []string{prompt(long, 1), prompt(long, 1, `"id_slot":2`)}, []int{0, 2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, &fakeEngine{}, 3, 512, func(f *fixture) {
				var got []int
				for _, r := range tt.requests {
					slot, _ := f.ok("/completion", r)["id_slot"].(float64)
					got = append(got, int(slot))
				}
				if d := cmp.Diff(tt.slots, got); d != "" {
					t.Error(d)
				}
			})
		})
	}
}

// More requests than slots are served in the order of their arrival.
func TestQueueOrder(t *testing.T) {
	bubble(t, &fakeEngine{during: slow(10 * time.Millisecond)}, 1, 256, func(f *fixture) {
		const n = 6
		order := make(chan int, n)
		for i := range n {
			c := f.begin("/completion", prompt(fmt.Sprint("prompt ", i), 5))
			synctest.Wait()
			go func() {
				c.wait()
				order <- i
			}()
		}
		if text := string(f.get("/metrics").body); !strings.Contains(text, "llamacpp:requests_deferred 5\n") || !strings.Contains(text, "llamacpp:requests_processing 1\n") {
			t.Errorf("metrics:\n%s", text)
		}
		for i := range n {
			if got := <-order; got != i {
				t.Fatalf("request %d ended as number %d", got, i)
			}
		}
	})
}

// A request that waits for its slot does not hold up those behind it.
func TestPinnedRequestWaitsAlone(t *testing.T) {
	bubble(t, &fakeEngine{during: slow(10 * time.Millisecond)}, 2, 256, func(f *fixture) {
		busy := f.begin("/completion", prompt("a", 50, `"id_slot":0`))
		synctest.Wait()
		pinned := f.begin("/completion", prompt("b", 1, `"id_slot":0`))
		synctest.Wait()
		if v := f.ok("/completion", prompt("c", 1)); v["id_slot"] != 1.0 {
			t.Errorf("slot %v", v["id_slot"])
		}
		select {
		case <-pinned.done:
			t.Error("the pinned request did not wait for its slot")
		default:
		}
		busy.wait()
		if v := pinned.wait().json(t); v["id_slot"] != 0.0 {
			t.Errorf("the pinned request ran in slot %v", v["id_slot"])
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

// A pass that fails costs only the request at fault.
func TestFailureIsIsolated(t *testing.T) {
	var alone string
	bubble(t, &fakeEngine{}, 1, 256, func(f *fixture) { alone = content(t, f.post("/completion", prompt("good", 30))) })
	e := &fakeEngine{}
	e.during = func(steps []runner.Step) error {
		time.Sleep(time.Millisecond)
		for _, s := range steps {
			if s.Tokens[len(s.Tokens)-1] == 'X' {
				// As a real engine might, it has already taken some of the tokens.
				steps[0].Session.(*fakeSession).tokens = append(steps[0].Session.(*fakeSession).tokens, 1)
				return errors.New("no memory for X")
			}
		}
		return nil
	}
	bubble(t, e, 2, 256, func(f *fixture) {
		good := f.begin("/completion", prompt("good", 30))
		time.Sleep(5 * time.Millisecond)
		bad := f.post("/completion", prompt("badX", 5))
		message, _ := dig(bad.json(t), "error", "message").(string)
		if bad.status != http.StatusInternalServerError || !strings.Contains(message, "no memory for X") {
			t.Errorf("status %d: %s", bad.status, bad.body)
		}
		if got := content(t, good.wait()); got != alone {
			t.Errorf("the other request got %q, alone %q", got, alone)
		}
		if got := content(t, f.post("/completion", prompt("good", 30))); got != alone {
			t.Errorf("later, the same request got %q", got)
		}
	})
}

// A failure after the first bytes is an error event that ends the stream.
func TestFailureInStream(t *testing.T) {
	count := 0
	e := &fakeEngine{during: func([]runner.Step) error {
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

func TestTimeLimit(t *testing.T) {
	reply := strings.Repeat("ab\n", 20)
	bubble(t, &fakeEngine{next: echo(reply), during: slow(100 * time.Millisecond)}, 1, 256, func(f *fixture) {
		v := f.ok("/completion", `{"prompt":"q:","temperature":0,"t_max_predict_ms":750}`)
		if v["content"] != "ab\nab\nab\n" || v["stop_type"] != "limit" {
			t.Errorf("%q, %v", v["content"], v["stop_type"])
		}
	})
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
