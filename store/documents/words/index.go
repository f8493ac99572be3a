package words

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"math"
	"slices"
	"sync"
)

const (
	k1         = 1.2
	b          = 0.75
	leastIDF   = 1e-6 // of a word that is in more than half of all passages
	pathWeight = 2    // of a word in the headings
	maxTF      = 255
	maxLength  = math.MaxUint16
)

// Text is a passage.
type Text struct {
	ID   int64
	Path string // its headings
	Body string
}

// Hit is a passage that was found.
type Hit struct {
	ID    int64
	Score float64
}

// Index holds passages. Its methods may be called from several goroutines.
type Index struct {
	seed maphash.Seed

	mu      sync.RWMutex
	lists   map[token]*list
	ids     []int64  // ascending, by row
	lengths []uint16 // in tokens, by row
	total   int64    // tokens of all rows
	dead    []uint64 // a bit for each row
	deads   int
	cut     cutter
	seen    map[token]int // of the passage that is put in

	scores sync.Pool // *sums
}

// list is where one word is: for each row its distance to the row before, and
// how often the word is there where that is more than once.
type list struct {
	data []byte
	rows int
	last uint32
}

// sums are the scores of one search by row, and the rows that have one.
type sums struct {
	score   []float32
	touched []uint32
}

// New returns an empty index.
func New() *Index {
	x := &Index{seed: maphash.MakeSeed(), lists: map[token]*list{}, seen: map[token]int{}}
	x.cut.seed = x.seed
	return x
}

// Put adds a passage and reports whether it could: ids must come in ascending
// order.
func (x *Index) Put(t Text) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if n := len(x.ids); n > 0 && x.ids[n-1] >= t.ID {
		return false
	}
	row := uint32(len(x.ids))
	clear(x.seen)
	length := 0
	x.cut.each(t.Path, func(t token) { length++; x.seen[t] += pathWeight })
	x.cut.each(t.Body, func(t token) { length++; x.seen[t]++ })
	for t, n := range x.seen {
		l := x.lists[t]
		if l == nil {
			l = &list{}
			x.lists[t] = l
		}
		l.add(row, n)
	}
	x.ids = append(x.ids, t.ID)
	x.lengths = append(x.lengths, uint16(min(length, maxLength)))
	x.total += int64(min(length, maxLength))
	if int(row)/64 >= len(x.dead) {
		x.dead = append(x.dead, 0)
	}
	return true
}

func (l *list) add(row uint32, n int) {
	step := row - l.last // of the first row: the row itself
	if n == 1 {
		l.data = binary.AppendUvarint(l.data, uint64(step)<<1)
	} else {
		l.data = append(binary.AppendUvarint(l.data, uint64(step)<<1|1), byte(min(n, maxTF)))
	}
	l.rows++
	l.last = row
}

// each calls f with the rows of a list, and how often the word is there.
func (l *list) each(f func(row uint32, n byte)) {
	row := uint32(0)
	for data := l.data; len(data) > 0; {
		v, size := uint64(data[0]), 1
		if v >= 0x80 {
			v, size = binary.Uvarint(data)
		}
		n := byte(1)
		if v&1 == 1 {
			n = data[size]
			size++
		}
		row += uint32(v >> 1)
		data = data[size:]
		f(row, n)
	}
}

// Trim gives back memory that growing took and that nothing is in.
func (x *Index) Trim() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.trim()
}

func (x *Index) trim() {
	all := 0
	for _, l := range x.lists {
		all += len(l.data)
	}
	arena := make([]byte, 0, all) // one piece in place of many
	for _, l := range x.lists {
		from := len(arena)
		arena = append(arena, l.data...)
		l.data = arena[from:len(arena):len(arena)]
	}
	x.ids, x.lengths = slices.Clip(x.ids), slices.Clip(x.lengths)
}

// Bytes is about what the index takes.
func (x *Index) Bytes() int64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	const perWord = 80 // in the map, and its list
	n := int64(len(x.lists))*perWord + 10*int64(len(x.ids))
	for _, l := range x.lists {
		n += int64(cap(l.data))
	}
	return n
}

// Len is how many passages there are.
func (x *Index) Len() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.ids) - x.deads
}

// Delete takes out the passages whose ids are in a run.
func (x *Index) Delete(first, last int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	from, _ := slices.BinarySearch(x.ids, first)
	for row := from; row < len(x.ids) && x.ids[row] <= last; row++ {
		if bit := uint64(1) << (row % 64); x.dead[row/64]&bit == 0 {
			x.dead[row/64] |= bit
			x.deads++
		}
	}
	if x.deads > len(x.ids)/8 {
		x.compact()
	}
}

// settle takes the lock for reading, after what was deleted is out of every list:
// it would weigh on how rare a word is.
func (x *Index) settle() {
	x.mu.RLock()
	if x.deads == 0 {
		return
	}
	x.mu.RUnlock()
	x.mu.Lock()
	x.compact()
	x.mu.Unlock()
	x.mu.RLock()
}

