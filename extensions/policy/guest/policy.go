package guest

// The memory: texts of this source, what configure makes of a policy, then the request, the candidates and the answer. While
// a policy is read, its own text lies far behind.
const (
	literalsAt = 1 << 10
	tablesAt   = 6 << 10
	tablesEnd  = 112 << 10
	policyAt   = 128 << 10
	errorAt    = 196 << 10
	memorySize = 256 << 10

	maxText       = 64 << 10 // bytes of a request or a policy
	maxName       = 256      // bytes of a name in a policy
	maxRules      = 256
	maxTerms      = 30 // of one rule: a bit each
	maxNames      = 256
	maxCandidates = 400
	maxAnswer     = 15 << 10
)

// The head of the tables.
const (
	headClasses  = 0  // the devices of the classes, four texts: address and length
	headMinimum  = 32 // the least confidence
	headDefault  = 40 // a text
	headRules    = 48 // the first rule
	headSize     = 56
	classesGiven = 52
)

// A rule. Ranges hold from <= value < below; those of hours may pass midnight.
const (
	ruleNext       = 0
	ruleClasses    = 4 // a bit for each class, bit 0 for none; 0 for all
	ruleConfidence = 8
	ruleTokens     = 24
	ruleHour       = 40
	ruleTurn       = 56
	ruleFlags      = 72 // those that count
	ruleWant       = 76 // how they must be
	ruleModels     = 80 // the first name
	ruleKeys       = 84
	ruleAPIs       = 88
	ruleTerms      = 92 // the first term
	ruleName       = 96 // a text
	ruleNumber     = 104
	ruleSize       = 112
)

// A name of a list, and a term of a ranking.
const (
	itemNext = 0
	itemKind = 4
	itemText = 8
	itemOver = 16 // of a measure: up to here it counts as none
	itemSize = 24
)

// The kinds of terms: a name of a device, model or candidate comes first; or the most or the least of a measure.
const (
	byName  = 0
	byMost  = 8 // plus the measure
	byLeast = 16
)

// The measures of candidates, by their place behind candidateMeasures.
const (
	cached  = 0
	load    = 1
	queue   = 2
	price   = 3
	context = 4
	prompt  = 5
	decode  = 6
	sticky  = 7
)

// A candidate of a request.
const (
	candidateID       = 0
	candidateDevice   = 8
	candidateModel    = 16
	candidateMask     = 24 // a bit for each term that names it
	candidateBad      = 28 // 1 when the prompt does not fit, 2 when it is not healthy
	candidateMeasures = 32
	candidateSize     = 96
)

// Flags of a request.
const (
	flagStream = 1
	flagTools  = 2
	flagImages = 4
	flagJSON   = 8
)

// Where reading is, and what was read last.
var (
	pos      int32
	end      int32
	bad      int32 // it is not what it should be
	textAt   int32
	textSize int32
	escaped  int32 // the text has escapes, which are left as they are
)

// Where writing is.
var (
	top int32 // of the tables
	out int32 // of an answer
)

// What of a policy is being read, for what is said when it is wrong.
var (
	rules int32 // read so far
	terms int32
	names int32
)

// bufferAt is where requests go: behind the tables, so that a call touches few pages.
var bufferAt int32 = policyAt

// What a request says.
var (
	class      int32 // 0 for none, else its place in the page's list; 5 for one that is not in it
	confidence float64
	tokens     float64
	hour       float64
	turn       float64
	flags      int32
	modelAt    int32
	modelSize  int32
	keyAt      int32
	keySize    int32
	apiAt      int32
	apiSize    int32
	firstAt    int32 // the candidates
	candidates int32
)

//export laya_abi_v1
func marker() {}

//export laya_buffer
func buffer(n int32) int32 {
	if n <= 0 || n > maxText {
		return 0
	}
	return bufferAt
}

// --- reading JSON ---

// broken says that it is not what it should be, unless something better is said already.
func broken() {
	if bad == 0 {
		bad = 1
	}
}

// peek passes over white space and returns what comes; 0 at the end.
func peek() int32 {
	for pos < end {
		c := load8(pos)
		if c > ' ' {
			return c
		}
		if c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			broken()
			return 0
		}
		pos++
	}
	return 0
}

// take passes over one character, which must come.
func take(c int32) {
	if pos < end && load8(pos) == c || peek() == c {
		pos++
		return
	}
	broken()
}

