package grammar

import "slices"

// Expr is a form. It must not change once it is made, and may be a part of several others.
type Expr struct {
	op       op
	text     string   // opText, opUntil
	ranges   []span   // opClass
	kids     []*Expr  // opSeq, opAlt; one of opRepeat
	texts    []string // opTexts
	min, max int      // opRepeat; max below 0 is no limit
	rule     *rule    // opCall
}

type op uint8

const (
	opText op = iota
	opTexts
	opClass
	opSeq
	opAlt
	opRepeat
	opCall
	opUntil
)

// span is a range of characters, both ends included.
type span struct{ lo, hi rune }

// rule is a form with a name, which may call itself.
type rule struct {
	name         string
	body         *Expr
	line, column int
}

// Text is that text.
func Text(text string) *Expr { return &Expr{op: opText, text: text} }

// Seq is its parts one after another.
func Seq(parts ...*Expr) *Expr { return &Expr{op: opSeq, kids: parts} }

// Any is one of its parts.
func Any(parts ...*Expr) *Expr { return &Expr{op: opAlt, kids: parts} }

// Optional is e or nothing.
func Optional(e *Expr) *Expr { return Repeat(e, 0, 1) }

// Repeat is e some times; a max below 0 is no limit.
func Repeat(e *Expr, least, most int) *Expr {
	return &Expr{op: opRepeat, kids: []*Expr{e}, min: least, max: most}
}

// Until is any bytes up to the first mark, and the mark, which is not empty.
func Until(mark string) *Expr { return &Expr{op: opUntil, text: mark} }

// Space is the white space between the parts of an answer: nothing, a space, or one or two line ends.
func Space() *Expr { return Any(Text(""), Text(" "), Text("\n"), Text("\n\n")) }

func call(r *rule) *Expr { return &Expr{op: opCall, rule: r} }

// named makes a rule of e, which then is compiled once however often it is used.
func named(name string, e *Expr) *Expr { return call(&rule{name: name, body: e}) }

// Shared is e, to be used in several places without a copy in each.
func Shared(e *Expr) *Expr { return named("shared", e) }

// oneOf is one of some texts.
func oneOf(texts ...string) *Expr { return &Expr{op: opTexts, texts: texts} }

// class is one character of some ranges.
func class(ranges ...span) *Expr { return &Expr{op: opClass, ranges: ranges} }

// normal sorts ranges, joins those that touch, and cuts them at the ends of Unicode.
func normal(ranges []span) []span {
	list := slices.Clone(ranges)
	slices.SortFunc(list, func(a, b span) int { return int(a.lo - b.lo) })
	out := list[:0]
	for _, r := range list {
		r.lo, r.hi = max(r.lo, 0), min(r.hi, maxRune)
		switch last := len(out) - 1; {
		case r.lo > r.hi:
		case last >= 0 && r.lo <= out[last].hi+1:
			out[last].hi = max(out[last].hi, r.hi)
		default:
			out = append(out, r)
		}
	}
	return out
}

const maxRune = 0x10FFFF

// without is the characters of ranges that are not in others.
func without(ranges, others []span) []span {
	var out []span
	others = normal(others)
	for _, r := range normal(ranges) {
		lo := r.lo
		for _, o := range others {
			if o.hi < lo || o.lo > r.hi {
				continue
			}
			if o.lo > lo {
				out = append(out, span{lo, o.lo - 1})
			}
			lo = o.hi + 1
		}
		if lo <= r.hi {
			out = append(out, span{lo, r.hi})
		}
	}
	return out
}

// anyRune is all characters; negated classes are what is left of it.
var anyRune = []span{{0, maxRune}}
