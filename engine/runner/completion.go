package runner

import (
	"encoding/json"
	"fmt"
	"net/http"

	"onebit/engine/wire"
)

// promptOptions says how prompt text becomes tokens.
type promptOptions struct {
	name                     string // of the field, for problems
	addSpecial, parseSpecial bool
}

// completion answers the native /completion.
func (s *service) completion(w http.ResponseWriter, r *http.Request) *problem {
	return s.complete(w, r, func(j *job) responder { return &nativeResponder{newTexts(j)} })
}

// legacy answers OpenAI's /v1/completions.
func (s *service) legacy(w http.ResponseWriter, r *http.Request) *problem {
	return s.complete(w, r, func(j *job) responder { return &legacyResponder{newTexts(j)} })
}

func (s *service) complete(w http.ResponseWriter, r *http.Request, form func(*job) responder) *problem {
	body, p := readBody(r)
	if p != nil {
		return p
	}
	set, prompts, p := s.readCompletion(body)
	if p != nil {
		return p
	}
	j, p := s.newJob(set, prompts)
	if p != nil {
		return p
	}
	return j.answer(w, r, form(j))
}

// readCompletion reads a text completion request: its settings and prompts.
func (s *service) readCompletion(body []byte) (settings, [][]int32, *problem) {
	if _, err := wire.ParseCompletion(body); err != nil {
		return settings{}, nil, fromWire(err)
	}
	f, p := parseFields(body)
	if p != nil {
		return settings{}, nil, p
	}
	set := readSettings(f, s.vocab)
	if f.boolean("echo", false) {
		f.fail(unsupported("echo", "repeating the prompt is not supported"))
	}
	if f.text("suffix", "") != "" {
		f.fail(unsupported("suffix", "text after the completion is not supported"))
	}
	if f.integer("best_of", 1, 1, maxChoices) > 1 {
		f.fail(unsupported("best_of", "choosing among completions is not supported"))
	}
	readProbs(f, &set)
	for i, raw := range f.list("response_fields") {
		var name string
		if json.Unmarshal(raw, &name) != nil {
			f.fail(invalid(fmt.Sprintf("response_fields[%d]", i), "expected a string"))
		}
		set.fields = append(set.fields, name)
	}
	if f.problem != nil {
		return settings{}, nil, f.problem
	}
	if p := set.form.compile(s.words()); p != nil {
		return settings{}, nil, p
	}
	prompts, p := s.readPrompts(f.raw["prompt"])
	return set, prompts, p
}

// readProbs reads how many log-probabilities a text completion reports. OpenAI
// gives those of the tokens themselves even when it is asked for no others.
func readProbs(f *fields, set *settings) {
	name := f.first("n_probs", "logprobs")
	if f.has(name) && jsonKind(f.raw[name]) == "boolean" {
		set.Logprobs = f.boolean(name, false)
		return
	}
	set.TopLogprobs = int(f.integer(name, 0, 0, maxLogprobs))
	set.Logprobs = set.TopLogprobs > 0 || name == "logprobs" && f.has(name)
}

// readPrompts reads one prompt or an array of them. A prompt is a text, token
// ids, a mix of both, or an object that holds one of these.
func (s *service) readPrompts(raw json.RawMessage) ([][]int32, *problem) {
	o := promptOptions{name: "prompt", addSpecial: true, parseSpecial: true}
	var items []json.RawMessage
	if jsonKind(raw) != "array" || json.Unmarshal(raw, &items) != nil || hasNumber(items) {
		ids, p := s.readPrompt(raw, o)
		return [][]int32{ids}, p
	}
	if len(items) == 0 {
		return nil, invalid("prompt", "it must not be empty")
	}
	var prompts [][]int32
	for i, item := range items {
		o.name = fmt.Sprintf("prompt[%d]", i)
		ids, p := s.readPrompt(item, o)
		if p != nil {
			return nil, p
		}
		prompts = append(prompts, ids)
	}
	return prompts, nil
}

func hasNumber(items []json.RawMessage) bool {
	for _, item := range items {
		if jsonKind(item) == "number" {
			return true
		}
	}
	return false
}

func (s *service) readPrompt(raw json.RawMessage, o promptOptions) ([]int32, *problem) {
	switch jsonKind(raw) {
	case "string":
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, invalid(o.name, "%v", err)
		}
		return s.vocab.Encode(text, o.addSpecial, o.parseSpecial), nil
	case "array":
		return s.mixedPrompt(raw, o)
	}
	return nil, invalid(o.name, "expected a string, token ids or an array of both, but got %s", article(jsonKind(raw)))
}

// mixedPrompt reads an array of texts and token ids. Special tokens are added
// before a text that comes first.
func (s *service) mixedPrompt(raw json.RawMessage, o promptOptions) ([]int32, *problem) {
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return nil, invalid(o.name, "%v", err)
	}
	var ids []int32
	for i, item := range items {
		name := fmt.Sprintf("%s[%d]", o.name, i)
		if jsonKind(item) == "string" {
			var text string
			if err := json.Unmarshal(item, &text); err != nil {
				return nil, invalid(name, "%v", err)
			}
			ids = append(ids, s.vocab.Encode(text, o.addSpecial && i == 0, o.parseSpecial)...)
			continue
		}
		id, p := s.tokenID(item, name)
		if p != nil {
			return nil, p
		}
		ids = append(ids, id)
	}
	return ids, nil
}
