package wire_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onebit/engine"
	"onebit/engine/wire"
)

func readDecisions(kind engine.Kind, body string) (*wire.Decisions, error) {
	parse := wire.ParseDecision
	if kind == engine.SystemOne {
		parse = wire.ParseSystemOne
	}
	req, err := parse([]byte(body))
	if err != nil {
		return nil, err
	}
	return wire.ReadDecisions(req)
}

const openAIForm = `{"model":"m","input":"It rains.","prompt_cache_key":"k","questions":[
	{"type":"predicate","instructions":"Is it wet?","name":"wet"},
	{"type":"choice","instructions":[{"type":"input_text","text":"What is it?"},{"type":"input_json","data":{"a":[1]}}],"choices":[{"value":"rain","description":"water"},{"value":true},{"value":"true"}]},
	{"type":"score","instructions":"How much?","levels":[{"label":"a bit"},{"label":"much","description":"floods"}]}]}`

const systemOneForm = `{"model":"m","state":{"weather": "rain"},"questions":{
	"wet":{"type":"noul","instructions":"Is it wet?","criteria":{"true":"water falls","false":null}},
	"what":{"type":"choice","instructions":["What"],"criteria":{"snow":null,"rain":"water","1":null}},
	"much":{"type":"score","instructions":"How much?","criteria":["a bit","much"]}}}`

