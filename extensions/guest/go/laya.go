//go:build wasip1

// Package laya is what a module for a box needs, in one file: the request that the box asks about, the decision that it
// is answered, and the functions that the box offers. Copy it beside your code; it needs nothing else.
//
// Build with the standard toolchain:
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags='-s -w' -o policy.wasm .
//
// A module is a main package that exports what it can do, each in one line:
//
//	//go:wasmexport laya_route
//	func route(address, length uint32) uint64 { return laya.Run(address, length, decide) }
//
//	func decide(r *laya.Request) laya.Decision { return laya.To(r.Candidates[0].ID) }
//
//	func main() {}
//
// Only functions that are used are imported, so a module asks for no more than it needs. Texts of a request are views of
// the memory that the box wrote; they live as long as the call. Every call begins from the same memory, so nothing needs
// to be freed and nothing is kept, except by Set and Add.
package laya

import (
	"math"
	"strconv"
	"unsafe"
)

// Request is what the box asks about. Fields that the box did not send are zero.
type Request struct {
	ID, Conversation   string
	Turn               int    // 1 for the first
	API, Model         string // "chat", "messages", …; the model as the client asked
	Tenant, Key        string // whose it is; the id of the API key
	Hour               int    // of the box's day, 0 to 23
	Tokens, Bytes      int    // of the whole prompt, estimated; of the last user message
	Stream, Tools      bool
	Images, JSONAnswer bool
	Headers            []Pair // those that the operator lists, names in lower case
	Head, Tail         string // of the last user message
	Class              string // what the classifier said
	Confidence         float64
	Scores             []Score
	Candidates         []Candidate

	// room that costs no allocation
	candidates [16]Candidate
	headers    [8]Pair
	scores     [8]Score
}

// Candidate is a place that may serve the request.
type Candidate struct {
	ID, Backend, Device, Model string
	Context, Queue             int // tokens; requests that wait
	Cached                     int // tokens of this prompt that it would not have to compute again
	Healthy, Sticky            bool
	Load                       float64 // share of its slots that are busy, 0 to 1
	PromptS, DecodeS           float64 // tokens a second
	Price                      float64 // for a million tokens
}

// Pair is a name with a text.
type Pair struct{ Name, Value string }

// Score is a class with a number.
type Score struct {
	Class string
	Value float64
}

// Header returns a header of the request, by its name in lower case; empty when the box did not send it.
func (r *Request) Header(name string) string {
	for _, h := range r.Headers {
		if h.Name == name {
			return h.Value
		}
	}
	return ""
}

// Decision is the answer. The zero value is no opinion: the box decides by itself.
type Decision struct {
	Action     string // "route", "reject" or "abstain"
	Class      string
	Confidence float64 // 0 to 1
	Scores     []Score
	Candidates []string // offered ids, the best first
	Params     []Pair   // a parameter of the request with its value as JSON
	Headers    []Pair   // of the response; names begin with x-laya-
	RAG        *RAG
	Reject     *Reject
	Reason     string // for people
	TTL        int    // seconds
}

// RAG asks for passages of a document collection. An empty query is the last user message.
type RAG struct {
	Collection string
	TopK       int
	Query      string
}

// Reject turns a client away, with a status from 400 to 499.
type Reject struct {
	Status        int
	Code, Message string
}

// To routes to candidates, the best first.
func To(ids ...string) Decision { return Decision{Action: "route", Candidates: ids} }

// Refuse rejects the request.
func Refuse(status int, code, message string) Decision {
	return Decision{Action: "reject", Reject: &Reject{status, code, message}}
}

// Because adds a reason.
func (d Decision) Because(reason string) Decision { d.Reason = reason; return d }

// Run is the body of laya_route and of laya_classify. What is no request is answered with no opinion.
func Run(address, length uint32, decide func(*Request) Decision) uint64 {
	if length > uint32(len(buffer)) {
		return 0
	}
	request = Request{}
	in := reader{b: buffer[:length]}
	request.read(&in)
	if in.white() != 0 || in.bad || in.p != len(in.b) {
		return 0
	}
	d := decide(&request)
	if d.Action == "" {
		return 0
	}
	answer = d.append(answer[:0])
	return pack(answer)
}

