// Package engine holds the words of inference: what is asked (Request), what comes back (Chunk, Usage), where it runs
// (Device), what kind of work it is (Class), who does it (Backend), and the errors that callers branch on. It has no
// behaviour, no I/O and no log.
package engine

import "context"

// BuiltinSlots is how many requests the built-in engine answers at the same time, at most.
const BuiltinSlots = 256

// Kind says which operation a Request asks for.
type Kind int

// The operations.
const (
	Chat       Kind = iota + 1 // a conversation in, the next message out
	Completion                 // a raw prompt in, its continuation out
	Response                   // a conversation in, a list of items out: OpenAI's Responses
	Embedding                  // texts in, vectors out; never streamed
	Rerank                     // a query and texts in, their scores out; never streamed
	Decision                   // typed questions about a text in, probabilities out; never streamed: OpenAI's form
	SystemOne                  // the same in TypeSafe's form
)

// String returns the name used in logs.
func (k Kind) String() string {
	switch k {
	case Chat:
		return "chat"
	case Completion:
		return "completion"
	case Response:
		return "response"
	case Embedding:
		return "embedding"
	case Rerank:
		return "rerank"
	case Decision:
		return "decision"
	case SystemOne:
		return "systemone"
	}
	return "unknown"
}

// Request is one operation, checked. It is immutable once made and may be sent to a backend more than once.
type Request struct {
	Kind         Kind
	ID           string // identifies the request in logs and in the backend's log; may be empty
	Model        string // as the client wrote it; empty when it named none
	Stream       bool   // the answer is wanted in pieces
	IncludeUsage bool   // a streamed answer ends with a chunk that carries the usage
	Class        Class  // empty until somebody classified the conversation

	// Scope is whose prompts may be reused for this one: an opaque word for a key, or for a person without one. Empty: nobody
	// else uses the backend.
	Scope string
	// Fleeting says that what is computed of the prompt is never to be written to files: it holds passages that may be
	// deleted.
	Fleeting bool

	// Raw is the body as received: one JSON object, keys in the client's order. A backend that speaks the same dialect
	// sends these bytes. Nobody changes them.
	Raw []byte
}

// ScopeHeader tells a backend the scope of a request that is relayed to it. It does not leave this process.
const ScopeHeader = "X-1bit-Scope"

// Chunk is one piece of an answer: the whole answer object of an unstreamed request, or one event of a streamed one.
type Chunk struct {
	// Raw is one JSON object as the backend sent it, without framing, in valid UTF-8. The bytes may be used until emit
	// returns.
	Raw []byte

	// More says that the next piece is at hand: emit is called again, or the generation ends, without waiting for
	// anything. What writes pieces on may hold this one back until then.
	More bool

	// Reuse is what of the prompt is not computed again, as the server counted, where somebody keeps the states of
	// conversations: with a whole answer, with the last piece, and with the first one when the server has said it before
	// that. Kept is known with the whole and the last alone. Nil where nothing is known.
	Reuse *Reuse

	// Raw[ModelAt:ModelEnd] is the JSON value of the member model. Both are 0 when the backend has not looked.
	ModelAt, ModelEnd int
}

// Reuse is what came of keeping the state of prompts.
type Reuse struct {
	Tokens int // of the prompt that were reused
	Kept   int // of the prompt that are newly kept because the client asked
	Steady int // bytes of lines that change with each request and were left out
}

// HitTokens is how many tokens of a prompt that were reused make a hit: all prompts of a model begin with the same few, its
// template's own.
const HitTokens = 32

// Hit reports whether more was reused than what all prompts begin with.
func (r Reuse) Hit() bool { return r.Tokens >= HitTokens }

// Usage counts the tokens of one generation.
type Usage struct {
	Prompt     int // tokens of the prompt, cached ones included
	Cached     int // tokens of the prompt that were reused and not computed
	Completion int // tokens generated
	Reasoning  int // of those, tokens of hidden reasoning
	Written    int // tokens of the prompt whose state was newly kept because the client asked for it
}

// Class is the kind of work that a conversation is, as a classifier sees it.
type Class string

// The classes.
const (
	Code    Class = "code"
	Prose   Class = "prose"
	Short   Class = "short"
	LongDoc Class = "long_doc"
)

// Device names what a model runs on.
type Device string

// The devices. Auto is a wish: whoever starts a backend replaces it by a real one.
const (
	Auto   Device = "auto"
	CPU    Device = "cpu"
	Vulkan Device = "vulkan"
	HRX    Device = "hrx"
	ROCm   Device = "rocm"
	Zinc   Device = "zinc"
	DS4    Device = "ds4"
	MLX    Device = "mlx"
	NPU    Device = "npu"
	ONNX   Device = "onnx"

	// Elsewhere is where a model runs that a server of somebody else's answers for. Nobody can wish for it.
	Elsewhere Device = "remote"
)

// Known reports whether d is one of the devices above.
func (d Device) Known() bool {
	switch d {
	case Auto, CPU, Vulkan, HRX, ROCm, Zinc, DS4, MLX, NPU, ONNX:
		return true
	}
	return false
}

// State is where a backend stands.
type State int

// The states.
const (
	Loading State = iota // not yet ready for the first time
	Ready                // serving
	Down                 // was ready, is not now, is being brought back
	Stopped              // will not serve again
)

// String returns the word that /health shows.
func (s State) String() string {
	switch s {
	case Loading:
		return "loading"
	case Ready:
		return "ok"
	case Down:
		return "restarting"
	}
	return "stopped"
}

// Backend is one model somewhere. All methods may be called at the same time from many goroutines.
type Backend interface {
	// Name says in one word where the model runs, for logs and errors.
	Name() string

	// Slots is how many generations run at the same time; more than that wait inside the backend. At least 1.
	Slots() int

	// State is a look at the moment. It informs (health, metrics); nobody decides by it whether Generate will work.
	State() State

	// Ready returns nil once the backend can generate, waiting and starting things as needed. It returns an
	// *UnavailableError when waiting is hopeless or has been given up, and the cause of ctx when that ends first.
	Ready(ctx context.Context) error

	// Generate runs the request and calls emit in the caller's goroutine: once with the whole answer when
	// req.Stream is false, else once for each event. It returns after the last call. An error of emit ends the
	// generation and is returned as it is. When ctx ends, the generation stops at once, wherever it stands, and the
	// cause of ctx is returned. What the backend itself says against the request is a *StatusError. ErrLost says that
	// the backend went away; the request may be sent again if emit was not called. A streamed answer that breaks off
	// is an error, never a quiet end. A kind that the backend does not have is errors.ErrUnsupported. Beside an error, Usage
	// is what is known to have been made until then, its prompt a guess perhaps.
	Generate(ctx context.Context, req *Request, emit func(Chunk) error) (Usage, error)
}

// Info is what a backend says about its model.
type Info struct {
	Context int    // tokens that one conversation can hold; 0 when unknown
	Meta    []byte // a JSON object with more (parameters, bytes, training context); nil when unknown
}
