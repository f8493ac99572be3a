package runner

import (
	"sync"
	"time"

	"onebit/engine/model"
)

// task is one answer to be made: a prompt and how to go on from it. A request
// for several answers is several tasks with one mailbox.
type task struct {
	id       int
	index    int // position among the request's answers
	prompt   []int32
	settings *settings
	sampling model.SamplerConfig // settings.sampling with this task's own seed
	gone     <-chan struct{}     // closed when nobody waits for the answer any more
	box      *mailbox
}

// cancelled reports whether the client has gone.
func (t *task) cancelled() bool {
	select {
	case <-t.gone:
		return true
	default:
		return false
	}
}

// stopKind says why an answer ended.
type stopKind int

const (
	stopNone  stopKind = iota // nothing to generate from
	stopEOS                   // the model ended it
	stopWord                  // a stop string was met
	stopLimit                 // the token limit or the context
)

// String returns llama-server's word.
func (k stopKind) String() string {
	return [...]string{"none", "eos", "word", "limit"}[k]
}

// finishReason returns OpenAI's word.
func (k stopKind) finishReason() string {
	if k == stopEOS || k == stopWord {
		return "stop"
	}
	return "length"
}

// eventKind says what the scheduler reports about a task.
type eventKind int

const (
	eventStarted  eventKind = iota // a slot took the task
	eventProgress                  // a part of the prompt was processed
	eventText                      // text or tokens may go out
	eventDone                      // the answer is complete
	eventFailed                    // the answer ends here, with a problem
)

// event is one report. Which fields are set depends on the kind.
type event struct {
	kind    eventKind
	index   int    // the task's
	text    string // eventText
	pieces  []piece
	state   snapshot
	result  *result  // eventDone
	problem *problem // eventFailed
}

// snapshot is where a task stands at an event.
type snapshot struct {
	slot      int
	prompt    int // tokens of the prompt
	processed int // tokens of it in the session, cached ones included
	predicted int
	elapsed   time.Duration // since the slot took the task
	timings   timings
}

// result is how an answer ended.
type result struct {
	stop     stopKind
	stopText string // the stop string met
	newline  bool   // whether the answer has a line end
	// truncated says that the context was full.
	truncated bool
	cached    int // tokens in the slot's session at the end
}

// timings counts tokens and the time spent on them.
type timings struct {
	cached     int           // prompt tokens found in the slot's session
	prompt     int           // prompt tokens processed
	promptFor  time.Duration // from the slot's taking the task to the first token
	predicted  int
	predictFor time.Duration // from the first token to the last
}

// timingsView is llama-server's "timings" object.
type timingsView struct {
	CacheN              int     `json:"cache_n"`
	PromptN             int     `json:"prompt_n"`
	PromptMS            float64 `json:"prompt_ms"`
	PromptPerTokenMS    float64 `json:"prompt_per_token_ms"`
	PromptPerSecond     float64 `json:"prompt_per_second"`
	PredictedN          int     `json:"predicted_n"`
	PredictedMS         float64 `json:"predicted_ms"`
	PredictedPerTokenMS float64 `json:"predicted_per_token_ms"`
	PredictedPerSecond  float64 `json:"predicted_per_second"`
	// Cache says where the reused tokens came from: "live" is the slot's session.
	Cache string `json:"cache,omitempty"`
}

// view computes the rates. The first token comes with the prompt's last pass, so
// generation counts one pass less than tokens.
func (t timings) view() timingsView {
	v := timingsView{
		CacheN: t.cached, PromptN: t.prompt, PromptMS: milliseconds(t.promptFor),
		PredictedN: t.predicted, PredictedMS: milliseconds(t.predictFor),
	}
	v.PromptPerTokenMS, v.PromptPerSecond = rates(t.prompt, t.promptFor)
	v.PredictedPerTokenMS, v.PredictedPerSecond = rates(max(0, t.predicted-1), t.predictFor)
	if t.cached > 0 {
		v.Cache = "live"
	}
	return v
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// rates returns milliseconds a token and tokens a second, 0 where unknown.
func rates(tokens int, d time.Duration) (perToken, perSecond float64) {
	if tokens == 0 || d <= 0 {
		return 0, 0
	}
	return milliseconds(d) / float64(tokens), float64(tokens) / d.Seconds()
}

// mailbox carries events from the scheduler to one request. Posting never
// blocks: a slow client holds up nobody.
type mailbox struct {
	mu     sync.Mutex
	events []event
	ready  chan struct{} // holds a token while there are events
}

func newMailbox() *mailbox {
	return &mailbox{ready: make(chan struct{}, 1)}
}

func (m *mailbox) post(e event) {
	m.mu.Lock()
	m.events = append(m.events, e)
	m.mu.Unlock()
	select {
	case m.ready <- struct{}{}:
	default:
	}
}

// take returns all events posted since the last call.
func (m *mailbox) take() []event {
	m.mu.Lock()
	defer m.mu.Unlock()
	events := m.events
	m.events = nil
	return events
}
