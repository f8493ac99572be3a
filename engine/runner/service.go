package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"onebit/engine/batch"
	"onebit/engine/grammar"
	"onebit/engine/model"
)

// service answers requests with a loaded model.
type service struct {
	cfg       Config
	parts     *Parts
	vocab     *vocabulary
	scheduler *batch.Scheduler // nil for a model that makes vectors
	texts     *batch.Texts     // of such a model
	markers   map[int32]bool   // control tokens that chat answers are taken apart by
	states    *stateFolder     // nil when the state of slots is not kept
	created   int64            // Unix seconds
	asking    asking           // how decisions are made

	words     func() *grammar.Vocabulary // what completions are made of, put in order when a form first asks
	chatWords func() *grammar.Vocabulary // and chat answers
}

func newService(cfg Config, parts *Parts) *service {
	s := &service{
		cfg: cfg, parts: parts, vocab: newVocabulary(parts.Tokenizer),
		markers: map[int32]bool{}, created: time.Now().Unix(), asking: asked,
	}
	if parts.Encoder != nil {
		s.texts = batch.NewTexts(parts.Encoder)
		return s
	}
	s.scheduler = newScheduler(cfg, parts)
	if parts.Template != nil {
		for _, text := range parts.Template.Markers() {
			if ids := s.vocab.Encode(text, false, true); len(ids) == 1 {
				s.markers[ids[0]] = true
			}
		}
	}
	s.words = sync.OnceValue(func() *grammar.Vocabulary { return s.vocab.words(nil) })
	s.chatWords = s.words
	if len(s.markers) > 0 {
		s.chatWords = sync.OnceValue(func() *grammar.Vocabulary { return s.vocab.words(s.markers) })
	}
	return s
}

func newScheduler(cfg Config, parts *Parts) *batch.Scheduler {
	return batch.New(batch.Config{
		Engine: parts.Engine, Vocabulary: parts.Tokenizer, NewSampler: parts.NewSampler,
		Slots: parts.Slots, Context: parts.Context, Log: cfg.Log,
	})
}

// run answers requests until ctx ends.
func (s *service) run(ctx context.Context) {
	if s.texts != nil {
		s.texts.Run(ctx)
		return
	}
	s.scheduler.Run(ctx)
}

// metricsNow returns the counts of what the model has done.
func (s *service) metricsNow() batch.Metrics {
	if s.texts != nil {
		return s.texts.Metrics()
	}
	return s.scheduler.Metrics()
}

// does names what the model is for: its capability, and what it puts out.
func (s *service) does() (capability, output string) {
	switch {
	case s.texts == nil:
		return "completion", "text"
	case s.parts.Pooling == model.PoolRank:
		return "rerank", "scores"
	}
	return "embedding", "embeddings"
}

// fingerprint names the program in answers.
func (s *service) fingerprint() string {
	if s.cfg.Version == "" {
		return "1bit"
	}
	return "1bit-" + s.cfg.Version
}

// modelView is one entry of /v1/models.
type modelView struct {
	ID           string         `json:"id"`
	Aliases      []string       `json:"aliases"`
	Tags         []string       `json:"tags"`
	Object       string         `json:"object"`
	Architecture modalitiesView `json:"architecture"`
	Created      int64          `json:"created"`
	OwnedBy      string         `json:"owned_by"`
	Meta         metaView       `json:"meta"`
}

type modalitiesView struct {
	Input  []string `json:"input_modalities"`
	Output []string `json:"output_modalities"`
}

// metaView describes the weights. NCtx is what one request may use.
type metaView struct {
	VocabType int    `json:"vocab_type"`
	NVocab    int    `json:"n_vocab"`
	NCtx      int    `json:"n_ctx"`
	NCtxTrain int    `json:"n_ctx_train"`
	NEmbd     int    `json:"n_embd"`
	NParams   uint64 `json:"n_params"`
	Size      uint64 `json:"size"`
	FType     string `json:"ftype"`
}

