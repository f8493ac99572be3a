package catalog

import (
	"crypto/sha256"
	"encoding"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// state is what the state file holds.
type state struct {
	URL    string `json:"url"` // without its query
	ETag   string `json:"etag,omitempty"`
	Size   int64  `json:"size,omitempty"`
	Offset int64  `json:"offset"`
	Hash   []byte `json:"hash"` // of the first Offset bytes, as the hash function keeps it
}

// keep puts all that has come on disk and into the state file.
func (t *transfer) keep() {
	if t.done > t.safe && flush(t.out) == nil {
		t.save()
	}
}

// save writes the state file for bytes that are on disk. When that fails, the next run hashes the partial file again.
func (t *transfer) save() {
	h, ok := t.hash.(encoding.BinaryMarshaler)
	if !ok {
		return
	}
	sum, err := h.MarshalBinary()
	if err != nil {
		return
	}
	b, err := json.Marshal(state{URL: withoutQuery(t.url), ETag: t.etag, Size: t.size, Offset: t.done, Hash: sum})
	if err != nil {
		return
	}
	if writeFile(t.stateFile(), b) == nil {
		t.safe = t.done
	}
}

// reset empties the partial file.
func (t *transfer) reset() error {
	t.hash, t.size, t.done, t.safe, t.etag, t.resumed = sha256.New(), t.want, 0, 0, "", false
	os.Remove(t.stateFile())
	if err := t.out.Truncate(0); err != nil {
		return fmt.Errorf("emptying the partial file: %w", err)
	}
	return nil
}

// open opens the partial file and finds out how far it is.
func (t *transfer) open() error {
	out, err := os.OpenFile(t.partial, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return fmt.Errorf("opening the partial file: %w", err)
	}
	t.out, t.hash, t.size = out, sha256.New(), t.want
	info, err := out.Stat()
	if err == nil {
		err = t.resume(info.Size())
	}
	if err != nil {
		out.Close()
		return fmt.Errorf("opening the partial file: %w", err)
	}
	return nil
}

// resume takes up what an earlier run has left, as far as it is known to be right.
func (t *transfer) resume(have int64) error {
	if have == 0 {
		return nil
	}
	t.resumed = true
	var s state
	b, err := os.ReadFile(t.stateFile())
	h, ok := t.hash.(encoding.BinaryUnmarshaler)
	readable := err == nil && json.Unmarshal(b, &s) == nil && ok && h.UnmarshalBinary(s.Hash) == nil
	if !readable && t.sha256 != "" && (t.size == 0 || have <= t.size) {
		t.hash = sha256.New()
		return t.rehash(have) // another program has kept it in its own way; the hash decides at the end
	}
	known := readable && s.Offset >= 0 && s.Offset <= have && (t.size == 0 || s.Size == 0 || s.Size == t.size) &&
		(s.URL == withoutQuery(t.url) || t.sha256 != "")
	if !known {
		return t.reset()
	}
	t.done, t.safe, t.etag = s.Offset, s.Offset, s.ETag
	if t.size == 0 {
		t.size = s.Size
	}
	return t.out.Truncate(t.done)
}

// rehash reads the partial file.
func (t *transfer) rehash(have int64) error {
	if _, err := io.Copy(t.hash, io.NewSectionReader(t.out, 0, have)); err != nil {
		return err
	}
	forget(t.out, 0, 0)
	t.done = have
	return nil
}