// compact takes what was deleted out of every list.
func (x *Index) compact() {
	if x.deads == 0 {
		return
	}
	moved := make([]uint32, len(x.ids))
	ids, lengths := x.ids[:0], x.lengths[:0]
	x.total = 0
	for row, id := range x.ids {
		moved[row] = uint32(len(ids))
		if !x.isDead(uint32(row)) {
			length := x.lengths[row]
			ids, lengths = append(ids, id), append(lengths, length)
			x.total += int64(length)
		}
	}
	for t, l := range x.lists {
		var kept list
		l.each(func(row uint32, n byte) {
			if !x.isDead(row) {
				kept.add(moved[row], int(n))
			}
		})
		if kept.rows == 0 {
			delete(x.lists, t)
			continue
		}
		*l = kept
	}
	x.ids, x.lengths, x.deads = ids, lengths, 0
	x.dead = make([]uint64, (len(ids)+63)/64)
	x.trim()
}

func (x *Index) isDead(row uint32) bool { return x.dead[row/64]>>(row%64)&1 == 1 }

// Word is a word of a question as the index knows it.
type Word struct {
	token token
	// Passages is how many have it.
	Passages int
}

// Words looks a question's term up. None, or several, is no word of this index.
func (x *Index) Words(term string) []Word {
	c := cutter{seed: x.seed}
	var out []Word
	x.settle()
	defer x.mu.RUnlock()
	c.each(term, func(t token) {
		w := Word{token: t}
		if l := x.lists[t]; l != nil {
			w.Passages = l.rows
		}
		out = append(out, w)
	})
	return out
}

// Query is what to search for.
type Query struct {
	Words []Word // of this index
	// More are scores of passages that something else found; they count with
	// those of the words.
	More []Hit
	K    int
	// Allow, if it is set, tells which passages may be found.
	Allow func(id int64) bool
}

// Search returns the best passages, the best first; equal ones by id.
func (x *Index) Search(q Query) []Hit {
	x.settle()
	defer x.mu.RUnlock()
	if len(x.ids) == 0 || q.K < 1 {
		return nil
	}
	s := x.clean()
	defer x.scores.Put(s)
	mean := float32(x.total) / float32(len(x.ids))
	for _, w := range q.Words {
		if l := x.lists[w.token]; l != nil {
			x.add(s, l, mean)
		}
	}
	for _, h := range q.More {
		if row, found := slices.BinarySearch(x.ids, h.ID); found {
			s.note(uint32(row), float32(h.Score))
		}
	}
	return x.best(s, q)
}

// clean returns sums that are all zero.
func (x *Index) clean() *sums {
	s, ok := x.scores.Get().(*sums)
	if !ok {
		s = &sums{}
	}
	for _, row := range s.touched {
		s.score[row] = 0
	}
	s.touched = s.touched[:0]
	if len(s.score) < len(x.ids) {
		s.score = make([]float32, len(x.ids)+len(x.ids)/8)
	}
	return s
}

func (s *sums) note(row uint32, score float32) {
	if s.score[row] == 0 {
		s.touched = append(s.touched, row)
	}
	s.score[row] += score
}

// add adds what a word gives to each passage that has it.
func (x *Index) add(s *sums, l *list, mean float32) {
	all, n := float64(len(x.ids)), float64(l.rows)
	idf := float32(math.Log((all - n + 0.5) / (n + 0.5)))
	if idf <= 0 {
		idf = leastIDF
	}
	const flat, slope = k1 * (1 - b), k1 * b
	perToken := float32(slope) / mean
	row := uint32(0)
	for data := l.data; len(data) > 0; { // as list.each; a call for each row would take as long as all the rest
		v, size := uint64(data[0]), 1
		if v >= 0x80 {
			v, size = binary.Uvarint(data)
		}
		f := float32(1)
		if v&1 == 1 {
			f = float32(data[size])
			size++
		}
		row += uint32(v >> 1)
		data = data[size:]
		s.note(row, idf*(f*(k1+1))/(f+flat+perToken*float32(x.lengths[row])))
	}
}

// best picks the best rows.
func (x *Index) best(s *sums, q Query) []Hit {
	order := func(a, b Hit) int { return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.ID, b.ID)) }
	out := make([]Hit, 0, 2*q.K)
	floor := float32(0)
	for _, row := range s.touched {
		score := s.score[row]
		if score < floor || x.isDead(row) {
			continue
		}
		id := x.ids[row]
		if q.Allow != nil && !q.Allow(id) {
			continue
		}
		if out = append(out, Hit{id, float64(score)}); len(out) == cap(out) {
			slices.SortFunc(out, order)
			out = out[:q.K]
			floor = float32(out[q.K-1].Score)
		}
	}
	slices.SortFunc(out, order)
	return out[:min(len(out), q.K)]
}
