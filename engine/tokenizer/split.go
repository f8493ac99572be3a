package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// matcher returns the end of the piece that starts at s[i:], or i when none
// starts there; i < len(s). It sees nothing before i.
type matcher func(c *classes, s string, i int) int

// splitter cuts text into the pieces within which symbols are merged. Each
// stage cuts the pieces of the one before into its matches and what lies
// between them.
type splitter struct {
	classes *classes
	stages  []matcher
}

func (p *splitter) split(s string, emit func(string)) { p.stage(0, s, emit) }

func (p *splitter) stage(n int, s string, emit func(string)) {
	if n == len(p.stages) {
		emit(s)
		return
	}
	gap, match := 0, p.stages[n]
	for i := 0; i < len(s); {
		end := match(p.classes, s, i)
		if end <= i {
			_, w := p.classes.at(s, i)
			i += w
			continue
		}
		if i > gap {
			p.stage(n+1, s[gap:i], emit)
		}
		p.stage(n+1, s[i:end], emit)
		i, gap = end, end
	}
	if gap < len(s) {
		p.stage(n+1, s[gap:], emit)
	}
}

// one matches a character of set.
func one(set class) matcher {
	return func(c *classes, s string, i int) int {
		if k, w := c.at(s, i); k&set != 0 {
			return i + w
		}
		return i
	}
}

// many matches a run of characters of set.
func many(set class) matcher {
	return func(c *classes, s string, i int) int { return c.run(s, i, set) }
}

// spaced matches a run of characters of set with at most one white space
// before.
func spaced(set class) matcher {
	return func(c *classes, s string, i int) int {
		if k, w := c.at(s, i); k&space != 0 {
			if end := c.run(s, i+w, set); end > i+w {
				return end
			}
		}
		return c.run(s, i, set)
	}
}

// numbers matches at most n numbers.
func numbers(n int) matcher {
	return func(c *classes, s string, i int) int { return numberRun(c, s, i, n) }
}

func numberRun(c *classes, s string, i, most int) int {
	for ; most > 0; most-- {
		k, w := c.at(s, i)
		if k&number == 0 {
			break
		}
		i += w
	}
	return i
}

// runes matches a run of characters that in accepts. White space is never
// among them, but with lead one may come before.
func runes(in func(r rune) bool, lead class) matcher {
	run := func(c *classes, s string, i int) int {
		for i < len(s) {
			r, w := utf8.DecodeRuneInString(s[i:])
			if !in(r) || c.of(r)&space != 0 {
				break
			}
			i += w
		}
		return i
	}
	return func(c *classes, s string, i int) int {
		if k, w := c.at(s, i); k&lead != 0 {
			if end := run(c, s, i+w); end > i+w {
				return end
			}
		}
		return run(c, s, i)
	}
}

// either matches what the first of ms that matches does.
func either(ms ...matcher) matcher {
	return func(c *classes, s string, i int) int {
		for _, m := range ms {
			if end := m(c, s, i); end > i {
				return end
			}
		}
		return i
	}
}

// lineBreak matches one carriage return or line feed.
func lineBreak(_ *classes, s string, i int) int {
	if s[i] == '\r' || s[i] == '\n' {
		return i + 1
	}
	return i
}

// lines matches a run of line feeds, or of anything else.
func lines(_ *classes, s string, i int) int {
	end, feed := i, s[i] == '\n'
	for end < len(s) && (s[end] == '\n') == feed {
		end++
	}
	return end
}

// tailSpace matches white space that ends the text, and all that is before.
func tailSpace(c *classes, s string, i int) int {
	start := len(s)
	for start > i {
		r, w := utf8.DecodeLastRuneInString(s[:start])
		if c.of(r)&space == 0 {
			break
		}
		start -= w
	}
	if start > i {
		return start
	}
	return len(s)
}

// digits3 matches three ASCII digits.
func digits3(_ *classes, s string, i int) int {
	if asciiDigits(s, i, 3) == 3 {
		return i + 3
	}
	return i
}

// thousands cuts before each three that, counted from the end, is left of a run
// of ASCII digits. It matches up to the next such place.
func thousands(_ *classes, s string, i int) int {
	j := i
	if i > 0 && asciiDigits(s, i-1, 2) == 2 { // at such a place, within a run
		if j += 3; asciiDigits(s, j, 1) == 1 {
			return j
		}
	}
	for j < len(s) {
		n := asciiDigits(s, j, len(s))
		first := j + n%3
		switch {
		case n >= 3 && first > i:
			return first
		case n > 3:
			return i + 3
		}
		j += max(n, 1)
	}
	return len(s)
}

// asciiDigits counts the ASCII digits at s[i:], at most limit.
func asciiDigits(s string, i, limit int) int {
	n := 0
	for n < limit && i+n < len(s) && '0' <= s[i+n] && s[i+n] <= '9' {
		n++
	}
	return n
}

// grouped cuts runs of numbers into threes from their end. It matches each
// three, and what is before the first together with the odd one or two.
func grouped(c *classes, s string, i int) int {
	if r, _ := utf8.DecodeLastRuneInString(s[:i]); i > 0 && c.of(r)&number != 0 {
		if end := numberRun(c, s, i, 3); end > i {
			return end
		}
	}
	for {
		k, w := c.at(s, i)
		if k == 0 {
			return i
		}
		if k&number == 0 {
			i += w
			continue
		}
		n := utf8.RuneCountInString(s[i:c.run(s, i, number)])
		return numberRun(c, s, i, (n-1)%3+1)
	}
}

// asciiPunct reports whether r is one of the 32 ASCII punctuation characters.
func asciiPunct(r rune) bool {
	return '!' <= r && r <= '/' || ':' <= r && r <= '@' || '[' <= r && r <= '`' || '{' <= r && r <= '~'
}

func asciiLetter(r rune) bool {
	return 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z'
}

// casedLetter reports whether r has case as the DeepSeek LLM tokenizer lists
// such letters: those of Unicode 11 without Georgian and mathematical ones.
func casedLetter(r rune) bool {
	switch {
	case r < utf8.RuneSelf:
		return asciiLetter(r)
	case 0x560 <= r && r <= 0x588, 0x10c7 <= r && r <= 0x10ff, 0x1c80 <= r && r <= 0x1c88,
		0x2d00 <= r && r <= 0x2d2d, 0xa790 <= r && r <= 0xa7ff, 0xab30 <= r && r <= 0xab68,
		0x10570 <= r && r <= 0x105bc, 0x16e40 <= r && r <= 0x16e7f, 0x1d400 <= r && r <= 0x1df2a:
		return false
	}
	return unicode.In(r, unicode.Lu, unicode.Ll, unicode.Lt)
}

// within returns a test for membership in ranges, given as pairs of first and
// last character.
func within(pairs ...rune) func(r rune) bool {
	return func(r rune) bool {
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i] <= r && r <= pairs[i+1] {
				return true
			}
		}
		return false
	}
}
