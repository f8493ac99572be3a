package promptcache

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"onebit/engine"
	"onebit/engine/wire"
	"onebit/engine/wire/prefix"
)

// relayer is a server whose further routes are reached as they are.
type relayer interface {
	Relay(*http.Request) (*http.Response, error)
}

// Backend is a chat server with the index before it. It implements engine.Backend.
type Backend struct {
	c     *Cache
	model string
	dir   string // of its files: see folder
	of    Hash   // Entry.Of
	inner engine.Backend
	relay relayer

	proving sync.Mutex

	mu       sync.Mutex
	slots    []*slot
	line     []*ask
	life     int // counts the times that all slots were lost
	restarts int
	builtin  bool      // the server is our own engine
	failures int       // of files, in a row
	live     cuts      // of states in slots
	kept     cuts      // of states that were in files
	broken   int       // claims of files that did not hold, in a row, of prompts that go on from one
	paused   time.Time // no files are used until then
	parked   bool
	absent   map[engine.Kind]absence // routes of decisions that the server does not have
}

// absence is a server's word that it does not have a route. It holds for a while: what it was asked once need not be asked
// with each request, since that takes slots from others.
type absence struct {
	said  error
	until time.Time
}

// absenceHolds is how long.
const absenceHolds = time.Minute

// missing is the server's word that it does not have the route of a kind, as far as is known.
func (b *Backend) missing(kind engine.Kind) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a, ok := b.absent[kind]; ok && b.c.cfg.Now().Before(a.until) {
		return a.said
	}
	return nil
}

// plain reports whether a request of decisions has no images: those a server may refuse that answers all others.
func plain(req *engine.Request) bool {
	parse := wire.ParseDecision
	if req.Kind == engine.SystemOne {
		parse = wire.ParseSystemOne
	}
	read, err := parse(req.Raw)
	if err != nil {
		return true // a server that has the route refuses it in another way
	}
	d, err := wire.ReadDecisions(read)
	return err != nil || len(d.Images) == 0
}

// untouched reports whether a server has refused a request without looking at it: it does not have the route.
func untouched(err error) bool {
	e, ok := errors.AsType[*engine.StatusError](err)
	return ok && (e.Status == http.StatusNotFound || e.Status == http.StatusMethodNotAllowed || e.Status == http.StatusNotImplemented)
}

// cuts is what is known of states that are cut back.
type cuts struct {
	wrong int       // claims that did not hold, in a row
	never bool      // they cannot be, as the model's file says
	until time.Time // they could not be, and are not until then
}

// whole reports whether only what goes on from a state is taken for there.
func (c *cuts) whole(now time.Time) bool { return c.never || now.Before(c.until) }

var _ engine.Backend = (*Backend)(nil)

// Traits are what is known of a model before anything was tried.
type Traits struct {
	// Whole and WholeFiles say that llama-server cannot cut back the states of the model in slots, or those that it restored
	// from files: it goes on from their ends alone. Our own engine can, with all models that it has.
	Whole, WholeFiles bool
}

// Wrap puts the index before a chat server with llama-server's slots. model is the name that it is served by; identity
// says what made the states that fit it: the model's file, all options that shape them, and the build of the program.
// What was kept for another identity of the model is let go of. The server's folder is there already. A backend that has no
// further routes is passed through.
func (c *Cache) Wrap(model, identity string, traits Traits, b engine.Backend) *Backend {
	w := &Backend{c: c, model: model, dir: folder(model), of: sha256.Sum256([]byte(identity)), inner: b, absent: map[engine.Kind]absence{}}
	w.live.never, w.kept.never = traits.Whole, traits.WholeFiles
	w.relay, _ = b.(relayer)
	if r, ok := b.(interface{ Restarts() int }); ok {
		w.restarts = r.Restarts()
	}
	c.discard(func(e *Entry) bool { return e.Model == folder(model) && e.Of != w.of })
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.relay != nil {
		c.backends[w] = true
	}
	return w
}

// Name is the server's.
func (b *Backend) Name() string { return b.inner.Name() }

// Slots is how many the server has.
func (b *Backend) Slots() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.slots) > 0 {
		return len(b.slots)
	}
	return b.inner.Slots()
}

