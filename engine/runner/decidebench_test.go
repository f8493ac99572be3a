package runner_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"onebit/engine/runner"
)

// labelled is a text of the labelled set with its questions.
type labelled struct {
	Text      string
	Questions []struct {
		Type, Instructions string
		Choices, Levels    []string
		Answer             any
	}
}

// readLabelled reads a labelled set: decisions, on which the way of asking was chosen, or decisions_held_out, on which
// nothing was.
func readLabelled(tb testing.TB, name string) (set []labelled) {
	tb.Helper()
	b, err := os.ReadFile("testdata/" + name + ".jsonl")
	if err != nil {
		tb.Fatal(err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		var l labelled
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			tb.Fatal(err)
		}
		set = append(set, l)
	}
	return set
}

// options are the texts of a question's options, and which of them is right.
func (l labelled) options(i int) (options []string, right int) {
	q := l.Questions[i]
	answer := fmt.Sprint(q.Answer)
	switch q.Type {
	case "predicate":
		options = []string{"true", "false"}
	case "choice":
		options = q.Choices
	default:
		options = q.Levels
	}
	for o := range options {
		if options[o] == answer {
			return options, o
		}
	}
	panic("the answer is none of the options: " + answer)
}

// systemOne is a request for all questions of a text.
func (l labelled) systemOne() string {
	questions := map[string]any{}
	for i, q := range l.Questions {
		one := map[string]any{"type": q.Type, "instructions": q.Instructions}
		switch q.Type {
		case "predicate":
			one["type"] = "noul"
		case "choice":
			criteria := bytes.NewBufferString("{") // in their order
			for o, c := range q.Choices {
				if o > 0 {
					criteria.WriteByte(',')
				}
				fmt.Fprintf(criteria, "%s:null", short(c))
			}
			criteria.WriteByte('}')
			one["criteria"] = json.RawMessage(criteria.Bytes())
		case "score":
			one["criteria"] = q.Levels
		}
		questions[fmt.Sprint(i)] = one
	}
	return short(map[string]any{"state": l.Text, "questions": questions})
}

// real is a server of a model file without a network.
type real struct {
	tb     testing.TB
	runner *runner.Runner
}

