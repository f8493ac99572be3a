package template

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The kinds of piece that a template's source falls into. Comments leave nothing, a raw block is text.
type pieceKind uint8

const (
	textPiece   pieceKind = iota // literal text, whitespace control already applied
	outputPiece                  // {{ tokens }}
	stmtPiece                    // {% tokens %}
)

type piece struct {
	kind   pieceKind
	text   string
	tokens []token
	line   int // of the opening delimiter, from 1
}

type tokenKind uint8

const (
	endToken tokenKind = iota
	nameToken
	stringToken
	intToken
	floatToken
	opToken
)

// A token of an expression. val is decoded for strings and has no underscores for numbers.
type token struct {
	kind tokenKind
	val  string
}

func (t token) is(op string) bool  { return t.kind == opToken && t.val == op }
func (t token) word(w string) bool { return t.kind == nameToken && t.val == w }
func (t token) describe() string {
	if t.kind == endToken {
		return "end of tag"
	}
	return strconv.Quote(t.val)
}

// lexer cuts a template into pieces with the rules of Jinja2 set up as model authors have it: trim_blocks,
// lstrip_blocks, no trailing newline kept.
type lexer struct {
	src       string
	pos       int
	lineStart bool // the text before pos ends a line (or nothing precedes it)
	pieces    []piece
}

// lex cuts src into pieces; errors are *SyntaxError.
func lex(src string) ([]piece, error) {
	src = strings.ReplaceAll(src, "\r\n", "\n")
	src = strings.ReplaceAll(src, "\r", "\n")
	src = strings.TrimSuffix(src, "\n")
	l := &lexer{src: src, lineStart: true}
	for l.pos < len(src) {
		if err := l.next(); err != nil {
			return nil, err
		}
		if len(l.pieces) > maxPieces {
			return nil, &SyntaxError{Line: l.line(l.pos), Reason: fmt.Sprintf("more than %d tags", maxPieces)}
		}
	}
	return l.pieces, nil
}

func (l *lexer) line(pos int) int { return 1 + strings.Count(l.src[:pos], "\n") }

func (l *lexer) fail(pos int, format string, args ...any) error {
	return &SyntaxError{Line: l.line(pos), Reason: fmt.Sprintf(format, args...)}
}

// next takes the text up to the next tag, and the tag.
func (l *lexer) next() error {
	open := l.findOpen()
	if open < 0 {
		l.emitText(l.src[l.pos:])
		l.pos = len(l.src)
		return nil
	}
	text, kind := l.src[l.pos:open], l.src[open+1]
	at := open + 2
	sign := byte(0)
	if at < len(l.src) && (l.src[at] == '-' || l.src[at] == '+') {
		sign = l.src[at]
		at++
	}
	l.emitText(stripBefore(text, sign, kind == '{', l.lineStart))
	l.pos = at
	switch kind {
	case '#':
		return l.comment(open)
	case '%':
		if rest, ok := rawOpen(l.src[at:]); ok {
			l.pos = len(l.src) - len(rest)
			return l.raw(open)
		}
		return l.tag(open, stmtPiece, "%}")
	}
	return l.tag(open, outputPiece, "}}")
}

func (l *lexer) findOpen() int {
	for i := l.pos; i+1 < len(l.src); i++ {
		if l.src[i] == '{' && (l.src[i+1] == '{' || l.src[i+1] == '%' || l.src[i+1] == '#') {
			return i
		}
	}
	return -1
}

func (l *lexer) emitText(text string) {
	if text != "" {
		l.pieces = append(l.pieces, piece{kind: textPiece, text: text})
	}
}

// stripBefore applies the whitespace control of a tag to the text right before it.
func stripBefore(text string, sign byte, output, lineStart bool) string {
	switch {
	case sign == '-':
		return strings.TrimRight(text, whitespace)
	case sign == '+' || output:
		return text
	}
	tail := strings.LastIndexByte(text, '\n') + 1
	if (tail > 0 || lineStart) && strings.Trim(text[tail:], whitespace) == "" {
		return text[:tail]
	}
	return text
}

const whitespace = " \t\n\r\f\v"

