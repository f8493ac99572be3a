package pool

import (
	"cmp"
	"slices"
	"time"

	"onebit/engine"
)

// room is memory as the admission of one model sees it, in bytes. Amounts may be negative.
type room struct {
	device   engine.Device
	known    [3]bool  // graphics, host, together
	total    [3]int64 // what models may take
	free     [3]int64 // what can be had now
	used     [3]int64 // what models are said to take
	observed [3]bool  // free was read, and counts
}

// The kinds of memory.
const (
	graphics = iota
	host
	together
)

var kinds = [3]string{"graphics memory", "memory", "memory of cards and machine together"}

// newRoom looks at a budget for a model on a device.
func newRoom(b Budget, device engine.Device) room {
	r := room{device: device}
	set := func(kind int, m Memory, observed bool) {
		if m.Total == 0 && m.Free == 0 {
			return
		}
		r.known[kind], r.observed[kind] = true, observed
		r.total[kind], r.free[kind] = clamp(m.Total), clamp(m.Free)
	}
	set(graphics, b.Graphics[device], true)
	set(host, b.Host, true)
	set(together, Memory{Total: b.Together}, false)
	return r
}

// clamp makes an amount one that can be added to others: more than a PiB is a PiB.
func clamp(n uint64) int64 { return int64(min(n, 1<<50)) }

// amounts are what a need takes of each kind.
func amounts(n Need) [3]int64 {
	bytes, beside := clamp(n.Bytes), clamp(n.Host)
	if !n.onCard() {
		return [3]int64{0, bytes + beside, bytes + beside}
	}
	return [3]int64{bytes, beside, bytes + beside}
}

// hold counts a model that is loaded. Its memory is taken already, as free shows.
func (r *room) hold(n Need) {
	for kind, a := range amounts(n) {
		r.used[kind] += a
	}
}

// promise counts memory that will be taken and that free does not show yet.
func (r *room) promise(n Need) {
	for kind, a := range amounts(n) {
		r.used[kind] += a
		r.free[kind] -= a
	}
}

// giveBack counts a model that ends.
func (r *room) giveBack(n Need) {
	for kind, a := range amounts(n) {
		r.used[kind] -= a
		r.free[kind] += a
	}
}

// lacks returns the kind of memory that a need lacks, -1 when it fits. What it takes nothing of cannot lack.
func (r *room) lacks(n Need) int {
	for kind, a := range amounts(n) {
		if a == 0 || !r.known[kind] {
			continue
		}
		if r.used[kind]+a > r.total[kind] || (r.observed[kind] && a > r.free[kind]) {
			return kind
		}
	}
	return -1
}

// overbooked reports whether it is the sum of what models take that a need is over, and not what others have taken.
func (r *room) overbooked(n Need) bool {
	for kind, a := range amounts(n) {
		if a > 0 && r.known[kind] && r.used[kind]+a > r.total[kind] {
			return true
		}
	}
	return false
}

// verdict is what to do about a model that is wanted.
type verdict struct {
	load  bool
	evict []*resident // to be ended as soon as they are idle
	wait  time.Time   // when to look again at the latest; zero for when something changes
	full  *FullError  // why it cannot be loaded now; it is hopeless when neither load nor wait is set and nothing is evicted
	never bool        // nothing that goes on by itself will make room
}

// candidate reports whether a resident may be ended for another model's sake.
func (r *resident) candidate() bool {
	return !r.retired && !r.spec.Pinned && !r.wanted()
}

// decide says how to make room for a model that is not loaded. residents are all that have memory, pending are those whose memory the
// budget does not show yet, ahead are the models that wait before this one. It changes nothing.
func (p *Pool) decide(m *model, b Budget, pending map[*resident]bool, ahead []Need) verdict {
	now := time.Now()
	spec := m.spec
	bare := newRoom(b, spec.Need.Device)
	v := verdict{full: p.full(m)}
	if kind := bare.lacksTotal(spec.Need); kind >= 0 {
		v.full.set(kind, &bare, spec.Need)
		v.never, v.full.RetryAfter = true, 0
		return v
	}
	whole := bare
	for r := range p.residents {
		if pending[r] {
			whole.promise(r.spec.Need)
		} else {
			whole.hold(r.spec.Need)
		}
	}
	rest := whole // without those that wait before
	for _, n := range ahead {
		whole.promise(n)
	}
	if whole.lacks(spec.Need) < 0 {
		v.load = true
		return v
	}
	v.full.set(max(whole.lacks(spec.Need), 0), &whole, spec.Need)
	if p.leaving(&whole, spec.Need, false) {
		return v
	}
	if !whole.overbooked(spec.Need) && (len(pending) > 0 || time.Since(p.freed) < p.cfg.Settle) {
		v.wait = now.Add(p.cfg.Look) // memory is not yet seen as it is: nobody has to go for that
		return v
	}
	idle, busy := p.victims()
	if chosen, ok := choose(whole, spec.Need, idle); ok {
		v.evict = chosen
		return v
	}
	if p.leaving(&whole, spec.Need, true) {
		return v
	}
	may := idle
	for _, r := range busy {
		if at := p.yields(r, m); at.After(now) {
			sooner(&v.wait, at)
		} else {
			may = append(may, r)
		}
	}
	if chosen, ok := choose(whole, spec.Need, may); ok {
		v.evict = chosen
		return v
	}
	if _, ok := choose(whole, spec.Need, append(may, busy...)); ok {
		return v // once they have had their turns
	}
	v.never = !p.hopeful(rest, spec.Need, len(pending) > 0)
	v.wait = now.Add(p.cfg.Look)
	return v
}

