package conversion

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// patterns names the pre-tokenizers that can be told from their regular expressions. The expressions are facts of the
// published vocabularies.
var patterns = map[string]string{
	words(`\p{N}{1,3}`, `\p{L}`): "smaug-bpe", // llama-bpe when words that are tokens are not merged
	words(`\p{N}`, `\p{L}`):      "qwen2",
	words(`\p{N}`, `\p{L}\p{M}`): "qwen35",
	cased(`\p{N}`):               "tekken",
}

// words is the expression of the Llama 3 and Qwen families: they differ in how many digits go together and whether
// marks are part of letters.
func words(digits, letters string) string {
	one, apart := letters, strings.ReplaceAll(letters, `\p{M}`, "")
	if letters != `\p{L}` {
		one = "[" + letters + "]"
	}
	return `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n` + apart + `\p{N}]?` + one + `+|` + digits +
		`| ?[^\s` + letters + `\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
}

// cased is the expression of the Tekken vocabularies, which tell capital from small letters.
func cased(digits string) string {
	const upper, lower, lead = `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`, `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`, `[^\r\n\p{L}\p{N}]?`
	return lead + upper + `*` + lower + `+|` + lead + upper + `+` + lower + `*|` + digits +
		`| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
}

// preTokenizer returns the name that GGUF has for how a text is cut into words.
func preTokenizer(j *tokenizerJSON) (string, error) {
	name, digits, bytes := "", false, false
	for _, n := range j.Pre.flat() {
		switch {
		case n.Type == "ByteLevel":
			if n.AddPrefixSpace != nil && *n.AddPrefixSpace {
				return "", errors.New("add_prefix_space is not supported with byte pairs")
			}
			bytes = true
			if n.UseRegex == nil || *n.UseRegex {
				if name != "" {
					return "", unknownPre("a second expression in ByteLevel")
				}
				if name = "gpt-2"; digits {
					name = "smollm"
				}
			}
		case n.Type == "Digits" && n.Individual && name == "" && !digits:
			digits = true
		case n.Type == "Split" && n.Behavior == "Isolated" && !n.Invert && name == "" && !digits && patterns[n.Pattern.Regex] != "":
			name = patterns[n.Pattern.Regex]
		case n.Type == "Split":
			return "", unknownPre(fmt.Sprintf("the expression %.200q", n.Pattern.Regex+n.Pattern.String))
		default:
			return "", unknownPre(fmt.Sprintf("the step %q", n.Type))
		}
	}
	switch {
	case !bytes || name == "":
		return "", unknownPre("no expression")
	case name == "smaug-bpe" && j.Model.IgnoreMerges:
		return "llama-bpe", nil
	}
	return name, nil
}

func unknownPre(what string) error {
	return fmt.Errorf("the pre_tokenizer cannot be named (%s): give its name with --pre, or use 1bit model convert", what)
}

// specialKeys gives the key in GGUF for each special token of the published files.
var specialKeys = []struct{ published, key string }{
	{"bos", "bos_token_id"}, {"eos", "eos_token_id"}, {"unk", "unknown_token_id"}, {"pad", "padding_token_id"},
	{"sep", "seperator_token_id"}, {"cls", "cls_token_id"}, {"mask", "mask_token_id"}, //nolint:misspell // as the format spells it
}

// special returns the keys for special tokens, what is put around a text, and the chat template.
func (t *tokens) special(f *folder, post *node) ([]pair, error) {
	settings := map[string]json.RawMessage{}
	names := map[string]json.RawMessage{}
	config := map[string]json.RawMessage{}
	for file, to := range map[string]*map[string]json.RawMessage{
		"tokenizer_config.json": &settings, "special_tokens_map.json": &names, "config.json": &config,
	} {
		if err := f.optional(file, to); err != nil {
			return nil, err
		}
	}
	ids := map[string]int{}
	for _, k := range specialKeys {
		if id, ok := t.specialID(k.published, settings, names, config); ok {
			ids[k.published] = id
		}
	}
	if t.model == "bert" {
		for now, old := range map[string]string{"bos": "cls", "eos": "sep"} {
			if id, ok := ids[old]; ok {
				ids[now] = id
			}
		}
	}
	around := t.around(post, ids, settings)
	var list []pair
	for _, k := range specialKeys {
		if id, ok := ids[k.published]; ok {
			list = append(list, pair{prefix + k.key, uint32(id)})
		}
	}
	list = append(list, around...)
	template, err := chatTemplate(f, settings["chat_template"])
	if err != nil {
		return nil, err
	}
	if template != "" {
		list = append(list, pair{"tokenizer.chat_template", template})
	}
	return list, nil
}

