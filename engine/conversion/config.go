package conversion

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// Limits of what config.json may declare.
const (
	maxLayers = 1 << 10
	maxWidth  = 1 << 18
	maxTokens = 1 << 22
)

// published is what we read of a config.json.
type published struct {
	ModelType     string   `json:"model_type"`
	Architectures []string `json:"architectures"`

	Layers     int      `json:"num_hidden_layers"`
	Width      int      `json:"hidden_size"`
	FFN        int      `json:"intermediate_size"`
	Heads      int      `json:"num_attention_heads"`
	KVHeads    int      `json:"num_key_value_heads"`
	HeadDim    int      `json:"head_dim"`
	Vocabulary int      `json:"vocab_size"`
	Context    int      `json:"max_position_embeddings"`
	RMSEps     float64  `json:"rms_norm_eps"`
	LayerEps   float64  `json:"layer_norm_eps"`
	Act        string   `json:"hidden_act"`
	Activation string   `json:"hidden_activation"`
	Tied       *bool    `json:"tie_word_embeddings"`
	Partial    *float64 `json:"partial_rotary_factor"`

	Theta      float64                    `json:"rope_theta"`
	LocalTheta float64                    `json:"rope_local_base_freq"`
	Scaling    *ropeScaling               `json:"rope_scaling"`
	Rope       map[string]json.RawMessage `json:"rope_parameters"`

	Window       *int     `json:"sliding_window"`
	UsesWindow   *bool    `json:"use_sliding_window"`
	Pattern      *int     `json:"sliding_window_pattern"`
	LayerTypes   []string `json:"layer_types"`
	LogitCap     *float64 `json:"final_logit_softcapping"`
	AttentionCap *float64 `json:"attn_logit_softcapping"`
	QueryScale   *float64 `json:"query_pre_attn_scalar"`

	Segments     int               `json:"type_vocab_size"`
	PositionType string            `json:"position_embedding_type"`
	Labels       map[string]string `json:"id2label"`

	Quantization json.RawMessage `json:"quantization_config"`
}

// ropeScaling is how positions are stretched.
type ropeScaling struct {
	Type     string  `json:"type"`
	RopeType string  `json:"rope_type"`
	Theta    float64 `json:"rope_theta"`
	Factor   float64 `json:"factor"`
	Original int     `json:"original_max_position_embeddings"`
	Low      float64 `json:"low_freq_factor"`
	High     float64 `json:"high_freq_factor"`
	BetaFast float64 `json:"beta_fast"`
	BetaSlow float64 `json:"beta_slow"`
	Attn     float64 `json:"attention_factor"`
}

// kind returns the manner of stretching, "" when there is none.
func (r *ropeScaling) kind() string {
	if r == nil {
		return ""
	}
	t := r.RopeType
	if t == "" {
		t = r.Type
	}
	if t == "default" {
		return ""
	}
	return t
}

// readConfig reads and checks config.json. The text part of a model with several counts as the model.
func readConfig(f *folder) (*published, error) {
	c := &published{}
	if err := f.json("config.json", c); err != nil {
		return nil, err
	}
	var outer struct {
		Text json.RawMessage `json:"text_config"`
	}
	if err := f.json("config.json", &outer); err != nil {
		return nil, err
	}
	if len(outer.Text) > 0 && string(outer.Text) != "null" {
		if err := json.Unmarshal(outer.Text, c); err != nil {
			return nil, fmt.Errorf("reading text_config of config.json: %w", err)
		}
	}
	if err := c.readRope(); err != nil {
		return nil, err
	}
	return c, c.check()
}

// readRope reads rope_parameters, which newer files have in place of rope_theta and rope_scaling.
func (c *published) readRope() error {
	if len(c.Rope) == 0 {
		return nil
	}
	parse := func(raw json.RawMessage) (*ropeScaling, error) {
		r := &ropeScaling{}
		if err := json.Unmarshal(raw, r); err != nil {
			return nil, fmt.Errorf("reading rope_parameters of config.json: %w", err)
		}
		return r, nil
	}
	if raw, ok := c.Rope["full_attention"]; ok {
		r, err := parse(raw)
		if err != nil {
			return err
		}
		c.Theta, c.Scaling = r.Theta, r
		if raw, ok := c.Rope["sliding_attention"]; ok {
			r, err := parse(raw)
			if err != nil {
				return err
			}
			c.LocalTheta = r.Theta
		}
		return nil
	}
	raw, err := json.Marshal(c.Rope)
	if err != nil {
		return err
	}
	r, err := parse(raw)
	if err != nil {
		return err
	}
	c.Theta, c.Scaling = r.Theta, r
	return nil
}

// arch returns the architecture under which the model goes in GGUF.
func (c *published) arch() (string, error) {
	switch c.ModelType {
	case "llama", "mistral":
		return "llama", nil
	case "qwen2", "qwen3", "bert":
		return c.ModelType, nil
	case "gemma3", "gemma3_text":
		return "gemma3", nil
	}
	return "", fmt.Errorf("config.json: model_type %q is not one of llama, mistral, qwen2, qwen3, gemma3, bert; "+
		"1bit model convert drives llama.cpp's converter, which knows more", c.ModelType)
}

