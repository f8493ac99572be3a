package promptcache

import "time"

// Waiting is how many requests stand in line.
func Waiting(b *Backend) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.line)
}

// Order is the names of entries by which goes first, when all may have so many bytes.
func Order(entries []Entry, most int64, now time.Time) (names []string) {
	var all []*entry
	for _, e := range entries {
		all = append(all, &entry{Entry: e})
	}
	order(all, most, now)
	for _, e := range all {
		names = append(names, e.File)
	}
	return names
}
