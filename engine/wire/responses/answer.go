package responses

import (
	"encoding/json"
	"strings"
	"time"

	"onebit/engine"
	"onebit/engine/wire"
)

// Annotation is something that is said about a place of the text, as JSON.
type Annotation = any

// Marker looks at an answer's text as it comes, and says what is to be annotated. What End returns stands at the end.
type Marker interface {
	Write(piece string) []Annotation
	End() []Annotation
}

// Found is one passage in the item of a search.
type Found struct {
	File       string         `json:"file_id"`
	Name       string         `json:"filename"`
	Score      float64        `json:"score"`
	Text       string         `json:"text"`
	Attributes map[string]any `json:"attributes"`
}

// Config is what an Answer is made with.
type Config struct {
	ID      string
	Model   string // as served
	Stored  bool
	Created time.Time
	Marker  Marker                   // nil for none
	Queries []string                 // of the search; nil for none
	Found   []Found                  // of the search
	Emit    func(event []byte) error // nil where only the whole is wanted
	// Keep stores the whole before the client learns that it is complete, so that it can go on from there at once. When
	// that fails the response says that it is not stored. Nil keeps nothing.
	Keep func(object []byte, output []json.RawMessage) error
}

// Answer is a response in the making.
type Answer struct {
	cfg  Config
	r    *Request
	err  error // of Emit
	seq  int
	done bool

	begun   bool
	output  []map[string]any // finished and open items
	text    *texts           // the open message
	thought *texts           // the open reasoning
	calls   map[int]*call
	order   []*call
	finish  string
	usage   engine.Usage
	failure map[string]any
}

// texts is an item that grows by text.
type texts struct {
	index int
	id    string
	text  strings.Builder
	notes []Annotation
}

// call is a function call that grows.
type call struct {
	index     int
	id        string
	call      string
	name      string
	arguments strings.Builder
}

// New begins an answer.
func New(r *Request, cfg Config) *Answer {
	return &Answer{cfg: cfg, r: r, calls: map[int]*call{}}
}

// emit sends an event.
func (a *Answer) emit(kind string, more map[string]any) {
	if a.err != nil || a.cfg.Emit == nil {
		return
	}
	more["type"], more["sequence_number"] = kind, a.seq
	a.seq++
	b, err := json.Marshal(more)
	if err == nil {
		err = a.cfg.Emit(b)
	}
	a.err = err
}

// begin says that there is a response, and what was searched for.
func (a *Answer) begin() {
	if a.begun {
		return
	}
	a.begun = true
	a.emit("response.created", map[string]any{"response": a.object("in_progress")})
	a.emit("response.in_progress", map[string]any{"response": a.object("in_progress")})
	if a.cfg.Queries == nil {
		return
	}
	item := map[string]any{"type": "file_search_call", "id": wire.ID("fs"), "status": "in_progress", "queries": a.cfg.Queries, "results": nil}
	at := map[string]any{"output_index": 0, "item_id": item["id"]}
	a.emit("response.output_item.added", map[string]any{"output_index": 0, "item": item})
	for _, state := range []string{"in_progress", "searching", "completed"} {
		a.emit("response.file_search_call."+state, map[string]any{"output_index": at["output_index"], "item_id": at["item_id"]})
	}
	item["status"] = "completed"
	if a.r.Search != nil && a.r.Search.Results {
		found := a.cfg.Found
		if found == nil {
			found = []Found{}
		}
		item["results"] = found
	}
	a.output = append(a.output, item)
	a.emit("response.output_item.done", map[string]any{"output_index": 0, "item": item})
}

// Chunk takes the next event of the chat. An error is one of Emit, or says that the event is none.
func (a *Answer) Chunk(raw []byte) error {
	var c wire.ChatEvent
	if err := json.Unmarshal(raw, &c); err != nil {
		return err
	}
	a.begin()
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue
		}
		d := choice.Delta
		a.think(d.Reasoning)
		a.say(d.Content)
		for _, t := range d.Calls {
			one := a.calls[t.Index]
			if one == nil {
				one = a.open(t.Index, t.ID, t.Function.Name)
			}
			a.argue(one, t.Function.Arguments)
		}
		if choice.Finish != "" {
			a.finish = choice.Finish
		}
	}
	return a.err
}

