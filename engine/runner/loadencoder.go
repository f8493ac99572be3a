package runner

import (
	"fmt"
	"runtime"

	"onebit/engine/gguf"
	"onebit/engine/model"
	"onebit/engine/tensor"
	"onebit/engine/tokenizer"
)

// encoderSlots is how many requests of an encoder are said to run at once. They share passes, so that any number could.
const encoderSlots = 8

// assembleEncoder makes the parts of a model that makes vectors.
func assembleEncoder(f *gguf.File, cfg Config, tok *tokenizer.Tokenizer, level tensor.Level) (*Parts, error) {
	e, err := model.LoadEncoder(f, model.EncoderConfig{Threads: cfg.BatchThreads, Level: level, Pooling: cfg.Pooling})
	if err != nil {
		return nil, err
	}
	if n := e.Threads() + 2; n > runtime.GOMAXPROCS(0) {
		runtime.GOMAXPROCS(n) // the workers keep their cores busy; the rest goes on beside them
	}
	p := &Parts{
		Encoder: &builtInEncoder{e, f}, Pooling: e.Pooling(), Tokenizer: words{tok}, NoTemplate: "the model generates no text",
		Info:  describe(f, weights{e.Architecture(), e.Context(), e.Width(), e.Parameters(), e.Bytes()}, tok),
		Slots: max(1, cfg.Parallel), Context: e.Context(),
	}
	if cfg.Parallel == 0 {
		p.Slots = encoderSlots
	}
	if cfg.Context > 0 {
		p.Context = min(p.Context, cfg.Context)
	}
	if size := tok.Size(); size > e.Vocab() {
		e.Close()
		return nil, fmt.Errorf("the vocabulary has %d tokens, and the model only %d", size, e.Vocab())
	}
	p.Info.Path = cfg.Model
	cfg.Log.Info("model loaded", "architecture", e.Architecture(), "level", level.String(), "threads", e.Threads(),
		"pooling", e.Pooling().String(), "context", p.Context)
	return p, nil
}

// builtInEncoder is the built-in encoder as the queue uses it.
type builtInEncoder struct {
	*model.Encoder
	file *gguf.File
}

func (b *builtInEncoder) Close() error {
	b.Encoder.Close()
	return b.file.Close()
}
