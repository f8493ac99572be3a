package runner

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"

	"onebit/engine/batch"
	"onebit/engine/model"
	"onebit/engine/wire"
)

// maxTexts bounds the texts of one request.
const maxTexts = 4096

// generating makes an action for models that generate text.
func generating(do action) action {
	return func(s *service, w http.ResponseWriter, r *http.Request) *problem {
		if s.texts != nil {
			return s.unable("it generates no text")
		}
		return do(s, w, r)
	}
}

// encoding makes an action for models that make vectors, or with rank for those that rank texts, and for others that
// are asked to rank by their vectors of tokens.
func encoding(rank bool, do action) action {
	return func(s *service, w http.ResponseWriter, r *http.Request) *problem {
		switch {
		case s.texts == nil && rank:
			return s.unable("it ranks no texts")
		case s.texts == nil:
			return s.unable("it makes no embeddings")
		case !rank && s.parts.Pooling == model.PoolRank:
			return s.unable("it makes no embeddings")
		}
		return do(s, w, r)
	}
}

// unable says that the model is of another kind, and what it is for.
func (s *service) unable(what string) *problem {
	does := "generates text: ask /v1/chat/completions"
	switch {
	case s.texts != nil && s.parts.Pooling == model.PoolRank:
		does = "ranks texts: ask /v1/rerank"
	case s.texts != nil:
		does = "makes embeddings: ask /v1/embeddings"
	}
	return &problem{
		status: http.StatusNotImplemented, kind: typeUnsupported,
		message: fmt.Sprintf("the model %s %s; %s", s.cfg.Alias, does, what),
	}
}

// vectors is a request for embeddings.
type vectors struct {
	texts  []model.Text
	packed bool // as base64
	size   int  // values of each vector that are wanted
	norm   int  // 2 divides by the Euclidean length, -1 by nothing
	each   bool // a vector of every token
}

// embeddings answers OpenAI's /v1/embeddings.
func (s *service) embeddings(w http.ResponseWriter, r *http.Request) *problem {
	v, p := s.readVectors(r, true)
	if p != nil {
		return p
	}
	if p := s.encode(r.Context(), v.texts); p != nil || r.Context().Err() != nil {
		return p
	}
	type entry struct {
		Object    string `json:"object"`
		Index     int    `json:"index"`
		Embedding any    `json:"embedding"`
	}
	list := make([]entry, len(v.texts))
	for i, t := range v.texts {
		list[i] = entry{"embedding", i, v.form(v.finish(t.Out))}
	}
	writeJSON(w, http.StatusOK, struct {
		Object string     `json:"object"`
		Data   []entry    `json:"data"`
		Model  string     `json:"model"`
		Usage  countsView `json:"usage"`
	}{"list", list, s.cfg.Alias, countTexts(v.texts)})
	return nil
}