// more steps to the n-th part of what was opened with a bracket; false behind the last.
func more(n int32, closing int32) bool {
	c := peek()
	if bad != 0 || c == 0 {
		broken()
		return false
	}
	if c == closing {
		pos++
		return false
	}
	if n > 0 {
		take(',')
		if peek() == closing {
			broken()
		}
	}
	return bad == 0
}

const (
	ones   = 0x0101010101010101
	tops   = -0x7f7f7f7f7f7f7f80
	quotes = 0x2222222222222222
	slants = 0x5c5c5c5c5c5c5c5c
	spaces = 0x2020202020202020
)

// text reads a string. Its escapes stay as they are.
func text() {
	take('"')
	if bad != 0 {
		return
	}
	textAt = pos
	escaped = 0
	p := pos
	for p < end {
		v := load64(p)
		a := v ^ quotes
		b := v ^ slants
		// a byte is a quote, a backslash or below a space: the lowest one is right
		hit := ((a-ones)&^a | (b-ones)&^b | (v-spaces)&^v) & tops
		if hit == 0 {
			p += 8
			continue
		}
		p += trailing(hit) >> 3
		if p >= end {
			break
		}
		c := load8(p)
		if c == '"' {
			textSize = p - textAt
			pos = p + 1
			return
		}
		if c != '\\' {
			break
		}
		escaped = 1
		p += 2
	}
	broken()
}

// key reads a member's name and what follows it, and returns the name's first eight bytes.
func key() int64 {
	text()
	take(':')
	return front()
}

// front is the first eight bytes of the text that was read, with zeros behind a shorter one.
func front() int64 {
	v := load64(textAt)
	if textSize < 8 {
		v = v & (1<<(wide(textSize)*8) - 1)
	}
	return v
}

// number reads one.
func number() float64 {
	c := peek()
	negative := c == '-'
	if negative {
		pos++
	}
	v := 0.0
	digits := int32(0)
	for pos < end {
		c = load8(pos) - '0'
		if c < 0 || c > 9 {
			break
		}
		v = v*10 + float(c)
		digits++
		pos++
	}
	scale := 1.0
	if pos < end && load8(pos) == '.' {
		pos++
		digits = 0
		for pos < end {
			c = load8(pos) - '0'
			if c < 0 || c > 9 {
				break
			}
			if digits < 16 {
				v = v*10 + float(c)
				scale = scale * 10
			}
			digits++
			pos++
		}
	}
	if digits == 0 || digits > 300 {
		broken()
		return 0
	}
	v = v / scale
	if pos < end && load8(pos)|32 == 'e' {
		v = exponent(v)
	}
	if v > 1e308 {
		broken()
	}
	if negative {
		return -v
	}
	return v
}

// exponent reads one and applies it.
func exponent(v float64) float64 {
	pos++
	down := false
	if pos < end && (load8(pos) == '-' || load8(pos) == '+') {
		down = load8(pos) == '-'
		pos++
	}
	n := int32(0)
	digits := int32(0)
	for pos < end {
		c := load8(pos) - '0'
		if c < 0 || c > 9 {
			break
		}
		if n < 400 {
			n = n*10 + c
		}
		digits++
		pos++
	}
	if digits == 0 {
		broken()
	}
	for n > 0 {
		if down {
			v = v / 10
		} else {
			v = v * 10
		}
		n--
	}
	return v
}

// truth reads true or false.
func truth() bool {
	c := peek()
	if c == 't' && end-pos >= 4 && load32(pos) == 0x65757274 {
		pos += 4
		return true
	}
	if c == 'f' && end-pos >= 5 && load32(pos+1) == 0x65736c61 {
		pos += 5
		return false
	}
	broken()
	return false
}

// pass passes over any value.
func pass() {
	depth := int32(0)
	for bad == 0 {
		c := peek()
		if c == '"' {
			text()
		} else if c == '{' || c == '[' {
			depth++
			pos++
		} else if c == '}' || c == ']' {
			depth--
			pos++
		} else if (c == ',' || c == ':') && depth > 0 {
			pos++
			continue
		} else if c == 't' || c == 'f' {
			truth()
		} else if c == 'n' {
			if end-pos < 4 || load32(pos) != 0x6c6c756e {
				broken()
			}
			pos += 4
		} else {
			number()
		}
		if depth <= 0 {
			if depth < 0 {
				broken()
			}
			return
		}
	}
}

