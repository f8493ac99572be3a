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
	"time"

	"onebit/store/sqlite"
)

const (
	partSize = 1 << 20
	maxBlob  = 512 << 20
)

// ScrubReport is what a scrub found.
type ScrubReport struct {
	Time     time.Time `json:"time"`
	Blobs    int       `json:"blobs"`
	Bytes    int64     `json:"bytes"`
	Damaged  []string  `json:"damaged,omitempty"`  // hashes of the blobs whose content has changed
	Problems []string  `json:"problems,omitempty"` // what the checks of the file's structure and of the audit log said
}

const (
	insertBlob = "insert into blobs(owner, hash, size, created) values(?, ?, ?, ?) on conflict do nothing"
	insertPart = "insert into blob_parts(owner, hash, part, sum, data) values(?, ?, ?, ?, ?)"
	findBlob   = "select owner, size from blobs where hash = ?1 and (?2 or owner = ?3) order by owner = ?3 desc limit 1"
	nextBlob   = "select owner, hash, size from blobs where (owner, hash) > (?, ?) order by owner, hash limit 1"
	readPart   = "select sum, data from blob_parts where owner = ? and hash = ? and part = ?"
	deleteBlob = "delete from blobs where owner = ?2 and hash = ?1"
)

// PutBlob stores what r gives, up to 512 MiB, for the actor, and returns its SHA-256 in hex and its size. The same content
// again changes nothing.
func (s *Store) PutBlob(ctx context.Context, a Actor, r io.Reader) (hash string, size int64, err error) {
	if a.who() != a.Person {
		return "", 0, fmt.Errorf("storing a blob: %w", ErrForbidden)
	}
	// to a file first: a slow sender must not hold the writer, and the name is known only at the end
	tmp, err := os.CreateTemp(s.dir, temporary+"blob-*")
	if err != nil {
		return "", 0, fmt.Errorf("storing a blob: %w", meaning(err))
	}
	defer func() { err = errors.Join(err, tmp.Close(), os.Remove(tmp.Name())) }()
	h := sha256.New()
	size, err = io.Copy(io.MultiWriter(tmp, h), io.LimitReader(r, maxBlob+1))
	if err == nil && size > maxBlob {
		err = fmt.Errorf("%w: more than %d bytes", ErrInvalid, maxBlob)
	}
	if err == nil {
		_, err = tmp.Seek(0, io.SeekStart)
	}
	if err != nil {
		return "", 0, fmt.Errorf("storing a blob: %w", meaning(err))
	}
	hash = hex.EncodeToString(h.Sum(nil))
	if err := s.write(ctx, func(t *txn) error { return t.putBlob(ctx, a.Person, hash, tmp) }); err != nil {
		return "", 0, fmt.Errorf("storing a blob: %w", err)
	}
	return hash, size, nil
}

func (t *txn) putBlob(ctx context.Context, owner, hash string, f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	n, err := t.Exec(ctx, insertBlob, owner, hash, st.Size(), sqlite.Stamp(t.now))
	if err != nil || n == 0 {
		return err
	}
	buf := make([]byte, min(partSize, max(st.Size(), 1)))
	for part := 0; ; part++ {
		n, err := io.ReadFull(f, buf)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		sum := sha256.Sum256(buf[:n])
		if _, err := t.Exec(ctx, insertPart, owner, hash, part, sum[:], buf[:n]); err != nil {
			return err
		}
	}
}

// Blob writes a blob's content to w and returns its size. Content that has changed on the disk is [ErrCorrupt]; w may have
// got what precedes it.
func (s *Store) Blob(ctx context.Context, a Actor, hash string, w io.Writer) (int64, error) {
	var owner string
	var size int64
	err := s.r.Row(ctx, findBlob, hash, a.Admin, a.who()).Scan(&owner, &size)
	if err == nil {
		err = s.readBlob(ctx, owner, hash, w)
	}
	if err != nil {
		return 0, fmt.Errorf("reading a blob: %w", s.meaning(err))
	}
	return size, nil
}

