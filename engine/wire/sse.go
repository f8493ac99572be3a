package wire

import (
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
func (e Event) Done() bool { return string(e.Data) == done }

const done = "[DONE]"

// EventReader reads a stream of server-sent events. Comments, ids and events without data are skipped. Lines end with
// LF or CR LF; bytes that are not UTF-8 become U+FFFD, whole events at a time, so that no rune is torn. It reuses its
// memory: reading an event allocates nothing once the longest has been seen.
type EventReader struct {
	r        io.Reader
	err      error  // of r
	buf      []byte // buf[from:to] was read and is still to be taken
	from, to int
	scanned  int // bytes from from on in which there is no line feed
	ahead    int // from from on, the end of the data line that More found; 0 without one
	data     []byte
}

// Sizes of what an EventReader reads at once, in bytes. It begins with window, since a server that speaks as fast as a model
// has that much at hand only rarely, and a thousand streams hold a thousand of them; a burst makes it wide. It grows
// further for a longer line.
const (
	window = 8 << 10
	wide   = 32 << 10
)

// eventReaders are those that were released. Their buffers are what a short answer costs most.
var eventReaders = sync.Pool{New: func() any { return &EventReader{buf: make([]byte, window)} }}

// NewEventReader returns a reader of the events in r.
func NewEventReader(r io.Reader) *EventReader {
	e, _ := eventReaders.Get().(*EventReader) // nothing else is put there
	*e = EventReader{r: r, buf: e.buf, data: e.data[:0]}
	return e
}

// Release gives the reader's memory to later readers. Neither it nor an Event of it may be used afterwards.
func (r *EventReader) Release() {
	r.r = nil
	if len(r.buf) > window {
		r.buf = make([]byte, window) // what a burst or a long event took is not kept
	}
	if cap(r.data) > wide {
		r.data = nil
	}
	eventReaders.Put(r)
}

// Next returns the next event. At the end of the stream it returns io.EOF, or io.ErrUnexpectedEOF when the stream was
// cut inside an event. A last event whose blank line is missing still counts when its line is whole.
func (r *EventReader) Next() (Event, error) {
	for {
		if data, ok := r.simple(); ok {
			return Event{Data: clean(data)}, nil
		}
		if !r.begun() || r.fill() != nil {
			break // an error comes again
		}
	}
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

const dataField = "data: "

// simple takes an event of one data line that has come in full, as nearly all do, without a copy.
func (r *EventReader) simple() ([]byte, bool) {
	have := r.buf[r.from:r.to]
	end := r.ahead
	if end == 0 {
		end = simpleEnd(have)
	}
	if end <= len(dataField) {
		return nil, false
	}
	r.take(end + 2)
	return have[len(dataField):end], true
}

// begun reports whether what has come may be the beginning of such an event, and is worth to be looked at again.
func (r *EventReader) begun() bool {
	have := r.buf[r.from:r.to]
	if len(have) < len(dataField) || len(have) >= window {
		return len(have) == 0
	}
	end := bytes.IndexByte(have, '\n')
	return string(have[:len(dataField)]) == dataField && (end < 0 || end+1 == len(have))
}

// simpleEnd returns where the data line ends that is all of the event at the beginning of have; 0 when the event is
// more than that or not there in full.
func simpleEnd(have []byte) int {
	if !bytes.HasPrefix(have, []byte(dataField)) {
		return 0
	}
	end := bytes.IndexByte(have, '\n')
	if end < 0 || end+1 == len(have) || have[end+1] != '\n' || have[end-1] == '\r' {
		return 0
	}
	return end
}

// More reports whether Next would return an event, other than Done's, without reading from the stream. It does not
// promise to find every such event.
func (r *EventReader) More() bool {
	have := r.buf[r.from:r.to]
	if r.ahead = simpleEnd(have); r.ahead > 0 {
		return r.ahead > len(dataField) && have[len(dataField)] == '{'
	}
	end := bytes.Index(have, []byte("\n\n"))
	const line = dataField + "{" // makes an event, unlike comments and empty data
	return end > 0 && bytes.Contains(have[:end], []byte("\n"+line))
}

// Ends reports whether Next would return Done's event without reading from the stream.
func (r *EventReader) Ends() bool {
	return bytes.HasPrefix(r.buf[r.from:r.to], []byte(dataField+done+"\n\n"))
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

// line returns the next line without its end. With an error it returns what there was of an unended line. It may be
// used until the next call.
func (r *EventReader) line() ([]byte, error) {
	for {
		have := r.buf[r.from:r.to]
		if i := bytes.IndexByte(have[r.scanned:], '\n'); i >= 0 {
			line := have[:r.scanned+i]
			r.take(len(line) + 1)
			return bytes.TrimSuffix(line, []byte("\r")), nil
		}
		r.scanned = len(have)
		if len(have) > MaxEvent {
			return nil, ErrEventTooLong
		}
		if err := r.fill(); err != nil {
			r.take(len(have))
			return have, err
		}
	}
}

// take moves on by n bytes.
func (r *EventReader) take(n int) {
	r.from += n
	r.scanned, r.ahead = 0, 0
}

// fill reads once and makes room before where there is none.
func (r *EventReader) fill() error {
	switch {
	case r.err != nil:
		return r.err
	case r.to == window && len(r.buf) == window: // it was filled to its end: more is at hand than fits
		buf := make([]byte, wide)
		r.to = copy(buf, r.buf[r.from:r.to])
		r.buf, r.from = buf, 0
	case r.from == r.to:
		r.from, r.to = 0, 0
	case r.from > 0 && r.to > len(r.buf)/2: // what is left is little, and so would be what is read behind it
		r.to = copy(r.buf, r.buf[r.from:r.to])
		r.from = 0
	case r.to == len(r.buf):
		r.buf = append(r.buf, make([]byte, len(r.buf))...)
	}
	for range 100 {
		n, err := r.r.Read(r.buf[r.to:])
		r.to += n
		r.err = err
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	r.err = io.ErrNoProgress
	return r.err
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
func AppendDone(dst []byte) []byte { return append(dst, dataField+done+"\n\n"...) }

// AppendPing appends a comment, which clients skip and which keeps a silent connection alive.
func AppendPing(dst []byte) []byte { return append(dst, ": ping\n\n"...) }
