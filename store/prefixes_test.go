package store_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onebit/store"
)

// prefixOf is a record with every field set.
func prefixOf(n byte, used time.Time) store.Prefix {
	p := store.Prefix{
		File: fmt.Sprintf("f%03d", n), Model: "m", Blocks: []byte{n, n}, Tokens: int64(n) + 1, Bytes: int64(n) + 2,
		Marked: used.Add(time.Hour), Used: used,
	}
	p.Of[0], p.Scope[1], p.Last[2] = n, n, n
	return p
}

// TestPrefixes: what is recorded is there after a restart, the longest unused first; only its use and its mark change.
func TestPrefixes(t *testing.T) {
	dir := t.TempDir()
	f, ctx := open(t, dir), t.Context()
	now := f.clock.Now().Truncate(time.Millisecond)
	one, two, three := prefixOf(1, now), prefixOf(2, now.Add(-time.Hour)), prefixOf(3, now.Add(-time.Minute))
	for _, p := range []store.Prefix{one, two, three} {
		f.must(f.PutPrefix(ctx, p))
	}
	changed := two
	changed.Used, changed.Marked, changed.Tokens = now.Add(time.Second), time.Time{}, 99
	f.must(f.PutPrefix(ctx, changed))
	two.Used, two.Marked = changed.Used, changed.Marked
	f.must(f.DeletePrefix(ctx, one.File))
	f.must(f.DeletePrefix(ctx, one.File))
	f.must(f.Close())

	f = open(t, dir)
	all, err := f.Prefixes(ctx)
	f.must(err)
	if d := cmp.Diff([]store.Prefix{three, two}, all, cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) })); d != "" {
		t.Errorf("after a restart (-want +got):\n%s", d)
	}
	f.must(f.DeletePrefixes(ctx))
	if all, err := f.Prefixes(ctx); err != nil || len(all) != 0 {
		t.Errorf("emptied: %v, %v", all, err)
	}
}

// TestPrefixBounds: neither the number of records nor what one says of its blocks is without bound.
func TestPrefixBounds(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	for name, change := range map[string]func(*store.Prefix){
		"no file":       func(p *store.Prefix) { p.File = "" },
		"no model":      func(p *store.Prefix) { p.Model = "" },
		"long blocks":   func(p *store.Prefix) { p.Blocks = bytes.Repeat([]byte{1}, store.MaxPrefixBlocks+1) },
		"below nothing": func(p *store.Prefix) { p.Tokens = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			p := prefixOf(1, f.clock.Now())
			change(&p)
			wantErr(t, f.PutPrefix(ctx, p), store.ErrInvalid)
		})
	}
	f.must(store.Exec(ctx, f.Store, fmt.Sprintf(`with recursive n(i) as (select 1 union all select i + 1 from n where i < %d)
		insert into prefixes select 'n' || i, 'm', zeroblob(32), zeroblob(32), zeroblob(16), zeroblob(1), 1, 1, 0, 0 from n`, store.MaxPrefixes)))
	wantErr(t, f.PutPrefix(ctx, prefixOf(1, f.clock.Now())), store.ErrInvalid)
	known := prefixOf(1, f.clock.Now())
	known.File = "n1"
	f.must(f.PutPrefix(ctx, known))
}