// Configure is the body of laya_configure: it gives the operator's JSON to f, which returns what is wrong with it, or "".
func Configure(address, length uint32, f func(JSON) string) uint64 {
	if length > uint32(len(buffer)) {
		return pack([]byte("the configuration is too long"))
	}
	config := append(make([]byte, 0, length+1), buffer[:length]...)
	in := reader{b: config}
	in.skip()
	why := "the configuration is not JSON"
	if in.white() == 0 && !in.bad && in.p == len(config) {
		why = f(JSON(config))
	}
	if why == "" {
		return 0
	}
	return pack([]byte(why))
}

// what the box writes into, what a call is about, and what it is answered with
var (
	buffer  [64<<10 + 1]byte
	request Request
	answer  = make([]byte, 0, 4<<10)
)

//go:wasmexport laya_abi_v1
func marker() {}

//go:wasmexport laya_buffer
func reserve(n uint32) uint32 {
	if n == 0 || n > uint32(len(buffer)) {
		return 0
	}
	return uint32(uintptr(unsafe.Pointer(&buffer)))
}

func pack(b []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))<<32 | uint64(len(b))
}

// --- reading ---

// reader walks over JSON. What it returns after bad is set means nothing.
type reader struct {
	b   []byte
	p   int
	bad bool
}

// white skips white space and returns what comes, or 0 at the end.
func (r *reader) white() byte {
	if r.p < len(r.b) && r.b[r.p] > ' ' {
		return r.b[r.p]
	}
	return r.blank()
}

func (r *reader) blank() byte {
	for r.p < len(r.b) {
		if c := r.b[r.p]; c > ' ' {
			return c
		} else if c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			r.bad = true
		}
		r.p++
	}
	return 0
}

func (r *reader) take(c byte) bool {
	if r.white() != c || r.bad {
		r.bad = true
		return false
	}
	r.p++
	return true
}

// null reads one if it is there.
func (r *reader) null() bool {
	if r.white() != 'n' {
		return false
	}
	r.word("null")
	return true
}

func (r *reader) word(w string) {
	if r.bad || len(r.b)-r.p < len(w) || string(r.b[r.p:r.p+len(w)]) != w {
		r.bad = true
		return
	}
	r.p += len(w)
}

// more steps to the n-th part of an object or list that was opened; false after the last one.
func (r *reader) more(n int, end byte) bool {
	c := r.white()
	switch {
	case r.bad || c == 0:
		r.bad = true
		return false
	case c == end:
		r.p++
		return false
	case n > 0:
		if !r.take(',') || r.white() == end {
			r.bad = true
		}
	}
	return !r.bad
}

// member reads the n-th key of an object that was opened. A call costs much in a module that Go has made, so what a box
// writes, which has no white space and no escapes in keys, is read here at once.
func (r *reader) member(n int) (key string, ok bool) {
	b, p := r.b, r.p
	if n > 0 && p < len(b) && b[p] == ',' {
		p++
	}
	if (n == 0 || p > r.p) && p < len(b) && b[p] == '"' && !r.bad {
		p++
		from := p
		for p < len(b) && b[p] != '"' && b[p] != '\\' && b[p] >= ' ' {
			p++
		}
		if p+1 < len(b) && b[p] == '"' && b[p+1] == ':' {
			r.p = p + 2
			return unsafe.String(&b[from], p-from), true
		}
	}
	if !r.more(n, '}') {
		return "", false
	}
	key = r.text()
	return key, r.take(':')
}

// open begins an object or list; false for null.
func (r *reader) open(c byte) bool { return !r.null() && r.take(c) }

// text reads a string and decodes it where it stands.
func (r *reader) text() string {
	if r.white() != '"' || r.bad {
		r.bad = !r.null() || r.bad
		return ""
	}
	b, p := r.b, r.p+1
	from := p
	for p < len(b) && b[p] != '"' && b[p] != '\\' && b[p] >= ' ' {
		p++
	}
	r.p = p
	if p < len(b) && b[p] == '"' {
		r.p++
		return unsafe.String(&b[from], p-from)
	}
	return r.escaped(from)
}

// escaped goes on at p with a string that begins at from.
func (r *reader) escaped(from int) string {
	to := r.p
	for r.p < len(r.b) {
		c := r.b[r.p]
		r.p++
		switch {
		case c == '"':
			return unsafe.String(unsafe.SliceData(r.b[from:]), to-from)
		case c < ' ':
			r.bad = true
			return ""
		case c == '\\':
			to += copy(r.b[to:], string(r.escape()))
		default:
			r.b[to] = c
			to++
		}
	}
	r.bad = true
	return ""
}

