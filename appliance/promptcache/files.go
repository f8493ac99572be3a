package promptcache

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"onebit/engine/wire/prefix"
)

// verdict is whether the files of a build of a program are of use.
type verdict int

const (
	untried verdict = iota
	good
	bad
)

// verdict is whether the files of a build are of use, as far as is known.
func (c *Cache) verdict(of Hash) verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.proofs[of]
}

// learn notes how many bytes a token takes.
func (c *Cache) learn(of Hash, bytes int64, tokens int) {
	if tokens > 0 {
		c.rates[of] = float64(bytes) / float64(tokens)
	}
}

// room lets go of files until one more fits into the budget, and reports whether it does. Of it its size is not known yet, but
// how many tokens it holds.
func (c *Cache) room(e Entry, tokens int) bool {
	budget := c.cfg.Settings().Budget
	now := c.cfg.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	e.Bytes = int64(c.rates[e.Of] * float64(tokens))
	if e.Bytes > budget || budget <= 0 {
		return false
	}
	return c.shrink(budget, now, &entry{Entry: e})
}

// shrink lets go of files until all have at most so many bytes, with a new one that is there or is to come; nil is none. When it
// would be the new one's turn to go, nothing goes. It reports whether they have. mu is held.
func (c *Cache) shrink(most int64, now time.Time, fresh *entry) bool {
	total, n := c.total, len(c.entries)
	coming := fresh != nil && c.entries[fresh.File] != fresh
	if coming {
		total, n = total+fresh.Bytes, n+1
	}
	if total <= most && n <= maxEntries {
		return true
	}
	all := slices.Collect(maps.Values(c.entries))
	if coming {
		all = append(all, fresh)
	}
	order(all, most, now)
	var leaving []*entry
	for _, e := range all {
		if total <= most && n <= maxEntries {
			break
		}
		if e == fresh {
			return false
		}
		if e.users == 0 {
			leaving = append(leaving, e)
			total, n = total-e.Bytes, n-1
		}
	}
	if total > most && fresh != nil {
		return false
	}
	for _, e := range leaving {
		c.forget(e.File)
		c.counts.Evictions++
	}
	return total <= most
}

// order sorts entries by which goes first. Of one scope: see before. Among scopes: the one of which most would be left beside
// it, in bytes or in files. So each keeps what it is worth most to it until nobody has more, however much somebody else asks for.
func order(all []*entry, most int64, now time.Time) {
	held := held(all, most/2, now)
	slices.SortFunc(all, func(a, b *entry) int { return before(b, a, held) })
	type sum struct {
		bytes float64
		files int
	}
	of, beside := map[Hash]sum{}, map[*entry]float64{}
	for _, e := range all {
		s := of[e.Scope]
		beside[e] = max(s.bytes/float64(max(most, 1)), float64(s.files)/maxEntries)
		of[e.Scope] = sum{s.bytes + float64(e.Bytes), s.files + 1}
	}
	slices.SortFunc(all, func(a, b *entry) int { return cmp.Or(cmp.Compare(beside[b], beside[a]), before(a, b, held)) })
}

// held are the entries whose marks count: of each scope those that were used last, up to so many bytes. Else a client that
// marks all that it says would have no room for the rest.
func held(entries []*entry, share int64, now time.Time) map[*entry]bool {
	var all []*entry
	for _, e := range entries {
		if e.Marked.After(now) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *entry) int { return cmp.Or(b.Used.Compare(a.Used), cmp.Compare(a.File, b.File)) })
	held, of := map[*entry]bool{}, map[Hash]int64{}
	for _, e := range all {
		if of[e.Scope] += e.Bytes; of[e.Scope] <= share {
			held[e] = true
		}
	}
	return held
}

// before orders entries by which goes first: what is unmarked, the longest unused; then what is marked for the shortest.
func before(a, b *entry, held map[*entry]bool) int {
	am, bm := held[a], held[b]
	switch {
	case am != bm && bm:
		return -1
	case am != bm:
		return 1
	case am:
		return cmp.Or(a.Marked.Compare(b.Marked), a.Used.Compare(b.Used), cmp.Compare(a.File, b.File))
	}
	return cmp.Or(a.Used.Compare(b.Used), cmp.Compare(a.File, b.File))
}

// forget lets go of a file, now or with its last user; mu is held.
func (c *Cache) forget(file string) {
	e := c.entries[file]
	if e == nil {
		return
	}
	delete(c.entries, file)
	c.total -= e.Bytes
	if e.users > 0 {
		e.gone = true
		return
	}
	c.add(job{file: file, drop: c.path(e.Model, file)})
}

