package gateway_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"onebit/appliance/queue"
	"onebit/engine"
	"onebit/engine/backendtest"
)

// TestLine: what a request wants of a model reaches the fleet, what it took goes back, and an answer that has waited says so.
func TestLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := box(t, far(t, &backendtest.Standin{Model: "child"}), &door{})
		ask := func(path, body, priority string) answer {
			req, err := http.NewRequestWithContext(t.Context(), "POST", "http://127.0.0.1"+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			if priority != "" {
				req.Header.Set("X-1bit-Priority", priority)
				req.Header.Set("X-Stainless-Retry-Count", "1")
			}
			res, err := s.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			return answer{status: res.StatusCode, header: res.Header}
		}
		chat := `{"messages":[{"role":"user","content":"` + strings.Repeat("hi ", 400) + `"}],"max_tokens":50}`
		a := ask("/v1/chat/completions", chat, "")
		if a.status != 200 || a.header.Get("X-1bit-Queue-Position") != "" || a.header.Get("X-1bit-Queue-Ms") != "" {
			t.Errorf("one that did not wait: %d %v", a.status, a.header)
		}
		f.load, f.position = 1500*time.Millisecond, 3
		a = ask("/v1/chat/completions", chat, "background")
		if a.header.Get("X-1bit-Queue-Position") != "3" || a.header.Get("X-1bit-Queue-Ms") != "1500" || a.header.Get("X-1bit-Overhead-Us") != "0" {
			t.Errorf("one that waited: %d %v", a.status, a.header)
		}
		if got := a.header.Get("X-1bit-Priority"); got != "" {
			t.Errorf("it has what it wanted, and hears of %q", got)
		}
		ask("/v1/tokenize", `{"content":"hi"}`, "interactive")
		if a := ask("/v1/chat/completions", chat, "urgent"); a.status != 400 {
			t.Errorf("a priority that is none: %d", a.status)
		}
		most := queue.Background
		f.most, f.load = &most, 0
		for _, wanted := range []string{"interactive", ""} {
			if a := ask("/v1/chat/completions", chat, wanted); a.status != 200 || a.header.Get("X-1bit-Priority") != "background" {
				t.Errorf("one that wanted %q and may have background: %d %v", wanted, a.status, a.header)
			}
		}
		synctest.Wait()
		f.wishes = f.wishes[:3]
		if len(f.wishes) != 3 || f.out != 0 {
			t.Fatalf("%d wishes, %d are held", len(f.wishes), f.out)
		}
		for i, want := range []struct {
			priority queue.Priority
			answer   int
			aside    bool
		}{{queue.Normal, 50, false}, {queue.Background, 50, false}, {queue.Interactive, 0, true}} {
			got := f.wishes[i]
			if got.Model != "small" || got.Priority != want.priority || got.Answer != want.answer || got.Aside != want.aside || got.Again != (i > 0) || !want.aside && (got.Prompt < 250 || got.Prompt > 350) {
				t.Errorf("wish %d is %+v", i, got)
			}
		}
		if f.used[0] == (engine.Usage{}) || f.used[0].Completion == 0 {
			t.Errorf("given back with %+v", f.used)
		}
	})
}
