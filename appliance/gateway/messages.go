package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"onebit/engine"
	"onebit/engine/wire"
	"onebit/engine/wire/messages"
)

// anthropic reports whether a request speaks Anthropic's dialect.
func anthropic(r *http.Request) bool {
	path := canonical(r.URL.Path)
	return r.Header.Get("Anthropic-Version") != "" || path == "/messages" || strings.HasPrefix(path, "/messages/")
}

// messaging is one request of Anthropic's Messages on its way.
type messaging struct {
	q     *messages.Request
	chat  *engine.Request // what the backend is asked
	body  []byte          // what the client sent
	found *Found
}

// message answers a request of Anthropic's Messages, over a chat: so every backend has it.
func (g *Gateway) message(w *reply, r *http.Request) error {
	ctx, cancel := g.deadline(r.Context())
	defer cancel()
	p, err := g.readMessage(w, r, messages.Read)
	if err != nil {
		return err
	}
	w.streamed, w.operation = p.q.Stream, operation(engine.Chat)
	if g.cfg.Fleet == nil {
		return g.onModel(ctx, w, r, p.chat, func(ctx context.Context, l *lease, _ *engine.Request) error { return g.answerMessage(ctx, w, l, p) })
	}
	want, err := g.wanted(ctx, r.Header, nil)
	if err != nil {
		return err
	}
	c, err := g.choose(ctx, w, r, asked{req: g.anyModel(ctx, p.chat), body: p.body, api: "messages", named: p.q.Model, want: want})
	if err != nil {
		return err
	}
	return g.onChosen(ctx, w, "/messages", p.body, c, func(ctx context.Context, l *lease, req *engine.Request, found *Found) error {
		informed, err := g.inform(ctx, w, l.server, req, found)
		if err != nil {
			l.release()
			return err
		}
		p.chat, p.found = informed, found
		return g.answerMessage(ctx, w, l, p)
	})
}

// readMessage makes the chat of a request.
func (g *Gateway) readMessage(w *reply, r *http.Request, read func([]byte) (*messages.Request, error)) (*messaging, error) {
	body, err := g.body(w, r)
	if err != nil {
		return nil, err
	}
	p := &messaging{body: body}
	if p.q, err = read(body); err != nil {
		return nil, err
	}
	chat, err := p.q.Chat()
	if err != nil {
		return nil, err
	}
	if p.chat, err = wire.ParseChat(chat); err != nil {
		return nil, err
	}
	if p.chat.Raw, err = g.media(p.chat.Raw); err != nil {
		return nil, err
	}
	if p.chat.Raw, err = wire.Strict(engine.Chat, p.chat.Raw); err != nil {
		return nil, err
	}
	p.chat.ID = w.id
	w.leftOut(p.q.Ignored)
	if g.cfg.Fleet == nil && claude(p.chat.Model) {
		p.chat = unnamed(p.chat)
	}
	return p, nil
}

// claude reports whether a model's name is one of Anthropic's. Its clients have such names built in, for the model that they
// work with and for a smaller one beside it.
func claude(name string) bool { return strings.HasPrefix(name, "claude-") }

// unnamed is a request that leaves the model to us.
func unnamed(req *engine.Request) *engine.Request {
	out := *req
	out.Model, out.Raw = "", wire.AppendWithoutModel(nil, req.Raw)
	return &out
}

// anyModel leaves the model of a request to the box when it names one of Anthropic's that does not exist here.
func (g *Gateway) anyModel(ctx context.Context, req *engine.Request) *engine.Request {
	if !claude(req.Model) {
		return req
	}
	_, err := g.resolve(ctx, engine.Chat, req.Model)
	if _, none := errors.AsType[*NoModelError](err); !none {
		return req
	}
	return unnamed(req)
}

// answerMessage runs the chat where it has a place, and makes a message of it.
func (g *Gateway) answerMessage(ctx context.Context, w *reply, l *lease, p *messaging) error {
	defer l.release()
	w.model, w.device = l.server.Name, l.server.Device
	chat := p.chat
	knows := hasExtras(l.server.Device)
	if knows && p.q.Stream { // how long the prompt is, before the answer
		chat = asking(chat, "return_progress")
	}
	if knows && len(p.q.Stops) > 0 { // how much was made, where we end the answer
		chat = asking(chat, "timings_per_token")
	}
	cfg := messages.Config{ID: wire.ID("msg"), Model: l.server.Name, Counts: knows}
	var s *stream
	more := false
	if p.q.Stream {
		s = newStream(w, l.server.quoted, g.cfg.Limits)
		s.relayed = &g.cfg.Metrics.Events
		defer s.stop()
		cfg.Emit = func(name string, event []byte) error { return s.named(name, event, more) }
	}
	a := messages.New(p.q, cfg)
	if s != nil {
		s.open(a.Opening())
	}
	count := &counting{}
	chat, emit := count.over(chat, l.server.Device, func(c engine.Chunk) error {
		more = c.More
		if s == nil {
			w.reused(c.Reuse, false)
		} else {
			s.reused(c.Reuse)
		}
		return a.Chunk(c.Raw)
	})
	usage, err := g.attempt(ctx, l, chat, emit)
	more = false
	w.usage = count.took(usage, chat)
	if err == nil || errors.Is(err, messages.ErrStopped) {
		whole, err := a.Complete(w.usage)
		if err != nil || s != nil {
			return err
		}
		return writeWhole(w, whole)
	}
	if s != nil && !gone(ctx, err) {
		s.fail(g.problem(w, err))
	}
	return err
}