func (s *Store) readBlob(ctx context.Context, owner, hash string, w io.Writer) error {
	whole := sha256.New()
	for part := 0; ; part++ {
		var sum, data []byte
		err := s.r.Row(ctx, readPart, owner, hash, part).Scan(&sum, &data)
		if err = meaning(err); errors.Is(err, ErrNotFound) {
			break
		}
		if err != nil {
			return err
		}
		if got := sha256.Sum256(data); string(got[:]) != string(sum) {
			return fmt.Errorf("%w: part %d of blob %s has changed", ErrCorrupt, part, hash)
		}
		whole.Write(data)
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
	if hex.EncodeToString(whole.Sum(nil)) != hash {
		return fmt.Errorf("%w: blob %s is not complete", ErrCorrupt, hash)
	}
	return nil
}

// DeleteBlob deletes the actor's blob, or anybody's for an admin.
func (s *Store) DeleteBlob(ctx context.Context, a Actor, hash string) error {
	return s.change(ctx, a, "blob.delete", hash, func(t *txn) error {
		var owner string
		var size int64
		if err := t.Row(ctx, findBlob, hash, a.Admin, a.who()).Scan(&owner, &size); err != nil {
			return err
		}
		return t.One(ctx, deleteBlob, hash, owner)
	})
}

// Scrub reads everything once: the structure of the file, every blob against its hashes, the chain of the audit log. What
// it finds is in the report, in [Store.LastScrub] and in the log; the error is for a scrub that could not finish. Run does
// it once a week: a disk that loses bits says nothing by itself, and SQLite does not look into values.
func (s *Store) Scrub(ctx context.Context) (ScrubReport, error) {
	release, err := s.busy(ctx)
	if err != nil {
		return ScrubReport{}, err
	}
	defer release()
	r := ScrubReport{Time: s.now().UTC()}
	if err := s.scrub(ctx, &r); err != nil {
		return r, fmt.Errorf("scrubbing: %w", s.meaning(err))
	}
	if len(r.Damaged)+len(r.Problems) > 0 {
		s.log.Error("the scrub found damage", "blobs", r.Damaged, "problems", r.Problems)
	}
	if err := s.write(ctx, func(t *txn) error { return t.keep(ctx, scrubName, r) }); err != nil {
		return r, fmt.Errorf("recording a scrub: %w", err)
	}
	return r, nil
}

func (s *Store) scrub(ctx context.Context, r *ScrubReport) error {
	rows, err := s.r.Query(ctx, "pragma integrity_check(20)")
	said, err := sqlite.Collect(rows, err, func(r sqlite.Row) (line string, err error) { return line, r.Scan(&line) })
	if err = meaning(err); err != nil && !errors.Is(err, ErrCorrupt) {
		return err
	}
	if err != nil {
		said = []string{err.Error()}
	}
	if len(said) != 1 || said[0] != "ok" {
		r.Problems = append(r.Problems, said...)
	}
	if _, err := s.VerifyAudit(ctx); errors.Is(err, ErrCorrupt) {
		r.Problems = append(r.Problems, err.Error())
	} else if err != nil {
		return err
	}
	return s.scrubBlobs(ctx, r)
}

func (s *Store) scrubBlobs(ctx context.Context, r *ScrubReport) error {
	var owner, hash string
	for {
		var size int64
		err := meaning(s.r.Row(ctx, nextBlob, owner, hash).Scan(&owner, &hash, &size))
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if errors.Is(err, ErrCorrupt) {
			r.Problems = append(r.Problems, err.Error())
			return nil
		}
		if err != nil {
			return err
		}
		r.Blobs++
		r.Bytes += size
		err = meaning(s.readBlob(ctx, owner, hash, io.Discard))
		switch {
		case errors.Is(err, ErrCorrupt):
			if still, serr := s.stored(ctx, owner, hash); serr != nil || still {
				r.Damaged = append(r.Damaged, hash)
			}
		case err != nil:
			return err
		}
	}
}

// stored tells whether a blob is still there: one that was deleted while it was read is not damaged.
func (s *Store) stored(ctx context.Context, owner, hash string) (bool, error) {
	var n int
	err := s.r.Row(ctx, "select count(*) from blobs where owner = ? and hash = ?", owner, hash).Scan(&n)
	return n > 0, err
}

// LastScrub returns the report of the last scrub that finished, or [ErrNotFound].
func (s *Store) LastScrub(ctx context.Context) (ScrubReport, error) {
	var r ScrubReport
	err := s.own(ctx, scrubName, &r)
	return r, err
}

// temp makes an empty folder in dir that sweep would clear away.
func temp(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	return os.MkdirTemp(filepath.Clean(dir), temporary+"*")
}
