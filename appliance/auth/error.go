package auth

import (
	"errors"
	"net/http"
	"time"

	"onebit/engine/wire"
)

// ErrRevoked is the cause of a Grant's context that ended because its key, login or person was revoked, changed or has
// expired while the request ran. The cause itself is an *Error that says which.
var ErrRevoked = errors.New("the access was revoked")

// Error is a refusal: the status and the words that a client is told.
type Error struct {
	Status     int           // 400, 401, 403, 404, 409, 410, 413 or 429
	Code       string        // a word for programs, such as invalid_api_key
	Message    string        // a sentence for people; it never quotes what was shown
	RetryAfter time.Duration // when to try again; 0 when that is in vain

	revoked bool
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Is reports ErrRevoked for what cuts a running request.
func (e *Error) Is(target error) bool { return target == ErrRevoked && e.revoked }

// Wire returns the refusal as the API's error object.
func (e *Error) Wire() *wire.Error {
	kind := map[int]string{
		http.StatusUnauthorized: "authentication_error", http.StatusForbidden: wire.TypePermission,
		http.StatusNotFound: "not_found_error", http.StatusTooManyRequests: "rate_limit_error",
	}[e.Status]
	if kind == "" {
		kind = wire.TypeInvalid
	}
	// SDKs repeat 409 and 429 on their own: only a refusal that says when is worth that
	return &wire.Error{Status: e.Status, Type: kind, Code: e.Code, Message: e.Message, RetryAfter: e.RetryAfter,
		NoRetry: e.RetryAfter == 0 || e.Code == codeQuota}
}

// codeQuota is OpenAI's word for a quota that is used up, as against a rate that was exceeded.
const codeQuota = "insufficient_quota"

func unauthorized(code, message string) *Error {
	return &Error{Status: http.StatusUnauthorized, Code: code, Message: message}
}

func forbidden(code, message string) *Error {
	return &Error{Status: http.StatusForbidden, Code: code, Message: message}
}

func invalid(code, message string) *Error {
	return &Error{Status: http.StatusBadRequest, Code: code, Message: message}
}

func tooMany(code, message string, after time.Duration) *Error {
	return &Error{Status: http.StatusTooManyRequests, Code: code, Message: message, RetryAfter: max(after, time.Second)}
}
