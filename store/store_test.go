package store_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onebit/store"
)

// clock is a hand-set clock.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// fixture is an open store with a clock to set.
type fixture struct {
	*store.Store
	t     testing.TB
	dir   string
	clock *clock
}

func open(t testing.TB, dir string) *fixture {
	t.Helper()
	f := &fixture{t: t, dir: dir, clock: newClock()}
	f.reopen(nil)
	return f
}

func (f *fixture) reopen(plan *store.Schedule) {
	f.t.Helper()
	s, err := store.Open(f.t.Context(), store.Config{Dir: f.dir, Clock: f.clock.Now, Schedule: plan})
	if err != nil {
		f.t.Fatal(err)
	}
	store.CheapPassphrases(s)
	f.Store = s
	f.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			f.t.Error(err)
		}
	})
}

// person makes a member and returns who it is.
func (f *fixture) person(name string, role store.Role) store.Actor {
	f.t.Helper()
	p, err := f.CreatePerson(f.t.Context(), store.System(), store.Person{Name: name, Role: role})
	if err != nil {
		f.t.Fatal(err)
	}
	return store.Actor{Person: p.ID, Admin: role == store.RoleAdmin}
}

func (f *fixture) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func wantErr(t testing.TB, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("got error %v, want %v", got, want)
	}
}

func hashOf(s string) [32]byte { return sha256.Sum256([]byte(s)) }

func same(t testing.TB, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
}

func TestIDs(t *testing.T) {
	var last string
	seen := map[string]bool{}
	for i := range 1000 {
		id := store.NewIDAt(time.UnixMilli(int64(i) * 1234567))
		if len(id) != 26 || id != strings.ToLower(id) || seen[id] {
			t.Fatalf("id %q", id)
		}
		if id <= last {
			t.Fatalf("%q does not sort after %q", id, last)
		}
		seen[id], last = true, id
	}
}

func TestCredentials(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	a := f.person("A", store.RoleMember)
	_, _, err := f.Password(ctx, "A")
	wantErr(t, err, store.ErrNotFound)
	f.must(f.SetPassword(ctx, a, a.Person, "$argon2id$x"))
	phc, p, err := f.Password(ctx, "a")
	f.must(err)
	same(t, []string{phc, p.ID}, []string{"$argon2id$x", a.Person})

	f.must(f.SetRecovery(ctx, a, a.Person, hashOf("r")))
	p, err = f.Recovery(ctx, hashOf("r"))
	f.must(err)
	same(t, p.ID, a.Person)
	_, err = f.Recovery(ctx, hashOf("s"))
	wantErr(t, err, store.ErrNotFound)

	k := store.Passkey{ID: "id1", Person: a.Person, Name: "phone", Credential: json.RawMessage(`{"n":1}`)}
	f.must(f.AddPasskey(ctx, a, k))
	wantErr(t, f.AddPasskey(ctx, a, k), store.ErrConflict)
	k.Created, k.Used, k.Credential = f.clock.Now(), f.clock.Now().Add(time.Second), json.RawMessage(`{"n":2}`)
	f.must(f.UpdatePasskey(ctx, a, k))
	all, err := f.Passkeys(ctx, a, a.Person)
	f.must(err)
	same(t, all, []store.Passkey{k})
	f.must(f.DeletePasskey(ctx, a, "id1"))
	wantErr(t, f.DeletePasskey(ctx, a, "id1"), store.ErrNotFound)
}

func TestLogins(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	a := f.person("A", store.RoleMember)
	l, err := f.CreateLogin(ctx, hashOf("c1"), store.Login{Person: a.Person, Expires: f.clock.Now().Add(time.Hour), Agent: "curl"})
	f.must(err)
	got, p, err := f.LoginByHash(ctx, hashOf("c1"))
	f.must(err)
	same(t, got, l)
	same(t, p.ID, a.Person)
	f.clock.add(time.Hour)
	_, _, err = f.LoginByHash(ctx, hashOf("c1"))
	wantErr(t, err, store.ErrNotFound)

	l2, err := f.CreateLogin(ctx, hashOf("c2"), store.Login{Person: a.Person, Expires: f.clock.Now().Add(time.Hour)})
	f.must(err)
	f.must(f.DeleteLogin(ctx, a, l2.ID))
	_, _, err = f.LoginByHash(ctx, hashOf("c2"))
	wantErr(t, err, store.ErrNotFound)
	f.must(f.DeleteLoginsOf(ctx, a, a.Person))
	all, err := f.Logins(ctx, a, a.Person)
	f.must(err)
	same(t, len(all), 0)
	_, err = f.CreateLogin(ctx, hashOf("c3"), store.Login{Person: "nobody"})
	wantErr(t, err, store.ErrNotFound)
}

