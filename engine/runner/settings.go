package runner

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"onebit/engine/batch"
	"onebit/engine/model"
)

// Limits of what one request may ask for.
const (
	maxChoices  = 128
	maxLogprobs = 1024
	maxChatTop  = 20
	defaultPing = 30 * time.Second
	seedRandom  = math.MaxUint32 // what clients write for "any seed", besides -1
	maxBias     = 1e9            // far beyond any logit, and still finite in float32
)

// settings says how one request is to be answered: everything but its prompt.
type settings struct {
	batch.Options
	sampling model.SamplerConfig

	stream          bool
	includeUsage    bool
	returnTokens    bool
	timingsPerToken bool
	ignoreEOS       bool
	choices         int           // answers to each prompt
	ping            time.Duration // between comments on a silent stream; 0 is never
	fields          []string      // of the native answer; empty is all
	randomSeed      bool          // the seed was not given
	bias            []model.Bias  // as the request gives it
	reasoning       string        // the reasoning format asked for
	form            form          // what the answer must be
}

func defaultSettings() settings {
	return settings{
		Options: batch.Options{CachePrompt: true, MaxTokens: -1, Slot: -1},
		choices: 1, ping: defaultPing, reasoning: "deepseek",
		sampling: model.SamplerConfig{
			Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05, RepeatPenalty: 1, PenaltyLastN: 64,
		},
	}
}

// readSettings reads what chat and completion requests have in common.
func readSettings(f *fields, voc *vocabulary) settings {
	s := defaultSettings()
	s.stream = f.boolean("stream", false)
	options := f.object("stream_options")
	s.includeUsage = options.boolean("include_usage", false)
	f.merge("stream_options", options)
	s.CachePrompt = f.boolean("cache_prompt", true)
	s.returnTokens = f.boolean("return_tokens", false)
	s.Progress = f.boolean("return_progress", false)
	s.timingsPerToken = f.boolean("timings_per_token", false)
	s.MaxTokens = readMaxTokens(f)
	s.choices = int(f.integer(f.first("n_cmpl", "n"), 1, 1, maxChoices))
	s.Slot = int(f.integer("id_slot", -1, -1, math.MaxInt32))
	s.Stop = readStop(f)
	if ping := f.integer("sse_ping_interval", int64(defaultPing/time.Second), -1, math.MaxInt32); ping > 0 {
		s.ping = time.Duration(ping) * time.Second
	} else {
		s.ping = 0
	}
	if ms := f.integer("t_max_predict_ms", 0, -1, math.MaxInt32); ms > 0 {
		s.TimeLimit = time.Duration(ms) * time.Millisecond
	}
	s.reasoning = readReasoningFormat(f)
	readSampling(f, &s)
	s.bias = readBias(f, voc)
	s.sampling.LogitBias = s.bias
	if s.ignoreEOS = f.boolean("ignore_eos", false); s.ignoreEOS {
		for _, id := range voc.ends {
			s.sampling.LogitBias = append(s.sampling.LogitBias, model.Bias{ID: id, Bias: never()})
		}
	}
	refuseUnsupported(f)
	s.form = readForm(f)
	return s
}

func readMaxTokens(f *fields) int {
	name := f.first("n_predict", "max_completion_tokens", "max_tokens")
	low := int64(0)
	if name == "n_predict" {
		low = -1
	}
	return int(f.integer(name, -1, low, math.MaxInt32))
}

func readReasoningFormat(f *fields) string {
	v := f.text("reasoning_format", "deepseek")
	switch v {
	case "none", "deepseek", "deepseek-legacy", "auto":
	default:
		f.fail(invalid("reasoning_format", "expected none, auto, deepseek or deepseek-legacy, but got %q", v))
	}
	return v
}

// readStop reads a string or an array of strings. Empty ones are left out.
func readStop(f *fields) []string {
	if !f.has("stop") {
		return nil
	}
	var stops []string
	if jsonKind(f.raw["stop"]) == "string" {
		stops = []string{f.text("stop", "")}
	} else if json.Unmarshal(f.raw["stop"], &stops) != nil {
		f.fail(invalid("stop", "expected a string or an array of strings"))
	}
	return slices.DeleteFunc(stops, func(s string) bool { return s == "" })
}

func readSampling(f *fields, s *settings) {
	p := &s.sampling
	const inf = math.MaxFloat32
	number := func(name string, def float32, low, high float64) float32 {
		return float32(f.number(name, float64(def), low, high))
	}
	p.Temperature = number("temperature", p.Temperature, 0, inf)
	p.TopK = int(max(0, f.integer("top_k", int64(p.TopK), math.MinInt32, math.MaxInt32)))
	p.TopP = number("top_p", p.TopP, 0, 1)
	p.MinP = number("min_p", p.MinP, 0, 1)
	p.RepeatPenalty = number("repeat_penalty", p.RepeatPenalty, 0, inf)
	p.PresencePenalty = number("presence_penalty", p.PresencePenalty, -inf, inf)
	p.FrequencyPenalty = number("frequency_penalty", p.FrequencyPenalty, -inf, inf)
	p.PenaltyLastN = int(f.integer("repeat_last_n", int64(p.PenaltyLastN), -1, math.MaxInt32))
	if p.RepeatPenalty <= 0 {
		f.fail(invalid("repeat_penalty", "the value must be above 0"))
	}
	switch seed := f.integer("seed", -1, math.MinInt64, math.MaxInt64); {
	case seed < 0 || seed == seedRandom:
		p.Seed, s.randomSeed = rand.Uint64(), true
	default:
		p.Seed = uint64(seed)
	}
	keepListed(f, p)
}

