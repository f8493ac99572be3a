package batch

import (
	"math"
	"sync"
	"time"

	"onebit/engine/model"
)

// Kind says what an event reports.
type Kind int

// The kinds of events, in the order in which a task has them.
const (
	Started  Kind = iota // a slot took the task
	Progress             // a part of the prompt was processed
	Text                 // text or tokens may go out
	Done                 // the answer is complete; the last event
	Failed               // the answer ends here, with an error; the last event
)

// Event is one report about a task.
type Event struct {
	Kind   Kind
	Index  int     // the task's
	Text   string  // of Text: whole characters, and no part of a stop string
	Pieces []Piece // of Text: the tokens that the text so far has made certain
	State  Snapshot
	Result *Result // of Done
	Err    error   // of Failed
}

// Piece is one token of an answer.
type Piece struct {
	ID    int32
	Bytes []byte // as the vocabulary has them
	Prob  *Prob  // nil unless asked for
	Start int    // bytes of the answer's text before it

	end int // where its text ends; -1 until its last character is complete
}

// Prob is the log-probability of a sampled token and of the tokens that were
// most likely in its place, before any sampler changed them. All are finite.
type Prob struct {
	Logprob float64
	Top     []model.TokenLogProb // best first
}

// lowest stands for the logarithm of the probability 0.
const lowest = -math.MaxFloat32

func newProb(logprob float32, top []model.TokenLogProb) *Prob {
	for i := range top {
		top[i].LogProb = float32(finite(float64(top[i].LogProb)))
	}
	return &Prob{Logprob: finite(float64(logprob)), Top: top}
}

func finite(logprob float64) float64 {
	if logprob >= lowest {
		return logprob
	}
	return lowest // also for what is no number
}

// Snapshot is where a task stands at an event.
type Snapshot struct {
	Slot      int
	Prompt    int // tokens of the prompt
	Processed int // tokens in the session
	Elapsed   time.Duration
	Timings   Timings
}

// Timings counts tokens and the time spent on them.
type Timings struct {
	Cached     int           // prompt tokens found in the slot's session
	Snapshot   bool          // the session came from a file, and this is the first task that uses it
	Prompt     int           // prompt tokens processed
	PromptFor  time.Duration // from the slot's taking the task to the first token
	Predicted  int
	PredictFor time.Duration // from the first token to the last
}

// Result is how an answer ended.
type Result struct {
	Stop      Stop
	StopText  string // the stop string met
	Newline   bool   // whether the answer has a line end
	Truncated bool   // the context was full
	Held      int    // tokens in the slot's session at the end

	Scores [][]float64 // of a task with branches: the log-probability of each branch's options
}

// Stop says why an answer ended.
type Stop int

// The reasons for an end.
const (
	StopNone  Stop = iota // there was no prompt to go on from
	StopEOS               // the model ended it
	StopWord              // a stop string was met
	StopLimit             // the limit of tokens or time, or the context
)

// Mailbox carries events from the scheduler to one request. Posting never
// blocks: a slow client holds up nobody.
type Mailbox struct {
	mu     sync.Mutex
	events []Event
	ready  chan struct{} // holds a token while there are events
}

// NewMailbox returns an empty mailbox.
func NewMailbox() *Mailbox {
	return &Mailbox{ready: make(chan struct{}, 1)}
}

func (m *Mailbox) post(e Event) {
	m.mu.Lock()
	m.events = append(m.events, e)
	m.mu.Unlock()
	select {
	case m.ready <- struct{}{}:
	default:
	}
}

// Ready receives when there may be events. One goroutine waits on it.
func (m *Mailbox) Ready() <-chan struct{} { return m.ready }

// Take returns all events posted since the last call.
func (m *Mailbox) Take() []Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	events := m.events
	m.events = nil
	return events
}
