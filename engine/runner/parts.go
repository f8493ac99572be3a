package runner

import (
	"context"

	"onebit/engine/batch"
	"onebit/engine/chat"
	"onebit/engine/model"
)

// Engine is a set of loaded weights.
type Engine interface {
	batch.Engine
	// Close frees the weights. No session may be used after it.
	Close() error
}

// Encoder is a set of loaded weights that makes vectors of texts, or ranks them.
type Encoder interface {
	batch.Encoder
	// Close frees the weights.
	Close() error
}

// Tokenizer turns text into token ids and back. It is safe for concurrent use.
type Tokenizer interface {
	// Encode returns the ids of text. addSpecial adds the tokens that the model
	// wants at the beginning and the end; parseSpecial makes control tokens of
	// their written names.
	Encode(text string, addSpecial, parseSpecial bool) []int32
	// Piece returns the bytes of one token; control tokens are empty unless
	// special is true.
	Piece(id int32, special bool) []byte
	// Decode returns the text of ids, with the names of control tokens if special
	// is true.
	Decode(ids []int32, special bool) string
	// Size is the number of vocabulary entries.
	Size() int
	// IsEOG reports whether id ends a generation.
	IsEOG(id int32) bool
	// IsControl reports whether id is a control token.
	IsControl(id int32) bool
}

// Info describes a loaded model to clients.
type Info struct {
	Path         string
	Architecture string
	Quantization string // such as "Q4_1"
	VocabType    int    // llama.cpp's number: 1 SPM, 2 BPE, 3 WPM
	TrainContext int    // tokens
	Embedding    int    // width of the residual stream, and of vectors
	Parameters   uint64
	Bytes        uint64 // size of all tensors
	BOS, EOS     string // text of the tokens, or ""
	AddsBOS      bool   // whether encoding puts BOS first
	ChatTemplate string // source, or ""
}

// Parts is a loaded model, taken apart into what the server needs.
type Parts struct {
	Engine     Engine  // nil for a model that makes vectors
	Encoder    Encoder // of such a model, which has no template and no samplers
	Pooling    model.Pooling
	Tokenizer  Tokenizer
	Template   *chat.Template // nil when there is none that can be used
	NoTemplate string         // why there is none
	NewSampler func(model.SamplerConfig) *model.Sampler
	Info       Info
	Slots      int // how many requests run at once
	Context    int // tokens that each slot holds, or that a text has at most
}

// close frees the weights.
func (p *Parts) close() error {
	if p.Encoder != nil {
		return p.Encoder.Close()
	}
	return p.Engine.Close()
}

// Loader opens the model that a configuration names.
type Loader func(ctx context.Context, cfg Config) (*Parts, error)
