package batch

import (
	"errors"
	"slices"
	"time"

	"onebit/engine/model"
)

// slot answers one task at a time in its own session. Only the scheduler's
// goroutine touches it.
type slot struct {
	id       int
	session  Session // nil until first used
	tokens   []int32 // what the session holds
	promptAt int     // how many of tokens were the last task's prompt
	usedAt   int     // order of last use, 0 is never
	restored bool    // what the session holds came from a file, and no task has used it yet

	held *operation // nil when nobody works on the session from outside

	task     *Task    // nil when idle
	pending  []int32  // tokens to be evaluated next
	last     [1]int32 // what pending holds while tokens are generated
	sampler  *model.Sampler
	scores   *scoring // of a task with branches, once its prompt is in the session
	out      output
	started  time.Time
	prompted time.Time // when the first token came
	stats    Timings
}

// idle reports whether the slot can be given a task or an operation.
func (s *slot) idle() bool { return s.task == nil && s.held == nil }

// prefilling reports whether a part of the prompt is still to be processed.
func (s *slot) prefilling() bool { return s.task != nil && s.scores == nil && s.stats.Predicted == 0 }

// common returns how many tokens of prompt the session already holds.
func (s *slot) common(prompt []int32) int {
	n := min(len(s.tokens), len(prompt))
	for i := range n {
		if s.tokens[i] != prompt[i] {
			return i
		}
	}
	return n
}

// begin takes a task. Of its prompt at least the last token is processed again,
// since the next token's logits come from it.
func (s *slot) begin(t *Task, sampler *model.Sampler, now time.Time) {
	keep := 0
	if t.Options.CachePrompt {
		keep = max(0, min(s.common(t.Prompt), len(t.Prompt)-1))
	}
	s.session.Truncate(keep)
	s.tokens = s.tokens[:keep]
	s.promptAt = len(t.Prompt)
	s.task, s.sampler, s.pending = t, sampler, t.Prompt[keep:]
	s.out = output{stops: t.Options.Stop}
	s.started, s.prompted = now, time.Time{}
	s.stats = Timings{Cached: keep, Snapshot: s.restored && keep > 0}
	s.restored = false
}

// end makes the slot idle. Its tokens stay for a later prompt to reuse.
func (s *slot) end() {
	if s.scores != nil {
		s.session.Truncate(len(s.tokens)) // gives back what trees took
	}
	s.task, s.sampler, s.pending, s.scores = nil, nil, nil, nil
	s.out = output{}
}

// snapshot describes the task's state.
func (s *slot) snapshot(now time.Time) Snapshot {
	return Snapshot{
		Slot: s.id, Prompt: len(s.task.Prompt), Processed: len(s.tokens), Elapsed: now.Sub(s.started), Timings: s.stats,
	}
}

// advance notes that n of the pending tokens are now in the session.
func (s *slot) advance(n int) {
	if s.prefilling() {
		s.stats.Prompt += n
	}
	s.tokens = append(s.tokens, s.pending[:n]...)
	s.pending = s.pending[n:]
}

// follow makes a sampled token the next to be evaluated.
func (s *slot) follow(id int32) {
	s.last[0] = id
	s.pending = s.last[:]
}

// remaining returns how many tokens the task may still make; -1 is no limit.
func (s *slot) remaining() int {
	if s.task.Options.MaxTokens < 0 {
		return -1
	}
	return s.task.Options.MaxTokens - s.stats.Predicted
}

// sample picks the next token from logits, which it may change.
func (s *slot) sample(logits []float32, v Vocabulary) (Piece, error) {
	set := s.task.Options
	var before []float32
	if set.Logprobs {
		before = slices.Clone(logits)
	}
	id, err := s.pick(logits)
	if err != nil {
		return Piece{}, err
	}
	p := Piece{ID: id, Bytes: v.Piece(id, set.Shown[id])}
	if set.Logprobs {
		p.Prob = newProb(s.sampler.LogProbs(before, id, set.TopLogprobs))
	}
	return p, nil
}

// ErrForm fails a task whose form no token of the vocabulary goes on with, or none that its sampling leaves possible.
var ErrForm = errors.New("no token that may be sampled fits the schema or grammar")

// pick samples a token that the task's form takes. Mostly the first one does. Only if not, the others are looked at: what
// the form forbids is made impossible, and one more is drawn. Where nothing but temperature shapes the draw that gives each
// token the probability that it has among those allowed: p(t) + (1-p(allowed)) p(t)/p(allowed) = p(t)/p(allowed). Where
// top-k, top-p or min-p cut, a token that is likely enough without the form keeps at least the probability it has there,
// and the cut falls again among what is allowed; llama-server does the same.
func (s *slot) pick(logits []float32) (int32, error) {
	id := s.sampler.Sample(logits, s.tokens)
	form := s.task.Form
	if form == nil {
		return id, nil
	}
	if ok, err := form.Take(id); ok || err != nil {
		return id, err
	}
	if err := form.Forbid(logits, model.Impossible); err != nil {
		return id, err
	}
	id = s.sampler.Again(logits)
	if logits[id] <= model.Impossible {
		return id, ErrForm
	}
	ok, err := form.Take(id)
	if err == nil && !ok {
		err = ErrForm
	}
	return id, err
}