// State is the server's.
func (b *Backend) State() engine.State { return b.inner.State() }

// Ready is the server's.
func (b *Backend) Ready(ctx context.Context) error { return b.inner.Ready(ctx) }

// Restarts is how often the server was started again.
func (b *Backend) Restarts() int {
	if r, ok := b.inner.(interface{ Restarts() int }); ok {
		return r.Restarts()
	}
	return 0
}

// Info is what the server says about its model; empty where it says nothing.
func (b *Backend) Info() engine.Info {
	if i, ok := b.inner.(interface{ Info() engine.Info }); ok {
		return i.Info()
	}
	return engine.Info{}
}

// files reports whether states may be kept in files; b.mu is held.
func (b *Backend) files() bool {
	return !b.c.cfg.Now().Before(b.paused) && b.c.verdict(b.of) != bad
}

// pause leaves files alone for a while, and not for ever: a disk is full and has room again, and where a template tells the
// date all prompts of yesterday begin in another way. b.mu is held.
func (b *Backend) pause() {
	b.failures, b.broken, b.paused = 0, 0, b.c.cfg.Now().Add(pauseHolds)
}

// pauseHolds is how long that is.
const pauseHolds = time.Hour

// strikes is how many claims in a row may fail before their kind is given up.
const strikes = 2

// slotted reports whether an operation uses a slot.
func slotted(k engine.Kind) bool {
	switch k {
	case engine.Chat, engine.Completion, engine.Response, engine.Decision, engine.SystemOne:
		return true
	}
	return false
}

// Generate sends a request to the slot where most of its prompt is, or can be brought. See engine.Backend.
func (b *Backend) Generate(ctx context.Context, req *engine.Request, emit func(engine.Chunk) error) (engine.Usage, error) {
	if b.relay == nil || !slotted(req.Kind) {
		return b.inner.Generate(ctx, req, emit)
	}
	if err := b.look(ctx); err != nil {
		return engine.Usage{}, err
	}
	if err := b.missing(req.Kind); err != nil {
		return engine.Usage{}, err
	}
	steady := 0
	if b.c.cfg.Settings().Steady {
		req, steady = prefix.Steady(req)
	}
	r, err := b.begin(ctx, req)
	if err != nil {
		return engine.Usage{}, err
	}
	ended := false
	defer func() { // whoever takes the answer may panic, and the slot is others' after that
		if !ended {
			r.end(errPanicked)
		}
	}()
	r.ctx, r.steady, r.emit, r.whole = ctx, steady, emit, !req.Stream
	out := *prefix.Unmarked(req) // a template may show the model a tool as it came
	r.asks = req.Stream && r.a.ways == oneWay && (req.Kind == engine.Chat || req.Kind == engine.Completion) && !wire.Has(out.Raw, "return_progress")
	out.Raw = r.body(out.Raw)
	usage, err := b.inner.Generate(ctx, &out, r.chunk)
	if usage == (engine.Usage{}) {
		usage = r.counted
	} else if usage.Prompt > 0 {
		r.counted = usage
	}
	if err == nil || r.counted.Prompt > 0 && !errors.Is(err, engine.ErrLost) && ctx.Err() == nil {
		r.write() // what was ended early has no last piece
	}
	ended = true
	r.end(err)
	if err == nil {
		usage.Written = r.written
	}
	return usage, err
}

var errPanicked = errors.New("the answer could not be taken")

// run is one request on its slots.
type run struct {
	b   *Backend
	req *engine.Request
	a   *ask
	l   *lease

	ctx     context.Context // of the request
	emit    func(engine.Chunk) error
	steady  int  // bytes that were left out
	whole   bool // the answer comes in one piece
	asks    bool // the server says how it gets on with the prompt because we asked
	said    wire.Progress
	begun   bool
	counted engine.Usage // by the server
	written int
	settled bool // what is marked is in a file, or cannot be
	noted   bool // what the slot holds is written down
}

