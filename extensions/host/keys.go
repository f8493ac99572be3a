package host

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"onebit/extensions/abi"
)

// Keys is a KV in memory, with the quotas of the contract. It is safe for concurrent use.
type Keys struct {
	now   func() time.Time
	mu    sync.Mutex
	keys  map[string]stored
	bytes int
}

type stored struct {
	value []byte
	until time.Time // the zero time for ever
}

// NewKeys returns an empty store that reads the time from now.
func NewKeys(now func() time.Time) *Keys { return &Keys{now: now, keys: map[string]stored{}} }

// Get implements KV.
func (k *Keys) Get(_ context.Context, key string) ([]byte, bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	v, ok := k.live(key)
	return append([]byte(nil), v.value...), ok, nil
}

// Set implements KV.
func (k *Keys) Set(_ context.Context, key string, value []byte, ttl time.Duration) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.put(key, stored{append([]byte(nil), value...), k.end(ttl)})
}

// Add implements KV.
func (k *Keys) Add(_ context.Context, key string, delta int64, ttl time.Duration) (int64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	v, ok := k.live(key)
	if !ok {
		v = stored{make([]byte, 8), k.end(ttl)}
	}
	if len(v.value) != 8 {
		return 0, ErrNotNumber
	}
	sum := int64(binary.LittleEndian.Uint64(v.value)) + delta
	return sum, k.put(key, stored{binary.LittleEndian.AppendUint64(nil, uint64(sum)), v.until})
}

func (k *Keys) end(ttl time.Duration) time.Time {
	if ttl <= 0 {
		return time.Time{}
	}
	return k.now().Add(ttl)
}

// live returns a value that has not ended, and forgets one that has.
func (k *Keys) live(key string) (stored, bool) {
	v, ok := k.keys[key]
	if ok && !v.until.IsZero() && !k.now().Before(v.until) {
		k.forget(key)
		return stored{}, false
	}
	return v, ok
}

func (k *Keys) forget(key string) {
	k.bytes -= len(key) + len(k.keys[key].value)
	delete(k.keys, key)
}

func (k *Keys) put(key string, v stored) error {
	if !k.fits(key, v) {
		for old := range k.keys {
			k.live(old)
		}
		if !k.fits(key, v) {
			return ErrFull
		}
	}
	if _, ok := k.keys[key]; ok {
		k.forget(key)
	}
	k.keys[key] = v
	k.bytes += len(key) + len(v.value)
	return nil
}

func (k *Keys) fits(key string, v stored) bool {
	n, bytes := len(k.keys)+1, k.bytes+len(key)+len(v.value)
	if old, ok := k.keys[key]; ok {
		n, bytes = n-1, bytes-len(key)-len(old.value)
	}
	return n <= abi.MaxKeys && bytes <= abi.MaxStored
}
