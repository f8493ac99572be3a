// Package store keeps what survives a restart, in one SQLite file: people and their credentials, keys, usage, the
// request log, the audit log, settings, the registry of models, blobs and certificates.
//
// One connection writes and four read. A change is on the disk when its call returns; only usage, request rows, where
// conversations are and the last use of a key go through a queue that commits 100 rows or 50 ms together.
//
// Every call about somebody's records takes an [Actor]. Whoever is not an admin sees and changes only their own records:
// the id of somebody else's is [ErrNotFound], as if it did not exist. A call that only an admin may make is [ErrForbidden]
// for everybody else. Calls that change people, credentials, keys, invites, settings, models or the claim write their own
// audit entry in the same transaction.
package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"onebit/store/archive"
	"onebit/store/sqlite"
)

// Config says where the store lives.
type Config struct {
	Dir      string           // the state directory; made when missing, for the owner alone
	Log      *slog.Logger     // nil: nothing is logged
	Clock    func() time.Time // nil: time.Now
	Schedule *Schedule        // nil: no scheduled backups; also where a corrupt database looks for a backup

	Conversations int // how many are kept; 0: 100,000
}

// Store is an open database. All methods are safe for concurrent use.
type Store struct {
	dir   string
	log   *slog.Logger
	clock func() time.Time
	lock  *os.File
	w     *sqlite.Writer
	r     *sqlite.Reader

	queue     queue
	talks     int // conversations that are kept
	known     known
	untrimmed int // written since the last trim; whoever holds the queue's turn counts
	access    broadcaster
	degraded  atomic.Pointer[Degraded]
	full      atomic.Bool
	closed    atomic.Bool
	closing   sync.Once
	closeErr  error
	work      chan struct{} // one long piece of work at a time: snapshot, backup, scrub
	schedule  scheduler
	scrypt    int // log2 of the rounds for a passphrase; 0: the usual
}

// Degraded says that the database is not what it was: a corrupt file was set aside and a backup took its place.
type Degraded struct {
	Happened time.Time `json:"happened"`
	DataFrom time.Time `json:"data_from"` // what changed after this moment is lost
	Source   string    `json:"source"`    // the file that was restored
	SetAside string    `json:"set_aside"` // where the corrupt file is now; empty: there was none
	Reason   string    `json:"reason"`
}

// Counts are the store's own figures, for metrics.
type Counts struct {
	Queued    int   // rows that wait for the next group commit
	Dropped   int64 // request rows given up since the start, because the disk was full and memory for them ran out
	Commits   int64 // group commits since the start
	FileBytes int64 // size of the database and its write-ahead log
	Full      bool  // the last write failed for lack of space
}

const (
	fileName = archive.Database
	lockName = "1bit.lock"
)

// Open opens the database in cfg.Dir, making it when there is none. It copies and migrates an older one, refuses a newer
// one with [ErrTooNew], and checks its structure. A corrupt file is set aside, never deleted, and the newest verified
// backup takes its place: see [Store.Degraded]. Without a backup Open fails with [ErrCorrupt] and changes nothing.
// A directory that another process has open is [ErrLocked].
func Open(ctx context.Context, cfg Config) (*Store, error) {
	steps, err := embedded()
	if err != nil {
		return nil, err
	}
	return open(ctx, cfg, steps)
}

func open(ctx context.Context, cfg Config, steps sqlite.Ladder) (*Store, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	s := &Store{dir: cfg.Dir, log: cfg.Log, clock: cfg.Clock, work: make(chan struct{}, 1), talks: cmp.Or(cfg.Conversations, conversationsKept), untrimmed: conversationsTrim}
	s.queue.init()
	if err := s.schedule.set(cfg.Schedule); err != nil {
		return nil, err
	}
	lock, err := lockDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("opening the state directory %q: %w", cfg.Dir, err)
	}
	s.lock = lock
	tighten(cfg.Dir, cfg.Log)
	err = s.begin(ctx, steps)
	if errors.Is(err, ErrFull) && giveReserve(cfg.Dir) {
		cfg.Log.Error("the disk is full: the box begins on its reserve, and can keep nothing until there is room", "dir", cfg.Dir)
		err = s.begin(ctx, steps)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening %q: %w", s.path(), err), lock.Close())
	}
	keepReserve(cfg.Dir)
	return s, nil
}

// lockDir makes the state directory and holds it for this process.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := take(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (s *Store) path() string { return filepath.Join(s.dir, fileName) }

func (s *Store) now() time.Time { return s.clock() }

// begin opens the database, from a backup where it must.
func (s *Store) begin(ctx context.Context, steps sqlite.Ladder) error {
	if err := sweep(s.dir); err != nil {
		return err
	}
	err := s.missing()
	if err == nil {
		err = s.connect(ctx, steps)
	}
	if !errors.Is(err, ErrCorrupt) {
		return err
	}
	d, rerr := s.recover(ctx, err, steps)
	if rerr != nil {
		return errors.Join(err, rerr)
	}
	if err := s.connect(ctx, steps); err != nil {
		return err
	}
	return s.confess(ctx, d)
}

// missing returns ErrCorrupt where snapshots show that there was a database, and it is gone or empty: to begin anew would
// open a claimed box to everybody.
func (s *Store) missing() error {
	if st, err := os.Stat(s.path()); err == nil && st.Size() > 0 {
		return nil
	}
	snaps, err := snapshots(s.dir)
	if err != nil || len(snaps) == 0 {
		return err
	}
	return fmt.Errorf("%w: the database is gone, but snapshots of it are there", ErrCorrupt)
}