// closed moves past a closing delimiter of n bytes at the current position and applies its whitespace control:
// '-' eats all whitespace, '+' none, otherwise a block or comment eats one newline.
func (l *lexer) closed(n int, sign byte, block bool) {
	end := l.pos + n
	switch {
	case sign == '-':
		rest := strings.TrimLeft(l.src[end:], whitespace)
		end = len(l.src) - len(rest)
	case block && sign != '+' && strings.HasPrefix(l.src[end:], "\n"):
		end++
	}
	l.lineStart = l.src[end-1] == '\n'
	l.pos = end
}

func (l *lexer) comment(open int) error {
	n := strings.Index(l.src[l.pos:], "#}")
	if n < 0 {
		return l.fail(open, "comment is not closed")
	}
	sign := byte(0)
	if n > 0 {
		sign = l.src[l.pos+n-1]
	}
	l.pos += n
	l.closed(2, sign, true)
	return nil
}

// rawOpen recognises the rest of an opening raw tag and returns the source after it.
func rawOpen(s string) (rest string, ok bool) {
	s, ok = strings.CutPrefix(strings.TrimLeft(s, whitespace), "raw")
	if !ok {
		return "", false
	}
	s = strings.TrimLeft(s, whitespace)
	if r, ok := strings.CutPrefix(s, "-%}"); ok {
		return strings.TrimLeft(r, whitespace), true
	}
	return strings.CutPrefix(s, "%}")
}

// raw takes everything up to the endraw tag as text.
func (l *lexer) raw(open int) error {
	start := l.pos
	for i := start; ; {
		n := strings.Index(l.src[i:], "{%")
		if n < 0 {
			return l.fail(open, "raw block is not closed")
		}
		i += n
		rest := l.src[i+2:]
		sign := byte(0)
		if rest != "" && (rest[0] == '-' || rest[0] == '+') {
			sign, rest = rest[0], rest[1:]
		}
		word, ok := strings.CutPrefix(strings.TrimLeft(rest, whitespace), "endraw")
		if !ok {
			i += 2
			continue
		}
		l.emitText(stripBefore(l.src[start:i], sign, false, false))
		word = strings.TrimLeft(word, whitespace)
		l.pos = len(l.src) - len(word)
		switch {
		case strings.HasPrefix(word, "%}"):
			l.closed(2, 0, true)
		case strings.HasPrefix(word, "-%}") || strings.HasPrefix(word, "+%}"):
			l.closed(3, word[0], true)
		default:
			return l.fail(i, "endraw tag is not closed")
		}
		return nil
	}
}

// tag reads the tokens of one tag up to its closing delimiter, which counts only outside all brackets.
func (l *lexer) tag(open int, kind pieceKind, end string) error {
	p := piece{kind: kind, line: l.line(open)}
	var brackets []byte
	for {
		rest := strings.TrimLeft(l.src[l.pos:], whitespace)
		l.pos = len(l.src) - len(rest)
		if rest == "" {
			return l.fail(open, "tag is not closed")
		}
		if len(brackets) == 0 {
			if strings.HasPrefix(rest, end) {
				l.closed(2, 0, kind == stmtPiece)
				break
			}
			if (rest[0] == '-' || rest[0] == '+' && kind == stmtPiece) && strings.HasPrefix(rest[1:], end) {
				l.closed(3, rest[0], kind == stmtPiece)
				break
			}
		}
		tok, n, err := l.token(rest)
		if err != nil {
			return err
		}
		if brackets, err = l.balance(brackets, tok); err != nil {
			return err
		}
		l.pos += n
		p.tokens = append(p.tokens, tok)
		if len(p.tokens) > maxTokens {
			return l.fail(open, "tag has more than %d tokens", maxTokens)
		}
	}
	l.pieces = append(l.pieces, p)
	return nil
}

var closers = map[string]byte{"(": ')', "[": ']', "{": '}'}

