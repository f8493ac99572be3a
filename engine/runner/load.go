package runner

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"

	"onebit/engine/batch"
	"onebit/engine/chat"
	"onebit/engine/gguf"
	"onebit/engine/model"
	"onebit/engine/tensor"
	"onebit/engine/tokenizer"
)

// load opens a model with the built-in engine.
func load(ctx context.Context, cfg Config) (*Parts, error) {
	f, err := gguf.Open(cfg.Model)
	if err != nil {
		return nil, err
	}
	parts, err := assemble(ctx, f, cfg)
	if err != nil {
		_ = f.Close() // the first error says more
		return nil, err
	}
	return parts, nil
}

// assemble makes the parts of an open model file, which they own.
func assemble(ctx context.Context, f *gguf.File, cfg Config) (*Parts, error) {
	tok, err := tokenizer.New(f)
	if err != nil {
		return nil, err
	}
	level, err := tensor.LevelFromEnv()
	if err != nil {
		return nil, err
	}
	if slices.Contains(model.EncoderArchitectures(), f.Architecture()) {
		return assembleEncoder(f, cfg, tok, level)
	}
	if cfg.Pooling != "" {
		return nil, fmt.Errorf("the architecture %.80q makes no embeddings here: leave --pooling out", f.Architecture())
	}
	slots, tokens := capacity(cfg, needsOf(f), availableMemory())
	m, err := model.Load(f, model.Config{
		Context: slots * tokens, Sessions: slots,
		Threads: cfg.Threads, BatchThreads: cfg.BatchThreads, Level: level,
	})
	if err != nil {
		return nil, err
	}
	engine := &builtIn{model: m, file: f}
	if err := tune(ctx, engine, cfg, tuningKey(f, level.String())); err != nil {
		m.Close()
		return nil, err
	}
	// The workers keep their cores busy; the rest of the program needs some of
	// its own to go on beside them.
	decode, prefill := m.Threads()
	if n := max(decode, prefill) + 2; n > runtime.GOMAXPROCS(0) {
		runtime.GOMAXPROCS(n)
	}
	cfg.Log.Info("model loaded", "architecture", m.Architecture(), "level", level.String(),
		"threads", decode, "batch threads", prefill, "slots", slots, "context", tokens)
	p := &Parts{
		Engine: engine, Tokenizer: words{tok}, NewSampler: m.NewSampler,
		Info: describe(f, weights{m.Architecture(), m.Context(), m.Width(), m.Parameters(), m.Bytes()}, tok), Slots: slots, Context: tokens,
	}
	if asked := cfg.Context / max(1, cfg.Parallel); asked > tokens {
		cfg.Log.Warn("the model was trained for a shorter context", "asked", asked, "slot", tokens)
	}
	p.Info.Path = cfg.Model
	p.Template, err = templateOf(p.Info)
	if err != nil {
		cfg.Log.Warn("the model's chat template cannot be used", "error", err)
		p.NoTemplate = err.Error()
	}
	return p, nil
}

// templateOf compiles the model's chat template. A model without one can still
// complete text.
func templateOf(i Info) (*chat.Template, error) {
	if i.ChatTemplate == "" {
		return nil, fmt.Errorf("the model has no chat template")
	}
	return chat.New(i.ChatTemplate, i.BOS, i.EOS)
}

// weights is what a loaded model says of itself.
type weights struct {
	architecture      string
	context, width    int
	parameters, bytes uint64
}

// describe collects what clients may know of a model.
func describe(f *gguf.File, m weights, tok *tokenizer.Tokenizer) Info {
	i := Info{
		Architecture: m.architecture, TrainContext: m.context, Embedding: m.width,
		Parameters: m.parameters, Bytes: m.bytes, AddsBOS: tok.AddsBOS(),
	}
	i.ChatTemplate, _ = f.String("tokenizer.chat_template")
	if id, ok := tok.BOS(); ok {
		i.BOS = string(tok.Piece(id, true))
	}
	if id, ok := tok.EOS(); ok {
		i.EOS = string(tok.Piece(id, true))
	}
	switch kind, _ := f.String("tokenizer.ggml.model"); kind {
	case "llama":
		i.VocabType = 1
	case "gpt2":
		i.VocabType = 2
	case "bert":
		i.VocabType = 3
	}
	number, ok := f.Uint("general.file_type")
	i.Quantization = fileType(number, ok)
	return i
}

// fileType names the number under which a model file says how it was quantised.
func fileType(number uint64, ok bool) string {
	names := map[uint64]string{
		0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S",
		12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 32: "BF16",
	}
	if name := names[number]; ok && name != "" {
		return name
	}
	return "unknown"
}

// builtIn is the built-in engine as the scheduler uses it.
type builtIn struct {
	model *model.Model
	file  *gguf.File
	steps []model.Step
}

func (b *builtIn) SetThreads(decode, prefill int) { b.model.SetThreads(decode, prefill) }

func (b *builtIn) Threads() (decode, prefill int) { return b.model.Threads() }

func (b *builtIn) NewSession() (batch.Session, error) { return timeline{b.model.NewSession()}, nil }

// timeline is a session of the built-in engine as the scheduler uses it.
type timeline struct{ *model.Session }

// Save implements Stater.
func (b *builtIn) Save(ctx context.Context, session batch.Session, w io.Writer) (int64, error) {
	return session.(timeline).Save(ctx, w)
}

// StateTokens implements Stater.
func (b *builtIn) StateTokens(r io.Reader, size int64) (int, error) {
	return b.model.StateTokens(r, size)
}

// Restore implements Stater.
func (b *builtIn) Restore(ctx context.Context, r io.Reader, size int64) (batch.Session, []int32, error) {
	s, err := b.model.Restore(ctx, r, size)
	if err != nil {
		return nil, nil, err
	}
	return timeline{s}, s.Tokens(), nil
}

func (b *builtIn) Eval(ctx context.Context, steps []batch.Step) error {
	b.steps = b.steps[:0]
	for i := range steps {
		st := model.Step{Session: steps[i].Session.(timeline).Session, Tokens: steps[i].Tokens, Tree: steps[i].Tree}
		if steps[i].Logits {
			st.Logits = 1
		}
		b.steps = append(b.steps, st)
	}
	if err := b.model.Eval(ctx, b.steps); err != nil {
		return err
	}
	for i := range steps {
		steps[i].Out, steps[i].Outs = nil, b.steps[i].Out
		if rows := b.steps[i].Out; steps[i].Logits {
			steps[i].Out = rows[len(rows)-1]
		}
	}
	return nil
}

func (b *builtIn) Close() error {
	b.model.Close()
	return b.file.Close()
}

// words is a tokenizer with options as arguments.
type words struct{ *tokenizer.Tokenizer }

func (w words) Encode(text string, addSpecial, parseSpecial bool) []int32 {
	return w.Tokenizer.Encode(text, tokenizer.Options{AddSpecial: addSpecial, ParseSpecial: parseSpecial})
}
