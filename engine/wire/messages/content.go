package messages

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"onebit/engine"
	"onebit/engine/wire"
)

// conversation is the messages of a chat in the making.
type conversation struct {
	messages []map[string]any
	marks    int
	ignored  []string // kinds of blocks that are left out
}

// block is one piece of a content, of whatever type.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
	Source    json.RawMessage `json:"source"`
	Title     *string         `json:"title"`
	Context   *string         `json:"context"`
	Cache     json.RawMessage `json:"cache_control"`
}

// source is where an image or a document comes from.
type source struct {
	Type    string          `json:"type"`
	Media   string          `json:"media_type"`
	Data    string          `json:"data"`
	URL     string          `json:"url"`
	Content json.RawMessage `json:"content"`
}

// read makes the messages of a body. Their order is that of Anthropic's prompts: tools, system, messages.
func (c *conversation) read(b *body) error {
	tools, err := c.toolMarks(b.Tools)
	if err != nil {
		return err
	}
	if err := c.system("system", b.System); err != nil {
		return err
	}
	if len(b.Messages) == 0 {
		return engine.Invalid("messages", "messages: at least one message is required")
	}
	for i, m := range b.Messages {
		if err := c.message(fmt.Sprintf("messages[%d]", i), m); err != nil {
			return err
		}
	}
	if len(c.messages) == 0 {
		return engine.Invalid("messages", "messages: there is nothing to answer")
	}
	if tools != nil {
		c.mark(c.messages[0], tools)
	}
	whole, err := c.marked("request", b.Cache)
	if whole != nil {
		c.mark(c.messages[len(c.messages)-1], whole)
	}
	return err
}

// toolMarks is the mark of the tools. It counts at the end of the first message: models are told about their tools before it
// or right behind it, and what they are told must not change with a mark.
func (c *conversation) toolMarks(tools []json.RawMessage) (mark json.RawMessage, err error) {
	for i, raw := range tools {
		var t struct {
			Cache json.RawMessage `json:"cache_control"`
		}
		_ = json.Unmarshal(raw, &t) // who reads the tools says what is wrong
		m, err := c.marked(fmt.Sprintf("tools[%d]", i), t.Cache)
		if err != nil {
			return nil, err
		}
		if m != nil {
			mark = m
		}
	}
	return mark, nil
}

// mark says that a prompt is to be kept up to the end of a message.
func (c *conversation) mark(m map[string]any, mark json.RawMessage) {
	if mark != nil {
		m["cache_control"] = mark
	}
}

// blocks are the pieces of a content. A text is one.
func blocks(at string, raw json.RawMessage) ([]block, error) {
	if !wire.Present(raw) {
		return nil, nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []block{{Type: "text", Text: text}}, nil
	}
	var list []block
	if err := json.Unmarshal(raw, &list); err != nil {
		if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && e.Field != "" {
			return nil, engine.Invalid(at, "%s: %s has a value of the wrong type", at, e.Field)
		}
		return nil, engine.Invalid(at, "%s: a content is a text, or a list of blocks", at)
	}
	return list, nil
}

// system takes the system prompt: many templates take one message of that role, and only at the beginning.
func (c *conversation) system(at string, raw json.RawMessage) error {
	all, err := blocks(at, raw)
	if err != nil {
		return err
	}
	var texts []string
	var mark json.RawMessage
	for i, b := range all {
		m, err := c.marked(fmt.Sprintf("%s[%d]", at, i), b.Cache)
		if err != nil {
			return err
		}
		if m != nil {
			mark = m
		}
		if b.Type != "text" {
			c.ignore("block " + b.Type)
			continue
		}
		texts = append(texts, b.Text)
	}
	if len(texts) == 0 {
		return nil
	}
	m := map[string]any{"role": "system", "content": strings.Join(texts, "\n\n")}
	c.mark(m, mark)
	c.messages = append(c.messages, m)
	return nil
}

func (c *conversation) ignore(what string) {
	if !slices.Contains(c.ignored, what) {
		c.ignored = append(c.ignored, what)
	}
}

