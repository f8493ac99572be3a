package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Piece returns the bytes that a token stands for, which need not be whole
// characters; none for an id that is no token and, unless special, for control
// tokens. The caller must not change them.
func (t *Tokenizer) Piece(id int32, special bool) []byte {
	if !t.has(id) || !special && t.attrs[id].hidden() {
		return nil
	}
	return t.pieces.of(id)
}

// Decode returns the text of ids, with control tokens if special. It is UTF-8:
// bytes that are no character become U+FFFD. A space that a vocabulary puts
// before all text is not taken off again.
func (t *Tokenizer) Decode(ids []int32, special bool) string {
	s := t.NewStream(special)
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(s.Push(id))
	}
	b.WriteString(s.Flush())
	return b.String()
}

// Stream decodes tokens as they come and never cuts a character. It is not
// safe for concurrent use.
type Stream struct {
	t       *Tokenizer
	special bool
	rest    []byte // the start of a character
}

// NewStream returns a decoder that shows control tokens if special.
func (t *Tokenizer) NewStream(special bool) *Stream {
	return &Stream{t: t, special: special}
}

// Push returns the text that token id completes: UTF-8, and empty while a
// character is not whole. Bytes that cannot become a character are U+FFFD.
func (s *Stream) Push(id int32) string {
	piece := s.t.Piece(id, s.special)
	if len(s.rest) == 0 && utf8.Valid(piece) {
		return string(piece)
	}
	s.rest = append(s.rest, piece...)
	return s.take(false)
}

// Flush ends the text: a character that is not whole becomes U+FFFD. The
// stream can then be used for another text.
func (s *Stream) Flush() string { return s.take(true) }

// take returns what is whole in rest, or all of it.
func (s *Stream) take(all bool) string {
	var b strings.Builder
	in := s.rest
	for len(in) > 0 {
		if !all && !utf8.FullRune(in) {
			break
		}
		r, w := utf8.DecodeRune(in)
		if r == utf8.RuneError && w == 1 {
			for w < len(in) && !utf8.FullRune(in[:w]) { // a start that nothing completes is one character
				w++
			}
			if utf8.FullRune(in[:w]) && w > 1 {
				w--
			}
		}
		b.WriteRune(r)
		in = in[w:]
	}
	s.rest = append(s.rest[:0], in...)
	return b.String()
}
