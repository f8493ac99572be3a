package postgres

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"onebit/store/documents"
)

const (
	partBytes = 1 << 20
	maxName   = 512
)

const fileColumns = "id, owner, name, bytes, sha256, purpose, created, expires"

func scanFile(r pgx.CollectableRow) (documents.File, error) {
	var f documents.File
	var created, expires int64
	err := r.Scan(&f.ID, &f.Owner, &f.Name, &f.Bytes, &f.SHA256, &f.Purpose, &created, &expires)
	f.Created, f.Expires = moment(created), moment(expires)
	return f, err
}

// AddFile stores content until r ends.
func (k *Keeper) AddFile(ctx context.Context, by documents.Reader, f documents.File, r io.Reader) (documents.File, error) {
	if f.Owner == "" {
		f.Owner = by.Person
	}
	switch {
	case f.Owner == "" || !by.All && f.Owner != by.Person:
		return documents.File{}, documents.ErrNotFound
	case f.Name == "" || len(f.Name) > maxName || !utf8.ValidString(f.Name) || strings.ContainsRune(f.Name, 0):
		return documents.File{}, fmt.Errorf("%w: a file's name has 1 to %d bytes of UTF-8", documents.ErrInvalid, maxName)
	}
	if !by.All || f.ID == "" {
		f.ID, f.Created = newID("file-"), k.now().UTC().Truncate(time.Millisecond)
	}
	f.Bytes = 0
	if err := k.upload(ctx, &f, r); err != nil {
		if errors.Is(err, documents.ErrConflict) { // the id is taken: what is there stays
			return documents.File{}, err
		}
		_, clean := k.pool.Exec(context.WithoutCancel(ctx), "delete from files where id = $1", f.ID)
		return documents.File{}, errors.Join(err, clean)
	}
	return f, nil
}

// upload writes a file that belongs to nobody until all of it is there.
func (k *Keeper) upload(ctx context.Context, f *documents.File, r io.Reader) error {
	_, err := k.pool.Exec(ctx, "insert into files ("+fileColumns+") values ($1, '', $2, 0, '', $3, $4, $5)", f.ID, f.Name, f.Purpose, stamp(f.Created), stamp(f.Expires))
	if err != nil {
		return meaning(err)
	}
	sum := sha256.New()
	buf := make([]byte, partBytes)
	for n := 0; ; n++ {
		size, err := io.ReadFull(r, buf)
		if size > 0 {
			sum.Write(buf[:size])
			f.Bytes += int64(size)
			if _, err := k.pool.Exec(ctx, "insert into parts (file, n, content) values ($1, $2, $3)", f.ID, n, buf[:size]); err != nil {
				return meaning(err)
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("reading the file: %w", err)
		}
	}
	f.SHA256 = hex.EncodeToString(sum.Sum(nil))
	_, err = k.pool.Exec(ctx, "update files set owner = $1, bytes = $2, sha256 = $3 where id = $4", f.Owner, f.Bytes, f.SHA256, f.ID)
	return meaning(err)
}

func (k *Keeper) files(ctx context.Context, where string, args ...any) ([]documents.File, error) {
	rows, err := k.pool.Query(ctx, "select "+fileColumns+" from files where "+where, args...)
	if err != nil {
		return nil, meaning(err)
	}
	list, err := pgx.CollectRows(rows, scanFile)
	return list, meaning(err)
}

// File returns what is known of a file.
func (k *Keeper) File(ctx context.Context, by documents.Reader, id string) (documents.File, error) {
	list, err := k.files(ctx, "id = $1 and owner <> '' and ($2 or owner = $3)", id, by.All, by.Person)
	if err == nil && len(list) == 0 {
		err = documents.ErrNotFound
	}
	if err != nil {
		return documents.File{}, err
	}
	return list[0], nil
}

// Files lists files, the newest first.
func (k *Keeper) Files(ctx context.Context, by documents.Reader, purpose string, p documents.Page) ([]documents.File, bool, error) {
	after, before, order, limit := place(p)
	list, err := k.files(ctx, "owner <> '' and ($1 or owner = $2) and ($3 = '' or purpose = $3) and id > $4 and id < $5 order by id "+order+" limit $6",
		by.All, by.Person, purpose, after, before, limit)
	list, more := paged(list, limit)
	return list, more, err
}

// Content writes a file's bytes, which are held against its hash.
func (k *Keeper) Content(ctx context.Context, by documents.Reader, id string, w io.Writer) error {
	f, err := k.File(ctx, by, id)
	if err != nil {
		return err
	}
	sum := sha256.New()
	both := io.MultiWriter(w, sum)
	left := f.Bytes
	for n := 0; left > 0; n++ {
		var part []byte
		if err := k.pool.QueryRow(ctx, "select content from parts where file = $1 and n = $2", id, n).Scan(&part); err != nil {
			return fmt.Errorf("part %d of the file: %w", n, meaning(err))
		}
		if _, err := io.Copy(both, bytes.NewReader(part)); err != nil {
			return err
		}
		left -= int64(len(part))
	}
	if hex.EncodeToString(sum.Sum(nil)) != f.SHA256 {
		return fmt.Errorf("file %s: its bytes are not those that were stored", id)
	}
	return nil
}

// DeleteFile removes a file with everything made of it.
func (k *Keeper) DeleteFile(ctx context.Context, by documents.Reader, id string) error {
	return k.write(ctx, func(t pgx.Tx) error {
		_, err := t.Exec(ctx, "update collections set generation = generation + 1 where id in (select collection from attachments where file = $1 and status = 'completed')", id)
		if err != nil {
			return err
		}
		return one(ctx, t, "delete from files where id = $1 and owner <> '' and ($2 or owner = $3)", id, by.All, by.Person)
	})
}
