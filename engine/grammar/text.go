package grammar

import (
	"fmt"
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// formats are patterns whose texts are of a format; not all texts of it are among them.
var formats = map[string]string{
	"date":      `^(` + day + `)$`,
	"time":      `^` + clock + `$`,
	"date-time": `^(` + day + `)T` + clock + `$`,
	"duration":  `^P(([1-9][0-9]{0,3}D)(T[1-9][0-9]{0,3}[HMS])?|T[1-9][0-9]{0,3}[HMS]|[1-9][0-9]{0,3}[YMW])$`,
	"uuid":      `^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`,
	"ipv4":      `^(` + octet + `\.){3}` + octet + `$`,
	"ipv6":      `^([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}$`,
	"hostname":  `^` + host + `$`,
	"email":     `^[A-Za-z0-9_+-]{1,30}(\.[A-Za-z0-9_+-]{1,30})?@` + host + `$`,
	"uri":       `^https?://` + host + `(/[A-Za-z0-9._~/-]{0,200})?(\?[A-Za-z0-9._~=&-]{0,200})?(#[A-Za-z0-9._~-]{0,100})?$`,
}

const (
	day = `[1-9][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))` +
		`|(([2468][048]|[13579][26])00|[1-9][0-9](0[48]|[2468][048]|[13579][26]))-02-29`
	clock = `([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])`
	octet = `([0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])`
	host  = `[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?){0,3}\.[a-z]{2,18}`
)

// text is a string of a length, a pattern or a format.
func (r *reading) text(v *value, path *place) (*Expr, error) {
	least, most := count(v, "minLength", 0), count(v, "maxLength", -1)
	if most >= 0 && least > most {
		return nil, refuse(below(path, "minLength"), "it is more than maxLength")
	}
	pattern, at := "", (*place)(nil)
	if f := v.get("format"); f != nil && f.text != "password" && f.text != "binary" {
		pattern, at = formats[f.text], below(path, "format")
		if pattern == "" {
			return nil, refuse(at, "the format %q is not supported", f.text)
		}
	}
	if p := v.get("pattern"); p != nil {
		if pattern != "" {
			return nil, refuse(below(path, "pattern"), "a pattern beside a format is not supported")
		}
		pattern, at = p.text, below(path, "pattern")
	}
	if at != nil {
		return r.pattern(pattern, at, least, most)
	}
	if least == 0 && most < 0 {
		return anyString, nil
	}
	if most > maxCopies {
		most = max(least, maxCopies)
	}
	bounds := [2]int{least, most}
	if r.lengths[bounds] == nil {
		r.lengths[bounds] = named("text", Seq(Text(`"`), Repeat(letter, least, most), Text(`"`)))
	}
	return r.lengths[bounds], nil
}

// pattern is the form of a pattern, which is read once.
func (r *reading) pattern(pattern string, path *place, least, most int) (*Expr, error) {
	if err := r.spend(len(pattern), path); err != nil {
		return nil, err
	}
	key := fmt.Sprintf("%d %d %s", least, most, pattern)
	if e := r.patterns[key]; e != nil {
		return e, nil
	}
	e, err := patternForm(pattern, path, least, most)
	r.patterns[key] = e
	return e, err
}

// patternForm is a JSON string of the texts of a pattern, all of which must have a length within bounds.
func patternForm(pattern string, path *place, least, most int) (*Expr, error) {
	p := &patternReader{path: path}
	if strings.Contains(pattern, `\s`) || strings.Contains(pattern, `\S`) {
		p.spaces = true
	}
	source, err := p.translate(pattern)
	if err != nil {
		return nil, err
	}
	tree, err := syntax.Parse(source, syntax.Perl)
	if err != nil {
		return nil, refuse(path, "the pattern is not supported: %v", err)
	}
	body, ok := unanchor(tree)
	if !ok {
		return nil, refuse(path, "only patterns that begin with ^ and end with $ are supported, without a choice outside of parentheses")
	}
	var forms []*Expr
	low, high := 0, 0
	for _, part := range body {
		e, err := p.form(part)
		if err != nil {
			return nil, err
		}
		forms = append(forms, e)
		a, b := lengths(part)
		low, high = min(low+a, 1<<30), joinLengths(high, b)
	}
	if low < least || most >= 0 && (high < 0 || high > most) {
		return nil, refuse(path, "the lengths of its texts must be within minLength and maxLength by themselves")
	}
	return named("pattern", Seq(Text(`"`), Seq(forms...), Text(`"`))), nil
}

// patternReader turns patterns of JavaScript, as JSON Schema has them, into forms. Where Go's mean something else the form
// is narrower, or the pattern is refused.
type patternReader struct {
	path   *place
	spaces bool // it speaks of white space, of which Go knows less
}

// translate checks the escapes and groups of a pattern and writes those that Go spells otherwise its way.
func (p *patternReader) translate(pattern string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		rest := pattern[i:]
		switch {
		case rest[0] == '\\' && len(rest) > 1 && rest[1] == 'u' && len(rest) >= 6 && isHex(rest[2:6]):
			if c, _ := strconv.ParseUint(rest[2:6], 16, 32); utf16.IsSurrogate(rune(c)) {
				return "", refuse(p.path, "%q is half a character and not supported in a pattern", rest[:6])
			}
			fmt.Fprintf(&b, `\x{%s}`, rest[2:6])
			i += 5
		case rest[0] == '\\' && len(rest) > 1 && rest[1] == 'x' && len(rest) >= 4 && isHex(rest[2:4]):
			b.WriteString(rest[:4])
			i += 3
		case rest[0] == '\\' && len(rest) > 1 && strings.IndexByte(`dDwWsSnrtfv^$\.*+?()[]{}|/-"'`, rest[1]) >= 0:
			if strings.IndexByte(`/"'`, rest[1]) >= 0 {
				b.WriteByte(rest[1])
			} else {
				b.WriteString(rest[:2])
			}
			i++
		case rest[0] == '\\':
			return "", refuse(p.path, "the escape %q is not supported", rest[:min(2, len(rest))])
		case strings.HasPrefix(rest, "(?") && !strings.HasPrefix(rest, "(?:"), strings.HasPrefix(rest, "[:"), strings.HasPrefix(rest, "[]"), strings.HasPrefix(rest, "[^]"):
			return "", refuse(p.path, "%q is not supported in a pattern", rest[:min(3, len(rest))])
		default:
			b.WriteByte(rest[0])
		}
	}
	return b.String(), nil
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdefABCDEF") == "" }

// unanchor takes the anchors off.
func unanchor(re *syntax.Regexp) ([]*syntax.Regexp, bool) {
	if re.Op != syntax.OpConcat || len(re.Sub) < 2 {
		return nil, false
	}
	last := len(re.Sub) - 1
	return re.Sub[1:last], re.Sub[0].Op == syntax.OpBeginText && re.Sub[last].Op == syntax.OpEndText
}

// moreSpaces are the white space of JavaScript that Go does not count; lineEnds what its dot does not stand for.
var (
	moreSpaces = []span{{0xB, 0xB}, {0xA0, 0xA0}, {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}}
	lineEnds   = []span{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}
)

func (p *patternReader) form(re *syntax.Regexp) (*Expr, error) {
	switch re.Op {
	case syntax.OpEmptyMatch:
		return Text(""), nil
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase != 0 {
			return nil, refuse(p.path, "patterns that ignore case are not supported")
		}
		return Text(strings.TrimSuffix(strings.TrimPrefix(quote(string(re.Rune)), `"`), `"`)), nil
	case syntax.OpCharClass:
		var ranges []span
		for i := 0; i < len(re.Rune); i += 2 {
			ranges = append(ranges, span{re.Rune[i], re.Rune[i+1]})
		}
		if p.spaces {
			ranges = without(ranges, moreSpaces)
		}
		return jsonClass(ranges), nil
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return jsonClass(without(anyRune, lineEnds)), nil
	case syntax.OpCapture:
		return p.form(re.Sub[0])
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		e, err := p.form(re.Sub[0])
		if err != nil {
			return nil, err
		}
		least, most := repeats(re)
		return Repeat(named("repeated", e), least, most), nil
	case syntax.OpConcat, syntax.OpAlternate:
		var forms []*Expr
		for _, sub := range re.Sub {
			e, err := p.form(sub)
			if err != nil {
				return nil, err
			}
			forms = append(forms, e)
		}
		if re.Op == syntax.OpConcat {
			return Seq(forms...), nil
		}
		return Any(forms...), nil
	}
	return nil, refuse(p.path, "%q is not supported in a pattern", re.String())
}

// repeats is how often a repetition lets its part come; -1 is no limit.
func repeats(re *syntax.Regexp) (least, most int) {
	switch re.Op {
	case syntax.OpStar:
		return 0, -1
	case syntax.OpPlus:
		return 1, -1
	case syntax.OpQuest:
		return 0, 1
	}
	return re.Min, re.Max
}

// jsonClass is one character of some ranges as JSON writes it.
func jsonClass(ranges []span) *Expr {
	var escaped []string
	for _, r := range normal(ranges) {
		for c := r.lo; c <= min(r.hi, '\\'); c++ {
			if c < ' ' || c == '"' || c == '\\' {
				escaped = append(escaped, strings.Trim(quote(string(c)), `"`))
			}
			if c == '"' {
				escaped[len(escaped)-1] = `\"`
			}
		}
	}
	plain := class(without(without(ranges, []span{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}), nil)...)
	if len(escaped) == 0 {
		return plain
	}
	return Any(plain, oneOf(escaped...))
}

// lengths is how many characters a part of a pattern has at least and at most; -1 is no limit.
func lengths(re *syntax.Regexp) (least, most int) {
	switch re.Op {
	case syntax.OpLiteral:
		n := utf8.RuneCountInString(string(re.Rune))
		return n, n
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return 1, 1
	case syntax.OpCapture:
		return lengths(re.Sub[0])
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		a, b := lengths(re.Sub[0])
		low, high := repeats(re)
		if high >= 0 && b >= 0 {
			return min(a*low, 1<<30), min(b*high, 1<<30)
		}
		if b == 0 {
			return 0, 0
		}
		return min(a*low, 1<<30), -1
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			a, b := lengths(sub)
			least, most = min(least+a, 1<<30), joinLengths(most, b)
		}
		return least, most
	case syntax.OpAlternate:
		least, most = lengths(re.Sub[0])
		for _, sub := range re.Sub[1:] {
			a, b := lengths(sub)
			least = min(least, a)
			if most >= 0 && b >= 0 {
				most = max(most, b)
			} else {
				most = -1
			}
		}
		return least, most
	}
	return 0, 0
}

func joinLengths(a, b int) int {
	if a < 0 || b < 0 {
		return -1
	}
	return min(a+b, 1<<30)
}
