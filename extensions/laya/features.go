package laya

import "unicode/utf8"

// The bags.
const (
	bagWords = iota
	bagEnds
	bagLetters
)

// room is how many rows a bag can hold; what is over is left out. A text of LongBytes fills about two thirds.
const room = 4096

// Features are the rows of the table that a text stands for, in three bags: its words and runs of words; its first and last
// words and its shape; the letters in its words. The zero value is ready.
type Features struct {
	bags   [Bags]bag
	rows   uint64
	runes  [LongBytes]rune
	tokens [LongBytes]uint32
	ntoken int
}

type bag struct {
	n    int
	rows [room]uint32
}

// Bag is what the last Read found, valid until the next.
func (f *Features) Bag(i int) []uint32 { return f.bags[i].rows[:f.bags[i].n] }

func (f *Features) add(bag int, hash uint32) {
	b := &f.bags[bag]
	if b.n < room {
		b.rows[b.n] = uint32(uint64(mix(hash)) * f.rows >> 32)
		b.n++
	}
}

// mix spreads a hash over all bits.
func mix(h uint32) uint32 {
	h ^= h >> 16
	h *= 0x7feb352d
	h ^= h >> 15
	h *= 0x846ca68b
	return h ^ h>>16
}

// The seeds of hashes, one for each kind of feature; hashes go on by h*prime ^ next.
const (
	prime      = 0x01000193
	seedWord   = 0x811c9dc5
	seedPair   = 0x3c6ef372
	seedTriple = 0xa54ff53a
	seedSkip   = 0x510e527f
	seedFirst  = 0x9b05688c
	seedLast   = 0x1f83d9ab
	seedLetter = 0x5be0cd19
	seedShape  = 0x6a09e667
	seedMark   = 0xbb67ae85
)

// kind is what a rune is to the reader.
type kind uint8

const (
	space  kind = iota
	letter      // part of a word: letters, digits, the underscore
	sign        // a word by itself: han, kana, hangul, thai
	stop        // punctuation of sentences: noted, and not part of runs of words
	mark        // other punctuation, a word by itself
)

// Read finds the features of a text for a table of that many rows. It reads at most LongBytes bytes. Letters are folded to
// lower case without accents, digits to 0, so that careless typing changes little.
func (f *Features) Read(text []byte, rows uint32) {
	f.rows, f.ntoken = uint64(rows), 0
	for i := range f.bags {
		f.bags[i].n = 0
	}
	var s shape
	n := f.fold(text[:min(len(text), LongBytes)], &s)
	for i := 0; i < n; {
		r := f.runes[i]
		switch kindOf(r) {
		case letter:
			end := i + 1
			for end < n && kindOf(f.runes[end]) == letter {
				end++
			}
			f.word(f.runes[i:end])
			s.words++
			i = end
			continue
		case sign:
			f.token((seedWord ^ uint32(r)) * prime)
			f.run(f.runes[i:min(n, i+5)])
			s.signs++
		case mark:
			f.token((seedMark ^ uint32(r)) * prime)
			s.marks++
		case stop:
			f.add(bagWords, (seedMark^uint32(r))*prime)
		}
		i++
	}
	f.sequence()
	f.ends()
	f.shape(&s)
}

// fold fills f.runes and answers how many there are.
func (f *Features) fold(text []byte, s *shape) int {
	n := 0
	for i := 0; i < len(text); {
		r := rune(text[i])
		size := 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRune(text[i:])
		}
		i += size
		s.see(r)
		if r = fold(r); r != 0 {
			f.runes[n] = r
			n++
		}
	}
	s.runes = n
	return n
}

// token notes one word.
func (f *Features) token(hash uint32) {
	f.tokens[f.ntoken] = hash
	f.ntoken++
}

// word notes a word and the runs of three to five letters in it, its borders among them. Of a very long word only the
// beginning is looked at.
func (f *Features) word(w []rune) {
	h := uint32(seedWord)
	for _, r := range w {
		h = (h ^ uint32(r)) * prime
	}
	f.token(h)
	w = w[:min(len(w), 40)]
	for i := -1; i <= len(w)-2; i++ {
		h := uint32(seedLetter)
		for k := range 5 {
			r := rune('_')
			if at := i + k; at >= 0 && at < len(w) {
				r = w[at]
			} else if at > len(w) {
				break
			}
			h = (h ^ uint32(r)) * prime
			if k >= 2 {
				f.add(bagLetters, h+uint32(k))
			}
		}
	}
}

// run notes the runs of two to five signs that begin with the first.
func (f *Features) run(w []rune) {
	h := uint32(seedLetter)
	for k, r := range w {
		if kindOf(r) != sign {
			break
		}
		h = (h ^ uint32(r)) * prime
		if k >= 1 {
			f.add(bagLetters, h+uint32(k))
		}
	}
}

// sequence notes words, pairs, triples, and pairs with one word between.
func (f *Features) sequence() {
	var a, b uint32
	for i, c := range f.tokens[:f.ntoken] {
		f.add(bagWords, c)
		if i >= 1 {
			f.add(bagWords, (seedPair^b)*prime^c)
		}
		if i >= 2 {
			f.add(bagWords, ((seedTriple^a)*prime^b)*prime^c)
			f.add(bagWords, (seedSkip^a)*prime^c)
		}
		a, b = b, c
	}
}

// ends notes how the text begins and how it ends: one to four words together.
func (f *Features) ends() {
	h := uint32(seedFirst)
	for i, t := range f.tokens[:min(f.ntoken, 4)] {
		h = (h ^ t) * prime
		f.add(bagEnds, h+uint32(i))
	}
	h = seedLast
	for i := range min(f.ntoken, 4) {
		h = (h ^ f.tokens[f.ntoken-1-i]) * prime
		f.add(bagEnds, h+uint32(i))
	}
}

// shape is what a text looks like from afar.
type shape struct {
	runes, words, signs, marks         int
	lines, digits, upper, ticks, query int
	scripts                            [5]int // latin, cyrillic, devanagari, kana, han
}

// see counts a rune before it is folded.
func (s *shape) see(r rune) {
	switch {
	case r == '\n':
		s.lines++
	case r >= '0' && r <= '9':
		s.digits++
	case r >= 'A' && r <= 'Z':
		s.upper++
		s.scripts[0]++
	case r == '`':
		s.ticks++
	case r == '?' || r == '？':
		s.query++
	case r >= 'a' && r <= 'z':
		s.scripts[0]++
	case r >= 0x400 && r < 0x530:
		s.scripts[1]++
	case r >= 0x900 && r < 0x980:
		s.scripts[2]++
	case r >= 0x3040 && r < 0x3100:
		s.scripts[3]++
	case r >= 0x3400 && r < 0xa000:
		s.scripts[4]++
	}
}

// shape notes counts by their size, each also together with the number of words.
func (f *Features) shape(s *shape) {
	words := size(s.words + s.signs/2)
	best := 0
	for i, n := range s.scripts {
		if n > s.scripts[best] {
			best = i
		}
	}
	for i, v := range [...]int{words, size(s.runes), size(s.marks), size(s.lines), size(s.digits), min(s.ticks, 3), min(s.query, 2), best,
		size(8 * s.marks / (s.words + s.signs + 1)), size(8 * s.upper / (s.runes + 1))} {
		f.add(bagEnds, seedShape+uint32(i*64+v))
		f.add(bagEnds, seedShape+uint32(4096+(i*64+v)*64+words))
	}
}

// size is about the logarithm of a count, two steps to each doubling.
func size(n int) int {
	k := 0
	for n > 3 {
		n, k = n>>1, k+2
	}
	return k + n
}
