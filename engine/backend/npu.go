package backend

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"onebit/engine"
	"onebit/engine/chat"
)

// ChatMLConfig describes a ChatML.
type ChatMLConfig struct {
	Backend   engine.Backend // continues raw prompts, as NPU.md says
	OpenThink bool           // the model's template opens the think block itself when thinking is on
}

// ChatML makes a backend that knows raw prompts alone answer chats: it renders the conversation and takes the text that
// comes back apart into thoughts and answer. NPU.md tells both sides. It implements engine.Backend.
type ChatML struct {
	cfg      ChatMLConfig
	splitter *chat.Template // knows the marks of thoughts
}

var _ engine.Backend = (*ChatML)(nil)

// thinker is a template of which nothing but the marks of its thoughts is used.
const thinker = "{% for m in messages %}{{ m.content }}{% endfor %}<think></think>"

// NewChatML returns a ChatML.
func NewChatML(cfg ChatMLConfig) (*ChatML, error) {
	if cfg.Backend == nil {
		return nil, errors.New("a chat needs a backend")
	}
	t, err := chat.New(thinker, "", "")
	if err != nil {
		return nil, fmt.Errorf("preparing the split of thoughts: %w", err)
	}
	return &ChatML{cfg: cfg, splitter: t}, nil
}

// Name is the backend's.
func (c *ChatML) Name() string { return c.cfg.Backend.Name() }

// Slots are the backend's.
func (c *ChatML) Slots() int { return c.cfg.Backend.Slots() }

// State is the backend's.
func (c *ChatML) State() engine.State { return c.cfg.Backend.State() }

// Ready waits for the backend.
func (c *ChatML) Ready(ctx context.Context) error { return c.cfg.Backend.Ready(ctx) }

// Info is what the backend says about its model, if it does.
func (c *ChatML) Info() engine.Info {
	if b, ok := c.cfg.Backend.(interface{ Info() engine.Info }); ok {
		return b.Info()
	}
	return engine.Info{}
}

// Restarts is how often the backend was started again.
func (c *ChatML) Restarts() int {
	if b, ok := c.cfg.Backend.(interface{ Restarts() int }); ok {
		return b.Restarts()
	}
	return 0
}

// Relay passes a request of another route on; see Remote.Relay.
func (c *ChatML) Relay(in *http.Request) (*http.Response, error) {
	if b, ok := c.cfg.Backend.(interface {
		Relay(*http.Request) (*http.Response, error)
	}); ok {
		return b.Relay(in)
	}
	return nil, errors.ErrUnsupported
}

// Generate runs a chat, or a raw completion as it is; see engine.Backend. What the model does not take is an
// *engine.InvalidError.
func (c *ChatML) Generate(ctx context.Context, req *engine.Request, emit func(engine.Chunk) error) (engine.Usage, error) {
	if req.Kind == engine.Completion {
		return c.cfg.Backend.Generate(ctx, req, emit)
	}
	if req.Kind != engine.Chat {
		return engine.Usage{}, fmt.Errorf("a %s request: %w", req.Kind, errors.ErrUnsupported)
	}
	asked, err := readChat(req.Raw)
	if err != nil {
		return engine.Usage{}, err
	}
	prompt, err := asked.prompt(c.cfg.OpenThink)
	if err != nil {
		return engine.Usage{}, err
	}
	raw, err := asked.completion(prompt, req.Stream)
	if err != nil {
		return engine.Usage{}, err
	}
	a := &chatAnswer{
		emit: emit, req: req, id: "chatcmpl-" + rand.Text(), created: time.Now().Unix(),
		split: c.splitter.Splitter(chat.SplitOptions{Prompt: prompt, Reasoning: asked.think && asked.Format != "none"}),
	}
	inner := &engine.Request{Kind: engine.Completion, ID: req.ID, Model: req.Model, Stream: req.Stream, IncludeUsage: req.Stream, Raw: raw}
	take := a.whole
	if req.Stream {
		take = a.event
	}
	usage, err := c.cfg.Backend.Generate(ctx, inner, take)
	if err == nil && req.Stream {
		err = a.end()
	}
	return usage, err
}

