// Package conversion makes new model files from what there is: a draft head cut down to a part of the vocabulary, a
// file whose weights are rotated before they are quantised, a GGUF file from a folder of safetensors, and a file in
// another quantisation. Weights pass through in pieces, so that a large model takes little memory. A new file appears
// under its name only when it is whole and has been read back.
package conversion

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"onebit/engine/gguf"
)

// Log takes one line for the user about what is done. It may be nil.
type Log func(format string, args ...any)

func (l Log) say(format string, args ...any) {
	if l != nil {
		l(format, args...)
	}
}

var laterShard = regexp.MustCompile(`-(\d{5})-of-\d{5}\.gguf$`)

// Resolve returns the GGUF file that path means: path itself, or when it is a folder, the one model in it. The shards of
// a split model count as one, and vision projectors do not count.
func Resolve(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return path, err
	}
	all, err := os.ReadDir(path)
	if err != nil {
		return "", err
	}
	var found []string
	for _, e := range all {
		name := e.Name()
		shard := laterShard.FindStringSubmatch(name)
		switch {
		case e.IsDir() || !strings.HasSuffix(name, ".gguf") || strings.HasPrefix(name, "mmproj"):
		case shard != nil && shard[1] != "00001":
		default:
			found = append(found, name)
		}
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("the folder %q holds no .gguf file", path)
	case 1:
		return filepath.Join(path, found[0]), nil
	}
	slices.Sort(found)
	return "", fmt.Errorf("the folder %q holds several models (%s): name one", path, strings.Join(found, ", "))
}

// open opens the model that path means.
func open(path string) (*gguf.File, error) {
	file, err := Resolve(path)
	if err != nil {
		return nil, err
	}
	f, err := gguf.Open(file)
	if err != nil {
		return nil, fmt.Errorf("opening %q: %w", file, err)
	}
	return f, nil
}

// leave closes what was only read from.
func leave(f io.Closer) { _ = f.Close() }

// distinct refuses an output that is one of the inputs.
func distinct(out string, inputs ...string) error {
	there, err := os.Stat(out)
	if err != nil {
		return nil //nolint:nilerr // what is not there is nobody's input
	}
	if there.IsDir() {
		return fmt.Errorf("the output %q is a folder: name a file", out)
	}
	for _, in := range inputs {
		if file, err := Resolve(in); err == nil {
			in = file
		}
		if info, err := os.Stat(in); err == nil && os.SameFile(info, there) {
			return fmt.Errorf("the output %q is the input: name another file", out)
		}
	}
	return nil
}

// copyKeys sets all metadata of f in w, but what belongs to a split file.
func copyKeys(w *gguf.Writer, f *gguf.File) error {
	for _, key := range f.Keys() {
		if strings.HasPrefix(key, "split.") {
			continue
		}
		v, _ := f.Value(key)
		if err := w.Set(key, v); err != nil {
			return err
		}
	}
	return nil
}

// pair is a metadata key with its value.
type pair struct {
	key   string
	value any
}

func setAll(w *gguf.Writer, pairs []pair) error {
	for _, p := range pairs {
		if err := w.Set(p.key, p.value); err != nil {
			return err
		}
	}
	return nil
}

// write writes the file, has check read it back, and deletes it when it is not what it should be.
func write(w *gguf.Writer, path string, check func(f *gguf.File) error) error {
	tmp := path + ".unchecked"
	if err := w.WriteFile(tmp); err != nil {
		return fmt.Errorf("writing %q: %w", path, err)
	}
	err := inspect(tmp, check)
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%q was not written: %w", path, err), remove(tmp))
	}
	return nil
}

// inspect opens a file that was just made and has check look at it.
func inspect(path string, check func(f *gguf.File) error) error {
	f, err := gguf.Open(path)
	if err != nil {
		return err
	}
	if check != nil {
		err = check(f)
	}
	return errors.Join(err, f.Close())
}

// remove deletes a file that may be there.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
