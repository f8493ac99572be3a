// Package config turns a command line into one immutable value that says everything the program will do. It parses,
// fills in defaults and validates; it opens nothing.
package config

import (
	"fmt"
	"log/slog"
	"time"

	"onebit/engine/backend"
)

// Config is what one run of the program serves. Nobody changes it after it was made.
type Config struct {
	Host   string            // address or name to listen on
	Port   int               // 0 asks the system for a free one
	Models []backend.Options // what is served, and how
	Limits Limits

	StrictModel bool   // requests that name another model are refused
	APIKey      Secret // what clients must send as their bearer token; empty asks for none
	MediaPath   string // the folder below which requests may name files; empty allows none
}

// Secret is a text that no log shows.
type Secret string

// hidden stands where a secret is.
const hidden = "(secret)"

// String hides the secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return hidden
}

// MarshalText hides the secret from JSON and the like.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// GoString hides the secret from %#v.
func (s Secret) GoString() string { return s.String() }

// Format hides the secret from every verb, %x and %d among them.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, s.String()) }

// LogValue hides the secret from logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Limits bound what one request may take. A limit of 0 is no limit.
type Limits struct {
	Body      int64         // bytes of a request's body
	Upload    time.Duration // for the body to arrive
	Request   time.Duration // from the request's arrival to the last byte of its answer
	Ready     time.Duration // of that, waiting for a backend that restarts
	KeepAlive time.Duration // silence on a stream before a comment is sent; also before the first event
	Write     time.Duration // for a client to take one event
	Drain     time.Duration // for running answers when the program stops
}

// Defaults returns the limits that hold when nothing else is said.
func Defaults() Limits {
	return Limits{
		Body:      64 << 20,
		Upload:    5 * time.Minute,
		Request:   time.Hour,
		Ready:     2 * time.Minute,
		KeepAlive: 15 * time.Second,
		Write:     2 * time.Minute,
		Drain:     5 * time.Second,
	}
}
