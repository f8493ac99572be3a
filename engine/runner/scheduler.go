package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// scheduler owns the model. Its goroutine turns the tasks of all slots into one
// forward pass after another; everyone else only queues tasks and reads counts.
type scheduler struct {
	parts *Parts
	log   *slog.Logger
	slots []*slot
	pace  pace
	uses  int // counts takings of slots, to find the least recently used
	steps []Step
	plans []plan

	wake chan struct{} // holds a token when the queue changed

	mu      sync.Mutex // guards what follows; never held over a forward pass
	queue   []*task
	closed  bool
	lastID  int
	states  []slotState
	metrics metrics
}

// plan says which slot a step of the pass belongs to.
type plan struct {
	slot   *slot
	prompt bool // the step processes prompt
}

func newScheduler(parts *Parts, log *slog.Logger) *scheduler {
	s := &scheduler{parts: parts, log: log, wake: make(chan struct{}, 1)}
	for i := range parts.Slots {
		s.slots = append(s.slots, &slot{id: i})
		s.states = append(s.states, slotState{id: i})
	}
	return s
}

// submit queues the tasks of one request, in order. It fails only once the
// scheduler has stopped.
func (s *scheduler) submit(tasks ...*task) *problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return stopping()
	}
	for _, t := range tasks {
		s.lastID++
		t.id = s.lastID
	}
	s.queue = append(s.queue, tasks...)
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}

// run works until ctx is done, then ends all tasks.
func (s *scheduler) run(ctx context.Context) {
	defer s.stop()
	for ctx.Err() == nil {
		s.dropCancelled()
		s.admit()
		if s.plan(); len(s.steps) > 0 {
			s.pass(ctx)
			continue
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
		}
	}
}

// stop ends every task and closes the sessions.
func (s *scheduler) stop() {
	s.mu.Lock()
	queue := s.queue
	s.queue, s.closed = nil, true
	s.mu.Unlock()
	for _, t := range queue {
		t.box.post(event{kind: eventFailed, index: t.index, problem: stopping()})
	}
	for _, sl := range s.slots {
		if sl.task != nil {
			s.fail(sl, stopping())
		}
		s.reset(sl)
	}
}

