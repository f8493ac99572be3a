// Package messages speaks Anthropic's Messages over chats: what is asked becomes the body of a chat completion, and the
// events of that chat's stream become a message, whole or as events. So every backend that chats has it.
package messages

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"onebit/engine"
	"onebit/engine/wire"
	"onebit/engine/wire/prefix"
)

// maxMarks is how many cache_control a request may have.
const maxMarks = 4

// Request is what a body asks for.
type Request struct {
	Model   string
	Stream  bool
	Stops   []string // sequences of text that end the answer
	Ignored []string // what nobody here has, such as the tool web_search_20250305

	chat map[string]any
}

// body is a request, as far as something here depends on it. What else may be in it is accepted and left out.
type body struct {
	Model     string            `json:"model"`
	Stream    bool              `json:"stream"`
	MaxTokens *float64          `json:"max_tokens"`
	System    json.RawMessage   `json:"system"`
	Messages  []message         `json:"messages"`
	Tools     []json.RawMessage `json:"tools"`
	Choice    *choice           `json:"tool_choice"`
	Stops     []string          `json:"stop_sequences"`
	Thinking  *thinking         `json:"thinking"`
	Metadata  struct {
		User *string `json:"user_id"`
	} `json:"metadata"`
	Output struct {
		Format *format `json:"format"`
	} `json:"output_config"`
	Format *format           `json:"output_format"` // as it was called first
	Cache  json.RawMessage   `json:"cache_control"`
	MCP    []json.RawMessage `json:"mcp_servers"`
}

type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

type choice struct {
	Type   string `json:"type"`
	Name   string `json:"name"`
	Single bool   `json:"disable_parallel_tool_use"`
}

type thinking struct {
	Type   string   `json:"type"`
	Budget *float64 `json:"budget_tokens"`
}

type format struct {
	Type   string          `json:"type"`
	Schema json.RawMessage `json:"schema"`
}

// passed are members that mean the same in a chat.
var passed = []string{"temperature", "top_p", "top_k", "chat_template_kwargs", "min_p", "seed", "prompt_cache_key"}

// Read takes a body apart. A mistake is an *engine.InvalidError. Members that nobody here knows pass unseen, as betas
// bring them.
func Read(raw []byte) (*Request, error) { return read(raw, true) }

// ReadCount does for a request to count tokens what Read does for one to answer: it needs no max_tokens.
func ReadCount(raw []byte) (*Request, error) { return read(raw, false) }

func read(raw []byte, answers bool) (*Request, error) {
	var b body
	if err := wire.Object(raw); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, &b); err != nil {
		return nil, mistyped(err)
	}
	r := &Request{Model: b.Model, Stream: b.Stream && answers}
	for _, s := range b.Stops {
		if s != "" {
			r.Stops = append(r.Stops, s)
		}
	}
	switch {
	case b.Model == "":
		return nil, missing("model")
	case b.MaxTokens == nil && answers:
		return nil, missing("max_tokens")
	case b.MaxTokens != nil && (*b.MaxTokens < 0 || *b.MaxTokens != math.Trunc(*b.MaxTokens) || *b.MaxTokens > math.MaxInt32):
		return nil, engine.Invalid("max_tokens", "max_tokens is a whole number, at least 0")
	}
	c := conversation{}
	if err := c.read(&b); err != nil {
		return nil, err
	}
	r.Ignored = c.ignored
	if len(b.MCP) > 0 {
		r.Ignored = append(r.Ignored, "mcp_servers")
	}
	return r, r.make(raw, &b, c.messages)
}

func missing(name string) error {
	return &engine.InvalidError{Param: name, Code: "missing_required_parameter", Message: name + ": Field required"}
}

// mistyped says which member has a value of another kind than it should.
func mistyped(err error) error {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return &engine.InvalidError{Param: e.Field, Code: "invalid_type", Message: fmt.Sprintf("%s: a JSON %s does not belong here", e.Field, e.Value)}
	}
	return &engine.InvalidError{Code: "invalid_json", Message: fmt.Sprintf("the request body is not JSON: %v", err)}
}