// --- writing ---

// put copies a text to the answer.
func put(from int32, n int32) {
	i := int32(0)
	for i+8 <= n {
		store64(out+i, load64(from+i))
		i += 8
	}
	for i < n {
		store8(out+i, load8(from+i))
		i++
	}
	out += n
}

func puts(text int64) { put(narrow(text>>32), narrow(text)) }

func putNumber(n int32) {
	if n >= 10 {
		putNumber(n / 10)
	}
	store8(out, '0'+n%10)
	out++
}

// packed is what a function answers with: where something stands, and its size.
func packed(from int32, to int32) int64 { return wide(from)<<32 | wide(to-from) }

// --- a policy ---

// fail says what is wrong, once: the rule, a text, what was read last, and another text.
func fail(before int64, shown bool, after int64) {
	if bad == 2 {
		return
	}
	bad = 2
	out = errorAt
	if rules > 0 {
		puts(lit("rules["))
		putNumber(rules - 1)
		puts(lit("]: "))
	}
	puts(before)
	if shown {
		store8(out, '"')
		out++
		if textSize > 80 {
			textSize = 80
		}
		put(textAt, textSize)
		store8(out, '"')
		out++
	}
	puts(after)
}

// allocate makes room in the tables, all zeros.
func allocate(n int32) int32 {
	at := top
	top += (n + 7) & -8
	if top > tablesEnd {
		top = at
		fail(lit("the policy is too large"), false, lit(""))
		return tablesEnd
	}
	for i := at; i < top; i += 8 {
		store64(i, 0)
	}
	return at
}

// name reads a string of a policy and keeps it at a place of the tables.
func name(to int32) {
	if peek() != '"' {
		fail(lit("a name has to be a string in quotes"), false, lit(""))
		return
	}
	text()
	if bad == 0 && (escaped != 0 || textSize == 0 || textSize > maxName) {
		fail(lit("the name "), true, lit(" is empty, longer than 256 bytes, or has a quote or backslash in it"))
	}
	if bad != 0 {
		return
	}
	at := allocate(textSize)
	for i := range textSize {
		store8(at+i, load8(textAt+i))
	}
	store32(to, at)
	store32(to+4, textSize)
}

// fraction reads a number from 0 to 1.
func fraction(to int32) {
	storeF(to, number())
	if bad == 0 && !(loadF(to) >= 0 && loadF(to) <= 1) {
		fail(lit("a confidence is a number from 0 to 1"), false, lit(""))
	}
}

// classOf is the place of the class that was read last in the page's list, 0 for none, -1 for an unknown one.
func classOf() int32 {
	w := front()
	if textSize == 4 && w == word("code") {
		return 1
	}
	if textSize == 5 && w == word("prose") {
		return 2
	}
	if textSize == 5 && w == word("short") {
		return 3
	}
	if textSize == 8 && w == word("long_doc") {
		return 4
	}
	if textSize == 4 && w == word("none") {
		return 0
	}
	return -1
}

// classes reads the devices of the classes.
func classes() {
	store32(tablesAt+classesGiven, 1)
	take('{')
	for n := int32(0); more(n, '}'); n++ {
		key()
		c := classOf()
		if bad == 0 && c < 1 {
			fail(lit("unknown class "), true, lit("; there are code, prose, short and long_doc"))
		}
		if bad != 0 {
			return
		}
		at := tablesAt + headClasses + (c-1)*8
		if load32(at) != 0 {
			fail(lit("the class "), true, lit(" is there twice"))
			return
		}
		nameAt := textAt
		nameSize := textSize
		target(at)
		if bad == 0 && load32(at) == 0 {
			textAt = nameAt
			textSize = nameSize
			fail(lit("the class "), true, lit(" has no device"))
		}
	}
}

// target reads where a class goes.
func target(to int32) {
	if peek() != '{' {
		return // no device
	}
	take('{')
	for n := int32(0); more(n, '}'); n++ {
		w := key()
		if textSize == 6 && w == word("device") && peek() == '"' && load32(to) == 0 {
			name(to)
		} else if textSize == 7 && w == word("comment") {
			pass()
		} else if bad == 0 {
			if w == word("device") {
				fail(lit("a device has to be a string in quotes, once"), false, lit(""))
			} else {
				fail(lit("unknown member "), true, lit(" of a class; it has device"))
			}
		}
	}
}