func (l *lexer) balance(open []byte, t token) ([]byte, error) {
	if t.kind != opToken {
		return open, nil
	}
	switch t.val {
	case "(", "[", "{":
		if len(open) >= maxDepth {
			return nil, l.fail(l.pos, "brackets nest deeper than %d", maxDepth)
		}
		return append(open, closers[t.val]), nil
	case ")", "]", "}":
		if len(open) == 0 || open[len(open)-1] != t.val[0] {
			return nil, l.fail(l.pos, "unexpected %q", t.val)
		}
		return open[:len(open)-1], nil
	}
	return open, nil
}

// token reads the first token of s, which starts with no whitespace, and says how many bytes it takes.
func (l *lexer) token(s string) (token, int, error) {
	c := s[0]
	switch {
	case c == '\'' || c == '"':
		return l.stringToken(s)
	case c >= '0' && c <= '9':
		return numberToken(s)
	case isWord(c):
		n := 1
		for n < len(s) && (isWord(s[n]) || s[n] >= '0' && s[n] <= '9') {
			n++
		}
		return token{nameToken, s[:n]}, n, nil
	}
	if len(s) > 1 {
		switch s[:2] {
		case "**", "//", "==", "!=", "<=", ">=":
			return token{opToken, s[:2]}, 2, nil
		}
	}
	if strings.IndexByte("+-*/%~()[]{}.,:|=<>", c) >= 0 {
		return token{opToken, s[:1]}, 1, nil
	}
	r, _ := utf8.DecodeRuneInString(s)
	return token{}, 0, l.fail(l.pos, "unexpected character %q", r)
}

func isWord(c byte) bool { return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// numberToken reads digits with an optional fraction and exponent; underscores between digits are dropped.
func numberToken(s string) (token, int, error) {
	digits := func(n int) int {
		for n < len(s) && (s[n] >= '0' && s[n] <= '9' || s[n] == '_') {
			n++
		}
		return n
	}
	isDigit := func(n int) bool { return n < len(s) && s[n] >= '0' && s[n] <= '9' }
	n, kind := digits(0), intToken
	if n < len(s) && s[n] == '.' && isDigit(n+1) {
		n, kind = digits(n+1), floatToken
	}
	if n < len(s) && (s[n] == 'e' || s[n] == 'E') {
		m := n + 1
		if m < len(s) && (s[m] == '+' || s[m] == '-') {
			m++
		}
		if isDigit(m) {
			n, kind = digits(m), floatToken
		}
	}
	return token{kind, strings.ReplaceAll(s[:n], "_", "")}, n, nil
}

// stringToken reads a quoted string with Python's escapes.
func (l *lexer) stringToken(s string) (token, int, error) {
	var b strings.Builder
	for i := 1; i < len(s); {
		switch s[i] {
		case s[0]:
			return token{stringToken, b.String()}, i + 1, nil
		case '\\':
			i += unescape(&b, s[i:])
		default:
			b.WriteByte(s[i])
			i++
		}
	}
	return token{}, 0, l.fail(l.pos, "string is not closed")
}

var escapes = map[byte]string{
	'n': "\n", 't': "\t", 'r': "\r", 'b': "\b", 'f': "\f", 'v': "\v", 'a': "\a",
	'\\': "\\", '\'': "'", '"': "\"", '\n': "",
}

// unescape writes what the escape at the start of s stands for and returns its length. An unknown escape stands for itself.
func unescape(b *strings.Builder, s string) int {
	if len(s) < 2 {
		b.WriteByte('\\')
		return 1
	}
	if text, ok := escapes[s[1]]; ok {
		b.WriteString(text)
		return 2
	}
	if n, ok := map[byte]int{'x': 4, 'u': 6, 'U': 10}[s[1]]; ok && len(s) >= n {
		if r, err := strconv.ParseUint(s[2:n], 16, 32); err == nil {
			b.WriteRune(rune(r))
			return n
		}
	}
	n := 1 // octal: up to three digits
	for n < len(s) && n < 4 && s[n] >= '0' && s[n] <= '7' {
		n++
	}
	if n > 1 {
		r, _ := strconv.ParseUint(s[1:n], 8, 32)
		b.WriteRune(rune(r))
		return n
	}
	b.WriteByte('\\')
	return 1
}
