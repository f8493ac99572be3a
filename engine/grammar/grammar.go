// Package grammar holds a model's answer to a form: JSON of a schema, or a grammar in GBNF. It says which tokens of a
// vocabulary may come next, and knows nothing of models.
//
// A form is an Expr: texts, classes of characters, sequences, alternatives, repetitions, calls of rules. JSON and GBNF
// read one; Compile makes a Grammar of it, a recogniser of bytes: each rule becomes a small automaton whose edges are
// sets of bytes (characters are spelled out in UTF-8, so that tokens may cut them anywhere) or calls of other rules.
//
// What the recogniser may be doing after some text is a state: the nodes that may read the next byte, each with the
// callers to go back to. Callers are shared and merged (a graph-structured stack, made of interned sets), so that an
// ambiguous grammar costs polynomial room where a set of plain stacks would double with each byte. States are interned
// too, and a byte's way from one to another is looked up once: in effect a deterministic automaton that is built as far
// as texts go. Which tokens a state allows is found by walking it along the trie of the vocabulary, and is kept with it.
//
// Rules and parts that no text can satisfy are taken out at compile time, so whatever has been read can be completed;
// left recursion is refused. Everything that a stranger's schema can make large is bounded: the nodes of a grammar, the
// depth of calls (what nests deeper is not taken), the work and the new states of one question, the states and masks
// that are kept. What goes over a bound is a *LimitError and ends the answer: a form is never given up silently.
//
// A schema's form is narrower than the schema where that is simpler, never wider: properties come in the schema's order,
// what is not named by a list of properties is not made up unless the schema says so, numbers have at most fifteen
// digits before and after the point, and white space is one space, or a line end with at most twenty spaces. oneOf is
// taken for anyOf. A keyword that constrains and is not known here is an *Error with its path.
package grammar

import (
	"fmt"
	"sync"
)

// Error is a schema or grammar that cannot be held to.
type Error struct {
	Path   string // of the place in a schema: #/properties/name
	Line   int    // of the place in a grammar, from 1; 0 for a schema
	Column int    // in characters, from 1
	Reason string
}

func (e *Error) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Reason)
	}
	if e.Path != "" {
		return fmt.Sprintf("at %s: %s", e.Path, e.Reason)
	}
	return e.Reason
}

// LimitError is a form that takes too much to hold to.
type LimitError struct{ What string }

func (e *LimitError) Error() string { return "the schema or grammar is too large: " + e.What }

// Grammar is a compiled form beside the vocabulary that is to follow it. It is safe for concurrent use.
type Grammar struct {
	v  *Vocabulary
	mu sync.Mutex // guards the machine, which grows as it is used
	m  *machine
}

// Compile makes a Grammar of a form. An error is an *Error or a *LimitError.
func Compile(form *Expr, v *Vocabulary) (*Grammar, error) {
	p, err := compile(form)
	if err != nil {
		return nil, err
	}
	g := &Grammar{v: v, m: newMachine(p)}
	if g.m.start() == nil {
		return nil, g.m.err
	}
	return g, nil
}

// Matcher follows one answer. It is not safe for concurrent use; those of one Grammar may be used together.
type Matcher struct {
	g   *Grammar
	at  *state
	gen int // of the machine's states that at belongs to
}

// Matcher begins an answer.
func (g *Grammar) Matcher() *Matcher {
	g.mu.Lock()
	defer g.mu.Unlock()
	return &Matcher{g: g, at: g.m.first, gen: g.m.gen}
}

// Take goes on by a token and reports whether it may come next; if not, nothing has changed. A token that ends the
// answer may come where the form is complete. An error is a *LimitError.
func (m *Matcher) Take(id int32) (bool, error) {
	if m.g.v.ends(id) {
		return m.at.accept, nil
	}
	return m.take(m.g.v.bytes(id))
}

// TakeText does the same for a text.
func (m *Matcher) TakeText(text string) (bool, error) {
	if text == "" {
		return true, nil
	}
	return m.take([]byte(text))
}

func (m *Matcher) take(text []byte) (bool, error) {
	if len(text) == 0 { // a token without text would go on for ever
		return false, nil
	}
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	m.refresh()
	at := m.at
	for _, b := range text {
		if at = m.g.m.step(at, b); at == dead {
			return false, m.g.m.err
		}
	}
	m.at = at
	return true, nil
}

// refresh begins a question to the machine.
func (m *Matcher) refresh() {
	m.g.m.begin()
	if m.gen != m.g.m.gen { // the states were forgotten: at belongs to the old ones
		m.at, m.gen = m.g.m.intern(m.at.items, m.at.accept), m.g.m.gen
	}
}

// Complete reports whether the text so far is a whole one of the form.
func (m *Matcher) Complete() bool { return m.at.accept }

// Done reports that it is, and that nothing may follow.
func (m *Matcher) Done() bool { return m.at.accept && len(m.at.items) == 0 }

// Forbid sets the logits of all tokens that may not come next to value. An error is a *LimitError; then no token may.
func (m *Matcher) Forbid(logits []float32, value float32) error {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	m.refresh()
	mask, err := m.g.mask(m.at)
	if err != nil {
		return err
	}
	for i, word := range mask {
		from := i * 64
		switch word {
		case ^uint64(0):
		case 0:
			for at := from; at < min(from+64, len(logits)); at++ {
				logits[at] = value
			}
		default:
			for at := from; at < min(from+64, len(logits)); at++ {
				if word>>(at-from)&1 == 0 {
					logits[at] = value
				}
			}
		}
	}
	for at := len(mask) * 64; at < len(logits); at++ {
		logits[at] = value
	}
	return nil
}
