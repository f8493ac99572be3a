package meter

// Budget pays for one call of a guest. It is plain arithmetic: the host asks it in tick.
type Budget struct {
	units, left, slice int64
	over               bool
}

// NewBudget allows units of work, handed out in slices: after each slice the guest visits the host. The slice changes
// neither what a call costs nor whether it fits.
func NewBudget(units, slice int64) *Budget {
	return &Budget{units: units, left: units, slice: max(slice, 1)}
}

// Begin returns the first value of the guest's counter.
func (b *Budget) Begin() int64 { return b.grant(b.slice) }

// Tick answers tick: the counter that the guest goes on with, below zero when the budget is used up.
func (b *Budget) Tick(counter int64) int64 {
	counter += b.grant(b.slice - min(counter, 0))
	b.over = counter < 0
	return counter
}

func (b *Budget) grant(want int64) int64 {
	n := min(want, b.left)
	b.left -= n
	return n
}

// Used returns the units that were charged up to the counter, in a call that failed too.
func (b *Budget) Used(counter int64) int64 { return b.units - b.left - counter }

// Exhausted tells whether the budget ended the call.
func (b *Budget) Exhausted() bool { return b.over }

// Within tells whether a call that ended at the counter fits. One that returned may have overdrawn by less than one
// pass through a function, since only entries and loop heads look at the counter: it failed all the same.
func (b *Budget) Within(counter int64) bool { return b.Used(counter) <= b.units }
