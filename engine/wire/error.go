package wire

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"onebit/engine"
)

// The words for the member type of an error.
const (
	TypeInvalid     = "invalid_request_error"
	TypePermission  = "permission_error"
	TypeServer      = "server_error"
	TypeUnavailable = "unavailable_error"
	TypeTimeout     = "timeout_error"
	TypeUnsupported = "not_implemented"
	TypeContext     = "exceed_context_size_error"
)

// Error is a failure as a client is told it: an HTTP status and OpenAI's error object.
type Error struct {
	Status  int
	Message string
	Type    string
	Param   string // null when empty
	Code    string // null when empty

	RetryAfter time.Duration // sent as a header when above 0, rounded up to seconds
	NoRetry    bool          // tells SDKs that trying again is in vain

	extra []byte // more members of the object, each with its leading comma
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Append appends the JSON object {"error":{...}} to dst.
func (e *Error) Append(dst []byte) []byte {
	dst = append(dst, `{"error":{"message":`...)
	dst = appendString(dst, e.Message)
	dst = append(dst, `,"type":`...)
	dst = appendString(dst, e.Type)
	dst = append(dst, `,"param":`...)
	dst = appendOptional(dst, e.Param)
	dst = append(dst, `,"code":`...)
	dst = appendOptional(dst, e.Code)
	dst = append(dst, e.extra...)
	return append(dst, "}}"...)
}

// Write answers a request with the error.
func (e *Error) Write(w http.ResponseWriter) { e.WriteAs(w, e.Status, e.Append(nil)) }

// WriteAs does so in another dialect's words.
func (e *Error) WriteAs(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
	if e.NoRetry {
		h.Set("X-Should-Retry", "false")
	}
	w.WriteHeader(status)
	w.Write(append(body, '\n'))
}

// FromInvalid turns a bad request into a 400.
func FromInvalid(e *engine.InvalidError) *Error {
	return &Error{Status: http.StatusBadRequest, Message: e.Message, Type: TypeInvalid, Param: e.Param, Code: e.Code}
}

// FromBackend turns a backend's refusal into an error of the same status. It takes what the backend said from any of
// the shapes in use and keeps further members, such as token counts. A prompt over the context says so in the words by
// which clients recognise it.
func FromBackend(e *engine.StatusError) *Error {
	out := &Error{Status: e.Status, Type: typeOf(e.Status), RetryAfter: e.RetryAfter, NoRetry: e.Status == http.StatusNotImplemented}
	out.Message = fmt.Sprintf("the backend answered %d %s", e.Status, http.StatusText(e.Status))
	body := clean(e.Body)
	if !json.Valid(body) {
		if s := strings.TrimSpace(string(body)); s != "" && len(s) <= 500 && !strings.HasPrefix(s, "<") {
			out.Message = s
		}
		return out
	}
	out.read(body)
	if out.Type == TypeContext {
		out.context()
	}
	return out
}

// read takes the members of a backend's error body.
func (e *Error) read(body []byte) {
	object := body
	m := newMembers(body)
	for m.next() {
		if string(m.key) != "error" {
			continue
		}
		object = m.value
		if s, ok := text(m.value); ok {
			e.Message = s
			return
		}
	}
	m = newMembers(object)
	for m.next() {
		s, isText := text(m.value)
		switch key := string(m.key); key {
		case "message", "detail":
			if isText && s != "" {
				e.Message = s
			}
		case "type":
			if isText && s != "" {
				e.Type = s
			}
		case "param":
			e.Param = s
		case "code":
			e.Code = s // a number repeats the status, and SDKs expect text
		default:
			e.extra = append(e.extra, ',')
			e.extra = appendString(e.extra, key)
			e.extra = append(e.extra, ':')
			e.extra = append(e.extra, m.value...)
		}
	}
}

// context gives an overflow the code and the phrase that agents look for before they compact a conversation.
func (e *Error) context() {
	if e.Code == "" {
		e.Code = "context_length_exceeded"
	}
	if !strings.Contains(e.Message, "maximum context length") {
		e.Message = "This exceeds the maximum context length of the model: " + e.Message
	}
}

func typeOf(status int) string {
	switch {
	case status == http.StatusUnauthorized:
		return "authentication_error"
	case status == http.StatusForbidden:
		return TypePermission
	case status == http.StatusNotFound:
		return "not_found_error"
	case status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case status == http.StatusNotImplemented:
		return TypeUnsupported
	case status == http.StatusServiceUnavailable:
		return TypeUnavailable
	case status == http.StatusGatewayTimeout || status == http.StatusRequestTimeout:
		return TypeTimeout
	case status >= 500:
		return TypeServer
	}
	return TypeInvalid
}

func appendOptional(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	return appendString(dst, s)
}

// appendString appends s as a JSON string.
func appendString(dst []byte, s string) []byte {
	quoted, err := json.Marshal(s)
	if err != nil {
		return append(dst, `""`...) // cannot be: every string has a JSON form
	}
	return append(dst, quoted...)
}

// Quote returns s as a JSON string, for AppendRenamed.
func Quote(s string) []byte { return appendString(nil, s) }
