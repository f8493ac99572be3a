package pool_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"onebit/appliance/pool"
	"onebit/appliance/queue"
	"onebit/engine"
)

// An hour in a box: conversations of three keys, which want very different amounts, with eight models, of which two or
// three have room. ONEBIT_HOUR says that it is a whole hour with ten thousand conversations; else it is six minutes of it.

// hourModel is one of the models.
type hourModel struct {
	name  string
	size  uint64  // GiB
	slots int     // that it has
	speed float64 // tokens a second, of each
	share float64 // of the conversations
}

var hourModels = []hourModel{
	{"chat", 7, 8, 90, 0.34}, {"code", 10, 8, 70, 0.22}, {"small", 6, 12, 160, 0.14}, {"vision", 8, 6, 75, 0.08},
	{"long", 9, 6, 70, 0.08}, {"reason", 12, 6, 60, 0.06}, {"poet", 8, 6, 90, 0.05}, {"translate", 7, 8, 120, 0.03},
}

const hourRoom = 26 // GiB: two or three of them

// loads is how long a model takes to load.
func (m hourModel) loads() time.Duration {
	return time.Duration(float64(m.size)*0.7*1000) * time.Millisecond
}

// hourKey is somebody who asks.
type hourKey struct {
	name     string
	share    float64 // of the conversations
	burst    int     // conversations that begin together
	think    time.Duration
	prompt   float64 // tokens
	answer   float64
	priority func(*rand.Rand) queue.Priority
}

var hourKeys = []hourKey{
	{"agents", 0.70, 20, 2 * time.Second, 500, 30, func(r *rand.Rand) queue.Priority {
		if r.IntN(4) == 0 {
			return queue.Background
		}
		return queue.Normal
	}},
	{"team", 0.25, 6, 10 * time.Second, 300, 60, func(r *rand.Rand) queue.Priority { return queue.Normal }},
	{"home", 0.05, 1, 20 * time.Second, 150, 100, func(r *rand.Rand) queue.Priority {
		return queue.Priority(r.IntN(2))
	}},
}

// turn is one request of a conversation.
type turn struct {
	prompt, answer int
	think          time.Duration // before it
	again          bool          // it was refused
}

// talk is one conversation.
type talk struct {
	key      hourKey
	model    hourModel
	priority queue.Priority
	begin    time.Duration
	turns    []turn
}

// takes is how long a turn holds its slot.
func (t talk) takes(one turn) time.Duration {
	return time.Duration(t.work(one) / t.model.speed * float64(time.Second))
}

func (t talk) work(one turn) float64 { return float64(one.prompt)/8 + float64(one.answer) }

// hourOf draws so many conversations over so long a time. The same seed draws the same.
func hourOf(seed uint64, n int, span time.Duration) []talk {
	draw := rand.New(rand.NewPCG(seed, 7))
	about := func(mean float64) int { return max(1, int(mean*math.Exp(draw.NormFloat64()*0.6-0.18))) }
	var all []talk
	for _, k := range hourKeys {
		left := int(math.Round(k.share * float64(n)))
		for left > 0 {
			at := time.Duration(draw.Float64() * float64(span))
			model := hourModels[0] // a burst is of one program, which asks for one model
			at0, sum := draw.Float64(), 0.0
			for _, m := range hourModels {
				if sum += m.share; at0 < sum {
					model = m
					break
				}
			}
			for range min(left, 1+draw.IntN(2*k.burst)) {
				t := talk{key: k, model: model, priority: k.priority(draw), begin: at + time.Duration(draw.IntN(2000))*time.Millisecond}
				for range 1 + draw.IntN(5) {
					t.turns = append(t.turns, turn{prompt: about(k.prompt), answer: about(k.answer), think: time.Duration(draw.ExpFloat64() * float64(k.think))})
				}
				t.turns[0].think = 0
				all = append(all, t)
				left--
			}
		}
	}
	return all
}

// acquirer is a box of the hour: it gives a model, and says when it refuses when to come again.
type acquirer func(ctx context.Context, t talk, one turn) (release func(), again time.Duration, err error)

// figures are what came out.
type figures struct {
	mu       sync.Mutex
	served   int
	refused  int
	took     time.Duration
	waits    map[queue.Priority][]time.Duration // in line
	longest  map[queue.Priority]time.Duration   // with what was refused before
	loads    int
	backlogs map[string]*backlog // by line
	share    map[string][2]float64
}

// live runs all conversations in a box, in the bubble of a test.
func live(t *testing.T, all []talk, acquire acquirer) *figures {
	f := &figures{
		waits: map[queue.Priority][]time.Duration{}, longest: map[queue.Priority]time.Duration{}, backlogs: map[string]*backlog{}, share: map[string][2]float64{},
	}
	begin := time.Now()
	var group sync.WaitGroup
	for _, one := range all {
		group.Go(func() {
			time.Sleep(one.begin)
			for _, step := range one.turns {
				time.Sleep(step.think)
				f.turn(t, one, step, acquire)
			}
		})
	}
	group.Wait()
	f.took = time.Since(begin)
	for _, b := range f.backlogs {
		b.close(f, "")
	}
	return f
}

