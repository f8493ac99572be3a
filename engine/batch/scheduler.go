package batch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"onebit/engine/model"
)

// Config is what a scheduler works with.
type Config struct {
	Engine     Engine
	Vocabulary Vocabulary
	NewSampler func(model.SamplerConfig) *model.Sampler
	Slots      int // how many tasks run at once, at least 1
	Context    int // tokens that each slot holds
	Log        *slog.Logger
}

// Scheduler turns the tasks of all slots into one forward pass after another.
type Scheduler struct {
	cfg   Config
	slots []*slot
	pace  pace
	uses  int // counts takings of slots, to find the least recently used
	steps []Step
	plans []plan

	wake chan struct{} // holds a token when the queue changed

	mu      sync.Mutex // guards what follows; never held over a forward pass
	queue   []waiting
	closed  bool
	lastID  int
	states  []State
	metrics Metrics
}

// waiting is what waits for a slot: a task or an operation.
type waiting struct {
	task *Task
	op   *operation
}

// plan says which slot a step of the pass belongs to.
type plan struct {
	slot   *slot
	prompt bool // the step processes prompt
}

// ErrStopped is returned for tasks that the end of Run leaves undone.
var ErrStopped = errors.New("the scheduler has stopped")

// New returns a scheduler with idle slots. Run makes it work.
func New(cfg Config) *Scheduler {
	s := &Scheduler{cfg: cfg, wake: make(chan struct{}, 1)}
	for i := range cfg.Slots {
		s.slots = append(s.slots, &slot{id: i})
		s.states = append(s.states, State{ID: i})
	}
	return s
}

// Submit queues tasks in order. Their events come to their mailboxes. It fails
// only once Run has ended, with ErrStopped.
func (s *Scheduler) Submit(tasks ...*Task) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrStopped
	}
	for _, t := range tasks {
		s.lastID++
		t.id = s.lastID
		s.queue = append(s.queue, waiting{task: t})
	}
	s.rouse()
	return nil
}

