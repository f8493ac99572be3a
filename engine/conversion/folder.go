package conversion

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"onebit/engine/tensor"
)

const maxJSON = 256 << 20 // bytes of a configuration or tokenizer file

// folder is an open folder with a model: weights in safetensors beside JSON files. Names inside it that lead out of it
// are refused.
type folder struct {
	root    *os.Root
	files   []*os.File
	weights map[string]weight
	names   []string // of the weights, in the order of the files
}

// weight is one tensor and where it lies.
type weight struct {
	entry
	file io.ReaderAt
}

func openFolder(dir string) (*folder, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	f := &folder{root: root, weights: map[string]weight{}}
	names, err := f.shards()
	for _, name := range names {
		if err == nil {
			err = f.load(name)
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// shards returns the files that hold the weights.
func (f *folder) shards() ([]string, error) {
	var index struct {
		Map map[string]string `json:"weight_map"`
	}
	err := f.json("model.safetensors.index.json", &index)
	if errors.Is(err, fs.ErrNotExist) {
		return []string{"model.safetensors"}, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, file := range index.Map {
		if !slices.Contains(names, file) {
			names = append(names, file)
		}
	}
	if len(names) == 0 {
		return nil, errors.New("model.safetensors.index.json names no files")
	}
	slices.Sort(names)
	return names, nil
}

// load opens one file of weights.
func (f *folder) load(name string) error {
	file, err := f.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the folder lacks %s", name)
	}
	if err != nil {
		if info, err := f.root.Lstat(name); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("%s is a link that leads out of the folder: copy the folder with its links resolved first (cp -rL)", name)
		}
		return err
	}
	f.files = append(f.files, file)
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file", name)
	}
	list, err := parseSafetensors(file, info.Size())
	if err != nil {
		return fmt.Errorf("damaged safetensors file %s: %w", name, err)
	}
	for _, e := range list {
		if _, ok := f.weights[e.name]; ok {
			return fmt.Errorf("tensor %q is in two files", e.name)
		}
		f.weights[e.name] = weight{e, file}
		f.names = append(f.names, e.name)
	}
	return nil
}

// Close closes all files.
func (f *folder) Close() error {
	var errs []error
	for _, file := range f.files {
		errs = append(errs, file.Close())
	}
	return errors.Join(append(errs, f.root.Close())...)
}

// bytes returns a whole file of the folder.
func (f *folder) bytes(name string) ([]byte, error) {
	file, err := f.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, maxJSON+1))
	if err == nil && len(b) > maxJSON {
		err = fmt.Errorf("%s is over %d MiB", name, maxJSON>>20)
	}
	return b, err
}

// json decodes a file of the folder.
func (f *folder) json(name string, to any) error {
	b, err := f.bytes(name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(string(b), "\ufeff")), to); err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	return nil
}

// optional is json, but a file that is not there changes nothing.
func (f *folder) optional(name string, to any) error {
	if err := f.json(name, to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// rows reads n rows of width elements from row on.
func (w *weight) rows(row, n, width int) ([]float32, error) {
	kind, ok := w.kind()
	if !ok {
		return nil, fmt.Errorf("tensor %q: weights of %s cannot be converted", w.name, w.dtype)
	}
	_, size, _ := kind.Block()
	raw := make([]byte, n*width*size)
	if _, err := w.file.ReadAt(raw, w.offset+int64(row)*int64(width*size)); err != nil {
		return nil, fmt.Errorf("reading tensor %q: %w", w.name, noEOF(err))
	}
	v := make([]float32, n*width)
	return v, tensor.Dequantize(kind, raw, v)
}