// turn runs one request, which comes again when it is refused.
func (f *figures) turn(t *testing.T, one talk, step turn, acquire acquirer) {
	first := time.Now()
	line := one.model.name + " " + one.priority.String()
	for {
		begin := time.Now()
		f.waiting(line, one.key.name, 1)
		release, again, err := acquire(t.Context(), one, step)
		if err == nil {
			f.granted(line, one, step, begin, first)
		}
		f.waiting(line, one.key.name, -1)
		switch {
		case err == nil:
			time.Sleep(one.takes(step))
			release()
			return
		case again == 0:
			t.Errorf("%s of %s: %v", one.model.name, one.key.name, err)
			return
		}
		f.mu.Lock()
		f.refused++
		step.again = true
		f.mu.Unlock()
		time.Sleep(again)
	}
}

func (f *figures) granted(line string, one talk, step turn, begin, first time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.served++
	f.waits[one.priority] = append(f.waits[one.priority], time.Since(begin))
	f.longest[one.priority] = max(f.longest[one.priority], time.Since(first))
	f.backlogs[line].took(one.key.name, one.work(step))
}

// backlog is what keys were given of a line while they waited for it together.
type backlog struct {
	waiting map[string]int
	pairs   map[[2]string]*pair
}

type pair struct {
	given map[string]float64
	times int
}

// enough is how many leases a time has in which two keys waited together that is looked at: in a shorter one a single
// request is more than a tenth.
const enough = 20

func (f *figures) waiting(line, key string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.backlogs[line]
	if b == nil {
		b = &backlog{map[string]int{}, map[[2]string]*pair{}}
		f.backlogs[line] = b
	}
	if b.waiting[key] += n; b.waiting[key] == 0 {
		b.close(f, key)
	}
}

func (b *backlog) took(key string, work float64) {
	for other, n := range b.waiting {
		if n == 0 || other == key {
			continue
		}
		names := [2]string{min(key, other), max(key, other)}
		p := b.pairs[names]
		if p == nil {
			p = &pair{given: map[string]float64{}}
			b.pairs[names] = p
		}
		p.given[key] += work
		p.times++
	}
}

// close ends the times in which a key waited beside others; all of them for an empty key.
func (b *backlog) close(f *figures, key string) {
	for names, p := range b.pairs {
		if key != "" && names[0] != key && names[1] != key {
			continue
		}
		delete(b.pairs, names)
		if p.times < enough {
			continue
		}
		for _, name := range names {
			s := f.share[name]
			f.share[name] = [2]float64{s[0] + p.given[name], s[1] + (p.given[names[0]]+p.given[names[1]])/2}
		}
	}
}

func (f *figures) String() string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "%d requests in %v, %d refusals, %d loads\n", f.served, f.took.Round(time.Second), f.refused, f.loads)
	for _, of := range queue.Priorities {
		w := f.waits[of]
		slices.Sort(w)
		if len(w) == 0 {
			continue
		}
		at := func(q float64) time.Duration { return w[int(q*float64(len(w)-1))].Round(100 * time.Millisecond) }
		fmt.Fprintf(b, "  %-11s %6d  in line: half under %v, 99%% under %v, longest %v; with refusals before it: longest %v\n",
			of, len(w), at(0.5), at(0.99), at(1), f.longest[of].Round(100*time.Millisecond))
	}
	for _, name := range slices.Sorted(maps.Keys(f.share)) {
		s := f.share[name]
		fmt.Fprintf(b, "  %-8s has had %.3f of its fair share of %.0f tokens, for which it and another key waited together\n", name, s[0]/s[1], s[1])
	}
	return b.String()
}

// inThePool runs the hour with the pool.
func inThePool(t *testing.T, all []talk, q pool.Queue) (f *figures) {
	inBox(t, hourRoom, func(t *testing.T, w *world) {
		w.slotsOf, w.loadOf = map[string]int{}, map[string]time.Duration{}
		var specs []pool.ModelSpec
		for _, m := range hourModels {
			w.slotsOf[m.name], w.loadOf[m.name] = m.slots, m.loads()
			specs = append(specs, spec(m.name, m.size))
		}
		w.set(specs...)
		w.pool.SetQueue(q)
		w.pool.SetWait(time.Hour)
		f = live(t, all, func(ctx context.Context, one talk, step turn) (func(), time.Duration, error) {
			l, err := w.pool.Acquire(ctx, pool.Ask{Model: one.model.name, Key: one.key.name, Priority: one.priority, Prompt: step.prompt, Again: step.again})
			if busy, ok := errors.AsType[*pool.BusyError](err); ok {
				return nil, busy.Wait, err
			}
			if err != nil {
				return nil, 0, err
			}
			return func() { l.Finish(engine.Usage{Prompt: step.prompt, Completion: step.answer}) }, 0, nil
		})
		for _, c := range w.pool.Counts() {
			f.loads += int(c.Loads)
		}
	})
	return f
}