// rouse makes Run look at what there is to do.
func (s *Scheduler) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run works until ctx is done, then ends all tasks.
func (s *Scheduler) Run(ctx context.Context) {
	defer s.stop()
	for ctx.Err() == nil {
		s.settle()
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

// stop ends every task and closes the sessions, once nobody works on them any more.
func (s *Scheduler) stop() {
	s.mu.Lock()
	queue := s.queue
	s.queue, s.closed = nil, true
	s.mu.Unlock()
	for _, w := range queue {
		if w.op != nil {
			w.op.err = ErrStopped
			close(w.op.granted)
			continue
		}
		w.task.Box.post(Event{Kind: Failed, Index: w.task.Index, Err: ErrStopped})
	}
	for _, sl := range s.slots {
		if sl.held != nil {
			sl.held.cancel(ErrStopped)
			<-sl.held.released
			s.settleSlot(sl)
		}
		if sl.task != nil {
			s.fail(sl, ErrStopped)
		}
		s.reset(sl)
	}
}

// dropCancelled forgets the tasks whose clients have gone.
func (s *Scheduler) dropCancelled() {
	for _, sl := range s.slots {
		if sl.task != nil && sl.task.cancelled() {
			s.cfg.Log.Debug("cancelled", "task", sl.task.id, "slot", sl.id, "tokens", sl.stats.Predicted)
			s.leave(sl)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.queue[:0]
	for _, w := range s.queue {
		if w.op != nil || !w.task.cancelled() { // who waits for an operation withdraws it
			kept = append(kept, w)
		}
	}
	clear(s.queue[len(kept):])
	s.queue = kept
}

// admit gives idle slots to what is queued, first come first served. What wants
// a busy slot waits without holding up what is behind it.
func (s *Scheduler) admit() {
	for {
		switch w, sl := s.nextAdmission(); {
		case w.op != nil:
			s.grant(sl, w.op)
		case w.task != nil:
			s.begin(sl, w.task)
		default:
			return
		}
	}
}

// nextAdmission takes the first of the queue that some idle slot can have.
func (s *Scheduler) nextAdmission() (waiting, *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, w := range s.queue {
		var sl *slot
		if w.op == nil {
			sl = s.choose(w.task)
		} else if named := s.slots[w.op.slot]; named.idle() {
			sl = named
		}
		if sl != nil {
			s.queue = append(s.queue[:i:i], s.queue[i+1:]...)
			return w, sl
		}
	}
	return waiting{}, nil
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
func (s *Scheduler) choose(t *Task) *slot {
	var best, oldest *slot
	longest := 0
	for _, sl := range s.slots {
		if !sl.idle() || t.Options.Slot >= 0 && t.Options.Slot != sl.id {
			continue
		}
		if oldest == nil || sl.usedAt < oldest.usedAt {
			oldest = sl
		}
		if !t.Options.CachePrompt {
			continue
		}
		n := sl.common(t.Prompt)
		if n > longest && float64(n) > shareOfPrompt*float64(len(t.Prompt)) &&
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
func (s *Scheduler) begin(sl *slot, t *Task) {
	now := time.Now()
	s.uses++
	sl.usedAt = s.uses
	if err := s.prepare(sl, t, now); err != nil {
		t.Box.post(Event{Kind: Failed, Index: t.Index, Err: err})
		return
	}
	s.publish(sl)
	s.count(func(m *Metrics) { m.Cached += uint64(sl.stats.Cached) })
	t.Box.post(Event{Kind: Started, Index: t.Index, State: sl.snapshot(now)})
	if len(t.Prompt) == 0 {
		s.finish(sl, Result{Stop: StopNone})
	}
}

// prepare gives the slot what the task needs. After an error the slot stays idle.
func (s *Scheduler) prepare(sl *slot, t *Task, now time.Time) error {
	if err := s.open(sl); err != nil {
		return err
	}
	sl.begin(t, s.cfg.NewSampler(t.Sampling), now)
	return nil
}

// open makes sure that a slot has a session.
func (s *Scheduler) open(sl *slot) error {
	if sl.session != nil {
		return nil
	}
	session, err := s.cfg.Engine.NewSession()
	if err != nil {
		return fmt.Errorf("making a session: %w", err)
	}
	sl.session = session
	return nil
}

// plan fills steps with the next pass: a token of each slot that generates, and
// as much prompt as the pace allows, shared evenly among those that have some.
func (s *Scheduler) plan() {
	s.steps, s.plans = s.steps[:0], s.plans[:0]
	waiting, scoring := 0, 0
	for _, sl := range s.slots {
		switch {
		case sl.task == nil:
		case sl.scores != nil:
			scoring++
		case sl.prefilling():
			waiting++
		default:
			s.add(sl, 1)
		}
	}
	if waiting+scoring == 0 {
		return
	}
	left := s.pace.budget(len(s.steps))
	for _, sl := range s.byArrival() {
		n := portion(len(sl.pending), max(1, left/(waiting+scoring)))
		s.add(sl, n)
		left -= n
		waiting--
	}
	for _, sl := range s.slots {
		if sl.scores != nil {
			left -= s.addTree(sl, max(1, left/scoring))
			scoring--
		}
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
func (s *Scheduler) byArrival() []*slot {
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
func (s *Scheduler) add(sl *slot, n int) {
	last := n == len(sl.pending) && sl.task.Options.MaxTokens != 0
	s.steps = append(s.steps, Step{Session: sl.session, Tokens: sl.pending[:n], Logits: last})
	s.plans = append(s.plans, plan{slot: sl, prompt: sl.prefilling()})
}

// pass runs the planned forward pass and deals out its results.
func (s *Scheduler) pass(ctx context.Context) {
	begun := time.Now()
	err := s.cfg.Engine.Eval(ctx, s.steps)
	now := time.Now()
	if err != nil && ctx.Err() != nil {
		return // the scheduler is being stopped
	}
	if err != nil {
		s.cfg.Log.Warn("a forward pass failed", "steps", len(s.steps), "error", err)
		s.isolate(ctx)
		return
	}
	prompt, all := 0, 0
	for i, p := range s.plans {
		n := s.steps[i].length()
		if all += n; p.prompt || s.steps[i].Tree != nil {
			prompt += n
		}
	}
	if prompt > 0 {
		s.pace.note(all, now.Sub(begun))
	}
	s.count(func(m *Metrics) { m.pass(len(s.steps), prompt) })
	for i := range s.steps {
		if s.steps[i].Tree != nil {
			s.collectTree(s.plans[i].slot, &s.steps[i])
			continue
		}
		s.collect(s.plans[i].slot, &s.steps[i])
	}
}

// isolate runs the steps of a failed pass one by one, so that only the task at
// fault is lost.
func (s *Scheduler) isolate(ctx context.Context) {
	for i := range s.steps {
		sl := s.plans[i].slot
		if s.steps[i].Tree != nil {
			s.fail(sl, errBranch)
			continue
		}
		sl.session.Truncate(len(sl.tokens))
		err := s.cfg.Engine.Eval(ctx, s.steps[i:i+1])
		if err != nil && ctx.Err() != nil {
			return // the scheduler is being stopped
		}
		if err != nil {
			s.fail(sl, fmt.Errorf("running the model: %w", err))
			s.reset(sl)
			continue
		}
		s.collect(sl, &s.steps[i])
	}
}

// reset drops a slot's session and what it held.
func (s *Scheduler) reset(sl *slot) {
	if sl.session != nil {
		sl.session.Close()
	}
	sl.session, sl.tokens, sl.promptAt, sl.restored = nil, nil, 0, false
}

// errNoLogits reports an engine that broke its contract.
var errNoLogits = errors.New("the model gave no logits")

// collect takes the result of a slot's step.
func (s *Scheduler) collect(sl *slot, step *Step) {
	prompt := sl.prefilling()
	sl.advance(len(step.Tokens))
	now := time.Now()
	if prompt && sl.task.Options.Progress {
		sl.task.Box.post(Event{Kind: Progress, Index: sl.task.Index, State: sl.snapshot(now)})
	}
	switch {
	case !step.Logits && len(sl.pending) > 0:
		s.publish(sl)
	case !step.Logits && len(sl.task.Branches) > 0:
		sl.score()
		s.publish(sl)
	case !step.Logits: // the prompt alone was wanted
		sl.stats.PromptFor = now.Sub(sl.started)
		s.finish(sl, Result{Stop: StopLimit})
	case len(step.Out) == 0:
		s.fail(sl, errNoLogits)
	default:
		s.emit(sl, step.Out, prompt)
	}
}

// emit samples a token, sends what it makes certain, and ends the task when it
// is the last one.
func (s *Scheduler) emit(sl *slot, logits []float32, first bool) {
	t := sl.task
	p, err := sl.sample(logits, s.cfg.Vocabulary)
	if err != nil {
		s.fail(sl, err)
		return
	}
	now := time.Now()
	sl.stats.Predicted++
	s.count(func(m *Metrics) { m.Predicted++ })
	if first {
		sl.prompted = now
		sl.stats.PromptFor = now.Sub(sl.started)
	}
	sl.stats.PredictFor = now.Sub(sl.prompted)
	text, pieces, word := sl.out.push(p)
	r, ended := s.ended(sl, p.ID, word, strings.Contains(text, "\n"))
	if ended && word == "" {
		rest, more := sl.out.flush()
		text, pieces = text+rest, append(pieces, more...)
	}
	if text != "" || len(pieces) > 0 {
		t.Box.post(Event{Kind: Text, Index: t.Index, Text: text, Pieces: pieces, State: sl.snapshot(now)})
	}
	if ended {
		s.finish(sl, r)
		return
	}
	sl.follow(p.ID)
	s.publish(sl)
}

// ended decides whether the token just sampled is the last. newline says that
// its text has a line end: the time limit acts only there.
func (s *Scheduler) ended(sl *slot, id int32, word string, newline bool) (Result, bool) {
	r := Result{StopText: word}
	limit := sl.task.Options.TimeLimit
	switch {
	case word != "":
		r.Stop = StopWord
	case s.cfg.Vocabulary.IsEOG(id), sl.task.Form != nil && sl.task.Form.Done():
		r.Stop = StopEOS
	case len(sl.tokens)+1 >= s.cfg.Context:
		r.Stop, r.Truncated = StopLimit, true
	case sl.remaining() == 0, limit > 0 && newline && sl.stats.PredictFor > limit:
		r.Stop = StopLimit
	default:
		return Result{}, false
	}
	return r, true
}

// finish reports a complete answer and frees the slot.
func (s *Scheduler) finish(sl *slot, r Result) {
	t := sl.task
	r.Newline, r.Held = sl.out.newline, len(sl.tokens)
	t.Box.post(Event{Kind: Done, Index: t.Index, State: sl.snapshot(time.Now()), Result: &r})
	s.leave(sl)
}

// fail reports an error and frees the slot.
func (s *Scheduler) fail(sl *slot, err error) {
	sl.task.Box.post(Event{Kind: Failed, Index: sl.task.Index, Err: err})
	s.leave(sl)
}

// leave makes a slot idle.
func (s *Scheduler) leave(sl *slot) {
	s.mu.Lock()
	s.metrics.task(sl.stats, len(sl.tokens))
	st := &s.states[sl.id]
	*st = State{ID: st.ID, Task: st.Task, Tag: st.Tag, Held: len(sl.tokens), Remain: -1}
	s.mu.Unlock()
	sl.end()
}
