// Package chunk cuts a document into pieces of a size that an embedding model
// takes, along the document's own structure.
//
// A chunk never crosses a heading of the same or a higher level, and carries
// the path of headings above it, since a paragraph alone often does not say what
// it is about. Tables and code stay whole where they fit; a longer table is cut
// between rows and repeats its header, longer code is cut between lines, longer
// text between sentences, then words, then anywhere. A paragraph that fits a
// chunk is not cut to fill up the one before, unless that is less than half
// full. Sizes are counted by the model's own tokenizer.
package chunk

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"onebit/store/documents/extract"
)

// Options say how large chunks are.
type Options struct {
	Max     int              // tokens of a chunk with its path, as Embedded gives it; at least 16
	Overlap int              // tokens of text repeated from the chunk before, at most Max/2; never over a heading
	Count   func(string) int // tokens of a text
	// Name is the document's. It leads the path where the outermost heading does
	// not say as much: a manual's chapter on cleaning does not say of what.
	Name string
}

// Chunk is a piece of a document.
type Chunk struct {
	Path       []string // headings above it, the outermost first
	Text       string
	Page       int // of its beginning; 0 where there are none
	Start, End int // bytes of the document's text that it covers; of a long table's later pieces without the repeated header
	Tokens     int // of Embedded
}

// Embedded returns what is embedded and searched: the path, then the text.
func (c Chunk) Embedded() string {
	if len(c.Path) == 0 {
		return c.Text
	}
	return strings.Join(c.Path, " > ") + "\n" + c.Text
}

// Split cuts a document. Every chunk has at most o.Max tokens, and every byte
// that is not white space or a heading's is in at least one of them.
func Split(d *extract.Document, o Options) []Chunk {
	o.Max = max(o.Max, 16)
	o.Overlap = max(0, min(o.Overlap, o.Max/2))
	s := &splitter{Options: o}
	if name := strings.Join(strings.Fields(o.Name), " "); name != "" {
		s.path = append(s.path, step{0, name})
	}
	offset := 0
	for _, b := range d.Blocks {
		if b.Kind == extract.Heading {
			s.heading(b, offset)
		} else {
			s.block(b, offset)
		}
		offset += len(b.Text) + len(extract.Separator)
	}
	s.flush()
	return s.chunks
}

// piece is a part of a block that is not cut again.
type piece struct {
	text       string
	prefix     string // repeated header of a table
	join       string // what stands between it and the piece before
	start, end int
	page       int
	tokens     int // without the prefix
	head       int // tokens of the prefix
}

type splitter struct {
	Options
	chunks []Chunk
	path   []step
	budget int // tokens for text under the path
	held   []piece
	size   int    // tokens of held
	bare   *piece // a heading that nothing has followed yet
}

type step struct {
	level int
	text  string
}

// heading ends the chunk and moves the path. A heading without any text below
// it becomes a chunk of its own: a title is worth finding.
func (s *splitter) heading(b extract.Block, offset int) {
	if n := len(s.path); s.bare != nil && b.Level > s.path[n-1].level {
		s.bare = nil // its parts will name it
	}
	s.flush()
	for len(s.path) > 0 && s.path[len(s.path)-1].level >= b.Level {
		s.path = s.path[:len(s.path)-1]
	}
	text := strings.Join(strings.Fields(b.Text), " ")
	if text == "" {
		return
	}
	s.bare = &piece{text: text, start: offset, end: offset + len(b.Text), page: b.Page, tokens: s.Count(text)}
	s.path = append(s.path, step{b.Level, text})
}

// pathTexts returns the headings above the text that fit into a quarter of a
// chunk, the nearest ones first to stay.
func (s *splitter) pathTexts(levels int) (texts []string, tokens int) {
	first := 0
	if len(s.path) > 1 && s.path[0].level == 0 && covers(s.path[1].text, s.path[0].text) {
		first = 1
	}
	from := levels
	for from > first {
		n := s.Count(s.path[from-1].text) + 2
		if tokens+n > s.Max/4 {
			break
		}
		tokens += n
		from--
	}
	for _, p := range s.path[from:levels] {
		texts = append(texts, p.text)
	}
	return texts, tokens
}

// covers tells whether a text has all words of another.
func covers(text, other string) bool {
	letters := func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }
	have := strings.FieldsFunc(strings.ToLower(text), letters)
	for _, w := range strings.FieldsFunc(strings.ToLower(other), letters) {
		if !slices.Contains(have, w) {
			return false
		}
	}
	return true
}