// lacksTotal returns the kind of memory of which there would be too little if nothing else were loaded.
func (r *room) lacksTotal(n Need) int {
	for kind, a := range amounts(n) {
		if a > 0 && r.known[kind] && a > r.total[kind] {
			return kind
		}
	}
	return -1
}

// leaving reports whether a need fits once those that are on their way out have gone; with busy also those that still
// serve their last requests.
func (p *Pool) leaving(whole *room, n Need, busy bool) bool {
	after := *whole
	for r := range p.residents {
		if r.retired && (busy || r.leases == 0) {
			after.giveBack(r.spec.Need)
		}
	}
	return after.lacks(n) < 0
}

// hopeful reports whether waiting may help a model that cannot be made room for: others wait before it, or are loading
// for somebody and will be idle one day. While something loads, or has just gone, free memory is not seen as it is.
func (p *Pool) hopeful(rest room, n Need, loading bool) bool {
	for r := range p.residents {
		if r.retired || !r.spec.Pinned {
			rest.giveBack(r.spec.Need)
		}
	}
	if rest.lacks(n) < 0 {
		return true
	}
	return !rest.overbooked(n) && (loading || time.Since(p.freed) < p.cfg.Settle)
}

// victims returns those that may be ended: the idle ones, the least recently used first, and the busy ones, those first
// for which nobody waits, then those that were loaded first. What is being loaded for nobody counts as idle.
func (p *Pool) victims() (idle, busy []*resident) {
	for r := range p.residents {
		switch {
		case !r.candidate():
		case r.leases > 0:
			busy = append(busy, r)
		default:
			idle = append(idle, r)
		}
	}
	order := func(a, b *resident) int {
		return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.spec.Name, b.spec.Name))
	}
	slices.SortFunc(idle, order)
	slices.SortFunc(busy, func(a, b *resident) int {
		return cmp.Or(cmp.Compare(min(a.model.waiting(), 1), min(b.model.waiting(), 1)), a.ready.Compare(b.ready), cmp.Compare(a.spec.Name, b.spec.Name))
	})
	return idle, busy
}

// choose takes from the front of a list until a need fits, and then leaves out what is not needed after all.
func choose(after room, n Need, from []*resident) ([]*resident, bool) {
	var chosen []*resident
	for _, r := range from {
		if after.lacks(n) < 0 {
			break
		}
		after.giveBack(r.spec.Need)
		chosen = append(chosen, r)
	}
	if after.lacks(n) >= 0 {
		return nil, false
	}
	for i := len(chosen) - 1; i >= 0; i-- { // the most recently used are kept first
		without := after
		without.promise(chosen[i].spec.Need)
		if without.lacks(n) < 0 {
			after = without
			chosen = slices.Delete(chosen, i, i+1)
		}
	}
	return chosen, true
}

// full makes the error for a model, without the amounts.
func (p *Pool) full(m *model) *FullError {
	e := &FullError{Model: m.spec.Name, RetryAfter: 5 * time.Second}
	for r := range p.residents {
		if all := amounts(r.spec.Need)[together]; all > 0 {
			e.Holders = append(e.Holders, Holder{Name: r.spec.Name, Bytes: uint64(all), Busy: r.leases > 0 || r.wanted(), Pinned: r.spec.Pinned})
		}
	}
	slices.SortFunc(e.Holders, func(a, b Holder) int { return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name)) })
	return e
}

// set fills in the amounts of one kind.
func (e *FullError) set(kind int, r *room, n Need) {
	e.Kind = kinds[kind]
	e.Need = uint64(amounts(n)[kind])
	e.Total = uint64(r.total[kind])
	free := r.total[kind] - r.used[kind]
	if r.observed[kind] {
		free = min(free, r.free[kind])
	}
	e.Free = uint64(max(free, 0))
	if kind != together && r.device != "" && kind == graphics {
		e.Kind = kinds[kind] + " on " + string(r.device)
	}
}
