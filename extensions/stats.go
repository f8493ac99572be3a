package extensions

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// window is how many of the latest calls a share or a percentile is about.
const window = 512

// one is what is known of a finished call.
type one struct {
	took      time.Duration
	failed    bool
	disagrees bool
}

// stats counts what a module does. Its methods may be called at the same time.
type stats struct {
	mu      sync.Mutex
	calls   int64
	causes  map[string]int64
	classes map[string]int64
	units   int64
	most    int64
	pages   int64
	differ  int64
	latest  []one // a ring
	at      int
}

func (s *stats) add(o one, cause, class string, units int64, pages uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if cause != "" {
		if s.causes == nil {
			s.causes = map[string]int64{}
		}
		s.causes[cause]++
	}
	if class != "" {
		if s.classes == nil {
			s.classes = map[string]int64{}
		}
		s.classes[class]++ // a manifest has a bounded list of them
	}
	s.units += units
	s.most, s.pages = max(s.most, units), max(s.pages, int64(pages))
	if o.disagrees {
		s.differ++
	}
	if len(s.latest) < window {
		s.latest = append(s.latest, o)
		return
	}
	s.latest[s.at] = o
	s.at = (s.at + 1) % window
}

// Tally is what a module has done where it is bound, since it was brought up.
type Tally struct {
	Calls        int64            `json:"calls"`
	Causes       map[string]int64 `json:"causes" about:"calls that brought no decision, by cause"`
	Classes      map[string]int64 `json:"classes" about:"decisions by class"`
	P50          float64          `json:"p50_ms" about:"of the latest calls, milliseconds"`
	P99          float64          `json:"p99_ms"`
	Units        int64            `json:"units" about:"of all calls together"`
	MostUnits    int64            `json:"most_units" about:"of one call"`
	Pages        int64            `json:"pages" about:"most memory after a call, in pages of 64 KiB"`
	Disagreement int64            `json:"disagreement" about:"decisions other than the default policy's, or for a shadow than those that were obeyed"`
	ErrorRate    float64          `json:"error_rate" about:"of the latest calls, 0 to 1"`
	DisagreeRate float64          `json:"disagreement_rate"`
	Breaker      string           `json:"breaker" about:"closed, open or suspended"`
}

func (s *stats) usage() Tally {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := Tally{
		Calls: s.calls, Causes: maps.Clone(s.causes), Classes: maps.Clone(s.classes), Units: s.units, MostUnits: s.most, Pages: s.pages,
		Disagreement: s.differ,
	}
	if u.Causes == nil {
		u.Causes = map[string]int64{}
	}
	if u.Classes == nil {
		u.Classes = map[string]int64{}
	}
	if len(s.latest) == 0 {
		return u
	}
	took := make([]time.Duration, 0, len(s.latest))
	failed, differ := 0, 0
	for _, o := range s.latest {
		took = append(took, o.took)
		if o.failed {
			failed++
		}
		if o.disagrees {
			differ++
		}
	}
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	u.P50, u.P99 = ms(took[len(took)/2]), ms(took[(len(took)*99)/100])
	u.ErrorRate, u.DisagreeRate = float64(failed)/float64(len(took)), float64(differ)/float64(len(took))
	return u
}

// breach says which limit of a guard a module has passed; empty for none.
func (g Guard) breach(u Tally) string {
	least := g.MinCalls
	if least == 0 {
		least = 50
	}
	switch {
	case u.Calls < int64(least):
		return ""
	case g.ErrorRate > 0 && u.ErrorRate > g.ErrorRate:
		return "error_rate"
	case g.P99 > 0 && u.P99 > float64(g.P99):
		return "p99_ms"
	case g.Disagreement > 0 && u.DisagreeRate > g.Disagreement:
		return "disagreement"
	}
	return ""
}

// guards tells whether it limits anything.
func (g Guard) guards() bool { return g.ErrorRate > 0 || g.P99 > 0 || g.Disagreement > 0 }

// counters are the metrics that modules declare.
type counters struct {
	mu  sync.Mutex
	all map[[2]string]float64 // by the module's name and the metric's
}

func (c *counters) add(module, name string, v float64) {
	if !(v >= 0 && v < 1e15) { // a counter never falls, and a module may say anything
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[[2]string]float64{}
	}
	c.all[[2]string{module, name}] += v
}

func (c *counters) snapshot() map[[2]string]float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.all)
}

// skip counts a request that a module was not asked about.
func (s *stats) skip(cause string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.causes == nil {
		s.causes = map[string]int64{}
	}
	s.causes[cause]++
}
