package promptcache_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"onebit/appliance/promptcache"
)

// TestShares: who has most beside a file loses it first; among equals what is unmarked, and what was longest not used.
func TestShares(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	for _, c := range []struct {
		name, files string // each is its name, whose it is (the first letter), bytes, how long ago it was used, and whether it is marked
		want        string
	}{
		{"of one, the longest unused", "a1:10:5 a2:10:9 a3:10:1", "a2 a1 a3"},
		{"of one, what is marked last", "a1:10:5 a2:10:9m a3:10:1", "a1 a3 a2"},
		{"of one, what is marked beyond a half is not", "a1:10:5 a2:30:9m a3:30:8m a4:10:7", "a2 a4 a1 a3"},
		{"the many of one before the few of another, however old", "a1:10:1 a2:10:2 a3:10:3 b1:10:99 b2:10:98", "a3 b1 a2 b2 a1"},
		{"the only one of somebody, however large, as that of all others", "a1:60:5 b1:10:3 b2:10:2 b3:10:1", "b1 b2 a1 b3"},
		{"marks within one's share", "a1:20:9m a2:20:8m a3:10:7m b1:20:6 b2:20:5 c1:10:4", "a1 b1 a2 b2 c1 a3"},
		{"as many files weigh as much as bytes", strings.Repeat("a:0:5 ", 1100) + "b1:25:9 b2:25:8", strings.Repeat("a ", 587) + "b1"},
	} {
		var all []promptcache.Entry
		for i, f := range strings.Fields(c.files) {
			e := promptcache.Entry{}
			part := strings.Split(f, ":")
			e.File, e.Scope[0] = part[0], part[0][0]
			age, marked := strings.CutSuffix(part[2], "m")
			var ago int
			if _, err := fmt.Sscan(part[1]+" "+age, &e.Bytes, &ago); err != nil {
				t.Fatal(err)
			}
			e.Used = now.Add(-time.Duration(ago)*time.Minute - time.Duration(i))
			if marked {
				e.Marked = now.Add(time.Hour)
			}
			all = append(all, e)
		}
		if got := strings.Join(promptcache.Order(all, 100, now), " ") + " "; !strings.HasPrefix(got, strings.TrimSpace(c.want)+" ") {
			t.Errorf("%s: %.200s", c.name, got)
		}
	}
}

// TestFair: a key that has far more conversations than fit, all of them marked or none, costs another neither of its two, which
// are older; over a restart too.
func TestFair(t *testing.T) {
	for _, marked := range []bool{false, true} {
		t.Run(fmt.Sprint("marked: ", marked), func(t *testing.T) {
			b := newBench(t, 1)
			b.set(func(s *promptcache.Settings) { s.Budget = 16 << 10 }) // seven of about 2,100 bytes
			few := []*talk{b.talk("anna", long(500, 1)), b.talk("anna", long(500, 2))}
			for _, k := range few {
				k.say("hello")
			}
			for i := range 40 {
				b.pass(time.Minute)
				k := b.talk("bert", long(500, 10+i))
				if marked {
					k.messages[0]["cache_control"] = map[string]any{"type": "ephemeral", "ttl": "1h"}
				}
				k.say("hello")
				if i == 20 {
					b.restart(true)
				}
			}
			if s := b.cache.Status(); s.Bytes > s.Budget || s.Entries < 5 {
				t.Errorf("%+v", s)
			}
			for i, k := range few {
				u := k.say("again")
				near(t, fmt.Sprint("reused of conversation ", i), u.Cached, u.Prompt, 90)
			}
		})
	}
}
