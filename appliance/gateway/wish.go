package gateway

import (
	"net/http"
	"strconv"
	"time"

	"onebit/appliance/queue"
	"onebit/engine"
	"onebit/engine/wire"
)

// Wish is what a request wants of a Fleet's model.
type Wish struct {
	Model    string         // the resolved name
	Priority queue.Priority // as the client wrote it
	Prompt   int            // tokens, at a guess
	Answer   int            // tokens that the answer may have at most; 0 when that is not known
	Again    bool           // it comes again, after a refusal perhaps
	Aside    bool           // it needs the model in memory, but none of its slots
}

// Hold is a model that was acquired, until Release.
type Hold struct {
	Model
	Release  func(engine.Usage) // gives it back, with what was used of it; no tokens at all when that is not known
	Priority queue.Priority     // that the request has: no higher than whoever asks may have it
	Waited   time.Duration      // in line
	Position int                // in line when it came, 1 for the first; 0 when it did not wait
	Loaded   bool               // it was not in memory when the request came
}

// wish is what a request wants of a model, but for its priority.
func wish(name string, req *engine.Request) Wish {
	w := Wish{Model: name, Prompt: wire.GuessTokens(req.Raw)}
	switch req.Kind {
	case engine.Embedding, engine.Rerank, engine.Decision, engine.SystemOne:
		w.Answer = 1
	default:
		w.Answer = wire.MostTokens(req.Raw)
	}
	return w
}

// priorityHeader is by which a client says how urgent a request is, and by which the answer says how urgent it was.
const priorityHeader = "X-1bit-Priority"

// retryHeader is by which the SDKs of OpenAI and Anthropic say how often they have tried a request before.
const retryHeader = "X-Stainless-Retry-Count"

// priority reads it.
func priority(h http.Header) (queue.Priority, error) {
	word := h.Get(priorityHeader)
	p, ok := queue.ParsePriority(word)
	if !ok && word != "" {
		return p, &engine.InvalidError{Param: priorityHeader, Code: "invalid_value", Message: "there is no priority " + strconv.Quote(short(word)) + "; use interactive, normal or background"}
	}
	return p, nil
}
