package payload

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"onebit/extensions/abi"
)

// Room in a request for parts whose size strangers choose, in bytes of JSON. With head and tail, which grow sixfold at
// most, they leave 12 KiB for what is fixed and for candidates.
const (
	maxField   = 256     // bytes of one name or id
	maxHeader  = 8 << 10 // JSON of all headers
	maxScores  = 4 << 10 // JSON of all scores
	maxPrompt  = 6 * (abi.MaxHead + abi.MaxTail)
	_          = uint(abi.MaxRequest - maxPrompt - maxHeader - maxScores - 12<<10) // it fits
	maxTrailer = len(`]}`)
)

// Cut returns the beginning and the end of a user's message as a request has them: whole runes, and no end when the
// beginning is all.
func Cut(message string) (head, tail string) {
	if len(message) <= abi.MaxHead {
		return message, ""
	}
	return first(message, abi.MaxHead), last(message, abi.MaxTail)
}

// first returns the first n bytes of s, less a rune that does not fit.
func first(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for k := 1; k < utf8.UTFMax && n > 0 && !utf8.RuneStart(s[n]); k++ {
		n--
	}
	return s[:n]
}

// last returns the last n bytes of s, less a rune that does not fit.
func last(s string, n int) string {
	if len(s) <= n {
		return s
	}
	at := len(s) - n
	for k := 1; k < utf8.UTFMax && at < len(s) && !utf8.RuneStart(s[at]); k++ {
		at++
	}
	return s[at:]
}

// AppendRequest appends the JSON of r to dst: at most abi.MaxRequest bytes, whatever r holds. Head and Tail are cut to
// their limits, ids to 256 bytes, headers and scores in the order of their names to what fits, candidates in their
// order as well. An error is a number that JSON cannot write.
func AppendRequest(dst []byte, r *abi.Request) ([]byte, error) {
	w := writer{b: dst, from: len(dst)}
	w.raw(`{"v":1,"id":`)
	w.name(r.ID)
	w.raw(`,"conversation":`)
	w.name(r.Conversation)
	w.whole(`,"turn":`, r.Turn)
	w.raw(`,"api":`)
	w.name(r.API)
	w.raw(`,"model":`)
	w.name(r.Model)
	w.raw(`,"tenant":`)
	w.name(r.Tenant)
	w.raw(`,"key":`)
	w.name(r.Key)
	w.whole(`,"hour":`, r.Hour)
	w.whole(`,"tokens":`, r.Tokens)
	w.whole(`,"bytes":`, r.Bytes)
	w.flag(`,"flags":{"stream":`, r.Flags.Stream)
	w.flag(`,"tools":`, r.Flags.Tools)
	w.flag(`,"images":`, r.Flags.Images)
	w.flag(`,"json":`, r.Flags.JSON)
	w.raw(`}`)
	w.headers(r.Headers)
	w.raw(`,"head":`)
	w.text(first(r.Head, abi.MaxHead))
	if r.Tail != "" {
		w.raw(`,"tail":`)
		w.text(last(r.Tail, abi.MaxTail))
	}
	if r.Class != "" {
		w.raw(`,"class":`)
		w.name(r.Class)
	}
	if r.Confidence != 0 {
		w.number(`,"confidence":`, r.Confidence)
	}
	w.scores(r.Scores)
	w.candidates(r.Candidates)
	w.raw(`}`)
	if w.err != nil {
		return dst, w.err
	}
	return w.b, nil
}

// writer appends JSON.
type writer struct {
	b    []byte
	from int
	err  error
}

func (w *writer) raw(s string) { w.b = append(w.b, s...) }

func (w *writer) whole(key string, v int) {
	w.b = strconv.AppendInt(append(w.b, key...), int64(v), 10)
}

func (w *writer) flag(key string, v bool) {
	w.b = strconv.AppendBool(append(w.b, key...), v)
}

