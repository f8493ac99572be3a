package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"onebit/appliance/cite"
	"onebit/engine"
	"onebit/engine/wire"
	"onebit/engine/wire/responses"
)

// Responses keeps what was answered, so that later requests go on from it. What is of somebody else does not exist: such
// errors say so to the client.
type Responses interface {
	// Keeps reports whether anything may be kept for whoever the context is of.
	Keeps(ctx context.Context) bool
	Keep(ctx context.Context, id string, body []byte) error
	Kept(ctx context.Context, id string) ([]byte, error)
	Forget(ctx context.Context, id string) error
}

// maxResponse is the largest response that is kept, with all that it goes on from, in bytes.
const maxResponse = 8 << 20

// kept is what Responses keeps.
type kept struct {
	Response json.RawMessage   `json:"response"`
	Input    []json.RawMessage `json:"input"` // with what it goes on from
	Output   []json.RawMessage `json:"output"`
}

// responding is one request of OpenAI's Responses on its way.
type responding struct {
	q      *responses.Request
	chat   *engine.Request   // what the backend is asked
	before []json.RawMessage // items that it goes on from
	want   *Passages
	found  *Found
	stored bool
}

// respond answers a request of OpenAI's Responses, over a chat: so every backend has it, and the box's own tools work.
// One model without a fleet is relayed to, with all that its server has.
func (g *Gateway) respond(w *reply, r *http.Request) error {
	if g.cfg.Fleet == nil {
		return g.generate(engine.Response, wire.ParseResponse)(w, r)
	}
	ctx, cancel := g.deadline(r.Context())
	defer cancel()
	body, err := g.body(w, r)
	if err != nil {
		return err
	}
	p, err := g.readResponse(ctx, w, r, body)
	if err != nil {
		return err
	}
	c, err := g.choose(ctx, w, r, asked{req: p.chat, body: body, api: engine.Response.String(), want: p.want})
	if err != nil {
		return err
	}
	return g.onChosen(ctx, w, "/responses", body, c, func(ctx context.Context, l *lease, req *engine.Request, found *Found) error {
		p.chat, p.found = req, found
		return g.answerResponse(ctx, w, l, p)
	})
}

// readResponse makes the chat of a request.
func (g *Gateway) readResponse(ctx context.Context, w *reply, r *http.Request, body []byte) (*responding, error) {
	if _, err := wire.ParseResponse(body); err != nil {
		return nil, err
	}
	raw, err := g.media(body)
	if err != nil {
		return nil, err
	}
	if _, err := wire.Strict(engine.Response, raw); err != nil { // for what is there twice, or out of range
		return nil, err
	}
	p := &responding{}
	if p.q, err = responses.Read(raw); err != nil {
		return nil, err
	}
	if p.q.Previous != "" {
		k, err := g.kept(ctx, p.q.Previous, "previous_response_id")
		if err != nil {
			return nil, err
		}
		p.before = append(k.Input, k.Output...)
	}
	chat, err := p.q.Chat(p.before)
	if err != nil {
		return nil, err
	}
	if p.chat, err = wire.ParseChat(chat); err != nil {
		return nil, err
	}
	if p.chat.Raw, err = wire.Strict(engine.Chat, p.chat.Raw); err != nil {
		return nil, err
	}
	p.chat.ID, w.streamed, w.operation = w.id, p.q.Stream, operation(engine.Chat)
	w.leftOut(p.q.Ignored)
	if p.want, err = g.wanted(ctx, r.Header, nil); err != nil {
		return nil, err
	}
	if s := p.q.Search; s != nil {
		if g.cfg.Documents == nil {
			return nil, &engine.InvalidError{Param: "tools", Code: "unsupported_parameter", Message: "there are no documents here to search"}
		}
		p.want = &Passages{Collections: s.Collections, Most: s.Most, Filters: s.Filters, Threshold: s.Threshold, Plain: s.Ranker == "none"}
	}
	p.stored = (p.q.Store == nil || *p.q.Store) && g.cfg.Responses != nil && g.cfg.Responses.Keeps(ctx)
	return p, nil
}

// marker finds citations for a response.
type marker struct{ scan *cite.Scan }

func (m marker) Write(piece string) []responses.Annotation { return notes(m.scan.Write(piece)) }
func (m marker) End() []responses.Annotation               { return notes(m.scan.End()) }

func notes(all []cite.Citation) []responses.Annotation {
	out := make([]responses.Annotation, len(all))
	for i, c := range all {
		out[i] = c
	}
	return out
}

