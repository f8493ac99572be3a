package conversation

import (
	"errors"
	"strings"

	"onebit/engine/scan"
)

// errJSON says that a body is no JSON object.
var errJSON = errors.New("the body is no JSON object")

// Prompt is what a request asks, without its form: the messages of OpenAI's Chat, Responses and Completions and of
// Anthropic's Messages, and the text that decisions are about.
type Prompt struct {
	IDs
	Turns  []Turn
	Tools  bool // the model may call something
	Images bool
	JSON   bool // the answer must be JSON
}

// content is what one member of a body says.
type content struct {
	turns  []Turn
	items  int  // of a list: those that have the form of a message
	listed bool // it is a list
	images bool
}

// body is a request's JSON as far as it says something about the conversation.
type body struct {
	scan.Scanner
	Prompt
	system, instructions, messages, input, prompt, state content
	format, text                                         bool // the answer must be JSON
	pictures                                             bool // beside the state
}

// Read takes a request's body apart. Texts without escapes are the body's own bytes, which must not change any more. Of
// what has another form than expected nothing is taken, and of a member that is there twice the last one; only a body that is no JSON object is an error.
func Read(raw []byte) (Prompt, error) {
	b := body{Scanner: scan.New(raw)}
	if b.Next() != '{' {
		return Prompt{}, errJSON
	}
	b.Object(b.member)
	if !b.Done() {
		return Prompt{}, errJSON
	}
	b.state.images = b.pictures
	parts := []content{b.system, b.instructions, b.messages, b.input, b.prompt, b.state}
	switch {
	case b.messages.items > 0:
		parts = parts[:3]
	case b.input.listed || len(b.input.turns) > 0:
		parts = parts[:4]
	case len(b.prompt.turns) > 0:
		parts = parts[:5]
	}
	p := b.Prompt
	for _, one := range parts {
		p.Images = p.Images || one.images
		switch {
		case len(one.turns) == 0:
		case p.Turns == nil:
			p.Turns = one.turns
		default:
			p.Turns = append(p.Turns, one.turns...)
		}
	}
	p.JSON = b.format || b.text
	return p, nil
}

// member takes the value of one member.
func (b *body) member(name []byte) {
	switch string(name) {
	case "messages":
		b.messages = content{}
		b.list(&b.messages, false)
	case "system":
		b.system = content{}
		b.content("system", &b.system)
	case "instructions":
		b.instructions = content{}
		b.content("system", &b.instructions)
	case "input":
		b.input = content{}
		if b.Next() == '[' {
			b.list(&b.input, true)
		} else {
			b.content("user", &b.input)
		}
	case "prompt":
		b.prompt = content{}
		b.content("user", &b.prompt)
	case "state":
		b.state = content{}
		if text, ok := b.value(); ok {
			b.state.turns = []Turn{{"user", text}}
		}
	case "images":
		b.pictures = b.some()
	case "tools":
		b.Tools = b.some()
	case "conversation":
		b.Conversation = b.name()
	case "session_id":
		b.Session = b.name()
	case "previous_response_id":
		b.Previous = b.name()
	case "response_format":
		b.format = b.json()
	case "text":
		b.text = false
		b.members(func(name []byte) {
			if string(name) == "format" {
				b.text = b.json()
			} else {
				b.Skip()
			}
		})
	default:
		b.Skip()
	}
}

// value takes a text, or the JSON of an object or a list.
func (b *body) value() (text string, ok bool) {
	switch b.Next() {
	case '"':
		return b.Text()
	case '{', '[':
		raw := b.Value()
		return string(raw), raw != nil
	}
	b.Skip()
	return "", false
}

// members takes an object; another value has none.
func (b *body) members(f func(name []byte)) {
	if b.Next() != '{' {
		b.Skip()
		return
	}
	b.Object(f)
}

// some tells whether the value is a list that is not empty.
func (b *body) some() (found bool) {
	if b.Next() != '[' {
		b.Skip()
		return false
	}
	b.Array(func() {
		found = true
		b.Skip()
	})
	return found
}

// name reads an id: a text, or an object that has one.
func (b *body) name() (id string) {
	if b.Next() == '"' {
		id, _ = b.Text()
		return id
	}
	b.members(func(name []byte) {
		if string(name) == "id" {
			id, _ = b.Text()
		} else {
			b.Skip()
		}
	})
	return id
}

// json reads a format and tells whether it is JSON.
func (b *body) json() (yes bool) {
	b.members(func(name []byte) {
		if string(name) == "type" {
			kind, _ := b.Text()
			yes = strings.HasPrefix(kind, "json")
		} else {
			b.Skip()
		}
	})
	return yes
}

// list takes a list of messages, and of items that may be something else where mixed.
func (b *body) list(to *content, mixed bool) {
	if b.Next() != '[' {
		b.Skip()
		return
	}
	to.listed, to.turns = true, make([]Turn, 0, 16)
	b.Array(func() {
		if b.Next() != '{' {
			b.Skip()
			return
		}
		b.message(to, mixed)
	})
}

// message takes one message. Its role may stand behind its content.
func (b *body) message(to *content, mixed bool) {
	var one content
	kind, role, sound := "", "", true
	b.Object(func(name []byte) {
		switch string(name) {
		case "type":
			kind = b.optional(&sound)
		case "role":
			role = b.optional(&sound)
		case "content":
			one = content{}
			b.content("", &one)
		default:
			b.Skip()
		}
	})
	if !sound {
		return
	}
	to.items++
	if mixed && kind != "" && kind != "message" {
		return
	}
	for _, t := range one.turns {
		to.turns = append(to.turns, Turn{role, t.Text})
	}
	to.images = to.images || one.images
}

// optional takes a text that may be null; anything else is not sound.
func (b *body) optional(sound *bool) string {
	null := b.Next() == 'n'
	text, ok := b.Text()
	*sound = *sound && (ok || null)
	return text
}

// content takes what a message says: a text, a list of texts or a list of parts. Anything else is no message.
func (b *body) content(role string, to *content) {
	switch b.Next() {
	case '"':
		text, _ := b.Text()
		to.turns = append(to.turns, Turn{role, text})
	case '[':
		var texts []string
		b.Array(func() {
			switch b.Next() {
			case '"':
				text, _ := b.Text()
				texts = append(texts, text)
			case '{':
				texts = b.part(to, texts)
			default:
				b.Skip()
			}
		})
		to.turns = append(to.turns, Turn{role, strings.Join(texts, "\n")})
	default:
		b.Skip()
	}
}

// part takes one piece of a message, and appends its text.
func (b *body) part(to *content, texts []string) []string {
	kind, text, data, sound := "", "", "", true
	b.Object(func(name []byte) {
		switch string(name) {
		case "type":
			kind = b.optional(&sound)
		case "text":
			text = b.optional(&sound)
		case "data":
			data, _ = b.value()
		default:
			b.Skip()
		}
	})
	switch {
	case !sound:
	case strings.Contains(kind, "image"):
		to.images = true
	case kind == "input_json":
		texts = append(texts, data)
	case text != "":
		texts = append(texts, text)
	}
	return texts
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
