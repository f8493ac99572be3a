package tokenizer

import (
	"math/bits"
	"math/rand/v2"
	"strings"
	"unicode/utf8"
)

// bpe encodes by byte-pair encoding: merges in the order in which they were
// learnt. Symbols start as bytes or, when the vocabulary is raw, as characters.
type bpe struct {
	pre     preTokenizer
	pieces  *symbols
	split   splitter
	merges  merges
	starts  [256]int32 // symbol of each byte
	escapes [256]int32 // token <0xNN> of each byte
	cuts    cuts       // raw: where a piece may be cut
	words   *cache
	pool    *mergers
}

func newBPE(v *vocabulary) (*bpe, *symbols, error) {
	spell := byteSpelling()
	if v.pre.raw {
		spell = spellSpaces
	}
	pieces, err := newPieces(v, spell)
	if err != nil {
		return nil, nil, err
	}
	b := &bpe{pre: v.pre, pieces: pieces, words: newCache(), pool: newMergers()}
	b.split = splitter{classes: newClasses(), stages: v.pre.stages}
	b.escapes = escapeTokens(v)
	list, ok := v.file.Strings(prefix + "merges")
	if name, _ := v.file.String(prefix + "pre"); !ok && (v.has("merges") || name != "kimi-k2") {
		return nil, nil, refuse("merges", "missing or not an array of strings")
	}
	b.merges = newMerges(len(list))
	var buf []byte
	for i, m := range list {
		if buf, err = b.learn(i, m, spell, buf[:0]); err != nil {
			return nil, nil, err
		}
	}
	for i := range b.starts {
		b.starts[i] = pieces.find(string([]byte{byte(i)}))
	}
	return b, pieces, nil
}

// learn adds merge number i, which reads "left right". It returns buf, which
// it works in.
func (b *bpe) learn(i int, merge string, spell spelling, buf []byte) ([]byte, error) {
	at := -1
	if merge != "" {
		at = strings.IndexByte(merge[1:], ' ') + 1
	}
	if at < 1 || at+1 >= len(merge) {
		return buf, refuse("merges", "merge %d, %.80q, has not two parts", i, merge)
	}
	buf, ok := spell(buf, merge[:at])
	n := len(buf)
	buf, ok2 := spell(buf, merge[at+1:])
	if !ok || !ok2 {
		return buf, nil // no text can hold it
	}
	left, right := b.pieces.intern(buf[:n]), b.pieces.intern(buf[n:])
	b.merges.add(left, right, uint32(i), b.pieces.intern(buf))
	if b.pre.raw {
		b.cuts.join(buf[n-1], buf[n])
	}
	return buf, nil
}

// escapeTokens returns the tokens <0x00> to <0xFF>, none where there is none.
func escapeTokens(v *vocabulary) (ids [256]int32) {
	for i := range ids {
		ids[i] = none
	}
	for i, text := range v.texts {
		if c, ok := byteOf(text); ok {
			ids[c] = int32(i)
		}
	}
	return ids
}

func (b *bpe) encode(text string, _ bool, out []int32) []int32 {
	if !b.pre.raw {
		b.split.split(text, func(w string) { out = b.word(w, out) })
		return out
	}
	b.split.split(strings.ReplaceAll(text, metaspace, " "), func(line string) {
		if line[0] == '\n' && b.pre.feeds {
			if id := b.pieces.find(line); id != none && b.pieces.token(id) != none {
				out = append(out, b.pieces.token(id))
				return
			}
		}
		if b.pre.metaspace && line[0] != '\n' && line[0] != ' ' {
			line = " " + line
		}
		for line != "" {
			n := b.cuts.next(line)
			if b.pre.metaspace {
				n = nextSpace(line)
			}
			out = b.word(line[:n], out)
			line = line[n:]
		}
	})
	return out
}

// nextSpace returns where the second word of s begins, each space beginning
// one.
func nextSpace(s string) int {
	if n := strings.IndexByte(s[1:], ' '); n >= 0 {
		return n + 1
	}
	return len(s)
}

// word appends the tokens of a piece.
func (b *bpe) word(w string, out []int32) []int32 {
	return b.words.encode(w, out, b.merge)
}

