package wire

import (
	"bytes"
	"encoding/json"
	"errors"

	"onebit/engine"
)

// ErrMalformed says that a backend sent something that is not a JSON object where one belongs.
var ErrMalformed = errors.New("the backend sent something that is not a JSON object")

// Head is what a relay needs to know of an answer object or of one event. The spans point into the bytes it was read
// from and are nil when the member is missing or null.
type Head struct {
	Model []byte // the JSON value of model
	Usage []byte // the JSON value of usage
	Error []byte // the JSON value of error

	modelAt int

	Finished bool // a HeadReader's: what the function Finished says
}

// ModelPlace returns where the value of model lies in the bytes that the head was read from; zeros without one.
func (h Head) ModelPlace() (at, end int) { return h.modelAt, h.modelAt + len(h.Model) }

// ReadHead looks at the members of one answer object or event. It allocates nothing.
func ReadHead(raw []byte) (Head, error) {
	var h Head
	m := newMembers(raw)
	for m.next() {
		switch {
		case isNull(m.value):
		case string(m.key) == "model":
			h.Model, h.modelAt = m.value, m.start
		case string(m.key) == "usage":
			h.Usage = m.value
		case string(m.key) == "error":
			h.Error = m.value
		}
	}
	if m.bad {
		return Head{}, ErrMalformed
	}
	return h, nil
}

// AppendRenamed appends raw to dst with quoted, a JSON string, as the value of its member model. An object without
// that member is appended as it is, and so is what is no object. Every other byte stays.
func AppendRenamed(dst, raw, quoted []byte) []byte {
	h, err := ReadHead(raw)
	if err != nil || h.Model == nil || bytes.Equal(h.Model, quoted) {
		return append(dst, raw...)
	}
	dst = append(dst, raw[:h.modelAt]...)
	dst = append(dst, quoted...)
	return append(dst, raw[h.modelAt+len(h.Model):]...)
}

// AppendResponseRenamed does what AppendRenamed does for an event or an answer of OpenAI's Responses, whose events carry
// the model's name inside their member response.
func AppendResponseRenamed(dst, raw, quoted []byte) []byte {
	m := newMembers(raw)
	for m.next() {
		if string(m.key) == "response" && m.value[0] == '{' {
			dst = append(dst, raw[:m.start]...)
			dst = AppendRenamed(dst, m.value, quoted)
			return append(dst, raw[m.off:]...)
		}
	}
	return AppendRenamed(dst, raw, quoted)
}

// ResponseEvent is the type of an event of OpenAI's Responses, such as response.created; empty when it has none. The
// bytes point into raw where they can.
func ResponseEvent(raw []byte) []byte {
	m := newMembers(raw)
	for m.next() {
		if string(m.key) == "type" && len(m.value) > 1 && m.value[0] == '"' {
			return plain(m.value)
		}
	}
	return nil
}

// ResponseFinished reports whether an event of that type ends a response.
func ResponseFinished(event []byte) bool {
	switch string(event) {
	case "response.completed", "response.incomplete", "response.failed":
		return true
	}
	return false
}

// Finished reports whether an event says why generation ended: a finish_reason that is a string.
func Finished(raw []byte) bool {
	const key = `"finish_reason"`
	for {
		i := bytes.Index(raw, []byte(key))
		if i < 0 {
			return false
		}
		raw = raw[i+len(key):]
		at := skipSpace(raw, 0)
		if at >= len(raw) || raw[at] != ':' {
			continue
		}
		at = skipSpace(raw, at+1)
		if at < len(raw) && raw[at] == '"' {
			return true
		}
	}
}

// ReadUsage decodes the value of the member usage, as the answers of all operations carry it.
func ReadUsage(value []byte) (engine.Usage, error) {
	type part struct {
		Cached  int `json:"cached_tokens"`
		Written int `json:"cache_write_tokens"`
	}
	var u struct {
		Prompt         int  `json:"prompt_tokens"`
		Completion     int  `json:"completion_tokens"`
		Input          int  `json:"input_tokens"`
		Output         int  `json:"output_tokens"`
		InputPart      part `json:"input_tokens_details"`
		PromptPart     part `json:"prompt_tokens_details"`
		CompletionPart struct {
			Reasoning int `json:"reasoning_tokens"`
		} `json:"completion_tokens_details"`
	}
	if err := json.Unmarshal(value, &u); err != nil {
		return engine.Usage{}, err
	}
	return engine.Usage{
		Prompt: u.Prompt + u.Input, Cached: u.PromptPart.Cached + u.InputPart.Cached, Written: u.PromptPart.Written + u.InputPart.Written,
		Completion: u.Completion + u.Output, Reasoning: u.CompletionPart.Reasoning,
	}, nil
}

// Delta is the part of the first choice that an event or an answer brings, decoded for a reader of text.
type Delta struct {
	Content      string
	Reasoning    string
	FinishReason string
}

// ReadDelta decodes a chat event, or a whole chat answer. An object without choices is an empty Delta.
func ReadDelta(raw []byte) (Delta, error) {
	type part struct {
		Content   string `json:"content"`
		Reasoning string `json:"reasoning_content"`
	}
	var answer struct {
		Choices []struct {
			Delta        part   `json:"delta"`
			Message      part   `json:"message"`
			FinishReason string `json:"finish_reason"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return Delta{}, err
	}
	if len(answer.Choices) == 0 {
		return Delta{}, nil
	}
	c := answer.Choices[0]
	return Delta{
		Content:      c.Delta.Content + c.Message.Content,
		Reasoning:    c.Delta.Reasoning + c.Message.Reasoning,
		FinishReason: c.FinishReason,
	}, nil
}

// ChatEvent is one event of a chat's stream, for readers that need its calls too.
type ChatEvent struct {
	Choices []struct {
		Index int `json:"index"`
		Delta struct {
			Content   string `json:"content"`
			Reasoning string `json:"reasoning_content"`
			Calls     []struct {
				Index    int    `json:"index"`
				ID       string `json:"id"`
				Function struct {
					Name      string `json:"name"`
					Arguments string `json:"arguments"`
				} `json:"function"`
			} `json:"tool_calls"`
		} `json:"delta"`
		Finish string `json:"finish_reason"`
	} `json:"choices"`
}
