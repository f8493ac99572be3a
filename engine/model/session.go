package model

import (
	"fmt"
	"slices"
)

// pageTokens is the number of positions in a page of keys and values.
const pageTokens = 256

// layout says how the keys and values of a page lie in memory. Every layer and
// key head has its own part: the keys as [block][headDim][R], R positions a
// block, then the values as [panel][pageTokens][R], R of headDim's values a
// panel; all in half precision.
type layout struct {
	r       int
	headDim int
	kvHeads int
	panels  int // of the values
	keys    int // numbers of one part's keys
	part    int // numbers of one part
	size    int // numbers of a page
}

func newLayout(p *params, r int) layout {
	l := layout{r: r, headDim: p.headDim, kvHeads: p.kvHeads, panels: (p.headDim + r - 1) / r}
	l.keys = pageTokens * l.headDim
	l.part = l.keys + l.panels*pageTokens*r
	l.size = p.layers * p.kvHeads * l.part
	return l
}

// page holds keys and values of pageTokens positions, of all layers and heads.
type page []uint16

// part returns the keys and the values of one layer and key head.
func (l *layout) parts(pg page, layer, head int) (keys, values []uint16) {
	b := pg[(layer*l.kvHeads+head)*l.part:][:l.part]
	return b[:l.keys], b[l.keys:]
}

// Session is one timeline of tokens. It belongs to one goroutine at a time.
type Session struct {
	m      *Model
	ids    []int32
	pages  []page // in the order of positions
	closed bool
}

// NewSession returns an empty session. It takes no memory for keys and values
// before tokens are evaluated.
func (m *Model) NewSession() *Session { return &Session{m: m} }

// Len returns the number of tokens.
func (s *Session) Len() int { return len(s.ids) }

// Tokens returns a copy of the tokens, oldest first.
func (s *Session) Tokens() []int32 { return slices.Clone(s.ids) }

// Token returns the token at position i.
func (s *Session) Token(i int) int32 { return s.ids[i] }

// Capacity returns the number of tokens that the session holds at most.
func (s *Session) Capacity() int { return s.m.Capacity() }

// Truncate drops all tokens from position n on, and a tree, and gives the memory
// that nothing else is in back to the model.
func (s *Session) Truncate(n int) {
	s.ids = s.ids[:min(max(n, 0), len(s.ids))]
	s.shrink((len(s.ids) + pageTokens - 1) / pageTokens)
}

// shrink gives back all pages but the first n.
func (s *Session) shrink(n int) {
	if n >= len(s.pages) {
		return
	}
	s.m.room.Lock()
	defer s.m.room.Unlock()
	if !s.m.closed {
		s.m.free = append(s.m.free, s.pages[n:]...)
	}
	clear(s.pages[n:])
	s.pages = s.pages[:n]
}

// Close gives all memory of the session back to the model. Closing twice does
// nothing; a closed session cannot be used.
func (s *Session) Close() {
	s.closed = true
	s.ids = nil
	s.shrink(0)
}

// ContextError says that tokens do not fit into a session.
type ContextError struct {
	Tokens   int // that the session would hold
	Capacity int
}

// Error implements error.
func (e *ContextError) Error() string {
	return fmt.Sprintf("%d tokens are more than the context of %d", e.Tokens, e.Capacity)
}

// reserve makes room for tokens up to position n.
func (s *Session) reserve(n int) error {
	m := s.m
	for len(s.pages)*pageTokens < n {
		pg, err := m.newPage()
		if err != nil {
			return err
		}
		s.pages = append(s.pages, pg)
	}
	return nil
}

// newPage returns a page that nobody uses. Its content is old or zero: what is
// read of it was written before, by the same session.
func (m *Model) newPage() (pg page, err error) {
	m.room.Lock()
	defer m.room.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	if n := len(m.free); n > 0 {
		pg = m.free[n-1]
		m.free = m.free[:n-1]
		return pg, nil
	}
	defer func() {
		// An arena panics with an error when the system has no memory.
		if cause, ok := recover().(error); ok {
			err = fmt.Errorf("making room for %d more tokens: %w", pageTokens, cause)
		}
	}()
	return m.cache.Halves(m.pages.size), nil
}

// CacheBytes returns the memory that keys and values take, used or free.
func (m *Model) CacheBytes() int64 { return m.cache.Used() }
