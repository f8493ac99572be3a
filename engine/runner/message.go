package runner

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"onebit/engine/chat"
)

// checkMessages checks what the dialect's parser leaves open: that every message
// has something to say.
func checkMessages(f *fields) (list []map[string]json.RawMessage) {
	if json.Unmarshal(f.raw["messages"], &list) != nil {
		f.mismatch("messages", "array")
	}
	for i, m := range list {
		name := fmt.Sprintf("messages[%d].content", i)
		_, content := m["content"]
		switch {
		case content:
		case role(m) != "assistant":
			f.fail(invalid(name, "it is required"))
		case m["tool_calls"] == nil:
			f.fail(invalid(name, "an assistant message needs content or tool_calls"))
		}
	}
	return list
}

func role(m map[string]json.RawMessage) string {
	var s string
	if json.Unmarshal(m["role"], &s) != nil {
		return ""
	}
	return s
}

// endMark stands behind the text of a message that the answer continues, to be
// found again in the rendered prompt. Unicode keeps it free for use inside a
// program.
const endMark = "\uFDD1"

// markEnd returns messages with endMark behind the last one's text. It leaves list as it is.
func markEnd(list []map[string]json.RawMessage) json.RawMessage {
	list = slices.Clone(list)
	last := maps.Clone(list[len(list)-1])
	last["content"] = encode(plainText(last["content"]) + endMark)
	list[len(list)-1] = last
	return encode(list)
}

// plainText returns a content that is a text or text parts.
func plainText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var parts []struct{ Text string }
	if json.Unmarshal(raw, &parts) != nil {
		return ""
	}
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = p.Text
	}
	return strings.Join(texts, "\n")
}

// cutAtEnd returns the prompt up to endMark, where it occurs last.
func cutAtEnd(parts []chat.Part) ([]chat.Part, bool) {
	for i := len(parts) - 1; i >= 0; i-- {
		if at := strings.LastIndex(parts[i].Text, endMark); at >= 0 {
			parts[i].Text = parts[i].Text[:at]
			return parts[:i+1], true
		}
	}
	return parts, false
}

// joined returns the text of a prompt.
func joined(parts []chat.Part) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String()
}