func TestKeys(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	a := f.person("A", store.RoleMember)
	k, err := f.CreateKey(ctx, a, store.Key{Name: "laptop", Prefix: "1b-abcde", Models: []string{"m1", "m2"}, Endpoints: []string{"/v1/chat"},
		RequestsPerMinute: 5, TokensPerDay: 6, Concurrency: 7, Privacy: store.PrivacyFull, Expires: f.clock.Now().Add(time.Hour)}, hashOf("s"))
	f.must(err)
	_, err = f.CreateKey(ctx, a, store.Key{Name: "again"}, hashOf("s"))
	wantErr(t, err, store.ErrConflict)
	_, err = f.CreateKey(ctx, a, store.Key{Name: "root", Admin: true}, hashOf("s2"))
	wantErr(t, err, store.ErrForbidden)
	_, err = f.CreateKey(ctx, a, store.Key{Privacy: "some"}, hashOf("s3"))
	wantErr(t, err, store.ErrInvalid)
	got, p, err := f.KeyByHash(ctx, hashOf("s"))
	f.must(err)
	same(t, got, k)
	same(t, p.ID, a.Person)
	if got.Priority != "interactive" || got.Weight != 1 {
		t.Errorf("as nobody said: %q, %d", got.Priority, got.Weight)
	}

	k.Name, k.Models, k.Endpoints, k.Collections, k.Concurrency = "desk", nil, []string{"/v1/embeddings"}, []string{"c"}, 1
	k.Priority = "background"
	f.must(f.UpdateKey(ctx, a, k))
	got, err = f.Key(ctx, a, k.ID)
	f.must(err)
	same(t, got, k)
	k.Weight = 2
	wantErr(t, f.UpdateKey(ctx, a, k), store.ErrForbidden)
	f.must(f.UpdateKey(ctx, store.System(), k))
	k.Name = "an admin has given it two shares"
	f.must(f.UpdateKey(ctx, a, k))
	_, err = f.CreateKey(ctx, a, store.Key{Weight: 2}, hashOf("s4"))
	wantErr(t, err, store.ErrForbidden)
	for _, bad := range []store.Key{{Priority: "urgent"}, {Weight: store.MaxWeight + 1}, {Weight: -1}} {
		_, err = f.CreateKey(ctx, store.System(), bad, hashOf("s5"))
		wantErr(t, err, store.ErrInvalid)
	}
	k.Admin = true
	wantErr(t, f.UpdateKey(ctx, a, k), store.ErrForbidden)

	if !got.Active(f.clock.Now()) || got.Active(got.Expires) {
		t.Error("expiry is not kept to")
	}
	changed := f.AccessChanged()
	f.must(f.RevokeKey(ctx, a, k.ID))
	<-changed
	f.clock.add(time.Minute)
	f.must(f.RevokeKey(ctx, a, k.ID))
	got, err = f.Key(ctx, a, k.ID)
	f.must(err)
	same(t, got.Revoked, f.clock.Now().Add(-time.Minute))
	f.must(f.DeleteKey(ctx, a, k.ID))
	all, err := f.Keys(ctx, a)
	f.must(err)
	same(t, len(all), 0)
}

