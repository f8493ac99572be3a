package extensions

import (
	"sync"
	"time"
)

// How the breaker of a module works.
const (
	breakAfter  = 5                // failures
	breakWithin = 30 * time.Second // of each other, open it
	probeAfter  = 5 * time.Second  // the first probe; each round doubles it
	probeRounds = 3                // that fail suspend the module
)

// breaker keeps a module that fails from being asked. Its methods may be called at the same time.
type breaker struct {
	mu        sync.Mutex
	failures  []time.Time // the latest, at most breakAfter
	open      bool
	suspended bool
	probing   bool
	rounds    int       // probes that failed since it opened
	until     time.Time // of the next probe
}

// allows tells whether the module may be asked now. While the breaker is open one call at a time is let through when the
// wait is over: a probe. Whoever was allowed reports how it ended.
func (b *breaker) allows(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.suspended:
		return false
	case !b.open:
		return true
	case b.probing || now.Before(b.until):
		return false
	}
	b.probing = true
	return true
}

// report says how an allowed call ended. It returns true when that has just suspended the module.
func (b *breaker) report(now time.Time, ok bool) (suspended bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.probing {
		b.probing = false
		if ok {
			b.open, b.rounds, b.failures = false, 0, nil
			return false
		}
		b.rounds++
		if b.rounds == probeRounds {
			b.suspended = true
			return true
		}
		b.until = now.Add(probeAfter << b.rounds)
		return false
	}
	if ok || b.open {
		return false // a success between two failures does not take them back
	}
	b.failures = append(b.failures, now)
	if len(b.failures) > breakAfter {
		b.failures = b.failures[1:]
	}
	if len(b.failures) == breakAfter && now.Sub(b.failures[0]) <= breakWithin {
		b.open, b.rounds, b.until = true, 0, now.Add(probeAfter)
	}
	return false
}

// forget takes back a call that says nothing about the module.
func (b *breaker) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probing = false
}

// state is closed, open or suspended.
func (b *breaker) state() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.suspended:
		return "suspended"
	case b.open:
		return "open"
	}
	return "closed"
}

// reset closes it.
func (b *breaker) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures, b.open, b.suspended, b.probing, b.rounds = nil, false, false, false, 0
}
