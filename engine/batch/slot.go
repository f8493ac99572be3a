package batch

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
		s.scores.close()
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
func (s *slot) sample(logits []float32, v Vocabulary) Piece {
	set := s.task.Options
	if !set.Logprobs {
		id := s.sampler.Sample(logits, s.tokens)
		return Piece{ID: id, Bytes: v.Piece(id, set.Shown[id])}
	}
	before := slices.Clone(logits)
	id := s.sampler.Sample(logits, s.tokens)
	return Piece{
		ID: id, Bytes: v.Piece(id, set.Shown[id]),
		Prob: newProb(s.sampler.LogProbs(before, id, set.TopLogprobs)),
	}
}
