//go:build !linux

package tensor

import (
	"sync"
	"sync/atomic"
)

// parking lets goroutines sleep until a number changes.
type parking struct {
	mu   sync.Mutex
	cond *sync.Cond
}

// sleep returns some time after seq is no longer old.
func (p *parking) sleep(seq *atomic.Uint32, old uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cond == nil {
		p.cond = sync.NewCond(&p.mu)
	}
	for seq.Load() == old {
		p.cond.Wait()
	}
}

// wake wakes all sleepers; seq has changed.
func (p *parking) wake(*atomic.Uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cond != nil {
		p.cond.Broadcast()
	}
}

// yield does nothing: the system shares out its cores by itself.
func yield() {}