// release ends a use of an entry.
func (c *Cache) release(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.users--
	if e.gone && e.users == 0 {
		c.add(job{file: e.File, drop: c.path(e.Model, e.File)})
	}
}

// bytes is what a state of so many tokens takes, as far as is known.
func (c *Cache) bytes(of Hash, tokens int) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int64(c.rates[of] * float64(tokens))
}

// keep takes in a file that a server has written, and returns what says when it is recorded; nil when there is no room
// for it. It replaces those of the same conversation that hold less.
func (c *Cache) keep(e Entry) (recorded <-chan error) {
	budget := c.cfg.Settings().Budget
	c.mu.Lock()
	defer c.mu.Unlock()
	c.learn(e.Of, e.Bytes, e.Tokens)
	for _, old := range c.entries {
		if old.Of == e.Of && old.Scope == e.Scope && len(old.Points) <= len(e.Points) && old.Points[len(old.Points)-1].Hash == e.Points[len(old.Points)-1].Hash {
			if old.Marked.After(e.Marked) {
				e.Marked = old.Marked
			}
			c.forget(old.File)
		}
	}
	kept := &entry{Entry: e, noted: e.Used}
	c.entries[e.File] = kept
	c.total += e.Bytes
	c.counts.Saves++
	if !c.shrink(budget, c.cfg.Now(), kept) { // it was larger than was thought
		delete(c.entries, e.File)
		c.total -= e.Bytes
		c.add(job{file: e.File, drop: c.path(e.Model, e.File)})
		return nil
	}
	put, done := e, make(chan error, 1)
	c.add(job{file: e.File, put: &put, done: done})
	return done
}

// find is the file that holds most of a prompt. Where whole is set, only what the prompt goes on from whole counts.
func (c *Cache) find(of, scope Hash, blocks []prefix.Block, whole bool) (best *entry, k, tokens int) {
	now := c.cfg.Now()
	ttl := c.cfg.Settings().TTL
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.entries {
		if e.Of != of || e.Scope != scope || stale(e, now, ttl) {
			continue
		}
		n, t := common(e.Points, blocks)
		if whole && n < len(e.Points) {
			continue
		}
		if t > tokens || t == tokens && t > 0 && e.Tokens < best.Tokens {
			best, k, tokens = e, n, t
		}
	}
	return best, k, tokens
}

// take begins a use of an entry, which find has named. It may have gone meanwhile.
func (c *Cache) take(e *entry) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[e.File] != e {
		return false
	}
	e.users++
	return true
}

// noteEvery is how often the use of a file is written down.
const noteEvery = time.Minute

// used notes that a file was used, and marks it for longer where the client wishes.
func (c *Cache) used(file string, marked time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[file]
	if e == nil {
		return
	}
	e.Used = c.cfg.Now()
	longer := marked.After(e.Marked)
	if longer {
		e.Marked = marked
	}
	if longer || e.Used.Sub(e.noted) >= noteEvery {
		e.noted = e.Used
		put := e.Entry
		c.add(job{file: file, put: &put})
	}
}

// remove lets go of a file whose claim did not hold.
func (c *Cache) remove(file string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(file)
}

// stale reports whether an entry's time is over.
func stale(e *entry, now time.Time, ttl time.Duration) bool {
	return ttl > 0 && now.Sub(e.Used) > ttl && !e.Marked.After(now)
}

// expire lets go of what is too old, and of what the budget has no room for any more.
func (c *Cache) expire() {
	s, now := c.cfg.Settings(), c.cfg.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.entries {
		if stale(e, now, s.TTL) {
			c.forget(e.File)
			c.counts.Evictions++
		}
	}
	c.shrink(max(s.Budget, 0), now, nil)
}

// discard lets go of the files that match.
func (c *Cache) discard(match func(*Entry) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.entries {
		if match(&e.Entry) {
			c.forget(e.File)
		}
	}
}

// Clear lets go of all files and of all that is known of slots, and returns once the files are deleted.
func (c *Cache) Clear(ctx context.Context) error {
	for _, b := range c.wrapped() {
		b.drop(ctx, func(Hash) bool { return true })
	}
	c.discard(func(*Entry) bool { return true })
	return c.Flush(ctx)
}

// Keep lets go of all that is of scopes other than these. What a request brings up meanwhile stays.
func (c *Cache) Keep(ctx context.Context, scopes []string) {
	alive := map[Hash]bool{c.scope(""): true}
	for _, s := range scopes {
		alive[c.scope(s)] = true
	}
	for _, b := range c.wrapped() {
		b.drop(ctx, func(h Hash) bool { return !alive[h] })
	}
	c.discard(func(e *Entry) bool { return !alive[e.Scope] })
}
