package template

import (
	"slices"
	"strings"
)

// postfix: attributes, subscripts and calls.
func (p *exprParser) postfix(c code) code {
	for p.err == nil {
		switch {
		case p.skip("."):
			c = p.attribute(c)
		case p.skip("["):
			c = p.subscript(c)
		case p.skip("("):
			c = p.invoke(c)
		default:
			return c
		}
	}
	return c
}

func (p *exprParser) attribute(c code) code {
	t := p.take()
	switch {
	case t.kind == intToken:
		return p.call("__item", c, code{t.val, 0})
	case t.kind != nameToken:
		return p.fail("expected an attribute, found %s", t.describe())
	case !isMethod(t.val):
		if strings.HasPrefix(t.val, "__") {
			return p.fail("the attribute %q is reserved", t.val)
		}
		return p.build("%s."+t.val, c)
	case p.skip("("):
		return p.call("__method", append([]code{c, quote(t.val)}, p.args()...)...)
	}
	return p.call("__attribute", c, quote(t.val))
}

func (p *exprParser) subscript(c code) code {
	part := func() code {
		if p.peek().is(":") || p.peek().is("]") {
			return code{"none", 0}
		}
		return p.condition()
	}
	key := part()
	if p.skip(":") {
		stop, step := part(), code{"none", 0}
		if p.skip(":") {
			step = part()
		}
		p.expect("]")
		return p.call("__slice", c, key, stop, step)
	}
	p.expect("]")
	return p.call("__item", c, key)
}

// invoke calls whatever c is. The library prints a value that it cannot call, which must not happen to one of
// unknown size, so a host function looks first; dict() keeps its arguments' order.
func (p *exprParser) invoke(c code) code {
	if c.src == "dict" && p.peek().kind == nameToken {
		var items []code
		for !p.skip(")") && p.err == nil {
			items = append(items, quote(p.name()))
			p.expect("=")
			items = append(items, p.condition())
			p.skip(",")
		}
		return p.call("__dict", items...)
	}
	callee := p.call("__callable", c, quote(c.src[:min(len(c.src), 40)]))
	args := p.args()
	return p.build("%s"+holes(len(args)), append([]code{callee}, args...)...)
}

// args reads call arguments after the opening parenthesis; a keyword argument keeps its name.
func (p *exprParser) args() []code {
	var args []code
	for !p.skip(")") && p.err == nil {
		if len(args) > 0 {
			p.expect(",")
			if p.skip(")") {
				break
			}
		}
		if p.peek().kind == nameToken && p.pos+1 < len(p.tokens) && p.tokens[p.pos+1].is("=") {
			name := p.take().val
			p.pos++
			args = append(args, p.build(name+"=%s", p.condition()))
			continue
		}
		args = append(args, p.condition())
	}
	return args
}

// filters: a chain of filters, tests and calls of their results.
func (p *exprParser) filters(c code) code {
	for p.err == nil {
		switch {
		case p.skip("|"):
			c = p.filter(c)
		case p.skipWord("is"):
			c = p.test(c)
		case p.peek().is("("), p.peek().is("."), p.peek().is("["):
			c = p.postfix(c)
		default:
			return c
		}
	}
	return c
}

func (p *exprParser) filter(c code) code {
	name := p.take()
	if name.kind != nameToken {
		return p.fail("expected a filter, found %s", name.describe())
	}
	var args []code
	if p.skip("(") {
		args = p.args()
	}
	guard, ours := filterGuard(name.val)
	if ours {
		return p.call("__filter", append([]code{quote(name.val), c}, args...)...)
	}
	// The library's own filter, on a value whose size has been looked at.
	c = p.call(guard, c)
	return p.build("(%s|"+name.val+holes(len(args))+")", append([]code{c}, args...)...)
}

var plainTests = []string{
	"defined", "undefined", "none", "boolean", "integer", "float", "string", "mapping", "callable",
	"true", "false", "odd", "even",
}

func (p *exprParser) test(c code) code {
	not := ""
	if p.skipWord("not") {
		not = "not "
	}
	name := p.take()
	if name.kind != nameToken {
		return p.fail("expected a test, found %s", name.describe())
	}
	if slices.Contains(plainTests, name.val) {
		return p.build("("+"%s is "+not+name.val+")", c)
	}
	args := []code{quote(name.val), c}
	switch t := p.peek(); {
	case p.skip("("):
		args = append(args, p.args()...)
	case t.kind == stringToken, t.kind == intToken, t.kind == floatToken, t.is("["), t.is("{"),
		t.kind == nameToken && !slices.Contains([]string{"else", "or", "and", "if", "is", "not", "in", "recursive"}, t.val):
		args = append(args, p.postfix(p.primary()))
	}
	c = p.call("__test", args...)
	if not != "" {
		c = p.build("(not %s)", c)
	}
	return c
}