func startReal(tb testing.TB, file string) real {
	tb.Helper()
	r, err := runner.New(runner.Config{Model: file, Context: 4096, Parallel: 2, Listener: newQuietListener()})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(tb.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		<-done
	})
	s := real{tb, r}
	for {
		rec := httptest.NewRecorder()
		r.Handler().ServeHTTP(rec, httptest.NewRequestWithContext(tb.Context(), "GET", "/health", nil))
		if rec.Code == 200 {
			return s
		}
		select {
		case err := <-done:
			tb.Fatal(err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// post returns a decoded answer and the time it took.
func (s real) post(path, body string) (map[string]any, time.Duration) {
	s.tb.Helper()
	rec := httptest.NewRecorder()
	begin := time.Now()
	s.runner.Handler().ServeHTTP(rec, httptest.NewRequestWithContext(s.tb.Context(), "POST", path, strings.NewReader(body)))
	took := time.Since(begin)
	if rec.Code != 200 {
		s.tb.Fatalf("%s: %d %s", path, rec.Code, rec.Body)
	}
	return reply{rec.Code, rec.Header(), rec.Body.Bytes()}.json(s.tb), took
}

// probabilities of a question's options.
func probabilities(answer any, options []string) []float64 {
	if p, ok := dig(answer, "noul").(float64); ok {
		return []float64{p, 1 - p}
	}
	score := dig(answer, "type") == "score"
	p := make([]float64, len(options))
	for i := range options {
		key := options[i]
		if score {
			key = fmt.Sprint(i)
		}
		p[i], _ = dig(answer, "probabilities", key).(float64)
	}
	return p
}

// tally is how well a way of asking did.
type tally struct {
	right, all map[string]int
	logs       [][]float64 // log-probabilities of each question's options, the right one first
	took       time.Duration
}

func (t *tally) note(kind string, p []float64, right int) {
	if t.right == nil {
		t.right, t.all = map[string]int{}, map[string]int{}
	}
	best := 0
	for i := range p {
		if p[i] > p[best] {
			best = i
		}
	}
	t.all[kind]++
	if best == right {
		t.right[kind]++
	}
	logs := []float64{math.Log(max(p[right], 1e-300))}
	for i := range p {
		if i != right {
			logs = append(logs, math.Log(max(p[i], 1e-300)))
		}
	}
	t.logs = append(t.logs, logs)
}

// fit returns the temperature at which the right options are likeliest, and their mean negative log-probability at 1 and there.
func (t *tally) fit() (temperature, before, after float64) {
	loss := func(temperature float64) float64 {
		sum := 0.0
		for _, logs := range t.logs {
			total := 0.0
			for _, x := range logs {
				total += math.Exp((x - logs[0]) / temperature)
			}
			sum += math.Log(total)
		}
		return sum / float64(len(t.logs))
	}
	temperature = 1
	for x := 0.2; x < 20; x *= 1.02 {
		if loss(x) < loss(temperature) {
			temperature = x
		}
	}
	return temperature, loss(1), loss(temperature)
}

func (t *tally) String() string {
	right, all := 0, 0
	var parts []string
	for _, kind := range []string{"predicate", "choice", "score"} {
		right, all = right+t.right[kind], all+t.all[kind]
		parts = append(parts, fmt.Sprintf("%s %d/%d", kind, t.right[kind], t.all[kind]))
	}
	return fmt.Sprintf("%d of %d right (%s), %v", right, all, strings.Join(parts, ", "), t.took.Round(time.Millisecond))
}

// judge asks the labelled set.
func (s real) judge(set []labelled) *tally {
	t := &tally{}
	for _, l := range set {
		v, took := s.post("/v1/systemone", l.systemOne())
		t.took += took
		for i := range l.Questions {
			options, right := l.options(i)
			t.note(l.Questions[i].Type, probabilities(dig(v, "answers", fmt.Sprint(i)), options), right)
		}
	}
	return t
}

// judgeJSON asks the same model to write the answers as JSON, each question by itself on the same cached text.
func (s real) judgeJSON(set []labelled) *tally {
	t := &tally{}
	for _, l := range set {
		for i, q := range l.Questions {
			options, right := l.options(i)
			content := "Read this text.\n\n" + l.Text + "\n\nAnswer a question about the text with nothing but a JSON object like {\"answer\": \"...\"}.\n\n" +
				q.Instructions + " The answer is one of: " + strings.Join(options, ", ") + "."
			v, took := s.post("/v1/chat/completions", short(map[string]any{
				"messages": []any{map[string]any{"role": "user", "content": content}}, "temperature": 0, "max_tokens": 40,
			}))
			t.took += took
			text, _ := dig(v, "choices", 0, "message", "content").(string)
			t.note(q.Type, said(text, options), right)
		}
	}
	return t
}

// said gives the option that a JSON answer names the probability 1; none when it names none.
func said(text string, options []string) []float64 {
	p := make([]float64, len(options)+1)
	from, to := strings.Index(text, "{"), strings.LastIndex(text, "}")
	var answer struct{ Answer any }
	if from >= 0 && to > from && json.Unmarshal([]byte(text[from:to+1]), &answer) == nil {
		for i, o := range options {
			if strings.EqualFold(strings.TrimSpace(fmt.Sprint(answer.Answer)), o) {
				p[i] = 1
				return p
			}
		}
	}
	p[len(options)] = 1
	return p
}

// BenchmarkDecide prints how ways of asking do on the labelled set, beside asking for JSON, and what questions cost.
func BenchmarkDecide(b *testing.B) {
	file := os.Getenv("ONEBIT_DECIDE_MODEL")
	if file == "" {
		b.Fatal("ONEBIT_DECIDE_MODEL is not the path of a model file: run `make bench-decide`")
	}
	set, heldOut := readLabelled(b, "decisions"), readLabelled(b, "decisions_held_out")
	s := startReal(b, file)
	ways := []runner.Asking{runner.Asked}
	if os.Getenv("ONEBIT_DECIDE_WAYS") != "" {
		for _, in := range []bool{false, true} {
			ways = append(ways,
				runner.Asking{Orders: 1, Temperature: 1, InAnswer: in}, runner.Asking{Orders: 2, Temperature: 1, InAnswer: in},

				runner.Asking{Letters: true, Orders: 1, Temperature: 1, InAnswer: in}, runner.Asking{Letters: true, Orders: 2, Temperature: 1, InAnswer: in})
		}
	}
	for b.Loop() {
		for _, how := range ways {
			s.runner.Ask(how)
			t := s.judge(set)
			temperature, before, after := t.fit()
			b.Logf("%v; in the model's turn: %v\n  %v; log loss %.3f, at %.2f times the temperature %.3f", how, how.InAnswer, t, before, temperature, after)
		}
		s.runner.Ask(runner.Asked)
		s.cost(b)
		b.Logf("written as JSON\n  %v", s.judgeJSON(set))
		b.Logf("held out: asked as above %v; written as JSON %v", s.judge(heldOut), s.judgeJSON(heldOut))
	}
}

// letterTo writes a text of about 1,000 tokens that no other number has.
func letterTo(n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Case %d, from the customer's file.\n", n)
	for i := range 17 {
		fmt.Fprintf(&b, "On day %d of order %d I wrote to you about the lamp that came with a broken foot. A parcel with a new foot was promised, but what came was a box of screws. I would like the foot, or my money back.\n", i+1, 7000+n+i)
	}
	return b.String()
}

// twenty are questions of all types.
func twenty() string {
	var list []string
	for _, q := range []string{
		"Is it about a lamp?", "Is the lamp broken?", "Is the customer angry?", "Was a refund asked for?", "Did screws arrive?", "Is it about a car?",
		"Was a promise broken?", "Is the customer new?", "Is it a complaint?", "Is it urgent?", "Is it polite?", "Is a name given?",
	} {
		list = append(list, fmt.Sprintf(`{"type":"predicate","instructions":%q}`, q))
	}
	for _, q := range []string{"Which team?", "What arrived?", "What is missing?", "What is wanted?"} {
		list = append(list, fmt.Sprintf(`{"type":"choice","instructions":%q,"choices":[{"value":"screws"},{"value":"foot"},{"value":"money"}]}`, q))
	}
	for _, q := range []string{"How urgent?", "How angry?", "How long?", "How clear?"} {
		list = append(list, fmt.Sprintf(`{"type":"score","instructions":%q,"levels":[{"label":"low"},{"label":"some"},{"label":"high"}]}`, q))
	}
	return "[" + strings.Join(list, ",") + "]"
}

// cost compares 20 questions about a text with the text's prefill alone, each on texts that the cache does not have, and
// with the same questions to the cached text, in turn.
func (s real) cost(b *testing.B) {
	var whole, cached []float64
	var tokens, prompt float64
	for n := range 12 {
		text := func() time.Duration {
			body := short(map[string]any{"messages": []any{map[string]string{"role": "user", "content": letterTo(1000 * n)}}, "n_predict": 0, "max_tokens": 0})
			_, took := s.post("/v1/chat/completions", body)
			return took
		}
		var plain time.Duration
		if n%2 == 0 { // each comes first as often as the other
			plain = text()
		}
		body := fmt.Sprintf(`{"input":%s,"questions":%s}`, short(letterTo(1000*n+500)), twenty())
		v, all := s.post("/v1/decisions", body)
		if n%2 == 1 {
			plain = text()
		}
		_, again := s.post("/v1/decisions", body)
		tokens, _ = dig(v, "usage", "input_tokens").(float64)
		one, _ := s.post("/v1/decisions", fmt.Sprintf(`{"input":%s,"questions":[{"type":"predicate","instructions":"x"}]}`, short(letterTo(1000*n+500))))
		prompt, _ = dig(one, "usage", "input_tokens").(float64)
		whole, cached = append(whole, all.Seconds()/plain.Seconds()), append(cached, again.Seconds()/plain.Seconds())
	}
	slices.Sort(whole)
	slices.Sort(cached)
	half := len(whole) / 2
	b.Logf("20 questions about %.0f tokens: %.0f tokens in all; %.2f of the text's prefill with it (%.2f to %.2f), %.2f once it is cached (%.2f to %.2f)",
		prompt, tokens, (whole[half-1]+whole[half])/2, whole[0], whole[len(whole)-1], cached[half], cached[0], cached[len(cached)-1])
}
