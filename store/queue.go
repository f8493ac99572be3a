package store

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"onebit/store/sqlite"
)

const (
	groupRows  = 100 // so many waiting rows are committed at once,
	groupDelay = 50 * time.Millisecond
	retryDelay = time.Second // after a failed group commit

	// what may wait in memory while the disk is full; usage is summed up meanwhile and never dropped
	waitingRows  = 10_000
	waitingBytes = 32 << 20

	touchEvery = time.Minute // a key's last use is no more exact than this
)

type usageID struct{ key, day, model, endpoint, person string }

// batch is what one group commit writes.
type batch struct {
	usage    map[usageID]*UsageRow
	requests []RequestRow
	touched  map[string]time.Time
	talks    map[string]Conversation // by id: each as it was last
}

func newBatch() *batch {
	return &batch{usage: map[usageID]*UsageRow{}, touched: map[string]time.Time{}, talks: map[string]Conversation{}}
}

func (b *batch) empty() bool {
	return len(b.usage) == 0 && len(b.requests) == 0 && len(b.touched) == 0 && len(b.talks) == 0
}

func (b *batch) add(u UsageRow) {
	id := usageID{u.Key, u.Day, u.Model, u.Endpoint, u.Person}
	sum := b.usage[id]
	if sum == nil {
		b.usage[id] = &u
		return
	}
	sum.Requests += u.Requests
	sum.Errors += u.Errors
	sum.Prompt += u.Prompt
	sum.Cached += u.Cached
	sum.Completion += u.Completion
}

// tokens sums what a key used on a day.
func (b *batch) tokens(key, day string) (n int64) {
	for id, u := range b.usage {
		if id.key == key && id.day == day {
			n += u.Prompt + u.Completion
		}
	}
	return n
}

// queue holds rows until the next group commit.
type queue struct {
	mu      sync.Mutex
	waiting *batch
	rows    int // added since the last swap
	bytes   int // texts of the requests that wait or fly
	touched map[string]time.Time
	day     string           // of the sums in today
	today   map[string]int64 // tokens by key, for the keys that were asked for
	wake    chan struct{}
	turn    chan struct{} // held by the one that flushes
	dropped atomic.Int64
	commits atomic.Int64
}

func (q *queue) init() {
	q.waiting = newBatch()
	q.touched = map[string]time.Time{}
	q.wake = make(chan struct{}, 1)
	q.turn = make(chan struct{}, 1)
}

// added counts a row and wakes Run for the first one and for a full group. The caller holds mu.
func (q *queue) added() {
	q.rows++
	if q.rows == 1 || q.rows >= groupRows {
		q.call()
	}
}

func (q *queue) call() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) counts() Counts {
	q.mu.Lock()
	defer q.mu.Unlock()
	return Counts{Queued: q.rows, Dropped: q.dropped.Load(), Commits: q.commits.Load()}
}

func (q *queue) full() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.rows >= groupRows
}

// take moves what waits into flight.
func (q *queue) take() *batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting.empty() {
		return nil
	}
	b := q.waiting
	q.waiting, q.rows = newBatch(), 0
	return b
}

// landed ends a flight: what was not committed waits again.
func (q *queue) landed(b *batch, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if ok {
		for _, r := range b.requests {
			q.bytes -= len(r.PromptText) + len(r.AnswerText)
		}
		q.commits.Add(1)
		return
	}
	q.rows += len(b.usage) + len(b.requests) + len(b.talks)
	for _, u := range q.waiting.usage {
		b.add(*u)
	}
	maps.Copy(b.touched, q.waiting.touched)
	for _, c := range q.waiting.talks {
		b.talk(c)
	}
	b.requests = append(b.requests, q.waiting.requests...)
	q.waiting = b
	q.call()
}

// sum returns what a key has used on a day, where it is known.
func (q *queue) sum(key, day string) (n int64, known bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.day != day {
		return 0, false
	}
	n, known = q.today[key]
	return n, known
}

// learn takes what the disk has of a key, while nobody flushes, and returns the sum with what waits.
func (q *queue) learn(key, day string, onDisk int64) int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.day != day {
		q.day, q.today = day, map[string]int64{}
	}
	n := onDisk + q.waiting.tokens(key, day)
	q.today[key] = n
	return n
}

func (q *queue) request(r RequestRow) {
	q.mu.Lock()
	defer q.mu.Unlock()
	size := len(r.PromptText) + len(r.AnswerText)
	if len(q.waiting.requests) >= waitingRows || q.bytes+size > waitingBytes {
		q.dropped.Add(1)
		return
	}
	q.bytes += size
	q.waiting.requests = append(q.waiting.requests, r)
	q.added()
}