// begin gives a request its slots, and brings there what is kept of its prompt.
func (b *Backend) begin(ctx context.Context, req *engine.Request) (*run, error) {
	a := &ask{scope: b.c.scope(req.Scope), unwritten: req.Fleeting || b.c.cfg.Unwritten != nil && b.c.cfg.Unwritten(req.Scope)}
	var err error
	if a.chain, err = chainOf(a.scope, b.model, req); err != nil {
		return nil, err
	}
	b.mu.Lock()
	builtin := b.builtin
	b.mu.Unlock()
	a.spread(req, builtin)
	l, err := b.acquire(ctx, a)
	if err != nil {
		return nil, err
	}
	r := &run{b: b, req: req, a: a, l: l}
	b.prepare(context.WithoutCancel(ctx), l) // half of a save would be of no use
	return r, nil
}

// isDecision reports whether a request asks typed questions.
func isDecision(k engine.Kind) bool { return k == engine.Decision || k == engine.SystemOne }

// prepare saves what is in the way and restores what is wanted. The lease says afterwards what is in the slot.
func (b *Backend) prepare(ctx context.Context, l *lease) {
	for _, s := range l.all {
		b.mu.Lock()
		_, save := b.worth(s, 0, 0, b.c.cfg.Now())
		b.mu.Unlock()
		if save {
			_ = b.save(ctx, s)
		}
	}
	if l.save {
		_ = b.save(ctx, l.slot)
	}
	if l.entry == nil {
		return
	}
	s := l.slot
	b.mu.Lock()
	s.reset()
	b.mu.Unlock()
	if !b.restore(ctx, s, l.entry) {
		b.c.release(l.entry)
		l.entry, l.k, l.expect, l.prior, l.clean = nil, 0, 0, nil, true
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.known, s.scope, s.held, s.n = true, l.entry.Scope, l.entry.Points, l.entry.Tokens
	s.file, s.saved, s.marked = l.entry.File, l.entry.Tokens, l.entry.Marked
}

// body is a request's, with the slot of our choice.
func (r *run) body(raw []byte) []byte {
	if r.l.slot != nil {
		raw = wire.AppendMember(nil, raw, "id_slot", appendInt(nil, r.l.slot.id))
	} else {
		raw = wire.AppendMember(nil, raw, "id_slot", []byte("-1"))
	}
	if r.asks {
		raw = wire.AppendMember(make([]byte, 0, len(raw)+64), raw, "return_progress", []byte("true"))
	}
	reuse := []byte("true")
	if r.l.clean {
		reuse = []byte("false")
	}
	return wire.AppendMember(make([]byte, 0, len(raw)+32), raw, "cache_prompt", reuse)
}

// chunk takes a piece of the answer.
func (r *run) chunk(c engine.Chunk) error {
	if !r.begun {
		if p, ok := wire.ReadProgress(c.Raw); ok {
			r.said = p
			if r.asks {
				return nil
			}
			c.Reuse = &engine.Reuse{Tokens: p.Cached, Steady: r.steady}
			return r.emit(c)
		}
		if r.said.Total > 0 {
			c.Reuse = &engine.Reuse{Tokens: r.said.Cached, Steady: r.steady}
		}
	}
	r.begun = true
	if u, ok := wire.TimingsUsage(c.Raw); ok && (r.counted.Prompt == 0 || r.a.ways == oneWay) {
		r.counted = u // of several answers the first: what it has computed, the others find
	}
	head, err := wire.ReadHead(c.Raw)
	usage := err == nil && head.Usage != nil
	if usage && r.counted.Prompt == 0 {
		r.counted, _ = wire.ReadUsage(head.Usage)
	}
	if r.counted.Prompt > 0 && (r.whole || usage || bytes.Contains(c.Raw, []byte(`"finish_reason":"`))) {
		r.write()
	} else if !r.settled && marked(r.a.chain.Blocks) {
		c.More = false // what comes next may take its time
	}
	if usage && r.written > 0 {
		c.Raw, c.ModelAt, c.ModelEnd = wire.AppendCacheWritten(make([]byte, 0, len(c.Raw)+32), c.Raw, r.written), 0, 0
	}
	if r.settled {
		c.Reuse = &engine.Reuse{Tokens: r.counted.Cached, Kept: r.written, Steady: r.steady}
	}
	return r.emit(c)
}

// soon is the largest state, in bytes, that is written before an answer ends. A larger one would keep its client waiting.
const soon = 256 << 20

// write brings a state that the client has newly marked into a file, while the answer is all there and not ended. It says
// what of the prompt is kept from now on: nothing where that did not work, or would be of no use.
func (r *run) write() {
	if r.settled {
		return
	}
	r.settled = true
	if r.written = r.newly(); r.written == 0 {
		return
	}
	b, s := r.b, r.l.slot
	ctx := context.WithoutCancel(r.ctx) // half of a save would be of no use
	tried := b.c.verdict(b.of) != untried
	b.mu.Lock()
	b.reborn()
	if r.l.life != b.life {
		r.written = 0
		b.mu.Unlock()
		return
	}
	r.note()
	r.noted = true
	now := b.c.cfg.Now()
	due := b.savable(s, s.n, now) && s.n-s.saved >= max(b.c.cfg.Settings().Least/4, 1)
	n := s.n
	b.mu.Unlock()
	if due && (!tried || b.c.bytes(b.of, n) <= soon) && !b.saveNow(ctx, s) {
		b.mu.Lock()
		s.marked = time.Time{} // there is no room for it, or it cannot be
		b.mu.Unlock()
		r.written = 0
		return
	}
	if b.c.verdict(b.of) != good {
		r.written = 0 // nobody knows whether a file of this build is of use
	}
}

// saveNow writes the state of a slot, which is the caller's, and reports whether it is recorded, and of use as far as was
// tried.
func (b *Backend) saveNow(ctx context.Context, s *slot) bool {
	recorded := b.save(ctx, s)
	if recorded == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, moveLimit)
	defer cancel()
	select {
	case err := <-recorded:
		return err == nil && b.tried(ctx, s)
	case <-ctx.Done():
		return false
	}
}

