// Package responses speaks OpenAI's Responses, as far as it is about text, over chats: what is asked becomes the body of
// a chat completion, and the events of that chat's stream become a response, whole or as events. So every backend that
// chats has it.
package responses

import (
	"encoding/json"
	"fmt"
	"slices"

	"onebit/engine"
	"onebit/engine/wire"
)

// Search is what the tool file_search is asked for.
type Search struct {
	Collections []string
	Most        int // 0 where nobody says
	Filters     json.RawMessage
	Threshold   float64
	Ranker      string
	Results     bool // the item shows what was found
}

// Request is what a body asks for.
type Request struct {
	Model        string
	Stream       bool
	Store        *bool  // nil where nobody says
	Previous     string // id of the response that this one goes on from
	Instructions string
	Items        []json.RawMessage // of the input, each an object with an id
	Search       *Search           // nil without the tool
	Ignored      []string          // what nobody here has, such as the tool web_search

	raw   map[string]json.RawMessage
	tools []any // of functions, in the form of chats
}

// passed are members that mean the same in a chat.
var passed = []string{
	"temperature", "top_p", "parallel_tool_calls", "seed", "stop", "top_k", "min_p", "presence_penalty", "frequency_penalty",
	"chat_template_kwargs", "user", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "cache_prompt", "reasoning_format",
}

// Read takes a body apart that wire.ParseResponse has found sound. A mistake is an *engine.InvalidError.
func Read(raw []byte) (*Request, error) {
	r := &Request{}
	if err := json.Unmarshal(raw, &r.raw); err != nil {
		return nil, engine.Invalid("", "the body is no JSON object: %v", err)
	}
	for name, to := range map[string]any{
		"model": &r.Model, "stream": &r.Stream, "store": &r.Store, "previous_response_id": &r.Previous, "instructions": &r.Instructions,
	} {
		if v := r.raw[name]; wire.Present(v) {
			if err := json.Unmarshal(v, to); err != nil {
				return nil, engine.Invalid(name, "%q has the wrong type", name)
			}
		}
	}
	for _, name := range []string{"background", "conversation", "prompt"} {
		if v := r.raw[name]; wire.Present(v) && string(v) != "false" {
			return nil, &engine.InvalidError{Param: name, Code: "unsupported_parameter", Message: fmt.Sprintf("%q is not served here", name)}
		}
	}
	if err := r.input(); err != nil {
		return nil, err
	}
	return r, r.readTools()
}

// input reads the items, and gives those an id that have none.
func (r *Request) input() error {
	raw := r.raw["input"]
	var text string
	if json.Unmarshal(raw, &text) == nil {
		raw, _ = json.Marshal([]any{map[string]any{"type": "message", "role": "user", "content": []any{map[string]any{"type": "input_text", "text": text}}}})
	}
	var items []map[string]json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return engine.Invalid("input", "the input is a text, or a list of items")
	}
	if len(items) == 0 {
		return engine.Invalid("input", "the input is empty")
	}
	for i, item := range items {
		if !wire.Present(item["type"]) {
			item["type"] = json.RawMessage(`"message"`)
		}
		var kind string
		if json.Unmarshal(item["type"], &kind) != nil {
			return engine.Invalid(fmt.Sprintf("input[%d].type", i), "an item's type is a text")
		}
		if !wire.Present(item["id"]) {
			prefix, ok := map[string]string{"message": "msg", "function_call": "fc", "function_call_output": "fco"}[kind]
			if !ok {
				prefix = "item"
			}
			item["id"] = json.RawMessage(`"` + wire.ID(prefix) + `"`)
		}
		b, err := json.Marshal(item)
		if err != nil {
			return err
		}
		r.Items = append(r.Items, b)
	}
	return nil
}

