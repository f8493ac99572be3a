package shelf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"onebit/store/documents"
)

type fileObject struct {
	ID        string `json:"id"`
	Object    string `json:"object"`
	Bytes     int64  `json:"bytes"`
	CreatedAt int64  `json:"created_at"`
	ExpiresAt *int64 `json:"expires_at,omitempty"`
	Filename  string `json:"filename"`
	Purpose   string `json:"purpose"`
	Status    string `json:"status"`
}

func fileOf(f documents.File) fileObject {
	o := fileObject{ID: f.ID, Object: "file", Bytes: f.Bytes, CreatedAt: f.Created.Unix(), Filename: f.Name, Purpose: f.Purpose, Status: "processed"}
	if !f.Expires.IsZero() {
		at := f.Expires.Unix()
		o.ExpiresAt = &at
	}
	return o
}

// purposes are those that a client may give a file.
var purposes = map[string]bool{"assistants": true, "user_data": true, "batch": true, "fine-tune": true, "vision": true, "evals": true}

// Bounds on the life of a file that expires, as the API has them.
const (
	shortestLife = time.Hour
	longestLife  = 30 * 24 * time.Hour
)

// upload takes a form with the file and its purpose. The bytes go to the disk
// as they come.
func (l *Shelf) upload(c *call) (any, error) {
	c.r.Body = http.MaxBytesReader(c.w, c.r.Body, maxUpload+maxBody)
	if l.Space != nil {
		c.r.Body = &roomy{ReadCloser: c.r.Body, space: l.Space}
	}
	form, err := c.r.MultipartReader()
	if err != nil {
		return nil, refusal(http.StatusUnsupportedMediaType, "unsupported_media_type", "the body must be multipart/form-data with the parts file and purpose")
	}
	u := &uploading{l: l, c: c}
	defer u.close()
	for {
		p, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, formError(err)
		}
		if err := u.part(p); err != nil {
			return nil, err
		}
	}
	return u.finish()
}

// spare is how much of the disk uploads leave to the rest of the box, in bytes.
// What they have filled comes back for other documents alone.
const spare = 256 << 20

// roomy is a body that is read as long as there is room on the disk.
type roomy struct {
	io.ReadCloser
	space func() (uint64, error)
	left  int // bytes until the next look
}

func (r *roomy) Read(p []byte) (int, error) {
	if r.left <= 0 {
		if free, err := r.space(); err == nil && free < spare {
			return 0, documents.ErrFull
		}
		r.left = 4 << 20
	}
	n, err := r.ReadCloser.Read(p)
	r.left -= n
	return n, err
}

func formError(err error) error {
	var long *http.MaxBytesError
	if errors.As(err, &long) || errors.Is(err, documents.ErrFull) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return invalid("", "the form is broken: %v", err)
}

// uploading gathers the parts of a form in any order.
type uploading struct {
	l      *Shelf
	c      *call
	meta   documents.File
	life   time.Duration
	stored *documents.File
	held   *os.File // the file's bytes, while its purpose is not known yet
}

func (u *uploading) part(p *multipart.Part) error {
	switch p.FormName() {
	case "purpose":
		s, err := field(p)
		if err == nil && !purposes[s] {
			err = invalid("purpose", "purpose is %q; assistants and user_data are for documents", s)
		}
		u.meta.Purpose = s
		return err
	case "expires_after[seconds]", "expires_after.seconds":
		s, err := field(p)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(s)
		u.life = time.Duration(n) * time.Second
		if err != nil || u.life < shortestLife || u.life > longestLife {
			return invalid("expires_after", "a file lives for 3600 to 2592000 seconds")
		}
		return nil
	case "expires_after[anchor]", "expires_after.anchor":
		s, err := field(p)
		if err == nil && s != "created_at" {
			err = invalid("expires_after", "the anchor is created_at")
		}
		return err
	case "file":
		if u.stored != nil || u.held != nil {
			return invalid("file", "one file is taken at a time")
		}
		return u.file(p)
	}
	_, err := field(p) // members that others know
	return err
}

func field(p io.Reader) (string, error) {
	b, err := io.ReadAll(io.LimitReader(p, 4<<10+1))
	if err != nil {
		return "", formError(err)
	}
	if len(b) > 4<<10 {
		return "", invalid("", "a part of the form is longer than 4096 bytes")
	}
	return string(b), nil
}

