package tokenizer

import (
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// longestWord is the number of characters beyond which a word is unknown.
const longestWord = 100

// wordPiece encodes like BERT: clean and simplify the text, cut it into words
// and punctuation, and cover each word by the longest tokens from its start.
type wordPiece struct {
	pieces  *symbols
	classes *classes
	unk     int32
	lower   bool
	strip   bool // of accents
	words   *cache
}

func newWordPiece(v *vocabulary) (*wordPiece, *symbols, error) {
	pieces, err := newPieces(v, spellSpaces)
	if err != nil {
		return nil, nil, err
	}
	w := &wordPiece{pieces: pieces, classes: newClasses(), unk: v.unk, lower: true, words: newCache()}
	if b, ok := v.file.Bool(prefix + "normalizer.lowercase"); ok {
		w.lower = b
	}
	w.strip = w.lower
	if b, ok := v.file.Bool(prefix + "normalizer.strip_accents"); ok {
		w.strip = b
	}
	return w, pieces, nil
}

func (w *wordPiece) encode(text string, _ bool, out []int32) []int32 {
	if w.strip {
		text = norm.NFD.String(text)
	}
	word := []byte{' '} // tokens that begin a word are written with a space
	flush := func() {
		if len(word) > 1 {
			out = w.words.encode(string(word), out, w.cover)
			word = word[:1]
		}
	}
	for _, r := range text {
		k := w.classes.of(r)
		switch {
		case r == '\t' || r == '\n' || r == '\r':
			flush()
			continue
		case r == utf8.RuneError || k&control != 0 || unicode.IsControl(r) || w.strip && unicode.Is(unicode.Mn, r):
			continue
		case k&space != 0:
			flush()
			continue
		}
		if w.lower {
			r = unicode.ToLower(r)
		}
		alone := k&punct != 0 || asciiPunct(r) || spacedIdeograph(r)
		if alone {
			flush()
		}
		word = utf8.AppendRune(word, r)
		if alone {
			flush()
		}
	}
	flush()
	return out
}

// spacedIdeograph reports whether r is a word by itself, as BERT has it.
func spacedIdeograph(r rune) bool {
	switch {
	case 0x4e00 <= r && r <= 0x9fff, 0x3400 <= r && r <= 0x4dbf, 0xf900 <= r && r <= 0xfaff,
		0x20000 <= r && r <= 0x2a6df, 0x2a700 <= r && r <= 0x2b81f, 0x2b920 <= r && r <= 0x2ceaf, 0x2f800 <= r && r <= 0x2fa1f:
		return true
	}
	return false
}

// cover appends the tokens of a word, which begins with a space; UNK when they
// cannot cover all of it.
func (w *wordPiece) cover(word string, out []int32) []int32 {
	n := len(out)
	if utf8.RuneCountInString(word)-1 > longestWord {
		return append(out, w.unk)
	}
	for i := 0; i < len(word); {
		end := min(len(word), i+w.pieces.longest)
		id := none
		for ; end > i; end-- {
			if id = w.pieces.find(word[i:end]); id != none {
				break
			}
		}
		if id == none {
			return append(out[:n], w.unk)
		}
		out = append(out, w.pieces.token(id))
		i = end
	}
	return out
}
