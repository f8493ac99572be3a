package edge

import (
	"context"
	"time"

	"github.com/caddyserver/certmagic"

	"onebit/store"
)

// KeyInfo describes a stored value.
type KeyInfo = store.KeyInfo

// TLSStorage keeps certificates, their keys and accounts across restarts. Keys are paths with slashes. A missing key is
// an error that wraps fs.ErrNotExist. Delete takes a key and all below it, and is content when there is none. A lock
// that is not renewed ends by itself. A *store.TLS is one.
type TLSStorage interface {
	TLSLocks
	Store(ctx context.Context, key string, value []byte) error
	Load(ctx context.Context, key string) ([]byte, error)
	Delete(ctx context.Context, key string) error
	Exists(ctx context.Context, key string) bool
	List(ctx context.Context, path string, recursive bool) ([]string, error)
	Stat(ctx context.Context, key string) (KeyInfo, error)
}

// TLSLocks are the locks of a TLSStorage.
type TLSLocks interface {
	Lock(ctx context.Context, name string) error
	TryLock(ctx context.Context, name string) (bool, error)
	Unlock(ctx context.Context, name string) error
	RenewLockLease(ctx context.Context, name string, lease time.Duration) error
}

// storage is a TLSStorage as certmagic takes one.
type storage struct{ TLSStorage }

var (
	_ certmagic.Storage          = storage{}
	_ certmagic.TryLocker        = storage{}
	_ certmagic.LockLeaseRenewer = storage{}
)

// String names the storage in certmagic's log, where its content has no place.
func (storage) String() string { return "store" }

// Unlock gives a lock back even when the work that held it was cancelled.
func (s storage) Unlock(ctx context.Context, name string) error {
	return s.TLSStorage.Unlock(context.WithoutCancel(ctx), name)
}

// Stat describes a key in certmagic's words.
func (s storage) Stat(ctx context.Context, key string) (certmagic.KeyInfo, error) {
	i, err := s.TLSStorage.Stat(ctx, key)
	return certmagic.KeyInfo{Key: i.Key, Modified: i.Modified, Size: i.Size, IsTerminal: i.IsTerminal}, err
}
