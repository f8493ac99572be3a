package tokenizer

import "strings"

// Tokens are known by their text where the file says too little about them.
// The lists are llama.cpp's.

// endName reports whether text is a token that ends a generation.
func endName(text string) bool {
	switch text {
	case "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
		"<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>",
		"<eos>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~[":
		return true
	}
	return false
}

// infillName returns what a token of fill-in-the-middle is for.
func infillName(text string) string {
	switch text {
	case "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>", "<|prefix|>":
		return "prefix"
	case "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>", "<|suffix|>":
		return "suffix"
	case "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>", "<|middle|>":
		return "middle"
	case "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]":
		return "padding"
	case "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>":
		return "repository"
	case "<|file_sep|>":
		return "file"
	}
	return ""
}

// infillKeys are the keys by which a file names such tokens itself.
func infillKeys(use string) []string {
	switch use {
	case "prefix":
		return []string{"fim_pre_token_id", "prefix_token_id"}
	case "suffix":
		return []string{"fim_suf_token_id", "suffix_token_id"}
	case "middle":
		return []string{"fim_mid_token_id", "middle_token_id"}
	case "padding":
		return []string{"fim_pad_token_id"}
	case "repository":
		return []string{"fim_rep_token_id"}
	}
	return []string{"fim_sep_token_id"}
}

// markByName makes control tokens and end tokens of those that are such by
// their name or their key, whatever type the file gives them.
func (v *vocabulary) markByName() {
	infill := map[string]int32{}
	for _, use := range []string{"prefix", "suffix", "middle", "padding", "repository", "file"} {
		for _, key := range infillKeys(use) {
			if n, ok := v.file.Int(prefix + key); ok && n >= 0 && n < int64(len(v.texts)) {
				infill[use] = int32(n)
			}
		}
	}
	for i, text := range v.texts {
		if len(text) > 40 || strings.IndexByte("<[_\xe2", text[0]) < 0 {
			continue
		}
		if endName(text) {
			v.attrs[i] |= ends | controlToken
		}
		if use := infillName(text); use != "" {
			if _, ok := infill[use]; !ok {
				infill[use] = int32(i)
				v.attrs[i] |= controlToken
			}
		}
		switch text {
		case "<|channel|>", "<|message|>", "<|start|>", "<|constrain|>": // the harmony format's
			v.attrs[i] = controlToken | shown
		}
	}
	for _, use := range []string{"padding", "repository", "file"} {
		if id, ok := infill[use]; ok {
			v.attrs[id] |= ends
		}
	}
}

// correct takes back what markByName got wrong, and sets which tokens take
// white space with them.
func (v *vocabulary) correct() {
	end := map[string]int32{}
	for i, a := range v.attrs {
		if a&ends != 0 {
			end[v.texts[i]] = int32(i)
		}
	}
	has := func(texts ...string) bool {
		for _, t := range texts {
			if _, ok := end[t]; ok {
				return true
			}
		}
		return false
	}
	if id, ok := end["<|end|>"]; ok && has("<|call|>", "<|calls|>") && has("<|return|>", "<|flush|>") {
		v.attrs[id] = controlToken | shown // ends a message, not the turn
	}
	if id, ok := end["</s>"]; ok && has("<|tool_response>", "<|plamo:eos|>") {
		v.attrs[id] = normal
	}

	name, _ := v.file.String("general.name")
	name = strings.ToLower(name)
	pre, _ := v.file.String(prefix + "pre")
	arch := v.file.Architecture()
	switch {
	case pre == "jina-v2-de" || pre == "jina-v2-es" || pre == "jina-v2-code" || pre == "mmbert" ||
		strings.Contains(arch, "nomic-bert-moe") || strings.Contains(arch, "jina-bert-v3"):
		v.strip("<mask>", lstrip)
	case strings.Contains(name, "phi-3") || strings.Contains(name, "phi3"):
		for i, text := range v.texts {
			if v.attrs[i]&(controlToken|userDefined|unknown) != 0 && text != "<unk>" && text != "<s>" && text != "<|endoftext|>" {
				v.attrs[i] |= rstrip
			}
		}
	case strings.Contains(name, "modern-bert"):
		v.strip("[MASK]", lstrip)
	}
}

func (v *vocabulary) strip(text string, a attr) {
	for i, t := range v.texts {
		if t == text {
			v.attrs[i] |= a
			return
		}
	}
}
