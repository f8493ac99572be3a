//go:build !linux

package host

// reserve takes memory that the system gives out as it is touched.
func reserve(n uint64) ([]byte, error) { return make([]byte, n), nil }

func unreserve([]byte) {}

// content is a copy.
type content struct{ b []byte }

func (c *content) fill(b []byte) error {
	c.b = append([]byte(nil), b...)
	return nil
}

// attach copies the content to the start of a guest's memory.
func (i *image) attach(b []byte) error { return i.restore(b[:i.size]) }

// restore copies the content back over b; what lies behind it becomes zeros.
func (i *image) restore(b []byte) error {
	clear(b[copy(b, i.b):])
	return nil
}

func (c *content) close() { c.b = nil }
