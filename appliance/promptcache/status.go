package promptcache

import (
	"cmp"
	"slices"
	"strconv"
)

// Counts is what has happened since the start.
type Counts struct {
	Hits      int64 // requests of which 32 tokens or more were reused, by the servers' own count
	Misses    int64
	Prompt    int64 // tokens of all prompts
	Saved     int64 // of them, not computed again
	Expected  int64 // of them, as was expected before
	Restores  int64
	Saves     int64
	Evictions int64
	Wrong     int64 // claims that did not hold
	Written   int64 // tokens kept for marks
	Steady    int64 // bytes of lines left out that change with each request
}

// Status is where a Cache stands.
type Status struct {
	Counts
	Budget, Bytes   int64
	Entries, Marked int
	Models          []ModelStatus
}

// ModelStatus is where one model stands.
type ModelStatus struct {
	Model           string // its name while it is loaded, else its folder's
	Loaded          bool
	Entries         int
	Bytes           int64
	Slots, Busy     int
	Held            int    // tokens in slots
	Files           string // good, bad, untried
	Tokens          int64  // in files
	LongestInTokens int
}

func (c *Cache) count(f func(*Counts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.counts)
}

// Status looks at the moment.
func (c *Cache) Status() Status {
	s := Status{Budget: c.cfg.Settings().Budget}
	models := map[string]*ModelStatus{}
	of := map[string]Hash{}
	for _, b := range c.wrapped() {
		m := &ModelStatus{Model: b.model, Loaded: true}
		models[folder(b.model)], of[folder(b.model)] = m, b.of
		b.mu.Lock()
		m.Slots = len(b.slots)
		for _, one := range b.slots {
			m.Held += one.n
			if one.busy {
				m.Busy++
			}
		}
		b.mu.Unlock()
	}
	now := c.cfg.Now()
	c.mu.Lock()
	s.Counts, s.Bytes, s.Entries = c.counts, c.total, len(c.entries)
	for _, e := range c.entries {
		m := models[e.Model]
		if m == nil {
			m = &ModelStatus{Model: e.Model}
			models[e.Model], of[e.Model] = m, e.Of
		}
		m.Entries++
		m.Bytes += e.Bytes
		m.Tokens += int64(e.Tokens)
		m.LongestInTokens = max(m.LongestInTokens, e.Tokens)
		if e.Marked.After(now) {
			s.Marked++
		}
	}
	for dir, m := range models {
		m.Files = [...]string{untried: "untried", good: "good", bad: "bad"}[c.proofs[of[dir]]]
		s.Models = append(s.Models, *m)
	}
	c.mu.Unlock()
	slices.SortFunc(s.Models, func(a, b ModelStatus) int { return cmp.Compare(a.Model, b.Model) })
	return s
}

// appendInt writes a number.
func appendInt(dst []byte, n int) []byte { return strconv.AppendInt(dst, int64(n), 10) }
