package runner_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestModels(t *testing.T) {
	bubble(t, &fakeEngine{}, 3, 256, func(f *fixture) {
		want := map[string]any{
			"vocab_type": 2.0, "n_vocab": 260.0, "n_ctx": 256.0, "n_ctx_train": 4096.0, "n_embd": 64.0,
			"n_params": 1234.0, "size": 5678.0, "ftype": "Q8_0",
		}
		for _, path := range []string{"/models", "/v1/models"} {
			v := f.get(path).json(t)
			if d := cmp.Diff(want, dig(v, "data", 0, "meta")); d != "" {
				t.Errorf("%s: %s", path, d)
			}
			if dig(v, "object") != "list" || dig(v, "data", 0, "id") != "fake" || dig(v, "data", 0, "object") != "model" {
				t.Errorf("%s: %s", path, short(v))
			}
		}
		if v := f.get("/v1/models/fake").json(t); v["id"] != "fake" {
			t.Errorf("one model: %s", short(v))
		}
		if r := f.get("/v1/models/some/other"); r.status != 404 || dig(r.json(t), "error", "code") != "model_not_found" {
			t.Errorf("another model: %d %s", r.status, r.body)
		}
	})
}

func TestProps(t *testing.T) {
	bubble(t, &fakeEngine{}, 3, 256, func(f *fixture) {
		v := f.get("/props").json(t)
		for _, tt := range []struct {
			want any
			path []any
		}{
			{256.0, []any{"default_generation_settings", "n_ctx"}},
			{0.8, []any{"default_generation_settings", "params", "temperature"}},
			{40.0, []any{"default_generation_settings", "params", "top_k"}},
			{-1.0, []any{"default_generation_settings", "params", "n_predict"}},
			{4294967295.0, []any{"default_generation_settings", "params", "seed"}},
			{3.0, []any{"total_slots"}},
			{"fake", []any{"model_alias"}},
			{"/models/fake.gguf", []any{"model_path"}},
			{source, []any{"chat_template"}},
			{"<|end|>", []any{"eos_token"}},
			{false, []any{"modalities", "vision"}},
		} {
			if got := dig(v, tt.path...); got != tt.want {
				t.Errorf("%v is %v, want %v", tt.path, got, tt.want)
			}
		}
	})
}

func TestTokens(t *testing.T) {
	tests := []struct{ name, path, body, want string }{
		{"text", "/tokenize", `{"content":"ab"}`, `{"tokens":[97,98]}`},
		{"nothing", "/tokenize", `{}`, `{"tokens":[]}`},
		{"empty text", "/tokenize", `{"content":""}`, `{"tokens":[]}`},
		{"control token", "/tokenize", `{"content":"a<|end|>"}`, `{"tokens":[97,256]}`},
		{"control token as text", "/tokenize", `{"content":"<|end|>","parse_special":false,"with_pieces":false}`, `{"tokens":[60,124,101,110,100,124,62]}`},
		{"mixed", "/tokenize", `{"content":[256,"a"]}`, `{"tokens":[256,97]}`},
		{"pieces", "/tokenize", `{"content":"aé","with_pieces":true}`,
			`{"tokens":[{"id":97,"piece":"a"},{"id":195,"piece":[195]},{"id":169,"piece":[169]}]}`},
		{"back", "/detokenize", `{"tokens":[97,256,98]}`, `{"content":"a<|end|>b"}`},
		{"nothing back", "/detokenize", `{}`, `{"content":""}`},
	}
	bubble(t, &fakeEngine{}, 1, 64, func(f *fixture) {
		for _, tt := range tests {
			if got := short(f.ok(tt.path, tt.body)); got != tt.want {
				t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
			}
		}
	})
}
