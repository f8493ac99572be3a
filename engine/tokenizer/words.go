package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// contraction returns the end of 's, 't, 're, 've, 'm, 'll or 'd at i, else i;
// fold accepts upper case too.
func contraction(s string, i int, fold bool) int {
	if i+1 >= len(s) || s[i] != '\'' {
		return i
	}
	lower := func(b byte) byte {
		if fold && 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		return b
	}
	a, b := lower(s[i+1]), byte(0)
	if i+2 < len(s) {
		b = lower(s[i+2])
	}
	switch {
	case a == 's' || a == 't' || a == 'm' || a == 'd':
		return i + 2
	case a == 'r' && b == 'e', a == 'v' && b == 'e', a == 'l' && b == 'l':
		return i + 3
	}
	return i
}

// blanks matches a run of white space: with byLine, up to its last line break
// if it has one; else all but its last character, which belongs to the word
// behind, unless the text ends with it or there is no other.
func blanks(c *classes, s string, i int, byLine bool) int {
	end, last, line := i, i, i
	for end < len(s) {
		k, w := c.at(s, end)
		if k&space == 0 {
			break
		}
		last = end
		end += w
		if b := s[last]; b == '\n' || b == '\r' {
			line = end
		}
	}
	switch {
	case byLine && line > i:
		return line
	case end < len(s) && last > i:
		return last
	}
	return end
}

// gpt2 matches contractions, then words, numbers and other characters, each
// with at most one space before, then white space.
func gpt2(c *classes, s string, i int) int {
	if end := contraction(s, i, false); end > i {
		return end
	}
	j := i
	k, w := c.at(s, j)
	if s[i] == ' ' {
		if next, nw := c.at(s, i+1); next != 0 && next&space == 0 {
			j, k, w = i+1, next, nw
		}
	}
	switch {
	case k&letter != 0:
		return c.run(s, j+w, letter)
	case k&number != 0:
		return c.run(s, j+w, number)
	case k&space == 0:
		return c.run(s, j+w, ^(space | letter | number))
	}
	return blanks(c, s, i, false)
}

// words is the family that began with cl100k: contractions, words with at most
// one other character before, numbers, other characters, white space by lines.
type words struct {
	plain   bool  // no contractions
	joined  bool  // a contraction ends a word rather than stand alone
	cased   bool  // a word ends before an ASCII capital behind a small letter
	phrases bool  // a word goes on over single spaces
	letters class // what words are made of
	apart   class // what ends a run of other characters, besides numbers and space
	digits  int   // longest number
	tail    string
	once    bool // tail is at most one character
}

func (p words) match(c *classes, s string, i int) int {
	if !p.plain && !p.joined {
		if end := contraction(s, i, true); end > i {
			return end
		}
	}
	if end := p.word(c, s, i); end > i {
		return end
	}
	if end := numberRun(c, s, i, p.digits); end > i {
		return end
	}
	j := i
	if s[i] == ' ' {
		j++
	}
	if end := c.run(s, j, ^(space | number | p.apart)); end > j {
		for end < len(s) && strings.IndexByte(p.tail, s[end]) >= 0 {
			end++
			if p.once {
				break
			}
		}
		return end
	}
	return blanks(c, s, i, true)
}

// word matches letters with at most one other character before, which is no
// line break, letter or number.
func (p words) word(c *classes, s string, i int) int {
	lead := i // where the letters begin with a character before them
	if k, w := c.at(s, i); k&(letter|number) == 0 && s[i] != '\r' && s[i] != '\n' {
		lead = i + w
	}
	var end int
	switch {
	case p.cased:
		end = p.casedWord(c, s, i, lead)
	case p.phrases:
		if end = phrase(c, s, lead); end == lead {
			end = i
		}
	default:
		if end = c.run(s, lead, p.letters); end == lead {
			end = c.run(s, i, p.letters)
		}
	}
	if p.joined && end > i {
		end = contraction(s, end, true)
	}
	return end
}

