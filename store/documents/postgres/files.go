package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"

	"onebit/store/documents"
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
	f, err := documents.NewFile(by, f, k.now())
	if err == nil && strings.ContainsRune(f.Name, 0) { // which PostgreSQL cannot keep
		err = fmt.Errorf("%w: a file's name has a zero byte", documents.ErrInvalid)
	}
	if err != nil {
		return documents.File{}, err
	}
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
	err = f.Receive(r, func(n int, part []byte) error {
		_, err := k.pool.Exec(ctx, "insert into parts (file, n, content) values ($1, $2, $3)", f.ID, n, part)
		return meaning(err)
	})
	if err != nil {
		return err
	}
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
	after, before, order, limit := p.Bounds()
	list, err := k.files(ctx, "owner <> '' and ($1 or owner = $2) and ($3 = '' or purpose = $3) and id > $4 and id < $5 order by id "+order+" limit $6",
		by.All, by.Person, purpose, after, cmp.Or(before, documents.LastID), limit)
	list, more := documents.Cut(list, limit)
	return list, more, err
}

// Content writes a file's bytes, which are held against its hash.
func (k *Keeper) Content(ctx context.Context, by documents.Reader, id string, w io.Writer) error {
	f, err := k.File(ctx, by, id)
	if err != nil {
		return err
	}
	return f.Send(w, func(n int) (part []byte, err error) {
		err = meaning(k.pool.QueryRow(ctx, "select content from parts where file = $1 and n = $2", id, n).Scan(&part))
		return part, err
	})
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
