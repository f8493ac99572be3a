package gateway

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"onebit/appliance/config"
	"onebit/engine"
	"onebit/engine/wire"
)

// stream writes server-sent events, each flushed at once, under the served model's name. While nothing comes it writes
// a comment from time to time, so that neither clients nor what lies between take the silence for the end. Its methods
// may be called while the timer writes. It reuses its memory: an event allocates nothing.
type stream struct {
	w       *reply
	control *http.ResponseController
	quoted  []byte
	every   time.Duration
	limit   time.Duration

	response bool           // the events are those of OpenAI's Responses, which have names
	relayed  *atomic.Uint64 // counts events

	mu      sync.Mutex
	timer   *time.Timer // nil without keep-alive
	begun   bool        // the headers are out
	stopped bool
	renamed []byte
	event   []byte
}

func newStream(w *reply, quoted []byte, limits config.Limits) *stream {
	s := &stream{w: w, control: http.NewResponseController(w), quoted: quoted, every: limits.KeepAlive, limit: limits.Write}
	if s.every > 0 {
		s.mu.Lock() // the timer may fire before it is stored
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
		s.event = wire.AppendNamedEvent(s.event[:0], wire.ResponseEvent(c.Raw), s.renamed)
		return s.write()
	}
	s.renamed = wire.AppendRenamed(s.renamed[:0], c.Raw, s.quoted)
	s.event = wire.AppendEvent(s.event[:0], s.renamed)
	return s.write()
}

// done writes the end of a whole answer. A response has said it already, in its last event.
func (s *stream) done() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.response {
		return nil
	}
	s.event = wire.AppendDone(s.event[:0])
	return s.write()
}

// fail ends the stream with an error event when it has begun. When it has not, the error is left to the caller, who
// can still answer with a status.
func (s *stream) fail(e *wire.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.begun {
		s.stopped = true // no comment may begin it now
		return
	}
	name := ""
	if s.response {
		name = "error"
	}
	s.event = wire.AppendNamedEvent(s.event[:0], []byte(name), e.Append(nil))
	_ = s.write() // the error itself is what the log gets
}

// ping writes a comment.
func (s *stream) ping() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	s.event = wire.AppendPing(s.event[:0])
	_ = s.write() // a client that has gone ends the request by its context
}

// write sends what lies in event. The lock is held.
func (s *stream) write() error {
	if !s.begun {
		s.begun = true
		h := s.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no")
		s.w.WriteHeader(http.StatusOK)
	}
	if s.limit > 0 {
		_ = s.control.SetWriteDeadline(time.Now().Add(s.limit)) // a writer that knows no deadlines is a test's
	}
	if _, err := s.w.Write(s.event); err != nil {
		return err
	}
	if s.timer != nil {
		s.timer.Reset(s.every)
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
	if s.begun && s.limit > 0 {
		_ = s.control.SetWriteDeadline(time.Time{}) // the connection may serve again
	}
}
