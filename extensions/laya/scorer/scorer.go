// Package scorer lets others than the built-in module classify requests: any module, a decision model that a llama-server serves,
// and the daemon of the reference. All of them stand behind one interface.
package scorer

import (
	"context"
	"errors"
	"fmt"
	"math"

	"onebit/extensions/abi"
	"onebit/extensions/laya"
	"onebit/extensions/payload"
)

// Answer is a class with how sure the scorer is of it, 0 to 1. What the number means is the scorer's: the built-in module's is a
// calibrated probability, decision models answer one minus the entropy of theirs. Scores may be nil.
type Answer struct {
	Class      string
	Confidence float64
	Scores     map[string]float64
}

// Scorer classifies what a user wrote. It is safe for concurrent use; an error leaves the request unclassified.
type Scorer interface {
	Score(ctx context.Context, text string) (Answer, error)
}

// ErrNoOpinion says that the scorer had nothing to say.
var ErrNoOpinion = errors.New("no opinion")

// Wordings is how many ways there are of putting the question to a decision model. The first is the usual one.
const Wordings = 3

// wordings have the definitions in the order in which they are written down, which weighs.
var wordings = [Wordings]wording{
	{"Which kind of answer does this request need?", [3]criterion{
		{laya.Code.String(), "asks to write, change, explain, debug, test or configure software, or how to do a programming task"},
		{laya.Prose.String(), "a good answer is a paragraph or more: explain, describe, compare, advise, plan, compose"},
		{laya.Short.String(), "a good answer is a sentence or less: a fact, a definition, a conversion, the translation of a phrase, yes or no, small talk"},
	}},
	{"What is asked for?", [3]criterion{
		{laya.Code.String(), "software: code, a command, a query, a configuration, or help with one"},
		{laya.Prose.String(), "a longer text: an explanation, a story, a letter, a plan, a comparison"},
		{laya.Short.String(), "a short reply: a fact, a word, a number, a name, a translation, yes or no, a greeting"},
	}},
	{"How long and of what kind will the best answer be?", [3]criterion{
		{laya.Code.String(), "mostly program code or commands"},
		{laya.Prose.String(), "several sentences of ordinary language"},
		{laya.Short.String(), "at most one sentence of ordinary language"},
	}},
}

type wording struct {
	instructions string
	criteria     [3]criterion
}

type criterion struct{ class, definition string }

// long answers for what is a document by its length; nobody is asked.
func long(text string) (Answer, bool) {
	if len(text) < laya.LongBytes {
		return Answer{}, false
	}
	return Answer{Class: laya.LongDoc.String(), Confidence: 1, Scores: map[string]float64{laya.LongDoc.String(): 1}}, true
}

// choice is how decision models answer a question of type choice.
type choice struct {
	Choice        string             `json:"choice"`
	Confidence    *float64           `json:"confidence"`
	Probabilities map[string]float64 `json:"probabilities"`
}

// answer checks a choice: a class that was offered, and numbers that are probabilities.
func (c *choice) answer() (Answer, error) {
	offered := false
	for _, k := range wordings[0].criteria {
		offered = offered || k.class == c.Choice
	}
	if !offered {
		return Answer{}, fmt.Errorf("the choice %.40q was not offered", c.Choice)
	}
	for class, p := range c.Probabilities {
		if !(p >= 0 && p <= 1) {
			return Answer{}, fmt.Errorf("the probability of %.40q is %v", class, p)
		}
	}
	a := Answer{Class: c.Choice, Scores: c.Probabilities}
	switch {
	case c.Confidence != nil:
		a.Confidence = *c.Confidence
	case len(c.Probabilities) > 1:
		a.Confidence = sureness(c.Probabilities)
	}
	if !(a.Confidence >= 0 && a.Confidence <= 1) {
		return Answer{}, fmt.Errorf("the confidence is %v", a.Confidence)
	}
	return a, nil
}

// sureness is one minus the entropy of probabilities, over its most.
func sureness(p map[string]float64) float64 {
	entropy := 0.0
	for _, v := range p {
		if v > 0 {
			entropy -= v * math.Log(v)
		}
	}
	return max(0, min(1, 1-entropy/math.Log(float64(len(p)))))
}

// Module asks a module through whoever runs it.
type Module struct {
	// Ask calls the module's laya_classify and returns its decision, read whole; nil for no opinion.
	Ask func(ctx context.Context, r *abi.Request) (*abi.Decision, error)
}

// Score implements Scorer.
func (m Module) Score(ctx context.Context, text string) (Answer, error) {
	head, tail := payload.Cut(text)
	d, err := m.Ask(ctx, &abi.Request{V: abi.Version, Turn: 1, Bytes: len(text), Head: head, Tail: tail})
	switch {
	case err != nil:
		return Answer{}, fmt.Errorf("asking the module: %w", err)
	case d == nil || d.Action == abi.ActionAbstain || d.Class == "":
		return Answer{}, ErrNoOpinion
	}
	return Answer{Class: d.Class, Confidence: d.Confidence, Scores: d.Scores}, nil
}
