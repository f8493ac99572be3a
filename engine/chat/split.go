package chat

import (
	"crypto/rand"
	"strings"
)

// Delta is a step of a model's answer: one of the three is set.
type Delta struct {
	Content   string
	Reasoning string
	Call      *CallDelta
}

// CallDelta is a step of a tool call. The first of a call has its ID and Name and no Arguments; those that follow
// have pieces of Arguments, JSON text, alone.
type CallDelta struct {
	Index     int // distinct for each call of an answer, from 0
	ID        string
	Name      string
	Arguments string
}

// SplitOptions say how an answer is to be taken apart.
type SplitOptions struct {
	// Prompt is the rendered prompt; its end says whether the model's turn begins inside its thoughts.
	Prompt string
	// Reasoning keeps the model's thoughts apart from its answer. Without it their tags are text like any other.
	Reasoning bool
	// Tools are the names of the request's tools. Without any, calls are text.
	Tools []string
	// NewID makes the id of a call; nil means random ones.
	NewID func() string
}

// Splitter takes a model's text apart as it comes: thoughts, answer, tool calls in the form that the model's
// template declares. Nothing is lost: what turns out to be no call is text. How the text is cut into pieces makes no
// difference to the whole. A Splitter serves one answer and one goroutine.
type Splitter struct {
	tags   tags // empty when thoughts are not kept apart
	format callFormat
	tools  []string
	newID  func() string

	state splitState
	buf   string  // not yet decided
	fresh bool    // no text since the start or the last call
	trim  bool    // whitespace before the text to come is dropped
	calls int     // begun
	call  *caller // state inCalls
	out   []Delta
}

// whitespace is what may stand around thoughts and calls.
const whitespace = " \t\n\r\f\v"

type splitState uint8

const (
	beforeThoughts splitState = iota
	inThoughts
	inAnswer
	inCalls
)

// Splitter starts on an answer.
func (t *Template) Splitter(o SplitOptions) *Splitter {
	s := &Splitter{state: inAnswer, fresh: true, newID: o.NewID, tools: o.Tools}
	if len(o.Tools) > 0 {
		s.format = t.traits.calls
	}
	if s.newID == nil {
		s.newID = func() string { return "call_" + rand.Text() }
		if s.format == mistralCalls { // whose templates take only ids of nine letters and digits
			s.newID = func() string { return rand.Text()[:9] }
		}
	}
	if o.Reasoning && t.Thinks() {
		s.tags, s.trim, s.state = t.traits.reasoning, true, beforeThoughts
		if th := t.Thoughts(o.Prompt); th.Begun {
			s.state = inThoughts
		}
	}
	return s
}

// Thoughts says how a model's thoughts stand before its answer; Open and Close are empty where a template knows none.
type Thoughts struct {
	Open, Close string
	Begun       bool // the prompt ends with Open
	Over        bool // the prompt ends with Close: the model is not to think
}

// Thoughts says it of an answer to a rendered prompt.
func (t *Template) Thoughts(prompt string) Thoughts {
	if !t.Thinks() {
		return Thoughts{}
	}
	tags, end := t.traits.reasoning, strings.TrimRight(prompt, whitespace)
	return Thoughts{tags.open, tags.close, strings.HasSuffix(end, tags.open), strings.HasSuffix(end, tags.close)}
}

// Thinks says whether the template knows thoughts, text of the model's that is not part of its answer.
func (t *Template) Thinks() bool { return t.traits.reasoning.close != "" }

// Markers are the texts that a Splitter of this template looks for. Where they are control tokens of the model, they
// must be part of the text that it is given.
func (t *Template) Markers() []string {
	var all []string
	if t.Thinks() {
		all = append(all, t.traits.reasoning.open, t.traits.reasoning.close)
	}
	return append(all, markers[t.traits.calls]...)
}

// Push takes the next piece of text and returns what is certain by now. The result is valid until the next call.
func (s *Splitter) Push(text string) []Delta { return s.run(text, false) }

// Close returns what was held back at the end of the text.
func (s *Splitter) Close() []Delta { return s.run("", true) }

func (s *Splitter) run(text string, last bool) []Delta {
	s.out = s.out[:0]
	s.buf += text
	for s.advance(last) {
	}
	return s.out
}

// advance does one step and says whether another may follow.
func (s *Splitter) advance(last bool) bool {
	switch s.state {
	case beforeThoughts:
		return s.awaitThoughts(last)
	case inThoughts:
		return s.thoughts(last)
	case inAnswer:
		return s.answer(last)
	}
	return s.call.advance(last)
}

// awaitThoughts decides at the start of the text whether it opens with thoughts.
func (s *Splitter) awaitThoughts(last bool) bool {
	rest := strings.TrimLeft(s.buf, whitespace)
	after, found := strings.CutPrefix(rest, s.tags.open)
	switch {
	case found:
		s.state, s.buf = inThoughts, after
	case !last && strings.HasPrefix(s.tags.open, rest):
		return false
	default:
		s.state = inAnswer
	}
	return true
}

