package queue_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"onebit/appliance/queue"
)

var begin = time.Unix(1_000_000, 0)

// at is so many seconds after the beginning.
func at(seconds float64) time.Time { return begin.Add(time.Duration(seconds * float64(time.Second))) }

// put makes a ticket and stands it in line.
func put(t *testing.T, l *queue.Line, key string, p queue.Priority, work float64, now time.Time) *queue.Ticket {
	t.Helper()
	one := &queue.Ticket{Key: key, Priority: p, Work: work, Since: now}
	if err := l.Push(one); err != nil {
		t.Fatal(err)
	}
	return one
}

// keys empties a line and returns the keys in the order in which they were taken.
func keys(l *queue.Line, now time.Time) string {
	var out []string
	for one := l.Pop(now); one != nil; one = l.Pop(now) {
		out = append(out, one.Key)
	}
	return strings.Join(out, " ")
}

func line(age time.Duration) *queue.Line {
	return queue.New(queue.NewRoom(queue.Bounds{}), age)
}

// TestOneDoesNotWaitForAHundred: a key with one request comes after one of the key with a hundred, not after all.
func TestOneDoesNotWaitForAHundred(t *testing.T) {
	l := line(0)
	for range 100 {
		put(t, l, "many", queue.Normal, 10, begin)
	}
	for range 20 {
		l.Pop(begin)
	}
	one := put(t, l, "one", queue.Normal, 1000, begin)
	if n := l.Position(one, begin); n > 2 {
		t.Errorf("the only request of a key stands at place %d", n)
	}
	if first, second := l.Pop(begin), l.Pop(begin); first != one && second != one {
		t.Error("the only request of a key is not among the next two")
	}
}

func TestWeights(t *testing.T) {
	l := line(0)
	for range 12 {
		put(t, l, "a", queue.Normal, 10, begin)
		two := &queue.Ticket{Key: "b", Work: 10, Weight: 2, Since: begin}
		if err := l.Push(two); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string]int{}
	for range 12 {
		got[l.Pop(begin).Key]++
	}
	if got["b"] != 8 {
		t.Errorf("of twelve, the key of twice the weight has had %d", got["b"])
	}
}

// TestPriorities: what is more urgent goes first, until the rest has waited too long; then they take turns.
func TestPriorities(t *testing.T) {
	for _, c := range []struct {
		name           string
		low, mid, high float64 // when each came
		now            float64
		want           string
	}{
		{"soon", 0, 0, 1, 2, "high high high mid mid mid low low low"},
		{"when the second has waited", 10, 5, 34, 36, "high mid high mid high mid low low low"},
		{"when all have", 0, 5, 40, 65, "high mid low high mid low high mid low"},
	} {
		l := line(30 * time.Second)
		for range 3 {
			put(t, l, "low", queue.Background, 10, at(c.low))
			put(t, l, "mid", queue.Normal, 10, at(c.mid))
			put(t, l, "high", queue.Interactive, 10, at(c.high))
		}
		if n := l.Count(queue.Background); n != 3 || l.Len() != 9 || l.Keys() != 3 || l.Oldest().Key == "high" {
			t.Errorf("%d in the background, %d in all, of %d keys", n, l.Len(), l.Keys())
		}
		if got := keys(l, at(c.now)); got != c.want {
			t.Errorf("%s: %s", c.name, got)
		}
	}
}

// TestRisenTwice: what has waited for two ages comes before what is a step more urgent and new.
func TestRisenTwice(t *testing.T) {
	for now, want := range map[float64]string{
		30: "mid mid low low", // it has not risen
		50: "mid low mid low", // once: they take turns
		61: "low low mid mid",
	} {
		l := line(30 * time.Second)
		for range 2 {
			put(t, l, "low", queue.Background, 10, at(1))
			put(t, l, "mid", queue.Normal, 10, at(now-5))
		}
		if got := keys(l, at(now)); got != want {
			t.Errorf("after %v s: %s", now, got)
		}
	}
}

// TestNothingStarves: however much of what is urgent comes, everything else has its turn in bounded time.
func TestNothingStarves(t *testing.T) {
	l := line(30 * time.Second)
	low := []*queue.Ticket{}
	for i := range 10 {
		low = append(low, put(t, l, fmt.Sprint("low", i%2), queue.Background, 10, at(0)))
	}
	left := len(low)
	for second := range 200 {
		put(t, l, "high", queue.Interactive, 10, at(float64(second)))
		put(t, l, "other", queue.Normal, 10, at(float64(second)))
		if one := l.Pop(at(float64(second))); one.Priority == queue.Background {
			left--
		}
	}
	if left > 0 {
		t.Errorf("%d of what is in the background has had no turn in 200 s", left)
	}
}