// list reads names into a list: a string, or several in brackets.
func list(head int32) {
	if load32(head) != 0 {
		fail(lit("a member is there twice"), false, lit(""))
		return
	}
	if peek() != '[' {
		item(head)
		return
	}
	take('[')
	for n := int32(0); more(n, ']'); n++ {
		head = item(head)
		if bad != 0 {
			return
		}
	}
}

// item reads one name and hangs it behind the place head; it returns where the next one goes.
func item(head int32) int32 {
	names++
	if names > maxNames {
		fail(lit("there are too many names in lists"), false, lit(""))
		return head
	}
	at := allocate(itemSize)
	name(at + itemText)
	store32(head, at)
	return at + itemNext
}

// among reads classes into a mask.
func among(at int32) {
	if load32(at) != 0 {
		fail(lit("a member is there twice"), false, lit(""))
		return
	}
	if peek() != '[' {
		oneOf(at)
		return
	}
	take('[')
	for n := int32(0); more(n, ']'); n++ {
		oneOf(at)
		if bad != 0 {
			return
		}
	}
}

func oneOf(at int32) {
	text()
	if bad != 0 {
		return
	}
	c := classOf()
	if c < 0 {
		fail(lit("unknown class "), true, lit("; there are code, prose, short, long_doc and none"))
		return
	}
	store32(at, load32(at)|1<<c)
}

// between reads a range. One that wraps may end before it begins.
func between(at int32, most float64, wraps bool) {
	if peek() != '{' {
		fail(lit("a range is an object with from, below or both"), false, lit(""))
		return
	}
	take('{')
	for n := int32(0); more(n, '}'); n++ {
		w := key()
		if bad != 0 {
			return
		}
		to := at
		if textSize == 5 && w == word("below") {
			to = at + 8
		} else if w != word("from") || textSize != 4 {
			fail(lit("unknown member "), true, lit(" of a range; it has from and below"))
			return
		}
		v := number()
		if bad == 0 && !(v >= 0 && v <= most) {
			fail(lit("the bound "), true, lit(" of a range is out of bounds: hours end at 24, confidences at 1, and nothing is below 0"))
		}
		storeF(to, v)
	}
	if bad == 0 && !wraps && loadF(at) >= loadF(at+8) {
		fail(lit("a range ends before it begins"), false, lit(""))
	}
}

// flag reads how one flag has to be.
func flag(rule int32, bit int32) {
	v := truth()
	if bad != 0 {
		fail(lit("stream, tools, images and json are true or false"), false, lit(""))
		return
	}
	store32(rule+ruleFlags, load32(rule+ruleFlags)|bit)
	if v {
		store32(rule+ruleWant, load32(rule+ruleWant)|bit)
	}
}

// when reads what a rule is for.
func when(rule int32) {
	if peek() != '{' {
		fail(lit("when is an object"), false, lit(""))
		return
	}
	take('{')
	for n := int32(0); more(n, '}'); n++ {
		w := key()
		if bad != 0 {
			return
		}
		if textSize == 5 && w == word("class") {
			among(rule + ruleClasses)
		} else if textSize == 10 && w == word("confidence") {
			between(rule+ruleConfidence, 2, false)
		} else if textSize == 6 && w == word("tokens") {
			between(rule+ruleTokens, 1e12, false)
		} else if textSize == 4 && w == word("hour") {
			between(rule+ruleHour, 24, true)
		} else if textSize == 4 && w == word("turn") {
			between(rule+ruleTurn, 1e12, false)
		} else if textSize == 5 && w == word("model") {
			list(rule + ruleModels)
		} else if textSize == 3 && w == word("key") {
			list(rule + ruleKeys)
		} else if textSize == 3 && w == word("api") {
			list(rule + ruleAPIs)
		} else if textSize == 6 && w == word("stream") {
			flag(rule, flagStream)
		} else if textSize == 5 && w == word("tools") {
			flag(rule, flagTools)
		} else if textSize == 6 && w == word("images") {
			flag(rule, flagImages)
		} else if textSize == 4 && w == word("json") {
			flag(rule, flagJSON)
		} else {
			fail(lit("unknown member "), true, lit(" of when; it has class, confidence, tokens, hour, turn, model, key, api, stream, tools, images and json"))
		}
		if bad != 0 {
			return
		}
	}
}

