package grammar

import (
	"fmt"
	"unicode/utf8"
)

// Bounds of a grammar.
const (
	maxNodes  = 1 << 17
	maxNested = 512 // of expressions within one rule
)

type nodeKind uint8

const (
	split nodeKind = iota // goes on at all of outs
	match                 // reads a byte of set, goes on at next
	enter                 // reads what the rule at entry reads, goes on at next
	leave                 // the end of a rule
)

type node struct {
	kind  nodeKind
	live  bool  // some text leads from here to the end of the rule
	set   int32 // index of a byte set
	next  int32
	entry int32
	outs  []int32
}

// byteSet is a set of bytes.
type byteSet [4]uint64

func (s *byteSet) add(lo, hi byte) {
	for b := int(lo); b <= int(hi); b++ {
		s[b>>6] |= 1 << (b & 63)
	}
}

func (s *byteSet) has(b byte) bool { return s[b>>6]>>(b&63)&1 == 1 }

// program is a compiled form: the automata of all rules.
type program struct {
	nodes   []node
	start   int32
	sets    []byteSet // of classes of bytes, once these are known
	classOf [256]uint8
	classes int
}

// compiler makes a program.
type compiler struct {
	program
	ids     map[byteSet]int32
	rules   map[*rule]int32 // where each begins
	order   []*rule
	entries []int32
	err     error
}

const leaveNode = 0 // the end of every rule

func compile(form *Expr) (*program, error) {
	c := &compiler{ids: map[byteSet]int32{}, rules: map[*rule]int32{}}
	c.add(node{kind: leave})
	root := &rule{name: "root", body: form}
	c.start = c.enterRule(root)
	for i := 0; i < len(c.order) && c.err == nil; i++ { // grows while it runs
		c.nodes[c.entries[i]].outs = []int32{c.emit(c.order[i].body, leaveNode, 0)}
	}
	if c.err != nil {
		return nil, c.err
	}
	c.prune()
	if !c.nodes[c.start].live {
		return nil, &Error{Reason: "no text can satisfy it"}
	}
	if r := c.leftRecursion(); r != nil {
		if r.line == 0 {
			return nil, &Error{Path: r.name, Reason: "it refers to itself with nothing before"}
		}
		return nil, &Error{Line: r.line, Column: r.column, Reason: fmt.Sprintf("the rule %s begins with itself (left recursion)", r.name)}
	}
	c.shortcut()
	c.classify()
	return &c.program, nil
}

func (c *compiler) add(n node) int32 {
	if len(c.nodes) >= maxNodes {
		if c.err == nil {
			c.err = &LimitError{What: fmt.Sprintf("it has more than %d parts, with repetitions counted", maxNodes)}
		}
		return leaveNode
	}
	c.nodes = append(c.nodes, n)
	return int32(len(c.nodes) - 1)
}

// enterRule returns the node at which a rule begins, a split that is filled in later.
func (c *compiler) enterRule(r *rule) int32 {
	if at, ok := c.rules[r]; ok {
		return at
	}
	at := c.add(node{kind: split})
	c.rules[r] = at
	c.order, c.entries = append(c.order, r), append(c.entries, at)
	return at
}

func (c *compiler) setID(s byteSet) int32 {
	id, ok := c.ids[s]
	if !ok {
		id = int32(len(c.sets))
		c.ids[s] = id
		c.sets = append(c.sets, s)
	}
	return id
}

func (c *compiler) match(s byteSet, next int32) int32 {
	return c.add(node{kind: match, set: c.setID(s), next: next})
}

// emit makes nodes that read e and go on at next.
func (c *compiler) emit(e *Expr, next int32, depth int) int32 {
	if depth > maxNested && c.err == nil {
		c.err = &LimitError{What: "it is nested too deeply"}
	}
	if c.err != nil {
		return leaveNode
	}
	switch e.op {
	case opText:
		return c.text(e.text, next)
	case opTexts:
		return c.texts(e.texts, next)
	case opClass:
		return c.runes(e.ranges, next)
	case opSeq:
		for i := len(e.kids) - 1; i >= 0; i-- {
			next = c.emit(e.kids[i], next, depth+1)
		}
		return next
	case opAlt:
		outs := make([]int32, len(e.kids))
		for i, k := range e.kids {
			outs[i] = c.emit(k, next, depth+1)
		}
		return c.add(node{kind: split, outs: outs})
	case opRepeat:
		return c.repeat(e, next, depth)
	case opCall:
		return c.add(node{kind: enter, entry: c.enterRule(e.rule), next: next})
	}
	return c.until(e.text, next)
}

