package store_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"onebit/store"
)

// ruin destroys the database's pages from the second on, and leaves the header.
func ruin(t testing.TB, dir string) {
	t.Helper()
	path := filepath.Join(dir, "1bit.db")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 4096; i+16 < len(b); i += 64 {
		copy(b[i:], "CORRUPTCORRUPT!!")
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) claim() {
	f.t.Helper()
	_, err := f.Claim(f.t.Context(), store.ClaimRequest{Admin: store.Newcomer{Name: "Ada", Password: "$phc"}})
	f.must(err)
}

// damage is a way to break a database. aside tells whether there is a file to be kept.
type damage struct {
	name  string
	spoil func(t *testing.T, dir string)
	aside bool
}

func damages() []damage {
	return []damage{
		{"pages overwritten", func(t *testing.T, dir string) { ruin(t, dir) }, true},
		{"header overwritten", func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "1bit.db"), []byte(strings.Repeat("no database ", 2000)), 0o600); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"cut in half", func(t *testing.T, dir string) {
			path := filepath.Join(dir, "1bit.db")
			st, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, st.Size()/2/4096*4096); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"empty", func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, "1bit.db"), 0); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"gone", func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "1bit.db")); err != nil {
				t.Fatal(err)
			}
		}, false},
	}
}

// TestDamage breaks the database of a claimed box in several ways. Each time the newest snapshot takes its place, the
// broken file stays, and the box says so.
func TestDamage(t *testing.T) {
	for _, tt := range damages() {
		t.Run(tt.name, func(t *testing.T) {
			f, ctx := open(t, t.TempDir()), t.Context()
			f.claim()
			_, err := f.CreateLogin(ctx, hashOf("cookie"), store.Login{Person: f.all()[0].ID, Expires: f.clock.Now().Add(90 * 24 * time.Hour)})
			f.must(err)
			f.must(f.Snapshot(ctx))
			saved := f.clock.Now()
			f.clock.add(time.Hour)
			f.person("Late", store.RoleMember)
			f.must(f.Close())
			tt.spoil(t, f.dir)
			broken, err := os.ReadFile(filepath.Join(f.dir, "1bit.db"))
			if err != nil && tt.aside {
				t.Fatal(err)
			}

			f.clock.add(time.Hour)
			f.reopen(nil)
			d := f.Degraded()
			if d == nil {
				t.Fatal("it says that all is well")
			}
			if !d.DataFrom.Equal(saved) || !d.Happened.Equal(f.clock.Now()) || d.Reason == "" || (d.SetAside != "") != tt.aside {
				t.Errorf("%+v", d)
			}
			if tt.aside {
				kept, err := os.ReadFile(glob(t, f.dir, "1bit.db.corrupt-*Z"))
				f.must(err)
				same(t, kept, broken)
			}
			same(t, len(f.all()), 1) // Late came after the snapshot
			claimed, err := f.Claimed(ctx)
			f.must(err)
			same(t, claimed, true)
			_, _, err = f.LoginByHash(ctx, hashOf("cookie"))
			wantErr(t, err, store.ErrNotFound) // it may have been ended since
			_, err = f.VerifyAudit(ctx)
			f.must(err)

			f.must(f.Close())
			f.reopen(nil)
			same(t, f.Degraded(), d) // until somebody has seen it
			f.must(f.ClearDegraded(ctx, store.System()))
			f.must(f.Close())
			f.reopen(nil)
			if f.Degraded() != nil {
				t.Error("still degraded")
			}
		})
	}
}

func (f *fixture) all() []store.Person {
	f.t.Helper()
	all, err := f.People(f.t.Context(), store.System())
	f.must(err)
	return all
}

// TestDamagedSnapshotIsPassedOver damages the newest of two snapshots as well.
func TestDamagedSnapshotIsPassedOver(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	f.claim()
	f.must(f.Snapshot(ctx))
	saved := f.clock.Now()
	f.clock.add(time.Hour)
	f.must(f.Snapshot(ctx))
	newest := glob(t, f.dir, "snapshots", f.clock.Now().Format("20060102T150405")+"*.db")
	f.must(f.Close())
	ruin(t, f.dir)
	b, err := os.ReadFile(newest)
	f.must(err)
	b[len(b)-1] ^= 1 // SQLite would not notice
	f.must(os.WriteFile(newest, b, 0o600))
	f.reopen(nil)
	if d := f.Degraded(); d == nil || !d.DataFrom.Equal(saved) {
		t.Errorf("%+v", d)
	}
}

func TestDamageWithoutBackup(t *testing.T) {
	f := open(t, t.TempDir())
	f.person("A", store.RoleMember)
	f.must(f.Close())
	ruin(t, f.dir)
	before := readAll(t, f.dir)
	_, err := store.Open(t.Context(), store.Config{Dir: f.dir})
	wantErr(t, err, store.ErrCorrupt)
	same(t, readAll(t, f.dir), before) // nothing was touched, nothing begins anew
}

func TestSnapshots(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	tend := store.Tender(f.Store)
	tend(ctx)
	if _, err := os.Stat(filepath.Join(f.dir, "snapshots")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an unclaimed box was copied: %v", err)
	}
	f.claim()
	f.clock.add(time.Minute)
	tend(ctx)
	glob(t, f.dir, "snapshots", "*-daily.db")
	f.clock.add(24 * time.Hour)
	for range 5 {
		store.Tend(ctx, f.Store)
		store.Tend(ctx, f.Store)
		f.clock.add(23 * time.Hour)
		store.Tend(ctx, f.Store)
		f.clock.add(time.Hour)
	}
	names, err := filepath.Glob(filepath.Join(f.dir, "snapshots", "*.db"))
	f.must(err)
	want := []string{f.clock.Now().Add(-48*time.Hour).Format("20060102T150405.000Z") + "-daily.db",
		f.clock.Now().Add(-24*time.Hour).Format("20060102T150405.000Z") + "-daily.db"}
	for i := range names {
		names[i] = filepath.Base(names[i])
	}
	same(t, names, want)
	files, err := os.ReadDir(filepath.Join(f.dir, "snapshots"))
	f.must(err)
	same(t, len(files), 4) // each with its hash
}

