package promptcache

import (
	"context"
	"slices"
	"time"

	"onebit/engine"
	"onebit/engine/wire"
	"onebit/engine/wire/prefix"
)

// slot is what is known of one slot of a server. Backend.mu guards it.
type slot struct {
	id    int
	busy  bool
	known bool // an answer has shown whose prompt it holds
	scope Hash
	held  []Point
	n     int // tokens that it holds, with the answer

	file  string // that holds a part of its state; empty for none
	saved int    // tokens of that part

	marked    time.Time // the client asked to keep the state until then
	explicit  bool      // nothing but what is marked is to be kept
	unwritten bool      // nothing is to be kept in files
	used      time.Time
}

// reset forgets what a slot holds.
func (s *slot) reset() { *s = slot{id: s.id, busy: s.busy, used: s.used} }

// common is how much of a prompt of a scope a slot holds.
func (s *slot) common(a *ask) (k, tokens int) {
	if !s.known || s.scope != a.scope {
		return 0, 0
	}
	return common(s.held, a.chain.Blocks)
}

// ask is a request that wants a slot.
type ask struct {
	scope     Hash
	chain     prefix.Chain
	unwritten bool // see Config
	ways      ways
	more      int         // slots that a request of manyAnswers takes beside its own
	got       chan *lease // one is sent when it has its turn
}

// ways is how a request uses slots.
type ways int

const (
	oneWay      ways = iota // one answer in one slot
	manyAnswers             // several answers to one prompt
	manyPrompts             // several prompts
	anyWay                  // nobody knows which slots it will use
)

// spread finds out how a request uses slots. Our own engine makes all that has a slot's name there, one after another, and so
// does llama-server with several prompts. It makes several answers to one prompt beside each other: those after the first in
// the idle slots of the lowest numbers, which it empties at the end.
func (a *ask) spread(req *engine.Request, builtin bool) {
	if isDecision(req.Kind) {
		if !builtin {
			a.ways = anyWay
		}
		return
	}
	prompts, each := wire.Prompts(req.Raw)
	switch {
	case prompts > 1 && each > 1 && !builtin:
		a.ways = anyWay
	case prompts > 1:
		a.ways, a.chain = manyPrompts, prefix.Chain{}
	case each > 1:
		a.ways = manyAnswers
		if !builtin {
			a.more = each - 1
		}
	}
}

// lease is the right to use a slot, and how that is to be done.
type lease struct {
	slot *slot
	all  []*slot // that are taken beside it, or without one; what they hold is lost
	life int     // of the server

	k      int    // blocks that the slot is expected to have in common with the prompt
	expect int    // tokens of them
	clean  bool   // the server may compare nothing with what the slot held before
	entry  *entry // to be restored first; it has been taken
	save   bool   // the slot's state is to be saved first
	prior  []Point
	fades  bool // the marks of prior are over
}

// shared is what of the prompt was known before.
func (l *lease) shared() []Point {
	all := l.prior[:min(l.k, len(l.prior))]
	if !l.fades {
		return all
	}
	all = slices.Clone(all)
	for i := range all {
		all[i].Mark = false
	}
	return all
}

// The price of ways in tokens that are computed: of moving the state of a token to a file or back, and of losing one that
// may be asked for again.
const (
	moving = 0.02
	losing = 0.3
)

// worth is what taking a slot costs, when so many of its tokens stay, and whether its state is to be saved first.
func (b *Backend) worth(s *slot, k, stays int, now time.Time) (cost float64, save bool) {
	lost := s.n - stays
	if !s.known || lost <= 0 || k == len(s.held) && k > 0 {
		return 0, false
	}
	weight := 1 + 60/(60+max(now.Sub(s.used).Seconds(), 0)) // what was in use a moment ago comes back sooner
	if !b.savable(s, lost, now) {
		return losing * float64(lost) * weight, false
	}
	cost = moving * float64(s.n) * weight // bringing it back
	if s.n-s.saved < max(b.c.cfg.Settings().Least/4, 1) {
		return cost, false
	}
	return cost + moving*float64(s.n), true
}

// savable reports whether a slot's state may go to a file, when so much of it would be lost.
func (b *Backend) savable(s *slot, lost int, now time.Time) bool {
	settings := b.c.cfg.Settings()
	marked := s.marked.After(now)
	switch {
	case !b.files() || settings.Budget <= 0 || !s.known || len(s.held) == 0:
		return false
	case s.unwritten || s.explicit && !marked:
		return false
	}
	return marked || lost >= settings.Least
}

// choose finds the slot for a request and takes it; nil when it has to wait. b.mu is held.
func (b *Backend) choose(a *ask) *lease {
	b.reborn()
	now := b.c.cfg.Now()
	if a.ways == anyWay || a.ways == manyPrompts && !b.holding(now) {
		return b.chooseAll()
	}
	var file *entry
	var fileK, fileN int
	if b.files() {
		file, fileK, fileN = b.c.find(b.of, a.scope, a.chain.Blocks, b.kept.whole(now))
	}
	var best *lease
	var value float64
	try := func(l *lease, v float64) {
		if best == nil || v > value || v == value && l.slot.used.Before(best.slot.used) {
			best, value = l, v
		}
	}
	for _, s := range b.slots {
		if s.busy {
			continue
		}
		k, n := s.common(a)
		if b.live.whole(now) && k < len(s.held) {
			k, n = 0, 0
		}
		cost, save := b.worth(s, k, n, now)
		try(&lease{slot: s, k: k, expect: n, save: save, prior: s.held, fades: !s.marked.After(now), clean: s.foreign(a.scope)}, float64(n)-cost)
		if file != nil {
			cost, save := b.worth(s, 0, 0, now)
			if s.file == file.File {
				cost, save = b.worth(s, len(s.held), s.n, now) // it is the same conversation
			}
			try(&lease{slot: s, k: fileK, expect: fileN, entry: file, save: save, prior: file.Points, fades: !file.Marked.After(now)}, float64(fileN)-cost-moving*float64(file.Tokens))
		}
	}
	if best == nil || !b.beside(best, a.more) {
		return nil
	}
	if a.ways == manyPrompts {
		best.clean = true
	}
	if best.entry != nil && !b.c.take(best.entry) { // it went at this moment
		best.entry, best.k, best.expect, best.prior, best.clean = nil, 0, 0, nil, true
	}
	best.slot.busy, best.life = true, b.life
	for _, s := range best.all {
		s.busy = true
	}
	return best
}

