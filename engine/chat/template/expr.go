package template

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// code is a translated expression: source for the evaluating library, and how deep it nests. What can grow memory,
// take time or recurse is a call of one of our host functions (names that begin with two underscores, which a
// template cannot use); names, literals, attributes, boolean logic and plain tests stay as they are.
type code struct {
	src   string
	depth int
}

// exprParser translates the tokens of one tag. The grammar and its precedences are Jinja2's. The first error
// sticks and ends the parse.
type exprParser struct {
	tokens []token
	pos    int
	level  int
	names  map[string]code // loop targets that stand for parts of one item
	err    error
}

func (p *exprParser) fail(format string, args ...any) code {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
	p.pos = len(p.tokens)
	return code{}
}

func (p *exprParser) peek() token {
	if p.pos < len(p.tokens) {
		return p.tokens[p.pos]
	}
	return token{}
}

func (p *exprParser) take() token {
	t := p.peek()
	p.pos++
	return t
}

func (p *exprParser) skip(op string) bool {
	if p.peek().is(op) {
		p.pos++
		return true
	}
	return false
}

func (p *exprParser) skipWord(w string) bool {
	if p.peek().word(w) {
		p.pos++
		return true
	}
	return false
}

func (p *exprParser) expect(op string) {
	if !p.skip(op) {
		p.fail("expected %q, found %s", op, p.peek().describe())
	}
}

// name takes an identifier that the template may bind or read.
func (p *exprParser) name() string {
	t := p.take()
	switch {
	case t.kind != nameToken:
		p.fail("expected a name, found %s", t.describe())
	case strings.HasPrefix(t.val, "__"):
		p.fail("the name %q is reserved", t.val)
	case slices.Contains(reserved, t.val):
		p.fail("unexpected %q", t.val)
	}
	return t.val
}

var reserved = []string{
	"and", "or", "not", "if", "elif", "else", "in", "is", "recursive",
	"true", "True", "false", "False", "none", "None", "null",
}

// done reports an error for tokens left over.
func (p *exprParser) done() {
	if p.err == nil && p.peek().kind != endToken {
		p.fail("unexpected %s", p.peek().describe())
	}
}

// build joins translated parts; format has a %s for each of them.
func (p *exprParser) build(format string, parts ...code) code {
	depth, args := 0, make([]any, len(parts))
	for i, c := range parts {
		depth, args[i] = max(depth, c.depth), c.src
	}
	if depth >= maxDepth {
		return p.fail("expression nests deeper than %d", maxDepth)
	}
	return code{fmt.Sprintf(format, args...), depth + 1}
}

// call builds a call of a host function.
func (p *exprParser) call(fn string, args ...code) code {
	return p.build(fn+holes(len(args)), args...)
}

// holes is a call's argument list of n parts to fill in.
func holes(n int) string {
	return "(" + strings.TrimSuffix(strings.Repeat("%s, ", n), ", ") + ")"
}