// dropCancelled forgets the tasks whose clients have gone.
func (s *scheduler) dropCancelled() {
	for _, sl := range s.slots {
		if sl.task != nil && sl.task.cancelled() {
			s.log.Debug("cancelled", "task", sl.task.id, "slot", sl.id, "tokens", sl.stats.predicted)
			s.leave(sl)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.queue[:0]
	for _, t := range s.queue {
		if !t.cancelled() {
			kept = append(kept, t)
		}
	}
	clear(s.queue[len(kept):])
	s.queue = kept
}

// admit gives queued tasks to idle slots, first come first served. A task that
// wants a busy slot waits without holding up those behind it.
func (s *scheduler) admit() {
	for {
		t, sl := s.nextAdmission()
		if t == nil {
			return
		}
		s.begin(sl, t)
	}
}

// nextAdmission takes the first task that some idle slot can have.
func (s *scheduler) nextAdmission() (*task, *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, t := range s.queue {
		if sl := s.choose(t); sl != nil {
			s.queue = append(s.queue[:i:i], s.queue[i+1:]...)
			return t, sl
		}
	}
	return nil, nil
}

// Parts of a prompt or of a slot's last prompt, below which a common beginning
// is not worth the loss of what the slot holds.
const (
	shareOfPrompt = 0.1
	shareOfSlot   = 0.5
)

// choose returns the idle slot for a task: the one it names, else the one with
// the longest beginning in common, else the least recently used. A slot that
// would lose most of another conversation does not count as common.
func (s *scheduler) choose(t *task) *slot {
	var best, oldest *slot
	longest := 0
	for _, sl := range s.slots {
		if sl.task != nil || t.settings.slot >= 0 && t.settings.slot != sl.id {
			continue
		}
		if oldest == nil || sl.usedAt < oldest.usedAt {
			oldest = sl
		}
		if !t.settings.cachePrompt {
			continue
		}
		n := sl.common(t.prompt)
		if n > longest && float64(n) > shareOfPrompt*float64(len(t.prompt)) &&
			float64(n) >= shareOfSlot*float64(min(sl.promptAt, len(sl.tokens))) {
			best, longest = sl, n
		}
	}
	if best != nil {
		return best
	}
	return oldest
}

// begin starts a task in a slot.
func (s *scheduler) begin(sl *slot, t *task) {
	now := time.Now()
	s.uses++
	sl.usedAt = s.uses
	if p := s.prepare(sl, t, now); p != nil {
		t.box.post(event{kind: eventFailed, index: t.index, problem: p})
		return
	}
	s.publish(sl)
	s.count(func(m *metrics) { m.cached += uint64(sl.stats.cached) })
	t.box.post(event{kind: eventStarted, index: t.index, state: sl.snapshot(now)})
	if len(t.prompt) == 0 {
		s.finish(sl, result{stop: stopNone})
	}
}

// prepare gives the slot what the task needs. On a problem the slot stays idle.
func (s *scheduler) prepare(sl *slot, t *task, now time.Time) *problem {
	if sl.session == nil {
		session, err := s.parts.Engine.NewSession()
		if err != nil {
			return broken(fmt.Errorf("making a session: %w", err))
		}
		sl.session = session
	}
	sl.begin(t, s.parts.NewSampler(t.sampling), now)
	return nil
}

// plan fills steps with the next pass: a token of each slot that generates, and
// as much prompt as the pace allows, shared evenly among those that have some.
func (s *scheduler) plan() {
	s.steps, s.plans = s.steps[:0], s.plans[:0]
	waiting := 0
	for _, sl := range s.slots {
		switch {
		case sl.task == nil:
		case sl.prefilling():
			waiting++
		default:
			s.add(sl, 1)
		}
	}
	if waiting == 0 {
		return
	}
	left := s.pace.budget(len(s.steps))
	for _, sl := range s.byArrival() {
		n := portion(len(sl.pending), max(1, left/waiting))
		s.add(sl, n)
		left -= n
		waiting--
	}
}

// portion returns how many of some pending tokens to take when a share of the
// pass is free for them. Rather than leave a few tokens to a pass of their own,
// it cuts what is left in halves.
func portion(pending, share int) int {
	switch {
	case pending <= share:
		return pending
	case pending < share+share/2:
		return (pending + 1) / 2
	}
	return share
}

// byArrival returns the slots with prompt to process, oldest task first.
func (s *scheduler) byArrival() []*slot {
	var list []*slot
	for _, sl := range s.slots {
		if !sl.prefilling() {
			continue
		}
		at := len(list)
		for at > 0 && list[at-1].task.id > sl.task.id {
			at--
		}
		list = append(list[:at], append([]*slot{sl}, list[at:]...)...)
	}
	return list
}

// add appends a step over the slot's next n tokens. Logits are wanted when these
// are the last ones, unless no token is to follow.
func (s *scheduler) add(sl *slot, n int) {
	last := n == len(sl.pending) && sl.task.settings.maxTokens != 0
	s.steps = append(s.steps, Step{Session: sl.session, Tokens: sl.pending[:n], Logits: last})
	s.plans = append(s.plans, plan{slot: sl, prompt: sl.prefilling()})
}

// pass runs the planned forward pass and deals out its results.
func (s *scheduler) pass(ctx context.Context) {
	begun := time.Now()
	err := s.parts.Engine.Eval(ctx, s.steps)
	now := time.Now()
	if err != nil && ctx.Err() != nil {
		return // the scheduler is being stopped
	}
	if err != nil {
		s.log.Warn("a forward pass failed", "steps", len(s.steps), "error", err)
		s.isolate(ctx)
		return
	}
	prompt := 0
	for i, p := range s.plans {
		if p.prompt {
			prompt += len(s.steps[i].Tokens)
		}
	}
	s.pace.note(prompt, now.Sub(begun))
	s.count(func(m *metrics) { m.pass(len(s.steps), prompt, now.Sub(begun)) })
	for i := range s.steps {
		s.collect(s.plans[i].slot, &s.steps[i])
	}
}

// isolate runs the steps of a failed pass one by one, so that only the task at
// fault is lost.
func (s *scheduler) isolate(ctx context.Context) {
	for i := range s.steps {
		sl := s.plans[i].slot
		sl.session.Truncate(len(sl.tokens))
		if err := s.parts.Engine.Eval(ctx, s.steps[i:i+1]); err != nil {
			s.fail(sl, broken(fmt.Errorf("running the model: %w", err)))
			s.reset(sl)
			continue
		}
		s.collect(sl, &s.steps[i])
	}
}

// reset drops a slot's session and what it held.
func (s *scheduler) reset(sl *slot) {
	if sl.session != nil {
		sl.session.Close()
	}
	sl.session, sl.tokens, sl.promptAt = nil, nil, 0
}

// errNoLogits reports an engine that broke its contract.
var errNoLogits = errors.New("the model gave no logits")

// collect takes the result of a slot's step.
func (s *scheduler) collect(sl *slot, step *Step) {
	prompt := sl.prefilling()
	sl.advance(len(step.Tokens))
	now := time.Now()
	if prompt && sl.task.settings.returnProgress {
		sl.task.box.post(event{kind: eventProgress, index: sl.task.index, state: sl.snapshot(now)})
	}
	switch {
	case !step.Logits && len(sl.pending) > 0:
		s.publish(sl)
	case !step.Logits: // the prompt alone was wanted
		sl.stats.promptFor = now.Sub(sl.started)
		s.finish(sl, result{stop: stopLimit})
	case len(step.Out) == 0:
		s.fail(sl, broken(errNoLogits))
	default:
		s.emit(sl, step.Out, prompt)
	}
}

// emit samples a token, sends what it makes certain, and ends the task when it
// is the last one.
func (s *scheduler) emit(sl *slot, logits []float32, first bool) {
	t, tok := sl.task, s.parts.Tokenizer
	p := sl.sample(logits, tok)
	now := time.Now()
	sl.stats.predicted++
	s.count(func(m *metrics) { m.predicted++ })
	if first {
		sl.prompted = now
		sl.stats.promptFor = now.Sub(sl.started)
	}
	sl.stats.predictFor = now.Sub(sl.prompted)
	text, pieces, word := sl.out.push(p)
	r, ended := s.ended(sl, p.id, word, strings.Contains(text, "\n"))
	if ended && word == "" {
		rest, more := sl.out.flush()
		text, pieces = text+rest, append(pieces, more...)
	}
	if text != "" || len(pieces) > 0 {
		t.box.post(event{kind: eventText, index: t.index, text: text, pieces: pieces, state: sl.snapshot(now)})
	}
	if ended {
		s.finish(sl, r)
		return
	}
	sl.pending = append(sl.pending[:0:0], p.id)
	s.publish(sl)
}

// ended decides whether the token just sampled is the last. newline says that
// its text has a line end: the time limit acts only there.
func (s *scheduler) ended(sl *slot, id int32, word string, newline bool) (result, bool) {
	r := result{stopText: word}
	limit := sl.task.settings.timeLimit
	switch {
	case word != "":
		r.stop = stopWord
	case s.parts.Tokenizer.IsEOG(id):
		r.stop = stopEOS
	case len(sl.tokens)+1 >= s.parts.Context:
		r.stop, r.truncated = stopLimit, true
	case sl.remaining() == 0, limit > 0 && newline && sl.stats.predictFor > limit:
		r.stop = stopLimit
	default:
		return result{}, false
	}
	return r, true
}

// finish reports a complete answer and frees the slot.
func (s *scheduler) finish(sl *slot, r result) {
	t := sl.task
	r.newline, r.cached = sl.out.newline, len(sl.tokens)
	t.box.post(event{kind: eventDone, index: t.index, state: sl.snapshot(time.Now()), result: &r})
	s.leave(sl)
}

// fail reports a problem and frees the slot.
func (s *scheduler) fail(sl *slot, p *problem) {
	sl.task.box.post(event{kind: eventFailed, index: sl.task.index, problem: p})
	s.leave(sl)
}

// leave makes a slot idle.
func (s *scheduler) leave(sl *slot) {
	s.count(func(m *metrics) { m.task(sl.stats, len(sl.tokens)) })
	s.mu.Lock()
	s.states[sl.id].leave(len(sl.tokens))
	s.mu.Unlock()
	sl.end()
}