func TestMigration(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	f.claim()
	f.must(f.Close())
	next := map[int]string{1901: "alter table people add column motto text not null default 'x'; pragma user_version = 1901;"}
	s, err := store.OpenWith(ctx, store.Config{Dir: f.dir, Clock: f.clock.Now}, next)
	f.must(err)
	f.must(store.Exec(ctx, s, "update people set motto = 'y'"))
	f.must(s.Close())
	glob(t, f.dir, "snapshots", "*-before-1901.db")

	// the older program opens it: the change only added something
	f.reopen(nil)
	same(t, len(f.all()), 1)
	f.must(f.Close())

	// a step that fails leaves the database as it was, and so does one that forgets its number
	for name, sql := range map[string]string{
		"fails":   "create table half(x int) strict; insert into nowhere values(1); pragma user_version = 1902;",
		"forgets": "create table half(x int) strict;",
	} {
		next[1902] = sql
		if _, err := store.OpenWith(ctx, store.Config{Dir: f.dir, Clock: f.clock.Now}, next); err == nil {
			t.Fatalf("a migration that %s was taken", name)
		}
		delete(next, 1902)
		s, err := store.OpenWith(ctx, store.Config{Dir: f.dir, Clock: f.clock.Now}, next)
		f.must(err)
		if err := store.Exec(ctx, s, "insert into half values(1)"); err == nil {
			t.Errorf("a migration that %s left something behind", name)
		}
		f.must(s.Close())
	}

	// the next major number changes what is there: the older program keeps out
	next[2000] = "drop table usage; pragma user_version = 2000;"
	s, err = store.OpenWith(ctx, store.Config{Dir: f.dir, Clock: f.clock.Now}, next)
	f.must(err)
	f.must(s.Close())
	before := readAll(t, f.dir)
	_, err = store.Open(ctx, store.Config{Dir: f.dir})
	wantErr(t, err, store.ErrTooNew)
	same(t, readAll(t, f.dir), before)
	if errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "2000") {
		t.Error(err)
	}
}

// TestFullDisk fills the database to a limit of pages: writes fail with ErrFull, reads go on, and once there is room all
// that had been queued is written.
func TestFullDisk(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	a := f.person("A", store.RoleMember)
	f.must(store.Exec(ctx, f.Store, "pragma max_page_count = 80"))
	var err error
	kept := 0
	for ; err == nil && kept < 10_000; kept++ {
		_, _, err = f.PutBlob(ctx, a, strings.NewReader(fmt.Sprint(kept, strings.Repeat("x", 4000))))
	}
	wantErr(t, err, store.ErrFull)
	for err = nil; err == nil; {
		// small changes may still fit in; they too end
		err = f.Audit(ctx, a, "fill", "", strings.Repeat("y", 500))
	}
	wantErr(t, err, store.ErrFull)

	_, err = f.Person(ctx, a, a.Person)
	f.must(err)
	f.AddUsage(store.UsageRow{Key: "k", Person: a.Person, Requests: 1, Prompt: 5})
	for i := range 200 {
		f.AddRequest(store.RequestRow{ID: fmt.Sprint("r", i), Person: a.Person, Privacy: store.PrivacyFull, PromptText: make([]byte, 4000)})
	}
	wantErr(t, f.Flush(ctx), store.ErrFull)
	n, err := f.TokensToday(ctx, "k")
	f.must(err)
	same(t, n, int64(5))
	c := f.Counts()
	if !c.Full || c.Queued == 0 || c.Dropped != 0 {
		t.Errorf("%+v", c)
	}

	f.must(store.Exec(ctx, f.Store, "pragma max_page_count = 1000000"))
	f.must(f.Health(ctx))
	f.must(f.Flush(ctx))
	_, err = f.Request(ctx, a, "r199")
	f.must(err)
	u, err := f.UsageTotals(ctx, a, store.UsageFilter{})
	f.must(err)
	same(t, u, []store.UsageRow{{Requests: 1, Prompt: 5}})
	if c := f.Counts(); c.Full || c.Queued != 0 {
		t.Errorf("%+v", c)
	}
}

func TestQueueForgetsNoUsage(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	f.must(store.Exec(ctx, f.Store, "pragma max_page_count = 1"))
	const n = 12_000
	for i := range n {
		f.AddUsage(store.UsageRow{Key: "k", Requests: 1})
		f.AddRequest(store.RequestRow{ID: fmt.Sprint(i), Privacy: store.PrivacyMetadata})
		if i == n/2 {
			if err := f.Flush(ctx); err == nil {
				t.Fatal("the disk is not full")
			}
		}
	}
	same(t, f.Counts().Dropped, int64(n-10_000))
	f.must(store.Exec(ctx, f.Store, "pragma max_page_count = 1000000"))
	f.must(f.Flush(ctx))
	u, err := f.UsageTotals(ctx, store.System(), store.UsageFilter{})
	f.must(err)
	same(t, u, []store.UsageRow{{Requests: n}})
}