func (w *writer) number(key string, v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		w.err = fmt.Errorf("writing a request: %v after %s is not a number of JSON", v, key)
		v = 0
	}
	w.b = append(w.b, key...)
	if n := int64(v); v > 0 && v < 1e6 && float64(n) == v || v == 0 && !math.Signbit(v) { // the same digits, sooner
		w.b = strconv.AppendInt(w.b, n, 10)
		return
	}
	w.b = strconv.AppendFloat(w.b, v, 'g', -1, 64)
}

func (w *writer) name(s string) { w.text(first(s, maxField)) }

const hexDigits = "0123456789abcdef"

// plain are the bytes that stand for themselves.
var plain = func() (is [256]bool) {
	for c := range is {
		is[c] = c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\'
	}
	return is
}()

// text appends a string. Damaged UTF-8 becomes U+FFFD, as it does in encoding/json.
func (w *writer) text(s string) {
	w.b = append(w.b, '"')
	from := 0
	for i := 0; i < len(s); {
		for i < len(s) && plain[s[i]] {
			i++
		}
		if i == len(s) {
			break
		}
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				w.b = append(append(w.b, s[from:i]...), "\uFFFD"...)
				from = i + 1
			}
			i += n
			continue
		}
		w.b = append(w.b, s[from:i]...)
		switch c {
		case '"', '\\':
			w.b = append(w.b, '\\', c)
		case '\n':
			w.b = append(w.b, '\\', 'n')
		case '\r':
			w.b = append(w.b, '\\', 'r')
		case '\t':
			w.b = append(w.b, '\\', 't')
		default:
			w.b = append(w.b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		from = i
	}
	w.b = append(append(w.b, s[from:]...), '"')
}

// members appends an object of what fits into room bytes, in the order of the names.
func members[V any](w *writer, key string, m map[string]V, room int, value func(V)) {
	if len(m) == 0 {
		return
	}
	names := make([]string, 0, 8)
	for name := range m {
		if len(name) > maxField {
			continue // cut, it could equal another
		}
		names = append(names, name)
	}
	slices.Sort(names)
	start := len(w.b)
	w.raw(key)
	n := 0
	for _, name := range names {
		at := len(w.b)
		if n > 0 {
			w.raw(",")
		}
		w.name(name)
		w.raw(":")
		value(m[name])
		if len(w.b)+1-start > room {
			w.b = w.b[:at]
			continue
		}
		n++
	}
	if n == 0 {
		w.b = w.b[:start]
		return
	}
	w.raw("}")
}

func (w *writer) headers(m map[string]string) {
	members(w, `,"headers":{`, m, maxHeader, func(v string) { w.text(first(v, maxHeader)) })
}

func (w *writer) scores(m map[string]float64) {
	members(w, `,"scores":{`, m, maxScores, func(v float64) { w.number("", v) })
}

func (w *writer) candidates(list []abi.Candidate) {
	start := len(w.b)
	for i := range list {
		at := len(w.b)
		if i == 0 {
			w.raw(`,"candidates":[`)
		} else {
			w.raw(`,`)
		}
		w.candidate(&list[i])
		if len(w.b)+maxTrailer-w.from > abi.MaxRequest {
			w.b = w.b[:at]
			break
		}
	}
	if len(w.b) > start {
		w.raw(`]`)
	}
}

func (w *writer) candidate(c *abi.Candidate) {
	w.raw(`{"id":`)
	w.name(c.ID)
	w.raw(`,"backend":`)
	w.name(c.Backend)
	w.raw(`,"device":`)
	w.name(c.Device)
	w.raw(`,"model":`)
	w.name(c.Model)
	w.whole(`,"ctx":`, c.Context)
	w.flag(`,"healthy":`, c.Healthy)
	w.whole(`,"queue":`, c.Queue)
	w.number(`,"load":`, c.Load)
	w.number(`,"pp_tps":`, c.PromptS)
	w.number(`,"tg_tps":`, c.DecodeS)
	w.whole(`,"cached":`, c.Cached)
	w.flag(`,"sticky":`, c.Sticky)
	w.number(`,"price":`, c.Price)
	w.raw(`}`)
}
