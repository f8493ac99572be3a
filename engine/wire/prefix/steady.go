package prefix

import (
	"bytes"
	"strings"

	"onebit/engine"
	"onebit/engine/wire"
)

// volatile is a line that a client puts before its system prompt and that differs in each request: nothing for a model to
// read, but behind it nothing is the same to a model's state.
type volatile struct {
	start  string // of the line
	origin string // who writes it, and where that is told
}

// lines are those that are known. A line that tells the model something, such as the time of the day, is not one: its
// author may place it better, a proxy may not take it away.
var lines = []volatile{
	{"x-anthropic-billing-header:", "Claude Code, the first system block: a hash of each request; anthropics/claude-code#68900, ggml-org/llama.cpp PR#20623, ollama PR#14918, waybarrios/vllm-mlx PR#277"},
}

// Steady returns the request without the lines before its system prompt that are known to differ in each request, so that
// a model's state can be reused, and how many bytes that took away. It is the same pointer when there are none. Only whole
// lines go, only from the beginning of a text of the system's or developer's, and never any other text. For models
// that are run here: what is sent on to the author's own servers belongs to those.
func Steady(req *engine.Request) (*engine.Request, int) {
	if req.Kind != engine.Chat && req.Kind != engine.Response || !suspect(req.Raw) {
		return req, 0
	}
	out := make([]byte, 0, len(req.Raw))
	from := 0
	wire.Walk(req.Raw, func(m wire.Member) bool {
		value := req.Raw[m.Start:m.End]
		var changed []byte
		switch key := string(m.Key); {
		case key == "messages" || key == "input" && value[0] == '[':
			if changed = each(value, steadyMessage); string(changed) == "[]" {
				changed = value // there is nothing else to answer
			}
		case key == "instructions":
			changed = steadyString(value)
		default:
			return true
		}
		out = append(append(out, req.Raw[from:m.Start]...), changed...)
		from = m.End
		return true
	})
	out = append(out, req.Raw[from:]...)
	if len(out) == len(req.Raw) {
		return req, 0
	}
	steady := *req
	steady.Raw = out
	return &steady, len(req.Raw) - len(out)
}

// SteadyText does for the text of a system prompt what Steady does for a request.
func SteadyText(text string) string {
	return text[volatileHead(text, "\n"):]
}

// suspect reports whether a volatile line may be in a text.
func suspect(text []byte) bool {
	for _, l := range lines {
		if bytes.Contains(text, []byte(l.start)) {
			return true
		}
	}
	return false
}

// volatileHead is how long the volatile lines are with which a text begins, and the empty lines behind them. feed is how
// the text writes a line feed: as JSON does, or as it is.
func volatileHead(text, feed string) int {
	at := 0
	for {
		rest := text[at:]
		known := false
		for _, l := range lines {
			known = known || strings.HasPrefix(rest, l.start)
		}
		if !known {
			return at
		}
		at += lineEnd(rest, feed)
		for strings.HasPrefix(text[at:], feed) {
			at += len(feed)
		}
	}
}

// lineEnd is the place behind the first line feed of a text, or its end.
func lineEnd(text, feed string) int {
	for at := 0; at < len(text); at++ {
		switch {
		case strings.HasPrefix(text[at:], feed):
			return at + len(feed)
		case feed != "\n" && text[at] == '\\':
			at++ // what an escape stands for begins none
		}
	}
	return len(text)
}

// each returns a JSON list with each element replaced by what f makes of it, and without those of which it makes nothing;
// the list itself when f returns what it was given.
func each(list []byte, f func([]byte) []byte) []byte {
	out, changed := append(make([]byte, 0, len(list)), '['), false
	ok := wire.Each(list, func(start, end int) bool {
		element := f(list[start:end])
		changed = changed || !same(element, list[start:end])
		if element == nil {
			return true
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, element...)
		return true
	})
	if !ok || !changed {
		return list
	}
	return append(out, ']')
}

// same reports whether b is a, not just equal to it.
func same(a, b []byte) bool { return len(a) == len(b) && len(a) > 0 && &a[0] == &b[0] }

// object returns a JSON object with the value of each member replaced by what f makes of it, and without those of which it
// makes nothing; the object itself when f returns what it was given.
func object(value []byte, f func(key, value []byte) []byte) []byte {
	out, changed := append(make([]byte, 0, len(value)), '{'), false
	ok := wire.Walk(value, func(m wire.Member) bool {
		made := f(m.Key, value[m.Start:m.End])
		changed = changed || !same(made, value[m.Start:m.End])
		if made == nil {
			return true
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(out, value[m.From:m.Start]...), made...)
		return true
	})
	if !ok || !changed {
		return value
	}
	return append(out, '}')
}

// steadyMessage is a message or item without volatile lines; nil when nothing else was in it.
func steadyMessage(value []byte) []byte {
	system := false
	wire.Walk(value, func(m wire.Member) bool {
		if string(m.Key) == "role" {
			role := string(value[m.Start:m.End])
			system = role == `"system"` || role == `"developer"`
		}
		return !system
	})
	if !system || !suspect(value) {
		return value
	}
	empty := false
	out := object(value, func(key, v []byte) []byte {
		if string(key) != "content" {
			return v
		}
		changed := steadyString(v)
		if v[0] == '[' {
			changed = each(v, steadyPart)
		}
		empty = len(changed) == 2 && !same(changed, v)
		return changed
	})
	if empty {
		return nil
	}
	return out
}

// steadyPart is a part without volatile lines; nil when nothing else was in it.
func steadyPart(value []byte) []byte {
	if value[0] == '"' {
		if v := steadyString(value); len(v) > 2 || same(v, value) {
			return v
		}
		return nil
	}
	empty := false
	out := object(value, func(key, v []byte) []byte {
		if string(key) != "text" {
			return v
		}
		changed := steadyString(v)
		empty = len(changed) == 2 && !same(changed, v)
		return changed
	})
	if empty {
		return nil
	}
	return out
}

// steadyString is a JSON string without the volatile lines at its beginning; any other value as it is.
func steadyString(value []byte) []byte {
	if value[0] != '"' || !suspect(value) {
		return value
	}
	inner := string(value[1 : len(value)-1])
	at := volatileHead(inner, `\n`)
	if at == 0 {
		return value
	}
	return append([]byte{'"'}, value[1+at:]...)
}

// Unmarked returns the request without the marks in its tools, messages and parts: a template that shows the model a tool as
// it came would show the mark. It is the same pointer when there are none.
func Unmarked(req *engine.Request) *engine.Request {
	if !bytes.Contains(req.Raw, []byte("cache_control")) && !bytes.Contains(req.Raw, []byte("prompt_cache_breakpoint")) {
		return req
	}
	bare := func(value []byte, inner func(key, v []byte) []byte) []byte {
		return object(value, func(key, v []byte) []byte {
			if isMark(key) {
				return nil
			}
			return inner(key, v)
		})
	}
	part := func(value []byte) []byte { return bare(value, func(_, v []byte) []byte { return v }) }
	message := func(value []byte) []byte {
		return bare(value, func(key, v []byte) []byte {
			if (string(key) == "content" || string(key) == "output") && v[0] == '[' {
				return each(v, part)
			}
			return v
		})
	}
	raw := bare(req.Raw, func(key, v []byte) []byte {
		switch {
		case v[0] != '[':
		case string(key) == "tools":
			return each(v, part)
		case string(key) == "messages" || string(key) == "input":
			return each(v, message)
		}
		return v
	})
	if same(raw, req.Raw) {
		return req
	}
	out := *req
	out.Raw = raw
	return &out
}
