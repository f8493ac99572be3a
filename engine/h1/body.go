package h1

import "bytes"

// state is where a body stands.
type state int

const (
	over       state = iota // all of it was taken
	sized                   // left bytes to come
	untilClose              // the connection's end is the body's
	chunkSize               // a line with the next chunk's length
	chunkData               // left bytes of a chunk
	chunkEnd                // the line break behind a chunk
	trailer                 // lines behind the last chunk
)

// body knows how the body of an answer is framed.
type body struct {
	state state
	left  int64 // bytes
	trail int   // bytes of trailers so far
}

// take copies what has come of the body to p, and takes the framing around it. It reads nothing.
func (b *body) take(c *conn, p []byte) (n int, err error) {
	if b.state != over && c.from == c.to {
		return 0, nil
	}
	for {
		switch b.state {
		case over:
			return n, nil
		case untilClose:
			m := copy(p[n:], c.buf[c.from:c.to])
			c.from += m
			return n + m, nil
		case sized, chunkData:
			have := c.buf[c.from:c.to]
			m := copy(p[n:], have[:min(int64(len(have)), b.left)])
			c.from += m
			n += m
			b.left -= int64(m)
			if b.left > 0 {
				return n, nil
			}
			if b.state == sized {
				b.state = over
			} else {
				b.state = chunkEnd
			}
		default:
			line, ok, err := c.line()
			if !ok || err != nil {
				return n, err
			}
			if err := b.frame(line); err != nil {
				return n, err
			}
		}
	}
}

// frame takes a line between chunks.
func (b *body) frame(line []byte) error {
	switch b.state {
	case chunkEnd:
		if len(line) > 0 {
			return ErrMalformed
		}
		b.state = chunkSize
	case chunkSize:
		n, ok := parseChunkSize(line)
		switch {
		case !ok:
			return ErrMalformed
		case n == 0:
			b.state = trailer
		default:
			b.state, b.left = chunkData, n
		}
	case trailer:
		b.trail += len(line)
		switch {
		case len(line) == 0:
			b.state = over
		case b.trail > maxTrail:
			return ErrMalformed
		default:
			_, _, ok := parseField(line)
			if !ok {
				return ErrMalformed
			}
		}
	}
	return nil
}

// line takes a line that has come in full and returns it without its end.
func (c *conn) line() (line []byte, ok bool, err error) {
	have := c.buf[c.from:c.to]
	end := bytes.IndexByte(have, '\n')
	switch {
	case end < 0 && len(have) <= maxLine:
		return nil, false, nil
	case end < 1 || end > maxLine || have[end-1] != '\r':
		return nil, false, ErrMalformed
	}
	c.from += end + 1
	return have[:end-1], true, nil
}

// parseChunkSize reads the length of a chunk; what stands behind a semicolon means nothing.
func parseChunkSize(line []byte) (int64, bool) {
	var n int64
	digits := 0
	for _, c := range line {
		var d byte
		switch {
		case c >= '0' && c <= '9':
			d = c - '0'
		case c >= 'a' && c <= 'f':
			d = c - 'a' + 10
		case c >= 'A' && c <= 'F':
			d = c - 'A' + 10
		case c == ';' && digits > 0:
			return n, isText(line)
		default:
			return 0, false
		}
		if digits++; digits > 15 {
			return 0, false
		}
		n = n<<4 | int64(d)
	}
	return n, digits > 0
}
