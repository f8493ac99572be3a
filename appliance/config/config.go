// Package config turns a command line into one immutable value that says everything the program will do. It parses,
// fills in defaults and validates; it opens nothing.
package config

import (
	"path/filepath"
	"strings"
	"time"

	"onebit/engine"
)

// Config is what one run of the program serves. Nobody changes it after it was made.
type Config struct {
	Host   string // address or name to listen on
	Port   int    // 0 asks the system for a free one
	Models []Model
	Limits Limits
}

// Model is one model to serve.
type Model struct {
	Path     string        // the file, as the user wrote it
	Name     string        // the name that clients see
	Device   engine.Device // where it is wanted; engine.Auto leaves the choice to us
	Context  int           // tokens over all slots; 0 leaves it to the backend
	Parallel int           // slots; 0 leaves it to the backend
}

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

// servedName is the name of a model file without an alias: the stem of a .gguf or .1bp file, else the last part of the path.
func servedName(path string) string {
	base := filepath.Base(filepath.Clean(path))
	for _, ext := range []string{".gguf", ".1bp"} {
		if stem, ok := strings.CutSuffix(base, ext); ok && stem != "" {
			return stem
		}
	}
	return base
}
