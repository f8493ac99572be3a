package promptcache

// Waiting is how many requests stand in line.
func Waiting(b *Backend) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.line)
}
