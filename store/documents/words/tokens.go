package words

import (
	"hash/maphash"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// A token is the hash of a stem.
type token = uint64

// cutter cuts texts into tokens. It is not for several goroutines at once.
type cutter struct {
	seed maphash.Seed
	buf  []byte
}

// each calls f with every token of a text, in order.
func (c *cutter) each(text string, f func(token)) {
	c.buf = c.buf[:0]
	for i := 0; i < len(text); {
		if b := text[i]; b < utf8.RuneSelf {
			i++
			switch {
			case 'A' <= b && b <= 'Z':
				c.buf = append(c.buf, b+('a'-'A'))
			case 'a' <= b && b <= 'z' || '0' <= b && b <= '9':
				c.buf = append(c.buf, b)
			default:
				c.end(f)
			}
			continue
		}
		r, n := utf8.DecodeRuneInString(text[i:])
		i += n
		switch {
		case unicode.In(r, unicode.L, unicode.N, unicode.Co):
			c.buf = utf8.AppendRune(c.buf, fold(r))
		case mark(r) && len(c.buf) > 0: // above or below the letter before it
		default:
			c.end(f)
		}
	}
	c.end(f)
}

func (c *cutter) end(f func(token)) {
	if len(c.buf) > 0 {
		f(maphash.Bytes(c.seed, stem(c.buf)))
	}
	c.buf = c.buf[:0]
}

// mark tells the marks that FTS5 takes for a part of a letter.
func mark(r rune) bool {
	return r >= 768 && r < 800 && 0x08029FDF>>(r-768)&1 == 1 || r >= 800 && r <= 817 && 0x000361F8>>(r-800)&1 == 1
}

// fold returns a letter in lower case and without marks.
func fold(r rune) rune {
	switch {
	case r < 0xc0:
		return r
	case r == 'ς':
		return 'σ'
	}
	r = unicode.ToLower(r)
	if r >= 0x1f00 && r != 0x212a && r != 0x212b { // only Latin letters are freed of marks
		return r
	}
	var b [utf8.UTFMax]byte
	d := norm.NFD.Properties(b[:utf8.EncodeRune(b[:], r)]).Decomposition()
	if len(d) > 1 && ('a' <= d[0] && d[0] <= 'z') {
		return rune(d[0])
	}
	return r
}
