package gateway

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"onebit/engine"
	"onebit/engine/wire"
)

// maxImage bounds one image file, in bytes.
const maxImage = 20 << 20

// media lets no address of an image, a sound or a film reach a backend but those that carry their bytes with them. The
// files that may be named are read here; nothing is fetched from the network for a client.
func (g *Gateway) media(raw []byte) ([]byte, error) {
	left := g.cfg.Limits.Body // what the files may take together
	return wire.Media(raw, func(path, address string) (string, error) {
		kind, _, named := strings.Cut(address, ":")
		switch kind = strings.ToLower(kind); {
		case named && kind == "data":
			return address, nil
		case named && kind == "file":
			inlined, err := g.inline(path, address[len("file:"):])
			if left -= int64(len(inlined)); g.cfg.Limits.Body > 0 && left < 0 {
				return "", badMedia(path, "the files of this request are larger together than %d bytes", g.cfg.Limits.Body)
			}
			return inlined, err
		case named || strings.HasPrefix(kind, "http"):
			return "", badMedia(path, "only data: addresses are served, and file: ones below --media-path; nothing is fetched from elsewhere")
		}
		return address, nil // bare base64, as sounds have it
	})
}

func badMedia(path, format string, values ...any) error {
	return &engine.InvalidError{Param: path, Code: "invalid_media", Message: path + ": " + fmt.Sprintf(format, values...)}
}

// inline reads a file below the media directory and returns it as a data: address.
func (g *Gateway) inline(path, rest string) (string, error) {
	if g.cfg.MediaPath == "" {
		return "", badMedia(path, "file: addresses are not served; --media-path DIR allows the images below a directory")
	}
	name, err := below(g.cfg.MediaPath, rest)
	if err != nil {
		return "", badMedia(path, "%v", err)
	}
	b, err := readBelow(g.cfg.MediaPath, name)
	if err != nil {
		if p, ok := errors.AsType[*fs.PathError](err); ok {
			err = p.Err // where the directory lies is not the client's business
		}
		return "", badMedia(path, "the file %q cannot be read: %v", name, err)
	}
	kind := http.DetectContentType(b)
	if !strings.HasPrefix(kind, "image/") {
		return "", badMedia(path, "the file %q is not an image", name)
	}
	return "data:" + kind + ";base64," + base64.StdEncoding.EncodeToString(b), nil
}

// below turns what stands after file: into a name below dir. A relative one is meant below dir.
func below(dir, rest string) (string, error) {
	rest, err := url.PathUnescape(rest)
	if err != nil {
		return "", errors.New("the file: address is not well formed")
	}
	if after, ok := strings.CutPrefix(rest, "//localhost/"); ok {
		rest = "/" + after
	} else if after, ok := strings.CutPrefix(rest, "//"); ok {
		rest = after
	}
	name := filepath.FromSlash(rest)
	if trimmed := strings.TrimPrefix(rest, "/"); filepath.VolumeName(filepath.FromSlash(trimmed)) != "" {
		name = filepath.FromSlash(trimmed) // /C:/pictures/a.png
	}
	if filepath.IsAbs(name) {
		root, err := filepath.Abs(dir)
		if err != nil {
			return "", err
		}
		if name, err = filepath.Rel(root, name); err != nil {
			return "", errors.New("the file lies outside of --media-path")
		}
	}
	if !filepath.IsLocal(name) {
		return "", errors.New("the file lies outside of --media-path")
	}
	return name, nil
}

// readBelow reads a regular file. No link leads out of dir.
func readBelow(dir, name string) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // nothing was written
	regular := func(info fs.FileInfo, err error) error {
		switch {
		case err != nil:
			return err
		case !info.Mode().IsRegular():
			return errors.New("it is not a regular file")
		case info.Size() > maxImage:
			return fmt.Errorf("it is larger than %d MiB", maxImage>>20)
		}
		return nil
	}
	if err := regular(root.Stat(name)); err != nil { // opening a pipe would block
		return nil, err
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := regular(f.Stat()); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxImage+1))
	if err == nil && len(b) > maxImage {
		err = fmt.Errorf("it is larger than %d MiB", maxImage>>20)
	}
	return b, err
}
