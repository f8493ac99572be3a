package messages

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"onebit/engine"
	"onebit/engine/wire"
)

// ErrStopped ends a chat: a stop sequence has come. The answer is whole.
var ErrStopped = errors.New("a stop sequence has come")

// unsigned stands where Anthropic signs thoughts, so that it knows them again. Nobody here looks at it.
const unsigned = "unsigned"

// Config is what an Answer is made with.
type Config struct {
	ID     string
	Model  string // as served
	Counts bool   // the server says what of a prompt it had before, also where that is nothing
	// Emit takes the events of a stream; nil where only the whole is wanted. The bytes may be used until it returns.
	Emit func(name string, event []byte) error
}

// Answer is a message in the making.
type Answer struct {
	cfg Config
	r   *Request
	err error  // of Emit
	buf []byte // the event in the making

	begun  bool
	opened engine.Usage // what is known of the prompt before the answer
	blocks []*piece
	open   *piece         // the block that is not closed
	calls  map[int]*piece // by their number in the chat
	behind []*piece       // calls that came while another was not complete
	held   string         // text that may be the beginning of a stop sequence
	spaces string         // with which a text may begin
	finish string
	fired  string // the stop sequence that came
}

// piece is one block of the content.
type piece struct {
	kind  string
	index int // in the content; -1 while it is behind
	id    string
	name  string
	text  strings.Builder // of a call its arguments
}

// New begins an answer.
func New(r *Request, cfg Config) *Answer {
	return &Answer{cfg: cfg, r: r, calls: map[int]*piece{}}
}

// chunk is one event of a chat's stream.
type chunk struct {
	wire.ChatEvent
	Progress struct { // of a server of llama-server's kind, asked for it
		Total int `json:"total"`
		Cache int `json:"cache"`
	} `json:"prompt_progress"`
}

// Chunk takes the next event of the chat. An error is ErrStopped, or one of Emit, or says that the event is none.
func (a *Answer) Chunk(raw []byte) error {
	var c chunk
	if err := json.Unmarshal(raw, &c); err != nil {
		return err
	}
	if !a.begun && c.Progress.Total > 0 {
		a.opened = engine.Usage{Prompt: c.Progress.Total, Cached: c.Progress.Cache}
	}
	a.begin()
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue
		}
		d := choice.Delta
		a.think(d.Reasoning)
		if err := a.hear(d.Content); err != nil {
			return err
		}
		for _, t := range d.Calls {
			one := a.calls[t.Index]
			if one == nil {
				one = a.call(t.Index, t.ID, t.Function.Name)
			}
			a.argue(one, t.Function.Arguments)
		}
		if choice.Finish != "" {
			a.finish = choice.Finish
		}
	}
	return a.err
}

// event begins an event; more is appended to a.buf before send.
func (a *Answer) event(kind string) {
	a.buf = append(a.buf[:0], `{"type":"`...)
	a.buf = append(a.buf, kind...)
	a.buf = append(a.buf, '"')
}

func (a *Answer) send(kind string) {
	a.buf = append(a.buf, '}')
	if a.err == nil && a.cfg.Emit != nil {
		a.err = a.cfg.Emit(kind, a.buf)
	}
}

// Opening is the event that begins a stream about whose prompt nothing is known yet. What Chunk brings first begins one as
// well: only one of them is for the client.
func (a *Answer) Opening() []byte {
	return a.start(nil, engine.Usage{})
}

func (a *Answer) start(dst []byte, u engine.Usage) []byte {
	dst = append(dst, `{"type":"message_start","message":`...)
	dst = a.object(dst, u, false)
	return append(dst, '}')
}

// begin says that there is a message.
func (a *Answer) begin() {
	if a.begun {
		return
	}
	a.begun = true
	if a.err == nil && a.cfg.Emit != nil {
		a.buf = a.start(a.buf[:0], a.opened)
		a.err = a.cfg.Emit("message_start", a.buf)
	}
}

// starting opens a block.
func (a *Answer) starting(p *piece) {
	a.close()
	p.index, a.open = len(a.blocks), p
	a.blocks = append(a.blocks, p)
	a.event("content_block_start")
	a.at(p)
	a.buf = append(a.buf, `,"content_block":`...)
	a.buf = p.append(a.buf, false)
	a.send("content_block_start")
}