func (c *published) check() error {
	arch, err := c.arch()
	if err != nil {
		return err
	}
	if len(c.Quantization) > 0 && string(c.Quantization) != "null" {
		return fmt.Errorf("config.json: the weights are quantised (quantization_config): import the model as it was published in BF16 or F16")
	}
	if c.KVHeads == 0 {
		c.KVHeads = c.Heads
	}
	for _, n := range []struct {
		key          string
		value, limit int
	}{
		{"num_hidden_layers", c.Layers, maxLayers}, {"hidden_size", c.Width, maxWidth}, {"intermediate_size", c.FFN, maxWidth},
		{"num_attention_heads", c.Heads, maxWidth}, {"num_key_value_heads", c.KVHeads, maxWidth},
		{"max_position_embeddings", c.Context, 1 << 28},
	} {
		if n.key == "max_position_embeddings" && n.value == 0 && arch == "gemma3" {
			c.Context = 131072
			continue
		}
		if n.value < 1 || n.value > n.limit {
			return fmt.Errorf("config.json: %s is %d, not 1 to %d", n.key, n.value, n.limit)
		}
	}
	if c.Vocabulary < 0 || c.Vocabulary > maxTokens || c.HeadDim < 0 || c.HeadDim > 1<<12 {
		return fmt.Errorf("config.json: vocab_size %d or head_dim %d is out of range", c.Vocabulary, c.HeadDim)
	}
	if c.HeadDim == 0 && c.Width%c.Heads != 0 && arch != "gemma3" && arch != "qwen3" {
		return fmt.Errorf("config.json: %d heads do not divide a width of %d", c.Heads, c.Width)
	}
	if arch == "bert" {
		return c.checkBert()
	}
	return c.checkDecoder(arch)
}

func (c *published) checkBert() error {
	switch {
	case c.Act != "" && c.Act != "gelu":
		return fmt.Errorf("config.json: hidden_act %q is not gelu", c.Act)
	case c.PositionType != "" && c.PositionType != "absolute":
		return fmt.Errorf("config.json: position_embedding_type %q is not absolute", c.PositionType)
	case !(c.LayerEps > 0 && c.LayerEps < 1):
		return fmt.Errorf("config.json: layer_norm_eps is %g", c.LayerEps)
	}
	return nil
}

func (c *published) checkDecoder(arch string) error {
	if c.HeadDim == 0 {
		switch arch { // what the published code takes when the file is silent
		case "gemma3":
			c.HeadDim = 256
		case "qwen3":
			c.HeadDim = 128
		}
	}
	if c.RMSEps == 0 {
		c.RMSEps = 1e-6
	}
	act := c.Act
	if arch == "gemma3" {
		if act = c.Activation; act == "gelu_pytorch_tanh" {
			act = ""
		}
	}
	switch {
	case act != "" && (arch == "gemma3" || act != "silu"):
		return fmt.Errorf("config.json: activation %q is not that of %s", act, arch)
	case !(c.RMSEps > 0 && c.RMSEps < 1):
		return fmt.Errorf("config.json: rms_norm_eps is %g", c.RMSEps)
	case c.Partial != nil && *c.Partial != 1:
		return fmt.Errorf("config.json: partial_rotary_factor %g is not supported", *c.Partial)
	case c.AttentionCap != nil && *c.AttentionCap != 0:
		return fmt.Errorf("config.json: attn_logit_softcapping is not supported")
	case arch == "qwen2" && c.UsesWindow != nil && *c.UsesWindow:
		return fmt.Errorf("config.json: use_sliding_window is not supported")
	case c.Heads%c.KVHeads != 0:
		return fmt.Errorf("config.json: %d key heads do not divide %d heads", c.KVHeads, c.Heads)
	}
	if c.ModelType == "mistral" && c.Window != nil && *c.Window > 0 {
		c.Context = min(c.Context, *c.Window) // within the window nothing is hidden
	}
	if arch == "gemma3" {
		return c.checkGemma()
	}
	return nil
}

// checkGemma refuses what the architecture in GGUF takes for granted and this model does otherwise.
func (c *published) checkGemma() error {
	scale := float64(c.HeadDim)
	if c.Layers == 62 { // the 27B model
		scale = float64(c.Width / c.Heads)
	}
	if c.QueryScale != nil && *c.QueryScale != scale {
		return fmt.Errorf("config.json: query_pre_attn_scalar %g is not supported, %g is", *c.QueryScale, scale)
	}
	if c.Pattern != nil && *c.Pattern != 6 && *c.Pattern != 1 {
		return fmt.Errorf("config.json: sliding_window_pattern %d is not supported, 6 is", *c.Pattern)
	}
	for i, t := range c.LayerTypes {
		if full := t == "full_attention"; full != (i%6 == 5) && c.windowed() {
			return fmt.Errorf("config.json: layer_types: layer %d is %q, which is not supported", i, t)
		}
	}
	return nil
}

