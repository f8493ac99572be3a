// Package chat renders conversations with the chat template that a model file carries, and takes a model's answer
// apart again into text, reasoning and tool calls.
package chat

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"onebit/engine/chat/template"
)

// Template is a compiled chat template. It is safe for concurrent use.
type Template struct {
	compiled *template.Template
	source   string
	bos, eos string
	traits   traits
}

// New compiles a template, with the texts of the model's tokens that begin and end a sequence ("" for none), and
// tries it on a few small conversations to learn what it can take. Errors are *SyntaxError, or *LimitError for a
// template that does not get through those.
func New(source, bosToken, eosToken string) (*Template, error) {
	compiled, err := template.Compile(source)
	if err != nil {
		return nil, err
	}
	t := &Template{compiled: compiled, source: source, bos: bosToken, eos: eosToken}
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

// Render makes the prompt for a conversation. It takes at most about two seconds, 8 MiB of output and some 128 MiB
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
	if in.Now.IsZero() {
		in.Now = time.Now()
	}
	g := newGuards(in.Protect)
	vars, err := t.variables(in, g)
	if err != nil {
		return nil, err
	}
	text, err := t.compiled.Render(ctx, vars, len(in.Messages)+len(in.Tools)+len(in.Kwargs), in.Now)
	if err != nil {
		return nil, err
	}
	return g.parts(text), nil
}

// InputError is a conversation that is not one.
type InputError struct {
	Field  string // such as messages[2].content
	Reason string
}

func (e *InputError) Error() string { return e.Field + ": " + e.Reason }

// What goes wrong with a template.
type (
	SyntaxError  = template.SyntaxError
	RefusedError = template.RefusedError
	EvalError    = template.EvalError
	LimitError   = template.LimitError
)
