package store_test

import (
	"path/filepath"
	"strings"
	"testing"

	"onebit/store"
)

func TestAudit(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	a := f.person("A", store.RoleAdmin)
	a.Key = "key1"
	f.must(f.Audit(ctx, a, "engine.restart", "gpu0", "by hand"))
	log, err := f.AuditLog(ctx, a, 1, 10)
	f.must(err)
	if len(log) != 1 {
		t.Fatalf("%v", log)
	}
	e := log[0]
	e.Hash = [32]byte{}
	same(t, e, store.AuditEntry{ID: 2, Time: f.clock.Now(), Person: a.Person, Key: "key1", Action: "engine.restart", Target: "gpu0", Detail: "by hand"})
	n, err := f.VerifyAudit(ctx)
	f.must(err)
	same(t, n, int64(2))
}

func TestAuditIsAppendOnly(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	f.person("A", store.RoleAdmin)
	for _, q := range []string{"update audit set detail = 'x'", "delete from audit"} {
		if err := store.Exec(ctx, f.Store, q); err == nil || !strings.Contains(err.Error(), "append-only") {
			t.Errorf("%s: %v", q, err)
		}
	}
}

// TestAuditTampering changes the log as somebody with the file would, who first drops the triggers.
func TestAuditTampering(t *testing.T) {
	for _, tt := range []struct{ name, sql string }{
		{"changed", "update audit set detail = 'harmless' where id = 2"},
		{"cut out", "delete from audit where id = 2"},
		{"renumbered", "delete from audit where id = 2; update audit set id = id - 1 where id > 2"},
		{"cut off in front", "delete from audit where id = 1"},
		{"moved in time", "update audit set time = time + 1 where id = 3"},
		{"a field shifted into the next", "update audit set action = action || 'x', target = substr(target, 2) where id = 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, ctx := open(t, t.TempDir()), t.Context()
			for range 4 {
				f.must(f.Audit(ctx, store.System(), "act", "xtarget", "detail"))
			}
			f.must(store.Exec(ctx, f.Store, "drop trigger audit_no_update; drop trigger audit_no_delete"))
			_, err := f.VerifyAudit(ctx)
			f.must(err)
			f.must(store.Exec(ctx, f.Store, tt.sql))
			_, err = f.VerifyAudit(ctx)
			wantErr(t, err, store.ErrCorrupt)
			r, err := f.Scrub(ctx)
			f.must(err)
			if len(r.Problems) != 1 {
				t.Errorf("the scrub found %v", r.Problems)
			}
		})
	}
}

func TestBlobs(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	a, b := f.person("A", store.RoleMember), f.person("B", store.RoleMember)
	for _, size := range []int{0, 1, 1<<20 - 1, 1 << 20, 1<<20 + 1, 5 << 19} {
		text := strings.Repeat("0123456789abcdef", size/16+1)[:size]
		hash, n, err := f.PutBlob(ctx, a, strings.NewReader(text))
		f.must(err)
		same(t, n, int64(size))
		again, _, err := f.PutBlob(ctx, a, strings.NewReader(text))
		f.must(err)
		same(t, again, hash)
		var out strings.Builder
		n, err = f.Blob(ctx, a, hash, &out)
		f.must(err)
		if n != int64(size) || out.String() != text {
			t.Errorf("%d bytes of %d came back, or others", out.Len(), size)
		}
		// the same content of somebody else is a blob of its own
		_, err = f.Blob(ctx, b, hash, &out)
		wantErr(t, err, store.ErrNotFound)
		_, _, err = f.PutBlob(ctx, b, strings.NewReader(text))
		f.must(err)
		f.must(f.DeleteBlob(ctx, a, hash))
		_, err = f.Blob(ctx, a, hash, &out)
		wantErr(t, err, store.ErrNotFound)
		_, err = f.Blob(ctx, b, hash, &out)
		f.must(err)
	}
	left, err := filepath.Glob(filepath.Join(f.dir, ".partial*"))
	f.must(err)
	same(t, len(left), 0)
}

// TestScrubSeesWhatSQLiteDoesNot flips bits in a value on the disk: the file's structure is sound, the blob is not.
func TestScrubSeesWhatSQLiteDoesNot(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	a := f.person("A", store.RoleMember)
	good, _, err := f.PutBlob(ctx, a, strings.NewReader("a sound document"))
	f.must(err)
	bad, _, err := f.PutBlob(ctx, a, strings.NewReader(strings.Repeat("a document that will rot. ", 1000)))
	f.must(err)
	r, err := f.Scrub(ctx)
	f.must(err)
	same(t, r, store.ScrubReport{Time: f.clock.Now(), Blobs: 2, Bytes: 26016})
	f.must(f.Close())
	spoil(t, filepath.Join(f.dir, "1bit.db"), "that will rot")

	f.reopen(nil)
	if d := f.Degraded(); d != nil {
		t.Fatalf("SQLite's check saw it: %v; this test needs damage that it does not see", d)
	}
	_, err = f.Blob(ctx, a, bad, &strings.Builder{})
	wantErr(t, err, store.ErrCorrupt)
	_, err = f.Blob(ctx, a, good, &strings.Builder{})
	f.must(err)
	r, err = f.Scrub(ctx)
	f.must(err)
	same(t, r.Damaged, []string{bad})
	last, err := f.LastScrub(ctx)
	f.must(err)
	same(t, last, r)
}
