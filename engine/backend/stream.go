package backend

import (
	"bytes"
	"errors"
	"io"

	"onebit/engine"
	"onebit/engine/wire"
)

// stream is a streamed answer on its way.
type stream struct {
	events    *wire.EventReader
	heads     wire.HeadReader
	emit      func(engine.Chunk) error
	wantUsage bool
	response  bool // the events are those of OpenAI's Responses
	near      bool // a body's end is not waited for

	usage    engine.Usage
	counted  bool // usage has come
	finished bool // a finish reason has come
	emitErr  error
}

// errDone says that the stream has come to its proper end.
var errDone = errors.New("done")

// step takes one event.
func (s *stream) step() error {
	e, err := s.events.Next()
	if errors.Is(err, io.EOF) && s.finished && (s.counted || !s.wantUsage) {
		return errDone // the mark is missing and nothing else
	}
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	if e.Done() {
		return errDone
	}
	head, err := s.heads.Read(e.Data)
	if err != nil {
		return err
	}
	if s.response {
		s.finished = s.finished || wire.ResponseFinished(wire.ResponseEvent(e.Data))
	}
	if head.Error != nil || e.Name == "error" {
		at := head.Error
		if at == nil {
			at = e.Data
		}
		return &engine.StatusError{Status: statusIn(at), Body: bytes.Clone(e.Data)}
	}
	if head.Usage != nil {
		s.usage, s.counted = usageIn(head), true
	}
	s.finished = s.finished || head.Finished
	c := engine.Chunk{Raw: e.Data, More: s.events.More() || s.near && s.events.Ends()}
	c.ModelAt, c.ModelEnd = head.ModelPlace()
	s.emitErr = s.emit(c)
	return s.emitErr
}