func (c *conversation) message(at string, m message) error {
	switch m.Role {
	case "user", "assistant":
	case "system":
		if len(c.messages) == 0 {
			return c.system(at+".content", m.Content)
		}
	default:
		return engine.Invalid(at+".role", "%s.role: it is user or assistant, not %q", at, m.Role)
	}
	all, err := blocks(at+".content", m.Content)
	if err != nil {
		return err
	}
	switch m.Role {
	case "assistant":
		return c.assistant(at+".content", all)
	case "system":
		for i := range all { // in the midst of a conversation: what hardly a template takes becomes a word to the user's turn
			all[i].Text = "<system-reminder>\n" + strings.TrimSpace(all[i].Text) + "\n</system-reminder>"
		}
	}
	return c.user(at+".content", all)
}

// user takes what a user says, and what tools gave. Each result is a message of its own.
func (c *conversation) user(at string, all []block) error {
	said := pieces{}
	for i, b := range all {
		at := fmt.Sprintf("%s[%d]", at, i)
		mark, err := c.marked(at, b.Cache)
		if err != nil {
			return err
		}
		if b.Type != "tool_result" {
			if err := c.piece(&said, at, b); err != nil {
				return err
			}
			said.mark = later(mark, said.mark)
			continue
		}
		c.say("user", &said)
		if err := c.result(at, b, mark); err != nil {
			return err
		}
	}
	c.say("user", &said)
	return nil
}

// later is a mark, or the one before where there is none.
func later(mark, before json.RawMessage) json.RawMessage {
	if mark != nil {
		return mark
	}
	return before
}

// result takes what a tool gave. A chat has no word for a failure but words.
func (c *conversation) result(at string, b block, mark json.RawMessage) error {
	if b.ToolUseID == "" {
		return engine.Invalid(at+".tool_use_id", "%s.tool_use_id: Field required", at)
	}
	inner, err := blocks(at+".content", b.Content)
	if err != nil {
		return err
	}
	gave := pieces{mark: mark}
	for i, p := range inner {
		if err := c.piece(&gave, fmt.Sprintf("%s.content[%d]", at, i), p); err != nil {
			return err
		}
	}
	if b.IsError {
		gave.fail()
	}
	m := map[string]any{"role": "tool", "tool_call_id": b.ToolUseID, "content": gave.content()}
	c.mark(m, gave.mark)
	c.messages = append(c.messages, m)
	return nil
}

// assistant takes what a model said before: its thoughts, its words and its calls.
func (c *conversation) assistant(at string, all []block) error {
	said, thoughts := pieces{}, []string(nil)
	var calls []any
	for i, b := range all {
		at := fmt.Sprintf("%s[%d]", at, i)
		mark, err := c.marked(at, b.Cache)
		if err != nil {
			return err
		}
		said.mark = later(mark, said.mark)
		switch b.Type {
		case "thinking":
			thoughts = append(thoughts, b.Thinking)
		case "redacted_thinking": // nobody here can read it
		case "tool_use":
			if b.ID == "" || b.Name == "" {
				return engine.Invalid(at, "%s: a tool_use has an id and a name", at)
			}
			input := "{}"
			if wire.Present(b.Input) {
				input = string(b.Input)
			}
			calls = append(calls, map[string]any{"id": b.ID, "type": "function", "function": map[string]any{"name": b.Name, "arguments": input}})
		default:
			if err := c.piece(&said, at, b); err != nil {
				return err
			}
		}
	}
	m := c.say("assistant", &said)
	if m == nil {
		if len(thoughts) == 0 && len(calls) == 0 {
			return nil
		}
		m = c.last("assistant")
		c.mark(m, said.mark)
	}
	if len(thoughts) > 0 {
		m["reasoning_content"] = strings.Join(thoughts, "\n")
	}
	if len(calls) > 0 {
		before, _ := m["tool_calls"].([]any)
		m["tool_calls"] = append(before, calls...)
	}
	return nil
}

