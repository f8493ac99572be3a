package runner

import (
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

	task     *task // nil when idle
	pending  []int32
	sampler  *model.Sampler
	out      output
	started  time.Time
	prompted time.Time // when the first token came
	stats    timings
}

// prefilling reports whether a part of the prompt is still to be processed.
func (s *slot) prefilling() bool { return s.task != nil && s.stats.predicted == 0 }

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
func (s *slot) begin(t *task, sampler *model.Sampler, now time.Time) {
	keep := 0
	if t.settings.cachePrompt {
		keep = max(0, min(s.common(t.prompt), len(t.prompt)-1))
	}
	s.session.Truncate(keep)
	s.tokens = s.tokens[:keep]
	s.promptAt = len(t.prompt)
	s.task, s.sampler, s.pending = t, sampler, t.prompt[keep:]
	s.out = output{stops: t.settings.stop}
	s.started, s.prompted = now, time.Time{}
	s.stats = timings{cached: keep}
}

// end makes the slot idle. Its tokens stay for a later prompt to reuse.
func (s *slot) end() {
	s.task, s.sampler, s.pending = nil, nil, nil
	s.out = output{}
}

// snapshot describes the task's state.
func (s *slot) snapshot(now time.Time) snapshot {
	return snapshot{
		slot: s.id, prompt: len(s.task.prompt), processed: len(s.tokens),
		predicted: s.stats.predicted, elapsed: now.Sub(s.started), timings: s.stats,
	}
}

// advance notes that n of the pending tokens are now in the session.
func (s *slot) advance(n int) {
	if s.prefilling() {
		s.stats.prompt += n
	}
	s.tokens = append(s.tokens, s.pending[:n]...)
	s.pending = s.pending[n:]
}

// remaining returns how many tokens the task may still make; -1 is no limit.
func (s *slot) remaining() int {
	if s.task.settings.maxTokens < 0 {
		return -1
	}
	return s.task.settings.maxTokens - s.stats.predicted
}

// sample picks the next token from logits, which it may change.
func (s *slot) sample(logits []float32, tok Tokenizer) piece {
	set := s.task.settings
	if !set.logprobs {
		id := s.sampler.Sample(logits, s.tokens)
		return piece{id: id, bytes: tok.Piece(id, set.shown[id])}
	}
	before := slices.Clone(logits)
	id := s.sampler.Sample(logits, s.tokens)
	return piece{
		id: id, bytes: tok.Piece(id, set.shown[id]),
		prob: newTokenProb(s.sampler.LogProbs(before, id, set.topLogprobs)),
	}
}
