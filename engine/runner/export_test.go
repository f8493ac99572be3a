package runner

import (
	"context"
	"log/slog"

	"onebit/engine/batch"
	"onebit/engine/wire"
)

// Reader reads requests without answering them.
type Reader struct{ s *service }

func NewReader(parts *Parts) Reader {
	return Reader{newService(Config{Alias: "fake"}, parts)}
}

// Chat returns the prompts of a chat request, or the status and the body that
// refuse it.
func (r Reader) Chat(ctx context.Context, body []byte) (prompts [][]int32, status int, refusal []byte) {
	c, p := r.s.readChat(ctx, body)
	if p == nil {
		_, p = r.s.newJob(c.set, [][]int32{c.ids})
	}
	if p != nil {
		return nil, p.status, encode(p.object())
	}
	encode(c.set.view(false))
	return [][]int32{c.ids}, 200, nil
}

// Completion does the same for a text completion.
func (r Reader) Completion(body []byte) (prompts [][]int32, status int, refusal []byte) {
	set, prompts, p := r.s.readCompletion(body)
	if p == nil {
		_, p = r.s.newJob(set, prompts)
	}
	if p != nil {
		return nil, p.status, encode(p.object())
	}
	encode(set.view(false))
	return prompts, 200, nil
}

// Tune tunes an engine as loading does.
func Tune(ctx context.Context, e Tunable, dir string, threads int, key string) error {
	return tune(ctx, e, Config{CacheDir: dir, Threads: threads, Log: slog.New(slog.DiscardHandler)}, key)
}

// Tunable is an engine whose workers can be counted out anew.
type Tunable = tunable

// Needs is what of a model decides how large contexts may be.
type Needs struct {
	Trained           int
	PerToken, Weights int64
}

// UnknownMemory is the memory of a system that does not say.
const UnknownMemory = unknownMemory

// Capacity chooses slots and context.
func Capacity(context, parallel int, n Needs, memory int64) (slots, tokens int) {
	return capacity(Config{Context: context, Parallel: parallel}, needs{n.Trained, n.PerToken, n.Weights}, memory)
}

// Asking is how decisions are made.
type Asking = asking

// Asked is how they are made unless a test says otherwise.
var Asked = asked

// Ask makes a running server decide in another way. No request may be under way.
func (r *Runner) Ask(how Asking) { r.service.Load().asking = how }

// Decide returns the prompt of a request of decisions and the branches of its questions, or the status that refuses it.
func (r Reader) Decide(ctx context.Context, d *wire.Decisions, how Asking) (prompt []int32, branches []batch.Branch, status int) {
	h, p := r.s.hear(ctx, d, how)
	if p != nil {
		return nil, nil, p.status
	}
	return h.prompt, h.branches, 200
}

// Softmax returns probabilities in proportion to exp(x/t).
func Softmax(x []float64, t float64) []float64 { return softmax(x, t) }

// Load opens a model with the built-in engine.
var Load = load
