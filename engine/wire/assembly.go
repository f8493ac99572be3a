package wire

import (
	"encoding/json"
	"slices"
	"strconv"
)

// Assembles reports whether the unstreamed answer to a chat request can be put together from llama-server's streamed
// one and is then the same. It is not for requests that ask for
//   - logprobs: events carry those of the tokens that brought text, no others, and not those of the last;
//   - stop strings: when generation ends by length, a stream lacks an end that could have become a stop string;
//   - n_indent: the cut comes after the text was streamed;
//   - the reasoning format deepseek-legacy: in a stream it also puts thoughts into the content;
//   - verbose: what it adds is of one event.
func Assembles(raw []byte) bool {
	m := newMembers(raw)
	for m.next() {
		switch string(m.key) {
		case "logprobs", "top_logprobs", "n_probs", "post_sampling_probs", "n_indent", "stop", "verbose":
			if v := string(m.value); v != "false" && v != "null" && v != "0" && v != "[]" {
				return false
			}
		case "reasoning_format":
			if s, _ := text(m.value); s == "deepseek-legacy" {
				return false
			}
		}
	}
	return !m.bad
}

// AppendStreamed appends a chat request to dst so that it asks for a stream with usage. Every other byte stays.
func AppendStreamed(dst, raw []byte) []byte {
	step := AppendMember(nil, raw, "stream", []byte("true"))
	return AppendMember(dst, step, "stream_options", []byte(`{"include_usage":true}`))
}

// Assembly puts the answer to a chat together from the events of its stream. The zero value is ready.
type Assembly struct {
	id, created, model, build json.RawMessage
	usage, timings            json.RawMessage
	choices                   []assembled
	ended                     int // the choice that ended last
	size                      int // bytes of text
	tokens                    int // events that brought text
}

// maxAssembled bounds the text of an answer, in bytes, and what its events may number.
const (
	maxAssembled = 128 << 20
	maxNumber    = 4096
)

// assembled is one choice.
type assembled struct {
	finish, role       string
	content, reasoning []byte
	calls              []assembledCall
}

type assembledCall struct {
	id, name, kind string
	arguments      []byte
}

// assemblyEvent is what of an event counts.
type assemblyEvent struct {
	ID      json.RawMessage `json:"id"`
	Created json.RawMessage `json:"created"`
	Model   json.RawMessage `json:"model"`
	Build   json.RawMessage `json:"system_fingerprint"`
	Usage   json.RawMessage `json:"usage"`
	Timings json.RawMessage `json:"timings"`
	Choices []struct {
		Index  int    `json:"index"`
		Finish string `json:"finish_reason"`
		Delta  struct {
			Role      string `json:"role"`
			Content   string `json:"content"`
			Reasoning string `json:"reasoning_content"`
			Calls     []struct {
				Index    int    `json:"index"`
				ID       string `json:"id"`
				Kind     string `json:"type"`
				Function struct {
					Name      string `json:"name"`
					Arguments string `json:"arguments"`
				} `json:"function"`
			} `json:"tool_calls"`
		} `json:"delta"`
	} `json:"choices"`
}

// Add takes the next event.
func (a *Assembly) Add(raw []byte) error {
	var e assemblyEvent
	if json.Unmarshal(raw, &e) != nil {
		return ErrMalformed
	}
	before := a.size
	for i := range e.Choices {
		c := &e.Choices[i]
		if c.Index < 0 || c.Index >= maxNumber {
			return ErrMalformed
		}
		for len(a.choices) <= c.Index {
			a.choices = append(a.choices, assembled{role: "assistant"})
		}
		to := &a.choices[c.Index]
		if c.Delta.Role != "" {
			to.role = c.Delta.Role
		}
		to.content = append(to.content, c.Delta.Content...)
		to.reasoning = append(to.reasoning, c.Delta.Reasoning...)
		a.size += len(c.Delta.Content) + len(c.Delta.Reasoning)
		for _, call := range c.Delta.Calls {
			if call.Index < 0 || call.Index >= maxNumber {
				return ErrMalformed
			}
			for len(to.calls) <= call.Index {
				to.calls = append(to.calls, assembledCall{kind: "function"})
			}
			at := &to.calls[call.Index]
			at.id += call.ID
			at.name += call.Function.Name
			at.arguments = append(at.arguments, call.Function.Arguments...)
			a.size += len(call.ID) + len(call.Function.Name) + len(call.Function.Arguments)
			if call.Kind != "" {
				at.kind = call.Kind
			}
		}
		if c.Finish != "" {
			to.finish, a.ended = c.Finish, c.Index
		}
	}
	if a.size > maxAssembled {
		return ErrEventTooLong
	}
	if a.size > before {
		a.tokens++
	}
	a.keep(&e)
	return nil
}