func (a *Answer) at(p *piece) {
	a.buf = strconv.AppendInt(append(a.buf, `,"index":`...), int64(p.index), 10)
}

// delta brings more of the open block.
func (a *Answer) delta(p *piece, kind, member, text string) {
	a.event("content_block_delta")
	a.at(p)
	a.buf = append(a.buf, `,"delta":{"type":"`...)
	a.buf = append(a.buf, kind...)
	a.buf = append(a.buf, `","`...)
	a.buf = append(a.buf, member...)
	a.buf = append(a.buf, `":`...)
	a.buf = append(a.buf, wire.Quote(text)...)
	a.buf = append(a.buf, '}')
	a.send("content_block_delta")
}

// close ends the open block.
func (a *Answer) close() {
	p := a.open
	if p == nil {
		return
	}
	a.open = nil
	switch {
	case p.kind == "thinking":
		a.delta(p, "signature_delta", "signature", unsigned)
	case p.kind == "tool_use" && p.text.Len() == 0:
		a.delta(p, "input_json_delta", "partial_json", "{}")
	}
	a.event("content_block_stop")
	a.at(p)
	a.send("content_block_stop")
}

func (a *Answer) think(more string) {
	if more == "" {
		return
	}
	a.settleText()
	p := a.open
	if p == nil || p.kind != "thinking" {
		p = &piece{kind: "thinking"}
		a.starting(p)
	}
	p.text.WriteString(more)
	a.delta(p, "thinking_delta", "thinking", more)
}

// hear takes text of the model and looks for stop sequences in it.
func (a *Answer) hear(text string) error {
	if text == "" {
		return a.err
	}
	if len(a.r.Stops) == 0 {
		a.say(text)
		return a.err
	}
	a.held += text
	first, which := -1, ""
	for _, s := range a.r.Stops {
		if at := strings.Index(a.held, s); at >= 0 && (first < 0 || at < first || at == first && len(s) > len(which)) {
			first, which = at, s
		}
	}
	if first >= 0 {
		said := a.held[:first]
		a.held, a.fired = "", which
		a.say(said)
		if a.err != nil {
			return a.err
		}
		return ErrStopped
	}
	keep := 0
	for _, s := range a.r.Stops {
		for n := min(len(s)-1, len(a.held)); n > keep; n-- {
			if strings.HasSuffix(a.held, s[:n]) {
				keep = n
			}
		}
	}
	said := a.held[:len(a.held)-keep]
	a.held = a.held[len(said):]
	a.say(said)
	return a.err
}

// say brings text. One does not begin with nothing but space: what has no word in it is not taken back by the API that
// clients know.
func (a *Answer) say(text string) {
	if text == "" {
		return
	}
	p := a.open
	if p == nil || p.kind != "text" {
		text = a.spaces + text
		if a.spaces = ""; strings.TrimSpace(text) == "" {
			a.spaces = text
			return
		}
		p = &piece{kind: "text"}
		a.starting(p)
	}
	p.text.WriteString(text)
	a.delta(p, "text_delta", "text", text)
}

// call begins a call. Blocks follow each other: one that comes while another is not complete waits for its end.
func (a *Answer) call(n int, id, name string) *piece {
	a.settleText()
	if id == "" {
		id = wire.ID("toolu")
	}
	p := &piece{kind: "tool_use", index: -1, id: id, name: name}
	a.calls[n] = p
	if o := a.open; o != nil && o.kind == "tool_use" && o.text.Len() > 0 && !json.Valid([]byte(o.text.String())) {
		a.behind = append(a.behind, p)
	} else {
		a.starting(p)
	}
	return p
}

func (a *Answer) argue(p *piece, text string) {
	if text == "" {
		return
	}
	if p.index >= 0 && a.open != p {
		return // its block is closed: it was complete
	}
	p.text.WriteString(text)
	if p.index >= 0 {
		a.delta(p, "input_json_delta", "partial_json", text)
	}
}

// settleText brings what was held back of a text.
func (a *Answer) settleText() {
	held := a.held
	a.held = ""
	a.say(held)
	a.spaces = ""
}