// last is the last message when it is of a role, else a new one without a word.
func (c *conversation) last(role string) map[string]any {
	if n := len(c.messages); n > 0 && c.messages[n-1]["role"] == role {
		return c.messages[n-1]
	}
	m := map[string]any{"role": role, "content": ""}
	c.messages = append(c.messages, m)
	return m
}

// say puts what was gathered at the end, and returns its message; nil when there is nothing. Turns of one role that follow
// each other are one turn: many templates want the roles to take turns.
func (c *conversation) say(role string, p *pieces) map[string]any {
	if len(p.all) == 0 {
		return nil
	}
	m := c.last(role)
	if m["content"] == "" {
		m["content"] = p.content()
	} else {
		before := pieces{}
		before.add(m["content"])
		p.all = append(before.all, p.all...)
		m["content"] = p.content()
	}
	c.mark(m, p.mark)
	*p = pieces{}
	return m
}

// pieces gathers texts and images.
type pieces struct {
	all  []any // parts in the form of chats
	mark json.RawMessage
}

func (p *pieces) text(s string) {
	if s != "" {
		p.all = append(p.all, map[string]any{"type": "text", "text": s})
	}
}

// add takes a content in the form of chats.
func (p *pieces) add(content any) {
	switch v := content.(type) {
	case string:
		p.text(v)
	case []any:
		p.all = append(p.all, v...)
	}
}

// fail says in words that what was gathered is no success.
func (p *pieces) fail() {
	p.all = append([]any{map[string]any{"type": "text", "text": "Error:"}}, p.all...)
}

// content is what was gathered, in the form of chats: a text where it is nothing else.
func (p *pieces) content() any {
	var texts []string
	for _, one := range p.all {
		part, _ := one.(map[string]any)
		text, ok := part["text"].(string)
		if !ok {
			return p.all
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "\n")
}

// piece takes one block of those that everybody may say.
func (c *conversation) piece(p *pieces, at string, b block) error {
	switch b.Type {
	case "text":
		p.text(b.Text)
	case "image":
		return image(p, at, b.Source)
	case "document":
		return document(p, at, b)
	case "search_result":
		inner, err := blocks(at+".content", b.Content)
		if err != nil {
			return err
		}
		p.text(headed(b, inner))
	case "":
		return engine.Invalid(at+".type", "%s.type: Field required", at)
	default:
		c.ignore("block " + b.Type)
	}
	return nil
}

func image(p *pieces, at string, raw json.RawMessage) error {
	var s source
	if json.Unmarshal(raw, &s) != nil {
		return engine.Invalid(at+".source", "%s.source: it is an object", at)
	}
	url := s.URL
	switch {
	case s.Type == "base64" && s.Data != "" && strings.HasPrefix(s.Media, "image/"):
		url = "data:" + s.Media + ";base64," + s.Data
	case s.Type == "url" && s.URL != "":
	default:
		return engine.Invalid(at+".source", "%s.source: an image has base64 data with its media_type, or a url", at)
	}
	p.all = append(p.all, map[string]any{"type": "image_url", "image_url": map[string]any{"url": url}})
	return nil
}

// document takes a document that is text.
func document(p *pieces, at string, b block) error {
	var s source
	if json.Unmarshal(b.Source, &s) != nil {
		return engine.Invalid(at+".source", "%s.source: it is an object", at)
	}
	switch s.Type {
	case "text":
		p.text(headed(b, []block{{Type: "text", Text: s.Data}}))
	case "content":
		inner, err := blocks(at+".source.content", s.Content)
		if err != nil {
			return err
		}
		p.text(headed(b, inner))
	default:
		return engine.Invalid(at+".source.type", "%s.source.type: documents are read here as text or content, not as %q; put other files into a vector store", at, s.Type)
	}
	return nil
}

// headed is the text of some blocks under their title.
func headed(b block, inner []block) string {
	var texts []string
	for _, t := range []*string{b.Title, b.Context} {
		if t != nil && *t != "" {
			texts = append(texts, *t)
		}
	}
	for _, one := range inner {
		if one.Type == "text" {
			texts = append(texts, one.Text)
		}
	}
	return strings.Join(texts, "\n")
}
