package runner_test

import (
	"context"
	"errors"
	"hash/fnv"
	"math"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"onebit/engine/batch"
	"onebit/engine/chat"
	"onebit/engine/model"
	"onebit/engine/runner"
)

// Tokens of the fake vocabulary: one for each byte, then control tokens.
const (
	tokEnd = 256 + iota
	tokUser
	tokAssistant
	tokSystem
	vocabSize
)

var controls = [...]string{"<|end|>", "<|user|>", "<|assistant|>", "<|system|>"}

// panicText makes the fake tokenizer panic.
const panicText = "panic!"

// fakeTokenizer makes a token of every byte.
type fakeTokenizer struct{}

func (fakeTokenizer) Size() int              { return vocabSize }
func (fakeTokenizer) IsEOG(id int32) bool    { return id == tokEnd }
func (fakeTokenizer) IsControl(i int32) bool { return i >= tokEnd }

func (fakeTokenizer) Encode(text string, _, parseSpecial bool) []int32 {
	if text == panicText {
		panic("a broken tokenizer")
	}
	var ids []int32
next:
	for text != "" {
		if parseSpecial {
			for i, name := range controls {
				if rest, ok := strings.CutPrefix(text, name); ok {
					ids, text = append(ids, int32(tokEnd+i)), rest
					continue next
				}
			}
		}
		ids, text = append(ids, int32(text[0])), text[1:]
	}
	return ids
}

func (fakeTokenizer) Piece(id int32, special bool) []byte {
	switch {
	case id < tokEnd:
		return []byte{byte(id)}
	case special:
		return []byte(controls[id-tokEnd])
	}
	return nil
}

func (f fakeTokenizer) Decode(ids []int32, special bool) string {
	var b []byte
	for _, id := range ids {
		b = append(b, f.Piece(id, special)...)
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// fakeEngine computes logits from all tokens of a session, so that any mistake
// in what a session holds changes the answer.
type fakeEngine struct {
	// next says what follows tokens; nil is a letter made of all of them.
	next func(tokens []int32) int32
	// during is called in every pass, before anything changes; in the pass that
	// proves the model only if atProof is set.
	during  func(steps []batch.Step) error
	atProof bool

	mu       sync.Mutex
	passes   []pass
	sessions int // open
	made     int
	closed   bool
}

// pass is what one Eval was given.
type pass []part

type part struct {
	session int
	tokens  int
	logits  bool
}

type fakeSession struct {
	engine *fakeEngine
	id     int
	tokens []int32
}

func (e *fakeEngine) NewSession() (batch.Session, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sessions++
	e.made++
	return &fakeSession{engine: e, id: e.made - 1}, nil
}

func (e *fakeEngine) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	if e.sessions > 0 {
		return errors.New("sessions are open")
	}
	return nil
}

func (s *fakeSession) Truncate(n int) { s.tokens = s.tokens[:min(n, len(s.tokens))] }

func (s *fakeSession) Close() {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	s.engine.sessions--
}

// tree returns the logits of a tree behind tokens.
func (e *fakeEngine) tree(tokens []int32, st *batch.Step) (outs [][]float32) {
	for _, at := range st.Tree.Logits {
		var path []int32
		for i := at; i >= 0; i = st.Tree.Parents[i] {
			path = append(path, st.Tokens[i])
		}
		slices.Reverse(path)
		outs = append(outs, e.logits(slices.Concat(tokens, path)))
	}
	return outs
}

func (e *fakeEngine) Eval(_ context.Context, steps []batch.Step) error {
	e.mu.Lock()
	proof := len(e.passes) == 0
	e.mu.Unlock()
	if e.during != nil && (!proof || e.atProof) {
		if err := e.during(steps); err != nil {
			return err
		}
	}
	var p pass
	for i := range steps {
		st := &steps[i]
		s := st.Session.(*fakeSession)
		if st.Tree != nil {
			p = append(p, part{s.id, len(st.Tokens) - st.Tree.From, true})
			st.Outs = e.tree(s.tokens, st)
			continue
		}
		p = append(p, part{s.id, len(st.Tokens), st.Logits})
		s.tokens = append(s.tokens, st.Tokens...)
		if st.Logits {
			st.Out = e.logits(s.tokens)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.passes = append(e.passes, p)
	return nil
}

// logits favours the next token and gives every other a value of its own.
func (e *fakeEngine) logits(tokens []int32) []float32 {
	out := make([]float32, vocabSize)
	for i := range out {
		out[i] = float32(i%17) / 17
	}
	next := letter
	if e.next != nil {
		next = e.next
	}
	out[next(tokens)] = 20
	return out
}

// recorded returns the passes so far, without the one that proved the model.
func (e *fakeEngine) recorded() []pass {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]pass(nil), e.passes[1:]...)
}

// letter returns a lower-case letter made of all tokens.
func letter(tokens []int32) int32 {
	h := fnv.New32a()
	for _, id := range tokens {
		h.Write([]byte{byte(id), byte(id >> 8)})
	}
	return int32('a' + h.Sum32()%26)
}

// echo answers a prompt with reply and the end token. What it is asked after
// the prompt's last "assistant" or, without one, after its last ':'.
func echo(reply string) func([]int32) int32 {
	want := fakeTokenizer{}.Encode(reply, false, true)
	return func(tokens []int32) int32 {
		for i := len(tokens) - 1; i >= 0; i-- {
			if tokens[i] == tokAssistant || tokens[i] == ':' && !strings.Contains(reply, ":") {
				if n := len(tokens) - 1 - i; n < len(want) {
					return want[n]
				}
				return tokEnd
			}
		}
		return tokEnd
	}
}

// source is a chat template: <|role|>content<|end|> for each message.
const source = `{# thoughts in <think> and </think>, calls in <tool_call> -#}
{%- if tools %}<|system|>tools {% for t in tools %}{{ t.function.name }} {% endfor %}<|end|>{% endif -%}
{%- if reasoning_effort %}<|system|>effort {{ reasoning_effort }}<|end|>{% endif -%}
{%- if not enable_thinking %}<|system|>no thinking<|end|>{% endif -%}
{%- if extra %}<|system|>extra {{ extra }}<|end|>{% endif -%}
{%- for m in messages -%}
{%- if not loop.first and m.role == 'user' and messages[loop.index0 - 1].role == 'user' %}{{ raise_exception('roles must alternate') }}{% endif -%}
<|{{ m.role }}|>{{ m.content }}<|end|>
{%- endfor -%}
{%- if add_generation_prompt %}<|assistant|>{% endif %}`

// fakeParts puts the fakes together.
func fakeParts(e *fakeEngine, slots, context int) *runner.Parts {
	template, err := chat.New(source, "", "<|end|>")
	if err != nil {
		panic(err)
	}
	return &runner.Parts{
		Engine: e, Tokenizer: fakeTokenizer{}, Template: template,
		NewSampler: model.NewSampler, Slots: slots, Context: context,
		Info: runner.Info{
			Path: "/models/fake.gguf", Architecture: "fake", Quantization: "Q8_0", VocabType: 2, TrainContext: 4096,
			Embedding: 64, Parameters: 1234, Bytes: 5678, EOS: "<|end|>", ChatTemplate: source,
		},
	}
}

// valid reports a text that is not UTF-8 or holds a replacement character.
func valid(text string) bool {
	return utf8.ValidString(text) && !strings.Contains(text, "\uFFFD")
}

func nan() float32 { return float32(math.NaN()) }
