// Package store keeps what survives a restart, in one SQLite file: people and their credentials, keys, usage, the
// request log, the audit log, settings, the registry of models, blobs and certificates.
//
// One connection writes and four read. A change is on the disk when its call returns; only usage, request rows and
// the last use of a key go through a queue that commits 100 rows or 50 ms together.
//
// Every call about somebody's records takes an [Actor]. Whoever is not an admin sees and changes only their own records:
// the id of somebody else's is [ErrNotFound], as if it did not exist. A call that only an admin may make is [ErrForbidden]
// for everybody else. Calls that change people, credentials, keys, invites, settings, models or the claim write their own
// audit entry in the same transaction.
package store

import (
	"context"
	"log/slog"
	"time"
)

// Config says where the store lives.
type Config struct {
	Dir      string           // the state directory; made when missing, for the owner alone
	Log      *slog.Logger     // nil: nothing is logged
	Clock    func() time.Time // nil: time.Now
	Schedule *Schedule        // nil: no scheduled backups; also where a corrupt database looks for a backup
}

// Store is an open database. All methods are safe for concurrent use.
type Store struct{ log *slog.Logger }

// Degraded says that the database is not what it was: a corrupt file was set aside and a backup took its place.
type Degraded struct {
	Happened time.Time `json:"happened"`
	DataFrom time.Time `json:"data_from"` // what changed after this moment is lost
	Source   string    `json:"source"`    // the file that was restored
	SetAside string    `json:"set_aside"` // where the corrupt file is now
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

// Open opens the database in cfg.Dir, making it when there is none. It copies and migrates an older one, refuses a newer
// one with [ErrTooNew], and checks its structure. A corrupt file is set aside, never deleted, and the newest verified
// backup takes its place: see [Store.Degraded]. Without a backup Open fails with [ErrCorrupt] and changes nothing.
// A directory that another process has open is [ErrLocked].
func Open(ctx context.Context, cfg Config) (*Store, error) { return nil, errStub }

// Run does the work in the background: group commit, expiry, snapshots, scheduled backups, the weekly scrub. It returns
// nil when ctx ends, with everything queued on the disk.
func (s *Store) Run(ctx context.Context) error { return errStub }

// Close writes what is queued and closes the files. A second call does nothing.
func (s *Store) Close() error { return errStub }

// Degraded returns nil, or what happened and from when the data is. It stays until [Store.ClearDegraded], over restarts.
func (s *Store) Degraded() *Degraded { return nil }

// ClearDegraded takes the banner away. Admins only.
func (s *Store) ClearDegraded(ctx context.Context, a Actor) error { return errStub }

// Health reports whether the store can read, and whether it can write after a full disk.
func (s *Store) Health(ctx context.Context) error { return errStub }

// Counts returns the store's own figures.
func (s *Store) Counts() Counts { return Counts{} }

// Flush returns when all that was queued before the call is on the disk.
func (s *Store) Flush(ctx context.Context) error { return errStub }

// AccessChanged returns a channel that is closed by the next change of who may do what: a key, a person or a login that was
// changed, revoked or deleted. Take the channel first, read the state, then wait.
func (s *Store) AccessChanged() <-chan struct{} { return nil }
