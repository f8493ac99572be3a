package pool

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"onebit/engine"
	"onebit/engine/backend"
)

// Run decides who is loaded and who goes, and blocks. When ctx ends, all models are ended, whoever uses them, and it
// returns nil. It is called once.
func (p *Pool) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			p.stop()
			return nil
		case <-p.kick:
		case <-timer.C:
		}
		if next := p.step(ctx); !next.IsZero() {
			timer.Reset(max(time.Until(next), time.Millisecond))
		}
	}
}

// stop ends everything and waits for it.
func (p *Pool) stop() {
	p.mu.Lock()
	p.closed = true
	for _, m := range p.models {
		m.fail(&engine.UnavailableError{Reason: "the box is stopping"})
	}
	for r := range p.residents {
		p.retire(r, "the box is stopping")
		p.end(r)
	}
	p.unlock()
	p.group.Wait()
}

// step looks at everything once. It returns when to look again, zero for when something changes.
func (p *Pool) step(ctx context.Context) time.Time {
	p.mu.Lock()
	next := p.expire(time.Now())
	pending := map[*resident]bool{}
	for r := range p.residents {
		if r.instance == nil {
			pending[r] = true
		}
	}
	idle := len(p.next(time.Now(), &next)) == 0
	p.unlock()
	if idle {
		return next
	}
	budget := p.cfg.Memory()
	p.mu.Lock()
	defer p.unlock()
	var ahead []Need
	now := time.Now()
	for _, m := range p.next(now, &next) {
		v := p.decide(m, budget, pending, ahead)
		switch {
		case v.load:
			pending[p.load(ctx, m)] = true
		case v.never:
			p.say(slog.LevelWarn, "a model does not fit", "model", m.spec.Name, "why", v.full)
			m.fail(v.full)
		default:
			for _, r := range v.evict {
				r.model.count.Evictions++
				p.retire(r, "the model "+m.spec.Name+" needs its memory")
				m.sent = true
			}
			m.blocked = v.full
			if m.sent || !p.due(m).After(now) { // others may still pass by who has time
				ahead = append(ahead, m.spec.Need)
			}
			sooner(&next, v.wait)
		}
	}
	return next
}

// sooner moves next forward to t.
func sooner(next *time.Time, t time.Time) {
	if !t.IsZero() && (next.IsZero() || t.Before(*next)) {
		*next = t
	}
}

// expire retires what has been idle for too long. It returns when the next may be due.
func (p *Pool) expire(now time.Time) (next time.Time) {
	for r := range p.residents {
		if r.retired || r.instance == nil || r.spec.TTL <= 0 || r.spec.Pinned {
			continue
		}
		due := r.idleSince().Add(r.spec.TTL)
		if r.leases > 0 {
			due = now.Add(r.spec.TTL) // at the earliest
		}
		if due.After(now) {
			sooner(&next, due)
			continue
		}
		p.retire(r, "nobody has asked for it")
	}
	return next
}

// load begins to load a model.
func (p *Pool) load(ctx context.Context, m *model) *resident {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // stop ends it, once nobody stands in line
	spec := m.spec                                                // Set may change some of it meanwhile
	r := &resident{model: m, spec: spec, begun: time.Now(), cancel: cancel, gone: make(chan struct{})}
	if m.sent {
		m.count.Swaps++
	}
	m.current, m.blocked, m.sent = r, nil, false
	p.residents[r] = true
	p.say(slog.LevelInfo, "loading a model", "model", spec.Name)
	p.group.Go(func() {
		begin, start := time.Now(), p.cfg.Start
		if spec.Start != nil {
			start = spec.Start
		}
		instance, err := start(ctx, spec)
		p.loaded(r, instance, err, time.Since(begin))
	})
	return r
}

// loaded takes in the result of a load.
func (p *Pool) loaded(r *resident, instance Instance, err error, took time.Duration) {
	defer p.wake()
	p.mu.Lock()
	defer p.unlock()
	m := r.model
	if err != nil {
		p.forget(r)
		if !r.retired {
			m.current = nil
			p.failed(m, err)
		}
		return
	}
	now := time.Now()
	r.instance, r.ready = instance, now
	m.count.Loads++
	m.count.LoadTime += took
	m.pace.loaded(took, instance.Backend().Slots())
	p.say(slog.LevelInfo, "a model is loaded", "model", r.spec.Name, "took", took.Round(time.Millisecond))
	p.group.Go(func() { p.watch(r) })
	if r.retired {
		p.end(r)
		return
	}
	m.preload = time.Time{}
	for _, w := range m.besides() {
		w.got <- granted{r: m.lease(nil)}
	}
	m.admit(now)
}

// forget takes something out of memory's account that has gone.
func (p *Pool) forget(r *resident) {
	if !p.residents[r] {
		return
	}
	r.cancel()
	delete(p.residents, r)
	p.freed = time.Now()
	close(r.gone)
}

// failed sets a model's pause and tells everybody in line.
func (p *Pool) failed(m *model, err error) {
	m.failures++
	m.count.Failures++
	pause := p.cfg.PauseMax
	if shift := m.failures - 1; shift < 20 {
		pause = min(pause, p.cfg.PauseMin<<shift)
	}
	m.retryAt = time.Now().Add(pause)
	m.reason = "the model " + m.spec.Name + " does not run: " + err.Error()
	p.say(slog.LevelWarn, "a model failed", "model", m.spec.Name, "why", err, "failures", m.failures, "trying_again_in", pause)
	if m.failures > 1 || m.waiting() == 0 || !errors.Is(err, backend.ErrMemory) {
		m.fail(&engine.UnavailableError{Reason: m.reason, RetryAfter: pause})
	} // else those in line stand there for one more try: whoever took the memory may have gone by then
	if m.spec.Preload { // one that is to be there always is tried again by itself
		m.preload = m.retryAt
	}
}

// watch waits for the end of an instance, whoever ended it.
func (p *Pool) watch(r *resident) {
	<-r.instance.Done()
	r.instance.Stop() // nothing of it may be left before its memory counts as free
	defer p.wake()
	p.mu.Lock()
	defer p.unlock()
	ended := r.retired
	p.forget(r)
	if ended {
		return
	}
	r.retired = true
	m := r.model
	m.current = nil
	if time.Since(r.ready) >= p.cfg.Steady {
		m.failures = 0
	}
	why := r.instance.Err()
	if why == nil {
		why = errors.New("it ended")
	}
	p.failed(m, why)
}

// retire lets something go with its last lease. r may be nil.
func (p *Pool) retire(r *resident, why string) {
	if r == nil || r.retired {
		return
	}
	r.retired = true
	if m := r.model; m.current == r {
		m.current = nil
		m.leftBehind(time.Now())
		if r.instance != nil && time.Since(r.ready) >= p.cfg.Steady {
			m.failures = 0
		}
	}
	p.say(slog.LevelInfo, "a model is to be unloaded", "model", r.spec.Name, "why", why, "busy", r.leases)
	p.end(r)
}

// end ends something that has no leases, or whatever it has when all is to end.
func (p *Pool) end(r *resident) {
	if (r.leases > 0 && !p.closed) || r.ending {
		return
	}
	if r.instance == nil {
		r.cancel() // the load gives up, and loaded hears of it
		return
	}
	r.ending = true
	p.group.Go(r.instance.Stop) // watch hears of it
}