// escape reads what follows a backslash.
func (r *reader) escape() rune {
	if r.p >= len(r.b) {
		r.bad = true
		return 0
	}
	c := r.b[r.p]
	r.p++
	switch c {
	case '"', '\\', '/':
		return rune(c)
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'u':
		u := r.hex()
		if u>>10 == 0xD800>>10 && r.p+1 < len(r.b) && r.b[r.p] == '\\' && r.b[r.p+1] == 'u' {
			back := r.p
			r.p += 2
			if low := r.hex(); low>>10 == 0xDC00>>10 {
				return 0x10000 + (u-0xD800)<<10 + (low - 0xDC00)
			}
			r.p = back
		}
		return u
	}
	r.bad = true
	return 0
}

func (r *reader) hex() (u rune) {
	for range 4 {
		c := byte(0)
		if r.p < len(r.b) {
			c = r.b[r.p]
		}
		switch {
		case '0' <= c && c <= '9':
			u = u<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			u = u<<4 | rune(c|0x20-'a'+10)
		default:
			r.bad = true
		}
		r.p++
	}
	return u
}

// powers are those of ten that a float64 holds exactly, as far as they are needed.
var powers = [16]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

func (r *reader) number() float64 {
	b, p := r.b, r.p
	var v uint64
	digits, point := 0, -1
	for ; p < len(b) && digits < 16; p++ {
		if c := b[p]; '0' <= c && c <= '9' {
			v = v*10 + uint64(c-'0')
			digits++
		} else if c == '.' && point < 0 && digits > 0 {
			point = digits
		} else {
			break
		}
	}
	if digits == 0 || digits > 15 || point == digits || p < len(b) && (b[p] == '.' || b[p]|0x20 == 'e') {
		return r.parsed()
	}
	r.p = p
	if point < 0 {
		return float64(v)
	}
	return float64(v) / powers[digits-point]
}

// parsed reads a number that is not a plain one.
func (r *reader) parsed() float64 {
	if r.null() {
		return 0
	}
	from := r.p
	for r.p < len(r.b) && (r.b[r.p] <= '9' && r.b[r.p] >= '+' && r.b[r.p] != ',' && r.b[r.p] != '/' || r.b[r.p]|0x20 == 'e') {
		r.p++
	}
	f, err := strconv.ParseFloat(string(r.b[from:r.p]), 64)
	if err != nil {
		r.bad = true
	}
	return f
}

func (r *reader) whole() int { return int(min(max(r.number(), -1<<53), 1<<53)) }

func (r *reader) truth() bool {
	b, p := r.b, r.p
	if p+4 <= len(b) && b[p] == 't' && b[p+1] == 'r' && b[p+2] == 'u' && b[p+3] == 'e' {
		r.p += 4
		return true
	}
	if p+5 <= len(b) && b[p] == 'f' && b[p+1] == 'a' && b[p+2] == 'l' && b[p+3] == 's' && b[p+4] == 'e' {
		r.p += 5
		return false
	}
	switch r.white() {
	case 't':
		r.word("true")
		return true
	case 'f':
		r.word("false")
	default:
		r.bad = !r.null() || r.bad
	}
	return false
}

// skip passes over a value without looking into it more than is needed to find its end.
func (r *reader) skip() {
	for depth := 0; ; {
		c := r.white()
		switch {
		case r.bad || c == 0:
			r.bad = true
			return
		case c == '"':
			r.pass()
		case c == '{' || c == '[':
			depth++
			r.p++
		case c == '}' || c == ']':
			depth--
			r.p++
		case (c == ',' || c == ':') && depth > 0:
			r.p++
			continue
		case c == 't' || c == 'f':
			r.truth()
		case c == 'n':
			r.null()
		default:
			r.number()
		}
		if depth <= 0 {
			r.bad = r.bad || depth < 0
			return
		}
	}
}

// pass passes over a string.
func (r *reader) pass() {
	for r.p++; r.p < len(r.b) && r.b[r.p] != '"'; r.p++ {
		if r.b[r.p] == '\\' {
			r.p++
		}
	}
	r.p++
	r.bad = r.bad || r.p > len(r.b)
}

