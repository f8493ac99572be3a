package conversion

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// What becomes of a published tensor.
const (
	keep  = iota
	turn  // rows of each head change places: the rotation of llama turns neighbours
	shift // one is added: gemma's norms are stored as the difference to one
	drop  // nothing that GGUF has a place for
	aside // of another part of the model, such as its eyes
)

var (
	decoderLayer = regexp.MustCompile(`^layers\.(\d+)\.(.+)\.(weight|bias)$`)
	bertLayer    = regexp.MustCompile(`^encoder\.layer\.(\d+)\.(.+)\.(weight|bias)$`)
)

var decoderParts = map[string]string{
	"input_layernorm":          "attn_norm",
	"self_attn.q_proj":         "attn_q",
	"self_attn.k_proj":         "attn_k",
	"self_attn.v_proj":         "attn_v",
	"self_attn.o_proj":         "attn_output",
	"post_attention_layernorm": "ffn_norm",
	"mlp.gate_proj":            "ffn_gate",
	"mlp.up_proj":              "ffn_up",
	"mlp.down_proj":            "ffn_down",
}

// gemmaParts are those that gemma3 adds or means otherwise; the first two are qwen3's too.
var gemmaParts = map[string]string{
	"self_attn.q_norm":           "attn_q_norm",
	"self_attn.k_norm":           "attn_k_norm",
	"post_attention_layernorm":   "post_attention_norm",
	"pre_feedforward_layernorm":  "ffn_norm",
	"post_feedforward_layernorm": "post_ffw_norm",
}

var bertParts = map[string]string{
	"attention.self.query":       "attn_q",
	"attention.self.key":         "attn_k",
	"attention.self.value":       "attn_v",
	"attention.output.dense":     "attn_output",
	"attention.output.LayerNorm": "attn_output_norm",
	"intermediate.dense":         "ffn_up",
	"output.dense":               "ffn_down",
	"output.LayerNorm":           "layer_output_norm",
}

var bertWhole = map[string]string{
	"embeddings.word_embeddings.weight":       "token_embd.weight",
	"embeddings.token_type_embeddings.weight": "token_types.weight",
	"embeddings.position_embeddings.weight":   "position_embd.weight",
	"embeddings.LayerNorm.weight":             "token_embd_norm.weight",
	"embeddings.LayerNorm.bias":               "token_embd_norm.bias",
}

// bertHead is the part of a cross-encoder that scores.
var bertHead = map[string]string{
	"pooler.dense.weight": "cls.weight",
	"pooler.dense.bias":   "cls.bias",
	"classifier.weight":   "cls.output.weight",
	"classifier.bias":     "cls.output.bias",
}

// rename returns the name in GGUF of a published tensor and what becomes of it; what is not known is an error.
func (c *published) rename(arch, name string) (to string, what int, err error) {
	if arch == "bert" {
		return c.renameBert(name)
	}
	short := name
	for _, p := range []string{"model.language_model.", "language_model.model.", "language_model.", "model."} {
		if s, ok := strings.CutPrefix(short, p); ok {
			short = s
			break
		}
	}
	switch {
	case strings.HasPrefix(short, "vision_tower.") || strings.HasPrefix(short, "multi_modal_projector."):
		return "", aside, nil
	case strings.HasSuffix(short, "rotary_emb.inv_freq"):
		return "", drop, nil
	case short == "embed_tokens.weight":
		return "token_embd.weight", keep, nil
	case short == "norm.weight" && arch == "gemma3":
		return "output_norm.weight", shift, nil
	case short == "norm.weight":
		return "output_norm.weight", keep, nil
	case short == "lm_head.weight" && c.tied(arch):
		return "", drop, nil
	case short == "lm_head.weight":
		return "output.weight", keep, nil
	}
	m := decoderLayer.FindStringSubmatch(short)
	if m == nil {
		return "", 0, unmapped(arch, name)
	}
	part, ok := decoderParts[m[2]]
	if arch == "gemma3" || arch == "qwen3" && strings.HasPrefix(m[2], "self_attn.") {
		if p, more := gemmaParts[m[2]]; more {
			part, ok = p, true
		}
	}
	layer, bad := strconv.Atoi(m[1])
	if !ok || bad != nil || layer >= c.Layers {
		return "", 0, unmapped(arch, name)
	}
	switch {
	case arch == "llama" && (part == "attn_q" || part == "attn_k"):
		what = turn
	case arch == "gemma3" && strings.HasSuffix(part, "norm"):
		what = shift
	}
	return fmt.Sprintf("blk.%d.%s.%s", layer, part, m[3]), what, nil
}

