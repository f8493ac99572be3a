package engine

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// ErrLost says that the backend went away before it had answered in full. Nothing is known to be wrong with the request.
var ErrLost = errors.New("the backend went away before it had answered in full")

// InvalidError is a request that cannot be served as it stands: the client's mistake, named by field.
type InvalidError struct {
	Param   string // the field, as a path such as messages[2].role; empty when the body as a whole is wrong
	Code    string // a word for programs, such as invalid_type; may be empty
	Message string // a sentence for people
}

// Error returns the message.
func (e *InvalidError) Error() string { return e.Message }

// Invalid returns an *InvalidError about a value that a field must not have.
func Invalid(param, format string, args ...any) error {
	return &InvalidError{Param: param, Code: "invalid_value", Message: fmt.Sprintf(format, args...)}
}

// StatusError is a backend's own refusal.
type StatusError struct {
	Status     int           // HTTP status, 400 or above
	RetryAfter time.Duration // when to try again; 0 when the backend does not say
	Body       []byte        // what the backend said; usually a JSON object with the member error
}

// Error names the status and the beginning of the body.
func (e *StatusError) Error() string {
	body := e.Body
	if len(body) > 300 {
		body = body[:300]
	}
	return fmt.Sprintf("the backend answered %d %s: %s", e.Status, http.StatusText(e.Status), body)
}

// UnavailableError is a backend that cannot serve now.
type UnavailableError struct {
	Reason     string
	RetryAfter time.Duration // when trying again makes sense; 0 when it never does
}

// Error returns the reason.
func (e *UnavailableError) Error() string { return e.Reason }

// TimeoutError is a time limit that passed. It says which, so that nobody has to guess which of many timers fired.
type TimeoutError struct {
	Timer string // what was limited
	Limit time.Duration
}

// Error names the timer and its length.
func (e *TimeoutError) Error() string {
	return fmt.Sprintf("the limit of %v for %s has passed", e.Limit, e.Timer)
}

// Timeout reports true, as net.Error has it.
func (e *TimeoutError) Timeout() bool { return true }
