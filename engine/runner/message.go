package runner

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// message is one message of a chat. Its members keep their order, which
// templates may show.
type message struct {
	role    string
	members []member
}

type member struct {
	key   string
	value json.RawMessage
}

func (m *message) has(key string) bool {
	v := m.get(key)
	return v != nil && jsonKind(v) != "null"
}

func (m *message) get(key string) json.RawMessage {
	for _, x := range m.members {
		if x.key == key {
			return x.value
		}
	}
	return nil
}

func (m *message) set(key string, value json.RawMessage) {
	for i := range m.members {
		if m.members[i].key == key {
			m.members[i].value = value
			return
		}
	}
	m.members = append(m.members, member{key, value})
}

// text returns the content, which readMessages has made a string or null.
func (m *message) text() string {
	var s string
	if json.Unmarshal(m.get("content"), &s) != nil {
		return ""
	}
	return s
}

func (m *message) setText(s string) { m.set("content", encode(s)) }

// readMessages reads messages that the dialect's parser has checked, and brings
// them into the form that templates know: contents are strings, lists of text
// parts are joined by line ends, and developer is another word for system.
func readMessages(raw json.RawMessage) ([]message, *problem) {
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return nil, invalid("messages", "%v", err)
	}
	list := make([]message, len(items))
	for i, item := range items {
		name := fmt.Sprintf("messages[%d]", i)
		members, err := readMembers(item)
		if err != nil {
			return nil, invalid(name, "%v", err)
		}
		m := message{members: members}
		if json.Unmarshal(m.get("role"), &m.role) != nil {
			return nil, invalid(name+".role", "expected a string")
		}
		if m.role == "developer" {
			m.role = "system"
			m.set("role", encode(m.role))
		}
		if p := m.normalise(name); p != nil {
			return nil, p
		}
		list[i] = m
	}
	return list, nil
}

// normalise makes the content a string.
func (m *message) normalise(name string) *problem {
	content := m.get("content")
	switch {
	case content == nil && m.role == "assistant":
		if !m.has("tool_calls") {
			return invalid(name+".content", "an assistant message needs content or tool_calls")
		}
		m.setText("")
	case content == nil:
		return invalid(name+".content", "it is required")
	case jsonKind(content) == "null":
		m.setText("")
	case jsonKind(content) == "array":
		text, p := joinParts(content, name+".content")
		if p != nil {
			return p
		}
		m.setText(text)
	}
	return nil
}

// joinParts joins text parts by line ends. Other parts are refused by name.
func joinParts(raw json.RawMessage, name string) (string, *problem) {
	var parts []json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil {
		return "", invalid(name, "%v", err)
	}
	texts := make([]string, len(parts))
	for i, part := range parts {
		at := fmt.Sprintf("%s[%d]", name, i)
		if jsonKind(part) == "string" {
			if err := json.Unmarshal(part, &texts[i]); err != nil {
				return "", invalid(at, "%v", err)
			}
			continue
		}
		var p struct{ Type, Text string }
		if err := json.Unmarshal(part, &p); err != nil {
			return "", invalid(at, "expected a part with type and text")
		}
		switch p.Type {
		case "text", "input_text", "output_text":
			texts[i] = p.Text
		case "image_url", "input_image", "input_audio", "input_video", "video_url", "file", "input_file":
			return "", unsupported(at+".type", "this model takes text only, not %s", p.Type)
		default:
			return "", invalid(at+".type", "unknown type %q", p.Type)
		}
	}
	return strings.Join(texts, "\n"), nil
}

// readMembers reads an object's members in their order.
func readMembers(raw json.RawMessage) ([]member, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("expected an object")
	}
	var list []member
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		m := member{key: key.(string)} // an object's keys are strings
		if err := d.Decode(&m.value); err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}

// encodeMessages writes the messages as a JSON array.
func encodeMessages(list []message) json.RawMessage {
	out := []byte{'['}
	for i, m := range list {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, '{')
		for k, x := range m.members {
			if k > 0 {
				out = append(out, ',')
			}
			out = append(out, encode(x.key)...)
			out = append(out, ':')
			out = append(out, x.value...)
		}
		out = append(out, '}')
	}
	return append(out, ']')
}

// unusedMark returns a character that occurs in none of the texts. Marks are
// code points that Unicode keeps free for use inside a program.
func unusedMark(messages []message, tools json.RawMessage) string {
	texts := []string{string(tools)}
	for _, m := range messages {
		for _, x := range m.members {
			texts = append(texts, decodeEscapes(x.value))
		}
	}
	for r := rune(0xFDD0); r <= 0xFDEF; r++ {
		mark := string(r)
		used := false
		for _, text := range texts {
			used = used || strings.Contains(text, mark)
		}
		if !used {
			return mark
		}
	}
	return "\uFDD0\uFDD1" // a text with all of them can only harm itself
}

// decodeEscapes writes a JSON value without escapes of characters above ASCII.
func decodeEscapes(raw json.RawMessage) string {
	if !bytes.Contains(raw, []byte(`\u`)) {
		return string(raw)
	}
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return string(raw)
	}
	return string(encode(v))
}

// disarmMessages puts mark into the names of control tokens in all messages but
// the assistant's, whose texts come from the model. It reports whether there
// were any.
func (s *service) disarmMessages(messages []message, mark string) bool {
	found := false
	for i := range messages {
		m := &messages[i]
		if m.role == "assistant" {
			continue
		}
		for k := range m.members {
			x := &m.members[k]
			var text string
			if x.key == "role" || json.Unmarshal(x.value, &text) != nil {
				continue
			}
			if safe := s.vocab.disarm(text, mark); safe != text {
				x.value, found = encode(safe), true
			}
		}
	}
	return found
}