// keepListed switches off the samplers that a "samplers" list leaves out.
func keepListed(f *fields, p *model.SamplerConfig) {
	if !f.has("samplers") {
		return
	}
	var names []string
	if jsonKind(f.raw["samplers"]) == "string" { // one letter a sampler
		letters := map[rune]string{'e': "penalties", 'k': "top_k", 'p': "top_p", 'm': "min_p", 't': "temperature"}
		for _, r := range f.text("samplers", "") {
			names = append(names, letters[r])
		}
	} else if json.Unmarshal(f.raw["samplers"], &names) != nil {
		f.fail(invalid("samplers", "expected a string or an array of strings"))
		return
	}
	off := func(name string) bool { return !slices.Contains(names, name) }
	if off("penalties") {
		p.RepeatPenalty, p.PresencePenalty, p.FrequencyPenalty = 1, 0, 0
	}
	if off("top_k") {
		p.TopK = 0
	}
	if off("top_p") {
		p.TopP = 1
	}
	if off("min_p") {
		p.MinP = 0
	}
	if off("temperature") && p.Temperature > 0 {
		p.Temperature = 1
	}
}

// never is the bias that forbids a token.
func never() float32 { return float32(math.Inf(-1)) }

// readBias reads an array of [token or text, bias or false] or an object of
// token or text to bias. A text stands for all its tokens. Pairs that make no
// sense are passed over, as are ids outside the vocabulary.
func readBias(f *fields, tok Tokenizer) []model.Bias {
	var list []model.Bias
	if !f.has("logit_bias") {
		return nil
	}
	add := func(id int64, value float32) {
		if id >= 0 && id < int64(tok.Size()) {
			list = append(list, model.Bias{ID: int32(id), Bias: value})
		}
	}
	addText := func(text string, value float32) {
		for _, id := range tok.Encode(text, false, false) {
			add(int64(id), value)
		}
	}
	switch jsonKind(f.raw["logit_bias"]) {
	case "object":
		for key, raw := range f.object("logit_bias").raw {
			value, ok := biasValue(raw)
			if id, err := strconv.ParseInt(key, 10, 64); ok && err == nil {
				add(id, value)
			} else if ok {
				addText(key, value)
			}
		}
	case "array":
		for _, item := range f.list("logit_bias") {
			key, value, ok := biasPair(item)
			if id, whole := wholeNumber(key); ok && whole {
				add(id, value)
			} else if text := ""; ok && json.Unmarshal(key, &text) == nil {
				addText(text, value)
			}
		}
	default:
		f.mismatch("logit_bias", "object")
	}
	slices.SortStableFunc(list, func(a, b model.Bias) int { return int(a.ID - b.ID) })
	return list
}

// biasPair reads an array of a token and its bias.
func biasPair(raw json.RawMessage) (key json.RawMessage, value float32, ok bool) {
	var pair []json.RawMessage
	if json.Unmarshal(raw, &pair) != nil || len(pair) != 2 {
		return nil, 0, false
	}
	value, ok = biasValue(pair[1])
	return pair[0], value, ok
}

// biasValue reads a number, or false for "never".
func biasValue(raw json.RawMessage) (float32, bool) {
	switch jsonKind(raw) {
	case "number":
		var v float64
		ok := json.Unmarshal(raw, &v) == nil
		return float32(max(-maxBias, min(maxBias, v))), ok
	case "boolean":
		var b bool
		return never(), json.Unmarshal(raw, &b) == nil && !b
	}
	return 0, false
}

// refuseUnsupported names the first field that asks for something this engine
// cannot do. The values that switch such a thing off are fine.
func refuseUnsupported(f *fields) {
	for _, name := range []string{"dry_multiplier", "xtc_probability", "mirostat", "dynatemp_range"} {
		if f.number(name, 0, -1, 1) > 0 {
			f.fail(unsupported(name, "this sampler is not supported"))
		}
	}
	if v := f.number("typical_p", 1, 0, 1); v > 0 && v < 1 {
		f.fail(unsupported("typical_p", "this sampler is not supported"))
	}
	for _, name := range []string{"top_n_sigma", "adaptive_target"} {
		if f.number(name, -1, -1, 1) > 0 {
			f.fail(unsupported(name, "this sampler is not supported"))
		}
	}
	for _, name := range []string{"n_indent", "min_keep"} {
		if f.integer(name, 0, math.MinInt32, math.MaxInt32) > 0 {
			f.fail(unsupported(name, "this setting is not supported"))
		}
	}
	if f.boolean("post_sampling_probs", false) {
		f.fail(unsupported("post_sampling_probs", "probabilities after sampling are not supported"))
	}
	for _, name := range []string{"guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs"} {
		if f.has(name) {
			f.fail(unsupported(name, "this field for the form of an answer is not supported; use response_format or grammar"))
		}
	}
	if len(f.list("lora")) > 0 {
		f.fail(unsupported("lora", "adapters are not supported"))
	}
}
