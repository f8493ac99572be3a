package backend

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"onebit/engine"
)

// defaultTokens is how much is generated when a chat says nothing.
const defaultTokens = 1024

// rawChat is a chat request as far as a raw prompt is made of it.
type rawChat struct {
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
		Calls   json.RawMessage `json:"tool_calls"`
	} `json:"messages"`
	Tools     []json.RawMessage `json:"tools"`
	Choice    json.RawMessage   `json:"tool_choice"`
	N         float64           `json:"n"`
	LogProbs  bool              `json:"logprobs"`
	Max       *float64          `json:"max_tokens"`
	MaxNew    *float64          `json:"max_completion_tokens"`
	Format    string            `json:"reasoning_format"`
	Thinking  json.RawMessage   `json:"enable_thinking"`
	Variables struct {
		Thinking json.RawMessage `json:"enable_thinking"`
	} `json:"chat_template_kwargs"`

	think    bool
	settings map[string]json.RawMessage
}

// passedOn are the members that a completion takes over from a chat.
var passedOn = []string{
	"temperature", "top_p", "top_k", "min_p", "seed", "stop", "repetition_penalty", "repeat_penalty", "presence_penalty", "frequency_penalty",
}

// cannot is a request that a raw prompt cannot carry out.
func cannot(param, format string, values ...any) error {
	return &engine.InvalidError{Param: param, Code: "unsupported_value", Message: fmt.Sprintf(format, values...)}
}

// readChat reads a chat and refuses what has no place in a prompt of text.
func readChat(raw []byte) (*rawChat, error) {
	var c rawChat
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, &engine.InvalidError{Code: "invalid_type", Message: fmt.Sprintf("the request cannot be read: %v", err)}
	}
	if err := json.Unmarshal(raw, &c.settings); err != nil {
		return nil, &engine.InvalidError{Code: "invalid_type", Message: fmt.Sprintf("the request cannot be read: %v", err)}
	}
	switch {
	case len(c.Tools) > 0 && string(c.Choice) != `"none"`:
		return nil, cannot("tools", "tools are not available on --device npu")
	case c.N > 1:
		return nil, cannot("n", "more than one answer is not available on --device npu")
	case c.LogProbs:
		return nil, cannot("logprobs", "logprobs are not available on --device npu")
	}
	c.think = true
	for _, where := range []struct {
		param string
		value json.RawMessage
	}{{"enable_thinking", c.Thinking}, {"chat_template_kwargs.enable_thinking", c.Variables.Thinking}} {
		if len(where.value) == 0 || string(where.value) == "null" {
			continue
		}
		if json.Unmarshal(where.value, &c.think) != nil {
			return nil, &engine.InvalidError{Param: where.param, Code: "invalid_type", Message: fmt.Sprintf("%q must be true or false", where.param)}
		}
	}
	return &c, nil
}

// prompt renders the conversation as ChatML, up to where the answer begins. open says that the model's template opens
// the think block when thinking is on.
func (c *rawChat) prompt(open bool) (string, error) {
	var b strings.Builder
	for i, m := range c.Messages {
		path := fmt.Sprintf("messages[%d]", i)
		role := m.Role
		switch role {
		case "system", "user", "assistant":
		case "developer":
			role = "system"
		default:
			return "", cannot(path+".role", "messages of the role %s are not available on --device npu", role)
		}
		if len(m.Calls) > 0 && string(m.Calls) != "null" && string(m.Calls) != "[]" {
			return "", cannot(path+".tool_calls", "tools are not available on --device npu")
		}
		text, err := textOf(path+".content", m.Content)
		if err != nil {
			return "", err
		}
		if _, after, found := strings.Cut(text, "</think>"); found && role == "assistant" {
			text = strings.TrimLeft(after, "\n") // earlier thoughts are of no use
		}
		b.WriteString("<|im_start|>" + role + "\n" + text + "<|im_end|>\n")
	}
	b.WriteString("<|im_start|>assistant\n")
	switch {
	case !c.think:
		b.WriteString("<think>\n\n</think>\n\n")
	case open:
		b.WriteString("<think>\n")
	}
	return b.String(), nil
}

// textOf is the text of a message: a string, or its text parts one after the other.
func textOf(path string, raw json.RawMessage) (string, error) {
	var text string
	if len(raw) == 0 || json.Unmarshal(raw, &text) == nil { // null too
		return text, nil
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil {
		return "", &engine.InvalidError{Param: path, Code: "invalid_type", Message: fmt.Sprintf("%q must be a string or an array of parts", path)}
	}
	for i, raw := range parts {
		var bare string
		var part struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}
		switch {
		case json.Unmarshal(raw, &bare) == nil:
			text += bare
		case json.Unmarshal(raw, &part) == nil && part.Type == "text":
			text += part.Text
		default:
			at := fmt.Sprintf("%s[%d]", path, i)
			return "", cannot(at, "%s: only text is available on --device npu", at)
		}
	}
	return text, nil
}

// completion is the body of the raw completion.
func (c *rawChat) completion(prompt string, stream bool) ([]byte, error) {
	limit := float64(defaultTokens)
	switch {
	case c.MaxNew != nil:
		limit = *c.MaxNew
	case c.Max != nil:
		limit = *c.Max
	}
	quoted, err := json.Marshal(prompt)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"prompt":%s,"max_tokens":%d,"stream":%v`, quoted, int(limit), stream)
	if stream {
		b.WriteString(`,"stream_options":{"include_usage":true}`)
	}
	for _, name := range passedOn {
		if value, ok := c.settings[name]; ok && string(value) != "null" {
			fmt.Fprintf(&b, ",%q:%s", name, value)
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