func TestDecisions(t *testing.T) {
	for _, c := range []struct {
		name, in string
		kind     engine.Kind
		want     wire.Decisions
	}{
		{"OpenAI's form", openAIForm, engine.Decision, wire.Decisions{Model: "m", State: "It rains.", Questions: []wire.Question{
			{ID: "wet", Named: true, Ask: wire.Predicate, Instructions: "Is it wet?"},
			{Ask: wire.Choice, Instructions: "What is it?\n{\"a\":[1]}", Options: []wire.Option{{Text: "rain", Description: "water"}, {Text: "true", Bool: true}, {Text: "true"}}},
			{Ask: wire.Score, Instructions: "How much?", Options: []wire.Option{{Text: "a bit"}, {Text: "much", Description: "floods"}}},
		}}},
		{"System One's form", systemOneForm, engine.SystemOne, wire.Decisions{Model: "m", State: `{"weather": "rain"}`, SystemOne: true, Questions: []wire.Question{
			{ID: "wet", Named: true, Ask: wire.Predicate, Instructions: "Is it wet?", Options: []wire.Option{{Text: "true", Description: "water falls", Bool: true}, {Text: "false", Bool: true}}},
			{ID: "what", Named: true, Ask: wire.Choice, Instructions: `["What"]`, Options: []wire.Option{{Text: "snow"}, {Text: "rain", Description: "water"}, {Text: "1"}}},
			{ID: "much", Named: true, Ask: wire.Score, Instructions: "How much?", Options: []wire.Option{{Text: "a bit"}, {Text: "much"}}},
		}}},
		{"items", `{"input":[{"role":"system","content":"be kind"},{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"},{"type":"input_json","data":{"x":1}},{"type":"input_image","image_url":"data:image/png;base64,AA=="}]},
			{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":"4"}],"questions":[{"type":"predicate","instructions":"q"}]}`, engine.Decision,
			wire.Decisions{State: "system: be kind\n\nuser: hi\n{\"x\":1}\n\ncall of f: {}\n\nresult: 4", Images: []string{"data:image/png;base64,AA=="}, Questions: []wire.Question{{Ask: wire.Predicate, Instructions: "q"}}}},
		{"one message", `{"input":[{"role":"user","content":"hi"}],"questions":[{"type":"predicate","instructions":"q","name":""}]}`, engine.Decision,
			wire.Decisions{State: "hi", Questions: []wire.Question{{Named: true, Ask: wire.Predicate, Instructions: "q"}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := readDecisions(c.kind, c.in)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(&c.want, got); d != "" {
				t.Error(d)
			}
			if _, err := wire.Strict(c.kind, []byte(c.in)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestDecisionsRefused(t *testing.T) {
	one := func(q string) string { return `{"input":"x","questions":[` + q + `]}` }
	sys := func(q string) string { return `{"state":"x","questions":{"a":` + q + `}}` }
	many := func(n int, s string) string { return strings.TrimSuffix(strings.Repeat(s+",", n), ",") }
	options := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`{"value":"v%d"}`, i))
		}
		return strings.Join(all, ",")
	}
	predicate := `{"type":"predicate","instructions":"q"}`
	for _, c := range []struct {
		name, in, param string
		kind            engine.Kind
	}{
		{"no questions", `{"input":"x"}`, "questions", engine.Decision},
		{"none", `{"input":"x","questions":[]}`, "questions", engine.Decision},
		{"too many", one(many(401, predicate)), "questions", engine.Decision},
		{"no input", `{"questions":[` + predicate + `]}`, "input", engine.Decision},
		{"an empty input", `{"input":[],"questions":[` + predicate + `]}`, "input", engine.Decision},
		{"a stream", `{"input":"x","stream":true,"questions":[` + predicate + `]}`, "stream", engine.Decision},
		{"an unknown type", one(`{"type":"noul","instructions":"q"}`), "questions[0].type", engine.Decision},
		{"no instructions", one(`{"type":"predicate"}`), "questions[0].instructions", engine.Decision},
		{"one choice", one(`{"type":"choice","instructions":"q","choices":[{"value":"a"}]}`), "questions[0].choices", engine.Decision},
		{"256 choices", one(`{"type":"choice","instructions":"q","choices":[` + options(256) + `]}`), "questions[0].choices", engine.Decision},
		{"twins", one(`{"type":"choice","instructions":"q","choices":[{"value":"a"},{"value":"a"}]}`), "questions[0].choices", engine.Decision},
		{"a number for a choice", one(`{"type":"choice","instructions":"q","choices":[{"value":1},{"value":"a"}]}`), "questions[0].choices[0].value", engine.Decision},
		{"an empty choice", one(`{"type":"choice","instructions":"q","choices":[{"value":""},{"value":"a"}]}`), "questions[0].choices", engine.Decision},
		{"no levels", one(`{"type":"score","instructions":"q"}`), "questions[0].levels", engine.Decision},
		{"a result without its call", `{"input":[{"type":"function_call_output","call_id":"c","output":"x"}],"questions":[` + predicate + `]}`, "input[0].call_id", engine.Decision},
		{"an unknown item", `{"input":[{"type":"reasoning"}],"questions":[` + predicate + `]}`, "input[0].type", engine.Decision},
		{"no state", `{"questions":{"a":{"type":"noul","instructions":"q"}}}`, "state", engine.SystemOne},
		{"a number for a state", `{"state":3,"questions":{"a":{"type":"noul","instructions":"q"}}}`, "state", engine.SystemOne},
		{"a list of questions", `{"state":"x","questions":[]}`, "questions", engine.SystemOne},
		{"no question", `{"state":"x","questions":{}}`, "questions", engine.SystemOne},
		{"an id twice", `{"state":"x","questions":{"a":{"type":"noul","instructions":"q"},"\u0061":{"type":"noul","instructions":"q"}}}`, "questions", engine.SystemOne},
		{"a choice without criteria", sys(`{"type":"choice","instructions":"q"}`), "questions.a.criteria", engine.SystemOne},
		{"eleven levels", sys(`{"type":"score","instructions":"q","criteria":[` + many(11, `"l"`) + `]}`), "questions.a.criteria", engine.SystemOne},
		{"an option twice", sys(`{"type":"choice","instructions":"q","criteria":{"a":null,"a":"x"}}`), "questions.a.criteria", engine.SystemOne},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := readDecisions(c.kind, c.in)
			e, ok := errors.AsType[*engine.InvalidError](err)
			if !ok || !strings.HasPrefix(e.Param, c.param) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
	if _, err := readDecisions(engine.Decision, one(many(400, predicate))); err != nil {
		t.Error(err)
	}
}

var answers = []wire.Answer{{Probabilities: []float64{0.75, 0.25}}, {Probabilities: []float64{0.25, 0.5, 0.25}}, {Probabilities: []float64{0.25, 0.75}}}

func TestAnswersOpenAI(t *testing.T) {
	d, err := readDecisions(engine.Decision, openAIForm)
	if err != nil {
		t.Fatal(err)
	}
	got := string(d.AppendAnswers(nil, answers, wire.DecisionUsage{Input: 9, Cached: 4}, "how"))
	want := `{"model":"m","method":"how","answers":[{"type":"predicate","name":"wet","probability":0.75},` +
		`{"type":"choice","name":null,"choice":true,"confidence":0.25,"probabilities":[{"value":"rain","probability":0.25},{"value":true,"probability":0.5},{"value":"true","probability":0.25}]},` +
		`{"type":"score","name":null,"score":0.75,"confidence":0.5,"probabilities":[{"value":0,"label":"a bit","probability":0.25},{"value":1,"label":"much","probability":0.75}]}],` +
		`"usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":0},"output_tokens":0,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":9}}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if how := wire.MethodOf([]byte(got)); how != "how" {
		t.Errorf("the method %q", how)
	}
}

func TestAnswersSystemOne(t *testing.T) {
	d, err := readDecisions(engine.SystemOne, systemOneForm)
	if err != nil {
		t.Fatal(err)
	}
	refused := append(answers[:2:2], wire.Answer{Refused: true})
	got := string(d.AppendAnswers(nil, refused, wire.DecisionUsage{Input: 9}, "how"))
	want := `{"model":"m","method":"how","answers":{"wet":{"type":"noul","noul":0.75},` +
		`"what":{"type":"choice","choice":"rain","probabilities":{"snow":0.25,"rain":0.5,"1":0.25},"confidence":0.25},` +
		`"much":{"type":"refusal"}},`
	if !strings.HasPrefix(got, want) || !json.Valid([]byte(got)) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// OpenAI's form goes to a native model in the form of System One, and its answer comes back.
func TestThroughSystemOne(t *testing.T) {
	d, err := readDecisions(engine.Decision, openAIForm)
	if err != nil {
		t.Fatal(err)
	}
	there, err := readDecisions(engine.SystemOne, string(d.AppendSystemOne(nil)))
	if err != nil {
		t.Fatal(err)
	}
	if there.State != d.State || len(there.Questions) != 3 || there.Questions[1].Options[1].Text != "o1 true" || there.Questions[2].Options[1].Text != "much: floods" {
		t.Errorf("%+v", there)
	}
	raw := there.AppendAnswers(nil, answers, wire.DecisionUsage{Input: 9}, "")
	_, got, usage, err := d.AnswersFromSystemOne(raw)
	if err != nil || usage.Input != 9 {
		t.Fatal(err, usage)
	}
	if diff := cmp.Diff(answers, got); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{`{}`, `[]`, `{"answers":{"q0":{"type":"noul"}}}`, `{"answers":{"q0":{"noul":1},"q1":{"probabilities":{"rain":1}},"q2":{}}}`} {
		if _, _, _, err := d.AnswersFromSystemOne([]byte(bad)); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestConfidence(t *testing.T) {
	for _, c := range []struct {
		p                 []float64
		confidence, level float64
	}{
		{[]float64{0.25, 0.25, 0.25, 0.25}, 0, 1.5},
		{[]float64{0, 0, 1}, 1, 2},
		{[]float64{0.5, 0.5}, 0, 0.5},
		{[]float64{0.75, 0.25}, 0.5, 0.25},
	} {
		a := wire.Answer{Probabilities: c.p}
		if math.Abs(a.Confidence()-c.confidence) > 1e-9 || math.Abs(a.Level()-c.level) > 1e-9 {
			t.Errorf("%v: %v, %v", c.p, a.Confidence(), a.Level())
		}
	}
}

// What is read can be answered in its own form and passed on in the form of System One.
func FuzzDecisions(f *testing.F) {
	f.Add(openAIForm, false)
	f.Add(systemOneForm, true)
	f.Add(`{"input":[{"role":"user","content":[{"type":"input_json","data":{}}]}],"questions":[{"type":"choice","instructions":"","choices":[{"value":false},{"value":"false"}]}]}`, false)
	f.Fuzz(func(t *testing.T, in string, systemOne bool) {
		kind := engine.Decision
		if systemOne {
			kind = engine.SystemOne
		}
		d, err := readDecisions(kind, in)
		if err != nil {
			if _, ok := errors.AsType[*engine.InvalidError](err); !ok {
				t.Fatalf("%v", err)
			}
			return
		}
		all := make([]wire.Answer, len(d.Questions))
		for i, q := range d.Questions {
			n := len(q.Options)
			if q.Ask == wire.Predicate {
				n = 2
			}
			for range n {
				all[i].Probabilities = append(all[i].Probabilities, 1/float64(n))
			}
		}
		if raw := d.AppendAnswers(nil, all, wire.DecisionUsage{}, ""); !json.Valid(raw) {
			t.Fatalf("%s", raw)
		}
		passed := d.AppendSystemOne(nil)
		for i := range d.Questions {
			if len(d.Questions[i].Options) > wire.MaxLevels && d.Questions[i].Ask == wire.Score {
				return // more levels than that form has
			}
		}
		there, err := readDecisions(engine.SystemOne, string(passed))
		if err != nil {
			t.Fatalf("%v\n%s", err, passed)
		}
		if _, _, _, err := d.AnswersFromSystemOne(there.AppendAnswers(nil, all, wire.DecisionUsage{}, "")); err != nil {
			t.Fatalf("%v\n%s", err, passed)
		}
	})
}

// What a server answers is taken whole or not at all.
func FuzzSystemOneAnswer(f *testing.F) {
	f.Add(`{"answers":{"q0":{"type":"noul","noul":0.5},"q1":{"probabilities":{"rain":0.1,"o1 true":0.2,"o2 true":0.7}},"q2":{"probabilities":{"0":1,"1":0}}}}`)
	f.Add(`{"answers":{"q0":{"type":"refusal"}}}`)
	f.Fuzz(func(t *testing.T, in string) {
		d, err := readDecisions(engine.Decision, openAIForm)
		if err != nil {
			t.Fatal(err)
		}
		_, got, _, err := d.AnswersFromSystemOne([]byte(in))
		if err != nil {
			return
		}
		if raw := d.AppendAnswers(nil, got, wire.DecisionUsage{}, ""); !json.Valid(raw) {
			t.Fatalf("%s", raw)
		}
	})
}
