package extensions

import (
	"context"
	"slices"
	"sync"
	"time"

	"onebit/extensions/abi"
)

const (
	maxShadows     = 4   // calls of modules in shadow at a time; what is more is not compared
	maxDifferences = 100 // that are remembered
)

// Difference is a request that a module in shadow would have decided otherwise.
type Difference struct {
	Time         time.Time `json:"time"`
	Binding      string    `json:"binding"`
	Module       string    `json:"module"`
	Conversation string    `json:"conversation"`
	Obeyed       string    `json:"obeyed" about:"what was done"`
	Shadow       string    `json:"shadow" about:"what the module would have done"`
}

// shadows runs modules whose word does not count yet.
type shadows struct {
	room  chan struct{}
	group sync.WaitGroup

	mu   sync.Mutex
	last []Difference
}

func (s *shadows) wait() { s.group.Wait() }

func (s *shadows) note(d Difference) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.last) == maxDifferences {
		s.last = slices.Delete(s.last, 0, 1)
	}
	s.last = append(s.last, d)
}

// Differences returns what modules in shadow would have done otherwise, the latest last.
func (m *Manager) Differences() []Difference {
	m.shadows.mu.Lock()
	defer m.shadows.mu.Unlock()
	return append([]Difference{}, m.shadows.last...)
}

// observe lets the modules in shadow decide as well, behind the request's back.
func (d *deciding) observe(obeyed Outcome) {
	for _, p := range []*place{d.policy, d.classifier} {
		if p == nil || p.shadow == nil {
			continue
		}
		select {
		case d.m.shadows.room <- struct{}{}:
		default:
			continue
		}
		if !p.shadow.hold() {
			<-d.m.shadows.room
			continue
		}
		later := &deciding{m: d.m, in: d.in, prompt: d.prompt, who: d.who, req: d.req, now: d.now}
		later.kept = &entry{id: d.kept.id, decision: decision{by: map[string]string{}}}
		if p == d.classifier {
			later.req.Class, later.req.Confidence, later.req.Scores = "", 0, nil
		}
		d.m.shadows.group.Go(func() {
			defer func() { <-d.m.shadows.room }()
			later.shadow(p, obeyed)
		})
	}
}

// shadow asks a module and compares.
func (d *deciding) shadow(p *place, obeyed Outcome) {
	dec, v := d.consult(context.Background(), p, p.shadow)
	var would string
	did := wordOf(obeyed)
	switch {
	case v.cause != "":
		would = "error=" + v.cause
	case p.Kind == abi.Classifier:
		did = obeyed.Class
		if dec != nil {
			would = dec.Class
		}
	case dec != nil && dec.Reject != nil:
		would = "reject " + dec.Reject.Code
	case dec != nil && len(dec.Candidates) > 0:
		would = d.first(dec.Candidates)
	default:
		would = byDefault(d.in.Candidates).Candidate
	}
	if dec != nil {
		v.class = dec.Class
	}
	v.disagrees = would != did
	d.m.count(p, p.shadow, v, true)
	if v.disagrees {
		d.m.shadows.note(Difference{Time: d.now.UTC(), Binding: p.Name, Module: p.shadow.label(), Conversation: string(d.kept.id), Obeyed: did, Shadow: would})
	}
}

// wordOf is an outcome in a word.
func wordOf(o Outcome) string {
	if o.Refusal != nil {
		return "reject " + o.Refusal.Code
	}
	return o.Candidate
}