func TestTouchKey(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	a := f.person("A", store.RoleMember)
	k, err := f.CreateKey(ctx, a, store.Key{Name: "k"}, hashOf("s"))
	f.must(err)
	first := f.clock.Now()
	for _, step := range []struct {
		wait time.Duration
		want time.Time
	}{{0, first}, {59 * time.Second, first}, {time.Second, first.Add(time.Minute)}} {
		f.clock.add(step.wait)
		f.TouchKey(k.ID)
		f.must(f.Flush(ctx))
		got, err := f.Key(ctx, a, k.ID)
		f.must(err)
		same(t, got.LastUsed, step.want)
	}
}

func TestSettings(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	_, err := f.Setting(ctx, "x")
	wantErr(t, err, store.ErrNotFound)
	f.must(f.SetSetting(ctx, store.System(), "x", json.RawMessage(`{"a":1}`)))
	f.must(f.SetSetting(ctx, store.System(), "x", json.RawMessage(`{"a":2}`)))
	v, err := f.Setting(ctx, "x")
	f.must(err)
	same(t, string(v), `{"a":2}`)
	f.must(f.SetSetting(ctx, store.System(), "x", nil))
	_, err = f.Setting(ctx, "x")
	wantErr(t, err, store.ErrNotFound)
	wantErr(t, f.SetSetting(ctx, store.System(), "x", json.RawMessage(`{`)), store.ErrInvalid)
	wantErr(t, f.SetSetting(ctx, store.System(), "store.degraded", json.RawMessage(`{}`)), store.ErrInvalid)
	wantErr(t, f.SetSetting(ctx, store.Actor{Person: "x"}, "x", json.RawMessage(`1`)), store.ErrForbidden)
}

func TestModels(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	m := store.ModelRecord{ID: "qwen", Path: "/m/q.gguf", Digest: "sha256:aa", Size: 5, Source: "hub", Role: "chat", Pinned: true,
		TTLSeconds: 60, ContextSize: 4096, Options: json.RawMessage(`{"ngl":1}`), Added: f.clock.Now()}
	f.must(f.PutModel(ctx, store.System(), m))
	f.clock.add(time.Hour)
	m.Path = "/n/q.gguf"
	f.must(f.PutModel(ctx, store.System(), m))
	got, err := f.Model(ctx, "qwen")
	f.must(err)
	same(t, got, m)
	all, err := f.Models(ctx)
	f.must(err)
	same(t, all, []store.ModelRecord{m})
	nobody := store.Actor{Person: "x"}
	wantErr(t, f.PutModel(ctx, nobody, m), store.ErrForbidden)
	wantErr(t, f.DeleteModel(ctx, nobody, "qwen"), store.ErrForbidden)
	f.must(f.DeleteModel(ctx, store.System(), "qwen"))
	wantErr(t, f.DeleteModel(ctx, store.System(), "qwen"), store.ErrNotFound)
}

func TestOneProcessAtATime(t *testing.T) {
	f := open(t, t.TempDir())
	_, err := store.Open(t.Context(), store.Config{Dir: f.dir})
	wantErr(t, err, store.ErrLocked)
	f.must(f.Close())
	f.must(f.Close())
	_, err = f.People(t.Context(), store.System())
	wantErr(t, err, store.ErrClosed)
	wantErr(t, f.Audit(t.Context(), store.System(), "x", "", ""), store.ErrClosed)
	f.reopen(nil)
}

func TestFilesAreForTheOwnerAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state ?#% dir")
	f := open(t, dir)
	f.person("A", store.RoleAdmin)
	f.must(f.Snapshot(t.Context()))
	f.must(filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := os.Stat(p)
		if err == nil && st.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", p, st.Mode())
		}
		return err
	}))
	if _, err := os.Stat(filepath.Join(dir, "1bit.db")); err != nil {
		t.Error(err)
	}
}

// TestCancelledWrites has callers go at any moment of a change: the next one must work, and what was said to be done is.
func TestCancelledWrites(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	for i := range 400 {
		gone, cancel := context.WithTimeout(ctx, time.Duration(i%40)*10*time.Microsecond)
		err := f.Audit(gone, store.System(), "test", "cancelled", "")
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) && !strings.Contains(err.Error(), "interrupt") {
			t.Fatalf("round %d: %v", i, err)
		}
		f.must(f.Audit(ctx, store.System(), "test", "kept", ""))
	}
}
