package host

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tetratelabs/wazero/api"

	"onebit/extensions/abi"
	"onebit/extensions/meter"
)

// slice is how many units a guest runs before it visits the host: about 0.1 ms.
const slice = 1 << 20

// scope is one run of a guest: what it may use and what it has used. It travels to the host functions as the context.
type scope struct {
	context.Context // the caller's
	i               *Instance
	call            *Call // never nil
	setup           bool  // before the snapshot
	budget          *meter.Budget
	deadline        time.Time
	now             time.Time
	monotonic       int64 // nanoseconds, moved on by sleeps
	random          *rand.ChaCha8
	hostCalls       int
	logged          int // bytes of lines
	printed         int // bytes of output, logged or not
	lines           []Line
	partial         [3][]byte // what was written to 1 and 2 without a line feed so far
	asked           bool
	texts           [abi.Whole + 1]*string
	failed          Cause // set by the host before it stops the guest
	detail          string
}

type scopeKey struct{}

// Value knows the scope alone: the engine asks at each call, and a caller's context may be deep.
func (s *scope) Value(key any) any {
	if key == (scopeKey{}) {
		return s
	}
	return nil
}

func scopeOf(ctx context.Context) *scope {
	if s, ok := ctx.(*scope); ok {
		return s
	}
	return ctx.Value(scopeKey{}).(*scope)
}

// still is the time that guests see who were not granted a clock.
var still = time.Unix(1_600_000_000, 0)

func (i *Instance) scope(ctx context.Context, c *Call, setup bool) *scope {
	s := &scope{Context: ctx, i: i, call: c, setup: setup, budget: meter.NewBudget(i.m.config.Limits.Units, slice), deadline: c.Deadline, now: still}
	start := time.Now()
	if s.deadline.IsZero() {
		s.deadline = start.Add(i.m.config.Limits.Deadline)
		if setup {
			s.deadline = start.Add(SetupTimeout)
		}
	}
	if d, ok := ctx.Deadline(); ok && d.Before(s.deadline) {
		s.deadline = d
	}
	if c.Services.Now != nil && i.m.caps[abi.CapNow] {
		s.now = c.Services.Now()
	}
	s.monotonic = s.now.UnixNano()
	return s
}

// stopped is what the host panics with to end a guest; the engine recovers it. The scope knows why.
type stopped struct{ cause Cause }

func (e stopped) Error() string { return string(e.cause) }

// stop ends the guest.
func (s *scope) stop(c Cause, format string, args ...any) {
	s.failed, s.detail = c, fmt.Sprintf(format, args...)
	panic(stopped{c})
}

// look ends the guest when its time is over. Every function of the host begins with it.
func (s *scope) look() {
	if s.Err() != nil {
		s.stop(CauseTimeout, "%v", s.Err())
	}
	if time.Now().After(s.deadline) {
		s.stop(CauseTimeout, "the deadline passed")
	}
}

// tick answers the meter.
func tick(ctx context.Context, _ api.Module, stack []uint64) {
	s := scopeOf(ctx)
	s.look()
	stack[0] = uint64(s.budget.Tick(int64(stack[0])))
}

// Prices of what the host does for a guest, in units; a byte that it moves is one. They keep a loop of calls within the time
// that the same units of the guest's own work take.
const (
	priceVisit = 500 // a call of any function
	priceItem  = 50  // one vector, one event
)

// charge takes units from the guest.
func (s *scope) charge(m api.Module, units int) {
	g := s.i.units
	if g == nil { // the start function
		g = m.ExportedGlobal(meter.Units).(api.MutableGlobal)
	}
	g.Set(g.Get() - uint64(units))
}

// view returns bytes of the guest's memory. It is valid until the guest runs again.
func view(m api.Module, at, n uint64) ([]byte, bool) {
	return m.Memory().Read(uint32(at), uint32(n))
}

// maxText bounds the strings that a guest may hand to the host, in bytes.
const maxText = 1 << 20

// text returns a string of the guest.
func text(m api.Module, at, n uint64) (string, bool) {
	if uint32(n) > maxText {
		return "", false
	}
	b, ok := view(m, at, n)
	if !ok || !utf8.Valid(b) {
		return "", false
	}
	return string(b), true
}

func put64(m api.Module, at, v uint64) bool {
	b, ok := view(m, at, 8)
	if ok {
		binary.LittleEndian.PutUint64(b, v)
	}
	return ok
}

func put32(m api.Module, at uint64, v uint32) bool {
	b, ok := view(m, at, 4)
	if ok {
		binary.LittleEndian.PutUint32(b, v)
	}
	return ok
}

// log keeps a line as far as the quota goes. Damaged UTF-8 becomes question marks, which take no more room than it did.
func (s *scope) log(l abi.Level, b []byte) {
	room := abi.MaxLog - s.logged
	if room <= 0 {
		return
	}
	line := strings.ToValidUTF8(string(b[:min(len(b), room)]), "?")
	s.logged += max(len(line), 1)
	s.lines = append(s.lines, Line{min(max(l, abi.Debug), abi.Error), line})
}

// maxOutput is how much of what a guest prints in one call is looked at, in bytes: more than its log can hold.
const maxOutput = 4 * abi.MaxLog

// write keeps output of a standard library: whole lines, at level debug.
func (s *scope) write(fd uint64, b []byte) {
	p := &s.partial[fd]
	b = b[:min(len(b), maxOutput-s.printed)]
	s.printed += len(b)
	for len(b) > 0 {
		line := b
		end := false
		for i, c := range b {
			if c == '\n' {
				line, end = b[:i], true
				break
			}
		}
		if room := abi.MaxLog - len(*p); room > 0 {
			*p = append(*p, line[:min(len(line), room)]...)
		}
		b = b[len(line):]
		if end {
			s.log(abi.Debug, *p)
			*p, b = (*p)[:0], b[1:]
		}
	}
}

// flush logs the last lines, which had no end.
func (s *scope) flush() {
	for fd, p := range s.partial {
		if len(p) > 0 {
			s.log(abi.Debug, p)
			s.partial[fd] = nil
		}
	}
}
