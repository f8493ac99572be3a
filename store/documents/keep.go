package documents

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"onebit/store"
)

// What every Keeper does alike is here: the limits of what people name, who may
// make what, how content is cut into parts and put together again, how a list is
// paged.

const (
	maxName   = 512     // bytes of a file's or a collection's name
	partBytes = 1 << 20 // of one part of a file's content
)

// NewFile returns a file as a keeper begins to store it: with its owner, id and
// time.
func NewFile(by Reader, f File, now time.Time) (File, error) {
	if f.Owner == "" {
		f.Owner = by.Person
	}
	switch {
	case f.Owner == "" || !by.All && f.Owner != by.Person:
		return File{}, ErrNotFound
	case f.Name == "" || len(f.Name) > maxName || !utf8.ValidString(f.Name):
		return File{}, fmt.Errorf("%w: a file's name has 1 to %d bytes of UTF-8", ErrInvalid, maxName)
	}
	if !by.All || f.ID == "" {
		f.ID, f.Created = "file-"+store.NewID(), now.UTC().Truncate(time.Millisecond)
	}
	f.Bytes = 0
	return f, nil
}

// Slot returns in which of a collection's two places vectors of a model stand:
// those of the model that is shown in slot, those of the next in the other.
func Slot(slot int, shown, next, model string) (int, error) {
	switch {
	case model == shown || shown == "":
		return slot, nil
	case model == next:
		return 1 - slot, nil
	}
	return 0, otherModel(shown, model)
}

func otherModel(shown, model string) error {
	return fmt.Errorf("%w: the collection has vectors of %q, not of %q", ErrConflict, shown, model)
}

// Near reports whether a collection has vectors that are searched. Those of
// another model than asked are ErrConflict.
func (c Collection) Near(model string) (bool, error) {
	if c.Model != "" && c.Model != model {
		return false, otherModel(c.Model, model)
	}
	return c.Model != "", nil
}

// Receive reads content in parts, gives each to put, and sets the file's size
// and hash. The bytes of a part are good until put returns.
func (f *File) Receive(r io.Reader, put func(n int, part []byte) error) error {
	sum := sha256.New()
	buf := make([]byte, partBytes)
	for n := 0; ; n++ {
		size, err := io.ReadFull(r, buf)
		if size > 0 {
			sum.Write(buf[:size])
			f.Bytes += int64(size)
			if err := put(n, buf[:size]); err != nil {
				return err
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
	return nil
}

// Send writes content from its parts, and fails at the end where they are not
// what was received.
func (f File) Send(w io.Writer, part func(n int) ([]byte, error)) error {
	sum := sha256.New()
	both := io.MultiWriter(w, sum)
	left := f.Bytes
	for n := 0; left > 0; n++ {
		b, err := part(n)
		if err != nil {
			return fmt.Errorf("part %d of the file: %w", n, err)
		}
		if _, err := both.Write(b); err != nil {
			return err
		}
		left -= int64(len(b))
	}
	if hex.EncodeToString(sum.Sum(nil)) != f.SHA256 {
		return fmt.Errorf("file %s: its bytes are not those that were stored", f.ID)
	}
	return nil
}

// NewCollection returns an empty collection as a keeper stores it: with its
// owner, id and times.
func NewCollection(by Reader, c Collection, now time.Time) (Collection, error) {
	if c.Owner == "" {
		c.Owner = by.Person
	}
	if c.Owner == "" || !by.All && c.Owner != by.Person {
		return Collection{}, ErrNotFound
	}
	if !by.All || c.ID == "" {
		c.ID, c.Created = "vs_"+store.NewID(), now.UTC().Truncate(time.Millisecond)
		c.Active = c.Created
	}
	c.Model, c.Dims, c.Next, c.Generation = "", 0, "", 0
	return c.Checked()
}

// Checked holds what people may set of a collection to its limits.
func (c Collection) Checked() (Collection, error) {
	wrong := ""
	switch {
	case len(c.Name) > maxName || !utf8.ValidString(c.Name):
		wrong = fmt.Sprintf("a collection's name has at most %d bytes of UTF-8", maxName)
	case len(c.Metadata) > 16:
		wrong = "at most 16 metadata are allowed"
	case len(c.Sharing.People) > 1000:
		wrong = "a collection is shared with at most 1000 people one by one"
	case c.ExpiresAfter < 0 || c.Chunking.Max < 0 || c.Chunking.Overlap < 0:
		wrong = "a negative number"
	}
	for key, v := range c.Metadata {
		if key == "" || len(key) > 64 || len(v) > 4*512 {
			wrong = "metadata have names of 1 to 64 and texts of at most 512 characters"
		}
	}
	if wrong != "" {
		return Collection{}, fmt.Errorf("%w: %s", ErrInvalid, wrong)
	}
	if c.Metadata == nil {
		c.Metadata = map[string]string{}
	}
	return c, nil
}

// Abandoned is the age at which an upload that never ended is removed.
const Abandoned = 24 * time.Hour

// Bounds says between which ids, of a query's own order, a page lies, and how
// many rows to read: one more than the page has, so that Cut sees whether more
// follow. Empty bounds are none.
func (p Page) Bounds() (after, before, order string, rows int) {
	rows = p.Limit
	if rows <= 0 || rows > 100 {
		rows = 100
	}
	if p.Ascending {
		return p.After, p.Before, "asc", rows + 1
	}
	return p.Before, p.After, "desc", rows + 1
}

// LastID is greater than every id: a bound where there is none.
const LastID = "\x7f"

// Cut takes off the row that was read too many, and tells whether there was one.
func Cut[T any](all []T, rows int) ([]T, bool) {
	if len(all) == rows {
		return all[:rows-1], true
	}
	return all, false
}
