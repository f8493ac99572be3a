// Package chat renders conversations with the chat template that a model file carries, and takes a model's answer
// apart again into text, reasoning and tool calls.
//
// A template is a program by a stranger, in Jinja. It is translated into source for a library that evaluates it,
// with every operation that can take time or memory turned into a call of a host function that counts: a template
// that loops, recurses or explodes ends with an error, in the caller's goroutine. The translation also puts right
// where the library differs from Jinja2 as model authors use it.
package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ardanlabs/jinja"
)

// Template is a compiled chat template. It is safe for concurrent use.
type Template struct {
	compiled *jinja.Template
	source   string
	bos, eos string
	limits   limits
	gate     chan struct{} // bounds the renderings under way, and so their memory
	traits   traits
}

// concurrent is how many renderings of one template run at a time; more wait.
const concurrent = 4

// New compiles a template, with the texts of the model's tokens that begin and end a sequence ("" for none), and
// tries it on a few small conversations to learn what it can take. Errors are *SyntaxError, or *LimitError for a
// template that does not get through those.
func New(source, bosToken, eosToken string) (*Template, error) {
	t := &Template{
		source: source, bos: bosToken, eos: eosToken, limits: defaultLimits, gate: make(chan struct{}, concurrent),
	}
	translated, err := translate(source)
	if err != nil {
		return nil, err
	}
	if t.compiled, err = jinja.Compile(translated); err != nil {
		return nil, &SyntaxError{Reason: err.Error()}
	}
	if t.traits, err = t.probe(); err != nil {
		return nil, err
	}
	return t, nil
}

// Input is what a prompt is made of. The zero value of every field but Messages means absent.
type Input struct {
	// Messages is a JSON array of chat messages, Tools one of tool definitions, both in the OpenAI form. Templates
	// see the keys of objects in the order given.
	Messages, Tools json.RawMessage
	// AddGenerationPrompt ends the prompt where the model's turn begins.
	AddGenerationPrompt bool
	// Kwargs is a JSON object of further variables for the template, such as {"enable_thinking": false}. They win
	// over what this package sets itself, except for the messages and tools.
	Kwargs json.RawMessage
	// Protect lists the texts of the model's control tokens. Where one occurs in the conversation it reaches the
	// prompt as a plain Part.
	Protect []string
	// Now is what the template takes for the present; zero means time.Now.
	Now time.Time
}

// Part is a piece of a prompt. In a plain one, which comes from the conversation, control tokens must not be
// recognised: a user has written one.
type Part struct {
	Text  string
	Plain bool
}

// Render makes the prompt for a conversation. It takes at most about two seconds, 8 MiB of output and some 64 MiB
// of memory, however the template is written. Errors are *InputError and *RefusedError (the client's conversation is
// at fault), *EvalError and *LimitError (the template is), or the context's.
func (t *Template) Render(ctx context.Context, in Input) (string, error) {
	parts, err := t.Parts(ctx, in)
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String(), err
}

// Parts is Render with the places marked at which the conversation holds a text of in.Protect.
func (t *Template) Parts(ctx context.Context, in Input) ([]Part, error) {
	g := newGuards(in.Protect)
	vars, err := t.variables(in, g)
	if err != nil {
		return nil, err
	}
	text, err := t.execute(ctx, vars, len(in.Messages)+len(in.Tools)+len(in.Kwargs), in.Now)
	if err != nil {
		return nil, err
	}
	return g.parts(text), nil
}

// execute renders with exactly these variables, made from input bytes of JSON.
func (t *Template) execute(ctx context.Context, vars map[string]jinja.Value, input int, now time.Time) (_ string, err error) {
	select {
	case t.gate <- struct{}{}:
		defer func() { <-t.gate }()
	case <-ctx.Done():
		return "", fmt.Errorf("rendering the chat template: %w", ctx.Err())
	}
	if now.IsZero() {
		now = time.Now()
	}
	r := &run{budget: newBudget(ctx, t.limits, input), now: now, spaces: map[*jinja.Dict]bool{}}
	r.addFunctions(vars)
	defer func() {
		if p := recover(); p != nil {
			err = &EvalError{Reason: fmt.Sprint(p)}
		}
	}()
	text, err := t.compiled.RenderValues(vars)
	switch {
	case err == nil && len(text) > t.limits.output:
		return "", &LimitError{What: "output", Limit: bytesText(t.limits.output)}
	case err == nil || isOurs(err):
		return text, err
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

// InputError is a conversation that is not one.
type InputError struct {
	Field  string // such as messages[2].content
	Reason string
}

func (e *InputError) Error() string { return e.Field + ": " + e.Reason }

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