func (s *splitter) block(b extract.Block, offset int) {
	if strings.TrimSpace(b.Text) == "" {
		return
	}
	_, tokens := s.pathTexts(len(s.path))
	s.budget = s.Max - tokens
	s.bare = nil
	pieces := s.pieces(b, offset)
	pieces[0].join = extract.Separator
	all := 0
	for _, p := range pieces {
		all += p.tokens + 1
	}
	if s.size+all > s.budget && all <= s.budget && s.size >= s.budget/2 {
		s.next(all)
	}
	for _, p := range pieces {
		s.add(p)
	}
}

// add puts a piece into the chunk, or ends that and begins another.
func (s *splitter) add(p piece) {
	if len(s.held) > 0 && s.size+p.tokens+1 > s.budget {
		s.next(p.tokens + 1)
	}
	s.hold(p)
}

// next ends the chunk and begins one with the overlap, if that leaves room for
// tokens.
func (s *splitter) next(tokens int) {
	tail := s.tail()
	s.flush()
	for _, t := range tail {
		s.hold(t)
	}
	if s.size+tokens > s.budget {
		s.held, s.size = nil, 0
	}
}

func (s *splitter) hold(p piece) {
	if len(s.held) == 0 {
		s.size = p.head
	}
	s.held = append(s.held, p)
	s.size += p.tokens + 1
}

// tail returns the last pieces that are repeated at the beginning of the next
// chunk.
func (s *splitter) tail() []piece {
	n, from := 0, len(s.held)
	for from > 1 && n+s.held[from-1].tokens <= s.Overlap {
		from--
		n += s.held[from].tokens
	}
	return s.held[from:]
}

// flush ends a chunk.
func (s *splitter) flush() {
	if len(s.held) == 0 {
		if s.bare != nil {
			path, _ := s.pathTexts(len(s.path) - 1)
			s.emit(path, []piece{*s.bare})
			s.bare = nil
		}
		return
	}
	path, _ := s.pathTexts(len(s.path))
	s.emit(path, s.held)
	s.held, s.size = nil, 0
}

// emit makes chunks of pieces. Tokens of pieces do not always add up (a
// tokenizer may see other words at a border), so the sum is checked and the
// pieces are halved until they fit.
func (s *splitter) emit(path []string, pieces []piece) {
	c := Chunk{Path: path, Page: pieces[0].page, Start: pieces[0].start, End: pieces[len(pieces)-1].end}
	var t strings.Builder
	for i, p := range pieces {
		if i == 0 {
			t.WriteString(p.prefix)
		} else {
			t.WriteString(p.join)
		}
		t.WriteString(p.text)
	}
	c.Text = t.String()
	c.Tokens = s.Count(c.Embedded())
	switch {
	case c.Tokens <= s.Max:
		s.chunks = append(s.chunks, c)
	case len(pieces) > 1:
		s.emit(path, pieces[:len(pieces)/2])
		s.emit(path, pieces[len(pieces)/2:])
	case len(path) > 0:
		s.emit(path[1:], pieces)
	case pieces[0].prefix != "":
		pieces[0].prefix = ""
		s.emit(path, pieces)
	default:
		s.emit(path, s.halves(pieces[0]))
	}
}

// halves cuts a piece in its middle, at a rune.
func (s *splitter) halves(p piece) []piece {
	at := len(p.text) / 2
	for at > 0 && !utf8.RuneStart(p.text[at]) {
		at--
	}
	if at == 0 { // one rune: nothing is smaller, and the caller's Max is absurd
		_, at = utf8.DecodeRuneInString(p.text)
	}
	if at == len(p.text) {
		return nil
	}
	a, b := p, p
	a.text, a.end = p.text[:at], p.start+at
	b.text, b.start, b.join = p.text[at:], p.start+at, ""
	return []piece{a, b}
}

// pieces cuts a block into parts that fit a chunk each.
func (s *splitter) pieces(b extract.Block, offset int) []piece {
	whole := piece{text: b.Text, start: offset, end: offset + len(b.Text), page: b.Page}
	whole.tokens = s.Count(b.Text)
	fits := whole.tokens+1 <= s.budget
	switch b.Kind {
	case extract.Table, extract.Code:
		if fits {
			return []piece{whole}
		}
		return s.lines(whole, b.Kind == extract.Table)
	case extract.List:
		return s.lines(whole, false)
	}
	return s.parts(whole, sentences, " ")
}