// make makes the chat. It asks for a stream with usage.
func (r *Request) make(raw []byte, b *body, messages []map[string]any) error {
	r.chat = map[string]any{"model": b.Model, "messages": messages, "stream": true, "stream_options": map[string]any{"include_usage": true}}
	if b.MaxTokens != nil {
		r.chat["max_tokens"] = int64(*b.MaxTokens)
	}
	if b.Metadata.User != nil {
		r.chat["user"] = *b.Metadata.User
	}
	wire.Walk(raw, func(m wire.Member) bool {
		if value := raw[m.Start:m.End]; slices.Contains(passed, string(m.Key)) && wire.Present(value) {
			r.chat[string(m.Key)] = json.RawMessage(value)
		}
		return true
	})
	if err := r.think(b.Thinking); err != nil {
		return err
	}
	if err := r.tools(b.Tools, b.Choice); err != nil {
		return err
	}
	f := b.Output.Format
	if f == nil {
		f = b.Format
	}
	switch {
	case f == nil || f.Type == "text":
	case f.Type == "json_schema" && wire.Present(f.Schema):
		r.chat["response_format"] = map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "output", "schema": f.Schema}}
	default:
		return engine.Invalid("output_config.format", "output_config.format: the type is json_schema, with a schema")
	}
	return nil
}

// think says whether the model is to think first. It is not, as long as nobody asks for it; a model that decides by itself
// is left to its template's choice. However small a budget is, it is one.
func (r *Request) think(t *thinking) error {
	kind := "disabled"
	if t != nil {
		kind = t.Type
	}
	kwargs := map[string]json.RawMessage{}
	if given, ok := r.chat["chat_template_kwargs"].(json.RawMessage); ok && json.Unmarshal(given, &kwargs) != nil {
		return engine.Invalid("chat_template_kwargs", "chat_template_kwargs: must be an object")
	}
	_, said := kwargs["enable_thinking"]
	switch kind {
	case "enabled":
		if !said {
			kwargs["enable_thinking"] = json.RawMessage("true")
		}
		if t.Budget != nil && *t.Budget >= 0 && *t.Budget <= math.MaxInt32 {
			r.chat["thinking_budget_tokens"] = int64(*t.Budget)
		}
	case "disabled":
		if !said {
			kwargs["enable_thinking"] = json.RawMessage("false")
		}
	}
	if len(kwargs) > 0 {
		r.chat["chat_template_kwargs"] = kwargs
	}
	return nil
}

// tools puts in which tools there are, and which is to be used.
func (r *Request) tools(list []json.RawMessage, c *choice) error {
	var all []any
	for i, raw := range list {
		at := fmt.Sprintf("tools[%d]", i)
		var t struct {
			Type        string          `json:"type"`
			Name        string          `json:"name"`
			Description *string         `json:"description"`
			Schema      json.RawMessage `json:"input_schema"`
		}
		if err := json.Unmarshal(raw, &t); err != nil {
			return engine.Invalid(at, "%s: a tool is an object with a name and an input_schema", at)
		}
		switch {
		case t.Type != "" && t.Type != "custom":
			r.Ignored = append(r.Ignored, "tool "+t.Type)
			continue
		case t.Name == "":
			return engine.Invalid(at+".name", "%s.name: Field required", at)
		}
		f := map[string]any{"name": t.Name}
		if t.Description != nil {
			f["description"] = *t.Description
		}
		if wire.Present(t.Schema) {
			f["parameters"] = t.Schema
		}
		all = append(all, map[string]any{"type": "function", "function": f})
	}
	if len(all) == 0 {
		return nil
	}
	r.chat["tools"] = all
	if c == nil {
		return nil
	}
	if c.Single {
		r.chat["parallel_tool_calls"] = false
	}
	switch c.Type {
	case "auto", "none":
		r.chat["tool_choice"] = c.Type
	case "any":
		r.chat["tool_choice"] = "required"
	case "tool":
		r.chat["tool_choice"] = map[string]any{"type": "function", "function": map[string]any{"name": c.Name}}
	default:
		return engine.Invalid("tool_choice.type", "tool_choice.type: it is auto, any, tool or none")
	}
	return nil
}

// Chat returns the body of the chat. The stop sequences are not in it: a server that stops at one does not say at which, so
// an Answer looks for them itself.
func (r *Request) Chat() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(r.chat)
	return bytes.TrimSpace(b.Bytes()), err
}

// marked counts the marks of a request, and refuses what the API refuses.
func (c *conversation) marked(at string, mark json.RawMessage) (json.RawMessage, error) {
	if !wire.Present(mark) {
		return nil, nil
	}
	if _, err := prefix.Ephemeral(mark); err != nil {
		return nil, engine.Invalid(at+".cache_control", "%s.cache_control: %v", at, err)
	}
	if c.marks++; c.marks > maxMarks {
		return nil, engine.Invalid(at+".cache_control", "A maximum of %d blocks with cache_control may be provided.", maxMarks)
	}
	return mark, nil
}