// tried finds out whether states of the build can be restored, if nobody has. s is the caller's, and its state is in its
// file: where no other slot is empty, it is tried there.
func (b *Backend) tried(ctx context.Context, s *slot) bool {
	if v := b.c.verdict(b.of); v != untried {
		return v == good
	}
	b.mu.Lock()
	spare := s
	for _, one := range b.slots {
		if !one.busy && !one.known {
			one.busy, spare = true, one
			break
		}
	}
	b.mu.Unlock()
	ok := b.proven(ctx, spare)
	if spare != s {
		b.mu.Lock()
		b.idle(&lease{slot: spare})
		b.mu.Unlock()
		return ok
	}
	if d, err := b.onSlot(ctx, s.id, "restore", s.file); !ok || err != nil || d.Restored <= 0 {
		b.mu.Lock()
		s.reset()
		b.mu.Unlock()
		return false
	}
	return true
}

// newly is how many tokens of the prompt are kept for a mark from now on, and were not before.
func (r *run) newly() int {
	b, l := r.b, r.l
	if l.slot == nil || r.a.unwritten || r.counted.Prompt == 0 || b.c.cfg.Settings().Budget <= 0 {
		return 0
	}
	prior := l.shared()
	all := points(r.a.chain.Blocks, prior, r.counted.Prompt)
	last := lastMark(all)
	if last < 0 {
		return 0
	}
	b.mu.Lock()
	kept := b.files()
	b.mu.Unlock()
	if !kept {
		return 0
	}
	before := 0
	if i := lastMark(prior); i >= 0 {
		before = prior[i].Tokens
	}
	return max(all[last].Tokens-before, 0)
}

// marked reports whether anything of a prompt is marked.
func marked(blocks []prefix.Block) bool {
	return slices.ContainsFunc(blocks, func(b prefix.Block) bool { return b.Mark })
}

// lastMark is the last point that is marked; -1 for none.
func lastMark(all []Point) int {
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].Mark {
			return i
		}
	}
	return -1
}

