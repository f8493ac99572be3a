package store_test

import (
	"context"
	"io/fs"
	"testing"
	"time"

	"onebit/store"
)

func TestTLS(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	s := f.TLS()
	_, err := s.Load(ctx, "a/b")
	wantErr(t, err, fs.ErrNotExist)
	_, err = s.Stat(ctx, "a/b")
	wantErr(t, err, fs.ErrNotExist)
	for _, k := range []string{"a/b/c.key", "a/b/d.key", "a/e", "ab", "a0"} {
		f.must(s.Store(ctx, k, []byte(k)))
	}
	f.must(s.Store(ctx, "a/e", []byte("new")))
	v, err := s.Load(ctx, "a/e")
	f.must(err)
	same(t, string(v), "new")
	info, err := s.Stat(ctx, "a/e")
	f.must(err)
	same(t, info, store.KeyInfo{Key: "a/e", Modified: f.clock.Now(), Size: 3, IsTerminal: true})
	info, err = s.Stat(ctx, "a/b")
	f.must(err)
	same(t, info, store.KeyInfo{Key: "a/b"})
	for _, tt := range []struct {
		prefix    string
		recursive bool
		want      []string
	}{
		{"a", false, []string{"a/b", "a/e"}},
		{"a/", false, []string{"a/b", "a/e"}},
		{"a", true, []string{"a/b", "a/b/c.key", "a/b/d.key", "a/e"}},
		{"", false, []string{"a", "a0", "ab"}},
	} {
		got, err := s.List(ctx, tt.prefix, tt.recursive)
		f.must(err)
		same(t, got, tt.want)
	}
	_, err = s.List(ctx, "zz", true)
	wantErr(t, err, fs.ErrNotExist)
	f.must(s.Delete(ctx, "a"))
	same(t, []bool{s.Exists(ctx, "a"), s.Exists(ctx, "a/b/c.key"), s.Exists(ctx, "ab"), s.Exists(ctx, "a0")}, []bool{false, false, true, true})
}

func TestTLSLocks(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	s := f.TLS()
	try := func(want bool) {
		t.Helper()
		ok, err := s.TryLock(ctx, "x")
		f.must(err)
		same(t, ok, want)
	}
	try(true)
	try(false)
	f.clock.add(time.Minute)
	f.must(s.RenewLockLease(ctx, "x", 5*time.Minute))
	f.clock.add(4 * time.Minute)
	try(false)
	f.clock.add(2 * time.Minute)
	try(true) // the lease has ended
	wantErr(t, s.RenewLockLease(ctx, "y", time.Minute), store.ErrNotFound)

	ended, cancel := context.WithCancel(ctx)
	cancel()
	wantErr(t, s.Lock(ended, "x"), context.Canceled)
	f.must(s.Unlock(ended, "x"))
	f.must(s.Lock(ctx, "x"))
	f.must(f.Close())
	f.reopen(nil)
	s = f.TLS()
	try(true) // its holder was another process
}
