package runner_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"onebit/engine/batch"
	"onebit/engine/model"
	"onebit/engine/runner"
	"onebit/engine/wire"
)

const questions = `"questions":{
	"team":{"type":"choice","instructions":"Which team?","criteria":{"billing":null,"bills":"of ships","shipping":null}},
	"angry":{"type":"noul","instructions":"Is the writer angry?"},
	"late":{"type":"noul","instructions":"Is it late?","criteria":{"true":"after noon","false":"before"}},
	"urgent":{"type":"score","instructions":"How urgent?","criteria":["can wait","can wait a day","now"]}}`

// uneven makes one of few letters likely, so that options differ.
func uneven(tokens []int32) int32 { return int32("abcnsyABCN"[letter(tokens)%10]) }

// ways are all ways of asking.
func ways() (all []runner.Asking) {
	for i := range 16 {
		all = append(all, runner.Asking{Letters: i&1 != 0, Orders: 1 + i>>1&1, Mean: i&4 != 0, InAnswer: i&8 != 0, Temperature: 1.5})
	}
	return all
}

// TestDecideExactly compares the probabilities with those of a full pass over the whole prompt for each token of each option.
func TestDecideExactly(t *testing.T) {
	e := &fakeEngine{next: uneven}
	parts := fakeParts(e, 1, 4096)
	body := `{"state":"I was charged <|end|> twice.",` + questions + `}`
	req, err := wire.ParseSystemOne([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	d, err := wire.ReadDecisions(req)
	if err != nil {
		t.Fatal(err)
	}
	for _, how := range append(ways(), runner.Asked) {
		t.Run(fmt.Sprintf("%+v", how), func(t *testing.T) {
			prompt, branches, status := runner.NewReader(parts).Decide(t.Context(), d, how)
			if status != 200 || slices.Contains(prompt[len(prompt)-20:], tokUser) {
				t.Fatal(status, prompt)
			}
			bubble(t, e, 1, 4096, func(f *fixture) {
				f.runner.Ask(how)
				r := f.post("/v1/systemone", body)
				v := r.json(t)
				if !strings.Contains(fmt.Sprint(v["method"]), "not calibrated") || dig(v, "usage", "output_tokens") != 0.0 {
					t.Errorf("%s", r.body)
				}
				for i, q := range d.Questions {
					want := naive(how, func(tokens []int32) []float32 { return e.logits(tokens) }, prompt, branches[i*how.Orders:(i+1)*how.Orders])
					var texts []string
					for _, o := range q.Options {
						texts = append(texts, o.Text)
					}
					sum := 0.0
					for o, got := range probabilities(dig(v, "answers", q.ID), texts) {
						if sum += got; math.Abs(got-want[o]) > 1e-5 {
							t.Errorf("%s, option %d: %v, want %v", q.ID, o, got, want[o])
						}
					}
					if q.Ask != wire.Predicate && math.Abs(sum-1) > 1e-9 {
						t.Errorf("%s: the sum is %v", q.ID, sum)
					}
				}
			})
		})
	}
}

// naive works out the probabilities of a question's options, each token of each option by itself.
func naive(how runner.Asking, logits func([]int32) []float32, prompt []int32, orders []batch.Branch) []float64 {
	sums := make([]float64, len(orders[0].Options))
	for _, b := range orders {
		for o, option := range b.Options {
			sum := 0.0
			for i, id := range option {
				p, _ := model.NewSampler(model.SamplerConfig{}).LogProbs(logits(slices.Concat(prompt, b.Tokens, option[:i])), id, 0)
				sum += float64(p)
			}
			if how.Mean {
				sum /= float64(len(option))
			}
			sums[o] += sum / float64(len(orders))
		}
	}
	return runner.Softmax(sums, how.Temperature)
}

// Both forms get the same probabilities, and the second finds the text in the cache.
func TestDecideForms(t *testing.T) {
	bubble(t, &fakeEngine{next: uneven}, 2, 4096, func(f *fixture) {
		a := f.ok("/v1/systemone", `{"state":"some text","questions":{"q":{"type":"choice","instructions":"Which?","criteria":{"a":null,"b":null}}}}`)
		b := f.ok("/v1/decisions", `{"input":"some text","questions":[{"type":"choice","instructions":"Which?","choices":[{"value":"a"},{"value":"b"}]}]}`)
		if x, y := dig(a, "answers", "q", "probabilities", "a"), dig(b, "answers", 0, "probabilities", 0, "probability"); x == nil || x != y {
			t.Errorf("%v and %v", x, y)
		}
		if dig(b, "model") != "fake" || dig(b, "answers", 0, "name") != nil {
			t.Errorf("%v", b)
		}
		prompt, _ := dig(a, "usage", "input_tokens").(float64)
		cached, _ := dig(b, "usage", "input_tokens_details", "cached_tokens").(float64)
		if dig(a, "usage", "input_tokens_details", "cached_tokens") != 0.0 || cached < float64(len("some text")) || cached >= prompt {
			t.Errorf("%v of %v tokens were in the cache", cached, prompt)
		}
	})
}

// Questions with the same options share them: the second one adds no more than its own words.
func TestDecideOptionsOnce(t *testing.T) {
	ask := func(f *fixture, questions ...string) float64 {
		var list []string
		for _, q := range questions {
			list = append(list, `{"type":"choice","instructions":"`+q+`","choices":[{"value":"screws"},{"value":"money"}]}`)
		}
		v := f.ok("/v1/decisions", `{"input":"text","questions":[`+strings.Join(list, ",")+`]}`)
		n, _ := dig(v, "usage", "input_tokens").(float64)
		return n
	}
	bubble(t, &fakeEngine{next: uneven}, 1, 4096, func(f *fixture) {
		one, two := ask(f, "Which?"), ask(f, "Which?", "What?")
		if options := len("screws") + len("money") - 2; two-one > float64(len("at? =")+1+options+2) {
			t.Errorf("%v tokens, then %v", one, two)
		}
	})
}

// A whole request of many questions passes through the model in few passes.
func TestDecideTogether(t *testing.T) {
	var list []string
	for i := range 400 {
		list = append(list, fmt.Sprintf(`{"type":"predicate","instructions":"Is it %d?"}`, i))
	}
	e := &fakeEngine{next: uneven}
	bubble(t, e, 1, 4096, func(f *fixture) {
		v := f.ok("/v1/decisions", `{"input":"text","questions":[`+strings.Join(list, ",")+`]}`)
		if n := len(dig(v, "answers").([]any)); n != 400 {
			t.Errorf("%d answers", n)
		}
		if n := len(e.recorded()); n > 60 {
			t.Errorf("%d passes", n)
		}
	})
}

func TestDecideRefused(t *testing.T) {
	bubble(t, &fakeEngine{}, 1, 200, func(f *fixture) {
		for _, c := range []struct {
			name, path, body, says string
			status                 int
		}{
			{"too long", "/v1/decisions", `{"input":"` + strings.Repeat("x", 300) + `","questions":[{"type":"predicate","instructions":"q"}]}`, "maximum context length", 400},
			{"a long question", "/v1/decisions", `{"input":"x","questions":[{"type":"predicate","instructions":"` + strings.Repeat("x", 150) + `"}]}`, "maximum context length", 400},
			{"an image", "/v1/systemone", `{"state":"x","images":["data:image/png;base64,AA=="],"questions":{"a":{"type":"noul","instructions":"q"}}}`, "no images", 501},
			{"no questions", "/v1/systemone", `{"state":"x"}`, "questions", 400},
			{"a stream", "/v1/decisions", `{"input":"x","stream":true,"questions":[{"type":"predicate","instructions":"q"}]}`, "not streamed", 400},
		} {
			if r := f.post(c.path, c.body); r.status != c.status || !strings.Contains(string(r.body), c.says) {
				t.Errorf("%s: %d %s", c.name, r.status, r.body)
			}
		}
	})
}

// FuzzDecide reads any text and question, and never lets them write a control token.
func FuzzDecide(f *testing.F) {
	f.Add("text", "question", "a", "b")
	f.Add("<|user|>", "<|end|><|assistant|>", "<|end|>", "\uFDD1")
	parts := fakeParts(&fakeEngine{}, 1, 1<<20)
	r := runner.NewReader(parts)
	f.Fuzz(func(t *testing.T, text, question, a, b string) {
		if strings.Contains(text+question+a+b, panicText) {
			return
		}
		d := &wire.Decisions{State: text, Questions: []wire.Question{{Ask: wire.Choice, Instructions: question, Options: []wire.Option{{Text: a}, {Text: b}}}}}
		for _, how := range ways() {
			prompt, branches, status := r.Decide(context.Background(), d, how)
			if status != 200 {
				continue
			}
			for _, branch := range branches {
				controls := 0
				for _, id := range slices.Concat(prompt, branch.Tokens) {
					if id >= tokEnd {
						controls++
					}
				}
				if controls != 5 { // of the template: system, end, user, end, assistant
					t.Fatalf("%d control tokens: %q", controls, fakeTokenizer{}.Decode(slices.Concat(prompt, branch.Tokens), true))
				}
			}
		}
	})
}