// windowed reports whether a gemma3 has layers that see a window.
func (c *published) windowed() bool {
	if c.Window == nil || *c.Window <= 0 || c.Pattern != nil && *c.Pattern == 1 {
		return false
	}
	return len(c.LayerTypes) == 0 || slices.Contains(c.LayerTypes, "sliding_attention")
}

// headDim returns the values of one head.
func (c *published) headDim() int {
	if c.HeadDim > 0 {
		return c.HeadDim
	}
	return c.Width / c.Heads
}

// metadata returns the keys of the architecture.
func (c *published) metadata() ([]pair, error) {
	arch, err := c.arch()
	if err != nil {
		return nil, err
	}
	own := func(key string, v any) pair { return pair{arch + "." + key, v} }
	list := []pair{
		own("block_count", uint32(c.Layers)),
		own("context_length", uint32(c.Context)),
		own("embedding_length", uint32(c.Width)),
		own("feed_forward_length", uint32(c.FFN)),
		own("attention.head_count", uint32(c.Heads)),
	}
	if arch == "bert" {
		return append(list, own("attention.layer_norm_epsilon", float32(c.LayerEps)), own("attention.causal", false)), nil
	}
	list = append(list,
		own("attention.head_count_kv", uint32(c.KVHeads)),
		own("attention.layer_norm_rms_epsilon", float32(c.RMSEps)))
	if c.HeadDim > 0 {
		list = append(list, own("attention.key_length", uint32(c.HeadDim)), own("attention.value_length", uint32(c.HeadDim)))
	}
	if arch == "llama" {
		list = append(list, own("rope.dimension_count", uint32(c.headDim())))
	}
	if arch == "gemma3" {
		if c.Theta == 0 {
			c.Theta = 1e6
		}
		if c.windowed() {
			list = append(list, own("attention.sliding_window", uint32(*c.Window)))
			if c.LocalTheta > 0 {
				list = append(list, own("rope.freq_base_swa", float32(c.LocalTheta)))
			}
		}
		if c.LogitCap != nil && *c.LogitCap > 0 {
			list = append(list, own("final_logit_softcapping", float32(*c.LogitCap)))
		}
	}
	if c.Theta > 0 {
		list = append(list, own("rope.freq_base", float32(c.Theta)))
	}
	scaling, err := c.scaling(own)
	return append(list, scaling...), err
}

// scaling returns the keys that say how positions are stretched.
func (c *published) scaling(own func(string, any) pair) ([]pair, error) {
	r := c.Scaling
	kind := r.kind()
	switch kind {
	case "", "llama3":
		return nil, nil
	case "linear", "yarn":
		if !(r.Factor >= 1) {
			return nil, fmt.Errorf("config.json: rope scaling by %g", r.Factor)
		}
	default:
		return nil, fmt.Errorf("config.json: rope scaling %q is not one of linear, yarn, llama3", kind)
	}
	list := []pair{own("rope.scaling.type", kind), own("rope.scaling.factor", float32(r.Factor))}
	if kind == "linear" {
		return list, nil
	}
	if r.Original < 1 {
		return nil, fmt.Errorf("config.json: yarn scaling without original_max_position_embeddings")
	}
	list = append(list, own("rope.scaling.original_context_length", uint32(r.Original)))
	for _, o := range []struct {
		key   string
		value float64
	}{{"yarn_attn_factor", r.Attn}, {"yarn_beta_fast", r.BetaFast}, {"yarn_beta_slow", r.BetaSlow}} {
		if o.value > 0 {
			list = append(list, own("rope.scaling."+o.key, float32(o.value)))
		}
	}
	return list, nil
}

// ropeFactors returns the divisors of the rotation frequencies that Llama 3 has, nil for others.
func (c *published) ropeFactors() ([]float32, error) {
	r := c.Scaling
	if r.kind() != "llama3" {
		return nil, nil
	}
	original := float64(r.Original)
	if !(r.Factor >= 1 && r.Low > 0 && r.High > r.Low && original >= 1 && c.Theta > 1) {
		return nil, fmt.Errorf("config.json: rope scaling llama3 with factor %g, low %g, high %g, original context %d, base %g",
			r.Factor, r.Low, r.High, r.Original, c.Theta)
	}
	dims := c.headDim()
	out := make([]float32, dims/2)
	for i := range out {
		wave := 2 * math.Pi * math.Pow(c.Theta, float64(2*i)/float64(dims))
		switch {
		case wave < original/r.High:
			out[i] = 1
		case wave > original/r.Low:
			out[i] = float32(r.Factor)
		default:
			smooth := (original/wave - r.Low) / (r.High - r.Low)
			out[i] = float32(1 / ((1-smooth)/r.Factor + smooth))
		}
	}
	return out, nil
}