// end notes what the slot holds now, compares what was expected with what came, and gives the slot back.
func (r *run) end(err error) {
	b, l := r.b, r.l
	if err == nil {
		r.judge()
	}
	if l.entry != nil {
		b.c.release(l.entry)
	}
	refused := untouched(err) && !r.begun
	absent := refused && isDecision(r.req.Kind) && plain(r.req) // all servers have the other routes
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case refused: // the slots hold what they held
		if absent {
			b.absent[r.req.Kind] = absence{err, b.c.cfg.Now().Add(absenceHolds)}
		}
	case errors.Is(err, engine.ErrLost) && l.life == b.life:
		b.lose()
	case l.life != b.life:
	default:
		for _, s := range l.all {
			s.reset()
		}
		if l.slot != nil && !r.noted {
			r.note()
		}
	}
	b.idle(l)
}

// note writes down what the slot holds; b.mu is held.
func (r *run) note() {
	s, l, now := r.l.slot, r.l, r.b.c.cfg.Now()
	if r.a.ways == manyPrompts { // one after another
		s.reset()
		s.used = now
		return
	}
	s.used = now
	tokens, blocks := r.counted.Prompt, r.a.chain.Blocks
	switch {
	case tokens == 0 && r.begun && r.said.Total > 0:
		tokens = r.said.Total
	case tokens == 0 && r.begun:
		tokens = r.guess()
	case tokens == 0 && r.said.Processed > l.expect: // it was given up while the prompt was computed
		tokens = r.said.Processed
		blocks = r.reached()
	case tokens == 0 && l.clean: // it may have come to nothing before the slot was touched
		s.reset()
		s.used = now
		return
	case tokens == 0:
		s.held, s.n = l.prior[:l.k], l.expect
		s.saved = min(s.saved, s.n)
		return
	}
	prior := l.shared()
	held := points(blocks, prior, tokens)
	switch {
	case l.clean || l.k == 0:
		s.file, s.saved = "", 0
	case l.k < len(l.prior):
		s.saved = min(s.saved, l.expect)
	default:
		s.saved = min(s.saved, tokens)
	}
	s.known, s.scope, s.held, s.n = true, r.a.scope, held, tokens+r.counted.Completion
	s.explicit, s.unwritten = r.a.chain.Explicit, r.a.unwritten
	s.marked = r.marked(prior, now)
	if s.file != "" {
		r.b.c.used(s.file, s.marked)
	}
}

// marked is until when a slot's state is to be kept: what earlier turns asked for holds on. It also carries their marks
// over.
func (r *run) marked(prior []Point, now time.Time) (until time.Time) {
	if lastMark(prior) >= 0 {
		until = r.l.slot.marked
	}
	for _, b := range r.a.chain.Blocks {
		if b.Mark {
			if t := now.Add(b.TTL); t.After(until) {
				until = t
			}
		}
	}
	return until
}

// reached are the blocks of a prompt that was computed in part, as far as that went.
func (r *run) reached() []prefix.Block {
	blocks := r.a.chain.Blocks
	for i, p := range points(blocks, r.l.shared(), r.said.Total) {
		if p.Tokens > r.said.Processed {
			return blocks[:i]
		}
	}
	return blocks
}

// guess is how many tokens a prompt has whose answer broke off before anybody had counted.
func (r *run) guess() int {
	blocks := r.a.chain.Blocks
	if len(blocks) == 0 {
		return 1
	}
	all := blocks[len(blocks)-1].Bytes
	if r.l.k > 0 && r.l.expect > 0 {
		return max(int(int64(r.l.expect)*int64(all)/int64(max(blocks[r.l.k-1].Bytes, 1))), 1)
	}
	return max(all/4, 1)
}

