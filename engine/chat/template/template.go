// Package template evaluates the chat templates of model files: programs by strangers, in Jinja.
//
// A template is translated into source for a library that evaluates it, with every operation that can take time or
// memory turned into a call of a host function that counts: a template that loops, recurses or explodes ends with an
// error, in the caller's goroutine. The translation also puts right where the library differs from Jinja2 as model
// authors use it. What is missing: include, import, extends, blocks, with, recursive loops, formatting with %.
package template

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ardanlabs/jinja"
)

// Template is a compiled template. It is safe for concurrent use.
type Template struct {
	compiled *jinja.Template
	limits   limits
	gate     chan struct{} // bounds the renderings under way, and so their memory
}

// concurrent is how many renderings of one template run at a time; more wait.
const concurrent = 3

// Compile takes the source of a template; errors are *SyntaxError.
func Compile(source string) (*Template, error) {
	translated, err := translate(source)
	if err != nil {
		return nil, err
	}
	compiled, err := jinja.Compile(translated)
	if err != nil {
		return nil, &SyntaxError{Reason: err.Error()}
	}
	return &Template{compiled: compiled, limits: defaultLimits, gate: make(chan struct{}, concurrent)}, nil
}

// Render evaluates the template with these variables, to which it adds functions; size is about the bytes that the
// variables take, now what the template takes for the present. It ends after at most about MaxTime, 8 MiB of output
// and 128 MiB of memory besides what is in proportion to size. Errors are *RefusedError, *EvalError, *LimitError or
// wrap the context's.
func (t *Template) Render(ctx context.Context, vars map[string]jinja.Value, size int, now time.Time) (_ string, err error) {
	select {
	case t.gate <- struct{}{}:
		defer func() { <-t.gate }()
	case <-ctx.Done():
		return "", fmt.Errorf("rendering the chat template: %w", ctx.Err())
	}
	r := &run{budget: newBudget(ctx, t.limits, size), now: now, spaces: map[*jinja.Dict]bool{}}
	r.addFunctions(vars)
	defer func() {
		if p := recover(); p != nil { // the library, on what no host function has kept from it
			err = &EvalError{Reason: fmt.Sprint(p)}
		}
	}()
	text, err := t.compiled.RenderValues(vars)
	switch {
	case err == nil && len(text) > t.limits.output:
		return "", &LimitError{What: "output", Limit: bytesText(t.limits.output)}
	case err == nil:
		return text, nil
	case isOurs(err):
		return "", err
	case ctx.Err() != nil:
		return "", fmt.Errorf("rendering the chat template: %w", ctx.Err())
	}
	return "", &EvalError{Reason: err.Error()}
}

// SyntaxError is a template that does not compile, or uses what this package does not support.
type SyntaxError struct {
	Line   int // from 1; 0 when it is about the whole template
	Reason string
}

func (e *SyntaxError) Error() string {
	if e.Line == 0 {
		return "chat template: " + e.Reason
	}
	return fmt.Sprintf("chat template, line %d: %s", e.Line, e.Reason)
}

// RefusedError is a conversation that the template itself refuses, in the template's words.
type RefusedError struct{ Message string }

func (e *RefusedError) Error() string {
	return "the model's chat template refuses the conversation: " + e.Message
}

// EvalError is a template that goes wrong on a conversation.
type EvalError struct{ Reason string }

func (e *EvalError) Error() string { return "the model's chat template fails: " + e.Reason }

// LimitError is a template that takes more than it may.
type LimitError struct{ What, Limit string }

func (e *LimitError) Error() string {
	return fmt.Sprintf("the model's chat template exceeds the limit of %s: %s", e.What, e.Limit)
}

// isOurs says whether err is one of the above.
func isOurs(err error) bool {
	if _, ok := errors.AsType[*RefusedError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*EvalError](err); ok {
		return true
	}
	_, ok := errors.AsType[*LimitError](err)
	return ok
}
