package h1

import (
	"bytes"
	"strconv"
	"strings"
)

// maxFields is how many fields a head may have. Its bytes are bounded by the buffer.
const maxFields = 128

// head is what the head of an answer says.
type head struct {
	status     int
	minor      byte  // of HTTP/1.
	length     int64 // of the body; -1 when it is not said
	chunked    bool
	keep       bool // the connection may serve again
	kind       string
	retryAfter string
}

// parseHead reads a head: lines that each end with CR LF, without the empty one.
func parseHead(raw []byte) (head, error) {
	line, raw, ok := cutLine(raw)
	h := head{length: -1}
	if !ok || !h.parseStatus(line) {
		return head{}, ErrMalformed
	}
	h.keep = h.minor == '1'
	for n := 0; len(raw) > 0; n++ {
		if line, raw, ok = cutLine(raw); !ok || n == maxFields {
			return head{}, ErrMalformed
		}
		name, value, ok := parseField(line)
		if !ok || !h.field(name, value) {
			return head{}, ErrMalformed
		}
	}
	if h.chunked && (h.length >= 0 || h.minor == '0') {
		return head{}, ErrMalformed // two readers could see two different bodies
	}
	if h.status >= 200 && !h.bodiless() && !h.chunked && h.length < 0 {
		h.keep = false
	}
	return h, nil
}

// cutLine splits off the first line.
func cutLine(b []byte) (line, rest []byte, ok bool) {
	end := bytes.IndexByte(b, '\n')
	if end < 1 || b[end-1] != '\r' {
		return nil, nil, false
	}
	return b[:end-1], b[end+1:], true
}

// parseStatus reads a status line such as HTTP/1.1 200 OK.
func (h *head) parseStatus(line []byte) bool {
	const form = "HTTP/1.1 200"
	if len(line) < len(form) || string(line[:7]) != form[:7] || line[8] != ' ' || !isText(line) {
		return false
	}
	h.minor = line[7]
	if h.minor != '0' && h.minor != '1' || len(line) > len(form) && line[len(form)] != ' ' {
		return false
	}
	for _, c := range line[9:12] {
		if c < '0' || c > '9' {
			return false
		}
		h.status = h.status*10 + int(c-'0')
	}
	// 101 would make the connection something else
	return h.status >= 100 && h.status < 600 && h.status != 101
}

// parseField splits a field at its colon.
func parseField(line []byte) (name, value []byte, ok bool) {
	name, value, ok = bytes.Cut(line, []byte(":"))
	if !ok || len(name) == 0 || !isText(value) {
		return nil, nil, false
	}
	for _, c := range name {
		if !isToken(c) {
			return nil, nil, false
		}
	}
	return name, bytes.Trim(value, " \t"), true
}

// field takes one field. It reports whether it makes sense.
func (h *head) field(name, value []byte) bool {
	switch len(name) {
	case len("Connection"):
		if equalFold(name, "connection") {
			h.keep = h.keep && !lists(value, "close")
		}
	case len("Content-Type"), len("Retry-After"):
		if equalFold(name, "content-type") {
			h.kind = text(value)
		} else if equalFold(name, "retry-after") {
			h.retryAfter = string(value)
		}
	case len("Content-Length"):
		if equalFold(name, "content-length") {
			return h.contentLength(value)
		}
	case len("Transfer-Encoding"):
		if equalFold(name, "transfer-encoding") {
			ok := !h.chunked && equalFold(value, "chunked")
			h.chunked = true
			return ok
		}
	}
	return true
}

// contentLength takes a length.
func (h *head) contentLength(value []byte) bool {
	if len(value) == 0 || len(value) > 18 {
		return false
	}
	for _, c := range value {
		if c < '0' || c > '9' {
			return false
		}
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil || h.length >= 0 {
		return false // said twice: two readers could see two different bodies
	}
	h.length = n
	return true
}

// bodiless reports whether an answer of that status has no body, whatever its fields say.
func (h *head) bodiless() bool { return h.status < 200 || h.status == 204 || h.status == 304 }

// body returns how the body is framed.
func (h *head) body() body {
	switch {
	case h.bodiless() || h.length == 0:
		return body{}
	case h.chunked:
		return body{state: chunkSize}
	case h.length > 0:
		return body{state: sized, left: h.length}
	}
	return body{state: untilClose}
}

// text returns a content type, without a copy where it is one of the usual.
func text(value []byte) string {
	switch string(value) {
	case "text/event-stream":
		return "text/event-stream"
	case "application/json; charset=utf-8":
		return "application/json; charset=utf-8"
	}
	return string(value)
}

// lists reports whether a list holds a word.
func lists(value []byte, word string) bool {
	for part := range bytes.SplitSeq(value, []byte(",")) {
		if equalFold(bytes.Trim(part, " \t"), word) {
			return true
		}
	}
	return false
}

// equalFold compares with a lower-case word.
func equalFold(b []byte, word string) bool {
	return len(b) == len(word) && strings.EqualFold(string(b), word)
}

// isText reports whether a line holds no control characters but tabs.
func isText(line []byte) bool {
	for _, c := range line {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// isToken reports whether c may stand in a field's name.
func isToken(c byte) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		return true
	}
	return strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