// file stores the bytes at once where the purpose came before them, as most
// clients send it.
func (u *uploading) file(p *multipart.Part) error {
	u.meta.Name = baseName(p)
	if u.meta.Name == "" {
		return invalid("file", "the file has no name")
	}
	if u.meta.Purpose != "" {
		return u.store(p)
	}
	f, err := os.CreateTemp(u.l.Temp, "upload-*")
	if err != nil {
		return diskError(err)
	}
	u.held = f
	if _, err := io.Copy(f, p); err != nil {
		return diskError(err)
	}
	return nil
}

// diskError tells a disk that takes no more, and one that fails, from a form
// that is broken.
func diskError(err error) error {
	var disk *fs.PathError
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: %w", documents.ErrFull, err)
	case errors.As(err, &disk):
		return err
	}
	return formError(err)
}

// baseName is a file's name without folders, of either kind of system.
func baseName(p *multipart.Part) string {
	_, params, err := mime.ParseMediaType(p.Header.Get("Content-Disposition"))
	if err != nil {
		return ""
	}
	name := path.Base(strings.ReplaceAll(params["filename"], `\`, "/"))
	name = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(name, "\uFFFD"))
	if name == "." || name == "/" || name == ".." {
		return ""
	}
	for len(name) > 255 { // the ending says more than the beginning
		_, n := utf8.DecodeRuneInString(name)
		name = name[n:]
	}
	return name
}

func (u *uploading) store(r io.Reader) error {
	if u.life > 0 {
		u.meta.Expires = time.Now().Add(u.life)
	}
	f, err := u.l.Keeper.AddFile(u.c.ctx, u.c.visit.Reader, u.meta, r)
	if err != nil {
		return err
	}
	u.stored = &f
	return nil
}

func (u *uploading) finish() (any, error) {
	if u.stored == nil && u.held == nil {
		return nil, invalid("file", "the form has no file")
	}
	if u.meta.Purpose == "" {
		return nil, invalid("purpose", "the form has no purpose")
	}
	if u.stored == nil {
		if _, err := u.held.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
		if err := u.store(u.held); err != nil {
			return nil, err
		}
	}
	o := fileOf(*u.stored)
	u.stored = nil // it is the client's now
	return o, nil
}

// close removes what no answer was given for.
func (u *uploading) close() {
	if u.held != nil {
		u.held.Close()
		os.Remove(u.held.Name())
	}
	if u.stored != nil {
		if err := u.l.Keeper.DeleteFile(context.WithoutCancel(u.c.ctx), u.c.visit.Reader, u.stored.ID); err != nil {
			u.l.Log.Warn("removing an upload that failed", "file", u.stored.ID, "err", err)
		}
	}
}

func (l *Shelf) listFiles(c *call) (any, error) {
	p, err := c.page()
	if err != nil {
		return nil, err
	}
	out, more, err := visible(p, func(f documents.File) string { return f.ID }, func(p documents.Page) ([]documents.File, bool, error) {
		return l.Keeper.Files(c.ctx, c.visit.Reader, c.r.URL.Query().Get("purpose"), p)
	}, func(f documents.File) (fileObject, bool, error) {
		ok, err := l.seesFile(c, f.ID)
		return fileOf(f), ok, err
	})
	if err != nil {
		return nil, err
	}
	return listOf(out, more, func(f fileObject) string { return f.ID }), nil
}

func (l *Shelf) getFile(c *call) (any, error) {
	f, err := l.Keeper.File(c.ctx, c.visit.Reader, c.r.PathValue("file"))
	return fileOf(f), err
}

func (l *Shelf) deleteFile(c *call) (any, error) {
	id := c.r.PathValue("file")
	return deleted{id, "file", true}, l.Keeper.DeleteFile(c.ctx, c.visit.Reader, id)
}

// content sends a file as it was uploaded, never as something that a browser
// would show.
func (l *Shelf) content(c *call) (any, error) {
	f, err := l.Keeper.File(c.ctx, c.visit.Reader, c.r.PathValue("file"))
	if err != nil {
		return nil, err
	}
	h := c.w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Length", strconv.FormatInt(f.Bytes, 10))
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": f.Name}))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	if err := l.Keeper.Content(c.ctx, c.visit.Reader, f.ID, c.w); err != nil {
		l.Log.Warn("sending a file", "file", f.ID, "err", err)
		panic(http.ErrAbortHandler) // the status is out; the length tells the client
	}
	return written{}, nil
}
