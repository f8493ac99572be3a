package wire

import (
	"bytes"

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