func TestBounds(t *testing.T) {
	room := queue.NewRoom(queue.Bounds{Length: 5, PerKey: 3})
	a, b := queue.New(room, 0), queue.New(room, 0)
	for _, l := range []*queue.Line{a, b, a} {
		put(t, l, "x", queue.Normal, 1, begin)
	}
	err := b.Push(&queue.Ticket{Key: "x"})
	if full, ok := errors.AsType[*queue.FullError](err); !ok || !full.PerKey || full.Length != 3 || full.Limit != 3 {
		t.Errorf("the fourth of a key: %v", err)
	}
	put(t, b, "y", queue.Normal, 1, begin)
	last := put(t, b, "z", queue.Normal, 1, begin)
	err = b.Push(&queue.Ticket{Key: "z"})
	if full, ok := errors.AsType[*queue.FullError](err); !ok || full.PerKey || full.Length != 5 {
		t.Errorf("the sixth: %v", err)
	}
	if !b.Remove(last) || b.Remove(last) || room.Len() != 4 || room.Of("z") != 0 {
		t.Errorf("%d are left", room.Len())
	}
	put(t, b, "z", queue.Normal, 1, begin)
	room.Bound(queue.Bounds{PerKey: 4})
	if err := b.Push(&queue.Ticket{Key: "x"}); err == nil {
		t.Error("whoever comes newly has a place that is for those who come again")
	}
	if err := b.Push(&queue.Ticket{Key: "x", Again: true}); err != nil {
		t.Errorf("one that comes again: %v", err)
	}
	room.Bound(queue.Bounds{})
	put(t, b, "x", queue.Normal, 1, begin)
}

// TestSettle: a key whose requests are always more work than they say has no more than its share.
func TestSettle(t *testing.T) {
	l := line(0)
	truth := map[string]float64{"honest": 100, "more": 1000, "less": 10}
	got := map[string]float64{}
	for key := range truth {
		for range 4000 {
			put(t, l, key, queue.Normal, 100, begin)
		}
	}
	running := []*queue.Ticket{}
	for range 3000 {
		running = append(running, l.Pop(begin))
		if len(running) < 4 {
			continue
		}
		l.Settle(running[0], truth[running[0].Key])
		got[running[0].Key] += truth[running[0].Key]
		running = running[1:]
	}
	for key, work := range got {
		if share := work * 3 / (got["honest"] + got["more"] + got["less"]); math.Abs(share-1) > 0.1 {
			t.Errorf("%s has %.2f of a fair share", key, share)
		}
	}
}

// TestFairness holds the bound of start-time fair queueing: while two keys both have tickets, what they were given differs
// by no more than one ticket of each.
func TestFairness(t *testing.T) {
	for seed := range uint64(50) {
		draw := rand.New(rand.NewPCG(seed, 1))
		l := line(0)
		names := []string{"a", "b", "c", "d"}
		largest, since := map[string]float64{}, map[[2]string]map[string]float64{}
		waiting := map[string]int{}
		for range 2000 {
			if key := names[draw.IntN(len(names))]; draw.IntN(3) > 0 {
				work := float64(1 + draw.IntN(1000))
				put(t, l, key, queue.Normal, work, begin)
				waiting[key]++
				largest[key] = max(largest[key], work)
				continue
			}
			one := l.Pop(begin)
			if one == nil {
				continue
			}
			for i, x := range names {
				for _, y := range names[i+1:] {
					pair := [2]string{x, y}
					if waiting[x] == 0 || waiting[y] == 0 {
						delete(since, pair)
						continue
					}
					if since[pair] == nil {
						since[pair] = map[string]float64{}
					}
					since[pair][one.Key] += one.Work
					if gap := math.Abs(since[pair][x] - since[pair][y]); gap > largest[x]+largest[y] {
						t.Fatalf("seed %d: %s and %s differ by %.0f, and their largest tickets are %.0f and %.0f", seed, x, y, gap, largest[x], largest[y])
					}
				}
			}
			waiting[one.Key]--
		}
	}
}

func TestWords(t *testing.T) {
	for _, p := range queue.Priorities {
		if got, ok := queue.ParsePriority(p.String()); !ok || got != p {
			t.Errorf("%v is read as %v", p, got)
		}
	}
	if _, ok := queue.ParsePriority("urgent"); ok {
		t.Error("a word that is none was read")
	}
}

// FuzzLine drives a line and a plain list of the same rules with the same operations.
func FuzzLine(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 100, 101, 102, 200})
	f.Add([]byte{10, 20, 30, 40, 50, 60, 70, 80, 90, 120, 121, 122, 123, 160, 161, 230, 231, 250})
	f.Add([]byte(strings.Repeat("\x05\x47\x81\xb0\xf2", 40)))
	f.Fuzz(func(t *testing.T, ops []byte) {
		room := queue.NewRoom(queue.Bounds{Length: 12, PerKey: 6})
		age := 30 * time.Second
		l, m := queue.New(room, age), &model{age: age, tags: map[string]float64{}}
		now := begin
		var taken []*queue.Ticket
		for i, op := range ops[:min(len(ops), 500)] {
			n := int(op) % 64
			switch op / 64 {
			case 0, 1:
				one := &queue.Ticket{Key: string(rune('a' + n%4)), Priority: queue.Priority(n/4%3) - 1, Work: float64(1 + n*7%50), Since: now, Again: n >= 32}
				places := 5 // of the key's six, for who comes newly
				if one.Again {
					places = 6
				}
				err := l.Push(one)
				if full := len(m.all) >= 12 || m.of(one.Key) >= places; full != (err != nil) {
					t.Fatalf("operation %d: full is %v, but %v", i, full, err)
				}
				if err == nil {
					m.push(one)
				}
			case 2:
				want := m.next(now)
				got := l.Pop(now)
				if got != want {
					t.Fatalf("operation %d: took %v, want %v", i, got, want)
				}
				if got != nil {
					m.take(got)
					taken = append(taken, got)
				}
			default:
				switch {
				case n < 24 && len(m.all) > 0:
					one := m.all[n%len(m.all)]
					if !l.Remove(one) || l.Remove(one) {
						t.Fatalf("operation %d: could not leave once", i)
					}
					m.drop(one)
				case n < 36 && len(taken) > 0:
					one := taken[n%len(taken)]
					taken = slices.DeleteFunc(taken, func(o *queue.Ticket) bool { return o == one })
					work := float64(1 + n)
					l.Settle(one, work)
					m.settle(one, work)
				default:
					now = now.Add(time.Duration(n) * time.Second)
				}
			}
			m.compare(t, l, room, now)
		}
	})
}

