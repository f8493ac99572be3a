package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"onebit/store/sqlite"
)

const (
	backupPrefix = "1bit-"
	backupSuffix = ".backup"
	backupsKept  = 7
	backupRetry  = 15 * time.Minute // after a failed one: the drive may come back
)

// Schedule writes a backup to a folder every now and then.
type Schedule struct {
	Folder  string        // must exist: a drive that is not there is an error, not a new folder
	Every   time.Duration // at least an hour
	Keep    int           // the newest so many stay; 0: 7
	Options BackupOptions
}

// BackupStatus is how the schedule is doing.
type BackupStatus struct {
	Last    time.Time // of the newest backup in the folder, as of the last look; zero: none
	Path    string
	Tried   time.Time
	Problem string // why the last try failed; empty: it did not
}

type scheduler struct {
	mu     sync.Mutex
	plan   *Schedule
	status BackupStatus
}

func (c *scheduler) set(p *Schedule) error {
	if p != nil {
		copied := *p
		if copied.Keep == 0 {
			copied.Keep = backupsKept
		}
		if copied.Folder == "" || copied.Every < time.Hour || copied.Keep < 0 {
			return fmt.Errorf("scheduling backups: %w: a folder, and at least an hour between backups, are needed", ErrInvalid)
		}
		if err := copied.Options.lock(1).Check(); err != nil {
			return fmt.Errorf("scheduling backups: %w", err)
		}
		p = &copied
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !p.same(c.plan) {
		c.status = BackupStatus{}
	}
	c.plan = p
	return nil
}

// same reports whether another schedule does the same, with other files perhaps: then it goes on with how that one is doing.
func (p *Schedule) same(other *Schedule) bool {
	if p == nil || other == nil {
		return p == other
	}
	a, b := *p, *other
	a.Options.Files, b.Options.Files = nil, nil
	return reflect.DeepEqual(a, b)
}

func (c *scheduler) get() (*Schedule, BackupStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.plan, c.status
}

func (c *scheduler) tried(st BackupStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = st
}

// ScheduleBackup replaces the schedule; nil ends it. Run does the work.
func (s *Store) ScheduleBackup(p *Schedule) error { return s.schedule.set(p) }

// BackupStatus tells how the schedule is doing.
func (s *Store) BackupStatus() BackupStatus {
	_, st := s.schedule.get()
	return st
}

// kept is a scheduled backup in the folder.
type kept struct {
	name string
	time time.Time
}

// backupsIn lists the scheduled backups of a folder, newest first. Other files are nobody's business.
func backupsIn(root *os.Root) ([]kept, error) {
	d, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var all []kept
	for _, name := range names {
		when, ok := strings.CutPrefix(name, backupPrefix)
		when, ok2 := strings.CutSuffix(when, backupSuffix)
		if t, err := time.Parse(stampLayout, when); err == nil && ok && ok2 {
			all = append(all, kept{name, t})
		}
	}
	slices.SortFunc(all, func(a, b kept) int { return b.time.Compare(a.time) })
	return all, nil
}

// scheduledBackup writes a backup when it is time, and removes the oldest. Its first call only looks.
func (s *Store) scheduledBackup(ctx context.Context) error {
	plan, st := s.schedule.get()
	now := s.now()
	if plan == nil || st.Problem != "" && now.Sub(st.Tried) < backupRetry || !st.Last.IsZero() && now.Sub(st.Last) < plan.Every {
		return nil
	}
	st.Tried = now
	err := s.runSchedule(ctx, plan, &st)
	st.Problem = ""
	if err != nil {
		st.Problem = err.Error()
	}
	s.schedule.tried(st)
	return err
}

func (s *Store) runSchedule(ctx context.Context, plan *Schedule, st *BackupStatus) error {
	root, err := os.OpenRoot(plan.Folder)
	if err != nil {
		return err
	}
	defer root.Close()
	have, err := backupsIn(root)
	if err != nil {
		return err
	}
	if err := clearPartial(root); err != nil {
		return err
	}
	now := s.now()
	if len(have) == 0 || now.Sub(have[0].time) >= plan.Every {
		name := backupPrefix + now.UTC().Format(stampLayout) + backupSuffix
		if _, err := s.backupInto(ctx, System(), root, placed{name, plan.Options}); err != nil {
			return s.meaning(err)
		}
		have = slices.Insert(have, 0, kept{name, now})
	}
	st.Last, st.Path = have[0].time, filepath.Join(plan.Folder, have[0].name)
	for i, old := range have {
		if i >= plan.Keep {
			err = errors.Join(err, root.Remove(old.name))
		}
	}
	return err
}

// clearPartial removes what a backup left behind whose drive was pulled out or whose power went.
func clearPartial(root *os.Root) error {
	left, err := fs.Glob(root.FS(), temporary+backupPrefix+"*"+backupSuffix)
	for _, name := range left {
		err = errors.Join(err, root.Remove(name))
	}
	return err
}

// candidates are the scheduled backups that the schedule's own passphrase opens.
func (c *scheduler) candidates(dir string) []candidate {
	plan, _ := c.get()
	if plan == nil || plan.Options.Passphrase == "" {
		return nil
	}
	root, err := os.OpenRoot(plan.Folder)
	if err != nil {
		return nil // the drive is not there
	}
	defer root.Close()
	have, err := backupsIn(root)
	if err != nil {
		return nil
	}
	var all []candidate
	for _, b := range have {
		path := filepath.Join(plan.Folder, b.name)
		all = append(all, candidate{path, b.time, func(ctx context.Context, to string, _ sqlite.Ladder) error {
			return fetchBackup(ctx, dir, path, candidateTarget{to, plan.Options.Passphrase})
		}})
	}
	return all
}

type candidateTarget struct{ path, passphrase string }

// fetchBackup takes the database out of a backup that verifies.
func fetchBackup(ctx context.Context, dir, from string, to candidateTarget) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	tmp, err := temp(dir)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if _, _, err := unlock(ctx, tmp, f, RestoreOptions{Passphrase: to.passphrase}); err != nil {
		return err
	}
	return os.Rename(filepath.Join(tmp, fileName), to.path)
}