// quote writes a string literal for the library.
func quote(s string) code {
	return code{"'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`).Replace(s) + "'", 0}
}

// tuple is what an output, an assignment and a loop take: expressions with commas between make a list.
func (p *exprParser) tuple(item func() code) code {
	first := item()
	if !p.peek().is(",") {
		return first
	}
	items := []code{first}
	for p.skip(",") && p.peek().kind != endToken && !p.peek().is(")") {
		items = append(items, item())
	}
	return p.call("__list", items...)
}

// condition: a if b else c.
func (p *exprParser) condition() code {
	if p.level++; p.level > maxDepth {
		return p.fail("expression nests deeper than %d", maxDepth)
	}
	defer func() { p.level-- }()
	c := p.or()
	for p.skipWord("if") {
		test := p.or()
		if p.skipWord("else") {
			c = p.build("(%s if %s else %s)", c, test, p.condition())
		} else {
			c = p.build("(%s if %s)", c, test)
		}
	}
	return c
}

func (p *exprParser) or() code {
	c := p.and()
	for p.skipWord("or") {
		c = p.build("(%s or %s)", c, p.and())
	}
	return c
}

func (p *exprParser) and() code {
	c := p.not()
	for p.skipWord("and") {
		c = p.build("(%s and %s)", c, p.not())
	}
	return c
}

func (p *exprParser) not() code {
	n := 0
	for p.skipWord("not") {
		n++
	}
	c := p.compare()
	if n > 0 {
		c = p.build("(not %s)", c)
	}
	if n > 0 && n%2 == 0 {
		c = p.build("(not %s)", c)
	}
	return c
}

// compare: a chain such as a < b <= c holds when each pair does.
func (p *exprParser) compare() code {
	args := []code{p.sum()}
	for {
		op := p.peek()
		switch {
		case op.kind == opToken && slices.Contains([]string{"==", "!=", "<", ">", "<=", ">="}, op.val), op.word("in"):
			p.pos++
		case op.word("not") && p.pos+1 < len(p.tokens) && p.tokens[p.pos+1].word("in"):
			p.pos += 2
			op.val = "not in"
		default:
			if len(args) == 1 {
				return args[0]
			}
			return p.call("__compare", args...)
		}
		args = append(args, quote(op.val), p.sum())
	}
}

// chain folds operands of one precedence into one call, operators between them as strings.
func (p *exprParser) chain(fn string, operand func() code, ops ...string) code {
	args := []code{operand()}
	for p.peek().kind == opToken && slices.Contains(ops, p.peek().val) {
		op := p.take().val
		args = append(args, quote(op), operand())
	}
	if len(args) == 1 {
		return args[0]
	}
	return p.call(fn, args...)
}

func (p *exprParser) sum() code     { return p.chain("__math", p.concat, "+", "-") }
func (p *exprParser) concat() code  { return p.chain("__math", p.product, "~") }
func (p *exprParser) product() code { return p.chain("__math", p.power, "*", "/", "//", "%") }
func (p *exprParser) power() code {
	return p.chain("__math", func() code { return p.unary(true) }, "**")
}

func (p *exprParser) unary(filters bool) code {
	if p.level++; p.level > maxDepth {
		return p.fail("expression nests deeper than %d", maxDepth)
	}
	defer func() { p.level-- }()
	var c code
	switch {
	case p.skip("-"):
		c = p.call("__negative", p.unary(false))
	case p.skip("+"):
		c = p.unary(false)
	default:
		c = p.primary()
	}
	c = p.postfix(c)
	if filters {
		c = p.filters(c)
	}
	return c
}

func (p *exprParser) primary() code {
	t := p.take()
	switch {
	case t.kind == stringToken:
		s := t.val
		for p.peek().kind == stringToken {
			s += p.take().val
		}
		return quote(s)
	case t.kind == intToken:
		if n, err := strconv.ParseInt(t.val, 10, 64); err == nil {
			return code{strconv.FormatInt(n, 10), 0}
		}
		return p.fail("the number %s is too large", t.val)
	case t.kind == floatToken:
		if f, err := strconv.ParseFloat(t.val, 64); err == nil {
			return p.call("__float", quote(strconv.FormatFloat(f, 'g', -1, 64)))
		}
		return p.fail("the number %s is too large", t.val)
	case t.word("true"), t.word("True"):
		return code{"true", 0}
	case t.word("false"), t.word("False"):
		return code{"false", 0}
	case t.word("none"), t.word("None"):
		return code{"none", 0}
	case t.is("("):
		return p.parenthesis()
	case t.is("["):
		return p.call("__list", p.list("]")...)
	case t.is("{"):
		return p.dict()
	case t.kind == nameToken:
		p.pos--
		name := p.name()
		if c, ok := p.names[name]; ok {
			return c
		}
		return code{name, 0}
	}
	return p.fail("unexpected %s", t.describe())
}

func (p *exprParser) parenthesis() code {
	if p.skip(")") {
		return p.call("__list")
	}
	c := p.tuple(p.condition)
	p.expect(")")
	return c
}

func (p *exprParser) list(end string) []code {
	var items []code
	for !p.skip(end) && p.err == nil {
		if len(items) > 0 {
			p.expect(",")
			if p.skip(end) {
				break
			}
		}
		items = append(items, p.condition())
	}
	return items
}

func (p *exprParser) dict() code {
	var items []code
	for !p.skip("}") && p.err == nil {
		if len(items) > 0 {
			p.expect(",")
			if p.skip("}") {
				break
			}
		}
		items = append(items, p.condition())
		p.expect(":")
		items = append(items, p.condition())
	}
	return p.call("__dict", items...)
}
