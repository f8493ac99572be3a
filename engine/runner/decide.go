package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"

	"onebit/engine"
	"onebit/engine/batch"
	"onebit/engine/chat"
	"onebit/engine/wire"
)

// asking is how questions are put to a chat model and its options scored.
type asking struct {
	Letters     bool    // options have letters, which are scored; else their own texts are
	Orders      int     // in how many orders they are listed: 1, or 2, the second backwards, and both averaged
	Mean        bool    // of a text of several tokens the mean of their log-probabilities counts; else the sum
	InAnswer    bool    // the question stands in the model's turn, which is shorter; else at the end of the user's
	Temperature float64 // the log-probabilities are divided by it
}

// asked is how it is done. appliance/decisions says what else was tried.
var asked = asking{Orders: 1, InAnswer: true, Temperature: 1.5}

// String says it in the answer.
func (a asking) String() string {
	by := "option texts, summed"
	switch {
	case a.Letters:
		by = "option letters"
	case a.Mean:
		by = "option texts, mean of tokens"
	}
	return fmt.Sprintf("chat model; %s; orders averaged: %d; temperature %.4g; not calibrated", by, a.Orders, a.Temperature)
}

// hearing is a request of decisions, read and turned into tokens.
type hearing struct {
	*wire.Decisions
	how      asking
	prompt   []int32
	branches []batch.Branch // the orders of the first question, then of the second, ...
	slot     int
	reuse    bool // what the slot holds already
}

// placed reads in which slot a request is to run.
func placed(body []byte) (slot int, reuse bool) {
	var at struct {
		Slot  *int  `json:"id_slot"`
		Reuse *bool `json:"cache_prompt"`
	}
	if json.Unmarshal(body, &at) != nil || at.Slot == nil || *at.Slot < 0 {
		return -1, at.Reuse == nil || *at.Reuse
	}
	return *at.Slot, at.Reuse == nil || *at.Reuse
}

// decide answers /v1/decisions and /v1/systemone.
func decide(read func([]byte) (*engine.Request, error)) action {
	return func(s *service, w http.ResponseWriter, r *http.Request) *problem {
		body, p := readBody(r)
		if p != nil {
			return p
		}
		req, err := read(body)
		if err != nil {
			return fromWire(err)
		}
		d, err := wire.ReadDecisions(req)
		if err != nil {
			return fromWire(err)
		}
		h, p := s.hear(r.Context(), d, s.asking)
		if p != nil {
			return p
		}
		h.slot, h.reuse = placed(body)
		scores, usage, p := s.score(r.Context(), h)
		if p != nil || scores == nil {
			return p
		}
		d.Model = s.cfg.Alias
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(d.AppendAnswers(nil, h.answers(scores), usage, h.how.String())) // a client that has gone needs no answer
		return nil
	}
}

// hear renders the text and the questions.
func (s *service) hear(ctx context.Context, d *wire.Decisions, how asking) (*hearing, *problem) {
	switch {
	case s.parts.Template == nil:
		return nil, badBody("this model cannot chat, so it cannot be asked: %s", s.parts.NoTemplate)
	case len(d.Images) > 0:
		member := "input"
		if d.SystemOne {
			member = "images"
		}
		p := unsupported(member, "this model reads no images")
		p.status, p.kind = http.StatusNotImplemented, typeUnsupported
		return nil, p
	}
	h := &hearing{Decisions: d, how: how}
	content := d.State + "\n\nAnswer questions with a word."
	if !how.InAnswer {
		content += "\n\n" + endMark
	}
	messages := encode([]map[string]string{{"role": "user", "content": content}})
	parts, err := s.parts.Template.Parts(ctx, chat.Input{
		Messages: messages, AddGenerationPrompt: true, Protect: s.vocab.controlsIn(encode(d.State)),
		Kwargs: []byte(`{"enable_thinking": false}`),
	})
	if err != nil {
		return nil, fromTemplate(err)
	}
	before, after := parts, []chat.Part(nil)
	if !how.InAnswer {
		var found bool
		if before, after, found = splitAtEnd(parts); !found {
			return nil, badBody("the model's chat template does not show what a user says")
		}
	}
	h.prompt = s.encodePrompt(before)
	for i := range d.Questions {
		for order := range how.Orders {
			b := s.branch(&d.Questions[i], how, order == 1, after)
			longest := 0
			for _, o := range b.Options {
				longest = max(longest, len(o))
			}
			if n := len(h.prompt) + len(b.Tokens) + longest; n > s.parts.Context {
				return nil, overflow(n, s.parts.Context)
			}
			h.branches = append(h.branches, b)
		}
	}
	return h, nil
}

