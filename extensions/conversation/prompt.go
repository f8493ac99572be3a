package conversation

import (
	"encoding/json"
	"strings"
)

// Prompt is what a request asks, without its form: the messages of OpenAI's Chat, Responses and Completions and of
// Anthropic's Messages.
type Prompt struct {
	IDs
	Turns  []Turn
	Tools  bool // the model may call something
	Images bool
	JSON   bool // the answer must be JSON
}

// body is a request's JSON as far as it says something about the conversation.
type body struct {
	Messages     []message       `json:"messages"`
	System       json.RawMessage `json:"system"`
	Instructions json.RawMessage `json:"instructions"`
	Input        json.RawMessage `json:"input"`
	Prompt       json.RawMessage `json:"prompt"`
	Tools        json.RawMessage `json:"tools"`
	Conversation json.RawMessage `json:"conversation"`
	Session      json.RawMessage `json:"session_id"`
	Previous     json.RawMessage `json:"previous_response_id"`
	Format       struct {
		Type string `json:"type"`
	} `json:"response_format"`
	Text struct {
		Format struct {
			Type string `json:"type"`
		} `json:"format"`
	} `json:"text"`
}

type message struct {
	Type    string          `json:"type"`
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// part is one piece of a message.
type part struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// Read takes a request's body apart. Of what has another form than expected nothing is taken; only a body that is no JSON
// object is an error.
func Read(raw []byte) (Prompt, error) {
	var b body
	if err := json.Unmarshal(raw, &b); err != nil {
		// one member of another kind must not hide the others
		var loose map[string]json.RawMessage
		if err := json.Unmarshal(raw, &loose); err != nil {
			return Prompt{}, err
		}
		b = body{System: loose["system"], Instructions: loose["instructions"], Input: loose["input"], Prompt: loose["prompt"],
			Tools: loose["tools"], Conversation: loose["conversation"], Session: loose["session_id"], Previous: loose["previous_response_id"]}
		b.Messages = messages(loose["messages"])
	}
	p := Prompt{
		IDs:   IDs{Conversation: name(b.Conversation), Session: name(b.Session), Previous: name(b.Previous)},
		Tools: len(b.Tools) > 2 && b.Tools[0] == '[',
		JSON:  strings.HasPrefix(b.Format.Type, "json") || strings.HasPrefix(b.Text.Format.Type, "json"),
	}
	p.add("system", b.System)
	p.add("system", b.Instructions)
	for _, m := range b.Messages {
		p.add(m.Role, m.Content)
	}
	switch {
	case len(b.Messages) > 0:
	case len(b.Input) > 0 && b.Input[0] == '[':
		for _, m := range messages(b.Input) {
			if m.Type == "" || m.Type == "message" {
				p.add(m.Role, m.Content)
			}
		}
	case len(b.Input) > 0:
		p.add("user", b.Input)
	default:
		p.add("user", b.Prompt)
	}
	return p, nil
}

// messages reads those elements of a list that are messages.
func messages(raw json.RawMessage) []message {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return nil
	}
	var all []message
	for _, one := range list {
		var m message
		if json.Unmarshal(one, &m) == nil {
			all = append(all, m)
		}
	}
	return all
}

// name reads an id: a text, or an object that has one.
func name(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var object struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(raw, &object) == nil {
		return object.ID
	}
	return ""
}

// add appends a message whose content is a text, a list of texts or a list of parts.
func (p *Prompt) add(role string, content json.RawMessage) {
	if len(content) == 0 || string(content) == "null" {
		return
	}
	var text string
	if json.Unmarshal(content, &text) == nil {
		p.Turns = append(p.Turns, Turn{role, text})
		return
	}
	var list []json.RawMessage
	if json.Unmarshal(content, &list) != nil {
		return
	}
	var texts []string
	for _, raw := range list {
		var one part
		switch {
		case json.Unmarshal(raw, &text) == nil:
			texts = append(texts, text)
		case json.Unmarshal(raw, &one) != nil:
		case strings.Contains(one.Type, "image"):
			p.Images = true
		case one.Text != "":
			texts = append(texts, one.Text)
		}
	}
	p.Turns = append(p.Turns, Turn{role, strings.Join(texts, "\n")})
}

// LastUser is the text of the last message of the user.
func (p Prompt) LastUser() string {
	for i := len(p.Turns) - 1; i >= 0; i-- {
		if t := p.Turns[i]; role(t.Role) == "user" && strings.TrimSpace(t.Text) != "" {
			return t.Text
		}
	}
	return ""
}

// System is the system prompt: all messages of that role, a line feed between two.
func (p Prompt) System() string {
	var all []string
	for _, t := range p.Turns {
		if role(t.Role) == "system" {
			all = append(all, t.Text)
		}
	}
	return strings.Join(all, "\n")
}

// Whole is every message in order, each closed by a line feed.
func (p Prompt) Whole() string {
	var b strings.Builder
	for _, t := range p.Turns {
		b.WriteString(t.Text)
		b.WriteByte('\n')
	}
	return b.String()
}
