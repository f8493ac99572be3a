package grammar

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// GBNF reads a grammar in llama.cpp's notation. Its form is the rule root. An error is an *Error with line and column.
func GBNF(text string) (*Expr, error) {
	if len(text) > maxSchema {
		return nil, &LimitError{What: fmt.Sprintf("it has more than %d bytes", maxSchema)}
	}
	if !utf8.ValidString(text) {
		return nil, &Error{Line: 1, Column: 1, Reason: "it is not UTF-8"}
	}
	p := &parser{text: text, rules: map[string]*rule{}}
	p.space(true)
	for p.at < len(text) && p.err == nil {
		p.rule()
	}
	if p.err != nil {
		return nil, p.err
	}
	for _, u := range p.used {
		if u.rule.body == nil {
			p.at = u.at
			p.fail("the rule %s is used and not defined", u.rule.name)
			return nil, p.err
		}
	}
	root := p.rules["root"]
	if root == nil {
		return nil, &Error{Line: 1, Column: 1, Reason: "there is no rule root"}
	}
	return call(root), nil
}

type parser struct {
	text  string
	at    int
	err   *Error
	rules map[string]*rule
	used  []use // in the order of the text

	line, lineAt, counted int // how many line ends there are before counted, and where that line begins
}

// use is a place that names a rule.
type use struct {
	rule *rule
	at   int
}

// maxParens bounds the nesting of a grammar's parentheses.
const maxParens = 100

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		line, column := p.place()
		p.err = &Error{Line: line, Column: column, Reason: fmt.Sprintf(format, args...)}
	}
}

func (p *parser) place() (line, column int) {
	if p.at < p.counted {
		p.line, p.lineAt, p.counted = 0, 0, 0
	}
	for ; p.counted < p.at; p.counted++ {
		if p.text[p.counted] == '\n' {
			p.line, p.lineAt = p.line+1, p.counted+1
		}
	}
	return 1 + p.line, 1 + utf8.RuneCountInString(p.text[p.lineAt:p.at])
}

// next is the byte to come, 0 at the end.
func (p *parser) next() byte {
	if p.at < len(p.text) {
		return p.text[p.at]
	}
	return 0
}

// skip takes word if it is next.
func (p *parser) skip(word string) bool {
	if strings.HasPrefix(p.text[p.at:], word) {
		p.at += len(word)
		return true
	}
	return false
}

// space skips white space and comments.
func (p *parser) space(lines bool) {
	for {
		switch c := p.next(); {
		case c == ' ' || c == '\t' || lines && (c == '\r' || c == '\n'):
			p.at++
		case c == '#':
			for p.at < len(p.text) && p.text[p.at] != '\n' && p.text[p.at] != '\r' {
				p.at++
			}
		default:
			return
		}
	}
}

func (p *parser) name() string {
	from := p.at
	for isWord(p.next()) {
		p.at++
	}
	return p.text[from:p.at]
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-'
}

// lookup is the rule of a name, which may be defined later.
func (p *parser) lookup(name string) *rule {
	if p.rules[name] == nil {
		p.rules[name] = &rule{name: name}
	}
	return p.rules[name]
}

func (p *parser) rule() {
	line, column := p.place()
	name := p.name()
	if name == "" {
		p.fail("expected the name of a rule")
		return
	}
	p.space(false)
	if !p.skip("::=") {
		p.fail("expected ::=")
		return
	}
	p.space(true)
	body := p.alternatives(0)
	r := p.lookup(name)
	r.body, r.line, r.column = body, line, column // of several definitions the last counts, as in llama.cpp
	switch {
	case p.skip("\r\n") || p.skip("\n") || p.skip("\r"):
	case p.at < len(p.text):
		p.fail("expected the end of the line")
	}
	p.space(true)
}

func (p *parser) alternatives(parens int) *Expr {
	list := []*Expr{p.sequence(parens)}
	for p.err == nil && p.skip("|") {
		p.space(true)
		list = append(list, p.sequence(parens))
	}
	if len(list) == 1 {
		return list[0]
	}
	return Any(list...)
}