// add puts an item at the end of the output.
func (a *Answer) add(item map[string]any) int {
	a.output = append(a.output, item)
	a.emit("response.output_item.added", map[string]any{"output_index": len(a.output) - 1, "item": item})
	return len(a.output) - 1
}

// end puts the finished item in the place of the open one.
func (a *Answer) end(index int, item map[string]any) {
	a.output[index] = item
	a.emit("response.output_item.done", map[string]any{"output_index": index, "item": item})
}

func (a *Answer) think(piece string) {
	if piece == "" {
		return
	}
	if a.thought == nil {
		a.close()
		id := wire.ID("rs")
		a.thought = &texts{id: id}
		a.thought.index = a.add(map[string]any{"type": "reasoning", "id": id, "summary": []any{}, "content": []any{}, "status": "in_progress"})
	}
	a.thought.text.WriteString(piece)
	a.emit("response.reasoning_text.delta", map[string]any{"item_id": a.thought.id, "output_index": a.thought.index, "content_index": 0, "delta": piece})
}

func (a *Answer) say(piece string) {
	if piece == "" {
		return
	}
	if a.text == nil {
		a.close()
		a.openText()
	}
	t := a.text
	t.text.WriteString(piece)
	a.emit("response.output_text.delta", map[string]any{"item_id": t.id, "output_index": t.index, "content_index": 0, "delta": piece, "logprobs": []any{}})
	if a.cfg.Marker != nil {
		a.annotate(a.cfg.Marker.Write(piece))
	}
}

func (a *Answer) openText() {
	id := wire.ID("msg")
	a.text = &texts{id: id, notes: []Annotation{}}
	a.text.index = a.add(map[string]any{"type": "message", "id": id, "role": "assistant", "status": "in_progress", "content": []any{}})
	a.emit("response.content_part.added", map[string]any{"item_id": id, "output_index": a.text.index, "content_index": 0,
		"part": map[string]any{"type": "output_text", "text": "", "annotations": []any{}, "logprobs": []any{}}})
}

func (a *Answer) annotate(notes []Annotation) {
	for _, n := range notes {
		a.emit("response.output_text.annotation.added", map[string]any{"item_id": a.text.id, "output_index": a.text.index, "content_index": 0,
			"annotation_index": len(a.text.notes), "annotation": n})
		a.text.notes = append(a.text.notes, n)
	}
}

// close ends the items of text that are open.
func (a *Answer) close() {
	if t := a.thought; t != nil {
		a.thought = nil
		a.emit("response.reasoning_text.done", map[string]any{"item_id": t.id, "output_index": t.index, "content_index": 0, "text": t.text.String()})
		a.end(t.index, map[string]any{"type": "reasoning", "id": t.id, "summary": []any{}, "status": "completed",
			"content": []any{map[string]any{"type": "reasoning_text", "text": t.text.String()}}})
	}
	if t := a.text; t != nil {
		at := func(more map[string]any) map[string]any {
			more["item_id"], more["output_index"], more["content_index"] = t.id, t.index, 0
			return more
		}
		p := map[string]any{"type": "output_text", "text": t.text.String(), "annotations": t.notes, "logprobs": []any{}}
		a.emit("response.output_text.done", at(map[string]any{"text": t.text.String(), "logprobs": []any{}}))
		a.emit("response.content_part.done", at(map[string]any{"part": p}))
		a.text = nil
		a.end(t.index, map[string]any{"type": "message", "id": t.id, "role": "assistant", "status": a.status(), "content": []any{p}})
	}
}

// open begins a function call.
func (a *Answer) open(n int, id, name string) *call {
	a.close()
	if id == "" {
		id = wire.ID("call")
	}
	c := &call{id: wire.ID("fc"), call: id, name: name}
	a.calls[n] = c
	a.order = append(a.order, c)
	c.index = a.add(c.item("in_progress"))
	return c
}

func (c *call) item(status string) map[string]any {
	return map[string]any{"type": "function_call", "id": c.id, "call_id": c.call, "name": c.name, "arguments": c.arguments.String(), "status": status}
}