// splitAtEnd returns the prompt before endMark, where it occurs last, and behind it.
func splitAtEnd(parts []chat.Part) (before, after []chat.Part, found bool) {
	for i := len(parts) - 1; i >= 0; i-- {
		if at := strings.LastIndex(parts[i].Text, endMark); at >= 0 {
			behind := parts[i]
			behind.Text = behind.Text[at+len(endMark):]
			after = append([]chat.Part{behind}, parts[i+1:]...)
			before = slices.Clone(parts[:i+1])
			before[i].Text = before[i].Text[:at]
			return before, after, true
		}
	}
	return nil, nil, false
}

// optionsOf are what a question may be answered with, a predicate with yes or no.
func optionsOf(q *wire.Question) []wire.Option {
	if q.Ask != wire.Predicate {
		return q.Options
	}
	options := []wire.Option{{Text: "Yes"}, {Text: "No"}}
	if len(q.Options) == 2 {
		options[0].Description, options[1].Description = q.Options[0].Description, q.Options[1].Description
	}
	return options
}

// branch is a question with its options in one of two orders, and how each may be answered.
func (s *service) branch(q *wire.Question, how asking, backwards bool, after []chat.Part) batch.Branch {
	options := optionsOf(q)
	marks := make([]string, len(options)) // what is scored, in the order of options
	var lines []string
	described := slices.ContainsFunc(options, func(o wire.Option) bool { return o.Description != "" || len(o.Text) > 40 })
	for at := range options {
		i := at
		if backwards {
			i = len(options) - 1 - at
		}
		o := options[i]
		line := o.Text
		if o.Description != "" {
			line += ": " + o.Description
		}
		if marks[i] = o.Text; how.Letters {
			marks[i] = letterOf(at)
			line = marks[i] + ") " + line
		}
		lines = append(lines, line)
	}
	question := q.Instructions
	switch { // options come first, so that questions with the same ones begin alike
	case how.Letters:
		question += "\n" + strings.Join(lines, "\n")
	case described:
		question = "Options:\n" + strings.Join(lines, "\n") + "\n" + question
	case q.Ask != wire.Predicate:
		question = "Options: " + strings.Join(lines, ", ") + ". " + question
	}
	lead := ""
	if how.InAnswer {
		question, lead = question+" =", " " // one token; longer leads cost each question more and are no better
	}
	b := batch.Branch{}
	parts := append([]chat.Part{{Text: question, Plain: len(s.vocab.controlsIn(encode(question))) > 0}}, after...)
	b.Tokens = s.vocab.encode(parts, false)
	for _, mark := range marks {
		ids := s.vocab.Encode(lead+mark, false, false)
		if len(ids) == 0 {
			ids = []int32{0}
		}
		b.Options = append(b.Options, ids)
	}
	return b
}

// letterOf names the option at a place: A to Z, then AA, AB and so on.
func letterOf(at int) string {
	if at < 26 {
		return string(rune('A' + at))
	}
	return letterOf(at/26-1) + letterOf(at%26)
}

// score asks the model. Without a problem, nil says that nobody waits any more.
func (s *service) score(ctx context.Context, h *hearing) ([][]float64, wire.DecisionUsage, *problem) {
	set := defaultSettings()
	set.CachePrompt, set.MaxTokens, set.Slot = h.reuse, 0, h.slot
	j, p := s.newJob(set, [][]int32{h.prompt})
	if p != nil {
		return nil, wire.DecisionUsage{}, p
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	j.tasks[0].Gone, j.tasks[0].Branches = ctx.Done(), h.branches
	if err := s.scheduler.Submit(j.tasks...); err != nil {
		return nil, wire.DecisionUsage{}, fromScheduler(err)
	}
	if p := j.collect(ctx, nothing{}); p != nil || j.open > 0 {
		return nil, wire.DecisionUsage{}, p
	}
	t := j.answers[0].state.Timings
	return j.answers[0].result.Scores, wire.DecisionUsage{Input: t.Prompt + t.Cached, Cached: t.Cached}, nil
}

// nothing is a responder for a job without texts.
type nothing struct{}

func (nothing) keep(batch.Event)         {}
func (nothing) chunks(batch.Event) []any { return nil }
func (nothing) closing() []any           { return nil }
func (nothing) whole() any               { return nil }
func (nothing) marked() bool             { return false }

// answers turns log-probabilities into those of the options alone.
func (h *hearing) answers(scores [][]float64) []wire.Answer {
	answers := make([]wire.Answer, len(h.Questions))
	for i := range answers {
		var sum []float64
		for order := range h.how.Orders {
			at := i*h.how.Orders + order
			for o, score := range scores[at] {
				if h.how.Mean {
					score /= float64(len(h.branches[at].Options[o]))
				}
				if order == 0 {
					sum = append(sum, score)
				} else {
					sum[o] += score
				}
			}
		}
		answers[i].Probabilities = softmax(sum, h.how.Temperature*float64(h.how.Orders))
	}
	return answers
}

// softmax returns probabilities in proportion to exp(x/t).
func softmax(x []float64, t float64) []float64 {
	top, sum := slices.Max(x), 0.0
	p := make([]float64, len(x))
	for i := range x {
		p[i] = math.Exp((x[i] - top) / t)
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}