func (c *compiler) text(text string, next int32) int32 {
	for i := len(text) - 1; i >= 0 && c.err == nil; i-- {
		var s byteSet
		s.add(text[i], text[i])
		next = c.match(s, next)
	}
	return next
}

// texts shares the common beginnings of texts, so that a list of thousands is no state of thousands. What all begin with is
// read at once: a call for each byte of it would nest as deep as it is long.
func (c *compiler) texts(list []string, next int32) int32 {
	if len(list) == 1 {
		return c.text(list[0], next)
	}
	if n := commonPrefix(list); n > 0 {
		short := make([]string, len(list))
		for i, t := range list {
			short[i] = t[n:]
		}
		return c.text(list[0][:n], c.texts(short, next))
	}
	var outs []int32
	byFirst := map[byte][]string{}
	var order []byte
	for _, t := range list {
		if t == "" {
			outs = append(outs, next)
			continue
		}
		if byFirst[t[0]] == nil {
			order = append(order, t[0])
		}
		byFirst[t[0]] = append(byFirst[t[0]], t[1:])
	}
	for _, b := range order {
		if c.err != nil {
			return leaveNode
		}
		var s byteSet
		s.add(b, b)
		outs = append(outs, c.match(s, c.texts(byFirst[b], next)))
	}
	return c.add(node{kind: split, outs: outs})
}

// commonPrefix is how many bytes all of list begin with.
func commonPrefix(list []string) int {
	n := len(list[0])
	for _, t := range list[1:] {
		same := 0
		for same < min(n, len(t)) && t[same] == list[0][same] {
			same++
		}
		n = same
	}
	return n
}

// repeat copies what is repeated; what is more than a node becomes a rule first.
func (c *compiler) repeat(e *Expr, next int32, depth int) int32 {
	body := e.kids[0]
	if (e.min > 1 || e.max > 1) && body.op != opCall {
		body = named("repeated", body)
	}
	cur := next
	if e.max < 0 {
		loop := c.add(node{kind: split})
		outs := []int32{c.emit(body, loop, depth+1), next}
		c.nodes[loop].outs = outs
		cur = loop
	}
	for i := e.min; i < e.max && c.err == nil; i++ {
		cur = c.add(node{kind: split, outs: []int32{c.emit(body, cur, depth+1), next}})
	}
	for i := 0; i < e.min && c.err == nil; i++ {
		cur = c.emit(body, cur, depth+1)
	}
	return cur
}

// until searches for a mark as Knuth, Morris and Pratt do: node i has just read the first i bytes of it.
func (c *compiler) until(mark string, next int32) int32 {
	at := make([]int32, len(mark)+1)
	for i := range mark {
		at[i] = c.add(node{kind: split})
	}
	at[len(mark)] = next
	for i := range len(mark) {
		to := map[int]*byteSet{}
		for b := range 256 {
			n := follow(mark, i, byte(b))
			if to[n] == nil {
				to[n] = &byteSet{}
			}
			to[n].add(byte(b), byte(b))
		}
		var outs []int32
		for n := range len(mark) + 1 {
			if to[n] != nil {
				outs = append(outs, c.match(*to[n], at[n]))
			}
		}
		if c.err == nil {
			c.nodes[at[i]].outs = outs
		}
	}
	return at[0]
}

// follow is how much of mark the text ends with after the first n bytes of it and b.
func follow(mark string, n int, b byte) int {
	text := mark[:n] + string([]byte{b})
	for k := len(text); k > 0; k-- {
		if k <= len(mark) && text[len(text)-k:] == mark[:k] {
			return k
		}
	}
	return 0
}