// Complete ends the message as the chat ended, and returns it.
func (a *Answer) Complete(u engine.Usage) ([]byte, error) {
	a.begin()
	a.settleText()
	for _, p := range a.behind {
		a.starting(p)
		if p.text.Len() > 0 {
			a.delta(p, "input_json_delta", "partial_json", p.text.String())
		}
	}
	a.close()
	a.event("message_delta")
	a.buf = append(a.buf, `,"delta":{`...)
	a.buf = a.reason(a.buf)
	a.buf = append(a.buf, `},"usage":`...)
	a.buf = a.usage(a.buf, u)
	a.send("message_delta")
	a.event("message_stop")
	a.send("message_stop")
	if a.err != nil {
		return nil, a.err
	}
	return a.object(nil, u, true), nil
}

// reason appends why the message ended.
func (a *Answer) reason(dst []byte) []byte {
	word, fired := "end_turn", "null"
	switch {
	case a.fired != "":
		word, fired = "stop_sequence", string(wire.Quote(a.fired))
	case a.finish == "length":
		word = "max_tokens"
	case a.finish == "content_filter":
		word = "refusal"
	case len(a.calls) > 0:
		word = "tool_use"
	}
	return append(dst, `"stop_reason":"`+word+`","stop_sequence":`+fired...)
}

// usage appends counts of tokens. What was cached is not part of the input. It is left out where nobody knows.
func (a *Answer) usage(dst []byte, u engine.Usage) []byte {
	cached := min(u.Cached, u.Prompt)
	written := min(u.Written, u.Prompt-cached)
	dst = strconv.AppendInt(append(dst, `{"input_tokens":`...), int64(u.Prompt-cached-written), 10)
	if a.cfg.Counts || u.Cached > 0 || u.Written > 0 {
		dst = strconv.AppendInt(append(dst, `,"cache_creation_input_tokens":`...), int64(written), 10)
		dst = strconv.AppendInt(append(dst, `,"cache_read_input_tokens":`...), int64(cached), 10)
	}
	dst = strconv.AppendInt(append(dst, `,"output_tokens":`...), int64(u.Completion), 10)
	return append(dst, '}')
}

// object appends the message, as it stands or at its end.
func (a *Answer) object(dst []byte, u engine.Usage, done bool) []byte {
	dst = append(dst, `{"id":`...)
	dst = append(dst, wire.Quote(a.cfg.ID)...)
	dst = append(dst, `,"type":"message","role":"assistant","model":`...)
	dst = append(dst, wire.Quote(a.cfg.Model)...)
	dst = append(dst, `,"content":[`...)
	if done {
		for i, p := range a.blocks {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = p.append(dst, true)
		}
	}
	dst = append(dst, `],`...)
	if done {
		dst = a.reason(dst)
	} else {
		dst = append(dst, `"stop_reason":null,"stop_sequence":null`...)
	}
	dst = append(dst, `,"usage":`...)
	return append(a.usage(dst, u), '}')
}

// append appends the block, as it begins or whole.
func (p *piece) append(dst []byte, whole bool) []byte {
	text := ""
	if whole {
		text = p.text.String()
	}
	switch p.kind {
	case "thinking":
		signature := ""
		if whole {
			signature = unsigned
		}
		dst = append(append(dst, `{"type":"thinking","thinking":`...), wire.Quote(text)...)
		dst = append(append(dst, `,"signature":`...), wire.Quote(signature)...)
	case "tool_use":
		dst = append(append(dst, `{"type":"tool_use","id":`...), wire.Quote(p.id)...)
		dst = append(append(dst, `,"name":`...), wire.Quote(p.name)...)
		dst = append(append(dst, `,"input":`...), input(text)...)
	default:
		dst = append(append(dst, `{"type":"text","text":`...), wire.Quote(text)...)
	}
	return append(dst, '}')
}

// input is what a model calls with: an object, whatever it wrote.
func input(text string) []byte {
	if trimmed := strings.TrimSpace(text); trimmed == "" {
		return []byte("{}")
	} else if trimmed[0] == '{' && json.Valid([]byte(trimmed)) {
		return []byte(trimmed)
	}
	return append(append([]byte(`{"text":`), wire.Quote(text)...), '}')
}
