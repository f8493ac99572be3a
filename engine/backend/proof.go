package backend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"onebit/engine"
	"onebit/engine/wire"
)

// Proof is what shows that a child can do what it says it is ready for: a server whose memory did not suffice may be
// healthy by its own account and fail each request.
type Proof int

// The proofs.
const (
	Token  Proof = iota // one token is generated
	Vector              // a text gets an embedding
	Score               // a text is ranked
	Word                // none: its word is taken
)

// probes are the requests, and what of the answer must be an array with something in it.
var probes = map[Proof]struct {
	kind   engine.Kind
	raw    string
	member string
	does   string
}{
	Token:  {engine.Completion, `{"prompt":"1","max_tokens":1,"temperature":0}`, "", "generate"},
	Vector: {engine.Embedding, `{"input":["1"]}`, "data", "make an embedding"},
	Score:  {engine.Rerank, `{"query":"1","documents":["1"]}`, "results", "rank a text"},
}

// ask asks for the proof. A child that does not know the route, or refuses the text, is taken at its word.
func (p Proof) ask(ctx context.Context, remote *Remote) error {
	probe, ok := probes[p]
	if !ok {
		return nil
	}
	req := &engine.Request{Kind: probe.kind, ID: "readiness", Raw: []byte(probe.raw)}
	_, err := remote.Generate(ctx, req, func(c engine.Chunk) error {
		if probe.member == "" {
			return nil
		}
		var answer map[string]json.RawMessage
		var list []json.RawMessage
		if json.Unmarshal(c.Raw, &answer) != nil || json.Unmarshal(answer[probe.member], &list) != nil || len(list) == 0 {
			return fmt.Errorf("%w: %.200q", wire.ErrMalformed, c.Raw)
		}
		return nil
	})
	if refused, ok := errors.AsType[*engine.StatusError](err); ok && (refused.Status < 500 || refused.Status == http.StatusNotImplemented) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("it says that it is healthy, but it cannot %s: %w", probe.does, err)
	}
	return nil
}