func (p *parser) sequence(parens int) *Expr {
	var list []*Expr
	for p.err == nil {
		switch c := p.next(); {
		case c == '"':
			list = append(list, p.literal())
		case c == '[':
			list = append(list, p.class())
		case c == '.':
			p.at++
			list = append(list, class(anyRune...))
		case c == '(':
			list = append(list, p.group(parens))
		case c == '*' || c == '+' || c == '?' || c == '{':
			if len(list) == 0 {
				p.fail("%c repeats nothing", c)
				break
			}
			last := &list[len(list)-1]
			*last = p.repetition(*last, parens > 0)
		case c == '<' || c == '!':
			p.fail("tokens by name or number are not supported")
		case isWord(c):
			at := p.at
			r := p.lookup(p.name())
			p.used = append(p.used, use{r, at})
			list = append(list, call(r))
		default:
			return Seq(list...)
		}
		p.space(parens > 0)
	}
	return Seq(list...)
}

func (p *parser) group(parens int) *Expr {
	if parens >= maxParens {
		p.fail("more than %d parentheses within each other", maxParens)
		return nil
	}
	p.at++
	p.space(true)
	e := p.alternatives(parens + 1)
	if !p.skip(")") {
		p.fail("expected )")
	}
	return e
}

func (p *parser) literal() *Expr {
	p.at++
	var text []rune
	for p.err == nil && p.next() != '"' {
		text = append(text, p.char())
	}
	p.skip(`"`)
	return Text(string(text))
}

func (p *parser) class() *Expr {
	p.at++
	negated := p.skip("^")
	var ranges []span
	for p.err == nil && p.next() != ']' {
		lo := p.char()
		hi := lo
		if p.next() == '-' && p.at+1 < len(p.text) && p.text[p.at+1] != ']' {
			p.at++
			hi = p.char()
		}
		if hi < lo {
			p.fail("the range ends before it begins")
		}
		ranges = append(ranges, span{lo, hi})
	}
	if len(ranges) == 0 {
		p.fail("the class is empty")
	}
	p.skip("]")
	if negated {
		ranges = without(anyRune, ranges)
	}
	return class(ranges...)
}

// char reads a character, which may be escaped.
func (p *parser) char() rune {
	if p.at >= len(p.text) {
		p.fail("unexpected end")
		return 0
	}
	r, w := utf8.DecodeRuneInString(p.text[p.at:])
	p.at += w
	if r != '\\' {
		return r
	}
	from := p.at - w
	c := p.next()
	if c == 0 {
		p.fail("unexpected end")
		return 0
	}
	p.at++
	switch c {
	case 'x':
		return p.hex(2)
	case 'u':
		return p.hex(4)
	case 'U':
		return p.hex(8)
	case 't':
		return '\t'
	case 'r':
		return '\r'
	case 'n':
		return '\n'
	case '\\', '"', '[', ']', '-':
		return rune(c)
	}
	p.at = from
	p.fail("unknown escape")
	return 0
}

func (p *parser) hex(digits int) rune {
	v := rune(0)
	for range digits {
		at := strings.IndexByte("0123456789abcdef", p.next()|0x20)
		if at < 0 || p.next() < '0' {
			p.fail("expected %d hexadecimal digits", digits)
			return 0
		}
		if v > maxRune>>4 {
			v = maxRune // and a digit more is no character
		}
		v = v<<4 | rune(at)
		p.at++
	}
	if !utf8.ValidRune(v) {
		p.fail("that is no character")
		return 0
	}
	return v
}

// maxCount bounds the numbers in braces; how often they multiply each other is bounded when the grammar is compiled.
const maxCount = 1 << 16

// repetition reads what follows e: * + ? or braces.
func (p *parser) repetition(e *Expr, lines bool) *Expr {
	switch {
	case p.skip("*"):
		return Repeat(e, 0, -1)
	case p.skip("+"):
		return Repeat(e, 1, -1)
	case p.skip("?"):
		return Repeat(e, 0, 1)
	}
	p.at++
	p.space(lines)
	least, ok := p.count()
	if !ok {
		p.fail("expected a number")
	}
	p.space(lines)
	most := least
	if p.skip(",") {
		p.space(lines)
		if most, ok = p.count(); !ok {
			most = -1
		}
		p.space(lines)
	}
	if !p.skip("}") {
		p.fail("expected }")
	}
	if most >= 0 && most < least {
		p.fail("the most is less than the least")
	}
	return Repeat(e, least, most)
}

func (p *parser) count() (n int, ok bool) {
	for ; p.next() >= '0' && p.next() <= '9'; p.at++ {
		ok = true
		if n = n*10 + int(p.next()-'0'); n > maxCount {
			p.fail("more than %d repetitions", maxCount)
			return 0, true
		}
	}
	return n, ok
}
