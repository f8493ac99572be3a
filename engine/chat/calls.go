package chat

import (
	"encoding/json"
	"slices"
	"strings"
)

// callFormat is how a model writes tool calls.
type callFormat uint8

const (
	noCalls      callFormat = iota
	hermesCalls             // <tool_call>{"name": ..., "arguments": {...}}</tool_call>: Hermes, Qwen and many others
	llamaCalls              // {"name": ..., "parameters": {...}} as the whole answer, or behind <|python_tag|>: Llama 3
	mistralCalls            // [TOOL_CALLS][{"name": ..., "arguments": {...}}], or [TOOL_CALLS]name[ARGS]{...}
)

// triggers open calls; markers are all that the formats consist of besides JSON.
var (
	triggers = [...]string{hermesCalls: "<tool_call>", llamaCalls: "<|python_tag|>", mistralCalls: "[TOOL_CALLS]"}
	endTags  = [...]string{hermesCalls: "</tool_call>", mistralCalls: ""}
	markers  = [...][]string{
		noCalls:      nil,
		hermesCalls:  {"<tool_call>", "</tool_call>"},
		llamaCalls:   {"<|python_tag|>"},
		mistralCalls: {"[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"},
	}
)

func declaredCalls(source string) callFormat {
	switch {
	case strings.Contains(source, "[TOOL_CALLS]"):
		return mistralCalls
	case strings.Contains(source, "<tool_call>"):
		return hermesCalls
	case strings.Contains(source, `"parameters": dictionary`):
		return llamaCalls
	}
	return noCalls
}

// CallForm is how a call is written that a Splitter of the template finds: Open, the call, Close. The call is a JSON object
// of the function's name and its arguments under two keys; where NameKey is empty it is the name, NameEnd and the arguments.
type CallForm struct {
	Open, Close           string
	NameKey, ArgumentsKey string
	NameEnd               string
	// Another stands between two calls; Lists says that it stands within Open and Close. Single means that there is but one.
	Another string
	Lists   bool
	Single  bool
}

// foreignCalls are parts of templates that put into the tags of known calls what is not JSON.
var foreignCalls = [...]string{"<function=", "<arg_key>"}

// CallForm says how calls are written; ok is false where that is not known.
func (t *Template) CallForm() (f CallForm, ok bool) {
	for _, text := range foreignCalls {
		if strings.Contains(t.source, text) {
			return CallForm{}, false
		}
	}
	switch t.traits.calls {
	case hermesCalls:
		return CallForm{Open: "<tool_call>\n", Close: "\n</tool_call>", NameKey: "name", ArgumentsKey: "arguments", Another: "\n"}, true
	case llamaCalls:
		return CallForm{NameKey: "name", ArgumentsKey: "parameters", Single: true}, true
	case mistralCalls:
		if strings.Contains(t.source, "[ARGS]") {
			return CallForm{Open: "[TOOL_CALLS]", NameEnd: "[ARGS]"}, true
		}
		return CallForm{Open: "[TOOL_CALLS][", Close: "]", NameKey: "name", ArgumentsKey: "arguments", Another: ", ", Lists: true}, true
	}
	return CallForm{}, false
}

// holdCall is how many bytes of a call are held back while it may yet turn out to be none. A longer one is passed
// on as it comes.
const holdCall = 512

// caller reads the calls behind one trigger.
type caller struct {
	*Splitter
	raw   []byte // since the trigger or the last call, to be given back as text
	bare  bool   // no trigger: only a call of a known tool is one
	list  bool   // within [ ]
	found int    // calls read

	scan    *jsonScanner // the object under way
	name    string       // written before the object, which is the arguments then
	begun   bool         // its first step is out
	args    span         // the arguments that are being passed on; to is 0 while they go on
	sent    int          // up to where they are out
	invalid bool         // they went wrong after that: the rest is passed on as it is
}

// advance does one step; false means that it needs more text.
func (c *caller) advance(last bool) bool {
	switch {
	case c.invalid:
		return c.passOn(last)
	case c.scan != nil:
		return c.object(last)
	}
	return c.between(last)
}

