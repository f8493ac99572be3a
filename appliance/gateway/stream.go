package gateway

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"onebit/appliance/config"
	"onebit/engine"
	"onebit/engine/wire"
	"onebit/engine/wire/messages"
)

// maxPending is how many bytes of events are held back at most to be written together.
const maxPending = 64 << 10

// stream writes server-sent events under the served model's name. Each is flushed at once, unless the next is at hand
// already: then they are written together. While nothing comes it writes a comment from time to time, so that neither
// clients nor what lies between take the silence for the end; of Anthropic's Messages it is an event, ping. Its methods may be called while the timer writes. It
// reuses its memory: an event allocates nothing.
type stream struct {
	w       *reply
	control *http.ResponseController
	quoted  []byte
	every   time.Duration
	limit   time.Duration

	response bool           // the events are those of OpenAI's Responses, which have names
	opening  []byte         // of Anthropic's Messages the event that comes before all others; nil for other forms
	relayed  *atomic.Uint64 // counts events

	mu       sync.Mutex
	timer    *time.Timer // nil without keep-alive
	begun    bool        // the headers are out
	stopped  bool
	opened   bool      // the opening was written, or an event in its place
	wrote    time.Time // when the last write began
	deadline time.Time // the connection's, for writing; zero without one
	renamed  []byte    // a response's event
	pending  []byte    // events that are not written yet
}

func newStream(w *reply, quoted []byte, limits config.Limits) *stream {
	s := &stream{w: w, control: http.NewResponseController(w), quoted: quoted, every: limits.KeepAlive, limit: limits.Write}
	if s.every > 0 {
		s.mu.Lock() // the timer may fire before it is stored
		s.wrote = time.Now()
		s.timer = time.AfterFunc(s.every, s.ping)
		s.mu.Unlock()
	}
	return s
}

// emit writes one event of the backend.
func (s *stream) emit(c engine.Chunk) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.relayed.Add(1)
	if s.response {
		s.renamed = wire.AppendResponseRenamed(s.renamed[:0], c.Raw, s.quoted)
		s.pending = wire.AppendNamedEvent(s.pending, wire.ResponseEvent(c.Raw), s.renamed)
	} else {
		s.pending = wire.AppendRenamedEvent(s.pending, c.Raw, s.quoted, c.ModelAt, c.ModelEnd)
	}
	if c.More && len(s.pending) < maxPending {
		return nil
	}
	return s.write()
}

// reused says in the header what is reused of the prompt, when that is known before the first byte.
func (s *stream) reused(r *engine.Reuse) {
	if r == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.begun {
		s.w.reused(r, true)
	}
}

// open makes a stream one of Anthropic's Messages, which begins with this event.
func (s *stream) open(event []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opening = event
}

// named writes one event of Anthropic's Messages. With more the next one is at hand.
func (s *stream) named(name string, event []byte, more bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.relayed.Add(1)
	if name == "message_start" {
		if s.opened {
			return nil
		}
		s.opened = true
	}
	s.pending = wire.AppendNamedEvent(s.pending, []byte(name), event)
	if more && len(s.pending) < maxPending {
		return nil
	}
	return s.write()
}

// done writes the end of a whole answer. A response has said it already, in its last event, and so has a message.
func (s *stream) done() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.response && s.opening == nil {
		s.pending = wire.AppendDone(s.pending)
	} else if len(s.pending) == 0 {
		return nil
	}
	return s.write()
}

// fail ends the stream with an error event when it has begun. When it has not, the error is left to the caller, who
// can still answer with a status.
func (s *stream) fail(e *wire.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.begun && len(s.pending) == 0 {
		s.stopped = true // no comment may begin it now
		return
	}
	name, said := "", e.Append(nil)
	switch {
	case s.response:
		name = "error"
	case s.opening != nil:
		name, said = "error", messages.AppendError(nil, e, s.w.id)
	}
	s.pending = wire.AppendNamedEvent(s.pending, []byte(name), said)
	_ = s.write() // the error itself is what the log gets
}

// halt ends a stream of which nothing was written, and reports whether something was: then an end can still be.
func (s *stream) halt() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = !s.begun && len(s.pending) == 0
	return !s.stopped
}

// ping writes a comment when nothing was written for long enough, else it waits for the rest of that time.
func (s *stream) ping() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	rest := s.every
	if quiet := time.Since(s.wrote); quiet >= s.every {
		s.pending = s.appendPing(s.pending)
		_ = s.write() // a client that has gone ends the request by its context
	} else {
		rest -= quiet
	}
	s.timer.Reset(rest)
}

// appendPing appends what clients of the stream's form skip.
func (s *stream) appendPing(dst []byte) []byte {
	if s.opening == nil {
		return wire.AppendPing(dst)
	}
	if !s.opened { // no client takes anything before it
		s.opened = true
		dst = wire.AppendNamedEvent(dst, []byte("message_start"), s.opening)
	}
	return wire.AppendNamedEvent(dst, []byte("ping"), []byte(`{"type":"ping"}`))
}

// write sends what is pending. The lock is held.
func (s *stream) write() error {
	if !s.begun {
		s.begun = true
		h := s.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no")
		s.w.WriteHeader(http.StatusOK)
	}
	s.wrote = time.Now()
	// setting a deadline costs as much as the rest, so it is given a quarter more and set anew when that is used up
	if s.limit > 0 && s.deadline.Sub(s.wrote) < s.limit {
		s.deadline = s.wrote.Add(s.limit + s.limit/4)
		_ = s.control.SetWriteDeadline(s.deadline) // a writer that knows no deadlines is a test's
	}
	_, err := s.w.Write(s.pending)
	s.pending = s.pending[:0]
	if err != nil {
		return err
	}
	return s.control.Flush()
}

// stop ends the comments. Afterwards nothing is written any more.
func (s *stream) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	if s.timer != nil {
		s.timer.Stop()
	}
	if !s.deadline.IsZero() {
		_ = s.control.SetWriteDeadline(time.Time{}) // the connection may serve again
	}
}
