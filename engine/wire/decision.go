package wire

import (
	"encoding/json"
	"strings"
)

// Limits of a request of decisions.
const (
	MaxQuestions = 400
	MaxChoices   = 255 // options of one question
	MaxLevels    = 10  // of a score in the form of System One; OpenAI's has MaxChoices
)

// Ask is the type of a question.
type Ask int

// The types.
const (
	Predicate Ask = iota + 1 // how likely a statement is true; System One says noul
	Choice                   // which of some options
	Score                    // where on a ladder of levels
)

// Decisions are typed questions about a text, in whichever form they came.
type Decisions struct {
	Model     string
	State     string   // the text; what was no text is JSON
	Images    []string // addresses
	Questions []Question
	SystemOne bool // the form that it came in, and that the answer has
}

// Question is one of them.
type Question struct {
	ID           string // of System One, or OpenAI's name
	Named        bool   // there is an ID
	Ask          Ask
	Instructions string
	Options      []Option // the choices, or the levels, lowest first; of a predicate none, or what true and then false mean
}

// Option is one answer that a question may have.
type Option struct {
	Text        string
	Description string // may be empty
	Bool        bool   // OpenAI's value is a boolean; Text is its name
}

// Answer is what came of one question.
type Answer struct {
	Refused       bool
	Probabilities []float64 // of each option, in order; of a predicate two, true and false
}

// DecisionUsage counts tokens.
type DecisionUsage struct {
	Input, Cached int
}

// Best returns the likeliest option.
func (a Answer) Best() int {
	best := 0
	for i, p := range a.Probabilities {
		if p > a.Probabilities[best] {
			best = i
		}
	}
	return best
}

// Confidence is how far the likeliest option stands out: 0 when all are equally likely, 1 when one is certain.
func (a Answer) Confidence() float64 {
	if len(a.Probabilities) < 2 {
		return 1
	}
	even := 1 / float64(len(a.Probabilities))
	return min(max((a.Probabilities[a.Best()]-even)/(1-even), 0), 1)
}

// Level is the level of a score, weighted by probability. The lowest level is 0.
func (a Answer) Level() float64 {
	sum := 0.0
	for i, p := range a.Probabilities {
		sum += float64(i) * p
	}
	return sum
}

// AppendAnswers appends the answer to d in the form that d came in. The method says how the probabilities were made.
func (d *Decisions) AppendAnswers(dst []byte, answers []Answer, u DecisionUsage, method string) []byte {
	dst = append(dst, `{"model":`...)
	dst = appendString(dst, d.Model)
	dst = append(dst, `,"method":`...)
	dst = appendString(dst, method)
	open, shut := byte('['), byte(']')
	if d.SystemOne {
		open, shut = '{', '}'
	}
	dst = append(append(dst, `,"answers":`...), open)
	for i, a := range answers {
		if i > 0 {
			dst = append(dst, ',')
		}
		if d.SystemOne {
			dst = append(appendString(dst, d.Questions[i].ID), ':')
			dst = append(dst, encodeAnswer(d.Questions[i].systemOne(a))...)
		} else {
			dst = append(dst, encodeAnswer(d.Questions[i].openAI(a))...)
		}
	}
	dst = append(append(dst, shut), `,"usage":`...)
	type in struct {
		Cached int `json:"cached_tokens"`
		Write  int `json:"cache_write_tokens"`
	}
	type out struct {
		Reasoning int `json:"reasoning_tokens"`
	}
	usage := struct {
		Input  int `json:"input_tokens"`
		In     in  `json:"input_tokens_details"`
		Output int `json:"output_tokens"`
		Out    out `json:"output_tokens_details"`
		Total  int `json:"total_tokens"`
	}{Input: u.Input, In: in{Cached: u.Cached}, Total: u.Input}
	return append(append(dst, encodeAnswer(usage)...), '}')
}

// encodeAnswer writes a value of ours, of strings and finite numbers.
func encodeAnswer(v any) []byte {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return []byte("null") // cannot be: all numbers are finite
	}
	return []byte(strings.TrimSuffix(b.String(), "\n"))
}

// value is an option as OpenAI's form has it.
func (o Option) value() any {
	if o.Bool {
		return o.Text == "true"
	}
	return o.Text
}

// openAI is an answer in OpenAI's form.
func (q *Question) openAI(a Answer) any {
	type named struct {
		Type string  `json:"type"`
		Name *string `json:"name"`
	}
	head := named{}
	if q.Named {
		head.Name = &q.ID
	}
	if a.Refused {
		head.Type = "refusal"
		return head
	}
	switch q.Ask {
	case Predicate:
		head.Type = "predicate"
		return struct {
			named
			Probability float64 `json:"probability"`
		}{head, a.Probabilities[0]}
	case Score:
		type level struct {
			Value       int     `json:"value"`
			Label       string  `json:"label"`
			Probability float64 `json:"probability"`
		}
		head.Type = "score"
		all := make([]level, len(q.Options))
		for i, o := range q.Options {
			all[i] = level{i, o.Text, a.Probabilities[i]}
		}
		return struct {
			named
			Score         float64 `json:"score"`
			Confidence    float64 `json:"confidence"`
			Probabilities []level `json:"probabilities"`
		}{head, a.Level(), a.Confidence(), all}
	}
	type option struct {
		Value       any     `json:"value"`
		Probability float64 `json:"probability"`
	}
	head.Type = "choice"
	all := make([]option, len(q.Options))
	for i, o := range q.Options {
		all[i] = option{o.value(), a.Probabilities[i]}
	}
	return struct {
		named
		Choice        any      `json:"choice"`
		Confidence    float64  `json:"confidence"`
		Probabilities []option `json:"probabilities"`
	}{head, q.Options[a.Best()].value(), a.Confidence(), all}
}

// ordered is an object whose members keep their order.
type ordered []member

type member struct {
	key   string
	value any
}

// MarshalJSON implements json.Marshaler.
func (o ordered) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i, m := range o {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(appendString(out, m.key), ':')
		out = append(out, encodeAnswer(m.value)...)
	}
	return append(out, '}'), nil
}