// AddUsage adds to the sums of its day. It never waits for the disk.
func (s *Store) AddUsage(u UsageRow) {
	if u.Day == "" {
		u.Day = s.now().Format(time.DateOnly)
	}
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	s.queue.waiting.add(u)
	if n, known := s.queue.today[u.Key]; known && u.Day == s.queue.day {
		s.queue.today[u.Key] = n + u.Prompt + u.Completion
	}
	s.queue.added()
}

// AddRequest adds a line to the request log, without its texts unless its privacy is full, and not at all where it is
// none. It never waits for the disk.
func (s *Store) AddRequest(r RequestRow) {
	switch r.Privacy {
	case PrivacyFull:
	case PrivacyMetadata:
		r.PromptText, r.AnswerText = nil, nil
	default:
		return
	}
	if r.Time.IsZero() {
		r.Time = s.now()
	}
	if r.ID == "" {
		r.ID = newID(r.Time)
	}
	if r.Expires.IsZero() {
		r.Expires = r.Time.Add(metadataDays * 24 * time.Hour)
		if r.Privacy == PrivacyFull {
			r.Expires = r.Time.Add(fullDays * 24 * time.Hour)
		}
	}
	s.queue.request(r)
}

// TouchKey notes that a key was used now. It never waits for the disk.
func (s *Store) TouchKey(id string) {
	now := s.now()
	q := &s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if last, ok := q.touched[id]; ok && now.Sub(last) < touchEvery {
		return
	}
	q.touched[id] = now
	q.waiting.touched[id] = now
	q.added()
}

// hold keeps others from flushing.
func (q *queue) hold(ctx context.Context) (release func(), err error) {
	select {
	case q.turn <- struct{}{}:
		return func() { <-q.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Flush returns when all that was queued before the call is on the disk.
func (s *Store) Flush(ctx context.Context) error {
	q := &s.queue
	release, err := q.hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	b := q.take()
	if b == nil {
		return nil
	}
	err = s.write(ctx, func(t *txn) error {
		if err := t.commitBatch(ctx, b); err != nil {
			return err
		}
		return s.putConversations(ctx, t, b.talks)
	})
	q.landed(b, err == nil)
	return err
}

const (
	insertUsage = `insert into usage(key, day, model, endpoint, person, requests, errors, prompt, cached, completion)
		values(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		on conflict do update set requests = requests + excluded.requests, errors = errors + excluded.errors,
			prompt = prompt + excluded.prompt, cached = cached + excluded.cached, completion = completion + excluded.completion`
	insertRequest = `insert or ignore into requests(id, time, key, person, endpoint, model, backend, route, status, milliseconds,
			ttft, prompt, cached, completion, error, privacy, expires, prompt_text, answer_text)
		values(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
)

func (t *txn) commitBatch(ctx context.Context, b *batch) error {
	for _, u := range b.usage {
		if _, err := t.Exec(ctx, insertUsage, u.Key, u.Day, u.Model, u.Endpoint, u.Person,
			u.Requests, u.Errors, u.Prompt, u.Cached, u.Completion); err != nil {
			return err
		}
	}
	for _, r := range b.requests {
		if _, err := t.Exec(ctx, insertRequest, r.ID, sqlite.Stamp(r.Time), r.Key, r.Person, r.Endpoint, r.Model, r.Backend, r.Route,
			r.Status, r.Milliseconds, r.TTFT, r.Prompt, r.Cached, r.Completion, r.Error, string(r.Privacy), sqlite.Stamp(r.Expires),
			r.PromptText, r.AnswerText); err != nil {
			return err
		}
	}
	for id, at := range b.touched {
		if _, err := t.Exec(ctx, "update keys set used = ?2 where id = ?1 and used < ?2", id, sqlite.Stamp(at)); err != nil {
			return err
		}
	}
	return nil
}

// group commits what is queued until ctx ends, and then the rest.
func (s *Store) group(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return s.Flush(context.WithoutCancel(ctx))
		case <-s.queue.wake:
			if failing {
				continue // the timer runs
			}
			if !s.queue.full() {
				timer.Reset(groupDelay)
				continue
			}
		case <-timer.C:
		}
		err := s.Flush(ctx)
		if errors.Is(err, ErrClosed) {
			return err
		}
		if err != nil && !failing && ctx.Err() == nil {
			s.log.Warn("usage and request log are not on the disk yet", "error", err)
		}
		if failing = err != nil; failing {
			timer.Reset(retryDelay)
		}
	}
}
