package runner

import "strings"

// chatResponder forms the answers of /v1/chat/completions.
type chatResponder struct {
	job       *job
	choices   []chatState
	reasoning int // tokens of thinking
}

// chatState is what is known of one choice.
type chatState struct {
	splitter Splitter
	begun    bool    // the role was sent
	called   bool    // there was a tool call
	pieces   []piece // of which no log-probabilities were sent yet

	content, thought strings.Builder // of an unstreamed answer
	calls            []callView
}

func newChatResponder(j *job, c *conversation) *chatResponder {
	r := &chatResponder{job: j, choices: make([]chatState, len(j.tasks))}
	j.id = newID("chatcmpl-")
	for i := range r.choices {
		r.choices[i].splitter = j.s.parts.Template.Split(c.text(), c.tools, c.reasoning)
	}
	return r
}

// callView is a tool call, whole or a piece of one. Later pieces have neither
// ID, Type nor Name.
type callView struct {
	Index    *int     `json:"index,omitempty"`
	ID       string   `json:"id,omitempty"`
	Type     string   `json:"type,omitempty"`
	Function callBody `json:"function"`
}

type callBody struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

// deltaView is what a chunk adds to a message.
type deltaView struct {
	Role      string     `json:"role,omitempty"`
	Content   *string    `json:"content,omitempty"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	Calls     []callView `json:"tool_calls,omitempty"`
}

// messageView is a whole message. Content is null beside tool calls without text.
type messageView struct {
	Role      string     `json:"role"`
	Content   *string    `json:"content"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	Calls     []callView `json:"tool_calls,omitempty"`
}

type logprobsView struct {
	Content []probView `json:"content"`
}

type chatChoice struct {
	Index        int           `json:"index"`
	Delta        *deltaView    `json:"delta,omitempty"`
	Message      *messageView  `json:"message,omitempty"`
	Logprobs     *logprobsView `json:"logprobs,omitempty"`
	FinishReason *string       `json:"finish_reason"`
}

type chatAnswer struct {
	Choices     []chatChoice  `json:"choices"`
	Created     int64         `json:"created"`
	ID          string        `json:"id"`
	Model       string        `json:"model"`
	Fingerprint string        `json:"system_fingerprint"`
	Object      string        `json:"object"`
	Usage       *usageView    `json:"usage,omitempty"`
	Timings     *timingsView  `json:"timings,omitempty"`
	Progress    *progressView `json:"prompt_progress,omitempty"`
}

func (c *chatResponder) chunks(e event) []any {
	st := &c.choices[e.index]
	var list []chatAnswer
	if e.kind == eventText || e.kind == eventDone || c.job.progress(e) != nil {
		list = c.opening(list, e)
	}
	before := len(list)
	for _, d := range c.split(st, e) {
		for _, view := range deltaViews(d) {
			list = append(list, c.chunk(e, view))
		}
	}
	added := len(list) > before
	if e.kind == eventDone {
		list = append(list, c.ending(st, e))
	}
	if last := len(list) - 1; last >= 0 {
		if len(st.pieces) > 0 && (added || e.kind == eventDone) {
			list[last].Choices[0].Logprobs = c.logprobs(st)
		}
		list[last].Timings, list[last].Progress = c.job.chunkTimings(e), c.job.progress(e)
	}
	out := make([]any, len(list))
	for i := range list {
		out[i] = list[i]
	}
	return out
}

// keep adds an event to the whole message.
func (c *chatResponder) keep(e event) {
	st := &c.choices[e.index]
	st.keep(c.split(st, e))
}

// opening adds the chunk with the role, once for each choice. Progress has
// chunks of its own.
func (c *chatResponder) opening(list []chatAnswer, e event) []chatAnswer {
	st := &c.choices[e.index]
	delta := deltaView{}
	if !st.begun {
		delta.Role = "assistant"
		delta.Content = new(string)
	} else if c.job.progress(e) == nil {
		return list
	}
	st.begun = true
	return append(list, c.chunk(e, delta))
}

// ending is the last chunk of a choice.
func (c *chatResponder) ending(st *chatState, e event) chatAnswer {
	v := c.chunk(e, deltaView{})
	reason := c.finishReason(st, e.result)
	v.Choices[0].FinishReason = &reason
	return v
}

