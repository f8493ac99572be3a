package store

import (
	"context"
	"fmt"
	"time"

	"onebit/store/sqlite"
)

// UsageRow is what was used: of one request when added, of many when read.
type UsageRow struct {
	Key, Person, Model, Endpoint string
	Day                          string // "2006-01-02" in the clock's zone; empty when added: today
	Requests, Errors             int64
	Prompt, Cached, Completion   int64 // tokens
}

// UsageFilter chooses rows, and what they are summed over. Empty strings choose all.
type UsageFilter struct {
	Key, Person, Model string
	From, To           string // days, both included
	// what keeps its own row; the others are summed up and come back empty
	ByDay, ByKey, ByPerson, ByModel, ByEndpoint bool
}

const (
	usageTotals = `select case when ?1 then day else '' end, case when ?2 then key else '' end,
			case when ?3 then person else '' end, case when ?4 then model else '' end, case when ?5 then endpoint else '' end,
			sum(requests), sum(errors), sum(prompt), sum(cached), sum(completion)
		from usage where (?6 or person = ?7) and (?8 = '' or key = ?8) and (?9 = '' or person = ?9) and (?10 = '' or model = ?10)
			and (?11 = '' or day >= ?11) and (?12 = '' or day <= ?12)
		group by 1, 2, 3, 4, 5 order by 1, 2, 3, 4, 5`
	tokensToday = "select coalesce(sum(prompt + completion), 0) from usage where key = ? and day = ?"
)

// UsageTotals returns sums. What is still queued, at most 50 ms old, is not in them.
func (s *Store) UsageTotals(ctx context.Context, a Actor, f UsageFilter) ([]UsageRow, error) {
	rows, err := s.r.Query(ctx, usageTotals, f.ByDay, f.ByKey, f.ByPerson, f.ByModel, f.ByEndpoint, a.Admin, a.who(),
		f.Key, f.Person, f.Model, f.From, f.To)
	all, err := sqlite.Collect(rows, err, func(r sqlite.Row) (u UsageRow, err error) {
		err = r.Scan(&u.Day, &u.Key, &u.Person, &u.Model, &u.Endpoint, &u.Requests, &u.Errors, &u.Prompt, &u.Cached, &u.Completion)
		return u, err
	})
	if err != nil {
		return nil, fmt.Errorf("reading usage: %w", s.meaning(err))
	}
	return all, nil
}

// TokensToday returns the prompt and completion tokens that a key has used today, with those still queued. The second call
// for a key reads no disk.
func (s *Store) TokensToday(ctx context.Context, key string) (int64, error) {
	day := s.now().Format(time.DateOnly)
	if n, known := s.queue.sum(key, day); known {
		return n, nil
	}
	// while nothing is on its way to the disk, every row is either there or waits
	release, err := s.queue.hold(ctx)
	if err != nil {
		return 0, err
	}
	defer release()
	var n int64
	if err := s.r.Row(ctx, tokensToday, key, day).Scan(&n); err != nil {
		return 0, fmt.Errorf("reading a key's tokens: %w", s.meaning(err))
	}
	return s.queue.learn(key, day, n), nil
}