func (a *Answer) argue(c *call, piece string) {
	if piece == "" {
		return
	}
	c.arguments.WriteString(piece)
	a.emit("response.function_call_arguments.delta", map[string]any{"item_id": c.id, "output_index": c.index, "delta": piece})
}

// status is how the response ends, by what the chat said.
func (a *Answer) status() string {
	switch {
	case a.failure != nil || a.finish == "length" || a.finish == "content_filter":
		return "incomplete"
	}
	return "completed"
}

// settle ends all items.
func (a *Answer) settle() {
	if a.text != nil && a.cfg.Marker != nil {
		a.annotate(a.cfg.Marker.End())
	}
	a.close()
	for _, c := range a.order {
		a.emit("response.function_call_arguments.done", map[string]any{"item_id": c.id, "output_index": c.index, "arguments": c.arguments.String(), "name": c.name})
		a.end(c.index, c.item(a.status()))
	}
	a.order = nil
}

// Complete ends the response as the chat ended, and returns it.
func (a *Answer) Complete(u engine.Usage) ([]byte, error) {
	a.begin()
	if len(a.output) == 0 || len(a.output) == 1 && a.cfg.Queries != nil {
		a.openText() // nothing was said: that is a message too
	}
	a.settle()
	a.usage, a.done = u, true
	o := a.object(a.status())
	if err := a.keep(o); err != nil {
		o["store"] = false
	}
	a.emit("response."+a.status(), map[string]any{"response": o})
	if a.err != nil {
		return nil, a.err
	}
	return json.Marshal(o)
}

// Fail ends a response with what the client is told.
func (a *Answer) Fail(code, message string, u engine.Usage) {
	if a.done {
		return
	}
	a.begin()
	a.failure = map[string]any{"code": code, "message": message}
	a.settle()
	a.usage, a.done = u, true
	a.emit("response.failed", map[string]any{"response": a.object("failed")})
}

// keep stores the whole.
func (a *Answer) keep(object map[string]any) error {
	if a.cfg.Keep == nil {
		return nil
	}
	whole, err := json.Marshal(object)
	if err != nil {
		return err
	}
	var output []json.RawMessage
	for _, item := range a.output {
		b, err := json.Marshal(item)
		if err != nil {
			return err
		}
		output = append(output, b)
	}
	return a.cfg.Keep(whole, output)
}

// object is the response as it stands.
func (a *Answer) object(status string) map[string]any {
	output := append([]map[string]any{}, a.output...)
	o := map[string]any{
		"id": a.cfg.ID, "object": "response", "created_at": a.cfg.Created.Unix(), "status": status, "model": a.cfg.Model, "output": output,
		"error": nil, "incomplete_details": nil, "usage": nil, "store": a.cfg.Stored, "background": false, "truncation": "disabled",
	}
	if a.failure != nil {
		o["error"] = a.failure
	}
	if status == "incomplete" {
		reason := "max_output_tokens"
		if a.finish == "content_filter" {
			reason = a.finish
		}
		o["incomplete_details"] = map[string]any{"reason": reason}
	}
	if a.done {
		u := a.usage
		o["usage"] = map[string]any{
			"input_tokens": u.Prompt, "input_tokens_details": map[string]any{"cached_tokens": u.Cached, "cache_write_tokens": u.Written},
			"output_tokens": u.Completion, "output_tokens_details": map[string]any{"reasoning_tokens": u.Reasoning},
			"total_tokens": u.Prompt + u.Completion,
		}
	}
	for name, otherwise := range map[string]string{
		"instructions": "null", "max_output_tokens": "null", "metadata": "{}", "parallel_tool_calls": "true", "previous_response_id": "null",
		"reasoning": "null", "temperature": "null", "top_p": "null", "text": `{"format":{"type":"text"}}`, "tool_choice": `"auto"`, "tools": "[]", "user": "null",
	} {
		o[name] = json.RawMessage(otherwise)
		if v := a.r.raw[name]; wire.Present(v) {
			o[name] = v
		}
	}
	return o
}
