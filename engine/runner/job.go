package runner

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"strings"
	"time"

	"onebit/engine"
	"onebit/engine/batch"
	"onebit/engine/grammar"
	"onebit/engine/wire"
)

const eventStream = "text/event-stream"

// maxTasks bounds the answers of one request.
const maxTasks = 1024

// job is one request under way: its tasks and what has come of them.
type job struct {
	s       *service
	set     *settings
	tasks   []*batch.Task // the choices of the first prompt, then of the second, ...
	answers []answer
	box     *batch.Mailbox
	id      string
	created int64 // Unix seconds
	open    int   // tasks that have not ended
}

// answer is where one task stands.
type answer struct {
	state  batch.Snapshot
	result *batch.Result // nil until the end
}

// responder gives answers their form. It sees every event but failures: through
// chunks when the request streams, else through keep.
type responder interface {
	// keep adds an event to the answers that whole returns.
	keep(e batch.Event)
	// chunks returns the objects to stream for an event.
	chunks(e batch.Event) []any
	// closing returns the last objects of a stream, after all tasks have ended.
	closing() []any
	// whole returns the answer to a request that does not stream.
	whole() any
	// marked reports whether a stream ends with OpenAI's mark.
	marked() bool
}

// newJob checks that the prompts fit and makes their tasks.
func (s *service) newJob(set settings, prompts [][]int32) (*job, *problem) {
	if set.Slot >= s.parts.Slots {
		return nil, invalid("id_slot", "there is no slot %d, only 0 to %d", set.Slot, s.parts.Slots-1)
	}
	if len(prompts)*set.choices > maxTasks {
		return nil, invalid("prompt", "%d prompts with %d answers each are more than %d answers", len(prompts), set.choices, maxTasks)
	}
	var p *problem
	j := &job{s: s, set: &set, box: batch.NewMailbox(), created: time.Now().Unix()}
	for _, prompt := range prompts {
		if len(prompt) >= s.parts.Context {
			return nil, overflow(len(prompt), s.parts.Context)
		}
		for range set.choices {
			t := &batch.Task{
				Index: len(j.tasks), Prompt: prompt, Options: &j.set.Options, Sampling: set.sampling, Box: j.box, Tag: j.set,
			}
			if t.Form, p = set.form.begin(); p != nil {
				return nil, p
			}
			t.Sampling.Seed += uint64(len(j.tasks)) // each its own, all from the one given
			j.tasks = append(j.tasks, t)
		}
	}
	j.answers = make([]answer, len(j.tasks))
	j.open = len(j.tasks)
	return j, nil
}

// answer runs the job and writes its answer. When the client goes, the tasks
// end with it.
func (j *job) answer(w http.ResponseWriter, r *http.Request, form responder) *problem {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	for _, t := range j.tasks {
		t.Gone = ctx.Done()
	}
	if err := j.s.scheduler.Submit(j.tasks...); err != nil {
		return fromScheduler(err)
	}
	if j.set.stream {
		return j.stream(ctx, &stream{w: w}, form)
	}
	if p := j.collect(ctx, form); p != nil || j.open > 0 {
		return p
	}
	writeJSON(w, http.StatusOK, form.whole())
	return nil
}

// texts collects plain answers.
type texts struct {
	job   *job
	whole []answerText // one for each task
}

type answerText struct {
	strings.Builder
	pieces []batch.Piece
}

func newTexts(j *job) texts { return texts{job: j, whole: make([]answerText, len(j.tasks))} }

func (t *texts) keep(e batch.Event) {
	a := &t.whole[e.Index]
	a.WriteString(e.Text)
	a.pieces = append(a.pieces, e.Pieces...)
}

// collect waits for all tasks to end. When the client goes, some stay open.
func (j *job) collect(ctx context.Context, form responder) *problem {
	for j.open > 0 {
		select {
		case <-ctx.Done():
			return nil
		case <-j.box.Ready():
		}
		for _, e := range j.box.Take() {
			if e.Kind == batch.Failed {
				return fromScheduler(e.Err)
			}
			j.note(e)
			form.keep(e)
		}
	}
	return nil
}

// note takes the state out of an event.
func (j *job) note(e batch.Event) {
	a := &j.answers[e.Index]
	a.state = e.State
	if e.Kind == batch.Done {
		a.result = e.Result
		j.open--
	}
}

// stream writes events as they come. The header goes out once a slot has taken
// the first task, or when the wait for that grows long: problems before that
// still have their status.
func (j *job) stream(ctx context.Context, st *stream, form responder) *problem {
	silence := time.NewTimer(max(j.set.ping, time.Second))
	defer silence.Stop()
	if j.set.ping == 0 {
		silence.Stop()
	}
	for j.open > 0 {
		select {
		case <-ctx.Done():
			return nil
		case <-silence.C:
			if st.ping() != nil {
				return nil
			}
		case <-j.box.Ready():
			if p, ok := j.relay(st, form); !ok {
				return p
			}
		}
		if j.set.ping > 0 {
			silence.Reset(j.set.ping)
		}
	}
	if st.send(form.closing()...) != nil {
		return nil
	}
	st.end(form.marked())
	return nil
}