func (s *service) modelView() modelView {
	i := s.parts.Info
	_, output := s.does()
	return modelView{
		ID: s.cfg.Alias, Aliases: []string{s.cfg.Alias}, Tags: []string{}, Object: "model",
		Architecture: modalitiesView{Input: []string{"text"}, Output: []string{output}},
		Created:      s.created, OwnedBy: "1bit",
		Meta: metaView{
			VocabType: i.VocabType, NVocab: s.vocab.Size(), NCtx: s.parts.Context, NCtxTrain: i.TrainContext,
			NEmbd: i.Embedding, NParams: i.Parameters, Size: i.Bytes, FType: i.Quantization,
		},
	}
}

func (s *service) models(w http.ResponseWriter, _ *http.Request) *problem {
	type details struct {
		Parent       string `json:"parent_model"`
		Format       string `json:"format"`
		Family       string `json:"family"`
		Quantization string `json:"quantization_level"`
	}
	type named struct { // for clients that know the lists of Ollama
		Name         string   `json:"name"`
		Model        string   `json:"model"`
		Modified     string   `json:"modified_at"`
		Size         string   `json:"size"`
		Digest       string   `json:"digest"`
		Type         string   `json:"type"`
		Description  string   `json:"description"`
		Tags         []string `json:"tags"`
		Capabilities []string `json:"capabilities"`
		Parameters   string   `json:"parameters"`
		Details      details  `json:"details"`
	}
	capability, _ := s.does()
	entry := named{
		Name: s.cfg.Alias, Model: s.cfg.Alias, Type: "model", Tags: []string{}, Capabilities: []string{capability},
		Details: details{Format: "gguf", Family: s.parts.Info.Architecture, Quantization: s.parts.Info.Quantization},
	}
	writeJSON(w, http.StatusOK, struct {
		Models []named     `json:"models"`
		Object string      `json:"object"`
		Data   []modelView `json:"data"`
	}{[]named{entry}, "list", []modelView{s.modelView()}})
	return nil
}

func (s *service) model(w http.ResponseWriter, r *http.Request) *problem {
	if id := r.PathValue("id"); id != s.cfg.Alias {
		return &problem{
			status: http.StatusNotFound, kind: typeInvalid, param: "model", code: "model_not_found",
			message: fmt.Sprintf("the model %q does not exist", id),
		}
	}
	writeJSON(w, http.StatusOK, s.modelView())
	return nil
}

// propsView is /props.
type propsView struct {
	Defaults struct {
		Params  settingsView `json:"params"`
		Context int          `json:"n_ctx"`
	} `json:"default_generation_settings"`
	TotalSlots   int             `json:"total_slots"`
	ModelAlias   string          `json:"model_alias"`
	ModelFType   string          `json:"model_ftype"`
	ModelPath    string          `json:"model_path"`
	Modalities   map[string]bool `json:"modalities"`
	Slots        bool            `json:"endpoint_slots"`
	Props        bool            `json:"endpoint_props"`
	Metrics      bool            `json:"endpoint_metrics"`
	ChatTemplate string          `json:"chat_template"`
	TemplateCaps map[string]bool `json:"chat_template_caps"`
	BOS          string          `json:"bos_token"`
	EOS          string          `json:"eos_token"`
	BuildInfo    string          `json:"build_info"`
	Sleeping     bool            `json:"is_sleeping"`
}

func (s *service) props(w http.ResponseWriter, _ *http.Request) *problem {
	i := s.parts.Info
	v := propsView{
		TotalSlots: s.parts.Slots, ModelAlias: s.cfg.Alias, ModelFType: i.Quantization, ModelPath: i.Path,
		Modalities: map[string]bool{"vision": false, "video": false, "audio": false},
		Slots:      true, Metrics: true,
		ChatTemplate: i.ChatTemplate, TemplateCaps: map[string]bool{}, BOS: i.BOS, EOS: i.EOS,
		BuildInfo: s.fingerprint(),
	}
	set := defaultSettings()
	set.randomSeed = true
	v.Defaults.Params, v.Defaults.Context = set.view(true), s.parts.Context
	writeJSON(w, http.StatusOK, v)
	return nil
}