// measureOf is the measure that was read last; -1 for an unknown one.
func measureOf() int32 {
	w := front()
	if textSize == 6 && w == word("cached") {
		return cached
	}
	if textSize == 4 && w == word("load") {
		return load
	}
	if textSize == 5 && w == word("queue") {
		return queue
	}
	if textSize == 5 && w == word("price") {
		return price
	}
	if textSize == 3 && w == word("ctx") {
		return context
	}
	if textSize == 6 && w == word("pp_tps") {
		return prompt
	}
	if textSize == 6 && w == word("tg_tps") {
		return decode
	}
	if textSize == 6 && w == word("sticky") {
		return sticky
	}
	return -1
}

// term reads one term of a ranking: a name, or an object with most or least, and over.
func term(at int32) {
	if peek() == '"' {
		name(at + itemText)
		return
	}
	if peek() != '{' {
		fail(lit("prefer lists names of devices, models and candidates, and objects with most or least"), false, lit(""))
		return
	}
	take('{')
	for n := int32(0); more(n, '}'); n++ {
		w := key()
		if bad != 0 {
			return
		}
		if textSize == 4 && w == word("over") {
			storeF(at+itemOver, number())
			continue
		}
		kind := int32(byMost)
		if textSize == 5 && w == word("least") {
			kind = byLeast
		} else if w != word("most") || textSize != 4 {
			fail(lit("unknown member "), true, lit(" in prefer; there are most, least and over"))
			return
		}
		if peek() == '"' {
			text()
		}
		m := measureOf()
		if bad != 0 {
			return
		}
		if m < 0 || load32(at+itemKind) != 0 {
			fail(lit("unknown measure "), true, lit(", or more than one; there are cached, load, queue, price, ctx, pp_tps, tg_tps and sticky"))
			return
		}
		store32(at+itemKind, kind+m)
	}
	if bad == 0 && load32(at+itemKind) == 0 {
		fail(lit("an object in prefer needs most or least"), false, lit(""))
	}
}

// prefer reads a ranking.
func prefer(rule int32) {
	if peek() != '[' || load32(rule+ruleTerms) != 0 {
		fail(lit("prefer is one list"), false, lit(""))
		return
	}
	take('[')
	terms = 0
	head := rule + ruleTerms
	for more(terms, ']') {
		terms++
		if terms > maxTerms {
			fail(lit("prefer has more than 30 entries"), false, lit(""))
			return
		}
		at := allocate(itemSize)
		term(at)
		if bad != 0 {
			return
		}
		store32(head, at)
		head = at + itemNext
	}
	if bad == 0 && terms == 0 {
		fail(lit("prefer is empty"), false, lit(""))
	}
}

// rule reads one rule and hangs it behind the place head; it returns where the next one goes.
func rule(head int32) int32 {
	rules++
	if rules > maxRules {
		fail(lit("there are more than 256 rules"), false, lit(""))
		return head
	}
	if peek() != '{' {
		fail(lit("a rule is an object"), false, lit(""))
		return head
	}
	at := allocate(ruleSize)
	if bad != 0 {
		return head
	}
	store32(at+ruleNumber, rules)
	storeF(at+ruleConfidence+8, 3)
	storeF(at+ruleTokens+8, 1e300)
	storeF(at+ruleHour+8, 24)
	storeF(at+ruleTurn+8, 1e300)
	seen := int32(0)
	take('{')
	for n := int32(0); more(n, '}'); n++ {
		w := key()
		if bad != 0 {
			return head
		}
		if textSize == 4 && w == word("when") && seen&1 == 0 {
			seen |= 1
			when(at)
		} else if textSize == 6 && w == word("prefer") {
			prefer(at)
		} else if textSize == 4 && w == word("name") && seen&2 == 0 {
			seen |= 2
			name(at + ruleName)
		} else if textSize == 7 && w == word("comment") {
			pass()
		} else {
			fail(lit("unknown or repeated member "), true, lit(" of a rule; it has name, when, prefer and comment"))
		}
		if bad != 0 {
			return head
		}
	}
	if bad == 0 && load32(at+ruleTerms) == 0 {
		fail(lit("a rule needs prefer"), false, lit(""))
	}
	store32(head, at)
	return at + ruleNext
}