// lines cuts between lines; each line that is too long is cut as text is.
func (s *splitter) lines(p piece, table bool) []piece {
	var header string
	head := 0
	if first, _, more := strings.Cut(p.text, "\n"); table && more {
		if n := s.Count(first); n <= s.budget/4 {
			header, head = first+"\n", n
		}
	}
	var out []piece
	for at := 0; at < len(p.text); {
		n := strings.IndexByte(p.text[at:], '\n')
		if n < 0 {
			n = len(p.text) - at
		}
		line := s.sub(p, at, at+n)
		at += n + 1
		if strings.TrimSpace(line.text) == "" {
			continue
		}
		line.join = "\n"
		if len(out) > 0 {
			line.prefix, line.head = header, head
		}
		if line.head+line.tokens+1 > s.budget {
			parts := s.parts(line, sentences, " ")
			parts[0].join = "\n"
			out = append(out, parts...)
			continue
		}
		out = append(out, line)
	}
	return out
}

func (s *splitter) sub(p piece, from, to int) piece {
	q := piece{text: p.text[from:to], start: p.start + from, end: p.start + to, page: p.page}
	q.tokens = s.Count(q.text)
	return q
}

// cutter returns where a text may be cut: ends of parts, ascending, the last
// one the text's length.
type cutter func(string) []int

// parts cuts a text at the borders that the cutter gives; a part that is still
// too long is cut at the next smaller kind of border.
func (s *splitter) parts(p piece, cut cutter, join string) []piece {
	var out []piece
	from := 0
	for _, to := range cut(p.text) {
		a, b := trim(p.text, from, to)
		from = to
		if a == b {
			continue
		}
		q := s.sub(p, a, b)
		q.join = join
		if q.tokens+1 <= s.budget {
			out = append(out, q)
			continue
		}
		if join == " " && len(cut(q.text)) == 1 { // one sentence: words
			out = append(out, s.fill(q, words(q.text))...)
			continue
		}
		out = append(out, s.parts(q, cut, join)...)
	}
	return out
}

// fill puts as many parts together as fit, by halving: counting is dear.
func (s *splitter) fill(p piece, ends []int) []piece {
	if p.tokens+1 <= s.budget {
		return []piece{p}
	}
	if len(ends) < 2 {
		if utf8.RuneCountInString(p.text) < 2 {
			return []piece{p}
		}
		var out []piece
		for _, h := range s.halves(p) {
			h.tokens = s.Count(h.text)
			out = append(out, s.fill(h, nil)...)
		}
		return out
	}
	m := len(ends) / 2
	at := ends[m-1]
	a, b := trim(p.text, 0, at)
	left := s.sub(p, a, b)
	left.join = p.join
	c, d := trim(p.text, at, len(p.text))
	right := s.sub(p, c, d)
	right.join = " "
	return append(s.fill(left, words(left.text)), s.fill(right, words(right.text))...)
}

// trim moves the borders of a part over white space.
func trim(t string, from, to int) (int, int) {
	part := t[from:to]
	left := len(part) - len(strings.TrimLeftFunc(part, unicode.IsSpace))
	right := len(strings.TrimRightFunc(part, unicode.IsSpace))
	return from + left, from + max(left, right)
}

// sentences ends a part after a full stop, a question or exclamation mark, or
// their like in other scripts, and after a line feed.
func sentences(t string) []int {
	var ends []int
	for i, r := range t {
		n := i + utf8.RuneLen(r)
		switch r {
		case '\n', '。', '！', '？', '｡', '।', '॥':
			ends = append(ends, n)
		case '.', '!', '?', '…':
			next, _ := utf8.DecodeRuneInString(t[n:])
			if n < len(t) && unicode.IsSpace(next) {
				ends = append(ends, n)
			}
		}
	}
	if len(ends) == 0 || ends[len(ends)-1] < len(t) {
		ends = append(ends, len(t))
	}
	return ends
}

// words ends a part after each run of white space.
func words(t string) []int {
	var ends []int
	space := false
	for i, r := range t {
		if unicode.IsSpace(r) {
			space = true
		} else if space {
			ends = append(ends, i)
			space = false
		}
	}
	return append(ends, len(t))
}