// embedding answers llama-server's own /embedding: a list of vectors for each text, one unless all tokens' are wanted.
func (s *service) embedding(w http.ResponseWriter, r *http.Request) *problem {
	v, p := s.readVectors(r, false)
	if p != nil {
		return p
	}
	if p := s.encode(r.Context(), v.texts); p != nil || r.Context().Err() != nil {
		return p
	}
	type entry struct {
		Index     int `json:"index"`
		Embedding any `json:"embedding"`
		Tokens    int `json:"tokens_evaluated"`
	}
	list := make([]entry, len(v.texts))
	for i, t := range v.texts {
		var rows [][]float32
		for row := range slices.Chunk(t.Out, s.parts.Info.Embedding) {
			rows = append(rows, v.finish(row))
		}
		list[i] = entry{i, rows, len(t.Tokens)}
		if v.packed {
			list[i].Embedding = pack(slices.Concat(rows...))
		}
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

// finish cuts and normalises one vector.
func (v *vectors) finish(x []float32) []float32 {
	x = x[:min(v.size, len(x))]
	if v.norm == 2 {
		model.Normalize(x)
	}
	return x
}

// form returns a vector as it is written.
func (v *vectors) form(x []float32) any {
	if v.packed {
		return pack(x)
	}
	return x
}

// pack writes numbers as OpenAI does: little-endian, in base64.
func pack(x []float32) string {
	raw := make([]byte, 0, 4*len(x))
	for _, f := range x {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(f))
	}
	return base64.StdEncoding.EncodeToString(raw)
}

// readVectors reads a request for embeddings. The own form of llama-server has more to it than OpenAI's.
func (s *service) readVectors(r *http.Request, standard bool) (*vectors, *problem) {
	body, p := readBody(r)
	if p != nil {
		return nil, p
	}
	f, p := parseFields(body)
	if p != nil {
		return nil, p
	}
	name := "input"
	if !standard {
		name = f.first("input", "content")
	}
	if name == "input" {
		if _, err := wire.ParseEmbedding(body); err != nil {
			return nil, fromWire(err)
		}
	}
	v := &vectors{norm: 2, each: s.parts.Pooling == model.PoolNone}
	width := s.parts.Info.Embedding
	v.size = int(f.integer("dimensions", int64(width), 1, int64(width)))
	switch format := f.text("encoding_format", "float"); format {
	case "float":
	case "base64":
		v.packed = true
	default:
		f.fail(invalid("encoding_format", "expected float or base64, but got %q", format))
	}
	if !standard {
		s.readOwn(f, v)
	} else if v.each {
		f.fail(&problem{status: http.StatusBadRequest, kind: typeInvalid,
			message: "the model does not say how the vectors of a text's tokens are pooled: start the engine with --pooling mean or cls, or ask /embeddings for those of all tokens"})
	}
	if f.problem != nil {
		return nil, f.problem
	}
	if v.texts, p = s.readTexts(f.raw[name], name); p != nil {
		return nil, p
	}
	for i := range v.texts {
		v.texts[i].Each = v.each
	}
	return v, nil
}

// readOwn reads what OpenAI's form does not have: the normalisation, and the vectors of all tokens.
func (s *service) readOwn(f *fields, v *vectors) {
	switch pooling := f.text("pooling", s.parts.Pooling.String()); pooling {
	case s.parts.Pooling.String():
	case model.PoolNone.String():
		v.each = true
	default:
		f.fail(invalid("pooling", "the model pools as %v, so expected that or none, but got %q", s.parts.Pooling, pooling))
	}
	if v.each {
		v.norm = -1 // unless it is asked for
	}
	v.norm = int(f.integer("embd_normalize", int64(v.norm), -1, 2))
	if v.norm == 0 || v.norm == 1 {
		f.fail(unsupported("embd_normalize", "expected 2, the Euclidean norm, or -1, none"))
	}
}

// readTexts reads one text or an array of them. A text is a string, token ids or a mix of both.
func (s *service) readTexts(raw json.RawMessage, name string) ([]model.Text, *problem) {
	o := promptOptions{name: name, addSpecial: true}
	var items []json.RawMessage
	many := jsonKind(raw) == "array" && json.Unmarshal(raw, &items) == nil && !hasNumber(items)
	switch {
	case !many:
		items = []json.RawMessage{raw}
	case len(items) == 0:
		return nil, invalid(name, "it must not be empty")
	case len(items) > maxTexts:
		return nil, invalid(name, "%d texts are more than %d in one request", len(items), maxTexts)
	}
	texts := make([]model.Text, len(items))
	for i, item := range items {
		if many {
			o.name = fmt.Sprintf("%s[%d]", name, i)
		}
		ids, p := s.readPrompt(item, o)
		if p == nil {
			p = s.fits(ids, o.name)
		}
		if p != nil {
			return nil, p
		}
		texts[i].Tokens = ids
	}
	return texts, nil
}

// fits refuses a text that the model cannot read as a whole.
func (s *service) fits(ids []int32, name string) *problem {
	switch n := len(ids); {
	case n == 0:
		return invalid(name, "it must not be empty")
	case n > s.parts.Context:
		p := overflow(n, s.parts.Context)
		p.param = name
		p.message = fmt.Sprintf("this model's maximum context length is %d tokens, but %q has %d; cut the text into shorter ones", s.parts.Context, name, n)
		return p
	}
	return nil
}

// encode runs texts through the model. Without a problem and with the context's end, nobody waits for an answer.
func (s *service) encode(ctx context.Context, texts []model.Text) *problem {
	err := s.texts.Encode(ctx, texts)
	switch {
	case err == nil || ctx.Err() != nil:
		return nil
	case errors.Is(err, batch.ErrBusy):
		return &problem{status: http.StatusServiceUnavailable, kind: typeUnavailable, code: "busy", message: "too many requests are waiting"}
	}
	return fromScheduler(err)
}

// countsView is the usage of requests that generate nothing.
type countsView struct {
	Prompt int `json:"prompt_tokens"`
	Total  int `json:"total_tokens"`
}

func countTexts(texts []model.Text) countsView {
	n := 0
	for _, t := range texts {
		n += len(t.Tokens)
	}
	return countsView{n, n}
}