// policy reads all of it.
func policy() {
	if peek() != '{' {
		broken()
		return
	}
	take('{')
	seen := int32(0)
	n := int32(0)
	for more(n, '}') {
		n++
		w := key()
		if bad != 0 {
			return
		}
		if textSize == 7 && w == word("classes") && seen&1 == 0 {
			seen |= 1
			if peek() != '{' {
				fail(lit("classes is an object of classes with their devices"), false, lit(""))
				return
			}
			classes()
		} else if textSize == 14 && w == word("min_confidence") && load64(textAt+6) == word("nfidence") && seen&2 == 0 {
			seen |= 2
			if peek() != '-' && (peek() < '0' || peek() > '9') {
				fail(lit("min_confidence is a number from 0 to 1"), false, lit(""))
				return
			}
			fraction(tablesAt + headMinimum)
		} else if textSize == 7 && w == word("default") && seen&4 == 0 {
			seen |= 4
			name(tablesAt + headDefault)
		} else if textSize == 5 && w == word("rules") && seen&8 == 0 {
			seen |= 8
			if peek() != '[' {
				fail(lit("rules is a list"), false, lit(""))
				return
			}
			take('[')
			head := int32(tablesAt + headRules)
			for more(rules, ']') {
				head = rule(head)
				if bad != 0 {
					return
				}
			}
			rules = 0
		} else if textSize == 7 && w == word("comment") {
			pass()
		} else {
			fail(lit("unknown or repeated member "), true, lit("; there are classes, min_confidence, default, rules and comment"))
			return
		}
		if bad != 0 {
			return
		}
	}
	if bad == 0 && n > 0 && seen&9 == 0 {
		fail(lit("it has neither classes nor rules"), false, lit(""))
	}
}

// begin forgets a policy.
func begin() {
	bufferAt = policyAt
	top = tablesAt
	bad = 0
	rules = 0
	names = 0
	at := allocate(headSize)
	hrx := lit("hrx")
	store32(at+headDefault, narrow(hrx>>32))
	store32(at+headDefault+4, narrow(hrx))
}

// configure reads a policy. An empty object is the one that everybody has without a file: all to hrx.
//
//export laya_configure
func configure(at int32, size int32) int64 {
	begin()
	pos = at
	end = at + size
	policy()
	if bad == 0 && (peek() != 0 || pos != end) {
		broken()
	}
	if bad == 1 {
		rules = 0
		fail(lit("it is not JSON"), false, lit(""))
	}
	if bad != 0 {
		return packed(errorAt, out)
	}
	bufferAt = (top + 7) & -8
	return 0
}

// --- a request ---

// equals tells whether a text of the request, and one of the tables, are the same.
func equals(at int32, size int32, kept int32) bool {
	if size != load32(kept+4) {
		return false
	}
	from := load32(kept)
	i := int32(0)
	for i+8 <= size {
		if load64(at+i) != load64(from+i) {
			return false
		}
		i += 8
	}
	for i < size {
		if load8(at+i) != load8(from+i) {
			return false
		}
		i++
	}
	return true
}

// holds tells whether a list has a text. A name with a star at its end stands for all that begin so; an empty list for all.
func holds(first int32, at int32, size int32) bool {
	if first == 0 {
		return true
	}
	for first != 0 {
		if equals(at, size, first+itemText) {
			return true
		}
		n := load32(first+itemText+4) - 1
		from := load32(first + itemText)
		if load8(from+n) == '*' && size >= n {
			i := int32(0)
			for i < n && load8(at+i) == load8(from+i) {
				i++
			}
			if i == n {
				return true
			}
		}
		first = load32(first + itemNext)
	}
	return false
}

func within(at int32, v float64) bool {
	from := loadF(at)
	below := loadF(at + 8)
	if from > below {
		return v >= from || v < below
	}
	return v >= from && v < below
}

// suits tells whether a rule is for the request.
func suits(rule int32) bool {
	mask := load32(rule + ruleClasses)
	if mask != 0 && mask>>class&1 == 0 {
		return false
	}
	if flags&load32(rule+ruleFlags) != load32(rule+ruleWant) {
		return false
	}
	return within(rule+ruleConfidence, confidence) && within(rule+ruleTokens, tokens) && within(rule+ruleHour, hour) && within(rule+ruleTurn, turn) &&
		holds(load32(rule+ruleModels), modelAt, modelSize) && holds(load32(rule+ruleKeys), keyAt, keySize) && holds(load32(rule+ruleAPIs), apiAt, apiSize)
}