func (s *Splitter) thoughts(last bool) bool {
	if s.fresh {
		s.buf = strings.TrimLeft(s.buf, whitespace)
		if after, found := strings.CutPrefix(s.buf, s.tags.open); found { // the prompt has opened them already
			s.buf = after
			return true
		}
		if !last && strings.HasPrefix(s.tags.open, s.buf) {
			return false
		}
	}
	before, after, found := strings.Cut(s.buf, s.tags.close)
	if found {
		s.emit(Delta{Reasoning: before})
		s.state, s.buf, s.fresh = inAnswer, after, true
		return true
	}
	hold := 0
	if !last {
		hold = partial(s.buf, s.tags.close)
	}
	s.emit(Delta{Reasoning: s.buf[:len(s.buf)-hold]})
	s.fresh = s.fresh && len(s.buf) == hold
	s.buf = s.buf[len(s.buf)-hold:]
	return false
}

// partial is how many bytes at the end of s may be the beginning of tag.
func partial(s, tag string) int {
	for n := min(len(tag)-1, len(s)); n > 0; n-- {
		if strings.HasSuffix(s, tag[:n]) {
			return n
		}
	}
	return 0
}

// answer passes text on up to the next call.
func (s *Splitter) answer(last bool) bool {
	rest := strings.TrimLeft(s.buf, whitespace)
	trigger := triggers[s.format]
	switch {
	case s.fresh && rest == "" && !last:
		return false
	case s.fresh && trigger != "" && strings.HasPrefix(rest, trigger):
		s.begin(len(s.buf)-len(rest), trigger)
		return true
	case s.fresh && s.format == llamaCalls && s.calls == 0 && strings.HasPrefix(rest, "{"):
		s.begin(len(s.buf)-len(rest), "")
		return true
	case s.fresh && trigger != "" && strings.HasPrefix(trigger, rest) && !last:
		return false
	}
	if s.fresh && (s.trim || rest == "" && s.calls > 0) {
		s.buf = rest
	}
	s.trim = s.trim && s.buf == ""
	s.fresh = s.fresh && s.buf == ""
	if at := strings.Index(s.buf, trigger); trigger != "" && at >= 0 {
		s.emit(Delta{Content: s.buf[:at]})
		s.buf = s.buf[at:]
		s.begin(0, trigger)
		return true
	}
	hold := 0
	if trigger != "" && !last {
		hold = partial(s.buf, trigger)
	}
	s.emit(Delta{Content: s.buf[:len(s.buf)-hold]})
	s.buf = s.buf[len(s.buf)-hold:]
	return false
}

// begin starts on calls that follow some whitespace and the trigger.
func (s *Splitter) begin(space int, trigger string) {
	s.state = inCalls
	s.call = &caller{Splitter: s, bare: trigger == ""}
	if s.trim {
		s.buf, space = s.buf[space:], 0
	}
	s.call.take(space + len(trigger))
}

// end goes back to the answer. Text that was held for a call, which it turned out not to be, is passed on.
func (s *Splitter) end(text string) {
	s.state, s.call, s.fresh = inAnswer, nil, text == ""
	if text != "" {
		s.trim = false
		s.emit(Delta{Content: text})
	}
}

// emit adds to the result, to the last step where that is of the same kind.
func (s *Splitter) emit(d Delta) {
	if d == (Delta{}) {
		return
	}
	if n := len(s.out) - 1; n >= 0 && d.Call == nil && s.out[n].Call == nil && (s.out[n].Content != "") == (d.Content != "") {
		s.out[n].Content += d.Content
		s.out[n].Reasoning += d.Reasoning
		return
	}
	s.out = append(s.out, d)
}

// Finish is the finish reason of an answer for which the engine gives reason, "stop" or "length": an answer that
// ends by itself with calls in it has stopped for those.
func (s *Splitter) Finish(reason string) string {
	if reason == "stop" && s.calls > 0 {
		return "tool_calls"
	}
	return reason
}

// Answer is a whole answer.
type Answer struct {
	Content   string
	Reasoning string
	Calls     []Call
}

// Call is a whole tool call. Arguments are JSON text as the model wrote it.
type Call struct{ ID, Name, Arguments string }

// Add takes the next steps of the answer.
func (a *Answer) Add(deltas ...Delta) {
	for _, d := range deltas {
		a.Content += d.Content
		a.Reasoning += d.Reasoning
		if d.Call == nil {
			continue
		}
		for d.Call.Index >= len(a.Calls) {
			a.Calls = append(a.Calls, Call{})
		}
		c := &a.Calls[d.Call.Index]
		c.ID += d.Call.ID
		c.Name += d.Call.Name
		c.Arguments += d.Call.Arguments
	}
}