// asking is a request with a wish of ours to a server of llama-server's kind.
func asking(req *engine.Request, wish string) *engine.Request {
	out := *req
	out.Raw = wire.AppendMember(nil, req.Raw, wish, []byte("true"))
	return &out
}

// writeWhole answers with an object.
func writeWhole(w *reply, object []byte) error {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(object)))
	_, err := w.Write(object)
	return err
}

// countMessage answers how many tokens the prompt of a request has, made by the model's own template and tokenizer.
func (g *Gateway) countMessage(w *reply, r *http.Request) error {
	ctx, cancel := g.deadline(r.Context())
	defer cancel()
	p, err := g.readMessage(w, r, messages.ReadCount)
	if err != nil {
		return err
	}
	if g.cfg.Fleet == nil {
		if err := g.known(g.first, p.chat.Model); err != nil {
			return err
		}
		w.model, w.device = g.first.Name, g.first.Device
		return g.countTokens(ctx, w, g.first, p)
	}
	name, err := g.resolve(ctx, engine.Chat, g.anyModel(ctx, p.chat).Model)
	if err != nil {
		return err
	}
	return g.use(ctx, w, Use{Endpoint: "/messages/count_tokens", Model: name}, p.body, func(ctx context.Context) error {
		l, err := g.fromFleet(ctx, w, Wish{Model: name, Aside: true})
		if err != nil {
			return err
		}
		defer l.release()
		w.model, w.device = l.server.Name, l.server.Device
		return g.countTokens(ctx, w, l.server, p)
	})
}

// countTokens asks a server.
func (g *Gateway) countTokens(ctx context.Context, w *reply, s *server, p *messaging) error {
	if !hasExtras(s.Device) {
		return notOn(w.path, s.Device)
	}
	if err := g.ready(ctx, s); err != nil {
		return err
	}
	req := g.steady(s.outgoing(p.chat))
	n, err := countChat(ctx, s, req)
	if refused, ok := errors.AsType[*engine.StatusError](err); ok && unknownRoute(refused.Status) || errors.Is(err, errors.ErrUnsupported) {
		n, err = countRendered(ctx, s, req)
	}
	if err != nil {
		return err
	}
	return write(w, http.StatusOK, map[string]int{"input_tokens": n})
}

// countChat asks a server that counts chats as it answers them.
func countChat(ctx context.Context, s *server, req *engine.Request) (int, error) {
	var said struct {
		Tokens *int `json:"input_tokens"`
	}
	if err := ask(ctx, s, "/v1/chat/completions/input_tokens", json.RawMessage(req.Raw), &said); err != nil {
		return 0, err
	}
	if said.Tokens == nil {
		return 0, wire.ErrMalformed
	}
	return *said.Tokens, nil
}

// countRendered renders a chat and counts the tokens of that, where a server has no route of its own for it.
func countRendered(ctx context.Context, s *server, req *engine.Request) (int, error) {
	text, _, err := prompt(ctx, s, req)
	if err != nil {
		return 0, err
	}
	var said struct {
		Tokens []json.RawMessage `json:"tokens"`
	}
	if err := ask(ctx, s, "/tokenize", map[string]any{"content": text, "add_special": true, "parse_special": true}, &said); err != nil {
		return 0, err
	}
	if said.Tokens == nil {
		return 0, wire.ErrMalformed
	}
	return len(said.Tokens), nil
}

// anthropicModel is one entry of the list of models, as Anthropic's clients read it.
type anthropicModel struct {
	Type      string `json:"type"`
	ID        string `json:"id"`
	Name      string `json:"display_name"`
	Created   string `json:"created_at"`
	Lifecycle string `json:"lifecycle"`
	Context   int    `json:"max_input_tokens,omitempty"`
}

func anthropicObject(o modelObject) anthropicModel {
	return anthropicModel{"model", o.ID, o.ID, time.Unix(o.Created, 0).UTC().Format(time.RFC3339), "active", o.Context}
}

// anthropicModels is the list of models, all on one page.
func anthropicModels(all []modelObject) any {
	type page struct {
		Data  []anthropicModel `json:"data"`
		More  bool             `json:"has_more"`
		First *string          `json:"first_id"`
		Last  *string          `json:"last_id"`
	}
	p := page{Data: []anthropicModel{}}
	for _, o := range all {
		p.Data = append(p.Data, anthropicObject(o))
	}
	if n := len(p.Data); n > 0 {
		p.First, p.Last = &p.Data[0].ID, &p.Data[n-1].ID
	}
	return p
}

// writeModel answers with one model, in the words of the client's API.
func writeModel(w *reply, o modelObject) error {
	if w.anthropic {
		return write(w, http.StatusOK, anthropicObject(o))
	}
	return write(w, http.StatusOK, o)
}