// ask reads a request.
func ask() {
	class = 0
	confidence = 0
	tokens = 0
	hour = 0
	turn = 0
	flags = 0
	modelSize = 0
	keySize = 0
	apiSize = 0
	candidates = 0
	take('{')
	for n := int32(0); more(n, '}'); n++ {
		w := key()
		if bad != 0 {
			return
		}
		if textSize == 10 && w == word("candidates") {
			offered()
		} else if textSize == 5 && w == word("class") {
			text()
			class = classOf()
			if class < 0 {
				class = 5
			}
		} else if textSize == 10 && w == word("confidence") {
			confidence = number()
		} else if textSize == 5 && w == word("model") {
			text()
			modelAt = textAt
			modelSize = textSize
		} else if textSize == 6 && w == word("tokens") {
			tokens = number()
		} else if textSize == 3 && w == word("key") {
			text()
			keyAt = textAt
			keySize = textSize
		} else if textSize == 4 && w == word("hour") {
			hour = number()
		} else if textSize == 4 && w == word("turn") {
			turn = number()
		} else if textSize == 5 && w == word("flags") {
			ticked()
		} else if textSize == 3 && w == word("api") {
			text()
			apiAt = textAt
			apiSize = textSize
		} else {
			pass()
		}
	}
}

// ticked reads the flags.
func ticked() {
	take('{')
	for n := int32(0); more(n, '}'); n++ {
		w := key()
		bit := int32(0)
		if textSize == 6 && w == word("stream") {
			bit = flagStream
		} else if textSize == 5 && w == word("tools") {
			bit = flagTools
		} else if textSize == 6 && w == word("images") {
			bit = flagImages
		} else if textSize == 4 && w == word("json") {
			bit = flagJSON
		}
		if bit == 0 {
			pass()
		} else if truth() {
			flags |= bit
		}
	}
}

// offered reads the candidates, behind the request.
func offered() {
	firstAt = (end + 7) & -8
	candidates = 0
	take('[')
	for more(candidates, ']') {
		if candidates == maxCandidates {
			broken()
			return
		}
		at := firstAt + candidates*candidateSize
		candidate(at)
		if load32(at+candidateID+4) == 0 || again(at) {
			broken()
			return
		}
		candidates++
	}
}

// again tells whether a candidate's id was offered before.
func again(at int32) bool {
	for i := range candidates {
		other := firstAt + i*candidateSize
		if equals(load32(at+candidateID), load32(at+candidateID+4), other+candidateID) {
			return true
		}
	}
	return false
}

func candidate(at int32) {
	for i := at; i < at+candidateSize; i += 8 {
		store64(i, 0)
	}
	store32(at+candidateBad, 2)
	take('{')
	for n := int32(0); more(n, '}'); n++ {
		w := key()
		if textSize == 2 && w == word("id") {
			text()
			store32(at+candidateID, textAt)
			store32(at+candidateID+4, textSize)
		} else if textSize == 6 && w == word("device") {
			text()
			store32(at+candidateDevice, textAt)
			store32(at+candidateDevice+4, textSize)
		} else if textSize == 5 && w == word("model") {
			text()
			store32(at+candidateModel, textAt)
			store32(at+candidateModel+4, textSize)
		} else if textSize == 7 && w == word("healthy") {
			if truth() {
				store32(at+candidateBad, load32(at+candidateBad)&1)
			}
		} else {
			m := measureOf()
			if m < 0 {
				pass()
			} else if m == sticky {
				if truth() {
					storeF(at+candidateMeasures+sticky*8, 1)
				}
			} else {
				storeF(at+candidateMeasures+m*8, number())
			}
		}
	}
}

// named marks the candidates that a text names with a bit, and tells whether there are any.
func named(kept int32, bit int32) bool {
	any := false
	for i := range candidates {
		at := firstAt + i*candidateSize
		if equals(load32(at+candidateDevice), load32(at+candidateDevice+4), kept) || equals(load32(at+candidateID), load32(at+candidateID+4), kept) ||
			equals(load32(at+candidateModel), load32(at+candidateModel+4), kept) {
			store32(at+candidateMask, load32(at+candidateMask)|bit)
			any = true
		}
	}
	return any
}

