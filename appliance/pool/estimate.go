package pool

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"onebit/engine"
	"onebit/engine/backend"
	"onebit/engine/gguf"
	"onebit/engine/plan"
)

// What servers take beside weights and caches, in bytes.
const (
	ofProcess = 192 << 20 // of the machine's memory, for any process
	ofDriver  = 256 << 20 // of a card's memory, for a context on it
	batch     = 512       // tokens computed at once
)

// Estimate says what memory a model will take with such options on a device: weights, cache and work buffers of the
// model, its drafter and its projector, by the metadata of their files. What is no GGUF file counts with its size on
// disk, and what is not on disk with nothing. Side servers and second backends are models of their own here: the pool
// gets them as such, or Estimate is called for each.
func Estimate(o backend.Options, device engine.Device) (Need, error) {
	n := Need{Device: device}
	main, host, err := weigh(o.Model, plan.Options{Context: o.Context, Parallel: o.Parallel}, o.MoESlots)
	if err != nil {
		return n, err
	}
	for _, file := range []string{o.MTP, o.DFlash, o.Mmproj} {
		if file == "" {
			continue
		}
		size, err := onDisk(file)
		if err != nil {
			return n, err
		}
		main = sum(main, size)
	}
	n.Bytes = main
	if n.onCard() {
		n.Bytes, n.Host = sum(main, ofDriver), host
	} else {
		n.Bytes = sum(main, host)
	}
	n.Host = sum(n.Host, ofProcess)
	return n, nil
}

// weigh returns what one model takes where it is computed, and of the machine's memory beside that.
func weigh(path string, o plan.Options, slots int) (main, host uint64, err error) {
	if !isGGUF(path) {
		main, err = onDisk(path)
		return main, 0, err
	}
	f, err := gguf.Open(path)
	if err != nil {
		return 0, 0, fmt.Errorf("reading the model %s: %w", path, err)
	}
	defer func() { _ = f.Close() }()
	p, err := plan.New(f, o)
	if err != nil { // its cache cannot be told: the file's size is what there is to go by
		main, err = onDisk(path)
		return main, 0, err
	}
	main = sum(p.Weights.Dense, p.Weights.Embeddings, p.Cache.Total(), work(f))
	if p.Experts != nil && slots > 0 {
		main = sum(main, uint64(slots)*min(p.Experts.Mean, math.MaxUint32))
	} else {
		main = sum(main, p.Weights.Experts)
	}
	return main, p.Weights.PerLayer, nil
}

// isGGUF reports whether a file begins as one of that kind does.
func isGGUF(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var magic [4]byte
	_, err = io.ReadFull(f, magic[:])
	return err == nil && string(magic[:]) == "GGUF"
}

// work estimates the buffers that a batch is computed in: the logits, and the widest layer a few times over.
func work(f *gguf.File) uint64 {
	arch, vocabulary := f.Architecture(), uint64(0)
	width, _ := f.Uint(arch + ".embedding_length")
	layer, _ := f.Uint(arch + ".feed_forward_length")
	for _, name := range []string{"output.weight", "token_embd.weight"} {
		if t := f.Tensor(name); t != nil && len(t.Shape) == 2 {
			vocabulary = t.Shape[1]
			break
		}
	}
	const limit = 1 << 24 // of what a file may claim
	width, vocabulary, layer = min(width, limit), min(vocabulary, limit), min(layer, limit)
	return 4 * batch * (vocabulary + 4*width + 2*layer)
}

// onDisk returns the size of a file, or of all files of a folder. What does not exist has none: an id of a hub.
func onDisk(path string) (uint64, error) {
	total := uint64(0)
	err := filepath.WalkDir(path, func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode()&fs.ModeSymlink != 0 {
			info, err = os.Stat(at)
		}
		if err == nil && info.Mode().IsRegular() {
			total = sum(total, uint64(info.Size()))
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	return total, err
}

// sum adds and stops at the largest number.
func sum(all ...uint64) uint64 {
	total := uint64(0)
	for _, n := range all {
		if total+n < total {
			return math.MaxUint64
		}
		total += n
	}
	return total
}