// relay sends what is in the mailbox and reports whether the stream goes on. If
// not, it may return a problem, but only while the header has not gone out.
func (j *job) relay(st *stream, form responder) (*problem, bool) {
	for _, e := range j.box.Take() {
		if e.Kind == batch.Failed {
			if !st.begun {
				return fromScheduler(e.Err), false
			}
			_ = st.send(fromScheduler(e.Err).object()) // the stream ends either way
			return nil, false
		}
		st.begin()
		j.note(e)
		st.add(form.chunks(e)...)
	}
	return nil, st.flush() == nil
}

// usageView is OpenAI's "usage".
type usageView struct {
	CompletionTokens int           `json:"completion_tokens"`
	PromptTokens     int           `json:"prompt_tokens"`
	TotalTokens      int           `json:"total_tokens"`
	PromptDetails    promptDetails `json:"prompt_tokens_details"`
	// CompletionDetails is there for chats.
	CompletionDetails *completionDetails `json:"completion_tokens_details,omitempty"`
}

type promptDetails struct {
	CachedTokens int `json:"cached_tokens"`
}

type completionDetails struct {
	ReasoningTokens int `json:"reasoning_tokens"`
}

// usage adds up all answers. A prompt with several answers counts once.
func (j *job) usage() usageView {
	var u usageView
	for i := range j.answers {
		st := &j.answers[i].state
		u.CompletionTokens += st.Timings.Predicted
		if i%j.set.choices == 0 {
			u.PromptTokens += st.Prompt
			u.PromptDetails.CachedTokens += st.Timings.Cached
		}
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	return u
}

// timings returns the timings of the answer that a whole response shows.
func (j *job) timings() *timingsView {
	v := newTimingsView(j.answers[0].state.Timings)
	return &v
}

// chunkTimings returns the timings to show with an event, or nil.
func (j *job) chunkTimings(e batch.Event) *timingsView {
	if e.Kind != batch.Done && !j.set.timingsPerToken {
		return nil
	}
	v := newTimingsView(e.State.Timings)
	return &v
}

// progressView is llama-server's "prompt_progress".
type progressView struct {
	Total     int   `json:"total"`
	Cache     int   `json:"cache"`
	Processed int   `json:"processed"`
	TimeMS    int64 `json:"time_ms"`
}

// progress returns what to show of the prompt with an event, or nil.
func (j *job) progress(e batch.Event) *progressView {
	if !j.set.Progress || e.Kind != batch.Started && e.Kind != batch.Progress {
		return nil
	}
	return &progressView{
		Total: e.State.Prompt, Cache: e.State.Timings.Cached, Processed: e.State.Processed, TimeMS: e.State.Elapsed.Milliseconds(),
	}
}

// newID returns a name that no other answer has.
func newID(prefix string) string { return prefix + rand.Text() }

// fromScheduler turns the failure of a task into a problem.
func fromScheduler(err error) *problem {
	if errors.Is(err, batch.ErrStopped) {
		return stopping()
	}
	if errors.Is(err, batch.ErrForm) {
		return badBody("%v: look at the bias of tokens, or at how deep it nests", err)
	}
	if limit, ok := errors.AsType[*grammar.LimitError](err); ok {
		return badBody("%v", limit)
	}
	return broken(err)
}

// stopType returns llama-server's word for why an answer ended.
func stopType(s batch.Stop) string {
	return [...]string{batch.StopNone: "none", batch.StopEOS: "eos", batch.StopWord: "word", batch.StopLimit: "limit"}[s]
}

// finishReason returns OpenAI's word for it.
func finishReason(s batch.Stop) string {
	if s == batch.StopEOS || s == batch.StopWord {
		return "stop"
	}
	return "length"
}

// fromWire turns what the dialect's parser says into a problem.
func fromWire(err error) *problem {
	if e, ok := errors.AsType[*engine.InvalidError](err); ok {
		return &problem{status: http.StatusBadRequest, kind: typeInvalid, message: e.Message, param: e.Param, code: e.Code}
	}
	return badBody("%v", err)
}

// stream writes server-sent events.
type stream struct {
	w     http.ResponseWriter
	buf   []byte
	begun bool
}

// begin sends the header, once.
func (s *stream) begin() {
	if s.begun {
		return
	}
	s.begun = true
	h := s.w.Header()
	h.Set("Content-Type", eventStream)
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	s.w.WriteHeader(http.StatusOK)
}

// add puts events for the objects into the buffer.
func (s *stream) add(objects ...any) {
	for _, o := range objects {
		s.buf = wire.AppendEvent(s.buf, encode(o))
	}
}

// flush sends the buffer, and the header if it has not gone out.
func (s *stream) flush() error {
	if len(s.buf) > 0 {
		_, err := s.w.Write(s.buf)
		s.buf = s.buf[:0]
		if err != nil {
			return err
		}
	}
	return http.NewResponseController(s.w).Flush()
}

func (s *stream) send(objects ...any) error {
	s.begin()
	s.add(objects...)
	return s.flush()
}

// ping sends a comment, so that nobody takes a silent connection for dead.
func (s *stream) ping() error {
	s.begin()
	s.buf = wire.AppendPing(s.buf)
	return s.flush()
}

// end sends the mark for the end of a stream where the dialect has one.
func (s *stream) end(marked bool) {
	if marked {
		s.buf = wire.AppendDone(s.buf)
	}
	_ = s.flush() // the answer is complete; a client that has gone does not matter
}