// judge compares what was expected with what the server counted.
func (r *run) judge() {
	b, l := r.b, r.l
	got, want := r.counted.Cached, l.expect
	wrong := want >= engine.HitTokens && got*2 < want
	b.c.count(func(n *Counts) {
		if got >= engine.HitTokens {
			n.Hits++
		} else {
			n.Misses++
		}
		n.Saved += int64(got)
		n.Prompt += int64(r.counted.Prompt)
		n.Expected += int64(want)
		n.Written += int64(r.written)
		n.Steady += int64(r.steady)
		if wrong {
			n.Wrong++
		}
	})
	kind := &b.live
	if l.entry != nil {
		kind = &b.kept
		if wrong {
			b.c.remove(l.entry.File)
		} else {
			b.c.used(l.entry.File, time.Time{})
		}
	}
	if want < engine.HitTokens {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch cut := l.k < len(l.prior); {
	case cut:
		b.cut(kind, wrong)
	case l.entry == nil:
	case !wrong:
		b.broken = 0
	default:
		if b.broken++; b.broken == strikes {
			b.pause()
			b.c.cfg.Log.Warn("what was restored was not reused: the states of conversations are not kept in files for a while", "model", b.model, "until", b.paused)
		}
	}
}

// cut notes whether a state could be cut back. It is tried again like files (see pause), and for the same reason: at midnight
// a template that tells the date makes any model look as if it could not. b.mu is held.
func (b *Backend) cut(kind *cuts, wrong bool) {
	if !wrong {
		kind.wrong = 0
		return
	}
	if kind.wrong++; kind.wrong == strikes {
		kind.wrong, kind.until = 0, b.c.cfg.Now().Add(pauseHolds)
		b.c.cfg.Log.Info("states of this model could not be cut back: they serve only what goes on from them for a while", "model", b.model,
			"files", kind == &b.kept, "until", kind.until)
	}
}

// ahead writes the states that clients have marked and that have been quiet for a second.
func (b *Backend) ahead(ctx context.Context) {
	for {
		b.mu.Lock()
		var s *slot
		now := b.c.cfg.Now()
		if len(b.line) == 0 && !b.parked {
			b.reborn()
			for _, one := range b.slots {
				if !one.busy && one.marked.After(now) && now.Sub(one.used) >= time.Second && b.savable(one, one.n, now) && one.n-one.saved >= max(b.c.cfg.Settings().Least/4, 1) {
					s = one
				}
			}
		}
		if s == nil {
			b.mu.Unlock()
			return
		}
		s.busy = true
		b.mu.Unlock()
		saved := b.save(ctx, s) != nil
		b.mu.Lock()
		if !saved {
			s.marked = time.Time{} // there is no room for it, or it cannot be
		}
		b.idle(&lease{slot: s})
		b.mu.Unlock()
	}
}

// Park writes the states of all idle slots to files, the latest first, before the server is unloaded or stopped. It ends
// with ctx. Busy slots are left alone. Nothing else is written ahead of the end from then on.
func (b *Backend) Park(ctx context.Context) error {
	if b.relay == nil {
		return nil
	}
	defer func() {
		b.c.mu.Lock()
		delete(b.c.backends, b)
		b.c.mu.Unlock()
	}()
	b.mu.Lock()
	b.parked = true
	b.reborn()
	now := b.c.cfg.Now()
	var all []*slot
	for _, s := range b.slots {
		if !s.busy && b.savable(s, s.n, now) && s.n > s.saved {
			s.busy = true
			all = append(all, s)
		}
	}
	b.mu.Unlock()
	slices.SortFunc(all, func(x, y *slot) int { return y.used.Compare(x.used) })
	for _, s := range all {
		if ctx.Err() == nil && b.inner.State() == engine.Ready {
			_ = b.save(ctx, s)
		}
		b.mu.Lock()
		b.idle(&lease{slot: s})
		b.mu.Unlock()
	}
	return b.c.Flush(ctx)
}

// drop forgets the slots of scopes that match, and has the server forget those that are idle.
func (b *Backend) drop(ctx context.Context, match func(Hash) bool) {
	b.mu.Lock()
	var idle []*slot
	for _, s := range b.slots {
		if !s.known || !match(s.scope) {
			continue
		}
		if s.busy {
			s.known = false // what its request holds now is noted at its end
			continue
		}
		s.reset()
		s.busy = true
		idle = append(idle, s)
	}
	b.mu.Unlock()
	for _, s := range idle {
		if _, err := b.onSlot(ctx, s.id, "erase", ""); err != nil {
			b.c.cfg.Log.Debug("a slot was not erased; what it holds is not used again", "model", b.model, "why", err)
		}
		b.mu.Lock()
		b.idle(&lease{slot: s})
		b.mu.Unlock()
	}
}