// Tokens is how many tokens there are so far: llama-server sends an event for each.
func (a *Assembly) Tokens() int { return a.tokens }

// keep takes the members that are said once. What a choice took comes at its end, with it or right behind it; the first
// one's counts.
func (a *Assembly) keep(e *assemblyEvent) {
	owner := a.ended
	if n := len(e.Choices); n > 0 {
		owner = e.Choices[n-1].Index
	}
	for _, m := range []struct {
		at      *json.RawMessage
		new     json.RawMessage
		byOwner bool
	}{
		{&a.id, e.ID, false}, {&a.model, e.Model, false}, {&a.build, e.Build, false},
		{&a.created, e.Created, true}, {&a.usage, e.Usage, true}, {&a.timings, e.Timings, true},
	} {
		if m.new != nil && !isNull(m.new) && (owner == 0 || !m.byOwner) {
			*m.at = slices.Clone(m.new)
		}
	}
}

// Append appends the answer to dst, its members in llama-server's order. It fails when a choice has not come to its end.
func (a *Assembly) Append(dst []byte) ([]byte, error) {
	if len(a.choices) == 0 {
		return nil, ErrMalformed
	}
	dst = append(dst, `{"choices":[`...)
	for i := range a.choices {
		if a.choices[i].finish == "" {
			return nil, ErrMalformed
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = a.choices[i].append(dst, i)
	}
	dst = append(dst, ']')
	for _, m := range []struct {
		key   string
		value json.RawMessage
	}{
		{"created", a.created}, {"model", a.model}, {"system_fingerprint", a.build},
		{"object", json.RawMessage(`"chat.completion"`)}, {"usage", a.usage}, {"id", a.id}, {"timings", a.timings},
	} {
		if m.value != nil {
			dst = append(append(append(append(dst, `,"`...), m.key...), `":`...), m.value...)
		}
	}
	return append(dst, '}'), nil
}

// append appends one choice.
func (c *assembled) append(dst []byte, index int) []byte {
	dst = appendText(append(dst, `{"finish_reason":`...), c.finish)
	dst = strconv.AppendInt(append(dst, `,"index":`...), int64(index), 10)
	dst = appendText(append(dst, `,"message":{"role":`...), c.role)
	dst = appendText(append(dst, `,"content":`...), string(c.content))
	if len(c.reasoning) > 0 {
		dst = appendText(append(dst, `,"reasoning_content":`...), string(c.reasoning))
	}
	for i, call := range c.calls {
		if i == 0 {
			dst = append(dst, `,"tool_calls":[`...)
		} else {
			dst = append(dst, ',')
		}
		dst = appendText(append(dst, `{"type":`...), call.kind)
		dst = appendText(append(dst, `,"function":{"name":`...), call.name)
		dst = append(appendText(append(dst, `,"arguments":`...), string(call.arguments)), '}')
		if call.id != "" {
			dst = appendText(append(dst, `,"id":`...), call.id)
		}
		dst = append(dst, '}')
	}
	if len(c.calls) > 0 {
		dst = append(dst, ']')
	}
	return append(dst, "}}"...)
}

const digits = "0123456789abcdef"

// appendText appends s as a JSON string that escapes no more than it must: an answer's text is mostly not for HTML.
func appendText(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c < ' ':
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}
