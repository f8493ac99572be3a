package tokenizer

import (
	"hash/maphash"
	"strings"
	"unicode/utf8"
)

// symbols numbers byte strings. The first numbers are the tokens, in their
// order; behind them come strings that merges make on the way to a token.
// All bytes lie in one block.
type symbols struct {
	bytes   []byte
	ends    []uint32 // ends[i] is where string i ends in bytes
	tokens  int
	emits   []int32 // for the strings behind the tokens: the token each is, or none
	table   []int32 // open addressing by hash; symbol + 1, 0 where free
	held    int     // strings in the table
	seed    maphash.Seed
	longest int // bytes of the longest string in the table
}

func newSymbols(tokens, size int) *symbols {
	s := &symbols{seed: maphash.MakeSeed(), tokens: tokens}
	s.bytes = make([]byte, 0, size)
	s.ends = make([]uint32, 0, tokens)
	n := 1024
	for n < 2*tokens {
		n *= 2
	}
	s.table = make([]int32, n)
	return s
}

// of returns the bytes of a symbol. The caller must not change them.
func (s *symbols) of(id int32) []byte {
	start := uint32(0)
	if id > 0 {
		start = s.ends[id-1]
	}
	end := s.ends[id]
	return s.bytes[start:end:end]
}

// add appends a string and returns its number. It cannot be found before it
// is held.
func (s *symbols) add(text []byte) int32 {
	s.bytes = append(s.bytes, text...)
	s.ends = append(s.ends, uint32(len(s.bytes)))
	if len(s.ends) > s.tokens {
		s.emits = append(s.emits, none)
	}
	return int32(len(s.ends) - 1)
}

// hold lets find find a symbol, unless an equal one is held.
func (s *symbols) hold(id int32) {
	if 2*s.held >= len(s.table) {
		s.grow()
	}
	b := s.of(id)
	i := s.slot(maphash.Bytes(s.seed, b))
	for ; s.table[i] != 0; i = (i + 1) & (len(s.table) - 1) {
		if string(s.of(s.table[i]-1)) == string(b) {
			return
		}
	}
	s.table[i] = id + 1
	s.held++
	s.longest = max(s.longest, len(b))
}

func (s *symbols) slot(hash uint64) int { return int(hash & uint64(len(s.table)-1)) }

func (s *symbols) grow() {
	old := s.table
	s.table = make([]int32, 2*len(old))
	for _, e := range old {
		if e == 0 {
			continue
		}
		i := s.slot(maphash.Bytes(s.seed, s.of(e-1)))
		for s.table[i] != 0 {
			i = (i + 1) & (len(s.table) - 1)
		}
		s.table[i] = e
	}
}

// find returns the symbol that is held for text, or none.
func (s *symbols) find(text string) int32 {
	if len(text) > s.longest {
		return none
	}
	for i := s.slot(maphash.String(s.seed, text)); s.table[i] != 0; i = (i + 1) & (len(s.table) - 1) {
		if id := s.table[i] - 1; string(s.of(id)) == text {
			return id
		}
	}
	return none
}

// intern returns the symbol of text, added when there is none.
func (s *symbols) intern(text []byte) int32 {
	if id := s.find(string(text)); id != none {
		return id
	}
	id := s.add(text)
	s.hold(id)
	return id
}

// token returns the token that a symbol is, or none.
func (s *symbols) token(id int32) int32 {
	if int(id) < s.tokens {
		return id
	}
	return s.emits[int(id)-s.tokens]
}

// spelling appends the bytes that the text of a token stands for; ok is false
// when it stands for none.
type spelling func(dst []byte, text string) (bytes []byte, ok bool)

// newPieces numbers the tokens of v. Their bytes are what they decode to; the
// strings that find finds are what text must hold to become them.
func newPieces(v *vocabulary, spell spelling) (*symbols, error) {
	size := 0
	for _, t := range v.texts {
		size += len(t)
	}
	s := newSymbols(len(v.texts), size)
	var later []int // tokens that decode to something else than they are found by
	var key, piece []byte
	for i, text := range v.texts {
		var ok bool
		a := v.attrs[i]
		key, ok = spell(key[:0], text)
		piece = append(piece[:0], text...)
		switch {
		case a&(unknown|controlToken|userDefined) != 0:
		case a&byteToken != 0:
			b, isByte := byteOf(text)
			if !isByte {
				return nil, refuse("tokens", "byte token %d is %.80q", i, text)
			}
			piece = append(piece[:0], b)
		case a&normal == 0:
			piece = piece[:0]
		case ok:
			piece = append(piece[:0], key...)
		}
		id := s.add(piece)
		switch {
		case !ok || !a.mergeable():
		case string(key) == string(piece):
			s.hold(id)
		default:
			later = append(later, i)
		}
	}
	for _, i := range later {
		key, _ = spell(key[:0], v.texts[i])
		if s.find(string(key)) == none {
			id := s.intern(key)
			s.emits[int(id)-s.tokens] = int32(i)
		}
	}
	return s, nil
}

// metaspace is how vocabularies from SentencePiece write a space.
const metaspace = "\u2581"

// spellSpaces is the spelling of vocabularies that write a space as metaspace.
// A token with a space of its own cannot come from text.
func spellSpaces(dst []byte, text string) ([]byte, bool) {
	for {
		before, after, found := strings.Cut(text, metaspace)
		dst = append(dst, before...)
		if strings.IndexByte(before, ' ') >= 0 {
			return dst, false
		}
		if !found {
			return dst, true
		}
		dst = append(dst, ' ')
		text = after
	}
}

// byteSpelling is the spelling of vocabularies that write each byte as a
// printable character: the printable ones of Latin-1 as themselves, the others
// as those from U+0100 on.
func byteSpelling() spelling {
	var bytes [324]int16
	for i := range bytes {
		bytes[i] = -1
	}
	next := 256
	for b := range 256 {
		if '!' <= b && b <= '~' || 0xa1 <= b && b <= 0xac || 0xae <= b {
			bytes[b] = int16(b)
		} else {
			bytes[next] = int16(b)
			next++
		}
	}
	return func(dst []byte, text string) ([]byte, bool) {
		for _, r := range text {
			if r >= rune(len(bytes)) || bytes[r] < 0 {
				return dst, false
			}
			dst = append(dst, byte(bytes[r]))
		}
		return dst, true
	}
}

// valid returns text with each byte that is not UTF-8 replaced by U+FFFD.
func valid(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return string([]rune(text))
}
