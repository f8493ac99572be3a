package runner

import "onebit/engine/batch"

// legacyResponder forms the answers of OpenAI's /v1/completions.
type legacyResponder struct{ texts }

type legacyChoice struct {
	Text         string      `json:"text"`
	Index        int         `json:"index"`
	Logprobs     *legacyView `json:"logprobs"`
	FinishReason *string     `json:"finish_reason"`
}

type legacyAnswer struct {
	Choices     []legacyChoice `json:"choices"`
	Created     int64          `json:"created"`
	Model       string         `json:"model"`
	Fingerprint string         `json:"system_fingerprint"`
	Object      string         `json:"object"`
	Usage       *usageView     `json:"usage,omitempty"`
	ID          string         `json:"id"`
	Timings     *timingsView   `json:"timings,omitempty"`
	Progress    *progressView  `json:"prompt_progress,omitempty"`
}

func (l *legacyResponder) chunks(e batch.Event) []any {
	j := l.job
	c := legacyChoice{Index: e.Index, Text: e.Text}
	switch e.Kind {
	case batch.Text:
		c.Logprobs = l.logprobs(e.Pieces)
	case batch.Done:
		reason := finishReason(e.Result.Stop)
		c.FinishReason = &reason
	default:
		if j.progress(e) == nil {
			return nil
		}
	}
	v := l.envelope(c)
	v.Timings, v.Progress = j.chunkTimings(e), j.progress(e)
	return []any{v}
}

func (l *legacyResponder) logprobs(pieces []batch.Piece) *legacyView {
	if !l.job.set.Logprobs || len(pieces) == 0 {
		return nil
	}
	return newLegacyView(pieces, l.job.s.vocab)
}

// closing is the usage, for those who asked for it.
func (l *legacyResponder) closing() []any {
	if !l.job.set.includeUsage {
		return nil
	}
	v := l.envelope()
	usage := l.job.usage()
	v.Usage, v.Timings = &usage, l.job.timings()
	return []any{v}
}

func (l *legacyResponder) marked() bool { return true }

func (l *legacyResponder) whole() any {
	v := l.envelope()
	for i := range l.job.answers {
		a, text := &l.job.answers[i], &l.texts.whole[i]
		reason := finishReason(a.result.Stop)
		v.Choices = append(v.Choices, legacyChoice{
			Text: text.String(), Index: i, Logprobs: l.logprobs(text.pieces), FinishReason: &reason,
		})
	}
	usage := l.job.usage()
	v.Usage, v.Timings = &usage, l.job.timings()
	return v
}

func (l *legacyResponder) envelope(choices ...legacyChoice) legacyAnswer {
	j := l.job
	if j.id == "" {
		j.id = newID("cmpl-")
	}
	if choices == nil {
		choices = []legacyChoice{}
	}
	return legacyAnswer{
		Choices: choices, Created: j.created, Model: j.s.cfg.Alias, Fingerprint: j.s.fingerprint(),
		Object: "text_completion", ID: j.id,
	}
}