func (c *chatResponder) finishReason(st *chatState, r *result) string {
	reason := r.stop.finishReason()
	if reason == "stop" && st.called {
		return "tool_calls"
	}
	return reason
}

// split sorts the text of an event and counts what is thinking.
func (c *chatResponder) split(st *chatState, e event) []Delta {
	var deltas []Delta
	switch e.kind {
	case eventText:
		deltas = st.splitter.Push(e.text)
	case eventDone:
		deltas = st.splitter.Flush()
	}
	thought := false
	for _, d := range deltas {
		st.called = st.called || d.Tool != nil
		thought = thought || d.Reasoning != ""
	}
	if thought {
		c.reasoning += len(e.pieces)
	}
	if c.job.set.logprobs {
		st.pieces = append(st.pieces, e.pieces...)
	}
	return deltas
}

// logprobs describes the tokens since the last call.
func (c *chatResponder) logprobs(st *chatState) *logprobsView {
	v := &logprobsView{Content: probViews(st.pieces, c.job.s.vocab)}
	st.pieces = nil
	return v
}

// deltaViews gives a delta its form in a stream. The first piece of a tool call
// has no arguments yet.
func deltaViews(d Delta) []deltaView {
	if d.Tool == nil {
		v := deltaView{Reasoning: d.Reasoning}
		if d.Content != "" {
			v.Content = &d.Content
		}
		return []deltaView{v}
	}
	var views []deltaView
	index := d.Tool.Index
	if d.Tool.Name != "" {
		views = append(views, deltaView{Calls: []callView{{
			Index: &index, ID: d.Tool.ID, Type: "function", Function: callBody{Name: d.Tool.Name},
		}}})
	}
	if d.Tool.Arguments != "" {
		views = append(views, deltaView{Calls: []callView{{Index: &index, Function: callBody{Arguments: d.Tool.Arguments}}}})
	}
	return views
}

func (c *chatResponder) chunk(e event, delta deltaView) chatAnswer {
	v := c.envelope("chat.completion.chunk")
	v.Choices = []chatChoice{{Index: e.index, Delta: &delta}}
	return v
}

// closing is the usage, for those who asked for it.
func (c *chatResponder) closing() []any {
	if !c.job.set.includeUsage {
		return nil
	}
	v := c.envelope("chat.completion.chunk")
	v.Choices = []chatChoice{}
	v.Usage, v.Timings = c.usage(), c.job.timings()
	return []any{v}
}

func (c *chatResponder) marked() bool { return true }

func (c *chatResponder) whole() any {
	v := c.envelope("chat.completion")
	for i := range c.job.answers {
		a, st := &c.job.answers[i], &c.choices[i]
		reason := c.finishReason(st, a.result)
		choice := chatChoice{Index: i, Message: st.message(), FinishReason: &reason}
		if c.job.set.logprobs {
			choice.Logprobs = c.logprobs(st)
		}
		v.Choices = append(v.Choices, choice)
	}
	v.Usage, v.Timings = c.usage(), c.job.timings()
	return v
}

func (c *chatResponder) usage() *usageView {
	u := c.job.usage()
	u.CompletionDetails = &completionDetails{ReasoningTokens: c.reasoning}
	return &u
}

// keep adds deltas to the whole message.
func (st *chatState) keep(deltas []Delta) {
	for _, d := range deltas {
		st.content.WriteString(d.Content)
		st.thought.WriteString(d.Reasoning)
		if d.Tool == nil {
			continue
		}
		for len(st.calls) <= d.Tool.Index {
			st.calls = append(st.calls, callView{Type: "function"})
		}
		call := &st.calls[d.Tool.Index]
		call.ID += d.Tool.ID
		call.Function.Name += d.Tool.Name
		call.Function.Arguments += d.Tool.Arguments
	}
}

func (st *chatState) message() *messageView {
	m := &messageView{Role: "assistant", Reasoning: st.thought.String(), Calls: st.calls}
	if text := st.content.String(); text != "" || len(st.calls) == 0 {
		m.Content = &text
	}
	return m
}

func (c *chatResponder) envelope(object string) chatAnswer {
	j := c.job
	return chatAnswer{
		Created: j.created, ID: j.id, Model: j.s.cfg.Alias, Fingerprint: j.s.fingerprint(), Object: object,
	}
}
