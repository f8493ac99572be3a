package promptcache

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"onebit/engine"
	"onebit/engine/wire"
)

// maxBody bounds a relayed request, in bytes.
const maxBody = 256 << 20

// routes are those of a server that use a slot, and what they ask for.
var routes = map[string]engine.Kind{
	"/completion": engine.Completion, "/completions": engine.Completion, "/v1/completions": engine.Completion, "/infill": engine.Completion,
	"/chat/completions": engine.Chat, "/v1/chat/completions": engine.Chat, "/api/chat": engine.Chat, "/v1/messages": engine.Chat,
	"/responses": engine.Response, "/v1/responses": engine.Response,
	"/v1/decisions": engine.Decision, "/v1/systemone": engine.SystemOne,
}

// harmless are those that use none.
var harmless = map[string]bool{
	"/props": true, "/metrics": true, "/health": true, "/models": true, "/v1/models": true, "/tokenize": true, "/detokenize": true,
	"/apply-template": true, "/lora-adapters": true, "/v1/messages/count_tokens": true,
	"/v1/chat/completions/input_tokens": true,
}

// Relay sends a request of another route on, to a slot of our choice where it uses one. What reads or changes slots is
// not reached through it.
func (b *Backend) Relay(in *http.Request) (*http.Response, error) {
	if b.relay == nil {
		return nil, errors.ErrUnsupported
	}
	path := in.URL.Path
	if harmless[path] {
		return b.relay.Relay(in)
	}
	kind, ok := routes[path]
	if !ok || in.Method != http.MethodPost {
		return nil, errors.ErrUnsupported
	}
	if err := b.missing(kind); err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(io.LimitReader(in.Body, maxBody+1))
	if err != nil {
		return nil, err
	}
	if len(raw) > maxBody {
		return nil, &engine.StatusError{Status: http.StatusRequestEntityTooLarge, Body: []byte(`{"error":{"message":"the request is too large"}}`)}
	}
	if err := b.look(in.Context()); err != nil {
		return nil, err
	}
	req := &engine.Request{Kind: kind, Raw: raw, Scope: in.Header.Get(engine.ScopeHeader), Stream: true}
	r, err := b.begin(in.Context(), req)
	if err != nil {
		return nil, err
	}
	out := in.Clone(in.Context())
	body := r.body(raw)
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	res, err := b.relay.Relay(out)
	if err != nil {
		r.end(err)
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		res.Body = &relayed{ReadCloser: res.Body, r: r, failed: &engine.StatusError{Status: res.StatusCode}}
		return res, nil
	}
	res.Body = &relayed{ReadCloser: res.Body, r: r, ctx: in.Context()}
	return res, nil
}

// relayed is the body of an answer that gives its slot back at the end, with what it said of tokens.
type relayed struct {
	io.ReadCloser
	r      *run
	ctx    context.Context
	failed error
	ended  bool
	line   []byte // the last object, or its end
	over   bool   // it is too long to be read whole
}

// maxObject is how much of one object of an answer is looked at, in bytes.
const maxObject = 4 << 20

func (p *relayed) Read(b []byte) (int, error) {
	n, err := p.ReadCloser.Read(b)
	if n > 0 && p.failed == nil {
		p.r.begun = true
		p.take(b[:n])
	}
	switch {
	case err == io.EOF:
		p.look()
	case err != nil && p.failed == nil:
		p.failed = errors.Join(engine.ErrLost, err)
		if p.ctx.Err() != nil {
			p.failed = context.Cause(p.ctx)
		}
	}
	return n, err
}

// take collects lines: an answer in one piece is one, a stream has one for each event.
func (p *relayed) take(b []byte) {
	for {
		line, rest, found := bytes.Cut(b, []byte("\n"))
		if len(p.line)+len(line) > maxObject {
			p.line, p.over = p.line[:0], true
		} else if !p.over {
			p.line = append(p.line, line...)
		}
		if !found {
			return
		}
		p.look()
		b = rest
	}
}

// look reads what one line says of tokens.
func (p *relayed) look() {
	line := bytes.TrimSpace(bytes.TrimPrefix(p.line, []byte("data:")))
	if u, ok := wire.TimingsUsage(line); ok && !p.over {
		p.r.counted = u
	}
	p.line, p.over = p.line[:0], false
}

// Close gives the slot back.
func (p *relayed) Close() error {
	err := p.ReadCloser.Close()
	if p.ended {
		return err
	}
	p.ended = true
	if p.failed == nil && p.r.counted.Prompt == 0 && p.ctx.Err() != nil {
		p.failed = context.Cause(p.ctx)
	}
	p.r.end(p.failed)
	return err
}

// Routed reports whether a path is one that a Backend relays to a slot. It is for tests.
func Routed(path string) bool {
	_, ok := routes[strings.TrimSuffix(path, "/")]
	return ok
}
