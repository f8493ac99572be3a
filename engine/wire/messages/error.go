package messages

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"onebit/engine/wire"
)

// StatusOverloaded is Anthropic's status for a server that cannot take a request at the moment.
const StatusOverloaded = 529

// Status is the status under which an error is told in this dialect.
func Status(e *wire.Error) int {
	if e.Status == http.StatusServiceUnavailable {
		return StatusOverloaded
	}
	return e.Status
}

// AppendError appends an error as this dialect has it, with the id of the request.
func AppendError(dst []byte, e *wire.Error, id string) []byte {
	dst = append(dst, `{"type":"error","error":{"type":"`...)
	dst = append(dst, typeOf(Status(e))...)
	dst = append(dst, `","message":`...)
	dst = append(dst, wire.Quote(said(e))...)
	dst = append(dst, `},"request_id":`...)
	dst = append(dst, wire.Quote(id)...)
	return append(dst, '}')
}

// said is what a client is told. The place of a mistake has no member of its own; of a prompt that is too long clients want
// to read both counts in the words that they know.
func said(e *wire.Error) string {
	if e.Type == wire.TypeContext {
		var counts struct {
			Error struct {
				Prompt  int `json:"n_prompt_tokens"`
				Context int `json:"n_ctx"`
			} `json:"error"`
		}
		if json.Unmarshal(e.Append(nil), &counts) == nil && counts.Error.Context > 0 {
			return fmt.Sprintf("prompt is too long: %d tokens > %d maximum. %s", counts.Error.Prompt, counts.Error.Context, e.Message)
		}
		return "prompt is too long: " + e.Message
	}
	if e.Param != "" && !strings.Contains(e.Message, e.Param) {
		return e.Param + ": " + e.Message
	}
	return e.Message
}

func typeOf(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case http.StatusGatewayTimeout, http.StatusRequestTimeout:
		return "timeout_error"
	case StatusOverloaded:
		return "overloaded_error"
	}
	if status >= http.StatusInternalServerError {
		return "api_error"
	}
	return "invalid_request_error"
}
