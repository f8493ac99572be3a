package store_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"onebit/store"
)

// smallDisk mounts a file system of 4 MiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("mounting a small file system needs root: %v; TestFullDisk covers SQLite's own limit", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestFullFileSystem fills a real file system with a neighbour's file. What was written stays readable, nothing that
// fails leaves a file behind, and all goes on once the neighbour is gone.
func TestFullFileSystem(t *testing.T) {
	disk := smallDisk(t)
	f, ctx := open(t, filepath.Join(disk, "state")), t.Context()
	f.claim()
	a := f.person("A", store.RoleMember)
	text := strings.Repeat("0123456789abcdef", 40<<10/16)
	hash, _, err := f.PutBlob(ctx, a, strings.NewReader(text))
	f.must(err)

	neighbour := filepath.Join(disk, "neighbour")
	n, err := os.Create(neighbour)
	f.must(err)
	for _, size := range []int{1 << 16, 1 << 12} {
		for err = nil; err == nil; {
			_, err = n.Write(make([]byte, size))
		}
	}
	wantErr(t, err, unix.ENOSPC)
	f.must(n.Close())

	for err = nil; err == nil; {
		// the write-ahead log may have room of its own for a while
		err = f.Audit(ctx, a, "fill", "", strings.Repeat("y", 5000))
	}
	wantErr(t, err, store.ErrFull)
	wantErr(t, f.Health(ctx), store.ErrFull)
	_, _, err = f.PutBlob(ctx, a, strings.NewReader(text+"x"))
	wantErr(t, err, store.ErrFull)
	wantErr(t, f.Snapshot(ctx), store.ErrFull)
	_, err = f.BackupFile(ctx, store.System(), filepath.Join(disk, "b"), store.BackupOptions{Passphrase: "long enough"})
	wantErr(t, err, store.ErrFull)
	f.AddUsage(store.UsageRow{Key: "k", Person: a.Person, Requests: 1})
	for i := range 100 {
		f.AddRequest(store.RequestRow{ID: fmt.Sprint(i), Person: a.Person, Privacy: store.PrivacyFull, PromptText: []byte(text[:5000])})
	}
	wantErr(t, f.Flush(ctx), store.ErrFull)

	var out strings.Builder
	_, err = f.Blob(ctx, a, hash, &out)
	f.must(err)
	same(t, out.String(), text)
	f.must(filepath.WalkDir(disk, func(p string, d fs.DirEntry, err error) error {
		if strings.Contains(p, "partial") {
			t.Errorf("%s was left behind", p)
		}
		return err
	}))

	f.must(os.Remove(neighbour))
	f.must(f.Health(ctx))
	f.must(f.Flush(ctx))
	_, err = f.Request(ctx, a, "99")
	f.must(err)
	f.must(f.Snapshot(ctx))
	r, err := f.Scrub(ctx)
	f.must(errors.Join(err, f.Close()))
	same(t, len(r.Damaged)+len(r.Problems), 0)
	f.reopen(nil)
	if f.Degraded() != nil {
		t.Error("a full disk did damage")
	}
}

// TestFullFileSystemAtStart opens a database whose disk has been filled to the last byte: it can be read, refuses changes,
// and takes them again once there is room.
func TestFullFileSystemAtStart(t *testing.T) {
	disk := smallDisk(t)
	dir, ctx := filepath.Join(disk, "state"), t.Context()
	first, err := store.Open(ctx, store.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Claim(ctx, store.ClaimRequest{Admin: store.Newcomer{Name: "root"}}); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	neighbour := filepath.Join(disk, "neighbour")
	n, err := os.Create(neighbour)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{1 << 16, 1 << 12} {
		for err = nil; err == nil; {
			_, err = n.Write(make([]byte, size))
		}
	}
	wantErr(t, err, unix.ENOSPC)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := store.Open(ctx, store.Config{Dir: dir})
	if err != nil {
		t.Fatalf("the box does not come up: %v", err)
	}
	defer again.Close()
	if claimed, err := again.Claimed(ctx); err != nil || !claimed {
		t.Errorf("claimed is %v, %v", claimed, err)
	}
	for err = nil; err == nil; {
		err = again.Audit(ctx, store.System(), "fill", "", strings.Repeat("y", 5000))
	}
	wantErr(t, err, store.ErrFull)
	if err := os.Remove(neighbour); err != nil {
		t.Fatal(err)
	}
	if err := again.Audit(ctx, store.System(), "room", "", ""); err != nil {
		t.Error(err)
	}
}
