package runner

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// Problem types, as llama-server names them.
const (
	typeInvalid     = "invalid_request_error"
	typeNotFound    = "not_found_error"
	typeServer      = "server_error"
	typeUnsupported = "not_supported_error"
	typeUnavailable = "unavailable_error"
	typeOverflow    = "exceed_context_size_error"
)

// problem is an answer other than success: a status and the OpenAI error object.
type problem struct {
	status  int
	kind    string // "type" of the object
	message string
	param   string // the field at fault, or ""
	code    string // a word for programs, or ""

	promptTokens, context int // counts of a context overflow
}

// object returns the value of the "error" key.
func (p *problem) object() any {
	type object struct {
		Message      string  `json:"message"`
		Type         string  `json:"type"`
		Param        *string `json:"param"`
		Code         *string `json:"code"`
		PromptTokens int     `json:"n_prompt_tokens,omitempty"`
		Context      int     `json:"n_ctx,omitempty"`
	}
	o := object{Message: p.message, Type: p.kind, PromptTokens: p.promptTokens, Context: p.context}
	if p.param != "" {
		o.Param = &p.param
	}
	if p.code != "" {
		o.Code = &p.code
	}
	return struct {
		Error object `json:"error"`
	}{o}
}

// write answers with the problem.
func (p *problem) write(w http.ResponseWriter) {
	h := w.Header()
	if p.status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	if p.status == http.StatusNotImplemented || p.status == http.StatusInternalServerError {
		h.Set("X-Should-Retry", "false")
	}
	writeJSON(w, p.status, p.object())
}

// invalid says that the request's field param is wrong. The message names it.
func invalid(param, format string, args ...any) *problem {
	return &problem{
		status: http.StatusBadRequest, kind: typeInvalid, param: param, code: "invalid_value",
		message: fmt.Sprintf("%q: %s", param, fmt.Sprintf(format, args...)),
	}
}

// badBody says that the body as a whole is wrong.
func badBody(format string, args ...any) *problem {
	return &problem{status: http.StatusBadRequest, kind: typeInvalid, message: fmt.Sprintf(format, args...)}
}

// unsupported refuses a field that this server knows and cannot honour.
func unsupported(param, format string, args ...any) *problem {
	p := invalid(param, format, args...)
	p.code = "unsupported_parameter"
	return p
}

// overflow says that a prompt does not fit the context of a slot.
func overflow(promptTokens, context int) *problem {
	return &problem{
		status: http.StatusBadRequest, kind: typeOverflow, code: "context_length_exceeded",
		message: fmt.Sprintf("this model's maximum context length is %d tokens, but the request has %d prompt tokens; "+
			"shorten the prompt or start the server with a larger context", context, promptTokens),
		promptTokens: promptTokens, context: context,
	}
}

func loading() *problem {
	return &problem{status: http.StatusServiceUnavailable, kind: typeUnavailable, code: "loading", message: "Loading model"}
}

func stopping() *problem {
	return &problem{status: http.StatusServiceUnavailable, kind: typeUnavailable, code: "stopping", message: "the server is stopping"}
}

func broken(err error) *problem {
	return &problem{status: http.StatusInternalServerError, kind: typeServer, message: err.Error()}
}

// encode is json.Marshal without the escaping of <, > and &.
func encode(v any) []byte {
	var b buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("runner: encoding %T: %v", v, err)) // our own types always encode
	}
	return b[:len(b)-1] // without the line end
}

// buffer is a byte slice to write to.
type buffer []byte

func (b *buffer) Write(p []byte) (int, error) {
	*b = append(*b, p...)
	return len(p), nil
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body := encode(v)
	h := w.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that has gone needs no answer
}
