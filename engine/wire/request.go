package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"onebit/engine"
	"onebit/engine/scan"
)

// ParseChat checks the body of a chat completion request and returns it as a Request that keeps the body. A body that
// cannot be served is an *engine.InvalidError that names the field. Members that nobody here knows pass unseen, so
// that a backend's own extensions work.
func ParseChat(body []byte) (*engine.Request, error) {
	return parse(engine.Chat, body, chatFields, "messages")
}

// ParseCompletion does for a raw completion request what ParseChat does for a chat.
func ParseCompletion(body []byte) (*engine.Request, error) {
	return parse(engine.Completion, body, completionFields, "prompt")
}

// ParseResponse does for a request of OpenAI's Responses what ParseChat does for a chat.
func ParseResponse(body []byte) (*engine.Request, error) {
	return parse(engine.Response, body, responseFields, "input")
}

// ParseEmbedding does for an embedding request what ParseChat does for a chat.
func ParseEmbedding(body []byte) (*engine.Request, error) {
	return parse(engine.Embedding, body, embeddingFields, "input")
}

// ParseRerank does for a rerank request what ParseChat does for a chat. The texts to rank are called documents, or
// texts as some clients have it.
func ParseRerank(body []byte) (*engine.Request, error) {
	required := "documents"
	if m := newMembers(body); hasMember(&m, "texts") {
		required = "texts"
	}
	return parse(engine.Rerank, body, rerankFields, "query", required)
}

// hasMember reports whether one of the members to come is called key.
func hasMember(m *members, key string) bool {
	for m.next() {
		if string(m.key) == key {
			return true
		}
	}
	return false
}

// field is one member that a request may have, and the check of its value. The table's order means nothing.
type field struct {
	name  string
	check func(path string, value []byte) error
}

// common are the fields that both operations share.
var common = []field{
	{"model", isString},
	{"stream", isBool},
	{"stream_options", isStreamOptions},
	{"max_tokens", isCount},
	{"temperature", isAtLeastZero},
	{"top_p", isFraction},
	{"min_p", isFraction},
	{"top_k", isInteger},
	{"seed", isInteger},
	{"n", isPositive},
	{"presence_penalty", isNumber},
	{"frequency_penalty", isNumber},
	{"repeat_penalty", isAtLeastZero},
	{"repeat_last_n", isInteger},
	{"stop", isStop},
	{"logit_bias", isObjectOrArray},
	{"user", isString},
}

var chatFields = append([]field{
	{"messages", isMessages},
	{"max_completion_tokens", isCount},
	{"logprobs", isBool},
	{"top_logprobs", isCount},
	{"tools", isObjects},
	{"tool_choice", isStringOrObject},
	{"parallel_tool_calls", isBool},
	{"response_format", isObject},
	{"chat_template_kwargs", isObject},
}, common...)

var completionFields = append([]field{
	{"prompt", isPrompt},
	{"logprobs", isBoolOrCount},
	{"echo", isBool},
}, common...)

var responseFields = []field{
	{"model", isString},
	{"input", isInput},
	{"stream", isBool},
	{"max_output_tokens", isCount},
	{"temperature", isAtLeastZero},
	{"top_p", isFraction},
	{"tools", isObjects},
	{"instructions", isString},
}

var embeddingFields = []field{
	{"model", isString},
	{"input", isPrompt},
	{"encoding_format", isString},
	{"dimensions", isPositive},
	{"user", isString},
}

var rerankFields = []field{
	{"model", isString},
	{"query", isString},
	{"documents", isDocuments},
	{"texts", isDocuments},
	{"top_n", isPositive},
}

func parse(kind engine.Kind, body []byte, fields []field, required ...string) (*engine.Request, error) {
	if err := isJSONObject(body); err != nil {
		return nil, err
	}
	req := &engine.Request{Kind: kind, Raw: body}
	var seen uint64 // one bit a field
	m := newMembers(body)
	for m.next() {
		i := find(fields, m.key)
		if i < 0 {
			continue
		}
		name := fields[i].name
		if seen&(1<<i) != 0 {
			return nil, &engine.InvalidError{Param: name, Code: "duplicate_parameter", Message: fmt.Sprintf("%q appears twice in the request", name)}
		}
		if isNull(m.value) && !slices.Contains(required, name) {
			continue
		}
		seen |= 1 << i
		if err := fields[i].check(name, m.value); err != nil {
			return nil, err
		}
		take(req, name, m.value)
	}
	for _, name := range required {
		if seen&(1<<find(fields, []byte(name))) == 0 {
			return nil, &engine.InvalidError{Param: name, Code: "missing_required_parameter", Message: fmt.Sprintf("%q is required", name)}
		}
	}
	return req, nil
}

// find returns the place of the field called key, or -1.
func find(fields []field, key []byte) int {
	for i := range fields {
		if fields[i].name == string(key) {
			return i
		}
	}
	return -1
}

// take copies a checked value that Request has a place for.
func take(req *engine.Request, name string, value []byte) {
	switch name {
	case "model":
		req.Model, _ = text(value)
	case "stream":
		req.Stream = string(value) == "true"
	case "stream_options":
		m := newMembers(value)
		for m.next() {
			if string(m.key) == "include_usage" {
				req.IncludeUsage = string(m.value) == "true"
			}
		}
	}
}

// isJSONObject checks the body as a whole.
func isJSONObject(body []byte) error {
	if !scan.Valid(body) {
		var whole json.RawMessage
		why := json.Unmarshal(body, &whole)
		message := "the request body is not JSON"
		if syntax, ok := errors.AsType[*json.SyntaxError](why); ok {
			message = fmt.Sprintf("the request body is not JSON: %v (at byte %d)", syntax, syntax.Offset)
		}
		return &engine.InvalidError{Code: "invalid_json", Message: message}
	}
	if body[skipSpace(body, 0)] != '{' {
		return &engine.InvalidError{Code: "invalid_json", Message: "the request body must be a JSON object"}
	}
	if !utf8.Valid(body) {
		return &engine.InvalidError{Code: "invalid_json", Message: "the request body is not valid UTF-8"}
	}
	return nil
}
