package wire

import (
	"bytes"
	"math"
	"strconv"

	"onebit/engine"
)

// TimingsUsage reads the counts of tokens out of a chunk's member timings, with which servers of llama-server's kind end
// a stream, asked for usage or not. It reports whether there are any.
func TimingsUsage(raw []byte) (engine.Usage, bool) {
	if !bytes.Contains(raw, []byte(`"timings"`)) {
		return engine.Usage{}, false
	}
	m := newMembers(raw)
	for m.next() {
		if string(m.key) != "timings" {
			continue
		}
		var u engine.Usage
		found := false
		t := newMembers(m.value)
		for t.next() {
			n, err := integer("timings", t.value)
			if err != nil || n < 0 || n > 1<<31 {
				continue
			}
			switch string(t.key) {
			case "prompt_n":
				u.Prompt += int(n)
			case "cache_n":
				u.Prompt, u.Cached = u.Prompt+int(n), int(n)
			case "predicted_n":
				u.Completion, found = int(n), true
			}
		}
		return u, found
	}
	return engine.Usage{}, false
}

// Progress is how far a server is with a prompt, in tokens.
type Progress struct {
	Total, Cached, Processed int // Processed counts cached ones too
}

// ReadProgress reads a chunk's member prompt_progress, with which servers of llama-server's kind say how they get on with
// a prompt, when they are asked to. It reports whether there is one.
func ReadProgress(raw []byte) (p Progress, ok bool) {
	if !bytes.Contains(raw, []byte(`"prompt_progress"`)) {
		return p, false
	}
	m := newMembers(raw)
	for m.next() {
		if string(m.key) != "prompt_progress" {
			continue
		}
		t := newMembers(m.value)
		for t.next() {
			n, err := integer("prompt_progress", t.value)
			if err != nil || n < 0 || n > 1<<31 {
				continue
			}
			switch string(t.key) {
			case "total":
				p.Total = int(n)
			case "cache":
				p.Cached = int(n)
			case "processed":
				p.Processed = int(n)
			}
		}
	}
	return p, p.Total > 0 && p.Cached <= p.Total && p.Processed <= p.Total
}

// AppendAskingUsage appends the JSON object raw to dst with a stream's option include_usage set. Other options stay.
func AppendAskingUsage(dst, raw []byte) []byte {
	const on = `"include_usage":true`
	m := newMembers(raw)
	for m.next() {
		if string(m.key) != "stream_options" {
			continue
		}
		dst = append(append(dst, raw[:m.start]...), '{')
		o := newMembers(m.value)
		for o.next() {
			if string(o.key) != "include_usage" {
				dst = append(append(dst, m.value[o.keyAt:o.off]...), ',')
			}
		}
		dst = append(append(dst, on...), '}')
		return append(dst, raw[m.off:]...)
	}
	if m.bad {
		return append(dst, raw...)
	}
	dst = append(dst, raw[:m.at]...)
	if !m.first {
		dst = append(dst, ',')
	}
	dst = append(append(append(dst, `"stream_options":{`...), on...), '}')
	return append(dst, raw[m.at:]...)
}

// OnlyUsage reports whether a chunk is the one that carries the usage after the last piece of an answer: it has no
// choices.
func OnlyUsage(raw []byte) bool {
	none, usage := false, false
	m := newMembers(raw)
	for m.next() {
		switch string(m.key) {
		case "choices":
			none = len(m.value) > 1 && m.value[0] == '[' && m.value[skipSpace(m.value, 1)] == ']'
		case "usage":
			usage = !isNull(m.value)
		}
	}
	return none && usage && !m.bad
}

// GuessTokens guesses how many tokens a request's texts are, for where nobody has counted: a quarter of its bytes, media
// left out.
func GuessTokens(raw []byte) int {
	n := len(raw)
	for rest := raw; ; {
		_, after, found := bytes.Cut(rest, []byte(";base64,"))
		if !found {
			return n / 4
		}
		media := bytes.IndexByte(after, '"')
		if media < 0 {
			media = len(after)
		}
		n, rest = n-media, after[media:]
	}
}

// Prompts is how many prompts a request has, and how many answers it wants of each.
func Prompts(raw []byte) (prompts, each int) {
	prompts, each = 1, 1
	m := newMembers(raw)
	for m.next() {
		switch string(m.key) {
		case "prompt":
			texts := 0
			elements(m.value, func(_ int, v []byte) bool {
				if len(v) > 0 && (v[0] == '"' || v[0] == '[' || v[0] == '{') {
					texts++
				}
				return true
			})
			prompts = max(prompts, texts) // numbers are one prompt; beside texts they are part of one
		case "n", "n_cmpl", "best_of":
			if n, err := integer("n", m.value); err == nil && n > 1 {
				each = max(each, int(min(n, 1<<20)))
			}
		}
	}
	return prompts, each
}

// AppendCacheWritten appends an answer to dst with the number of tokens that are newly kept among the details of its usage.
// An answer without usage is appended as it is.
func AppendCacheWritten(dst, raw []byte, tokens int) []byte {
	const name = "cache_write_tokens"
	head, err := ReadHead(raw)
	if err != nil || head.Usage == nil {
		return append(dst, raw...)
	}
	member, details := "prompt_tokens_details", []byte("{}")
	if !Has(head.Usage, "prompt_tokens") && Has(head.Usage, "input_tokens") {
		member = "input_tokens_details"
	}
	m := newMembers(head.Usage)
	for m.next() {
		if string(m.key) == member && m.value[0] == '{' {
			details = m.value
		}
	}
	details = AppendMember(nil, details, name, strconv.AppendInt(nil, int64(tokens), 10))
	return AppendMember(dst, raw, "usage", AppendMember(nil, head.Usage, member, details))
}

// MostTokens returns how many tokens a request lets its answer have at most; 0 when it does not say.
func MostTokens(raw []byte) int {
	most := 0
	m := newMembers(raw)
	for m.next() {
		switch string(m.key) {
		case "max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict":
			if n, err := strconv.ParseFloat(string(m.value), 64); err == nil && n >= 1 && n <= math.MaxInt32 {
				most = int(n)
			}
		}
	}
	return most
}
