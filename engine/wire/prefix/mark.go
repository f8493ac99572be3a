package prefix

import (
	"strconv"
	"time"
	"unicode/utf8"

	"onebit/engine"
	"onebit/engine/wire"
)

// MaxTTL is the longest time that a client may ask to keep something.
const MaxTTL = 24 * time.Hour

// The times where a client does not say, as the two APIs have it.
const (
	ephemeral  = 5 * time.Minute  // of a cache_control
	breakpoint = 30 * time.Minute // of a prompt_cache_breakpoint
)

// maxKey is the longest prompt_cache_key, in characters.
const maxKey = 64

// mark is a client's wish that the state up to here be kept.
type mark struct {
	set bool
	ttl time.Duration
}

// or joins two wishes for the same place.
func (m mark) or(other mark) mark {
	return mark{m.set || other.set, max(m.ttl, other.ttl)}
}

// isMark reports whether a member is one.
func isMark(key []byte) bool {
	return string(key) == "cache_control" || string(key) == "prompt_cache_breakpoint"
}

// mark reads one. null is none.
func (w *writer) mark(key, value []byte) mark {
	var m mark
	if w.err != nil {
		return m
	}
	if string(key) == "cache_control" {
		m, w.err = cacheControl(value)
	} else {
		m, w.err = w.chain.breakpoint(value)
	}
	return m
}

// words reads the members of a mark, each a text. It reports whether the value is an object of such members; what is null
// is not there.
func words(value []byte, names ...string) (found map[string]string, ok bool) {
	found = map[string]string{}
	texts := true
	ok = wire.Walk(value, func(m wire.Member) bool {
		for _, name := range names {
			if v := value[m.Start:m.End]; string(m.Key) == name && string(v) != "null" {
				found[name], texts = wire.Text(v)
			}
		}
		return texts
	})
	return found, ok && texts
}

// cacheControl reads Anthropic's mark.
func cacheControl(value []byte) (mark, error) {
	if string(value) == "null" {
		return mark{}, nil
	}
	is, ok := words(value, "type", "ttl")
	if !ok || is["type"] != "ephemeral" {
		return mark{}, engine.Invalid("cache_control", `cache_control is {"type":"ephemeral"}, with a ttl perhaps`)
	}
	switch is["ttl"] {
	case "", "5m":
		return mark{true, ephemeral}, nil
	case "1h":
		return mark{true, time.Hour}, nil
	}
	return mark{}, engine.Invalid("cache_control.ttl", "a cache_control's ttl is 5m or 1h")
}

// Ephemeral reads a cache_control: how long what it marks is to be kept, 0 for null, or an *engine.InvalidError.
func Ephemeral(value []byte) (time.Duration, error) {
	m, err := cacheControl(value)
	return m.ttl, err
}

// breakpoint reads OpenAI's mark. Without a time of its own it has the request's.
func (c *Chain) breakpoint(value []byte) (mark, error) {
	const at = "prompt_cache_breakpoint"
	if string(value) == "null" {
		return mark{}, nil
	}
	is, ok := words(value, "mode", "ttl")
	if !ok || is["mode"] != "explicit" {
		return mark{}, engine.Invalid(at, `prompt_cache_breakpoint is {"mode":"explicit"}`)
	}
	m := mark{true, breakpoint}
	if c.TTL > 0 {
		m.ttl = c.TTL
	}
	if text, given := is["ttl"]; given {
		if m.ttl, ok = duration(text); !ok {
			return mark{}, engine.Invalid(at+".ttl", "a ttl is a whole number of s, m or h, up to 24h, such as 30m")
		}
	}
	return m, nil
}

// options reads what OpenAI's requests say about all of their marks.
func (c *Chain) options(value []byte) error {
	const at = "prompt_cache_options"
	if string(value) == "null" {
		return nil
	}
	is, ok := words(value, "mode", "ttl")
	if !ok {
		return engine.Invalid(at, "prompt_cache_options is an object of texts, mode and ttl")
	}
	switch is["mode"] {
	case "", "implicit":
	case "explicit":
		c.Explicit = true
	default:
		return engine.Invalid(at+".mode", "the mode is implicit or explicit")
	}
	if text, given := is["ttl"]; given {
		if c.TTL, ok = duration(text); !ok {
			return engine.Invalid(at+".ttl", "a ttl is a whole number of s, m or h, up to 24h, such as 30m")
		}
	}
	return nil
}

// cacheKey reads the word by which a client parts what may be reused.
func cacheKey(value []byte) (string, error) {
	if string(value) == "null" {
		return "", nil
	}
	key, ok := wire.Text(value)
	if !ok || utf8.RuneCountInString(key) > maxKey {
		return "", engine.Invalid("prompt_cache_key", "prompt_cache_key is a text of at most %d characters", maxKey)
	}
	return key, nil
}

// duration reads a time such as 30m.
func duration(text string) (time.Duration, bool) {
	if len(text) < 2 || len(text) > 6 {
		return 0, false
	}
	unit, ok := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour}[text[len(text)-1]]
	n, err := strconv.ParseUint(text[:len(text)-1], 10, 31)
	if !ok || err != nil || n == 0 || time.Duration(n) > MaxTTL/unit {
		return 0, false
	}
	return time.Duration(n) * unit, true
}
