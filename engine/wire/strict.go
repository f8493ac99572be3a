package wire

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"

	"onebit/engine"
)

// passed are members without a check of their own that Strict lets through beside those that the parsers know. Each only
// shapes the caller's own answer: nothing here names a slot, a file, an address or a program.
var passed = []string{
	"add_generation_prompt", "add_special", "background", "cache_prompt", "content", "dry_allowed_length", "dry_base",
	"dry_multiplier", "dry_penalty_last_n", "dry_sequence_breakers", "dynatemp_exponent", "dynatemp_range", "grammar",
	"grammar_lazy", "ignore_eos", "include", "json_schema", "logit_bias", "max_tool_calls", "metadata", "min_keep",
	"mirostat", "mirostat_eta", "mirostat_tau", "modalities", "n_indent", "n_predict", "n_probs", "parse_special",
	"parse_tool_calls", "prediction", "previous_response_id", "prompt_cache_breakpoint", "prompt_cache_key",
	"prompt_cache_options", "prompt_cache_retention", "reasoning", "reasoning_effort", "reasoning_format", "return_documents", "return_progress",
	"safety_identifier", "samplers", "service_tier", "store", "suffix", "text", "thinking", "thinking_budget_tokens",
	"timings_per_token", "tokens", "top_n_sigma", "truncation", "typical_p", "verbosity", "with_pieces",
	"xtc_probability", "xtc_threshold",
}

// fieldsOf returns the table of a kind; nil for one that has none.
func fieldsOf(kind engine.Kind) []field {
	switch kind {
	case engine.Chat:
		return chatFields
	case engine.Completion:
		return completionFields
	case engine.Response:
		return responseFields
	case engine.Embedding:
		return embeddingFields
	case engine.Rerank:
		return rerankFields
	case engine.Decision:
		return decisionFields
	case engine.SystemOne:
		return systemOneFields
	}
	return nil
}

// Strict returns a body with the members that are known for its kind and no others, so that what a server would do with
// an option nobody thought of is never found out by a stranger. A kind of 0 is a route of llama-server's own. The order
// stays. A number beyond 32 bits, and a member that is there twice, is an *engine.InvalidError.
func Strict(kind engine.Kind, raw []byte) ([]byte, error) {
	if err := isJSONObject(raw); err != nil {
		return nil, err
	}
	fields := fieldsOf(kind)
	if kind == 0 {
		fields = append(slices.Clone(chatFields), field{name: "prompt"})
	}
	out := append(make([]byte, 0, len(raw)), '{')
	seen := map[string]bool{}
	m := newMembers(raw)
	for m.next() {
		name := string(m.key)
		if find(fields, m.key) < 0 && !slices.Contains(passed, name) {
			continue
		}
		if seen[name] {
			return nil, &engine.InvalidError{Param: name, Code: "duplicate_parameter", Message: fmt.Sprintf("%q appears twice in the request", name)}
		}
		seen[name] = true
		if err := inRange(name, m.value); err != nil {
			return nil, err
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		key, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		out = append(append(append(out, key...), ':'), m.value...)
	}
	return append(out, '}'), nil
}

// inRange refuses a number that does not fit what servers keep it in.
func inRange(name string, v []byte) error {
	if v[0] != '-' && (v[0] < '0' || v[0] > '9') {
		return nil
	}
	f, err := strconv.ParseFloat(string(v), 64)
	switch {
	case name == "seed" && err == nil && math.Abs(f) < 1<<53:
		return nil // some clients take the clock
	case err != nil || math.Abs(f) > math.MaxInt32:
		return wrongValue(name, "a number in range")
	}
	return nil
}
