package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// class says what a character is to the pre-tokenisers. A set of classes is
// their sum; the class of the end of the text is 0.
type class uint8

const (
	letter  class = 1 << iota // general category L
	number                    // N
	space                     // White_Space
	mark                      // M
	punct                     // P
	symbol                    // S
	control                   // Cc, Cf, Co, Cs
	other                     // not assigned, and separators that are no white space
)

// classes finds the class of a character. The pages of the table are shared
// where they are equal.
type classes struct {
	ascii [utf8.RuneSelf]class
	page  [(unicode.MaxRune + 1) / 256]uint16
	pages [][256]class
}

func newClasses() *classes {
	all := make([]class, unicode.MaxRune+1)
	paint := func(k class, lo, hi, stride uint32) {
		for r := lo; r <= hi; r += stride {
			all[r] = k
		}
	}
	table := func(k class, t *unicode.RangeTable) {
		for _, r := range t.R16 {
			paint(k, uint32(r.Lo), uint32(r.Hi), uint32(r.Stride))
		}
		for _, r := range t.R32 {
			paint(k, r.Lo, r.Hi, r.Stride)
		}
	}
	paint(other, 0, unicode.MaxRune, 1)
	table(letter, unicode.L)
	table(number, unicode.N)
	table(mark, unicode.M)
	table(punct, unicode.P)
	table(symbol, unicode.S)
	for _, t := range []*unicode.RangeTable{unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs} {
		table(control, t)
	}
	table(space, unicode.White_Space) // takes some controls and separators
	// Unicode 15.1, which vocabularies of today know and Go's tables (15.0) do not.
	paint(letter, 0x2ebf0, 0x2ee5d, 1)
	paint(symbol, 0x2ffc, 0x2fff, 1)
	paint(symbol, 0x31ef, 0x31ef, 1)

	c := &classes{}
	copy(c.ascii[:], all)
	seen := map[[256]class]uint16{}
	for i := range c.page {
		p := [256]class(all[i*256:])
		n, ok := seen[p]
		if !ok {
			n = uint16(len(c.pages))
			seen[p] = n
			c.pages = append(c.pages, p)
		}
		c.page[i] = n
	}
	return c
}

func (c *classes) of(r rune) class {
	return c.pages[c.page[r>>8]][r&0xff]
}

// at returns the class and the width of the character at s[i:]; both are 0 at
// the end.
func (c *classes) at(s string, i int) (class, int) {
	if i >= len(s) {
		return 0, 0
	}
	if b := s[i]; b < utf8.RuneSelf {
		return c.ascii[b], 1
	}
	r, w := utf8.DecodeRuneInString(s[i:])
	return c.of(r), w
}

// run returns where the run of characters of the classes in set that starts at
// i ends.
func (c *classes) run(s string, i int, set class) int {
	for i < len(s) {
		k, w := c.at(s, i)
		if k&set == 0 {
			break
		}
		i += w
	}
	return i
}