func (q *Request) read(r *reader) {
	if !r.take('{') {
		return
	}
	for n := 0; ; n++ {
		key, ok := r.member(n)
		if !ok {
			return
		}
		switch key {
		case "id":
			q.ID = r.text()
		case "conversation":
			q.Conversation = r.text()
		case "turn":
			q.Turn = r.whole()
		case "api":
			q.API = r.text()
		case "model":
			q.Model = r.text()
		case "tenant":
			q.Tenant = r.text()
		case "key":
			q.Key = r.text()
		case "hour":
			q.Hour = r.whole()
		case "tokens":
			q.Tokens = r.whole()
		case "bytes":
			q.Bytes = r.whole()
		case "flags":
			q.flags(r)
		case "headers":
			q.Headers = r.pairs(q.headers[:0])
		case "head":
			q.Head = r.text()
		case "tail":
			q.Tail = r.text()
		case "class":
			q.Class = r.text()
		case "confidence":
			q.Confidence = r.number()
		case "scores":
			q.Scores = r.scores(q.scores[:0])
		case "candidates":
			q.offered(r)
		default:
			r.skip()
		}
	}
}

func (q *Request) flags(r *reader) {
	if !r.open('{') {
		return
	}
	for n := 0; ; n++ {
		key, ok := r.member(n)
		if !ok {
			return
		}
		switch key {
		case "stream":
			q.Stream = r.truth()
		case "tools":
			q.Tools = r.truth()
		case "images":
			q.Images = r.truth()
		case "json":
			q.JSONAnswer = r.truth()
		default:
			r.skip()
		}
	}
}

func (q *Request) offered(r *reader) {
	q.Candidates = q.candidates[:0]
	if !r.open('[') {
		return
	}
	for n := 0; r.more(n, ']'); n++ {
		q.Candidates = append(q.Candidates, Candidate{})
		q.Candidates[n].read(r)
	}
}

func (c *Candidate) read(r *reader) {
	if !r.take('{') {
		return
	}
	for n := 0; ; n++ {
		key, ok := r.member(n)
		if !ok {
			return
		}
		switch key {
		case "id":
			c.ID = r.text()
		case "backend":
			c.Backend = r.text()
		case "device":
			c.Device = r.text()
		case "model":
			c.Model = r.text()
		case "ctx":
			c.Context = r.whole()
		case "healthy":
			c.Healthy = r.truth()
		case "queue":
			c.Queue = r.whole()
		case "pp_tps":
			c.PromptS = r.number()
		case "tg_tps":
			c.DecodeS = r.number()
		case "load":
			c.Load = r.number()
		case "cached":
			c.Cached = r.whole()
		case "sticky":
			c.Sticky = r.truth()
		case "price":
			c.Price = r.number()
		default:
			r.skip()
		}
	}
}

func (r *reader) pairs(list []Pair) []Pair {
	if r.open('{') {
		for n := 0; ; n++ {
			key, ok := r.member(n)
			if !ok {
				break
			}
			list = append(list, Pair{key, r.text()})
		}
	}
	return list
}

func (r *reader) scores(list []Score) []Score {
	if r.open('{') {
		for n := 0; ; n++ {
			key, ok := r.member(n)
			if !ok {
				break
			}
			list = append(list, Score{key, r.number()})
		}
	}
	return list
}

// JSON is a value of a configuration, or of anything else that is JSON. What is not there is empty, and the zero value of
// whatever is asked for.
type JSON []byte

// Get returns a member of an object.
func (j JSON) Get(name string) (found JSON) {
	j.Each(func(key string, v JSON) {
		if key == name {
			found = v
		}
	})
	return found
}

// Each calls f for the members of an object or, with empty keys, for the items of a list.
func (j JSON) Each(f func(key string, v JSON)) {
	r := reader{b: append([]byte(nil), j...)} // a key is decoded where it stands
	switch r.white() {
	case '{':
		r.p++
		for n := 0; ; n++ {
			key, ok := r.member(n)
			if !ok {
				return
			}
			f(key, r.value(j))
		}
	case '[':
		r.p++
		for n := 0; r.more(n, ']'); n++ {
			f("", r.value(j))
		}
	}
}

// value passes over a value and returns it as it stands in j.
func (r *reader) value(j JSON) JSON {
	r.white()
	from := r.p
	if r.skip(); r.bad {
		return nil
	}
	return j[from:r.p]
}

// Text returns a string.
func (j JSON) Text() string {
	r := reader{b: append([]byte(nil), j...)}
	if r.white() != '"' {
		return ""
	}
	return r.text()
}

// Texts returns the strings of a list.
func (j JSON) Texts() (list []string) {
	j.Each(func(_ string, v JSON) { list = append(list, v.Text()) })
	return list
}

// Number returns a number.
func (j JSON) Number() float64 {
	r := reader{b: j}
	if c := r.white(); c != '-' && (c < '0' || c > '9') {
		return 0
	}
	return r.number()
}