func (b *bpe) merge(w string, out []int32) []int32 {
	if b.pre.whole {
		if id := b.pieces.find(w); id != none && b.pieces.token(id) != none {
			return append(out, b.pieces.token(id))
		}
	}
	m := b.pool.get(w)
	defer b.pool.put(m)
	if b.pre.raw {
		for i := 0; i < len(w); {
			_, n := utf8.DecodeRuneInString(w[i:])
			m.add(b.pieces.find(w[i:i+n]), i)
			i += n
		}
	} else {
		for i := range len(w) {
			m.add(b.starts[w[i]], i)
		}
	}
	m.run(b)
	for i := int32(0); i != none; i = m.next[i] {
		out = b.emit(m.ids[i], w[m.start[i]:m.end(i)], out)
	}
	return out
}

// pair makes b a pairing.
func (b *bpe) pair(m *merger, left, right int32) (key uint32, into int32, ok bool) {
	return b.merges.find(m.ids[left], m.ids[right])
}

// emit appends the token of a symbol, or tokens for its bytes when it is none.
func (b *bpe) emit(id int32, text string, out []int32) []int32 {
	if id != none {
		if t := b.pieces.token(id); t != none {
			return append(out, t)
		}
	}
	for i := range len(text) {
		t := b.escapes[text[i]]
		if s := b.starts[text[i]]; !b.pre.raw {
			if t = none; s != none {
				t = b.pieces.token(s)
			}
		}
		if t != none {
			out = append(out, t)
		}
	}
	return out
}

// merges maps pairs of symbols to their rank and to what they make, by open
// addressing.
type merges struct {
	slots []mergeSlot
	seed  uint64
}

type mergeSlot struct {
	pair uint64 // left symbol + 1 in the upper half, right symbol in the lower; 0 where free
	rank uint32
	into int32
}

func newMerges(n int) merges {
	size := 1024
	for size < n+n/2 {
		size *= 2
	}
	return merges{slots: make([]mergeSlot, size), seed: rand.Uint64()}
}

func (t *merges) slot(pair uint64) int {
	hi, lo := bits.Mul64(pair^t.seed, 0x9e3779b97f4a7c15)
	return int((hi ^ lo) & uint64(len(t.slots)-1))
}

// add adds a pair, unless it is there: the first rank counts.
func (t *merges) add(left, right int32, rank uint32, into int32) {
	pair := uint64(left+1)<<32 | uint64(right)
	i := t.slot(pair)
	for ; t.slots[i].pair != 0; i = (i + 1) & (len(t.slots) - 1) {
		if t.slots[i].pair == pair {
			return
		}
	}
	t.slots[i] = mergeSlot{pair: pair, rank: rank, into: into}
}

func (t *merges) find(left, right int32) (rank uint32, into int32, ok bool) {
	if left == none || right == none {
		return 0, none, false
	}
	pair := uint64(left+1)<<32 | uint64(right)
	for i := t.slot(pair); ; i = (i + 1) & (len(t.slots) - 1) {
		switch s := &t.slots[i]; s.pair {
		case pair:
			return s.rank, s.into, true
		case 0:
			return 0, none, false
		}
	}
}

// cuts holds the pairs of bytes that stand side by side in some token, or are
// joined by some merge. Between other bytes text may be cut: nothing merges
// across.
type cuts [1024]uint64

func (c *cuts) join(a, b byte) {
	n := int(a)<<8 | int(b)
	c[n>>6] |= 1 << (n & 63)
}

// joinAll joins the neighbours in s.
func (c *cuts) joinAll(s []byte) {
	for i := 1; i < len(s); i++ {
		c.join(s[i-1], s[i])
	}
}

// next returns the length of the first piece of s, which is not empty. Pieces
// are whole characters.
func (c *cuts) next(s string) int {
	for i := 1; i < len(s); i++ {
		n := int(s[i-1])<<8 | int(s[i])
		if c[n>>6]>>(n&63)&1 == 0 && utf8.RuneStart(s[i]) {
			return i
		}
	}
	return len(s)
}