// tail is what follows the first byte of a character.
type tail struct {
	n  int
	at [3][2]byte
}

// runes makes nodes that read one character of some ranges. Characters that end alike share nodes.
func (c *compiler) runes(ranges []span, next int32) int32 {
	leads := map[tail]*byteSet{}
	var order []tail
	add := func(lo, hi rune) {
		var a, b [utf8.UTFMax]byte
		n := utf8.EncodeRune(a[:], lo)
		utf8.EncodeRune(b[:], hi)
		t := tail{n: n - 1}
		for i := 1; i < n; i++ {
			t.at[i-1] = [2]byte{a[i], b[i]}
		}
		if leads[t] == nil {
			leads[t] = &byteSet{}
			order = append(order, t)
		}
		leads[t].add(a[0], b[0])
	}
	for _, r := range normal(ranges) {
		splitRunes(r.lo, r.hi, add)
	}
	made := map[tail]int32{}
	var rest func(t tail) int32
	rest = func(t tail) int32 {
		if t.n == 0 {
			return next
		}
		at, ok := made[t]
		if !ok {
			var s byteSet
			s.add(t.at[0][0], t.at[0][1])
			at = c.match(s, rest(tail{n: t.n - 1, at: [3][2]byte{t.at[1], t.at[2]}}))
			made[t] = at
		}
		return at
	}
	outs := make([]int32, 0, len(order))
	for _, t := range order {
		outs = append(outs, c.match(*leads[t], rest(t)))
	}
	if len(outs) == 1 {
		return outs[0]
	}
	return c.add(node{kind: split, outs: outs})
}

// splitRunes cuts a range of characters into such whose bytes are independent ranges.
func splitRunes(lo, hi rune, add func(lo, hi rune)) {
	for _, end := range []rune{0x7F, 0x7FF, 0xD7FF, 0xDFFF, 0xFFFF} {
		if lo <= end && hi > end {
			splitRunes(lo, end, add)
			splitRunes(end+1, hi, add)
			return
		}
	}
	if lo >= 0xD800 && hi <= 0xDFFF {
		return // no characters
	}
	for i := 1; i < utf8.RuneLen(hi); i++ {
		m := rune(1)<<(6*i) - 1
		switch {
		case lo&^m == hi&^m:
			continue
		case lo&m != 0:
			splitRunes(lo, lo|m, add)
			splitRunes((lo|m)+1, hi, add)
			return
		case hi&m != m:
			splitRunes(lo, hi&^m-1, add)
			splitRunes(hi&^m, hi, add)
			return
		}
	}
	add(lo, hi)
}

// shortcut turns the last call of a rule into a jump, so that what only repeats at the end does not grow the stack.
func (c *compiler) shortcut() {
	for i := range c.nodes {
		n := &c.nodes[i]
		if n.kind == enter && c.leads(n.next) {
			*n = node{kind: split, live: n.live, outs: []int32{n.entry}}
		}
	}
}

// leads says of a node that nothing but the end of the rule follows.
func (c *compiler) leads(at int32) bool {
	for range 8 {
		n := &c.nodes[at]
		if n.kind == leave {
			return true
		}
		if n.kind != split || len(n.outs) != 1 {
			return false
		}
		at = n.outs[0]
	}
	return false
}

// classify finds which bytes no set tells apart.
func (c *compiler) classify() {
	ids := map[string]uint8{}
	key := make([]byte, (len(c.sets)+7)/8)
	for b := range 256 {
		clear(key)
		for i := range c.sets {
			if c.sets[i].has(byte(b)) {
				key[i/8] |= 1 << (i % 8)
			}
		}
		id, ok := ids[string(key)]
		if !ok {
			id = uint8(len(ids))
			ids[string(key)] = id
		}
		c.classOf[b] = id
	}
	c.classes = len(ids)
	for i, s := range c.sets {
		var of byteSet
		for b := range 256 {
			if s.has(byte(b)) {
				of.add(c.classOf[b], c.classOf[b])
			}
		}
		c.sets[i] = of
	}
}