func (s *service) listSlots(w http.ResponseWriter, r *http.Request) *problem {
	if s.texts != nil {
		writeJSON(w, http.StatusOK, []any{}) // such a model keeps nothing between requests
		return nil
	}
	slots, idle := slotViews(s.scheduler.States(), s.parts.Context)
	if idle == 0 && r.URL.Query().Get("fail_on_no_slot") != "" {
		return &problem{status: http.StatusServiceUnavailable, kind: typeUnavailable, message: "no slot is idle"}
	}
	writeJSON(w, http.StatusOK, slots)
	return nil
}

func (s *service) metrics(w http.ResponseWriter, _ *http.Request) *problem {
	var text strings.Builder
	writeMetrics(&text, s.metricsNow())
	h := w.Header()
	h.Set("Content-Type", "text/plain; version=0.0.4")
	h.Set("Process-Start-Time-Unix", fmt.Sprint(s.created))
	_, _ = w.Write([]byte(text.String())) // a client that has gone needs no answer
	return nil
}

// tokenize turns text, or a mix of text and ids, into ids.
func (s *service) tokenize(w http.ResponseWriter, r *http.Request) *problem {
	f, p := readFields(r)
	if p != nil {
		return p
	}
	o := promptOptions{
		name:       "content",
		addSpecial: f.boolean("add_special", false), parseSpecial: f.boolean("parse_special", true),
	}
	pieces := f.boolean("with_pieces", false)
	if f.problem != nil {
		return f.problem
	}
	ids := []int32{}
	if f.has("content") {
		if jsonKind(f.raw["content"]) == "array" {
			ids, p = s.mixedPrompt(f.raw["content"], o)
		} else {
			ids = s.vocab.Encode(f.text("content", ""), o.addSpecial, o.parseSpecial)
			p = f.problem
		}
		if p != nil {
			return p
		}
	}
	if !pieces {
		writeJSON(w, http.StatusOK, map[string][]int32{"tokens": append([]int32{}, ids...)})
		return nil
	}
	writeJSON(w, http.StatusOK, map[string]any{"tokens": s.pieceViews(ids)})
	return nil
}

// pieceViews lists ids with their text, or with their bytes where these are no
// text by themselves.
func (s *service) pieceViews(ids []int32) []any {
	views := make([]any, 0, len(ids))
	for _, id := range ids {
		piece := s.vocab.Piece(id, true)
		var shown any = string(piece)
		if !utf8.Valid(piece) {
			shown = viewToken(id, piece, 0).Bytes
		}
		views = append(views, struct {
			ID    int32 `json:"id"`
			Piece any   `json:"piece"`
		}{id, shown})
	}
	return views
}

func (s *service) detokenize(w http.ResponseWriter, r *http.Request) *problem {
	f, p := readFields(r)
	if p != nil {
		return p
	}
	ids := []int32{}
	for i, raw := range f.list("tokens") {
		id, p := s.tokenID(raw, fmt.Sprintf("tokens[%d]", i))
		if p != nil {
			return p
		}
		ids = append(ids, id)
	}
	if f.problem != nil {
		return f.problem
	}
	writeJSON(w, http.StatusOK, map[string]string{"content": s.vocab.Decode(ids, true)})
	return nil
}

// tokenID reads one token id of the vocabulary.
func (s *service) tokenID(raw json.RawMessage, name string) (int32, *problem) {
	id, ok := wholeNumber(raw)
	switch {
	case !ok:
		return 0, invalid(name, "expected a token id, but got %s", article(jsonKind(raw)))
	case id < 0 || id >= int64(s.vocab.Size()):
		return 0, invalid(name, "there is no token %s in the vocabulary of %d", raw, s.vocab.Size())
	}
	return int32(id), nil
}

func (s *service) applyTemplate(w http.ResponseWriter, r *http.Request) *problem {
	body, p := readBody(r)
	if p != nil {
		return p
	}
	c, p := s.readChat(r.Context(), body)
	if p != nil {
		return p
	}
	writeJSON(w, http.StatusOK, map[string]string{"prompt": joined(c.parts)})
	return nil
}
