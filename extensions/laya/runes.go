package laya

// latin folds U+00C0 to U+017F: letters without accents, in lower case.
const latin = "aaaaaaaceeeeiiiidnooooo ouuuuytsaaaaaaaceeeeiiiidnooooo ouuuuytyaaaaaaccccccccddddeeeeeeeeeegggg" +
	"gggghhhhiiiiiiiiiiiijjkkkllllllllllnnnnnnnnnoooooooorrrrrrssssssssttttttuuuuuuuuuuuuwwyyyzzzzzzs"

// fold brings a rune into the form that the table knows: lower case, no accent, digits as 0, wide forms as narrow ones. 0 leaves it
// out: apostrophes inside of words and marks that join.
func fold(r rune) rune {
	switch {
	case r < 0x80:
		switch {
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r >= '0' && r <= '9':
			return '0'
		case r == '\'':
			return 0
		case r < ' ' && r != '\n':
			return ' '
		}
		return r
	case r >= 0xc0 && r < 0x180:
		return rune(latin[r-0xc0])
	case r >= 0x410 && r <= 0x42f:
		return r + 0x20
	case r == 0x401 || r == 0x451: // yo
		return 0x435
	case r >= 0x400 && r <= 0x40f:
		return r + 0x50
	case r >= 0x391 && r <= 0x3a9:
		return r + 0x20
	case r >= 0x966 && r <= 0x96f: // digits of Devanagari
		return '0'
	case r >= 0xff01 && r <= 0xff5e: // wide ASCII
		return fold(r - 0xfee0)
	case r >= 0x300 && r < 0x370, r >= 0x200b && r <= 0x200f, r == 0xfe0f, r == 0xfeff, r == 0x2019, r == 0x2018, r == 0xb4:
		return 0
	case r == 0x3000 || r == 0xa0:
		return ' '
	case r == 0x201c || r == 0x201d || r == 0xab || r == 0xbb || r == 0x201e:
		return '"'
	}
	return r
}

// kindOf says what a folded rune is.
func kindOf(r rune) kind {
	if r < 0x80 {
		switch {
		case r >= 'a' && r <= 'z', r == '0', r == '_':
			return letter
		case r == ' ' || r == '\n':
			return space
		case r == '.' || r == ',' || r == '?' || r == '!' || r == ':' || r == '"':
			return stop
		}
		return mark
	}
	switch {
	case r >= 0x3400 && r < 0xa000, r >= 0x3041 && r < 0x3100, r >= 0xac00 && r < 0xd7b0, r >= 0xe00 && r < 0xf00, r >= 0x20000 && r < 0x32000,
		r == 0x3005:
		return sign
	case r == 0x964, r == 0x2026, r == 0xa1, r == 0xbf, r >= 0x3001 && r < 0x3020, r == 0x2013, r == 0x2014, r == 0x60c, r == 0x61f:
		return stop
	case r >= 0x2000 && r < 0x2c00, r < 0xc0, r >= 0xfe00 && r < 0xff00, r >= 0x1f000:
		return mark
	}
	return letter
}
