package extensions

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/host"
)

// maxShelves is how many pairs of a module and a tenant are in memory at a time.
const maxShelves = 256

// shelves are what modules keep. They are read when they are first needed and written behind: what was stored in the last
// moment before a crash may be lost, which a guest must not mind.
type shelves struct {
	records Records
	now     func() time.Time

	mu  sync.Mutex
	all map[[2]string]*shelf // by module's name and tenant
}

// shelf is what modules of one name keep for one tenant. It implements host.KV.
type shelf struct {
	module, tenant string
	records        Records
	now            func() time.Time

	mu     sync.Mutex
	loaded bool
	values map[string]Value
	bytes  int
	dirty  map[string]bool
	used   time.Time
	writes sync.Mutex // one write at a time
}

// of returns a shelf.
func (s *shelves) of(module, tenant string) *shelf {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[[2]string]*shelf{}
	}
	key := [2]string{module, tenant}
	one := s.all[key]
	if one == nil {
		if len(s.all) >= maxShelves {
			s.forget()
		}
		one = &shelf{module: module, tenant: tenant, records: s.records, now: s.now, values: map[string]Value{}, dirty: map[string]bool{}}
		s.all[key] = one
	}
	one.mu.Lock()
	one.used = s.now()
	one.mu.Unlock()
	return one
}

// forget drops the shelf that was longest not used among those that are written. The lock is held.
func (s *shelves) forget() {
	var oldest [2]string
	var at time.Time
	for key, one := range s.all {
		one.mu.Lock()
		if len(one.dirty) == 0 && (at.IsZero() || one.used.Before(at)) {
			oldest, at = key, one.used
		}
		one.mu.Unlock()
	}
	if !at.IsZero() {
		delete(s.all, oldest)
	}
}

// drop forgets what modules of a name keep.
func (s *shelves) drop(module string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.all {
		if key[0] == module {
			delete(s.all, key)
		}
	}
}

// flush writes what has changed.
func (s *shelves) flush(ctx context.Context) error {
	s.mu.Lock()
	var some []*shelf
	for _, one := range s.all {
		some = append(some, one)
	}
	s.mu.Unlock()
	for _, one := range some {
		if err := one.flush(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *shelf) flush(ctx context.Context) error {
	s.writes.Lock()
	defer s.writes.Unlock()
	s.mu.Lock()
	if len(s.dirty) == 0 {
		s.mu.Unlock()
		return nil
	}
	var values []Value
	for key := range s.dirty {
		v, ok := s.values[key]
		if !ok {
			v = Value{Module: s.module, Tenant: s.tenant, Key: key}
		}
		values = append(values, v)
	}
	s.dirty = map[string]bool{}
	s.mu.Unlock()
	err := s.records.PutValues(ctx, values)
	if err != nil { // the next time
		s.mu.Lock()
		for _, v := range values {
			s.dirty[v.Key] = true
		}
		s.mu.Unlock()
	}
	return err
}

// load reads the shelf once. The lock is held.
func (s *shelf) load(ctx context.Context) error {
	if s.loaded {
		return nil
	}
	all, err := s.records.Values(ctx, s.module, s.tenant)
	if err != nil {
		return err
	}
	for _, v := range all {
		s.values[v.Key] = v
		s.bytes += len(v.Key) + len(v.Value)
	}
	s.loaded = true
	return nil
}

// live returns a value that has not expired. The lock is held.
func (s *shelf) live(key string) (Value, bool) {
	v, ok := s.values[key]
	if ok && !v.Expires.IsZero() && !s.now().Before(v.Expires) {
		s.remove(key)
		return Value{}, false
	}
	return v, ok
}

func (s *shelf) remove(key string) {
	s.bytes -= len(key) + len(s.values[key].Value)
	delete(s.values, key)
	s.dirty[key] = true
}

// put keeps a value within the quota. The lock is held.
func (s *shelf) put(v Value) error {
	old, ok := s.live(v.Key)
	grows := len(v.Key) + len(v.Value)
	if ok {
		grows -= len(v.Key) + len(old.Value)
	}
	if !ok && len(s.values) >= abi.MaxKeys || s.bytes+grows > abi.MaxStored {
		s.expire()
		if !ok && len(s.values) >= abi.MaxKeys || s.bytes+grows > abi.MaxStored {
			return host.ErrFull
		}
	}
	s.bytes += grows
	s.values[v.Key] = v
	s.dirty[v.Key] = true
	return nil
}

// expire drops all that has expired.
func (s *shelf) expire() {
	for key := range s.values {
		s.live(key)
	}
}

func (s *shelf) until(ttl time.Duration) time.Time {
	if ttl <= 0 {
		return time.Time{}
	}
	return s.now().Add(ttl)
}

// Get returns a value.
func (s *shelf) Get(ctx context.Context, key string) ([]byte, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(ctx); err != nil {
		return nil, false, err
	}
	v, ok := s.live(key)
	return v.Value, ok, nil
}

// Set keeps a value.
func (s *shelf) Set(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(ctx); err != nil {
		return err
	}
	return s.put(Value{Module: s.module, Tenant: s.tenant, Key: key, Value: append([]byte{}, value...), Expires: s.until(ttl)})
}

// Add adds to a number.
func (s *shelf) Add(ctx context.Context, key string, delta int64, ttl time.Duration) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(ctx); err != nil {
		return 0, err
	}
	v, ok := s.live(key)
	if !ok {
		v = Value{Module: s.module, Tenant: s.tenant, Key: key, Value: make([]byte, 8), Expires: s.until(ttl)}
	}
	if len(v.Value) != 8 {
		return 0, host.ErrNotNumber
	}
	sum := int64(binary.LittleEndian.Uint64(v.Value)) + delta
	v.Value = binary.LittleEndian.AppendUint64(nil, uint64(sum))
	return sum, s.put(v)
}
