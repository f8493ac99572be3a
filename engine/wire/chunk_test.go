package wire_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onebit/engine"
	"onebit/engine/wire"
)

func TestAppendRenamed(t *testing.T) {
	for _, c := range []struct{ name, raw, want string }{
		{"replaced", `{"id":1,"model":"child","x":[{"model":"child"}]}`, `{"id":1,"model":"served","x":[{"model":"child"}]}`},
		{"already right", `{"model":"served"}`, `{"model":"served"}`},
		{"spaces kept", "{ \"model\" : \"child\" ,\"a\": 1.50 }", "{ \"model\" : \"served\" ,\"a\": 1.50 }"},
		{"escaped key", `{"mod\u0065l":"child"}`, `{"mod\u0065l":"served"}`},
		{"absent", `{"id":1}`, `{"id":1}`},
		{"null", `{"model":null}`, `{"model":null}`},
		{"in a string", `{"a":"\"model\":\"child\"","model":"child"}`, `{"a":"\"model\":\"child\"","model":"served"}`},
		{"not an object", `[1]`, `[1]`},
		{"not JSON", `{"model":`, `{"model":`},
		{"empty", ``, ``},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := string(wire.AppendRenamed(nil, []byte(c.raw), wire.Quote("served"))); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestReadHead(t *testing.T) {
	h, err := wire.ReadHead([]byte(`{"usage":{"prompt_tokens":1},"error":null,"model":"m","choices":[{"usage":1}]}`))
	if err != nil || string(h.Usage) != `{"prompt_tokens":1}` || h.Error != nil || string(h.Model) != `"m"` {
		t.Errorf("got %+v, %v", h, err)
	}
	for _, bad := range []string{"", "x", "[]", `"a"`, "{", `{"a"`, `{"a":}`, `{"a":1 "b":2}`, `{"a":1}x`, `{,"a":1}`, `{"a":{"b":1}`, `{"a":"b}`} {
		if _, err := wire.ReadHead([]byte(bad)); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("ReadHead(%q) = %v, want ErrMalformed", bad, err)
		}
	}
}

func TestFinished(t *testing.T) {
	for raw, want := range map[string]bool{
		`{"choices":[{"finish_reason":"stop"}]}`:                           true,
		`{"choices":[{"finish_reason" : "length"}]}`:                       true,
		`{"choices":[{"finish_reason":null}]}`:                             false,
		`{"choices":[{"finish_reason":null},{"finish_reason":"stop"}]}`:    true,
		`{"choices":[{"delta":{"content":"\"finish_reason\":\"stop\""}}]}`: false,
		`{"choices":[]}`: false,
	} {
		if got := wire.Finished([]byte(raw)); got != want {
			t.Errorf("Finished(%s) = %v", raw, got)
		}
	}
}

func TestReadUsage(t *testing.T) {
	got, err := wire.ReadUsage([]byte(`{"prompt_tokens":12,"completion_tokens":7,"total_tokens":19,"prompt_tokens_details":{"cached_tokens":10},"completion_tokens_details":{"reasoning_tokens":3}}`))
	want := engine.Usage{Prompt: 12, Cached: 10, Completion: 7, Reasoning: 3}
	if err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

func TestReadDelta(t *testing.T) {
	for _, c := range []struct {
		name, raw string
		want      wire.Delta
	}{
		{"event", `{"choices":[{"index":0,"delta":{"content":"a","reasoning_content":"b"},"finish_reason":null}]}`, wire.Delta{Content: "a", Reasoning: "b"}},
		{"last", `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`, wire.Delta{FinishReason: "stop"}},
		{"usage", `{"choices":[],"usage":{}}`, wire.Delta{}},
		{"whole", `{"choices":[{"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}]}`, wire.Delta{Content: "a", FinishReason: "stop"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := wire.ReadDelta([]byte(c.raw))
			if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
				t.Errorf("%v, (-want +got)\n%s", err, diff)
			}
		})
	}
}

// FuzzChunk holds that renaming changes the model alone and that no bytes make it fail.
func FuzzChunk(f *testing.F) {
	f.Add([]byte(`{"id":1,"model":"child","usage":{"prompt_tokens":1},"choices":[{"finish_reason":"stop"}]}`))
	f.Add([]byte(`{"model":"\"\\"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		renamed := wire.AppendRenamed(nil, raw, wire.Quote("served"))
		wire.Finished(raw)
		var before, after map[string]any
		if json.Unmarshal(raw, &before) != nil || before == nil {
			return
		}
		if _, err := wire.ReadHead(raw); err != nil {
			t.Fatalf("refused a JSON object: %v", err)
		}
		if err := json.Unmarshal(renamed, &after); err != nil {
			t.Fatalf("renamed to what is not JSON: %s", renamed)
		}
		if v, ok := before["model"]; ok && v != nil {
			before["model"] = "served"
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Fatalf("renaming changed more than the model (-before +after):\n%s", diff)
		}
	})
}