// specialID looks one special token up: by its text in the tokenizer's files, else by its number in the model's.
func (t *tokens) specialID(name string, settings, names, config map[string]json.RawMessage) (int, bool) {
	for _, from := range []map[string]json.RawMessage{settings, names} {
		raw, ok := from[name+"_token"]
		if !ok {
			continue
		}
		var text string
		var whole struct {
			Content string `json:"content"`
		}
		if json.Unmarshal(raw, &text) != nil && json.Unmarshal(raw, &whole) == nil {
			text = whole.Content
		}
		if id, ok := t.ids[text]; ok && text != "" {
			return id, true
		}
	}
	for _, raw := range []json.RawMessage{config[name+"_token_id"]} {
		var id int
		var list []int
		if raw == nil || json.Unmarshal(raw, &id) != nil {
			if raw == nil || json.Unmarshal(raw, &list) != nil || len(list) == 0 {
				continue
			}
			id = list[0]
		}
		if id >= 0 && id < len(t.texts) && string(raw) != "null" {
			return id, true
		}
	}
	return 0, false
}

// around returns the keys that say what is put before and behind a text. The template of tokenizer.json counts more
// than the flags beside it.
func (t *tokens) around(post *node, ids map[string]int, settings map[string]json.RawMessage) []pair {
	if t.model == "bert" { // CLS, a text, SEP; a pair has one SEP between its texts, the one that ends the first
		return []pair{{prefix + "add_bos_token", true}, {prefix + "add_eos_token", true}, {prefix + "add_sep_token", false}}
	}
	flag := func(key string) (value, ok bool) {
		raw, there := settings[key]
		return value, there && json.Unmarshal(raw, &value) == nil && string(raw) != "null"
	}
	bos, okBOS := flag("add_bos_token")
	eos, okEOS := flag("add_eos_token")
	if !okBOS {
		bos = t.model == "llama"
	}
	var turnEnd []pair
	for _, n := range post.flat() {
		if n.Type != "TemplateProcessing" || len(n.Single) == 0 {
			continue
		}
		first, last := n.Single[0].Special, n.Single[len(n.Single)-1].Special
		bos, eos, okEOS = first != nil, last != nil, true
		if id, ok := t.template(first); ok {
			ids["bos"] = id
		}
		if id, ok := t.template(last); ok {
			if old, ok := ids["eos"]; ok && old != id {
				turnEnd = append(turnEnd, pair{prefix + "eot_token_id", uint32(old)}) // it still ends an answer
			}
			ids["eos"] = id
		}
	}
	list := append(turnEnd, pair{prefix + "add_bos_token", bos})
	if okEOS {
		list = append(list, pair{prefix + "add_eos_token", eos})
	}
	return list
}

// template returns the id of a token that a template puts around texts.
func (t *tokens) template(s *struct {
	ID string `json:"id"`
}) (int, bool) {
	if s == nil {
		return 0, false
	}
	id, ok := t.ids[s.ID]
	return id, ok
}

// chatTemplate returns the chat template, "" when there is none.
func chatTemplate(f *folder, raw json.RawMessage) (string, error) {
	if b, err := f.bytes("chat_template.jinja"); err == nil {
		return string(b), nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if raw == nil {
		var file struct {
			Template json.RawMessage `json:"chat_template"`
		}
		if err := f.optional("chat_template.json", &file); err != nil {
			return "", err
		}
		raw = file.Template
	}
	if raw == nil {
		return "", nil
	}
	var text *string
	if json.Unmarshal(raw, &text) == nil {
		if text == nil {
			return "", nil
		}
		return *text, nil
	}
	var named []struct {
		Name     string `json:"name"`
		Template string `json:"template"`
	}
	if err := json.Unmarshal(raw, &named); err != nil {
		return "", errors.New("tokenizer_config.json: chat_template is neither a text nor a list of named ones")
	}
	for _, n := range named {
		if n.Name == "default" {
			return n.Template, nil
		}
	}
	return "", errors.New("tokenizer_config.json: no chat_template is called default")
}