// model is the rules of a line in the plainest form.
type model struct {
	age   time.Duration
	all   []*queue.Ticket // in the order in which they came
	tags  map[string]float64
	clock [3]float64
	turn  [3]float64
	turns float64
}

func (m *model) of(key string) (n int) {
	for _, one := range m.all {
		if one.Key == key {
			n++
		}
	}
	return n
}

func name(one *queue.Ticket) string { return fmt.Sprint(one.Key, " ", one.Priority) }

func (m *model) push(one *queue.Ticket) {
	if !slices.ContainsFunc(m.all, func(o *queue.Ticket) bool { return name(o) == name(one) }) {
		m.tags[name(one)] = max(m.tags[name(one)], m.clock[one.Priority+1])
	}
	m.all = append(m.all, one)
}

// next is the first ticket of the smallest tag in the class whose turn it is.
func (m *model) next(now time.Time) *queue.Ticket {
	best, level := -1, -2
	for c := 2; c >= 0; c-- {
		for _, one := range m.all { // the first one is the oldest
			if int(one.Priority)+1 != c {
				continue
			}
			risen := min(int(one.Priority)+int(now.Sub(one.Since)/m.age), 1)
			if risen > level || risen == level && max(m.turn[c], m.turns) < max(m.turn[best], m.turns) {
				best, level = c, risen
			}
			break
		}
	}
	var found *queue.Ticket
	for _, one := range m.all {
		if int(one.Priority)+1 == best && (found == nil || m.tags[name(one)] < m.tags[name(found)]) {
			found = one
		}
	}
	return found
}

func (m *model) take(one *queue.Ticket) {
	c := one.Priority + 1
	start := max(m.turn[c], m.turns)
	m.turns, m.turn[c] = start, start+one.Work
	m.clock[c] = max(m.clock[c], m.tags[name(one)])
	m.tags[name(one)] += one.Work
	m.drop(one)
}

func (m *model) drop(one *queue.Ticket) {
	m.all = slices.DeleteFunc(m.all, func(o *queue.Ticket) bool { return o == one })
}

func (m *model) settle(one *queue.Ticket, work float64) {
	diff, clock := work-one.Work, m.clock[one.Priority+1]
	m.tags[name(one)] = max(m.tags[name(one)]+diff, min(m.tags[name(one)], clock-math.Abs(diff)))
}

// compare checks that both hold the same tickets in the same order.
func (m *model) compare(t *testing.T, l *queue.Line, room *queue.Room, now time.Time) {
	t.Helper()
	if l.Len() != len(m.all) || room.Len() != len(m.all) {
		t.Fatalf("%d in line, %d in the room, want %d", l.Len(), room.Len(), len(m.all))
	}
	ahead := *m
	ahead.all, ahead.tags = slices.Clone(m.all), map[string]float64{}
	for name, tag := range m.tags {
		ahead.tags[name] = tag
	}
	n := 0
	for one := range l.Order(now) {
		n++
		if want := ahead.next(now); one != want {
			t.Fatalf("place %d has %v, want %v", n, one, want)
		}
		if p := l.Position(one, now); p != n {
			t.Fatalf("place %d says it is %d", n, p)
		}
		ahead.take(one)
	}
	if n != len(m.all) {
		t.Fatalf("%d tickets in order, want %d", n, len(m.all))
	}
}

func BenchmarkLine(b *testing.B) {
	l := line(30 * time.Second)
	all := make([]*queue.Ticket, 256)
	for i := range all {
		all[i] = &queue.Ticket{Key: fmt.Sprint(i % 16), Priority: queue.Priority(i%3) - 1, Work: float64(i), Since: begin}
		if err := l.Push(all[i]); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("pop and push", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			one := l.Pop(begin)
			if err := l.Push(one); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("position of the last", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			last := &queue.Ticket{Key: "x", Priority: queue.Background, Since: begin}
			if err := l.Push(last); err != nil || l.Position(last, begin) < 150 {
				b.Fatal(err)
			}
			l.Remove(last)
		}
	})
}
