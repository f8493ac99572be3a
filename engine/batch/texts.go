package batch

import (
	"context"
	"errors"
	"sync"
	"time"

	"onebit/engine/model"
)

// Encoder turns texts into vectors. Only one goroutine at a time calls it.
type Encoder interface {
	// Encode sets the results of all texts.
	Encode(ctx context.Context, texts []model.Text) error
	// PassTokens is about how many tokens one pass takes.
	PassTokens() int
}

// Texts encodes the texts of many requests together. Each pass takes texts of all requests in turn, so that a short
// request waits for the passes of a long one no longer than for one.
type Texts struct {
	encoder Encoder
	wake    chan struct{} // holds a token when there is something new

	mu      sync.Mutex // guards what follows; never held over a pass
	queue   []*request // that have texts left, whose turn is next first
	closed  bool
	metrics Metrics
}

// request is the texts of one call of Encode.
type request struct {
	texts []model.Text
	next  int           // the first that no pass has taken
	left  int           // that are not done
	gone  bool          // nobody waits any more
	err   error         // valid once done is closed
	done  chan struct{} // closed when all is done, or an error is set
}

// maxRequests bounds the requests that wait.
const maxRequests = 1024

// ErrBusy says that too many requests wait already.
var ErrBusy = errors.New("too many requests are waiting")

// NewTexts returns an idle queue. Run makes it work.
func NewTexts(e Encoder) *Texts { return &Texts{encoder: e, wake: make(chan struct{}, 1)} }

// Encode sets the results of the texts. It fails with ErrBusy, with ErrStopped once Run has ended, with the context's
// error, or with what the encoder says.
func (q *Texts) Encode(ctx context.Context, texts []model.Text) error {
	if len(texts) == 0 {
		return nil
	}
	// The pass under way may write to texts that nobody waits for any more.
	r := &request{texts: append([]model.Text(nil), texts...), left: len(texts), done: make(chan struct{})}
	if err := q.submit(r); err != nil {
		return err
	}
	select {
	case <-r.done:
		if r.err == nil {
			copy(texts, r.texts)
		}
		return r.err
	case <-ctx.Done():
		q.leave(r)
		return ctx.Err()
	}
}

func (q *Texts) submit(r *request) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return ErrStopped
	case len(q.queue) >= maxRequests:
		return ErrBusy
	}
	q.queue = append(q.queue, r)
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return nil
}

// leave forgets what is left of a request.
func (q *Texts) leave(r *request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r.gone = true
	for i, other := range q.queue {
		if other == r {
			q.queue = append(q.queue[:i], q.queue[i+1:]...)
			return
		}
	}
}

// place is a text of a request.
type place struct {
	request *request
	index   int
}

// Run works until ctx is done, then ends all requests.
func (q *Texts) Run(ctx context.Context) {
	defer q.stop()
	for ctx.Err() == nil {
		texts, places := q.take()
		if len(texts) == 0 {
			select {
			case <-q.wake:
			case <-ctx.Done():
			}
			continue
		}
		begun := time.Now()
		err := q.encoder.Encode(ctx, texts)
		if err != nil && ctx.Err() != nil {
			err = ErrStopped
		}
		q.finish(texts, places, err, time.Since(begun))
	}
}

// take chooses the texts of the next pass: one of each request in turn until the pass is full.
func (q *Texts) take() (texts []model.Text, places []place) {
	q.mu.Lock()
	defer q.mu.Unlock()
	room := q.encoder.PassTokens()
	for len(q.queue) > 0 {
		r := q.queue[0]
		t := r.texts[r.next]
		if len(texts) > 0 && len(t.Tokens) > room {
			break
		}
		room -= len(t.Tokens)
		texts, places = append(texts, t), append(places, place{r, r.next})
		copy(q.queue, q.queue[1:])
		if r.next++; r.next < len(r.texts) {
			q.queue[len(q.queue)-1] = r
		} else {
			q.queue = q.queue[:len(q.queue)-1]
		}
	}
	q.metrics.Busy = len(texts)
	return texts, places
}

// finish hands out the results of a pass. An error ends every request that had a text in it.
func (q *Texts) finish(texts []model.Text, places []place, err error, took time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	m := &q.metrics
	m.Busy = 0
	m.Passes++
	m.Taking += uint64(len(texts))
	m.PromptFor += took
	m.RecentPrompts.Spent += took
	for i, at := range places {
		m.Prompt += uint64(len(texts[i].Tokens))
		m.RecentPrompts.Passes += uint64(len(texts[i].Tokens))
		m.Longest = max(m.Longest, len(texts[i].Tokens))
		r := at.request
		switch {
		case r.left <= 0 || r.gone:
		case err != nil:
			q.end(r, err)
		default:
			r.texts[at.index].Out = texts[i].Out
			if r.left--; r.left == 0 {
				close(r.done)
			}
		}
	}
}

// end ends a request with an error. The mutex is held.
func (q *Texts) end(r *request, err error) {
	for i, other := range q.queue {
		if other == r {
			q.queue = append(q.queue[:i], q.queue[i+1:]...)
			break
		}
	}
	r.err, r.left = err, 0
	close(r.done)
}

// stop ends every request.
func (q *Texts) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for len(q.queue) > 0 {
		q.end(q.queue[0], ErrStopped)
	}
}

// Metrics returns the counts, of which a queue of texts has those of prompts, and begins the recent rates anew.
func (q *Texts) Metrics() Metrics {
	q.mu.Lock()
	defer q.mu.Unlock()
	m := q.metrics
	m.Queued = len(q.queue)
	q.metrics.RecentPrompts = Rate{}
	return m
}
