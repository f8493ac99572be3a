package gguf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// Keys that the shards of a split file carry.
const (
	splitNoKey      = "split.no"
	splitCountKey   = "split.count"
	splitTensorsKey = "split.tensors.count"
)

// Open maps a file and checks it whole. When the file is one shard of a split
// model, all its shards are opened: they lie in the same folder and are named
// NAME-00001-of-00003.gguf and so on; metadata are those of the first shard.
//
// Errors are those of the operating system, or wrap a *DamageError. The file
// must not be made shorter while it is open: see [File].
func Open(path string) (*File, error) {
	f, err := OpenShard(path)
	if err != nil {
		return nil, err
	}
	count, ok := f.Uint(splitCountKey)
	if !ok || count < 2 {
		return f, nil
	}
	whole, err := openSplit(path, f, count)
	return whole, errors.Join(err, f.Close())
}

// OpenShard opens one file and looks no further: of a split model one shard, with its own tensors and metadata.
func OpenShard(path string) (*File, error) {
	m, err := mapFile(path)
	if err != nil {
		return nil, err
	}
	f, err := Parse(m.bytes)
	if err != nil {
		return nil, errors.Join(err, m.close())
	}
	f.maps = []*mapping{m}
	for _, t := range f.tensors {
		t.home = m
	}
	return f, nil
}

var shardName = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})\.gguf$`)

// openSplit opens all shards of the model that the file at path, already open
// as one, belongs to.
func openSplit(path string, one *File, count uint64) (*File, error) {
	parts := shardName.FindStringSubmatch(filepath.Base(path))
	no, _ := one.Uint(splitNoKey)
	if parts == nil || parts[2] != fmt.Sprintf("%05d", no+1) || parts[3] != fmt.Sprintf("%05d", count) {
		return nil, damage("shard %d of %d is not named NAME-%05d-of-%05d.gguf", no+1, count, no+1, count)
	}
	whole := &File{byName: map[string]*Tensor{}}
	for i := range count {
		name := fmt.Sprintf("%s-%05d-of-%05d.gguf", parts[1], i+1, count)
		shard, err := OpenShard(filepath.Join(filepath.Dir(path), name))
		if err == nil {
			err = whole.join(shard, i, count)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("shard %q: %w", name, err), whole.Close())
		}
	}
	if total, ok := whole.Uint(splitTensorsKey); ok && total != uint64(len(whole.tensors)) {
		return nil, errors.Join(
			damage("%s is %d, but the shards hold %d tensors", splitTensorsKey, total, len(whole.tensors)),
			whole.Close())
	}
	return whole, nil
}

// join takes over what shard holds, whatever it returns.
func (f *File) join(shard *File, no, count uint64) error {
	f.maps = append(f.maps, shard.maps...)
	if n, ok := shard.Uint(splitCountKey); !ok || n != count {
		return damage("%s is %d, not %d as in the other shards", splitCountKey, n, count)
	}
	if n, ok := shard.Uint(splitNoKey); !ok || n != no {
		return damage("%s is %d, not %d", splitNoKey, n, no)
	}
	if no == 0 {
		f.version, f.keys, f.values = shard.version, shard.keys, shard.values
	}
	for _, t := range shard.tensors {
		if f.byName[t.Name] != nil {
			return damage("tensor %q is in an earlier shard too", t.Name)
		}
		f.byName[t.Name] = t
	}
	f.tensors = append(f.tensors, shard.tensors...)
	if len(f.tensors) > maxTensors {
		return damage("tensor count %d is over the limit of %d", len(f.tensors), maxTensors)
	}
	return nil
}

func damage(format string, args ...any) error {
	return &DamageError{What: fmt.Sprintf(format, args...)}
}

// Close unmaps the file. Views of tensor data become invalid; names, shapes and
// values that were handed out before stay valid. Closing twice is no error.
func (f *File) Close() error {
	var errs []error
	for _, m := range f.maps {
		errs = append(errs, m.close())
	}
	for _, t := range f.tensors {
		t.data, t.home = nil, nil
	}
	f.maps, f.keys, f.values = nil, nil, nil
	return errors.Join(errs...)
}

// Advice tells the operating system how a range of the file will be read.
type Advice int

// What can be advised.
const (
	Normal     Advice = iota // no special treatment
	Sequential               // once, from front to end
	Random                   // here and there: reading ahead is in vain
	WillNeed                 // soon: start reading now, without waiting
)

// Advise passes advice about one tensor's data on to the operating system, or
// about the whole file when t is nil. It never changes what is read, and does
// nothing where the system knows no such advice.
func (f *File) Advise(t *Tensor, a Advice) {
	if t != nil {
		if t.home != nil {
			t.home.advise(t.offset, t.size, a)
		}
		return
	}
	for _, m := range f.maps {
		m.advise(0, uint64(len(m.bytes)), a)
	}
}

// Drop gives the memory that holds a tensor's data back to the operating
// system, for data that were copied and are not needed soon. Reading them again
// is allowed and brings them back from the file.
func (f *File) Drop(t *Tensor) {
	if t.home != nil {
		t.home.drop(t.offset, t.size)
	}
}

// statRegular refuses what is no regular file before it is opened: opening a
// pipe would wait for a writer.
func statRegular(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return damage("not a regular file but %v", info.Mode().Type())
	}
	return nil
}
