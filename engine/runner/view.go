package runner

// settingsView is the "generation_settings" object: the words of llama-server,
// with the values that this engine uses.
type settingsView struct {
	Seed              uint64     `json:"seed"`
	Temperature       float32    `json:"temperature"`
	DynatempRange     float32    `json:"dynatemp_range"`
	DynatempExponent  float32    `json:"dynatemp_exponent"`
	TopK              int        `json:"top_k"`
	TopP              float32    `json:"top_p"`
	MinP              float32    `json:"min_p"`
	TopNSigma         float32    `json:"top_n_sigma"`
	XTCProbability    float32    `json:"xtc_probability"`
	XTCThreshold      float32    `json:"xtc_threshold"`
	TypicalP          float32    `json:"typical_p"`
	RepeatLastN       int        `json:"repeat_last_n"`
	RepeatPenalty     float32    `json:"repeat_penalty"`
	PresencePenalty   float32    `json:"presence_penalty"`
	FrequencyPenalty  float32    `json:"frequency_penalty"`
	DryMultiplier     float32    `json:"dry_multiplier"`
	Mirostat          int        `json:"mirostat"`
	Stop              []string   `json:"stop,omitzero"`
	MaxTokens         int        `json:"max_tokens"`
	NPredict          int        `json:"n_predict"`
	NKeep             int        `json:"n_keep"`
	NDiscard          int        `json:"n_discard"`
	IgnoreEOS         bool       `json:"ignore_eos"`
	Stream            bool       `json:"stream"`
	LogitBias         []biasView `json:"logit_bias,omitzero"`
	NProbs            int        `json:"n_probs"`
	MinKeep           int        `json:"min_keep"`
	Grammar           *string    `json:"grammar,omitempty"`
	ReasoningFormat   string     `json:"reasoning_format"`
	Samplers          []string   `json:"samplers"`
	TimingsPerToken   bool       `json:"timings_per_token"`
	PostSamplingProbs bool       `json:"post_sampling_probs"`
	Lora              []string   `json:"lora"`
}

// biasView is one entry of "logit_bias"; a null bias forbids the token.
type biasView struct {
	Bias  *float32 `json:"bias"`
	Token int32    `json:"token"`
}

// view returns the settings as clients see them. The texts that a request
// brought are left out of public listings.
func (s *settings) view(public bool) settingsView {
	p := s.sampling
	v := settingsView{
		Seed: p.Seed, Temperature: p.Temperature, DynatempExponent: 1,
		TopK: p.TopK, TopP: p.TopP, MinP: p.MinP, TopNSigma: -1, XTCThreshold: 0.1, TypicalP: 1,
		RepeatLastN: p.PenaltyLastN, RepeatPenalty: p.RepeatPenalty,
		PresencePenalty: p.PresencePenalty, FrequencyPenalty: p.FrequencyPenalty,
		MaxTokens: s.MaxTokens, NPredict: s.MaxTokens,
		IgnoreEOS: s.ignoreEOS, Stream: s.stream, NProbs: s.TopLogprobs,
		ReasoningFormat: s.reasoning,
		Samplers:        []string{"penalties", "top_k", "top_p", "min_p", "temperature"},
		TimingsPerToken: s.timingsPerToken, Lora: []string{},
	}
	if s.randomSeed {
		v.Seed = seedRandom
	}
	if public {
		return v
	}
	v.Grammar = &s.form.text
	v.Stop, v.LogitBias = append([]string{}, s.Stop...), []biasView{}
	for _, b := range s.bias {
		row := biasView{Token: b.ID}
		if b.Bias > never() {
			row.Bias = &b.Bias
		}
		v.LogitBias = append(v.LogitBias, row)
	}
	return v
}
