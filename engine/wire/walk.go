package wire

import (
	"crypto/rand"
	"strings"
)

// Member is one member of a JSON object, by its place: the object's bytes from Start to End are the value.
type Member struct {
	Key              []byte // without quotes, escapes resolved
	From, Start, End int    // From is where the key's opening quote stands
}

// Walk calls f for each member of a JSON object, in order, until f returns false. It reports whether raw is an object,
// as far as it was looked at. It allocates nothing but for keys with escapes.
func Walk(raw []byte, f func(Member) bool) bool {
	m := newMembers(raw)
	for m.next() {
		if !f(Member{Key: m.key, From: m.keyAt, Start: m.start, End: m.off}) {
			return true
		}
	}
	return !m.bad
}

// Each calls f with the place of each element of a JSON array, in order, until f returns false. It reports whether raw is
// an array, as far as it was looked at.
func Each(raw []byte, f func(start, end int) bool) bool {
	return spans(raw, func(_, start, end int) bool { return f(start, end) })
}

// Text returns the text of a JSON value that is a string.
func Text(value []byte) (string, bool) { return text(value) }

// Present reports whether a member is there and not null.
func Present(value []byte) bool { return len(value) > 0 && !isNull(value) }

// ID makes an id of a kind, such as msg.
func ID(kind string) string { return kind + "_" + strings.ToLower(rand.Text()) }

// Object returns an *engine.InvalidError for a body that is no JSON object in UTF-8.
func Object(body []byte) error { return isJSONObject(body) }
