package telemetry

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// Notice is what a webhook is told: that a condition holds, or that it is over.
type Notice struct {
	Box       string    `json:"box"`
	Version   string    `json:"version"`
	Condition string    `json:"condition"`
	Severity  Severity  `json:"severity"`
	State     string    `json:"state"` // firing or resolved
	Text      string    `json:"text"`
	Since     time.Time `json:"since"`
	Time      time.Time `json:"time"`
}

// AlertsConfig describes Alerts.
type AlertsConfig struct {
	Box     func() string
	Version string
	Look    func(context.Context) []Condition
	Log     *slog.Logger
	Every   time.Duration // between two looks; default 15 s
}

// How alerts are held back.
const (
	atOnce    = 10          // notices in a row;
	refill    = time.Minute // after these one more each so long
	calmLooks = 2           // looks at which a condition must be away before it is over
	retryMin  = 15 * time.Second
	retryMax  = 15 * time.Minute
)

// Alerts looks at conditions from time to time and tells a webhook of those that begin and end: once each. What the
// webhook does not take is told again later, as it stands then; what came and went meanwhile is not told at all.
type Alerts struct {
	cfg AlertsConfig

	mu      sync.Mutex
	hook    Sender
	changed bool

	// of the goroutine of Run
	known   map[string]*alert
	allowed float64 // notices that may be sent at once
	filled  time.Time
	failed  int // sendings in a row
	next    time.Time
}

// Sender takes notices.
type Sender interface {
	Send(ctx context.Context, n Notice) error
}

// alert is a condition that holds, or that the webhook still believes to hold.
type alert struct {
	Condition
	since  time.Time
	holds  bool
	absent int // looks in a row
	told   bool
}

// NewAlerts returns Alerts that tell nobody yet.
func NewAlerts(cfg AlertsConfig) *Alerts {
	if cfg.Every == 0 {
		cfg.Every = 15 * time.Second
	}
	return &Alerts{cfg: cfg, known: map[string]*alert{}, allowed: atOnce}
}

// Tell sends from now on to another webhook, which hears of all that holds; nil sends nowhere.
func (a *Alerts) Tell(to Sender) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hook, a.changed = to, true
}

// Run looks until ctx ends.
func (a *Alerts) Run(ctx context.Context) error {
	tick := time.NewTicker(a.cfg.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			a.look(ctx)
		}
	}
}

// look takes the conditions of the moment and tells what is new.
func (a *Alerts) look(ctx context.Context) {
	now := time.Now()
	a.note(now, a.cfg.Look(ctx))
	a.mu.Lock()
	hook := a.hook
	if a.changed {
		for _, k := range a.known {
			k.told = false
		}
		a.changed, a.failed, a.next = false, 0, time.Time{}
	}
	a.mu.Unlock()
	a.allowed = min(a.allowed+now.Sub(a.filled).Seconds()/refill.Seconds(), atOnce)
	a.filled = now
	for _, name := range slices.SortedFunc(maps.Keys(a.known), func(x, y string) int {
		return cmp.Or(a.known[x].since.Compare(a.known[y].since), cmp.Compare(x, y))
	}) {
		k := a.known[name]
		if k.holds != k.told && hook != nil && a.allowed >= 1 && !now.Before(a.next) {
			a.tell(ctx, hook, k, now)
		}
		if !k.holds && !k.told {
			delete(a.known, name)
		}
	}
}

// note takes in what holds now.
func (a *Alerts) note(now time.Time, conditions []Condition) {
	for _, k := range a.known {
		k.absent++
	}
	for _, c := range conditions {
		k := a.known[c.Name]
		if k == nil {
			k = &alert{}
			a.known[c.Name] = k
		}
		if !k.holds {
			k.since = now
		}
		k.Condition, k.holds, k.absent = c, true, 0
	}
	for _, k := range a.known {
		if k.absent >= calmLooks || k.absent > 0 && !k.told {
			k.holds = false
		}
	}
}

// tell sends one notice.
func (a *Alerts) tell(ctx context.Context, hook Sender, k *alert, now time.Time) {
	n := Notice{
		Box: a.cfg.Box(), Version: a.cfg.Version, Condition: k.Name, Severity: k.Severity, State: "firing", Text: k.Text,
		Since: k.since.UTC(), Time: now.UTC(),
	}
	if !k.holds {
		n.State, n.Text = "resolved", "it is over: "+k.Text
	}
	err := hook.Send(ctx, n)
	if err == nil {
		k.told = k.holds
		a.allowed--
		a.failed = 0
		return
	}
	if ctx.Err() != nil {
		return
	}
	if a.failed == 0 {
		a.cfg.Log.Warn("the webhook does not take alerts; they are sent again later", "why", err)
	}
	a.next = now.Add(min(retryMin<<min(a.failed, 10), retryMax))
	a.failed++
}
