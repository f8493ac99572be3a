package local

import (
	"cmp"
	"context"
	"errors"
	"io"

	"onebit/store/documents"
	"onebit/store/sqlite"
)

const fileColumns = "id, owner, name, bytes, sha256, purpose, created, expires"

func scanFile(r sqlite.Row) (documents.File, error) {
	var f documents.File
	var created, expires int64
	err := r.Scan(&f.ID, &f.Owner, &f.Name, &f.Bytes, &f.SHA256, &f.Purpose, &created, &expires)
	f.Created, f.Expires = sqlite.Moment(created), sqlite.Moment(expires)
	return f, err
}

// AddFile stores content until r ends.
func (k *Keeper) AddFile(ctx context.Context, by documents.Reader, f documents.File, r io.Reader) (documents.File, error) {
	f, err := documents.NewFile(by, f, k.now())
	if err != nil {
		return documents.File{}, err
	}
	// The parts come in before the transaction that shows them, each in one of
	// its own: an upload that takes minutes must not hold the writer.
	if err := k.upload(ctx, &f, r); err != nil {
		if errors.Is(err, documents.ErrConflict) { // the id is taken: what is there stays
			return documents.File{}, err
		}
		if clean := k.drop(context.WithoutCancel(ctx), f.ID); clean != nil {
			err = errors.Join(err, clean)
		}
		return documents.File{}, err
	}
	return f, nil
}

// upload writes a file that belongs to nobody until all of it is there.
func (k *Keeper) upload(ctx context.Context, f *documents.File, r io.Reader) error {
	err := k.write(ctx, func(t *sqlite.Tx) error {
		_, err := t.Exec(ctx, "insert into files ("+fileColumns+") values (?, '', ?, 0, '', ?, ?, ?)",
			f.ID, f.Name, f.Purpose, sqlite.Stamp(f.Created), sqlite.Stamp(f.Expires))
		return err
	})
	if err != nil {
		return err
	}
	err = f.Receive(r, func(n int, part []byte) error {
		return k.write(ctx, func(t *sqlite.Tx) error {
			_, err := t.Exec(ctx, "insert into parts (file, n, content) values (?, ?, ?)", f.ID, n, part)
			return err
		})
	})
	if err != nil {
		return err
	}
	return k.write(ctx, func(t *sqlite.Tx) error {
		return t.One(ctx, "update files set owner = ?, bytes = ?, sha256 = ? where id = ?", f.Owner, f.Bytes, f.SHA256, f.ID)
	})
}

func (k *Keeper) drop(ctx context.Context, id string) error {
	return k.write(ctx, func(t *sqlite.Tx) error {
		_, err := t.Exec(ctx, "delete from files where id = ?", id)
		return err
	})
}

// File returns what is known of a file.
func (k *Keeper) File(ctx context.Context, by documents.Reader, id string) (documents.File, error) {
	list, err := k.files(ctx, "id = ? and owner <> '' and (? or owner = ?)", id, by.All, by.Person)
	if err == nil && len(list) == 0 {
		err = documents.ErrNotFound
	}
	if err != nil {
		return documents.File{}, err
	}
	return list[0], nil
}

func (k *Keeper) files(ctx context.Context, where string, args ...any) ([]documents.File, error) {
	rows, err := k.db.Query(ctx, "select "+fileColumns+" from files where "+where, args...)
	list, err := sqlite.Collect(rows, err, scanFile)
	return list, meaning(err)
}

// Files lists files, the newest first.
func (k *Keeper) Files(ctx context.Context, by documents.Reader, purpose string, p documents.Page) ([]documents.File, bool, error) {
	after, before, order, limit := p.Bounds()
	list, err := k.files(ctx, "owner <> '' and (? or owner = ?) and (? = '' or purpose = ?) and id > ? and id < ? order by id "+order+" limit ?",
		by.All, by.Person, purpose, purpose, after, cmp.Or(before, documents.LastID), limit)
	list, more := documents.Cut(list, limit)
	return list, more, err
}

// Content writes a file's bytes, and fails at the end where they are not those
// that were stored.
func (k *Keeper) Content(ctx context.Context, by documents.Reader, id string, w io.Writer) error {
	f, err := k.File(ctx, by, id)
	if err != nil {
		return err
	}
	return f.Send(w, func(n int) (part []byte, err error) {
		err = meaning(k.db.Scan(ctx, "select content from parts where file = ? and n = ?", []any{id, n}, &part))
		return part, err
	})
}

// DeleteFile removes a file with everything made of it.
func (k *Keeper) DeleteFile(ctx context.Context, by documents.Reader, id string) error {
	if _, err := k.File(ctx, by, id); err != nil {
		return err
	}
	var gone []change
	err := k.write(ctx, func(t *sqlite.Tx) error {
		gone = nil
		list, err := attachments(ctx, t, "file = ?", id)
		if err != nil {
			return err
		}
		for _, a := range list {
			c, err := forget(ctx, t, a)
			if err != nil {
				return err
			}
			gone = append(gone, c)
		}
		return t.One(ctx, "delete from files where id = ?", id)
	})
	k.slabs.follow(gone...)
	k.gone()
	return err
}
