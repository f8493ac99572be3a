package runner_test

import (
	"encoding/json"
	"testing"

	"onebit/engine/runner"
)

const fuzzContext = 96

// FuzzChatRequest reads any body as a chat. It is taken, with prompts that fit,
// or refused as the client's mistake in the form that clients read.
func FuzzChatRequest(f *testing.F) {
	r := runner.NewReader(fakeParts(&fakeEngine{}, 2, fuzzContext))
	f.Add(`{` + hi + `,` + tools + `,"tool_choice":"required"}`)
	f.Add(`{` + hi + `,"response_format":{"type":"json_schema","json_schema":{"schema":` + person + `}}}`)
	f.Fuzz(func(t *testing.T, body string) {
		prompts, status, refusal := r.Chat(t.Context(), []byte(body))
		checkRead(t, prompts, status, refusal)
	})
}

// FuzzCompletionRequest does the same with text completions.
func FuzzCompletionRequest(f *testing.F) {
	r := runner.NewReader(fakeParts(&fakeEngine{}, 2, fuzzContext))
	f.Add(`{"prompt":"x","grammar":"root ::= [a-z]{2,} | root-2\nroot-2 ::= \"b\"*"}`)
	f.Add(`{"prompt":"x","json_schema":` + person + `}`)
	f.Fuzz(func(t *testing.T, body string) {
		prompts, status, refusal := r.Completion([]byte(body))
		checkRead(t, prompts, status, refusal)
	})
}

func checkRead(t *testing.T, prompts [][]int32, status int, refusal []byte) {
	t.Helper()
	if status == 200 {
		if len(prompts) == 0 {
			t.Fatal("taken without a prompt")
		}
		for _, p := range prompts {
			if len(p) >= fuzzContext {
				t.Fatalf("a prompt of %d tokens was taken", len(p))
			}
			for _, id := range p {
				if id < 0 || id >= vocabSize {
					t.Fatalf("token %d", id)
				}
			}
		}
		return
	}
	var e struct {
		Error struct{ Message, Type string }
	}
	if err := json.Unmarshal(refusal, &e); err != nil || e.Error.Message == "" || e.Error.Type == "" || status < 400 || status >= 500 {
		t.Fatalf("status %d: %s", status, refusal)
	}
}
