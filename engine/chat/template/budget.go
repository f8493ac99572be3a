package template

import (
	"context"
	"time"

	"github.com/ardanlabs/jinja"
)

// limits bound one rendering. A template comes with a model file and is not trusted.
type limits struct {
	time   time.Duration
	memory int // bytes that values made while rendering may take, all added up
	output int // bytes of the prompt
	calls  int // macros within macros
}

// MaxTime is how long a rendering may take.
const MaxTime = 2 * time.Second

var defaultLimits = limits{time: MaxTime, memory: 128 << 20, output: 8 << 20, calls: 100}

// budget is what one rendering may still use. Every operation of a template that makes a value, walks one or goes
// round a loop draws on it first, so that a rendering ends by itself, in its caller's goroutine, with an error.
type budget struct {
	ctx    context.Context
	end    time.Time
	memory int
	calls  int
	work   int // since the last look at the clock
	limits limits
}

func newBudget(ctx context.Context, l limits, input int) *budget {
	return &budget{ctx: ctx, end: time.Now().Add(l.time), memory: l.memory + 32*input, limits: l}
}

const (
	opWork    = 512     // an operation counts as work on this many bytes
	clockWork = 1 << 16 // bytes of work between two looks at the clock
	valueSize = 40      // bytes of a value in a list
	pairSize  = 160     // bytes of a key and value in a dict
)

// step counts work on n bytes that leaves nothing behind.
func (b *budget) step(n int) error {
	if b.work += opWork + n; b.work < clockWork {
		return nil
	}
	b.work = 0
	if err := b.ctx.Err(); err != nil {
		return err
	}
	if time.Now().After(b.end) {
		return &LimitError{What: "time", Limit: b.limits.time.String()}
	}
	return nil
}

// alloc counts n bytes of new values; it comes before they are made.
func (b *budget) alloc(n int) error {
	if n < 0 || n > b.memory {
		return &LimitError{What: "memory", Limit: bytesText(b.limits.memory)}
	}
	b.memory -= n
	return b.step(n)
}

// enter counts a macro call, leave its end.
func (b *budget) enter() error {
	if b.calls++; b.calls > b.limits.calls {
		return &LimitError{What: "nested macro calls", Limit: itoa(b.limits.calls)}
	}
	return b.alloc(1 << 10)
}

func (b *budget) leave() { b.calls-- }

// size is the bytes that v takes with all it holds, each place counted, so that walking v is bounded by it. A
// value that holds itself, or is deeper than maxDepth, is an error.
func (b *budget) size(v jinja.Value) (int, error) {
	n := 0
	err := b.grow(&n, v, 0)
	return n, err
}

func (b *budget) grow(n *int, v jinja.Value, depth int) error {
	if *n += valueSize; *n > b.memory {
		return &LimitError{What: "memory", Limit: bytesText(b.limits.memory)}
	}
	switch {
	case v.IsString():
		*n += len(v.AsString())
	case v.IsList(), v.IsDict():
		if depth > maxDepth {
			return &LimitError{What: "nesting of values", Limit: itoa(maxDepth)}
		}
		if err := b.step(0); err != nil {
			return err
		}
		if v.IsList() {
			for _, item := range v.AsList().Items {
				if err := b.grow(n, item, depth+1); err != nil {
					return err
				}
			}
			return nil
		}
		d := v.AsDict()
		for _, k := range d.Keys {
			*n += len(k) + valueSize
			if err := b.grow(n, d.Data[k], depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// walk counts a walk over all of the values.
func (b *budget) walk(values ...jinja.Value) (int, error) {
	sum := 0
	for _, v := range values {
		if v.IsList() || v.IsDict() || v.IsString() {
			n, err := b.size(v)
			if err != nil {
				return 0, err
			}
			sum += n
		}
	}
	return sum, b.step(sum)
}

// shallow is the bytes that v takes without what its items hold.
func shallow(v jinja.Value) int {
	switch {
	case v.IsString():
		return len(v.AsString())
	case v.IsList():
		return valueSize * v.AsList().Len()
	case v.IsDict():
		return pairSize * v.AsDict().Len()
	}
	return 0
}