// piece is what a raw completion brings: an event, or the whole.
type piece struct {
	Choices []struct {
		Text   string `json:"text"`
		Finish string `json:"finish_reason"`
	} `json:"choices"`
	Usage   json.RawMessage `json:"usage"`
	Timings json.RawMessage `json:"timings"`
}

// chatAnswer turns the pieces of one completion into those of a chat.
type chatAnswer struct {
	emit    func(engine.Chunk) error
	req     *engine.Request
	id      string
	created int64
	split   *chat.Splitter

	begun   bool
	finish  string
	usage   json.RawMessage
	timings json.RawMessage
}

// message is a delta or a message of a chat answer.
type message struct {
	Role      string  `json:"role,omitempty"`
	Content   *string `json:"content,omitempty"`
	Reasoning string  `json:"reasoning_content,omitempty"`
}

type choice struct {
	Index   int      `json:"index"`
	Delta   *message `json:"delta,omitempty"`
	Message *message `json:"message,omitempty"`
	Finish  *string  `json:"finish_reason"`
}

type chatObject struct {
	ID      string          `json:"id"`
	Object  string          `json:"object"`
	Created int64           `json:"created"`
	Model   string          `json:"model"`
	Choices []choice        `json:"choices"`
	Usage   json.RawMessage `json:"usage,omitempty"`
	Timings json.RawMessage `json:"timings,omitempty"`
}

// send emits one object.
func (a *chatAnswer) send(o chatObject) error {
	o.ID, o.Created, o.Model, o.Object = a.id, a.created, a.req.Model, "chat.completion"
	if a.req.Stream {
		o.Object = "chat.completion.chunk"
	}
	raw, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return a.emit(engine.Chunk{Raw: raw})
}

// delta emits one step of a streamed answer. The first says whose it is.
func (a *chatAnswer) delta(m message, finish *string) error {
	if !a.begun {
		a.begun, m.Role = true, "assistant"
	}
	return a.send(chatObject{Choices: []choice{{Delta: &m, Finish: finish}}})
}

func (a *chatAnswer) deltas(all []chat.Delta) error {
	for _, d := range all {
		m := message{Reasoning: d.Reasoning}
		if d.Content != "" {
			m.Content = &d.Content
		}
		if err := a.delta(m, nil); err != nil {
			return err
		}
	}
	return nil
}

// read decodes a piece and keeps what comes at the end.
func (a *chatAnswer) read(c engine.Chunk) (text string, err error) {
	var p piece
	if err := json.Unmarshal(c.Raw, &p); err != nil {
		return "", fmt.Errorf("reading what the backend generated: %w", err)
	}
	for _, choice := range p.Choices {
		text += choice.Text
		if choice.Finish != "" {
			a.finish = choice.Finish
		}
	}
	if p.Usage != nil {
		a.usage = append(a.usage[:0], p.Usage...) // the chunk's bytes are not ours to keep
	}
	if p.Timings != nil {
		a.timings = append(a.timings[:0], p.Timings...)
	}
	return text, nil
}

// event takes one event of a streamed completion.
func (a *chatAnswer) event(c engine.Chunk) error {
	text, err := a.read(c)
	if err != nil {
		return err
	}
	return a.deltas(a.split.Push(text))
}

// end emits what was held back, why the answer ended, and what it took if that was asked for.
func (a *chatAnswer) end() error {
	if err := a.deltas(a.split.Close()); err != nil {
		return err
	}
	finish := a.reason()
	if err := a.delta(message{}, &finish); err != nil {
		return err
	}
	if !a.req.IncludeUsage {
		return nil
	}
	return a.send(chatObject{Choices: []choice{}, Usage: a.usage, Timings: a.timings})
}

// reason is why the answer ended.
func (a *chatAnswer) reason() string {
	if a.finish == "length" {
		return "length"
	}
	return "stop"
}

// whole takes an unstreamed completion.
func (a *chatAnswer) whole(c engine.Chunk) error {
	text, err := a.read(c)
	if err != nil {
		return err
	}
	var all chat.Answer
	all.Add(a.split.Push(text)...)
	all.Add(a.split.Close()...)
	finish := a.reason()
	m := message{Role: "assistant", Content: &all.Content, Reasoning: all.Reasoning}
	return a.send(chatObject{Choices: []choice{{Message: &m, Finish: &finish}}, Usage: a.usage, Timings: a.timings})
}
