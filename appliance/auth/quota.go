package auth

import (
	"fmt"
	"time"
)

// limits is what one key may take. A limit of 0 is no limit.
type limits struct {
	perMinute   int   // requests
	perDay      int64 // tokens, prompt and completion, in a day of the clock's zone
	concurrency int   // requests at once
}

// meter counts what one key, or one person by login, takes. The table that holds it guards it.
type meter struct {
	running int
	starts  []time.Time // of the last minute, oldest first
	day     string      // that tokens is of
	tokens  int64
	touched time.Time // by a request
	noted   time.Time // when the store was last told of the use
}

// begin counts one more request, or returns why it has to wait. A refused request counts for nothing.
//
// Tokens are known when a request ends, so what runs when the day's quota is used up still finishes: a quota is passed by
// as much as the requests that run at once take.
func (m *meter) begin(now time.Time, l limits) error {
	m.touched = now
	m.turn(now)
	if l.perDay > 0 && m.tokens >= l.perDay {
		return tooMany(codeQuota, fmt.Sprintf("the quota of %d tokens a day is used up; a new day begins at midnight", l.perDay), midnight(now).Sub(now))
	}
	if l.concurrency > 0 && m.running >= l.concurrency {
		return tooMany("concurrency_limit_exceeded", fmt.Sprintf("%d requests at once are allowed, and as many are running", l.concurrency), time.Second)
	}
	if l.perMinute > 0 {
		gone := 0
		for gone < len(m.starts) && now.Sub(m.starts[gone]) >= time.Minute {
			gone++
		}
		m.starts = m.starts[gone:]
		if n := len(m.starts); n >= l.perMinute {
			free := m.starts[n-l.perMinute].Add(time.Minute) // the limit may have been lowered since
			return tooMany("rate_limit_exceeded", fmt.Sprintf("%d requests a minute are allowed", l.perMinute), free.Sub(now))
		}
		m.starts = append(m.starts, now)
	} else {
		m.starts = nil
	}
	m.running++
	return nil
}

// end counts a request out, with the tokens it took.
func (m *meter) end(now time.Time, tokens int64) {
	m.touched = now
	m.turn(now)
	m.running--
	m.tokens += tokens
}

// turn begins the count anew where a new day has begun.
func (m *meter) turn(now time.Time) {
	if d := day(now); m.day != d {
		m.day, m.tokens = d, 0
	}
}

// idle reports whether forgetting the meter loses nothing but what the store knows too.
func (m *meter) idle(now time.Time) bool { return m.running == 0 && now.Sub(m.touched) > time.Hour }

// day returns the day as the store writes it.
func day(t time.Time) string { return t.Format(time.DateOnly) }

func midnight(t time.Time) time.Time {
	y, m, d := t.Date()
	return time.Date(y, m, d+1, 0, 0, 0, 0, t.Location())
}
