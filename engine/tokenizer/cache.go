package tokenizer

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

const (
	cacheSlots = 1 << 15
	cacheWord  = 48 // bytes of the longest word that is kept
)

// cache remembers the tokens of words. It holds at most cacheSlots words: a
// new one takes the place of another. It is safe for concurrent use.
type cache struct {
	seed  maphash.Seed
	slots []atomic.Pointer[cached]
}

type cached struct {
	word string
	ids  []int32
}

func newCache() *cache {
	return &cache{seed: maphash.MakeSeed(), slots: make([]atomic.Pointer[cached], cacheSlots)}
}

// encode appends the tokens of word, from the cache or from f.
func (c *cache) encode(word string, out []int32, f func(string, []int32) []int32) []int32 {
	if len(word) > cacheWord {
		return f(word, out)
	}
	slot := &c.slots[maphash.String(c.seed, word)%cacheSlots]
	if e := slot.Load(); e != nil && e.word == word {
		return append(out, e.ids...)
	}
	n := len(out)
	out = f(word, out)
	slot.Store(&cached{word: strings.Clone(word), ids: slices.Clone(out[n:])})
	return out
}

// mergers keeps mergers for the next text. It is safe for concurrent use.
type mergers struct{ pool sync.Pool }

func newMergers() *mergers { return &mergers{} }

func (p *mergers) get(text string) *merger {
	m, ok := p.pool.Get().(*merger)
	if !ok {
		m = &merger{}
	}
	m.reset(text)
	return m
}

func (p *mergers) put(m *merger) {
	m.text = ""
	if cap(m.ids) <= 1<<16 { // do not hold on to the memory of a huge text
		p.pool.Put(m)
	}
}