// casedWord matches capitals and then at least one small letter; failing that,
// capitals alone. Letters beyond ASCII are both. Each is tried from lead
// first, then from i.
func (p words) casedWord(c *classes, s string, i, lead int) int {
	capitals := i
	for _, j := range [2]int{lead, i} {
		upper, both := j, -1 // ends of the capitals and of the last letter that is both
		for upper < len(s) {
			k, w := c.at(s, upper)
			if k&p.letters == 0 || 'a' <= s[upper] && s[upper] <= 'z' {
				break
			}
			upper += w
			if w > 1 {
				both = upper
			}
		}
		if end := p.small(c, s, upper); end > upper {
			return end
		}
		if both >= 0 {
			return both
		}
		if capitals == i && upper > j {
			capitals = upper
		}
	}
	return capitals
}

// small returns the end of the letters at i that are no ASCII capitals.
func (p words) small(c *classes, s string, i int) int {
	for i < len(s) {
		k, w := c.at(s, i)
		if k&p.letters == 0 || 'A' <= s[i] && s[i] <= 'Z' {
			break
		}
		i += w
	}
	return i
}

// phrase matches letters, each with its marks, that single spaces may part.
func phrase(c *classes, s string, i int) int {
	end := i
	for {
		j := end
		k, w := c.at(s, j)
		if k&letter == 0 && end > i && j < len(s) && s[j] == ' ' {
			j++
			k, w = c.at(s, j)
		}
		if k&letter == 0 {
			return end
		}
		end = c.run(s, j+w, mark)
	}
}

// cascade cuts a piece of white space without line breaks into powers of two,
// 512 at most, and leaves other pieces whole.
func cascade(c *classes, s string, i int) int {
	if i == 0 && (c.run(s, 0, space) < len(s) || strings.ContainsAny(s, "\r\n")) {
		return len(s)
	}
	end, n := i, 0
	for at := i; n < 512 && at < len(s); {
		_, w := c.at(s, at)
		at += w
		if n++; n&(n-1) == 0 {
			end = at
		}
	}
	return end
}

// deepseek matches an ASCII punctuation character with ASCII letters behind,
// then words, then punctuation and symbols, then white space. Numbers are cut
// off before. With loose, line breaks stand alone.
func deepseek(loose bool) matcher {
	return func(c *classes, s string, i int) int {
		if asciiPunct(rune(s[i])) {
			end := i + 1
			for end < len(s) && asciiLetter(rune(s[end])) {
				end++
			}
			if end > i+1 {
				return end
			}
		}
		k, w := c.at(s, i)
		if k&(letter|punct|symbol) == 0 && s[i] != '\r' && s[i] != '\n' {
			if end := c.run(s, i+w, letter|mark); end > i+w {
				return end
			}
		}
		if end := c.run(s, i, letter|mark); end > i {
			return end
		}
		j := i
		if s[i] == ' ' {
			j++
		}
		if end := c.run(s, j, punct|symbol); end > j {
			for !loose && end < len(s) && (s[end] == '\r' || s[end] == '\n') {
				end++
			}
			return end
		}
		if end := lineBreak(c, s, i); loose && end > i {
			return end
		}
		return blanks(c, s, i, !loose)
	}
}

// kimi matches runs of Han characters, then what the words family does, whose
// words here leave Han out.
func kimi(c *classes, s string, i int) int {
	if end := runes(isHan, 0)(c, s, i); end > i {
		return end
	}
	lead := i
	if k, w := c.at(s, i); k&(letter|number) == 0 && s[i] != '\r' && s[i] != '\n' {
		lead = i + w
	}
	end := lead
	for end < len(s) {
		r, w := utf8.DecodeRuneInString(s[end:])
		if c.of(r)&letter == 0 || isHan(r) {
			break
		}
		end += w
	}
	if end > lead {
		return contraction(s, end, true)
	}
	return words{plain: true, apart: letter, digits: 3, tail: "\r\n"}.match(c, s, i)
}

func isHan(r rune) bool {
	switch {
	case 0x4e00 <= r && r <= 0x9fff, 0x3400 <= r && r <= 0x4dbf, 0xf900 <= r && r <= 0xfaff,
		0x20000 <= r && r <= 0x2a6df, 0x2a700 <= r && r <= 0x2ebef, 0x2f800 <= r && r <= 0x2fa1f:
		return true
	}
	return false
}
