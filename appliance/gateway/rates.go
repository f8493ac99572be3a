package gateway

import (
	"sync"
	"time"

	"onebit/engine"
	"onebit/engine/wire"
)

// rate is how fast a model is, in tokens a second; 0 while nobody has measured it.
type rate struct{ prompt, answer float64 }

const (
	newest      = 0.2 // the weight of the newest measurement
	leastPrompt = 32  // tokens that must have been computed to measure a prompt
	leastAnswer = 8   // and generated to measure an answer
)

// rates are the measured speeds of models. A restart forgets them: they are learned again with the first answers.
type rates struct {
	mu sync.Mutex
	of map[string]rate
}

func (r *rates) get(model string) rate {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of[model]
}

// note takes one measurement; what is 0 was not measured.
func (r *rates) note(model string, one rate) {
	if one == (rate{}) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[string]rate{}
	}
	old := r.of[model]
	r.of[model] = rate{mean(old.prompt, one.prompt), mean(old.answer, one.answer)}
}

func mean(old, one float64) float64 {
	switch {
	case one == 0:
		return old
	case old == 0:
		return one
	}
	return old + newest*(one-old)
}

// stopwatch measures one answer: by what the server says of it, else by when a stream's pieces come.
type stopwatch struct {
	begin, first time.Time
	said         wire.Timings
}

// over returns what takes the answer in its place.
func (s *stopwatch) over(emit func(engine.Chunk) error) func(engine.Chunk) error {
	s.begin = time.Now()
	return func(c engine.Chunk) error {
		if s.first.IsZero() {
			s.first = time.Now()
		}
		if t, ok := wire.TimingsOf(c.Raw); ok {
			s.said = t
		}
		return emit(c)
	}
}

// rate is what was measured of an answer that has ended now.
func (s *stopwatch) rate(streamed bool, u engine.Usage) (r rate) {
	if s.said != (wire.Timings{}) {
		if s.said.Prompt >= leastPrompt && s.said.PromptMs > 0 {
			r.prompt = float64(s.said.Prompt) / s.said.PromptMs * 1000
		}
		if s.said.Answer >= leastAnswer && s.said.AnswerMs > 0 {
			r.answer = float64(s.said.Answer) / s.said.AnswerMs * 1000
		}
		return r
	}
	if !streamed || s.first.IsZero() {
		return r
	}
	if n, took := u.Prompt-u.Cached, s.first.Sub(s.begin); n >= leastPrompt && took > 0 {
		r.prompt = float64(n) / took.Seconds()
	}
	if n, took := u.Completion-1, time.Since(s.first); n >= leastAnswer && took > 0 {
		r.answer = float64(n) / took.Seconds()
	}
	return r
}
