package responses

import (
	"encoding/json"
	"fmt"
	"strings"

	"onebit/engine"
	"onebit/engine/wire"
)

// conversation is the messages of a chat in the making.
type conversation struct {
	messages []map[string]any
	ignored  []string // kinds of items that are left out
}

// item is one of a list, as far as it matters to a chat.
type item struct {
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Output    json.RawMessage `json:"output"`
}

func (c *conversation) add(at string, raw json.RawMessage) error {
	var i item
	if err := json.Unmarshal(raw, &i); err != nil {
		return engine.Invalid(at, "the item has a member of the wrong type: %v", err)
	}
	switch i.Type {
	case "message":
		return c.message(at, i)
	case "function_call":
		call := map[string]any{"id": i.CallID, "type": "function", "function": map[string]any{"name": i.Name, "arguments": i.Arguments}}
		if n := len(c.messages); n > 0 && c.messages[n-1]["role"] == "assistant" {
			calls, _ := c.messages[n-1]["tool_calls"].([]any)
			c.messages[n-1]["tool_calls"] = append(calls, call)
			return nil
		}
		c.messages = append(c.messages, map[string]any{"role": "assistant", "content": nil, "tool_calls": []any{call}})
	case "function_call_output":
		text, err := plain(at+".output", i.Output)
		if err != nil {
			return err
		}
		m := map[string]any{"role": "tool", "tool_call_id": i.CallID, "content": text}
		mark(m, i.Output)
		c.messages = append(c.messages, m)
	case "reasoning", "file_search_call": // of an answer before; what counts of them is in its text
	case "item_reference":
		return engine.Invalid(at, "item_reference is not served here; send the item, or previous_response_id")
	default:
		c.ignored = append(c.ignored, i.Type)
	}
	return nil
}

func (c *conversation) message(at string, i item) error {
	role := i.Role
	switch role {
	case "user", "assistant", "system":
	case "developer":
		role = "system"
	default:
		return engine.Invalid(at+".role", "the role is user, assistant, system or developer, not %q", i.Role)
	}
	content, err := contentOf(at+".content", i.Content)
	if err != nil {
		return err
	}
	if text, ok := content.(string); ok && role == "system" && len(c.messages) == 1 && c.messages[0]["role"] == "system" {
		c.messages[0]["content"] = fmt.Sprint(c.messages[0]["content"], "\n\n", text) // many templates take one
		mark(c.messages[0], i.Content)
		return nil
	}
	m := map[string]any{"role": role, "content": content}
	mark(m, i.Content)
	c.messages = append(c.messages, m)
	return nil
}

// mark puts the last mark among a content's parts to its message: the prompt is to be kept up to its end.
func mark(m map[string]any, content json.RawMessage) {
	var parts []struct {
		Breakpoint json.RawMessage `json:"prompt_cache_breakpoint"`
	}
	if json.Unmarshal(content, &parts) != nil {
		return // it is a text
	}
	for _, p := range parts {
		if wire.Present(p.Breakpoint) {
			m["prompt_cache_breakpoint"] = p.Breakpoint
		}
	}
}

// part is one piece of a content.
type part struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Refusal  string `json:"refusal"`
	ImageURL string `json:"image_url"`
	Detail   string `json:"detail"`
}

// contentOf is a content in the form of chats: a text where it is nothing else.
func contentOf(at string, raw json.RawMessage) (any, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var parts []part
	if err := json.Unmarshal(raw, &parts); err != nil {
		return nil, engine.Invalid(at, "the content is a text, or a list of parts")
	}
	var texts []string
	var all []any
	for n, p := range parts {
		switch p.Type {
		case "input_text", "output_text", "text", "refusal":
			if p.Type == "refusal" {
				p.Text = p.Refusal
			}
			texts = append(texts, p.Text)
			all = append(all, map[string]any{"type": "text", "text": p.Text})
		case "input_image":
			if p.ImageURL == "" {
				return nil, engine.Invalid(fmt.Sprintf("%s[%d]", at, n), "an image is given by image_url")
			}
			u := map[string]any{"url": p.ImageURL}
			if p.Detail != "" {
				u["detail"] = p.Detail
			}
			all = append(all, map[string]any{"type": "image_url", "image_url": u})
		default:
			return nil, engine.Invalid(fmt.Sprintf("%s[%d].type", at, n), "parts of the type %q are not served here; put files into a vector store and ask with file_search", p.Type)
		}
	}
	if len(texts) == len(all) {
		return strings.Join(texts, "\n"), nil
	}
	return all, nil
}

// plain is what a function gave, as a text.
func plain(at string, raw json.RawMessage) (string, error) {
	content, err := contentOf(at, raw)
	if err != nil {
		return "", err
	}
	text, ok := content.(string)
	if !ok {
		return "", engine.Invalid(at, "what a function gives is text")
	}
	return text, nil
}