// connect opens both sides and brings the schema up to date. On an error nothing stays open.
func (s *Store) connect(ctx context.Context, steps sqlite.Ladder) (err error) {
	w, err := sqlite.OpenWriter(ctx, s.path())
	if err != nil {
		return meaning(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	if err := check(ctx, w); err != nil {
		return err
	}
	if err := s.migrate(ctx, w, steps); err != nil {
		return meaning(err)
	}
	r, err := sqlite.OpenReader(s.path(), 0)
	if err != nil {
		return err
	}
	s.w, s.r = w, r
	if err := errors.Join(s.loadDegraded(ctx), s.release(ctx)); err != nil {
		return errors.Join(err, r.Close())
	}
	return nil
}

// release ends the locks of a process that is gone: the directory is ours alone.
func (s *Store) release(ctx context.Context) error {
	var n int
	if err := s.r.Row(ctx, "select count(*) from tls_locks").Scan(&n); err != nil || n == 0 {
		return s.meaning(err)
	}
	return s.write(ctx, func(t *txn) error {
		_, err := t.Exec(ctx, "delete from tls_locks")
		return err
	})
}

// Close writes what is queued and closes the files. A second call does nothing.
func (s *Store) Close() error {
	s.closing.Do(func() {
		err := s.Flush(context.Background())
		s.closed.Store(true)
		s.closeErr = errors.Join(err, s.r.Close(), s.w.Close(), s.lock.Close())
	})
	return s.closeErr
}

// Degraded returns nil, or what happened and from when the data is. It stays until [Store.ClearDegraded], over restarts.
func (s *Store) Degraded() *Degraded { return s.degraded.Load() }

// The store's own settings; nobody else can write names that begin like this.
const (
	ownSettings    = "store."
	degradedName   = ownSettings + "degraded"
	scrubName      = ownSettings + "scrub"
	lastBackupName = ownSettings + "backup"
)

func (s *Store) loadDegraded(ctx context.Context) error {
	var d Degraded
	switch err := s.own(ctx, degradedName, &d); {
	case errors.Is(err, ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	s.degraded.Store(&d)
	return nil
}

// own reads one of the store's own settings.
func (s *Store) own(ctx context.Context, name string, into any) error {
	raw, err := s.Setting(ctx, name)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

// keep writes one of the store's own settings.
func (t *txn) keep(ctx context.Context, name string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return t.set(ctx, name, raw)
}

// confess records a recovery in the database that took over. Logins that the backup knows may have been ended since.
func (s *Store) confess(ctx context.Context, d Degraded) error {
	s.log.Error("the database was damaged and a backup took its place", "data_from", d.DataFrom, "source", d.Source, "set_aside", d.SetAside, "reason", d.Reason)
	err := s.write(ctx, func(t *txn) error {
		if err := t.keep(ctx, degradedName, d); err != nil {
			return err
		}
		if _, err := t.Exec(ctx, "delete from logins"); err != nil {
			return err
		}
		return t.audit(ctx, System(), "store.recover", d.Source, d.Reason)
	})
	if err != nil {
		return err
	}
	s.degraded.Store(&d)
	return nil
}

// ClearDegraded takes the banner away. Admins only.
func (s *Store) ClearDegraded(ctx context.Context, a Actor) error {
	if !a.Admin {
		return ErrForbidden
	}
	err := s.write(ctx, func(t *txn) error {
		if _, err := t.Exec(ctx, "delete from settings where name = ?", degradedName); err != nil {
			return err
		}
		return t.audit(ctx, a, "store.clear", "", "")
	})
	if err != nil {
		return fmt.Errorf("clearing the degraded state: %w", err)
	}
	s.degraded.Store(nil)
	return nil
}

// Health reports whether the store can read, and whether it can write after a full disk: [ErrFull] while it cannot.
func (s *Store) Health(ctx context.Context) error {
	var one int
	if err := s.r.Row(ctx, "select count(*) from claim").Scan(&one); err != nil {
		return fmt.Errorf("reading the database: %w", s.meaning(err))
	}
	if !s.full.Load() {
		return nil
	}
	// nobody may be writing at present: try
	err := s.write(ctx, func(t *txn) error { return t.keep(ctx, ownSettings+"probe", s.now()) })
	if err != nil {
		return fmt.Errorf("writing the database: %w", err)
	}
	return nil
}

// Counts returns the store's own figures.
func (s *Store) Counts() Counts {
	c := s.queue.counts()
	c.Full = s.full.Load()
	for _, suffix := range []string{"", "-wal"} {
		if st, err := os.Stat(s.path() + suffix); err == nil {
			c.FileBytes += st.Size()
		}
	}
	return c
}

// AccessChanged returns a channel that is closed by the next change of who may do what: a key, a person or a login that was
// changed, revoked or deleted. Take the channel first, read the state, then wait.
func (s *Store) AccessChanged() <-chan struct{} { return s.access.next() }

// broadcaster wakes everybody who waits.
type broadcaster struct {
	mu sync.Mutex
	ch chan struct{}
}

func (b *broadcaster) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

func (b *broadcaster) broadcast() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}
