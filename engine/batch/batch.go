// Package batch runs many generations on one model together: slots, each with a
// session that outlives its tasks so that a later prompt can reuse what it
// holds, a queue before them, and one forward pass after another over whatever
// the slots need next (continuous batching).
//
// Texts does the same for encoders, whose requests end with one pass.
//
// The goroutine of Scheduler.Run owns the engine. Everyone else queues tasks,
// takes events out of mailboxes and reads counts, and waits for no pass.
package batch

import (
	"context"
	"time"

	"onebit/engine/grammar"
	"onebit/engine/model"
)

// Engine is a set of loaded weights as the scheduler uses them. Only one
// goroutine at a time calls it.
type Engine interface {
	// NewSession makes an empty timeline.
	NewSession() (Session, error)
	// Eval runs one forward pass over the tokens of all steps together and
	// appends each step's tokens to its session. The result of a token has the
	// same bits whatever else is in the batch, but of one in a tree. After an error the sessions hold
	// either their old tokens or some of the new ones; Truncate brings them back.
	Eval(ctx context.Context, steps []Step) error
}

// Session is one timeline of tokens with its key-value cache.
type Session interface {
	// Truncate keeps the first n tokens.
	Truncate(n int)
	// Close gives the memory back.
	Close()
}

// Step is one session's part of a forward pass.
type Step struct {
	Session Session
	Tokens  []int32 // appended to the session
	Logits  bool    // whether Out is wanted
	// Out is set by Eval when Logits is true: one value per vocabulary entry for
	// the last of Tokens. It is valid until the next Eval.
	Out []float32
	// Tree makes Tokens branches behind the session, which keeps the tokens that it
	// has, with logits as Tree says, in Outs. Truncate drops them.
	Tree *model.Tree
	Outs [][]float32
}

// Vocabulary is what the scheduler needs of a tokenizer.
type Vocabulary interface {
	// Piece returns the bytes of one token; control tokens are empty unless
	// special is true.
	Piece(id int32, special bool) []byte
	// IsEOG reports whether id ends a generation.
	IsEOG(id int32) bool
}

// Options say how one task is to be answered.
type Options struct {
	CachePrompt bool           // reuse what a slot holds of the prompt
	Slot        int            // the slot to use; negative is any
	MaxTokens   int            // negative is no limit but the context; 0 processes the prompt alone
	Stop        []string       // texts that end the answer, none of them empty
	TimeLimit   time.Duration  // of generation, looked at on line ends; 0 is none
	Progress    bool           // report the processing of the prompt
	Logprobs    bool           // report log-probabilities
	TopLogprobs int            // how many alternatives with each token
	Shown       map[int32]bool // control tokens that are part of the text
}

// Task is one answer to be made: a prompt and how to go on from it. It must not
// change once it is submitted.
type Task struct {
	Index    int // position among the answers of one request; events carry it
	Prompt   []int32
	Options  *Options
	Sampling model.SamplerConfig
	Gone     <-chan struct{} // closed when nobody waits for the answer any more
	Box      *Mailbox        // where its events go
	Tag      any             // shown with the slot's state

	// Form is what the answer must be; nil is anything. It follows this answer alone.
	Form *grammar.Matcher

	// Branches make the task one of scoring: after the prompt no token is made,
	// and each branch's options get their probabilities. Options.MaxTokens is 0.
	Branches []Branch

	id int
}

// cancelled reports whether the client has gone.
func (t *Task) cancelled() bool {
	select {
	case <-t.Gone:
		return true
	default:
		return false
	}
}