// measured is a candidate's measure for a term: what is up to over counts as none.
func measured(at int32, term int32) float64 {
	v := loadF(at + candidateMeasures + load32(term+itemKind)&7*8)
	if v <= loadF(term+itemOver) {
		return 0
	}
	return v
}

// before tells whether candidate a comes before b.
func before(a int32, b int32, first int32) bool {
	x := load32(a + candidateBad)
	y := load32(b + candidateBad)
	if x != y {
		return x < y
	}
	x = load32(a + candidateMask)
	y = load32(b + candidateMask)
	bit := int32(1)
	for first != 0 {
		kind := load32(first + itemKind)
		if kind == byName {
			if (x^y)&bit != 0 {
				return x&bit != 0
			}
		} else {
			v := measured(a, first)
			w := measured(b, first)
			if v != w {
				return (v > w) == (kind < byLeast)
			}
		}
		bit = bit << 1
		first = load32(first + itemNext)
	}
	return false
}

// ranked writes the candidates in their order: those that are healthy and have room, by the terms, then as they came. A
// pick of a class or of the default has no terms, and its bit is the first.
func ranked(first int32, pick bool) {
	places := out
	out = places + candidates*4
	for i := range candidates {
		at := firstAt + i*candidateSize
		j := i
		for j > 0 {
			other := load32(places + (j-1)*4)
			var ahead bool
			if pick && load32(at+candidateBad) == load32(other+candidateBad) {
				ahead = load32(at+candidateMask)&1 > load32(other+candidateMask)&1
			} else {
				ahead = before(at, other, first)
			}
			if !ahead {
				break
			}
			store32(places+j*4, other)
			j--
		}
		store32(places+j*4, at)
	}
	start := out
	puts(lit(`{"v":1,"action":"route","candidates":[`))
	for i := range candidates {
		at := load32(places + i*4)
		if out-start > maxAnswer-maxName*6 {
			break
		}
		if i > 0 {
			store8(out, ',')
			out++
		}
		store8(out, '"')
		out++
		put(load32(at+candidateID), load32(at+candidateID+4))
		store8(out, '"')
		out++
	}
	puts(lit(`],"reason":"`))
	textAt = start // where the answer begins
}

// ended closes the answer, with the name or number of a rule or where a text stands.
func ended(kept int32) int64 {
	if kept != 0 {
		put(load32(kept), load32(kept+4))
	}
	puts(lit(`"}`))
	return packed(textAt, out)
}

// route answers a request: by the first rule that is for it, else by its class, else by the default.
//
//export laya_route
func route(at int32, size int32) int64 {
	bad = 0
	pos = at
	end = at + size
	ask()
	if bad != 0 || candidates == 0 || peek() != 0 || pos != end {
		return 0
	}
	out = firstAt + candidates*candidateSize
	for i := range candidates {
		c := firstAt + i*candidateSize
		room := loadF(c + candidateMeasures + context*8)
		if room > 0 && room < tokens {
			store32(c+candidateBad, load32(c+candidateBad)|1)
		}
	}
	r := load32(tablesAt + headRules)
	for r != 0 {
		if suits(r) {
			bit := int32(1)
			for t := load32(r + ruleTerms); t != 0; t = load32(t + itemNext) {
				if load32(t+itemKind) == byName {
					named(t+itemText, bit)
				}
				bit = bit << 1
			}
			ranked(load32(r+ruleTerms), false)
			puts(lit("rule "))
			if load32(r+ruleName) != 0 {
				return ended(r + ruleName)
			}
			putNumber(load32(r + ruleNumber))
			return ended(0)
		}
		r = load32(r + ruleNext)
	}
	if class > 0 && class < 5 && confidence >= loadF(tablesAt+headMinimum) {
		c := tablesAt + headClasses + (class-1)*8
		if load32(c) != 0 && named(c, 1) {
			ranked(0, true)
			puts(lit("class to "))
			return ended(c)
		}
	}
	if named(tablesAt+headDefault, 1) {
		ranked(0, true)
		puts(lit("default "))
		return ended(tablesAt + headDefault)
	}
	ranked(0, true)
	puts(lit("the first"))
	return ended(0)
}