// take moves n bytes of the text to come to the raw text.
func (c *caller) take(n int) {
	c.raw = append(c.raw, c.buf[:n]...)
	c.buf = c.buf[n:]
}

// between finds the next object, or the end of the calls.
func (c *caller) between(last bool) bool {
	rest := strings.TrimLeft(c.buf, whitespace)
	c.take(len(c.buf) - len(rest))
	end := endTags[c.format]
	switch {
	case rest == "" && !last:
		return false
	case rest == "" && c.found > 0:
		c.end("")
	case rest != "" && rest[0] == '{':
		c.scan = &jsonScanner{}
	case rest != "" && rest[0] == '[' && c.found == 0 && !c.list && c.name == "":
		c.list = true
		c.take(1)
	case c.list && rest != "" && (rest[0] == ',' && c.found > 0 || rest[0] == ']'):
		c.list = rest[0] == ','
		c.take(1)
	case c.format == llamaCalls && c.found > 0 && rest != "" && rest[0] == ';':
		c.take(1)
	case end != "" && c.found > 0 && strings.HasPrefix(rest, end):
		c.buf = rest[len(end):]
		c.end("")
	case end != "" && c.found > 0 && strings.HasPrefix(end, rest) && !last:
		return false
	case c.format == mistralCalls && c.found == 0 && !c.list && c.name == "":
		return c.readName(last)
	default:
		c.giveUp()
	}
	return true
}

// nameCharacters are those of a tool's name.
const nameCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:/"

// maxName bounds what may stand between [TOOL_CALLS] and the arguments.
const maxName = 256

// readName reads name[ARGS] or name[CALL_ID]id[ARGS], or a name right before the object.
func (c *caller) readName(last bool) bool {
	at := strings.IndexByte(c.buf, '{')
	if at < 0 && !last && len(c.buf) <= maxName {
		return false
	}
	name, id, _ := strings.Cut(c.buf[:max(at, 0)], "[")
	name = strings.TrimRight(name, whitespace)
	id, ok := strings.CutSuffix(strings.TrimRight(id, whitespace), "ARGS]")
	if at < 0 || at > maxName || name == "" || strings.Trim(name, nameCharacters) != "" || !ok && id != "" {
		c.giveUp()
		return true
	}
	c.name = name
	c.take(at)
	return true
}

// giveUp: what has been read since the last call is text after all.
func (c *caller) giveUp() {
	if c.found == 0 {
		c.end(string(c.raw))
		return
	}
	c.buf = string(c.raw) + c.buf
	c.end("")
}

// object reads the object of a call.
func (c *caller) object(last bool) bool {
	n := 0
	for n < len(c.buf) && c.scan.feed(c.buf[n]) {
		n++
		if !c.begun && len(c.scan.text) >= holdCall {
			c.tryBegin()
		}
		if c.bare && c.hopeless() {
			c.scan.state = scanBad
		}
	}
	c.take(n)
	switch {
	case c.scan.state == scanDone:
		c.finish()
	case c.scan.state == scanBad || last:
		c.broken(last)
	default:
		c.send()
		return false
	}
	return true
}

// hopeless says of an object without a trigger that it cannot become a call of a known tool.
func (c *caller) hopeless() bool {
	if len(c.scan.open) != 1 {
		return false
	}
	switch c.scan.state {
	case wantColon:
		return !slices.Contains([]string{"type", "id", "name", "arguments", "parameters"}, c.scan.key)
	case wantCommaOrEnd:
		return c.scan.key == "name" && c.called() == ""
	}
	return false
}

// called is the name of the called tool, "" while it is not known.
func (c *caller) called() string {
	name := c.name
	if at, ok := c.scan.members["name"]; ok && name == "" {
		_ = json.Unmarshal(c.scan.slice(at), &name)
	}
	if c.bare && !slices.Contains(c.tools, name) {
		return ""
	}
	return name
}