func (c *published) renameBert(name string) (string, int, error) {
	short := strings.TrimPrefix(name, "bert.")
	for old, now := range map[string]string{".gamma": ".weight", ".beta": ".bias"} {
		if s, ok := strings.CutSuffix(short, old); ok {
			short = s + now
		}
	}
	if to, ok := bertWhole[short]; ok {
		return to, keep, nil
	}
	if to, ok := bertHead[short]; ok {
		if c.ranks() {
			return to, keep, nil
		}
		return "", drop, nil
	}
	if short == "embeddings.position_ids" || strings.HasPrefix(short, "cls.") {
		return "", drop, nil
	}
	m := bertLayer.FindStringSubmatch(short)
	if m == nil {
		return "", 0, unmapped("bert", name)
	}
	part, ok := bertParts[m[2]]
	layer, bad := strconv.Atoi(m[1])
	if !ok || bad != nil || layer >= c.Layers {
		return "", 0, unmapped("bert", name)
	}
	return fmt.Sprintf("blk.%d.%s.%s", layer, part, m[3]), keep, nil
}

func unmapped(arch, name string) error {
	return fmt.Errorf("tensor %q is not one that %s has in GGUF", name, arch)
}

// ranks reports whether the model is a cross-encoder that scores pairs.
func (c *published) ranks() bool {
	return len(c.Architectures) > 0 && c.Architectures[0] == "BertForSequenceClassification"
}

// tied reports whether the embedding serves as the output matrix.
func (c *published) tied(arch string) bool {
	if c.Tied == nil {
		return arch == "gemma3"
	}
	return *c.Tied
}

// required lists the tensors without which no engine runs the model.
func (c *published) required(arch string) []string {
	if arch == "bert" {
		list := []string{"token_embd.weight", "position_embd.weight", "token_embd_norm.weight", "token_embd_norm.bias"}
		for i := range c.Layers {
			for _, part := range bertParts {
				list = append(list, fmt.Sprintf("blk.%d.%s.weight", i, part), fmt.Sprintf("blk.%d.%s.bias", i, part))
			}
		}
		if c.ranks() {
			list = append(list, "cls.weight", "cls.bias", "cls.output.weight", "cls.output.bias")
		}
		return list
	}
	list := []string{"token_embd.weight", "output_norm.weight"}
	if !c.tied(arch) {
		list = append(list, "output.weight")
	}
	for i := range c.Layers {
		for _, part := range decoderParts {
			list = append(list, fmt.Sprintf("blk.%d.%s.weight", i, part))
		}
		if arch == "gemma3" || arch == "qwen3" {
			list = append(list, fmt.Sprintf("blk.%d.attn_q_norm.weight", i), fmt.Sprintf("blk.%d.attn_k_norm.weight", i))
		}
		if arch == "gemma3" {
			list = append(list, fmt.Sprintf("blk.%d.post_attention_norm.weight", i), fmt.Sprintf("blk.%d.post_ffw_norm.weight", i))
		}
		if arch == "qwen2" {
			list = append(list, fmt.Sprintf("blk.%d.attn_q.bias", i), fmt.Sprintf("blk.%d.attn_k.bias", i), fmt.Sprintf("blk.%d.attn_v.bias", i))
		}
	}
	return list
}
