package batch

import "time"

// State is what is public of a slot.
type State struct {
	ID      int
	Busy    bool
	Task    int     // number of the current or last task, 0 when there was none
	Tag     any     // that task's
	Held    int     // tokens in the session
	Timings Timings // of the current task
	Remain  int     // tokens that it may still make; -1 is no limit
	Newline bool    // whether its answer has a line end
}

// publish makes a slot's state visible.
func (s *Scheduler) publish(sl *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states[sl.id] = State{
		ID: sl.id, Busy: true, Task: sl.task.id, Tag: sl.task.Tag, Held: len(sl.tokens),
		Timings: sl.stats, Remain: sl.remaining(), Newline: sl.out.newline,
	}
}

// States returns all slots. It never waits for the model.
func (s *Scheduler) States() []State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]State(nil), s.states...)
}

// Rate counts forward passes and the time they took.
type Rate struct {
	Passes uint64
	Spent  time.Duration
}

func (r *Rate) add(passes int, spent time.Duration) {
	r.Passes += uint64(passes)
	r.Spent += spent
}

// PerSecond returns passes a second, 0 while there were none.
func (r Rate) PerSecond() float64 {
	if r.Spent <= 0 {
		return 0
	}
	return float64(r.Passes) / r.Spent.Seconds()
}

// Metrics counts since the start, but for the recent rates, which count since
// they were last read. A rate's passes are tokens: those of prompts, and of
// answers all but the first, which comes with the prompt's last pass.
type Metrics struct {
	Prompt, Predicted                uint64 // tokens processed and made
	Cached                           uint64 // prompt tokens that were not processed again
	PromptFor, PredictFor            time.Duration
	RecentPrompts, RecentPredictions Rate
	Passes                           uint64
	Taking                           uint64 // slots taking part, summed over passes
	Longest                          int    // tokens in the fullest session seen

	Busy, Queued int // now
}

// Metrics returns the counts and begins the recent rates anew. It never waits
// for the model.
func (s *Scheduler) Metrics() Metrics {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.metrics
	m.Queued = len(s.queue)
	for _, st := range s.states {
		if st.Busy {
			m.Busy++
		}
	}
	s.metrics.RecentPrompts, s.metrics.RecentPredictions = Rate{}, Rate{}
	return m
}

// count changes the metrics.
func (s *Scheduler) count(change func(*Metrics)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.metrics)
}

// pass counts one forward pass.
func (m *Metrics) pass(slots, prompt int) {
	m.Passes++
	m.Taking += uint64(slots)
	m.Prompt += uint64(prompt)
}

// task counts a task that leaves its slot with some tokens in the session.
func (m *Metrics) task(t Timings, held int) {
	m.PromptFor += t.PromptFor
	m.RecentPrompts.add(t.Prompt, t.PromptFor)
	m.PredictFor += t.PredictFor
	m.RecentPredictions.add(max(0, t.Predicted-1), t.PredictFor)
	m.Longest = max(m.Longest, held)
}
