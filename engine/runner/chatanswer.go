package runner

import (
	"onebit/engine/batch"
	"onebit/engine/chat"
)

// chatResponder forms the answers of /v1/chat/completions.
type chatResponder struct {
	job       *job
	choices   []chatState
	reasoning int // tokens of thinking
}

// chatState is what is known of one choice.
type chatState struct {
	splitter *chat.Splitter
	begun    bool          // the role was sent
	unsorted int           // tokens since the last delta
	pieces   []batch.Piece // of which no log-probabilities were sent yet
	whole    chat.Answer
}

func newChatResponder(j *job, c *conversation) *chatResponder {
	r := &chatResponder{job: j, choices: make([]chatState, len(j.tasks))}
	j.id = newID("chatcmpl-")
	options := chat.SplitOptions{Prompt: joined(c.parts), Reasoning: c.reasoning, Tools: c.tools}
	for i := range r.choices {
		r.choices[i].splitter = j.s.parts.Template.Splitter(options)
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

func (c *chatResponder) chunks(e batch.Event) []any {
	st := &c.choices[e.Index]
	var list []chatAnswer
	if e.Kind == batch.Text || e.Kind == batch.Done || c.job.progress(e) != nil {
		list = c.opening(list, e)
	}
	before := len(list)
	for _, d := range c.split(st, e) {
		list = append(list, c.chunk(e, newDeltaView(d)))
	}
	added := len(list) > before
	if e.Kind == batch.Done {
		list = append(list, c.ending(st, e))
	}
	if last := len(list) - 1; last >= 0 {
		if len(st.pieces) > 0 && (added || e.Kind == batch.Done) {
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
func (c *chatResponder) keep(e batch.Event) {
	st := &c.choices[e.Index]
	st.whole.Add(c.split(st, e)...)
}

// opening adds the chunk with the role, before the text of each choice. Progress
// has chunks of its own, with the role too, as llama-server's have: so whoever
// leaves them out loses nothing.
func (c *chatResponder) opening(list []chatAnswer, e batch.Event) []chatAnswer {
	st := &c.choices[e.Index]
	if st.begun {
		return list
	}
	st.begun = c.job.progress(e) == nil
	return append(list, c.chunk(e, deltaView{Role: "assistant", Content: new(string)}))
}

// ending is the last chunk of a choice.
func (c *chatResponder) ending(st *chatState, e batch.Event) chatAnswer {
	v := c.chunk(e, deltaView{})
	reason := st.splitter.Finish(finishReason(e.Result.Stop))
	v.Choices[0].FinishReason = &reason
	return v
}

// split sorts the text of an event and counts what is thinking: tokens belong to
// the text that they make certain.
func (c *chatResponder) split(st *chatState, e batch.Event) []chat.Delta {
	var deltas []chat.Delta
	switch e.Kind {
	case batch.Text:
		deltas = st.splitter.Push(e.Text)
	case batch.Done:
		deltas = st.splitter.Close()
	}
	st.unsorted += len(e.Pieces)
	if last := len(deltas) - 1; last >= 0 {
		if deltas[last].Reasoning != "" {
			c.reasoning += st.unsorted
		}
		st.unsorted = 0
	}
	if c.job.set.Logprobs {
		st.pieces = append(st.pieces, e.Pieces...)
	}
	return deltas
}

// logprobs describes the tokens since the last call.
func (c *chatResponder) logprobs(st *chatState) *logprobsView {
	v := &logprobsView{Content: probViews(st.pieces, c.job.s.vocab)}
	st.pieces = nil
	return v
}

// newDeltaView gives a delta its form in a stream.
func newDeltaView(d chat.Delta) deltaView {
	v := deltaView{Reasoning: d.Reasoning}
	if d.Content != "" {
		v.Content = &d.Content
	}
	if d.Call == nil {
		return v
	}
	call := callView{Index: &d.Call.Index, ID: d.Call.ID, Function: callBody{Name: d.Call.Name, Arguments: d.Call.Arguments}}
	if d.Call.Name != "" {
		call.Type = "function"
	}
	v.Calls = []callView{call}
	return v
}

func (c *chatResponder) chunk(e batch.Event, delta deltaView) chatAnswer {
	v := c.envelope("chat.completion.chunk")
	v.Choices = []chatChoice{{Index: e.Index, Delta: &delta}}
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
		reason := st.splitter.Finish(finishReason(a.result.Stop))
		choice := chatChoice{Index: i, Message: st.message(), FinishReason: &reason}
		if c.job.set.Logprobs {
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

// message is the whole message.
func (st *chatState) message() *messageView {
	m := &messageView{Role: "assistant", Reasoning: st.whole.Reasoning}
	for _, call := range st.whole.Calls {
		m.Calls = append(m.Calls, callView{
			ID: call.ID, Type: "function", Function: callBody{Name: call.Name, Arguments: call.Arguments},
		})
	}
	if st.whole.Content != "" || len(m.Calls) == 0 {
		m.Content = &st.whole.Content
	}
	return m
}

func (c *chatResponder) envelope(object string) chatAnswer {
	j := c.job
	return chatAnswer{
		Created: j.created, ID: j.id, Model: j.s.cfg.Alias, Fingerprint: j.s.fingerprint(), Object: object,
	}
}