// beside finds the slots that a server will take beside that of a lease, and reports whether all of them are idle.
func (b *Backend) beside(l *lease, more int) bool {
	for _, s := range b.slots {
		if len(l.all) == more || s == l.slot {
			continue
		}
		if s.busy {
			return false
		}
		l.all = append(l.all, s)
	}
	return true
}

// holding reports whether any slot is busy, or holds what would be lost.
func (b *Backend) holding(now time.Time) bool {
	return slices.ContainsFunc(b.slots, func(s *slot) bool {
		cost, _ := b.worth(s, 0, 0, now)
		return s.busy || cost > 0
	})
}

// foreign reports whether what a slot holds may be of another scope.
func (s *slot) foreign(scope Hash) bool { return !s.known || s.scope != scope }

// chooseAll takes all slots once all are idle.
func (b *Backend) chooseAll() *lease {
	for _, s := range b.slots {
		if s.busy {
			return nil
		}
	}
	for _, s := range b.slots {
		s.busy = true
	}
	return &lease{all: slices.Clone(b.slots), life: b.life, clean: true}
}

// acquire waits for a slot, in order.
func (b *Backend) acquire(ctx context.Context, a *ask) (*lease, error) {
	a.got = make(chan *lease, 1)
	b.mu.Lock()
	if len(b.line) == 0 {
		if l := b.choose(a); l != nil {
			b.mu.Unlock()
			return l, nil
		}
	}
	b.line = append(b.line, a)
	b.mu.Unlock()
	select {
	case l := <-a.got:
		return l, nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	if i := slices.Index(b.line, a); i >= 0 {
		b.line = slices.Delete(b.line, i, i+1)
		b.next()
		b.mu.Unlock()
		return nil, context.Cause(ctx)
	}
	b.mu.Unlock()
	b.free(<-a.got) // it was served at the same moment
	return nil, context.Cause(ctx)
}

// free gives slots back of which nothing new is known.
func (b *Backend) free(l *lease) {
	if l.entry != nil {
		b.c.release(l.entry)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.idle(l)
}

// idle gives the slots of a lease to those who wait; b.mu is held.
func (b *Backend) idle(l *lease) {
	if l.slot != nil {
		l.slot.busy = false
	}
	for _, s := range l.all {
		s.busy = false
	}
	b.next()
}

// next serves the line as far as there are slots; b.mu is held.
func (b *Backend) next() {
	for len(b.line) > 0 {
		l := b.choose(b.line[0])
		if l == nil {
			return
		}
		b.line[0].got <- l
		b.line = b.line[1:]
	}
}

// reborn forgets all slots when the server has been started anew; b.mu is held.
func (b *Backend) reborn() {
	r, ok := b.inner.(interface{ Restarts() int })
	if !ok || r.Restarts() == b.restarts {
		return
	}
	b.restarts = r.Restarts()
	b.lose()
}

// lose forgets all slots; b.mu is held.
func (b *Backend) lose() {
	b.life++
	for _, s := range b.slots {
		s.reset()
	}
}

// firsts appends the hashes of the first blocks of what slots hold of a scope.
func (b *Backend) firsts(all [][16]byte, scope Hash) [][16]byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.slots {
		if s.known && s.scope == scope && len(s.held) > 0 {
			all = append(all, s.held[0].Hash)
		}
	}
	return all
}

// expect is how many tokens of a prompt the slots hold.
func (b *Backend) expect(chain prefix.Chain) (tokens int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reborn()
	for _, s := range b.slots {
		if s.known {
			_, n := common(s.held, chain.Blocks) // a hash says whose it is
			tokens = max(tokens, n)
		}
	}
	return tokens
}

// points spreads the tokens of a prompt over its blocks: counts that are known stay, the last block has all of them, and
// what lies between has its share by length.
func points(blocks []prefix.Block, prior []Point, tokens int) []Point {
	all := make([]Point, len(blocks))
	from, at := 0, 0 // the last block of which the count is known, and its tokens
	for i, b := range blocks {
		all[i] = Point{Hash: b.Hash, Mark: b.Mark}
		if i < len(prior) && prior[i].Hash == b.Hash && i+1 < len(blocks) && prior[i].Tokens <= tokens {
			all[i].Tokens = prior[i].Tokens
			all[i].Mark = b.Mark || prior[i].Mark
			from, at = b.Bytes, prior[i].Tokens
			continue
		}
		whole := blocks[len(blocks)-1].Bytes - from
		if whole > 0 {
			all[i].Tokens = at + int(int64(tokens-at)*int64(b.Bytes-from)/int64(whole))
		}
	}
	if len(all) > 0 {
		all[len(all)-1].Tokens = tokens
	}
	return all
}
