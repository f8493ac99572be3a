package runner

import (
	"encoding/json"
	"strings"

	"onebit/engine/batch"
)

// nativeResponder forms the answers of /completion.
type nativeResponder struct{ texts }

// nativeChunk is one batch.Event of a stream.
type nativeChunk struct {
	Index     int           `json:"index"`
	Content   string        `json:"content"`
	Tokens    []int32       `json:"tokens"`
	Stop      bool          `json:"stop"`
	Slot      int           `json:"id_slot"`
	Predicted int           `json:"tokens_predicted"`
	Evaluated int           `json:"tokens_evaluated"`
	Timings   *timingsView  `json:"timings,omitempty"`
	Progress  *progressView `json:"prompt_progress,omitempty"`
	Probs     []probView    `json:"completion_probabilities,omitempty"`
}

// nativeAnswer is a whole answer, or the last event of a stream.
type nativeAnswer struct {
	Index        int          `json:"index"`
	Content      string       `json:"content"`
	Tokens       []int32      `json:"tokens"`
	Slot         int          `json:"id_slot"`
	Stop         bool         `json:"stop"`
	Model        string       `json:"model"`
	Predicted    int          `json:"tokens_predicted"`
	Evaluated    int          `json:"tokens_evaluated"`
	Settings     settingsView `json:"generation_settings"`
	Prompt       string       `json:"prompt"`
	HasNewLine   bool         `json:"has_new_line"`
	Truncated    bool         `json:"truncated"`
	StopType     string       `json:"stop_type"`
	StoppingWord string       `json:"stopping_word"`
	Cached       int          `json:"tokens_cached"`
	Timings      timingsView  `json:"timings"`
	Probs        []probView   `json:"completion_probabilities,omitempty"`
}

func (n *nativeResponder) chunks(e batch.Event) []any {
	j := n.job
	switch e.Kind {
	case batch.Done:
		return []any{n.last(e.Index)}
	case batch.Text:
	default:
		if j.progress(e) == nil {
			return nil
		}
	}
	c := nativeChunk{
		Index: e.Index, Content: e.Text, Tokens: tokenIDs(e.Pieces), Slot: e.State.Slot,
		Predicted: e.State.Timings.Predicted, Evaluated: e.State.Prompt,
		Timings: j.chunkTimings(e), Progress: j.progress(e), Probs: probViews(e.Pieces, j.s.vocab),
	}
	return []any{c}
}

func (n *nativeResponder) closing() []any { return nil }

func (n *nativeResponder) marked() bool { return false }

func (n *nativeResponder) whole() any {
	all := make([]any, len(n.job.tasks))
	for i := range all {
		all[i] = n.last(i)
	}
	if len(all) == 1 {
		return all[0]
	}
	return all
}

// last describes an answer that has ended.
func (n *nativeResponder) last(i int) any {
	j := n.job
	a, t, text := &j.answers[i], j.tasks[i], &n.texts.whole[i]
	v := nativeAnswer{
		Index: i, Content: text.String(), Tokens: []int32{}, Slot: a.state.Slot, Stop: true, Model: j.s.cfg.Alias,
		Predicted: a.state.Timings.Predicted, Evaluated: a.state.Prompt, Settings: j.set.view(false),
		Prompt: j.s.vocab.Decode(t.Prompt, true), HasNewLine: a.result.Newline, Truncated: a.result.Truncated,
		StopType: stopType(a.result.Stop), StoppingWord: a.result.StopText, Cached: a.result.Held,
		Timings: newTimingsView(a.state.Timings), Probs: probViews(text.pieces, j.s.vocab),
	}
	if j.set.returnTokens {
		v.Tokens = tokenIDs(text.pieces)
	}
	return selectFields(v, j.set.fields)
}

func tokenIDs(pieces []batch.Piece) []int32 {
	ids := make([]int32, len(pieces))
	for i, p := range pieces {
		ids[i] = p.ID
	}
	return ids
}

// selectFields returns only the named members of an object, all when there are
// no names. A name with slashes reaches into nested objects; a name that leads
// nowhere is left out.
func selectFields(v any, names []string) any {
	if len(names) == 0 {
		return v
	}
	picked := map[string]json.RawMessage{}
	for _, name := range names {
		at := json.RawMessage(encode(v))
		for part := range strings.SplitSeq(name, "/") {
			var members map[string]json.RawMessage
			if json.Unmarshal(at, &members) != nil {
				members = nil
			}
			at = members[part]
		}
		if at != nil {
			picked[name] = at
		}
	}
	return picked
}
