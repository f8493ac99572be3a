package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"onebit/engine"
)

// countLimit is how long counting a prompt's tokens may take.
const countLimit = 30 * time.Second

// length is what is known of a conversation's first prompt.
type length struct {
	tokens int
	long   bool
}

// byLength sends a conversation to the second server when its first prompt was long. Later turns go where the first
// one went.
func (g *Gateway) byLength(ctx context.Context, w *reply, req *engine.Request) (*lease, error) {
	who := identity(req)
	first, ok := g.lengths.get(who)
	if !ok {
		if g.first.Backend.State() == engine.Loading {
			return nil, g.ready(ctx, g.first) // it says that the model is loading
		}
		tokens := g.tokens(ctx, req)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		first = g.lengths.settle(who, length{tokens: tokens, long: tokens >= g.cfg.LongFrom})
	}
	word, wanted := "short", g.first
	if first.long {
		word, wanted = "long", g.second
	}
	l := g.places.reserve(func() *server { return g.standing(wanted) })
	w.Header().Set("X-1bit-Route", fmt.Sprintf("%s %d %s", word, first.tokens, l.server.Device))
	return l, nil
}

// tokens counts a prompt's tokens through the first backend, which knows the model's template and vocabulary. When that
// does not work, a token counts as four bytes.
func (g *Gateway) tokens(ctx context.Context, req *engine.Request) int {
	limit := &engine.TimeoutError{Timer: "counting a prompt's tokens", Limit: countLimit}
	ctx, cancel := context.WithTimeoutCause(ctx, limit.Limit, limit)
	defer cancel()
	prompt, known, err := prompt(ctx, g.first, req)
	if err == nil && known > 0 {
		return known
	}
	if err == nil {
		var counted struct {
			Tokens []json.RawMessage `json:"tokens"`
		}
		err = ask(ctx, g.first, "/tokenize", map[string]string{"content": prompt}, &counted)
		if err == nil && counted.Tokens == nil {
			err = errors.New("it does not say the tokens")
		}
		if err == nil {
			return len(counted.Tokens)
		}
	}
	g.cfg.Log.Warn("counting a prompt's tokens by its bytes", "why", err)
	return len(plainText(req)) / 4
}

// prompt returns the text that a request's prompt becomes, or the number of its tokens when it consists of these.
func prompt(ctx context.Context, s *server, req *engine.Request) (text string, tokens int, err error) {
	if req.Kind == engine.Chat {
		var applied struct {
			Prompt *string `json:"prompt"`
		}
		if err := ask(ctx, s, "/apply-template", json.RawMessage(req.Raw), &applied); err != nil {
			return "", 0, err
		}
		if applied.Prompt == nil {
			return "", 0, errors.New("it does not say the prompt")
		}
		return *applied.Prompt, 0, nil
	}
	var body struct {
		Prompt json.RawMessage `json:"prompt"`
	}
	if err := json.Unmarshal(req.Raw, &body); err != nil {
		return "", 0, err
	}
	var ids []int
	if json.Unmarshal(body.Prompt, &ids) == nil {
		return "", len(ids), nil
	}
	return plainText(req), 0, nil
}

// ask posts a JSON body to one of a server's own routes and decodes its answer.
func ask(ctx context.Context, s *server, path string, body, answer any) error {
	b, ok := s.Backend.(relayer)
	if !ok {
		return errors.ErrUnsupported
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	in, err := http.NewRequestWithContext(ctx, http.MethodPost, path, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	in.Header.Set("Content-Type", "application/json")
	res, err := b.Relay(in)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return refused(res)
	}
	return json.NewDecoder(io.LimitReader(res.Body, 256<<20)).Decode(answer)
}

// plainText is what a request says, without its form.
func plainText(req *engine.Request) string {
	var body struct {
		Messages []struct {
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		Prompt json.RawMessage `json:"prompt"`
	}
	if json.Unmarshal(req.Raw, &body) != nil {
		return string(req.Raw)
	}
	all := []json.RawMessage{body.Prompt}
	for _, m := range body.Messages {
		all = append(all, m.Content)
	}
	var text strings.Builder
	for _, raw := range all {
		texts(&text, raw)
	}
	return text.String()
}

// texts appends the texts of a string, of an array of strings, or of the parts of a message.
func texts(to *strings.Builder, raw json.RawMessage) {
	var one string
	var list []json.RawMessage
	var part struct {
		Text string `json:"text"`
	}
	switch {
	case json.Unmarshal(raw, &one) == nil:
		to.WriteString(one)
	case json.Unmarshal(raw, &list) == nil:
		for _, r := range list {
			texts(to, r)
		}
	case json.Unmarshal(raw, &part) == nil:
		to.WriteString(part.Text)
	}
}
