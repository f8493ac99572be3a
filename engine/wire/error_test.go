package wire_test

import (
	"encoding/json"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onebit/engine"
	"onebit/engine/wire"
)

func TestErrorWrite(t *testing.T) {
	w := httptest.NewRecorder()
	(&wire.Error{Status: 503, Message: `no "model"`, Type: wire.TypeUnavailable, Code: "loading", RetryAfter: 1500 * time.Millisecond, NoRetry: true}).Write(w)
	want := `{"error":{"message":"no \"model\"","type":"unavailable_error","param":null,"code":"loading"}}` + "\n"
	if w.Code != 503 || w.Body.String() != want {
		t.Errorf("got %d %s, want 503 %s", w.Code, w.Body, want)
	}
	h := w.Result().Header
	if h.Get("Retry-After") != "2" || h.Get("X-Should-Retry") != "false" || h.Get("Content-Type") != "application/json" {
		t.Errorf("headers %v", h)
	}
}

func TestFromBackend(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		body   string
		want   string
	}{
		{"llama-server", 400, `{"error":{"code":400,"message":"bad role","type":"invalid_request_error"}}`,
			`{"message":"bad role","type":"invalid_request_error","param":null,"code":null}`},
		{"context", 400, `{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error","n_prompt_tokens":900,"n_ctx":512}}`,
			`{"message":"This exceeds the maximum context length of the model: the request exceeds the available context size","type":"exceed_context_size_error","param":null,"code":"context_length_exceeded","n_prompt_tokens":900,"n_ctx":512}`},
		{"context in the right words", 400, `{"error":{"message":"maximum context length is 512","type":"exceed_context_size_error","param":"messages","code":"context_length_exceeded"}}`,
			`{"message":"maximum context length is 512","type":"exceed_context_size_error","param":"messages","code":"context_length_exceeded"}`},
		{"string", 500, `{"error":"it broke"}`, `{"message":"it broke","type":"server_error","param":null,"code":null}`},
		{"detail", 422, `{"detail":"no such field"}`, `{"message":"no such field","type":"invalid_request_error","param":null,"code":null}`},
		{"text", 500, "it broke\n", `{"message":"it broke","type":"server_error","param":null,"code":null}`},
		{"page", 502, "<html>", `{"message":"the backend answered 502 Bad Gateway","type":"server_error","param":null,"code":null}`},
		{"nothing", 501, "", `{"message":"the backend answered 501 Not Implemented","type":"not_implemented","param":null,"code":null}`},
		{"bad UTF-8", 400, "{\"error\":{\"message\":\"\xff\"}}", `{"message":"` + "\uFFFD" + `","type":"invalid_request_error","param":null,"code":null}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := wire.FromBackend(&engine.StatusError{Status: c.status, Body: []byte(c.body)})
			if diff := cmp.Diff(`{"error":`+c.want+`}`, string(got.Append(nil))); diff != "" || got.Status != c.status {
				t.Errorf("status %d, (-want +got)\n%s", got.Status, diff)
			}
			if got.NoRetry != (c.status == 501) {
				t.Errorf("NoRetry = %v", got.NoRetry)
			}
		})
	}
}

// FuzzBackendError holds that whatever a backend says becomes one well-formed error object.
func FuzzBackendError(f *testing.F) {
	f.Add([]byte(`{"error":{"code":400,"message":"bad","type":"exceed_context_size_error","n_ctx":512}}`))
	f.Add([]byte(`{"error":"text"}`))
	f.Add([]byte("plain"))
	f.Fuzz(func(t *testing.T, body []byte) {
		out := wire.FromBackend(&engine.StatusError{Status: 500, Body: body}).Append(nil)
		var got struct {
			Error struct {
				Message, Type string
				Param, Code   *string
			}
		}
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if got.Error.Message == "" || got.Error.Type == "" {
			t.Fatalf("message or type missing: %s", out)
		}
	})
}
