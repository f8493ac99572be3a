package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"onebit/store/sqlite"
)

// Snapshots are plain copies of the database inside the state directory: one a day, and one before each migration.
const (
	snapshotFolder = "snapshots"
	snapshotsKept  = 2 // of each kind
	snapshotEvery  = 24 * time.Hour
	stampLayout    = "20060102T150405.000Z"
	temporary      = ".partial-" // begins the names of files that are not finished; swept away at the next start
)

// snap is one snapshot in the folder.
type snap struct {
	path, kind string
	time       time.Time
}

// snapshots lists the finished ones, newest first.
func snapshots(dir string) ([]snap, error) {
	entries, err := os.ReadDir(filepath.Join(dir, snapshotFolder))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []snap
	for _, e := range entries {
		base, ok := strings.CutSuffix(e.Name(), ".db")
		if !ok {
			continue
		}
		when, kind, _ := strings.Cut(base, "-")
		t, err := time.Parse(stampLayout, when)
		if err != nil {
			continue
		}
		all = append(all, snap{filepath.Join(dir, snapshotFolder, e.Name()), kind, t})
	}
	slices.SortFunc(all, func(a, b snap) int { return b.time.Compare(a.time) })
	return all, nil
}

// snapshot writes one, with its SHA-256 beside it, and removes old ones of its kind.
func (s *Store) snapshot(ctx context.Context, kind string) (string, error) {
	folder := filepath.Join(s.dir, snapshotFolder)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	name := s.now().UTC().Format(stampLayout) + "-" + kind + ".db"
	tmp, path := filepath.Join(folder, temporary+name), filepath.Join(folder, name)
	defer os.Remove(tmp)
	if err := copyDatabase(ctx, s.path(), tmp); err != nil {
		return "", err
	}
	sum, err := hashFile(tmp)
	if err != nil {
		return "", err
	}
	if err := writeFile(path+".sha256", fmt.Appendf(nil, "%s  %s\n", sum, name)); err != nil {
		return "", err
	}
	if err := errors.Join(os.Rename(tmp, path), syncDir(folder)); err != nil {
		return "", err
	}
	return path, s.prune(kind)
}

// prune removes the oldest snapshots of a kind. All that precede migrations are one kind.
func (s *Store) prune(kind string) error {
	all, err := snapshots(s.dir)
	if err != nil {
		return err
	}
	group := func(kind string) bool { return strings.HasPrefix(kind, "before-") }
	n := 0
	for _, sn := range all {
		if group(sn.kind) != group(kind) {
			continue
		}
		if n++; n > snapshotsKept {
			err = errors.Join(err, os.Remove(sn.path), os.Remove(sn.path+".sha256"))
		}
	}
	return err
}

// copyDatabase writes a consistent copy, checked and on the disk. The online backup interface would start again at every
// foreign write, and under load never end.
func copyDatabase(ctx context.Context, from, to string) error {
	if err := os.Remove(to); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	// SQLite takes an empty file: so the copy is for the owner alone
	f, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := onFile(ctx, from, func(db *sqlite.Reader) error {
		return db.Once(ctx, "vacuum into ?", to)
	}); err != nil {
		return meaning(err)
	}
	if err := onFile(ctx, to, func(db *sqlite.Reader) error { return check(ctx, db) }); err != nil {
		return err
	}
	return syncFile(to)
}

// onFile opens a database with nothing of the store around it.
func onFile(ctx context.Context, path string, f func(db *sqlite.Reader) error) error {
	db, err := sqlite.OpenPlain(path)
	if err != nil {
		return err
	}
	return errors.Join(f(db), db.Close())
}

// verifySnapshot checks the hash, the structure and the schema of a snapshot.
func verifySnapshot(ctx context.Context, path string, known sqlite.Ladder) error {
	want, err := os.ReadFile(path + ".sha256")
	if err != nil {
		return err
	}
	sum, err := hashFile(path)
	if err != nil {
		return err
	}
	if hash, _, _ := strings.Cut(string(want), " "); hash != sum {
		return fmt.Errorf("%w: the hash of %s differs", ErrCorrupt, path)
	}
	return verifyDatabase(ctx, path, known)
}

// verifyDatabase checks the structure and the schema of a database that nothing has open.
func verifyDatabase(ctx context.Context, path string, known sqlite.Ladder) error {
	return onFile(ctx, path, func(db *sqlite.Reader) error {
		if err := check(ctx, db); err != nil {
			return err
		}
		var have int
		if err := db.Row(ctx, "pragma user_version").Scan(&have); err != nil {
			return meaning(err)
		}
		if have == 0 {
			return fmt.Errorf("%w: %s is not a database of this program", ErrCorrupt, path)
		}
		return compatible(have, known)
	})
}

// recover sets the corrupt database aside and puts the newest backup that verifies in its place.
func (s *Store) recover(ctx context.Context, why error, known sqlite.Ladder) (Degraded, error) {
	d := Degraded{Happened: s.now().UTC(), Reason: why.Error()}
	tmp := filepath.Join(s.dir, temporary+fileName)
	defer os.Remove(tmp)
	var problems []error
	for _, c := range s.candidates() {
		if err := c.fetch(ctx, tmp, known); err != nil {
			problems = append(problems, err)
			continue
		}
		d.DataFrom, d.Source = c.time, c.path
		aside, err := setAside(s.path(), "corrupt", s.now())
		if err != nil {
			return d, err
		}
		d.SetAside = aside
		return d, errors.Join(os.Rename(tmp, s.path()), syncDir(s.dir))
	}
	return d, errors.Join(append(problems, errors.New("there is no backup that could take its place; 1bit restore brings one"))...)
}

// candidate is a backup that might replace the database.
type candidate struct {
	path  string
	time  time.Time
	fetch func(ctx context.Context, to string, known sqlite.Ladder) error // copies and verifies
}

// candidates lists all there are, newest first.
func (s *Store) candidates() []candidate {
	var all []candidate
	snaps, err := snapshots(s.dir)
	if err != nil {
		s.log.Warn("snapshots cannot be listed", "error", err)
	}
	for _, sn := range snaps {
		all = append(all, candidate{sn.path, sn.time, func(ctx context.Context, to string, known sqlite.Ladder) error {
			if err := verifySnapshot(ctx, sn.path, known); err != nil {
				return err
			}
			return copyFile(sn.path, to)
		}})
	}
	all = append(all, s.schedule.candidates(s.dir)...)
	slices.SortStableFunc(all, func(a, b candidate) int { return b.time.Compare(a.time) })
	return all
}

// setAside renames a database and its side files, and returns the new name; empty when there is none.
func setAside(path, why string, now time.Time) (string, error) {
	to := path + "." + why + "-" + now.UTC().Format(stampLayout)
	for _, suffix := range []string{"-wal", "-shm", ""} {
		err := os.Rename(path+suffix, to+suffix)
		if errors.Is(err, os.ErrNotExist) {
			if suffix == "" {
				return "", nil
			}
			continue
		}
		if err != nil {
			return "", err
		}
	}
	return to, nil
}

// sweep removes what an interrupted copy left behind.
func sweep(dir string) error {
	for _, folder := range []string{dir, filepath.Join(dir, snapshotFolder)} {
		entries, err := os.ReadDir(folder)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), temporary) {
				if err := os.RemoveAll(filepath.Join(folder, e.Name())); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func hashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// writeFile writes a small file for the owner alone and puts it on the disk.
func writeFile(path string, data []byte) error {
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return err
	}
	return syncFile(path)
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}
