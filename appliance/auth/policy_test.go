package auth_test

import (
	"testing"

	"onebit/appliance/auth"
)

func TestMatch(t *testing.T) {
	tests := []struct {
		pattern, name string
		want          bool
	}{
		{"qwen", "qwen", true},
		{"qwen", "Qwen", false},
		{"qwen", "qwen3", false},
		{"qwen*", "qwen", true},
		{"qwen*", "qwen3-30b", true},
		{"qwen*", "my-qwen", false},
		{"*", "", true},
		{"*", "a/b/c", true},
		{"owner/*", "owner/model", true},
		{"owner/*", "owners/model", false},
		{"*-q4", "a-q4-q4", true},
		{"*-q4", "a-q4-", false},
		{"a*b*c", "a-b-b-c", true},
		{"a*b*c", "a-c-b", false},
		{"q?en", "qwen", true},
		{"q?en", "qen", false},
		{"", "", true},
		{"", "a", false},
		{"**", "a", true},
		{"[a-z]", "b", false},
		{"[a-z]", "[a-z]", true},
		{"a.b", "axb", false},
		{"qwen*", "qwen\x00secret", true},
		{"a*a*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
	}
	for _, tt := range tests {
		if got := auth.Match(tt.pattern, tt.name); got != tt.want {
			t.Errorf("Match(%q, %q) = %v, want %v", tt.pattern, tt.name, got, tt.want)
		}
	}
}

func TestScope(t *testing.T) {
	chat := auth.Use{Endpoint: "/v1/chat/completions", Model: "qwen3"}
	tests := []struct {
		name                           string
		endpoints, models, collections []string
		use                            auth.Use
		code                           string
	}{
		{name: "no scope allows all", use: auth.Use{Endpoint: "/v1/rerank", Model: "x", Collections: []string{"c"}}},
		{name: "model", models: []string{"gemma*", "qwen*"}, use: chat},
		{name: "other model", models: []string{"gemma*"}, use: chat, code: "model_not_allowed"},
		{name: "no model named", models: []string{"gemma*"}, use: auth.Use{Endpoint: "/v1/models"}},
		{name: "endpoint", endpoints: []string{"/v1/chat/completions"}, use: chat},
		{name: "endpoint without its slash and version", endpoints: []string{"chat/completions"}, use: chat},
		{name: "endpoint doubled by the client", endpoints: []string{"/v1/chat/*"}, use: auth.Use{Endpoint: "/v1/v1/chat/completions/"}},
		{name: "other endpoint", endpoints: []string{"/v1/embeddings"}, use: chat, code: "endpoint_not_allowed"},
		{name: "endpoint that only begins so", endpoints: []string{"/chat"}, use: chat, code: "endpoint_not_allowed"},
		{name: "no endpoint", endpoints: []string{"/chat"}, use: auth.Use{}, code: "endpoint_not_allowed"},
		{name: "collections", collections: []string{"team-*"}, use: auth.Use{Endpoint: "/search", Collections: []string{"team-a", "team-b"}}},
		{name: "one collection outside", collections: []string{"team-*"}, use: auth.Use{Endpoint: "/search", Collections: []string{"team-a", "boss"}}, code: "collection_not_found"},
		{name: "all in all", endpoints: []string{"/chat/*"}, models: []string{"qwen3"}, use: chat},
		{name: "endpoint fits, model does not", endpoints: []string{"/chat/*"}, models: []string{"gemma"}, use: chat, code: "model_not_allowed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := code(auth.CheckScope(tt.endpoints, tt.models, tt.collections, tt.use)); got != tt.code {
				t.Errorf("refused with %q, want %q", got, tt.code)
			}
		})
	}
}
