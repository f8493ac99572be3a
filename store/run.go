package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"onebit/store/sqlite"
)

const (
	choreEvery  = time.Minute
	expireEvery = time.Hour
	scrubEvery  = 7 * 24 * time.Hour
	expireBatch = 500 // rows that expire in one transaction
)

// Run does the work in the background: group commit, expiry, daily snapshots, scheduled backups, the weekly scrub. It
// returns nil when ctx ends, with everything queued on the disk.
func (s *Store) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() {
		if err := s.learn(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("which conversations are known is read from the disk each time", "error", err)
		}
	})
	wg.Go(func() {
		tick := time.NewTicker(choreEvery)
		defer tick.Stop()
		var c chores
		for {
			s.tend(ctx, &c)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	err := s.group(ctx)
	cancel()
	wg.Wait()
	return err
}

// chores remembers when what was last done or tried.
type chores struct{ expired, snapped, scrubbed time.Time }

// due tells whether a chore should run, and takes it as run now: after a failure the next try is a period away, but at
// most an hour.
func due(last *time.Time, now time.Time, every time.Duration) bool {
	if !last.IsZero() && now.Sub(*last) < every {
		return false
	}
	*last = now
	return true
}

// tend does what is due. Problems are logged: there is nobody to return them to.
func (s *Store) tend(ctx context.Context, c *chores) {
	now := s.now()
	report := func(what string, err error) {
		if err != nil && ctx.Err() == nil {
			s.log.Error(what, "error", err)
		}
	}
	if due(&c.expired, now, expireEvery) {
		report("deleting what has expired", s.expire(ctx))
	}
	// a box that nobody has claimed has nothing to lose; one that has just been claimed has
	claimed, err := s.Claimed(ctx)
	report("looking whether the box is claimed", err)
	if claimed && due(&c.snapped, now, expireEvery) {
		report("writing the daily snapshot", s.dailySnapshot(ctx))
	}
	if due(&c.scrubbed, now, expireEvery) {
		report("scrubbing", s.weeklyScrub(ctx))
	}
	report("writing the scheduled backup", s.scheduledBackup(ctx))
}

// busy takes the turn for long work.
func (s *Store) busy(ctx context.Context) (release func(), err error) {
	select {
	case s.work <- struct{}{}:
		return func() { <-s.work }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *Store) dailySnapshot(ctx context.Context) error {
	all, err := snapshots(s.dir)
	if err != nil {
		return err
	}
	if len(all) > 0 && s.now().Sub(all[0].time) < snapshotEvery {
		return nil
	}
	return s.Snapshot(ctx)
}

// Snapshot writes a verified plain copy of the database into the state directory, which a corrupt database is restored
// from. Run does so every day.
func (s *Store) Snapshot(ctx context.Context) error {
	release, err := s.busy(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := s.Flush(ctx); err != nil {
		return fmt.Errorf("writing a snapshot: %w", err)
	}
	if _, err := s.snapshot(ctx, "daily"); err != nil {
		return fmt.Errorf("writing a snapshot: %w", s.meaning(err))
	}
	return nil
}

func (s *Store) weeklyScrub(ctx context.Context) error {
	last, err := s.LastScrub(ctx)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	if s.now().Sub(last.Time) < scrubEvery {
		return nil
	}
	_, err = s.Scrub(ctx)
	return err
}

// expire deletes what has expired, in small transactions.
func (s *Store) expire(ctx context.Context) error {
	now := sqlite.Stamp(s.now())
	for {
		var n int64
		err := s.write(ctx, func(t *txn) (err error) {
			n, err = t.Exec(ctx, "delete from requests where id in (select id from requests where expires <= ? limit ?)", now, expireBatch)
			return err
		})
		if err != nil {
			return err
		}
		if n < expireBatch {
			break
		}
	}
	return s.write(ctx, func(t *txn) error {
		if _, err := t.Exec(ctx, "delete from logins where expires <= ?", now); err != nil {
			return err
		}
		if _, err := t.Exec(ctx, "delete from invites where expires <= ?", now); err != nil {
			return err
		}
		if _, err := t.Exec(ctx, expireValues, now); err != nil {
			return err
		}
		if _, err := t.Exec(ctx, "delete from responses where expires <= ?", now); err != nil {
			return err
		}
		_, err := t.Exec(ctx, "delete from tls_locks where until <= ?", now)
		return err
	})
}
