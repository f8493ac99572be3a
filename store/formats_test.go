package store_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onebit/store"
)

// formatsKept is how many schemas before the newest are opened.
const formatsKept = 3

// released are the migrations that are out, by their hashes: what has run on somebody's box is not written anew. A new
// one is added here with its hash, and gets rows in testdata/formats.
var released = map[int]string{
	1000: "f9f29ba0af1ccd81b19cf27b7f96cb163fafbc5d711651baa97114103e90a48f",
	1001: "0cb18e176fb726acb3cc6c4dd34dc098de49736bd2698dacb0f39dfd5c693524",
	1002: "dad91c313097d4119391aa769d2fd219a8a17eef0f08b0cbc989a9670b40c5d3",
	1003: "60f8e5e8a756b53471d52bd1bd47c5943bf683b70db15a8e477eb3a74ea2b538",
	1004: "09c7d24ee09225b88e060f0bfb1e3297e20976189ea92a1a0cdc35bd7e455a0b",
	1005: "5c2d2d538f90b87312650a76b51d79c3605d9364e63ef57666108a41c5bc3f53",
}

// TestReleasedMigrationsStay holds each migration to its hash.
func TestReleasedMigrationsStay(t *testing.T) {
	versions, err := store.Versions()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range versions {
		b, err := os.ReadFile(filepath.Join("schema", fmt.Sprintf("%d.sql", v)))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%x", hashOf(string(b))); got != released[v] {
			t.Errorf("migration %d is %s, and was released as %q", v, got, released[v])
		}
	}
}

// rowsOf are the rows of a store of a version, as statements.
func rowsOf(t *testing.T, version int) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "formats", fmt.Sprintf("%d.sql", version)))
	if err != nil {
		t.Fatalf("each schema needs rows here, as its programs wrote them: %v", err)
	}
	return string(b)
}

// tables counts the rows of testdata.
func tables(rows string) map[string]int64 {
	all := map[string]int64{}
	for line := range strings.Lines(rows) {
		if rest, ok := strings.CutPrefix(line, "insert into "); ok {
			name, _, _ := strings.Cut(rest, " ")
			all[name]++
		}
	}
	return all
}

// older makes a store of a version with all that testdata has for it.
func older(t *testing.T, version int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	s, err := store.OpenUpTo(t.Context(), store.Config{Dir: dir}, version)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Exec(t.Context(), s, rowsOf(t, version)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// whole makes sure that everything of testdata is in a store, and is right.
func whole(t *testing.T, s *store.Store, rows string) {
	t.Helper()
	ctx := t.Context()
	want := tables(rows)
	if len(want) < 14 {
		t.Fatalf("testdata has rows of %d tables", len(want))
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if n, err := store.Number(ctx, s, "select count(*) from "+name); err != nil || n != want[name] {
			t.Errorf("%s: %d rows, want %d, %v", name, n, want[name], err)
		}
	}
	if n, err := s.VerifyAudit(ctx); err != nil {
		t.Errorf("the audit trail: %d, %v", n, err)
	}
	if k, p, err := s.KeyByHash(ctx, hashOf("key bea")); err != nil || k.Name != "bea" || p.Name != "bea" {
		t.Errorf("the key: %+v, %+v, %v", k, p, err)
	}
	if k, _, err := s.KeyByHash(ctx, hashOf("key bea")); err != nil || k.Priority != "interactive" || k.Weight != 1 {
		t.Errorf("the key is less than it was: %+v, %v", k, err)
	}
	if m, err := s.Model(ctx, "chat"); err != nil || m.Path != "/models/m.gguf" || m.Size != 7 {
		t.Errorf("the model: %+v, %v", m, err)
	}
	_, p, err := s.Password(ctx, "bea")
	if err != nil {
		t.Fatal(err)
	}
	var blob bytes.Buffer
	if _, err := s.Blob(ctx, store.Actor{Person: p.ID}, fmt.Sprintf("%x", hashOf("blob of bea")), &blob); err != nil || blob.String() != "blob of bea" {
		t.Errorf("the blob: %q, %v", &blob, err)
	}
	if claimed, err := s.Claimed(ctx); err != nil || !claimed {
		t.Errorf("claimed: %v, %v", claimed, err)
	}
	if err := s.Health(ctx); err != nil {
		t.Error(err)
	}
}

// later are three migrations that are not there yet: each changes what is there.
func later(newest int) map[int]string {
	all := map[int]string{}
	for i, sql := range []string{
		"alter table people add column motto text not null default 'x';",
		"create table mottos(person text primary key references people(id) on delete cascade, motto text not null) strict; insert into mottos select id, motto from people;",
		"alter table keys add column note text not null default '';",
	} {
		all[newest+1+i] = fmt.Sprintf("%s pragma user_version = %d;", sql, newest+1+i)
	}
	return all
}

// TestEarlierSchemas opens stores of the last three schemas before the newest, and with migrations to come each real
// one from three back.
func TestEarlierSchemas(t *testing.T) {
	versions, err := store.Versions()
	if err != nil {
		t.Fatal(err)
	}
	newest := versions[len(versions)-1]
	for _, v := range versions[max(0, len(versions)-1-formatsKept):] {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			dir := older(t, v)
			s, err := store.Open(t.Context(), store.Config{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			whole(t, s, rowsOf(t, v))
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s, err = store.OpenWith(t.Context(), store.Config{Dir: dir}, later(newest))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			whole(t, s, rowsOf(t, v))
			if n, err := store.Number(t.Context(), s, "select count(*) from mottos"); err != nil || n != 2 {
				t.Errorf("what the migrations made: %d, %v", n, err)
			}
			glob(t, dir, "snapshots", fmt.Sprintf("*-before-%d.db", newest+3))
		})
	}
}

// TestBrokenOffMigrationGoesOn breaks a migration of three steps off in each of them: what was there is there, the
// program before still opens it, and the next start goes on with that step.
func TestBrokenOffMigrationGoesOn(t *testing.T) {
	versions, err := store.Versions()
	if err != nil {
		t.Fatal(err)
	}
	newest := versions[len(versions)-1]
	for broken := newest + 1; broken <= newest+3; broken++ {
		t.Run(fmt.Sprint(broken), func(t *testing.T) {
			ctx, dir := t.Context(), older(t, newest)
			steps := later(newest)
			good := steps[broken]
			steps[broken] = good + " insert into nowhere values(1);"
			if _, err := store.OpenWith(ctx, store.Config{Dir: dir}, steps); err == nil {
				t.Fatal("a step that fails was taken")
			}
			s, err := store.Open(ctx, store.Config{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			whole(t, s, rowsOf(t, newest))
			if n, err := store.Number(ctx, s, "pragma user_version"); err != nil || n != int64(broken-1) {
				t.Errorf("it stands at %d, %v", n, err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			steps[broken] = good
			if s, err = store.OpenWith(ctx, store.Config{Dir: dir}, steps); err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			whole(t, s, rowsOf(t, newest))
			if n, err := store.Number(ctx, s, "pragma user_version"); err != nil || n != int64(newest+3) {
				t.Errorf("it went on to %d, %v", n, err)
			}
		})
	}
}
