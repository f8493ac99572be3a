package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"onebit/store/sqlite"
)

// PrivateCAPrefix begins the names of the local authority's private keys. A backup leaves them out unless it is asked for them.
const PrivateCAPrefix = "ca/private/"

const (
	lockLease = 2 * time.Minute
	lockPoll  = 50 * time.Millisecond
)

// KeyInfo describes one stored value, or a folder of them.
type KeyInfo struct {
	Key        string
	Modified   time.Time
	Size       int64
	IsTerminal bool // false: other names have this one as their folder
}

// TLS stores certificates and their keys by name, in the shape that certmagic asks for. Names have folders, divided by
// slashes. A name that is not there is [fs.ErrNotExist]. Locks are leases: one that its holder does not renew ends by
// itself, and a new start of the store ends them all.
type TLS struct{ s *Store }

// TLS returns the store of certificates.
func (s *Store) TLS() *TLS { return &TLS{s: s} }

// folderRange returns the bounds of all names below a folder, the second one excluded.
func folderRange(name string) (from, to string) {
	name = strings.TrimSuffix(name, "/")
	return name + "/", name + "0" // '0' follows '/'
}

// Store stores a value.
func (t *TLS) Store(ctx context.Context, key string, value []byte) error {
	if value == nil {
		value = []byte{}
	}
	err := t.s.write(ctx, func(x *txn) error {
		_, err := x.Exec(ctx, `insert into tls_values(name, value, time) values(?, ?, ?)
			on conflict do update set value = excluded.value, time = excluded.time`, key, value, sqlite.Stamp(x.now))
		return err
	})
	if err != nil {
		return fmt.Errorf("storing %q: %w", key, err)
	}
	return nil
}

// absent gives a missing name the error that file systems have.
func (t *TLS) absent(key string, err error) error {
	err = t.s.meaning(err)
	if errors.Is(err, ErrNotFound) {
		return fmt.Errorf("%q: %w", key, fs.ErrNotExist)
	}
	return fmt.Errorf("reading %q: %w", key, err)
}

// Load returns a value.
func (t *TLS) Load(ctx context.Context, key string) ([]byte, error) {
	var v []byte
	if err := t.s.r.Row(ctx, "select value from tls_values where name = ?", key).Scan(&v); err != nil {
		return nil, t.absent(key, err)
	}
	return v, nil
}

// Delete deletes a value, or a folder with all below it. There need not be one.
func (t *TLS) Delete(ctx context.Context, key string) error {
	from, to := folderRange(key)
	err := t.s.write(ctx, func(x *txn) error {
		_, err := x.Exec(ctx, "delete from tls_values where name = ? or (name >= ? and name < ?)", key, from, to)
		return err
	})
	if err != nil {
		return fmt.Errorf("deleting %q: %w", key, err)
	}
	return nil
}

// Exists tells whether there is such a value or folder.
func (t *TLS) Exists(ctx context.Context, key string) bool {
	from, to := folderRange(key)
	var n int
	err := t.s.r.Row(ctx, "select count(*) from (select 1 from tls_values where name = ? or (name >= ? and name < ?) limit 1)", key, from, to).Scan(&n)
	return err == nil && n > 0
}

// List returns the names in a folder, of values and of folders; all below it when recursive. The empty prefix is the root.
func (t *TLS) List(ctx context.Context, prefix string, recursive bool) ([]string, error) {
	from, to := folderRange(prefix)
	if prefix == "" {
		from, to = "", "\U0010ffff"
	}
	rows, err := t.s.r.Query(ctx, "select name from tls_values where name >= ? and name < ? order by name", from, to)
	names, err := sqlite.Collect(rows, err, func(r sqlite.Row) (name string, err error) { return name, r.Scan(&name) })
	if err != nil {
		return nil, t.absent(prefix, err)
	}
	var all []string
	seen := map[string]bool{}
	for _, name := range names {
		steps := strings.Split(strings.TrimPrefix(name, from), "/")
		if !recursive {
			steps = steps[:1]
		}
		for i := range steps {
			full := from + strings.Join(steps[:i+1], "/")
			if !seen[full] {
				seen[full] = true
				all = append(all, full)
			}
		}
	}
	if len(all) == 0 && prefix != "" {
		return nil, fmt.Errorf("%q: %w", prefix, fs.ErrNotExist)
	}
	return all, nil
}

// Stat describes a value or a folder.
func (t *TLS) Stat(ctx context.Context, key string) (KeyInfo, error) {
	var size, at int64
	err := t.s.r.Row(ctx, "select length(value), time from tls_values where name = ?", key).Scan(&size, &at)
	if err == nil {
		return KeyInfo{Key: key, Modified: sqlite.Moment(at), Size: size, IsTerminal: true}, nil
	}
	if errors.Is(t.s.meaning(err), ErrNotFound) && t.Exists(ctx, key) {
		return KeyInfo{Key: key}, nil
	}
	return KeyInfo{}, t.absent(key, err)
}

// TryLock takes a lock for two minutes and tells whether it could.
func (t *TLS) TryLock(ctx context.Context, name string) (taken bool, err error) {
	err = t.s.write(ctx, func(x *txn) error {
		n, err := x.Exec(ctx, `insert into tls_locks(name, owner, until) values(?1, ?2, ?3)
			on conflict do update set owner = excluded.owner, until = excluded.until where until < ?4`,
			name, systemPerson, sqlite.Stamp(x.now.Add(lockLease)), sqlite.Stamp(x.now))
		taken = n == 1
		return err
	})
	if err != nil {
		return false, fmt.Errorf("locking %q: %w", name, err)
	}
	return taken, nil
}

// Lock takes a lock for two minutes, and waits for it as long as ctx allows.
func (t *TLS) Lock(ctx context.Context, name string) error {
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for {
		taken, err := t.TryLock(ctx, name)
		if err != nil || taken {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// Unlock gives a lock back, even when ctx has ended. It need not be held.
func (t *TLS) Unlock(ctx context.Context, name string) error {
	ctx = context.WithoutCancel(ctx)
	err := t.s.write(ctx, func(x *txn) error {
		_, err := x.Exec(ctx, "delete from tls_locks where name = ?", name)
		return err
	})
	if err != nil {
		return fmt.Errorf("unlocking %q: %w", name, err)
	}
	return nil
}

// RenewLockLease lets a lock that is held last for a while from now on.
func (t *TLS) RenewLockLease(ctx context.Context, name string, lease time.Duration) error {
	err := t.s.write(ctx, func(x *txn) error {
		return x.One(ctx, "update tls_locks set until = ?2 where name = ?1", name, sqlite.Stamp(x.now.Add(lease)))
	})
	if err != nil {
		return fmt.Errorf("renewing the lock of %q: %w", name, err)
	}
	return nil
}
