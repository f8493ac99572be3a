package runner

import (
	"fmt"
	"io"
	"time"
)

// slotState is what the public may know of a slot.
type slotState struct {
	id       int
	busy     bool
	task     int       // the current or last task, 0 when there was none
	settings *settings // of that task
	tokens   int       // in the session
	stats    timings
	remain   int
	newline  bool
}

// leave marks the slot idle.
func (s *slotState) leave(tokens int) {
	s.busy, s.tokens, s.stats, s.newline = false, tokens, timings{}, false
	s.remain = -1
}

// publish makes a slot's state visible.
func (s *scheduler) publish(sl *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states[sl.id] = slotState{
		id: sl.id, busy: true, task: sl.task.id, settings: sl.task.settings, tokens: len(sl.tokens),
		stats: sl.stats, remain: sl.remaining(), newline: sl.out.newline,
	}
}

// count changes the metrics.
func (s *scheduler) count(change func(*metrics)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.metrics)
}

// slotView is one entry of /slots.
type slotView struct {
	ID              int            `json:"id"`
	Context         int            `json:"n_ctx"`
	Speculative     bool           `json:"speculative"`
	Processing      bool           `json:"is_processing"`
	Task            *int           `json:"id_task,omitempty"`
	PromptTokens    *int           `json:"n_prompt_tokens,omitempty"`
	PromptProcessed *int           `json:"n_prompt_tokens_processed,omitempty"`
	PromptCached    *int           `json:"n_prompt_tokens_cache,omitempty"`
	Params          *settingsView  `json:"params,omitempty"`
	NextToken       []nextTokenRow `json:"next_token,omitempty"`
}

type nextTokenRow struct {
	HasNextToken bool `json:"has_next_token"`
	HasNewLine   bool `json:"has_new_line"`
	Remain       int  `json:"n_remain"`
	Decoded      int  `json:"n_decoded"`
}

// view returns all slots and how many of them are idle. It never waits for the
// model.
func (s *scheduler) view() (slots []slotView, idle int) {
	s.mu.Lock()
	states := append([]slotState(nil), s.states...)
	s.mu.Unlock()
	for _, st := range states {
		v := slotView{ID: st.id, Context: s.parts.Context, Processing: st.busy}
		if !st.busy {
			idle++
		}
		if st.task != 0 {
			params := st.settings.view(true)
			v.Task, v.Params = &st.task, &params
			v.PromptTokens, v.PromptProcessed, v.PromptCached = &st.tokens, &st.stats.prompt, &st.stats.cached
			v.NextToken = []nextTokenRow{{
				HasNextToken: st.busy, HasNewLine: st.newline, Remain: st.remain, Decoded: st.stats.predicted,
			}}
		}
		slots = append(slots, v)
	}
	return slots, idle
}

// rate counts tokens, the passes they took, and the time.
type rate struct {
	steps uint64
	spent time.Duration
}

func (r *rate) add(steps int, spent time.Duration) {
	r.steps += uint64(steps)
	r.spent += spent
}

// perSecond returns passes a second, 0 while there were none.
func (r rate) perSecond() float64 {
	if r.spent <= 0 {
		return 0
	}
	return float64(r.steps) / r.spent.Seconds()
}

// metrics counts since the start, but for the two recent rates, which count
// since they were last read.
type metrics struct {
	prompt, predicted        uint64 // tokens
	cached                   uint64 // prompt tokens that were not processed again
	promptFor, predictFor    time.Duration
	recentPrompt, recentNext rate
	passes                   uint64
	busy                     uint64 // slots taking part, summed over passes
	longest                  int    // tokens in the fullest session seen
}

// pass counts one forward pass.
func (m *metrics) pass(slots, prompt int, took time.Duration) {
	m.passes++
	m.busy += uint64(slots)
	m.prompt += uint64(prompt)
}

// task counts a task that leaves its slot with some tokens in the session.
func (m *metrics) task(t timings, tokens int) {
	m.promptFor += t.promptFor
	m.recentPrompt.add(t.prompt, t.promptFor)
	m.predictFor += t.predictFor
	m.recentNext.add(max(0, t.predicted-1), t.predictFor)
	m.longest = max(m.longest, tokens)
}

// writeMetrics writes Prometheus' text form under llama-server's names, and
// begins the recent rates anew.
func (s *scheduler) writeMetrics(w io.Writer) {
	s.mu.Lock()
	m, deferred, busy := s.metrics, len(s.queue), 0
	for _, st := range s.states {
		if st.busy {
			busy++
		}
	}
	s.metrics.recentPrompt, s.metrics.recentNext = rate{}, rate{}
	s.mu.Unlock()

	row := func(kind, name, help string, value float64) {
		fmt.Fprintf(w, "# HELP llamacpp:%s %s\n# TYPE llamacpp:%s %s\nllamacpp:%s %v\n", name, help, name, kind, name, value)
	}
	row("counter", "prompt_tokens_total", "Prompt tokens processed, without cached ones", float64(m.prompt))
	row("counter", "prompt_tokens_cached_total", "Prompt tokens reused from a slot", float64(m.cached))
	row("counter", "prompt_seconds_total", "Time spent on prompts", m.promptFor.Seconds())
	row("counter", "tokens_predicted_total", "Tokens generated", float64(m.predicted))
	row("counter", "tokens_predicted_seconds_total", "Time spent on generating", m.predictFor.Seconds())
	row("counter", "n_decode_total", "Forward passes", float64(m.passes))
	row("counter", "n_tokens_max", "Most tokens seen in one slot", float64(m.longest))
	row("gauge", "prompt_tokens_seconds", "Prompt tokens a second since the last reading", m.recentPrompt.perSecond())
	row("gauge", "predicted_tokens_seconds", "Generated tokens a second since the last reading", m.recentNext.perSecond())
	row("gauge", "requests_processing", "Requests in slots", float64(busy))
	row("gauge", "requests_deferred", "Requests waiting for a slot", float64(deferred))
	row("gauge", "n_busy_slots_per_decode", "Slots taking part in a forward pass, on average", float64(m.busy)/float64(max(1, m.passes)))
}
