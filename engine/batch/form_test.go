package batch_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"onebit/engine/batch"
	"onebit/engine/grammar"
	"onebit/engine/model"
)

// matcher follows a grammar over the fake vocabulary.
func matcher(t *testing.T, gbnf string) *grammar.Matcher {
	t.Helper()
	form, err := grammar.GBNF(gbnf)
	if err != nil {
		t.Fatal(err)
	}
	v := vocabulary{}
	g, err := grammar.Compile(form, grammar.NewVocabulary(vocabSize, func(id int32) []byte { return v.Piece(id, false) }, v.IsEOG))
	if err != nil {
		t.Fatal(err)
	}
	return g.Matcher()
}

// formed runs a task with a form.
func (f *fixture) formed(form *grammar.Matcher, o batch.Options, sampling model.SamplerConfig) *call {
	f.t.Helper()
	c := &call{gone: make(chan struct{}), done: make(chan struct{})}
	box := batch.NewMailbox()
	if err := f.s.Submit(&batch.Task{Prompt: encode("q:"), Options: &o, Sampling: sampling, Gone: c.gone, Box: box, Form: form}); err != nil {
		f.t.Fatal(err)
	}
	go c.collect(box)
	<-c.done
	return c
}

func TestForms(t *testing.T) {
	any := batch.Options{Slot: -1, MaxTokens: -1}
	never := func(ids ...int32) (c model.SamplerConfig) {
		for _, id := range ids {
			c.LogitBias = append(c.LogitBias, model.Bias{ID: id, Bias: float32(math.Inf(-1))})
		}
		return c
	}
	tests := []struct {
		name, reply, gbnf string
		options           batch.Options
		sampling          model.SamplerConfig
		want              string
		stop              batch.Stop
	}{
		{"as the model would have it", "yes", `root ::= "yes" | "no"`, any, never(), "yes", batch.StopEOS},
		{"against its wish", "maybe", `root ::= "yes"`, any, never(), "yes", batch.StopEOS},
		{"no end before there is one", "y", `root ::= "yes"`, any, never(), "yes", batch.StopEOS},
		{"an end where there may be more", "aa", `root ::= "a"+`, any, never(), "aa", batch.StopEOS},
		{"no end is needed where nothing may follow", "yes, indeed", `root ::= "yes"`, any, never(end), "yes", batch.StopEOS},
		{"cut by the limit", "yes", `root ::= "yes"`, batch.Options{Slot: -1, MaxTokens: 2}, never(), "ye", batch.StopLimit},
		{"whole at the limit", "yes", `root ::= "yes"`, batch.Options{Slot: -1, MaxTokens: 3}, never(), "yes", batch.StopEOS},
		{"a stop string", "yes", `root ::= "yes"`, batch.Options{Slot: -1, MaxTokens: -1, Stop: []string{"e"}}, never(), "y", batch.StopWord},
		{"a bias within the form", "yes", `root ::= "yes" | "no"`, any, never('y'), "no", batch.StopEOS},
		{"with probabilities", "yes", `root ::= "no"`, batch.Options{Slot: -1, MaxTokens: -1, Logprobs: true, TopLogprobs: 2}, never(), "no", batch.StopEOS},
		{"characters of many bytes", "x", `root ::= "é€" [^a-z]`, batch.Options{Slot: -1, MaxTokens: 6}, never(0), "é€\x01", batch.StopEOS},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, &fakeEngine{next: say(encode(tt.reply)...)}, 1, 64, func(f *fixture) {
				c := f.formed(matcher(t, tt.gbnf), tt.options, tt.sampling)
				if c.last.Kind != batch.Done || c.text != tt.want || c.last.Result.Stop != tt.stop {
					t.Errorf("kind %v, text %q, result %+v, error %v", c.last.Kind, c.text, c.last.Result, c.last.Err)
				}
			})
		})
	}
}

// Where the request forbids what the form needs, the answer fails: it does not go on without the form.
func TestFormThatNothingFits(t *testing.T) {
	for _, temperature := range []float32{0, 1} {
		bubble(t, &fakeEngine{next: say(encode("yes")...)}, 1, 64, func(f *fixture) {
			c := f.formed(matcher(t, `root ::= "yes"`), batch.Options{Slot: -1, MaxTokens: -1}, model.SamplerConfig{
				Temperature: temperature, LogitBias: []model.Bias{{ID: 'e', Bias: float32(math.Inf(-1))}}})
			if c.last.Kind != batch.Failed || !errors.Is(c.last.Err, batch.ErrForm) {
				t.Errorf("kind %v, error %v", c.last.Kind, c.last.Err)
			}
			if d := f.run("q:", -1); d.text != "yes" { // the slot is free
				t.Errorf("then %q", d.text)
			}
		})
	}
}

// A form that takes too much to follow ends its own answer alone.
func TestFormBeyondItsBounds(t *testing.T) {
	var b strings.Builder
	b.WriteString(`root ::= "a" ([a-z] | `)
	for i := range 3000 {
		if i > 0 {
			b.WriteString(" | ")
		}
		b.WriteString(`[a-y]* "x" [a-z]{0,40}`)
	}
	b.WriteString(`)*`)
	bubble(t, &fakeEngine{next: say(encode(strings.Repeat("ax", 20))...)}, 1, 128, func(f *fixture) {
		form, err := grammar.GBNF(b.String())
		if err != nil {
			t.Fatal(err)
		}
		v := vocabulary{}
		g, err := grammar.Compile(form, grammar.NewVocabulary(vocabSize, func(id int32) []byte { return v.Piece(id, false) }, v.IsEOG))
		if err == nil {
			c := f.formed(g.Matcher(), batch.Options{Slot: -1, MaxTokens: -1}, model.SamplerConfig{})
			err = c.last.Err
		}
		if _, ok := errors.AsType[*grammar.LimitError](err); !ok {
			t.Errorf("%v", err)
		}
	})
}

// Where temperature alone shapes the draw, each token comes as often as its probability among those that are allowed says.
func TestFormKeepsProbabilities(t *testing.T) {
	weights := map[int32]float64{'a': 0.5, 'b': 0.25, 'c': 0.15, 'd': 0.1}
	e := &fakeEngine{}
	logits := func() []float32 {
		out := make([]float32, vocabSize)
		for i := range out {
			out[i] = -50
		}
		for id, w := range weights {
			out[id] = float32(math.Log(w))
		}
		return out
	}
	e.custom = func([]int32) []float32 { return logits() }
	const n = 4000
	counts := map[string]int{}
	bubble(t, e, 1, 64, func(f *fixture) {
		for i := range n {
			c := f.formed(matcher(t, `root ::= [bcd]`), batch.Options{Slot: -1, MaxTokens: -1}, model.SamplerConfig{Temperature: 1, TopP: 1, Seed: uint64(i)})
			counts[c.text]++
		}
	})
	for text, want := range map[string]float64{"b": 0.5, "c": 0.3, "d": 0.2} {
		if got := float64(counts[text]) / n; math.Abs(got-want) > 0.03 {
			t.Errorf("%s came in %.3f, want %.3f", text, got, want)
		}
	}
}