// Truth tells whether it is true.
func (j JSON) Truth() bool {
	r := reader{b: j}
	return r.white() == 't' && r.truth()
}

// --- writing ---

func (d *Decision) append(b []byte) []byte {
	b = appendText(append(b, `{"v":1,"action":`...), d.Action)
	if d.Class != "" {
		b = appendText(append(b, `,"class":`...), d.Class)
	}
	if d.Confidence != 0 {
		b = appendNumber(append(b, `,"confidence":`...), d.Confidence)
	}
	for i, s := range d.Scores {
		b = appendNumber(appendKey(b, "scores", i, s.Class), s.Value)
	}
	b = closed(b, len(d.Scores), '}')
	for i, id := range d.Candidates {
		if i == 0 {
			b = append(b, `,"candidates":[`...)
		} else {
			b = append(b, ',')
		}
		b = appendText(b, id)
	}
	b = closed(b, len(d.Candidates), ']')
	for i, p := range d.Params {
		b = append(appendKey(b, "params", i, p.Name), p.Value...)
	}
	b = closed(b, len(d.Params), '}')
	for i, h := range d.Headers {
		b = appendText(appendKey(b, "headers", i, h.Name), h.Value)
	}
	b = closed(b, len(d.Headers), '}')
	if g := d.RAG; g != nil {
		b = appendText(append(b, `,"rag":{"collection":`...), g.Collection)
		b = strconv.AppendInt(append(b, `,"top_k":`...), int64(g.TopK), 10)
		if g.Query != "" {
			b = appendText(append(b, `,"query":`...), g.Query)
		}
		b = append(b, '}')
	}
	if j := d.Reject; j != nil {
		b = strconv.AppendInt(append(b, `,"reject":{"status":`...), int64(j.Status), 10)
		b = appendText(append(b, `,"code":`...), j.Code)
		b = append(appendText(append(b, `,"message":`...), j.Message), '}')
	}
	if d.Reason != "" {
		b = appendText(append(b, `,"reason":`...), d.Reason)
	}
	if d.TTL != 0 {
		b = strconv.AppendInt(append(b, `,"ttl_s":`...), int64(d.TTL), 10)
	}
	return append(b, '}')
}

// appendKey opens a member at its first key and separates the others.
func appendKey(b []byte, member string, i int, key string) []byte {
	if i == 0 {
		b = append(append(append(b, `,"`...), member...), `":{`...)
	} else {
		b = append(b, ',')
	}
	return append(appendText(b, key), ':')
}

func closed(b []byte, n int, end byte) []byte {
	if n > 0 {
		b = append(b, end)
	}
	return b
}

func appendNumber(b []byte, v float64) []byte {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return append(b, "null"...) // which the box refuses, and says so
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}

// appendText writes a string. What is not UTF-8 is replaced.
func appendText(b []byte, s string) []byte {
	const digits = "0123456789abcdef"
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(append(b, s[from:i]...), '\\', c)
		case c < ' ':
			b = append(append(b, s[from:i]...), '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		case c >= 0x80:
			return append(appendRunes(append(b, s[from:i]...), s[i:]), '"')
		default:
			continue
		}
		from = i + 1
	}
	return append(append(b, s[from:]...), '"')
}

// appendRunes goes on with text that is not ASCII alone.
func appendRunes(b []byte, s string) []byte {
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', byte(c))
		case c < ' ':
			b = append(b, '\\', 'u', '0', '0', "01"[c>>4], "0123456789abcdef"[c&15])
		default:
			b = append(b, string(c)...)
		}
	}
	return b
}

// --- what the box offers ---

// Code is what a function of the box answers when it cannot do what it was asked. It is an error.
type Code int32

// The codes.
const (
	Invalid     Code = -1 // an argument is wrong
	Missing     Code = -2 // nothing has this name or key
	Full        Code = -3 // a quota is used up
	Unavailable Code = -4 // nobody can do it now, or in time
	Denied      Code = -5 // not at this moment
)

// Error names the code.
func (c Code) Error() string {
	switch c {
	case Invalid:
		return "invalid"
	case Missing:
		return "missing"
	case Full:
		return "full"
	case Unavailable:
		return "unavailable"
	case Denied:
		return "denied"
	}
	return "code " + strconv.Itoa(int(c))
}

func result(n int32) (int, error) {
	if n < 0 {
		return 0, Code(n)
	}
	return int(n), nil
}

// Level says how much a line of the log matters.
type Level int32

