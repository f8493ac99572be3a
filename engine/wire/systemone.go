package wire

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// systemOne is an answer in the form of System One.
func (q *Question) systemOne(a Answer) any {
	if a.Refused {
		return ordered{{"type", "refusal"}}
	}
	switch q.Ask {
	case Predicate:
		return ordered{{"type", "noul"}, {"noul", a.Probabilities[0]}}
	case Score:
		var legend, all ordered
		for i, o := range q.Options {
			legend = append(legend, member{strconv.Itoa(i), o.Text})
			all = append(all, member{strconv.Itoa(i), a.Probabilities[i]})
		}
		return ordered{{"type", "score"}, {"score", a.Level()}, {"legend", legend}, {"probabilities", all}, {"confidence", a.Confidence()}}
	}
	var all ordered
	for i, o := range q.Options {
		all = append(all, member{o.Text, a.Probabilities[i]})
	}
	return ordered{{"type", "choice"}, {"choice", q.Options[a.Best()].Text}, {"probabilities", all}, {"confidence", a.Confidence()}}
}

// AppendSystemOne appends d as a request in the form of System One, which servers of native decision models take. Its
// questions are called q0, q1 and so on, its options o0, o1 and so on where two would have the same name.
func (d *Decisions) AppendSystemOne(dst []byte) []byte {
	questions := ordered{}
	for i := range d.Questions {
		q := &d.Questions[i]
		words := []string{"", "noul", "choice", "score"}
		one := ordered{{"type", words[q.Ask]}, {"instructions", q.Instructions}}
		switch q.Ask {
		case Predicate:
			if len(q.Options) == 2 {
				one = append(one, member{"criteria", ordered{{"true", q.Options[0].Description}, {"false", q.Options[1].Description}}})
			}
		case Choice:
			criteria := ordered{}
			for j, o := range q.Options {
				var description any
				if o.Description != "" {
					description = o.Description
				}
				criteria = append(criteria, member{q.key(j), description})
			}
			one = append(one, member{"criteria", criteria})
		case Score:
			levels := make([]string, len(q.Options))
			for j, o := range q.Options {
				if levels[j] = o.Text; o.Description != "" {
					levels[j] += ": " + o.Description
				}
			}
			one = append(one, member{"criteria", levels})
		}
		questions = append(questions, member{"q" + strconv.Itoa(i), one})
	}
	body := ordered{}
	if d.Model != "" {
		body = append(body, member{"model", d.Model})
	}
	body = append(body, member{"state", d.State})
	if len(d.Images) > 0 {
		body = append(body, member{"images", d.Images})
	}
	return append(dst, encodeAnswer(append(body, member{"questions", questions}))...)
}

// key is the name of an option towards a native model. A boolean and a text may read the same.
func (q *Question) key(i int) string {
	for j, o := range q.Options {
		if j != i && o.Text == q.Options[i].Text {
			return "o" + strconv.Itoa(i) + " " + o.Text
		}
	}
	return q.Options[i].Text
}

// AnswersFromSystemOne reads what a server answered to AppendSystemOne. What does not fit d is ErrMalformed.
func (d *Decisions) AnswersFromSystemOne(raw []byte) (model string, answers []Answer, u DecisionUsage, err error) {
	var said struct {
		Model   string `json:"model"`
		Answers map[string]struct {
			Type          string             `json:"type"`
			Noul          *float64           `json:"noul"`
			Probabilities map[string]float64 `json:"probabilities"`
		} `json:"answers"`
		Usage struct {
			Input int `json:"input_tokens"`
		} `json:"usage"`
	}
	if json.Unmarshal(raw, &said) != nil {
		return "", nil, u, fmt.Errorf("reading decisions: %w", ErrMalformed)
	}
	answers = make([]Answer, len(d.Questions))
	for i := range d.Questions {
		q, name := &d.Questions[i], "q"+strconv.Itoa(i)
		got, ok := said.Answers[name]
		switch {
		case !ok:
			return "", nil, u, fmt.Errorf("reading decisions: no answer to %s: %w", name, ErrMalformed)
		case got.Type == "refusal":
			answers[i].Refused = true
			continue
		case q.Ask == Predicate && got.Noul != nil && *got.Noul >= 0 && *got.Noul <= 1:
			answers[i].Probabilities = []float64{*got.Noul, 1 - *got.Noul}
			continue
		case q.Ask == Predicate:
			return "", nil, u, fmt.Errorf("reading decisions: %s has no noul: %w", name, ErrMalformed)
		}
		for j := range q.Options {
			key := strconv.Itoa(j)
			if q.Ask == Choice {
				key = q.key(j)
			}
			p, ok := got.Probabilities[key]
			if !ok || p < 0 || p > 1 {
				return "", nil, u, fmt.Errorf("reading decisions: %s lacks an option: %w", name, ErrMalformed)
			}
			answers[i].Probabilities = append(answers[i].Probabilities, p)
		}
	}
	return said.Model, answers, DecisionUsage{Input: max(said.Usage.Input, 0)}, nil
}