// answerResponse runs the chat where it has a place, and makes a response of it.
func (g *Gateway) answerResponse(ctx context.Context, w *reply, l *lease, p *responding) error {
	defer l.release()
	w.model, w.device = l.server.Name, l.server.Device
	chat, err := g.inform(ctx, w, l.server, p.chat, p.found)
	if err != nil {
		return err
	}
	cfg := responses.Config{ID: wire.ID("resp"), Model: l.server.Name, Stored: p.stored, Created: time.Now()}
	if p.q.Search != nil {
		cfg.Queries, cfg.Found = []string{p.found.Query}, shownFound(p.found)
	}
	if w.scan != nil {
		cfg.Marker = marker{w.scan}
	}
	var s *stream
	if p.q.Stream {
		s = newStream(w, l.server.quoted, g.cfg.Limits)
		s.response, s.relayed = true, &g.cfg.Metrics.Events
		defer s.stop()
		cfg.Emit = func(event []byte) error { return s.emit(engine.Chunk{Raw: event}) }
	}
	if p.stored {
		cfg.Keep = func(object []byte, output []json.RawMessage) error {
			return g.keep(ctx, w, cfg.ID, kept{object, append(p.before, p.q.Items...), output})
		}
	}
	a := responses.New(p.q, cfg)
	count := &counting{}
	chat, emit := count.over(chat, l.server.Device, func(c engine.Chunk) error {
		if s == nil {
			w.reused(c.Reuse, false)
		} else {
			s.reused(c.Reuse)
		}
		return a.Chunk(c.Raw)
	})
	usage, err := g.attempt(ctx, l, chat, emit)
	w.usage = count.took(usage, chat)
	if err == nil {
		return g.completed(w, s, a)
	}
	if s == nil || gone(ctx, err) {
		return err
	}
	if s.halt() {
		e := g.problem(w, err)
		a.Fail(e.Code, e.Message, w.usage)
		_ = s.done() // the error itself is what the log gets
	}
	return err
}

// completed ends a response.
func (g *Gateway) completed(w *reply, s *stream, a *responses.Answer) error {
	object, err := a.Complete(w.usage)
	if err != nil {
		return err
	}
	if s != nil {
		return s.done()
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(object)))
	_, err = w.Write(object)
	return err
}

func shownFound(f *Found) []responses.Found {
	out := []responses.Found{}
	for _, p := range f.Passages {
		attributes := p.Attributes
		if attributes == nil {
			attributes = map[string]any{}
		}
		out = append(out, responses.Found{File: p.File, Name: p.Name, Score: p.Score, Text: p.Text, Attributes: attributes})
	}
	return out
}

// keep stores a response. That it cannot be is no reason to withhold the answer.
func (g *Gateway) keep(ctx context.Context, w *reply, id string, k kept) error {
	body, err := json.Marshal(k)
	if err == nil && len(body) > maxResponse {
		err = fmt.Errorf("it is larger than %d bytes", maxResponse)
	}
	if err == nil {
		err = g.cfg.Responses.Keep(context.WithoutCancel(ctx), id, body)
	}
	if err != nil {
		g.cfg.Log.Warn("a response is not kept", "id", w.own, "error", err)
		return err
	}
	w.response = id
	return nil
}

// kept reads a response of whoever the context is of.
func (g *Gateway) kept(ctx context.Context, id, param string) (k kept, err error) {
	if g.cfg.Responses == nil {
		return k, noResponse(param, id)
	}
	body, err := g.cfg.Responses.Kept(ctx, id)
	if err != nil {
		return k, err
	}
	if body == nil {
		return k, noResponse(param, id)
	}
	return k, json.Unmarshal(body, &k)
}

func noResponse(param, id string) error {
	e := &wire.Error{Status: http.StatusNotFound, Type: wire.TypeInvalid, Param: param, Code: "response_not_found", NoRetry: true,
		Message: fmt.Sprintf("there is no response %q", short(id))}
	if param != "" {
		e.Code = "previous_response_not_found"
	}
	return e
}

// response shows a response that was kept, or its input, or forgets it.
func (g *Gateway) response(w *reply, r *http.Request) error {
	if g.cfg.Fleet == nil {
		return &wire.Error{Status: http.StatusNotFound, Type: "not_found_error", Code: "unknown_path", Message: "there is nothing at " + r.URL.Path}
	}
	id, input := strings.CutSuffix(strings.TrimPrefix(canonical(r.URL.Path), "/responses/"), "/input_items")
	return g.use(r.Context(), w, Use{Endpoint: "/responses"}, nil, func(ctx context.Context) error {
		k, err := g.kept(ctx, id, "")
		if err != nil {
			return err
		}
		switch {
		case r.Method == http.MethodDelete:
			if err := g.cfg.Responses.Forget(ctx, id); err != nil {
				return err
			}
			return write(w, http.StatusOK, map[string]any{"id": id, "object": "response", "deleted": true})
		case input:
			return inputItems(w, r, k.Input)
		}
		return write(w, http.StatusOK, k.Response)
	})
}

// inputItems is a page of a response's input.
func inputItems(w *reply, r *http.Request, items []json.RawMessage) error {
	q := r.URL.Query()
	limit := 20
	if s := q.Get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return &engine.InvalidError{Param: "limit", Code: "invalid_value", Message: "limit is a number from 1 to 100"}
		}
		limit = min(n, 100)
	}
	type page struct {
		Object  string            `json:"object"`
		Data    []json.RawMessage `json:"data"`
		FirstID *string           `json:"first_id"`
		LastID  *string           `json:"last_id"`
		HasMore bool              `json:"has_more"`
	}
	p := page{Object: "list", Data: []json.RawMessage{}}
	past := q.Get("after") == ""
	for i := range items {
		item := items[i]
		if q.Get("order") != "asc" {
			item = items[len(items)-1-i]
		}
		var named struct {
			ID string `json:"id"`
		}
		_ = json.Unmarshal(item, &named) // each was given one
		switch {
		case !past:
			past = named.ID == q.Get("after")
		case len(p.Data) == limit:
			p.HasMore = true
		default:
			if p.FirstID == nil {
				p.FirstID = &named.ID
			}
			p.LastID = &named.ID
			p.Data = append(p.Data, item)
		}
	}
	return write(w, http.StatusOK, p)
}