// The levels.
const (
	Debug Level = iota
	Info
	Warn
	Error
)

// Part of a prompt.
type Part int32

// The parts.
const (
	LastUser Part = iota // the last user message
	System               // the system prompt
	Whole                // every message in order
)

//go:wasmimport laya_v1 log
func hostLog(level int32, text string)

//go:wasmimport laya_v1 metric
func hostMetric(id int32, v float64) int32

//go:wasmimport laya_v1 now_ms
func hostNow() int64

//go:wasmimport laya_v1 tokens
func hostTokens(text string) int32

//go:wasmimport laya_v1 embed
func hostEmbed(text string, out unsafe.Pointer, size uint32) int32

//go:wasmimport laya_v1 decide
func hostDecide(question string, out unsafe.Pointer, size uint32) int32

//go:wasmimport laya_v1 text
func hostText(part, offset int32, out unsafe.Pointer, size uint32) int32

//go:wasmimport laya_v1 kv_get
func hostGet(key string, out unsafe.Pointer, size uint32) int32

//go:wasmimport laya_v1 kv_set
func hostSet(key, value string, seconds uint32) int32

//go:wasmimport laya_v1 kv_add
func hostAdd(key string, delta int64, seconds uint32, out unsafe.Pointer) int32

//go:wasmimport laya_v1 asset
func hostAsset(name string, offset uint32, out unsafe.Pointer, size uint32) int32

func place(b []byte) (unsafe.Pointer, uint32) {
	return unsafe.Pointer(unsafe.SliceData(b)), uint32(len(b))
}

// Log writes a line to the module's log.
func Log(level Level, text string) { hostLog(int32(level), text) }

// Metric adds v to the metric that has this place in the manifest's list.
func Metric(id int, v float64) error { _, err := result(hostMetric(int32(id), v)); return err }

// Now is the time in milliseconds since 1970, the same during a call.
func Now() int64 { return hostNow() }

// Tokens counts the tokens of a text.
func Tokens(text string) (int, error) { return result(hostTokens(text)) }

// Embed writes the embedding of a text and returns how many numbers it has. It may be called once in a call.
func Embed(text string, out []float32) (int, error) {
	return result(hostEmbed(text, unsafe.Pointer(unsafe.SliceData(out)), uint32(4*len(out))))
}

// Choice is what a decision model chose.
type Choice struct {
	Name       string
	Confidence float64
	Scores     []Score
}

// Decide asks the box's decision model which criterion a text meets: names with their definitions. It may be called once
// in a call.
func Decide(text string, criteria []Pair) (c Choice, err error) {
	b := appendText([]byte(`{"text":`), text)
	b = append(b, `,"criteria":{`...)
	for i, p := range criteria {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(append(appendText(b, p.Name), ':'), p.Value)
	}
	b = append(b, "}}"...)
	out := make([]byte, 4<<10)
	at, size := place(out)
	n, err := result(hostDecide(unsafe.String(unsafe.SliceData(b), len(b)), at, size))
	if err != nil || n > len(out) {
		return c, err
	}
	j := JSON(out[:n])
	c.Name, c.Confidence = j.Get("choice").Text(), j.Get("confidence").Number()
	j.Get("scores").Each(func(name string, v JSON) { c.Scores = append(c.Scores, Score{name, v.Number()}) })
	return c, nil
}

// Text copies a part of the prompt from an offset on and returns how many bytes that were; 0 at the end.
func Text(part Part, offset int, out []byte) (int, error) {
	at, size := place(out)
	return result(hostText(int32(part), int32(offset), at, size))
}

// Get returns what is stored under a key; at most most bytes of it.
func Get(key string, most int) ([]byte, error) {
	out := make([]byte, most)
	at, size := place(out)
	n, err := result(hostGet(key, at, size))
	if n > most {
		return nil, Full
	}
	return out[:n], err
}

// Set stores a value for some seconds, for ever with 0.
func Set(key, value string, seconds int) error {
	_, err := result(hostSet(key, value, uint32(seconds)))
	return err
}

// Add adds to a number that is stored and returns the sum.
func Add(key string, delta int64, seconds int) (sum int64, err error) {
	_, err = result(hostAdd(key, delta, uint32(seconds), unsafe.Pointer(&sum)))
	return sum, err
}

// Asset copies from a file that was uploaded beside the module; 0 at its end. Only in Configure, and in the first call.
func Asset(name string, offset int, out []byte) (int, error) {
	at, size := place(out)
	return result(hostAsset(name, uint32(offset), at, size))
}