// inOrder runs the hour in a box that serves requests in the order in which they come: who is next and whose model is not in
// memory waits until the least recently used ones have ended, and everybody behind waits too.
func inOrder(t *testing.T, all []talk) (f *figures) {
	synctest.Test(t, func(t *testing.T) {
		b := &ordered{loaded: map[string]*ordering{}}
		f = live(t, all, func(_ context.Context, one talk, _ turn) (func(), time.Duration, error) {
			return b.acquire(one.model), 0, nil
		})
		f.loads = b.loads
	})
	return f
}

// ordered is that box.
type ordered struct {
	mu     sync.Mutex
	line   []*ordering
	loaded map[string]*ordering
	loads  int
}

// ordering is who waits, or a model that is loaded.
type ordering struct {
	model   hourModel
	granted chan struct{}
	ready   bool
	running int
	used    time.Time
}

func (b *ordered) acquire(m hourModel) func() {
	w := &ordering{model: m, granted: make(chan struct{})}
	b.mu.Lock()
	b.line = append(b.line, w)
	b.step()
	b.mu.Unlock()
	<-w.granted
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.loaded[m.name].running--
		b.loaded[m.name].used = time.Now()
		b.step()
	}
}

func (b *ordered) step() {
	for len(b.line) > 0 {
		m := b.line[0].model
		at := b.loaded[m.name]
		if at == nil && !b.load(m) || at == nil || !at.ready || at.running == m.slots {
			return
		}
		at.running++
		close(b.line[0].granted)
		b.line = b.line[1:]
	}
}

// load begins to load a model where there is room, or makes some where models are idle.
func (b *ordered) load(m hourModel) bool {
	taken := m.size
	for _, other := range b.loaded {
		taken += other.model.size
	}
	for taken > hourRoom {
		var oldest *ordering
		for _, other := range b.loaded {
			if other.ready && other.running == 0 && (oldest == nil || other.used.Before(oldest.used)) {
				oldest = other
			}
		}
		if oldest == nil {
			return false
		}
		delete(b.loaded, oldest.model.name)
		taken -= oldest.model.size
	}
	at := &ordering{model: m, used: time.Now()}
	b.loaded[m.name] = at
	b.loads++
	go func() {
		time.Sleep(m.loads())
		b.mu.Lock()
		defer b.mu.Unlock()
		at.ready = true
		b.step()
	}()
	return true
}

// TestHour holds what the queue promises: nobody starves, keys that wait together have equal shares, and models are
// swapped much less often than in the order in which requests come.
func TestHour(t *testing.T) {
	conversations, span := 1000, 6*time.Minute
	if os.Getenv("ONEBIT_HOUR") != "" {
		conversations, span = 10_000, time.Hour
	}
	all := hourOf(1, conversations, span)
	roomy, usual := pool.Queue{MaxWait: 30 * time.Second}, pool.Queue{MaxWait: 30 * time.Second, Length: 256, PerKey: 64}
	turns := 0
	for _, one := range all {
		turns += len(one.turns)
	}
	ours := inThePool(t, all, roomy)
	t.Logf("%d conversations with %d requests that begin within %v\nthe pool: %v", len(all), turns, span, ours)
	bounded := inThePool(t, all, usual)
	t.Logf("with the bounds of the defaults: %v", bounded)
	eager := inThePool(t, all, pool.Queue{MaxWait: time.Millisecond})
	t.Logf("without patience: %v", eager)
	plain := inOrder(t, all)
	t.Logf("in the order in which they come: %v", plain)
	factor := float64(plain.loads) / float64(ours.loads)
	t.Logf("swaps: %.1f times as many in the order in which they come, %.1f times as many without patience", factor, float64(eager.loads)/float64(ours.loads))
	if ours.served != turns || bounded.served != turns || plain.served != turns {
		t.Errorf("%d, %d and %d of %d requests were served", ours.served, bounded.served, plain.served, turns)
	}
	if factor < 4 {
		t.Errorf("swaps: only %.1f times as many in the order in which they come", factor)
	}
	for name, s := range ours.share {
		if share := s[0] / s[1]; math.Abs(share-1) > 0.1 {
			t.Errorf("%s has had %.2f of its share", name, share)
		}
	}
	for of, most := range map[queue.Priority]time.Duration{queue.Interactive: 3 * time.Minute, queue.Normal: 5 * time.Minute, queue.Background: 8 * time.Minute} {
		if ours.longest[of] > most {
			t.Errorf("%v: one has waited %v", of, ours.longest[of])
		}
	}
}
