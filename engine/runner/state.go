package runner

import (
	"fmt"
	"io"
	"time"

	"onebit/engine/batch"
)

// timingsView is llama-server's "timings" object.
type timingsView struct {
	CacheN              int     `json:"cache_n"`
	PromptN             int     `json:"prompt_n"`
	PromptMS            float64 `json:"prompt_ms"`
	PromptPerTokenMS    float64 `json:"prompt_per_token_ms"`
	PromptPerSecond     float64 `json:"prompt_per_second"`
	PredictedN          int     `json:"predicted_n"`
	PredictedMS         float64 `json:"predicted_ms"`
	PredictedPerTokenMS float64 `json:"predicted_per_token_ms"`
	PredictedPerSecond  float64 `json:"predicted_per_second"`
	// Cache says where the reused tokens came from: "live" is the slot's session, "snapshot" a
	// session that was restored from a file and is used for the first time.
	Cache string `json:"cache,omitempty"`
}

// newTimingsView computes the rates. The first token comes with the prompt's
// last pass, so generation counts one pass less than tokens.
func newTimingsView(t batch.Timings) timingsView {
	v := timingsView{
		CacheN: t.Cached, PromptN: t.Prompt, PromptMS: milliseconds(t.PromptFor),
		PredictedN: t.Predicted, PredictedMS: milliseconds(t.PredictFor),
	}
	v.PromptPerTokenMS, v.PromptPerSecond = rates(t.Prompt, t.PromptFor)
	v.PredictedPerTokenMS, v.PredictedPerSecond = rates(max(0, t.Predicted-1), t.PredictFor)
	switch {
	case t.Snapshot:
		v.Cache = "snapshot"
	case t.Cached > 0:
		v.Cache = "live"
	}
	return v
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// rates returns milliseconds a token and tokens a second, 0 where unknown.
func rates(tokens int, d time.Duration) (perToken, perSecond float64) {
	if tokens == 0 || d <= 0 {
		return 0, 0
	}
	return milliseconds(d) / float64(tokens), float64(tokens) / d.Seconds()
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

// slotViews returns all slots and how many of them are idle.
func slotViews(states []batch.State, context int) (slots []slotView, idle int) {
	for _, st := range states {
		v := slotView{ID: st.ID, Context: context, Processing: st.Busy}
		if !st.Busy {
			idle++
		}
		if set, ok := st.Tag.(*settings); ok {
			params := set.view(true)
			v.Task, v.Params = &st.Task, &params
			v.PromptTokens, v.PromptProcessed, v.PromptCached = &st.Held, &st.Timings.Prompt, &st.Timings.Cached
			v.NextToken = []nextTokenRow{{
				HasNextToken: st.Busy, HasNewLine: st.Newline, Remain: st.Remain, Decoded: st.Timings.Predicted,
			}}
		}
		slots = append(slots, v)
	}
	return slots, idle
}

// writeMetrics writes Prometheus' text form under llama-server's names.
func writeMetrics(w io.Writer, m batch.Metrics) {
	row := func(kind, name, help string, value float64) {
		fmt.Fprintf(w, "# HELP llamacpp:%s %s\n# TYPE llamacpp:%s %s\nllamacpp:%s %v\n", name, help, name, kind, name, value)
	}
	row("counter", "prompt_tokens_total", "Prompt tokens processed, without cached ones", float64(m.Prompt))
	row("counter", "prompt_tokens_cached_total", "Prompt tokens reused from a slot", float64(m.Cached))
	row("counter", "prompt_seconds_total", "Time spent on prompts", m.PromptFor.Seconds())
	row("counter", "tokens_predicted_total", "Tokens generated", float64(m.Predicted))
	row("counter", "tokens_predicted_seconds_total", "Time spent on generating", m.PredictFor.Seconds())
	row("counter", "n_decode_total", "Forward passes", float64(m.Passes))
	row("counter", "n_tokens_max", "Most tokens seen in one slot", float64(m.Longest))
	row("gauge", "prompt_tokens_seconds", "Prompt tokens a second since the last reading", m.RecentPrompts.PerSecond())
	row("gauge", "predicted_tokens_seconds", "Generated tokens a second since the last reading", m.RecentPredictions.PerSecond())
	row("gauge", "requests_processing", "Requests in slots", float64(m.Busy))
	row("gauge", "requests_deferred", "Requests waiting for a slot", float64(m.Queued))
	row("gauge", "n_busy_slots_per_decode", "Slots taking part in a forward pass, on average", float64(m.Taking)/float64(max(1, m.Passes)))
}
