package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"sync"
)

// MaxEvent is the longest event that an EventReader accepts, in bytes.
const MaxEvent = 32 << 20

// ErrEventTooLong says that a stream held an event longer than MaxEvent.
var ErrEventTooLong = errors.New("an event of the stream is longer than 32 MiB")

// Event is one server-sent event.
type Event struct {
	Name string // the field event; "error" also for the field error, in which some servers put a failure
	Data []byte // the data lines, joined by line feeds, as valid UTF-8; valid until the next call of Next
}

// Done reports whether the event is OpenAI's mark for the end of a stream.
func (e Event) Done() bool { return string(e.Data) == "[DONE]" }

// EventReader reads a stream of server-sent events. Comments, ids and events without data are skipped. Lines end with
// LF or CR LF; bytes that are not UTF-8 become U+FFFD, whole events at a time, so that no rune is torn. It reuses its memory: reading an event allocates nothing once the longest has been seen.
type EventReader struct {
	r    *bufio.Reader
	data []byte
	long []byte // a line that did not fit the buffer of r
}

// eventReaders are those that were released. Their buffers are what a short answer costs most.
var eventReaders = sync.Pool{New: func() any { return &EventReader{r: bufio.NewReaderSize(nil, 32<<10)} }}

// NewEventReader returns a reader of the events in r.
func NewEventReader(r io.Reader) *EventReader {
	e, _ := eventReaders.Get().(*EventReader) // nothing else is put there
	e.r.Reset(r)
	return e
}

// Release gives the reader's memory to later readers. Neither it nor an Event of it may be used afterwards.
func (r *EventReader) Release() {
	r.r.Reset(nil)
	if cap(r.data)+cap(r.long) > 256<<10 {
		r.data, r.long = nil, nil // what one long event took is not kept
	}
	eventReaders.Put(r)
}

// Next returns the next event. At the end of the stream it returns io.EOF, or io.ErrUnexpectedEOF when the stream was
// cut inside an event. A last event whose blank line is missing still counts when its line is whole.
func (r *EventReader) Next() (Event, error) {
	r.data = r.data[:0]
	name, seen := "", false
	for {
		line, err := r.line()
		if err != nil {
			whole := errors.Is(err, io.EOF) && len(line) == 0
			r.field(line, &name, &seen)
			e := Event{Name: name, Data: clean(r.data)}
			if seen && len(r.data) > 0 && (whole || e.Done()) {
				return e, nil // the next call meets the end again
			}
			if errors.Is(err, io.EOF) && (seen || len(line) > 0) {
				err = io.ErrUnexpectedEOF
			}
			return Event{}, err
		}
		if len(line) > 0 {
			r.field(line, &name, &seen)
			if len(r.data) > MaxEvent {
				return Event{}, ErrEventTooLong
			}
			continue
		}
		if seen && len(r.data) > 0 {
			return Event{Name: name, Data: clean(r.data)}, nil
		}
		r.data, name, seen = r.data[:0], "", false
	}
}

// More reports whether Next would return another event, other than Done's, without reading from the stream. It does not
// promise to find every such event.
func (r *EventReader) More() bool {
	n := r.r.Buffered()
	if n == 0 {
		return false
	}
	rest, err := r.r.Peek(n)
	end := bytes.Index(rest, []byte("\n\n"))
	if err != nil || end < 0 {
		return false
	}
	const data = "data: {" // a line that makes an event, unlike comments and empty data
	event := rest[:end]
	return bytes.HasPrefix(event, []byte(data)) || bytes.Contains(event, []byte("\n"+data))
}

// field takes one line of an event.
func (r *EventReader) field(line []byte, name *string, seen *bool) {
	key, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(key) {
	case "error":
		*name = "error"
		fallthrough
	case "data":
		if *seen {
			r.data = append(r.data, '\n')
		}
		*seen = true
		r.data = append(r.data, value...)
	case "event":
		if string(value) == "error" {
			*name = "error" // the common one, without a copy
		} else {
			*name = string(value)
		}
	}
}

// line returns the next line without its end. With an error it returns what there was of an unended line.
func (r *EventReader) line() ([]byte, error) {
	line, err := r.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		r.long = r.long[:0]
		for errors.Is(err, bufio.ErrBufferFull) {
			r.long = append(r.long, line...)
			if len(r.long) > MaxEvent {
				return nil, ErrEventTooLong
			}
			line, err = r.r.ReadSlice('\n')
		}
		r.long = append(r.long, line...)
		line = r.long
	}
	if err != nil {
		return line, err
	}
	line = line[:len(line)-1]
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line, nil
}

// AppendEvent appends one event to dst: a single data line and the blank line. Line breaks in data become spaces, which
// changes nothing in JSON, where they can only stand between tokens.
func AppendEvent(dst, data []byte) []byte {
	dst = append(dst, "data: "...)
	from := len(dst)
	return endEvent(append(dst, data...), from)
}

// endEvent ends the data line that begins at from.
func endEvent(dst []byte, from int) []byte {
	blank(dst[from:], '\n')
	blank(dst[from:], '\r')
	return append(dst, "\n\n"...)
}

// AppendRenamedEvent appends the event of an object whose member model is replaced by quoted, a JSON string. Its value
// is raw[at:end]; it is looked for when both are 0.
func AppendRenamedEvent(dst, raw, quoted []byte, at, end int) []byte {
	dst = append(dst, "data: "...)
	from := len(dst)
	if end == 0 {
		dst = AppendRenamed(dst, raw, quoted)
	} else {
		dst = append(dst, raw[:at]...)
		dst = append(dst, quoted...)
		dst = append(dst, raw[end:]...)
	}
	return endEvent(dst, from)
}

// AppendNamedEvent appends one event with a name to dst. A name that is not one word is left out.
func AppendNamedEvent(dst, name, data []byte) []byte {
	if len(name) > 0 && bytes.IndexFunc(name, func(r rune) bool { return r <= ' ' }) < 0 {
		dst = append(dst, "event: "...)
		dst = append(dst, name...)
		dst = append(dst, '\n')
	}
	return AppendEvent(dst, data)
}

// blank replaces each c in b by a space.
func blank(b []byte, c byte) {
	for i := bytes.IndexByte(b, c); i >= 0; i = bytes.IndexByte(b, c) {
		b[i] = ' '
		b = b[i+1:]
	}
}

// AppendDone appends OpenAI's mark for the end of a stream.
func AppendDone(dst []byte) []byte { return append(dst, "data: [DONE]\n\n"...) }

// AppendPing appends a comment, which clients skip and which keeps a silent connection alive.
func AppendPing(dst []byte) []byte { return append(dst, ": ping\n\n"...) }