// tool is one of the tools.
type tool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description *string         `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      *bool           `json:"strict"`

	Stores  []string        `json:"vector_store_ids"`
	Most    *int            `json:"max_num_results"`
	Filters json.RawMessage `json:"filters"`
	Ranking *struct {
		Ranker    string  `json:"ranker"`
		Threshold float64 `json:"score_threshold"`
	} `json:"ranking_options"`
}

func (r *Request) readTools() error {
	var tools []tool
	if v := r.raw["tools"]; wire.Present(v) {
		if err := json.Unmarshal(v, &tools); err != nil {
			return engine.Invalid("tools", "tools is a list of objects: %v", err)
		}
	}
	for i, t := range tools {
		at := fmt.Sprintf("tools[%d]", i)
		switch t.Type {
		case "function":
			if t.Name == "" {
				return engine.Invalid(at+".name", "a function needs a name")
			}
			f := map[string]any{"name": t.Name}
			if t.Description != nil {
				f["description"] = *t.Description
			}
			if wire.Present(t.Parameters) {
				f["parameters"] = t.Parameters
			}
			if t.Strict != nil {
				f["strict"] = *t.Strict
			}
			r.tools = append(r.tools, map[string]any{"type": "function", "function": f})
		case "file_search":
			if r.Search != nil {
				return engine.Invalid(at, "file_search is there twice")
			}
			if err := r.search(at, t); err != nil {
				return err
			}
		default:
			r.Ignored = append(r.Ignored, "tool "+t.Type)
		}
	}
	return nil
}

func (r *Request) search(at string, t tool) error {
	if len(t.Stores) == 0 {
		return engine.Invalid(at+".vector_store_ids", "file_search needs the ids of vector stores")
	}
	r.Search = &Search{Collections: t.Stores, Filters: t.Filters}
	if t.Most != nil {
		if r.Search.Most = *t.Most; r.Search.Most < 1 || r.Search.Most > 50 {
			return engine.Invalid(at+".max_num_results", "max_num_results is 1 to 50")
		}
	}
	if t.Ranking != nil {
		r.Search.Threshold, r.Search.Ranker = t.Ranking.Threshold, t.Ranking.Ranker
	}
	var include []string
	if v := r.raw["include"]; wire.Present(v) && json.Unmarshal(v, &include) != nil {
		return engine.Invalid("include", "include is a list of texts")
	}
	r.Search.Results = slices.Contains(include, "file_search_call.results")
	return nil
}

// Chat makes the body of a chat out of the items before and those of this request. It asks for a stream with usage.
func (r *Request) Chat(before []json.RawMessage) ([]byte, error) {
	c := conversation{}
	if r.Instructions != "" {
		c.messages = append(c.messages, map[string]any{"role": "system", "content": r.Instructions})
	}
	for i, item := range append(slices.Clone(before), r.Items...) {
		at := ""
		if i -= len(before); i >= 0 {
			at = fmt.Sprintf("input[%d]", i)
		}
		if err := c.add(at, item); err != nil {
			return nil, err
		}
	}
	for _, kind := range c.ignored {
		if word := "item " + kind; !slices.Contains(r.Ignored, word) {
			r.Ignored = append(r.Ignored, word)
		}
	}
	if len(c.messages) == 0 {
		return nil, engine.Invalid("input", "the input has no message")
	}
	body := map[string]any{"messages": c.messages, "stream": true, "stream_options": map[string]any{"include_usage": true}}
	if r.Model != "" {
		body["model"] = r.Model
	}
	for _, name := range passed {
		if v := r.raw[name]; wire.Present(v) {
			body[name] = v
		}
	}
	if v := r.raw["max_output_tokens"]; wire.Present(v) {
		body["max_tokens"] = v
	}
	if err := r.choose(body); err != nil {
		return nil, err
	}
	if err := r.format(body); err != nil {
		return nil, err
	}
	return json.Marshal(body)
}

// choose puts in which tools there are and which is to be used.
func (r *Request) choose(body map[string]any) error {
	if len(r.tools) == 0 {
		delete(body, "parallel_tool_calls")
		return nil
	}
	body["tools"] = r.tools
	v := r.raw["tool_choice"]
	if !wire.Present(v) {
		return nil
	}
	var word string
	if json.Unmarshal(v, &word) == nil {
		body["tool_choice"] = word
		return nil
	}
	var one struct{ Type, Name, Mode string }
	if json.Unmarshal(v, &one) != nil {
		return engine.Invalid("tool_choice", "tool_choice is a word or an object")
	}
	switch {
	case one.Type == "function":
		body["tool_choice"] = map[string]any{"type": "function", "function": map[string]any{"name": one.Name}}
	case one.Type == "allowed_tools" && one.Mode == "required":
		body["tool_choice"] = "required"
	default: // of tools that are used, or not here, without the model's choice
		body["tool_choice"] = "auto"
	}
	return nil
}

// format puts in of what form the answer is.
func (r *Request) format(body map[string]any) error {
	var text struct {
		Format *struct {
			Type, Name  string
			Description *string
			Schema      json.RawMessage
			Strict      *bool
		}
	}
	if v := r.raw["text"]; wire.Present(v) && json.Unmarshal(v, &text) != nil {
		return engine.Invalid("text", "text is an object with a format")
	}
	f := text.Format
	switch {
	case f == nil || f.Type == "text" || f.Type == "":
	case f.Type == "json_object":
		body["response_format"] = map[string]any{"type": "json_object"}
	case f.Type == "json_schema" && wire.Present(f.Schema):
		schema := map[string]any{"name": f.Name, "schema": f.Schema}
		if f.Strict != nil {
			schema["strict"] = *f.Strict
		}
		body["response_format"] = map[string]any{"type": "json_schema", "json_schema": schema}
	default:
		return engine.Invalid("text.format", "the format is text, json_object, or json_schema with a schema")
	}
	return nil
}