// arguments is where the arguments are; to is 0 while they go on, ok false when there are none yet.
func (c *caller) arguments() (at span, ok bool) {
	if c.name != "" {
		if c.scan.state == scanDone {
			return span{0, len(c.scan.text)}, true
		}
		return span{}, len(c.scan.text) > 0
	}
	for _, key := range []string{"arguments", "parameters"} {
		if at, ok := c.scan.members[key]; ok {
			return at, true
		}
		if c.scan.inMember && c.scan.key == key {
			return span{from: c.scan.member}, true
		}
	}
	return span{}, false
}

// tryBegin begins to pass the call on as soon as its name is known and its arguments are an object.
func (c *caller) tryBegin() {
	at, ok := c.arguments()
	if !ok || c.scan.text[at.from] != '{' || c.called() == "" {
		return
	}
	c.begin(at)
}

func (c *caller) begin(at span) {
	c.begun, c.args, c.sent = true, at, at.from
	c.emit(Delta{Call: &CallDelta{Index: c.calls, ID: c.newID(), Name: c.called()}})
	c.calls++
}

// send passes on what has come of the arguments.
func (c *caller) send() {
	if !c.begun {
		return
	}
	if at, _ := c.arguments(); c.args.to == 0 && at.from == c.args.from {
		c.args.to = at.to
	}
	to := c.args.to
	if to == 0 {
		to = len(c.scan.text)
	}
	c.emitArguments(string(c.scan.text[c.sent:to]))
	c.sent = to
}

func (c *caller) emitArguments(text string) {
	if text != "" {
		c.emit(Delta{Call: &CallDelta{Index: c.calls - 1, Arguments: text}})
	}
}

// finish ends the call whose object is complete.
func (c *caller) finish() {
	if !c.begun {
		text, ok := c.wholeArguments()
		if !ok || c.called() == "" {
			c.giveUp()
			return
		}
		c.begin(span{})
		c.emitArguments(text)
	} else {
		c.send()
	}
	c.next()
}

// wholeArguments is the arguments as JSON text: of an object as it stands, of text that holds one, {} for none.
func (c *caller) wholeArguments() (string, bool) {
	at, ok := c.arguments()
	if !ok {
		return "{}", !c.bare
	}
	raw := c.scan.slice(at)
	var text string
	switch {
	case raw[0] == '{':
		return string(raw), true
	case string(raw) == "null":
		return "{}", true
	case raw[0] != '"' || json.Unmarshal(raw, &text) != nil:
		return "", false
	case strings.TrimSpace(text) == "":
		return "{}", true
	}
	return text, json.Valid([]byte(text)) && strings.HasPrefix(strings.TrimSpace(text), "{")
}

// next gets ready for another call.
func (c *caller) next() {
	*c = caller{Splitter: c.Splitter, bare: c.bare, list: c.list, found: c.found + 1}
}

// broken ends an object that is no JSON, or whose end does not come. All but its last brace will do.
func (c *caller) broken(last bool) {
	at, ok := c.arguments()
	switch {
	case c.scan.wantsBrace() && ok && at.to > 0 && c.called() != "":
		c.finish()
	case !c.begun:
		c.giveUp()
	case at.to > 0 || last:
		c.send()
		c.buf = string(c.scan.text[c.sent:]) + c.buf
		c.next()
	default:
		c.send()
		c.invalid = true
	}
}

// passOn takes all text up to the closing tag for arguments.
func (c *caller) passOn(last bool) bool {
	end := endTags[c.format]
	at := strings.Index(c.buf, end)
	switch {
	case end != "" && at >= 0:
		c.emitArguments(c.buf[:at])
		c.buf = c.buf[at:]
		c.next()
		return true
	case last || end == "":
		at = len(c.buf)
	default:
		at = len(c.buf) - partial(c.buf, end)
	}
	c.emitArguments(c.buf[:at])
	c.buf = c.buf[at:]
	if last {
		c.next()
	}
	return last
}
