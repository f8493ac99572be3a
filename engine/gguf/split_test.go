package gguf_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onebit/engine/gguf"
)

// shard describes one file of a split model.
type shard struct {
	no, count any // the values of split.no and split.count; nil leaves them out
	total     int // split.tensors.count
	tensors   []string
}

// three is a sound model of three shards.
func three() []shard {
	return []shard{
		{uint16(0), uint16(3), 4, []string{"a"}},
		{uint16(1), uint16(3), 4, []string{"b", "c"}},
		{uint16(2), uint16(3), 4, []string{"d"}},
	}
}

// write writes the shards into a new folder and returns their paths.
func writeShards(t *testing.T, shards []shard) []string {
	t.Helper()
	dir := t.TempDir()
	var paths []string
	for i, s := range shards {
		w := gguf.NewWriter()
		if i == 0 {
			must(t, w.Set("general.architecture", "llama"))
			must(t, w.Set("split.tensors.count", int32(s.total)))
		}
		if s.no != nil {
			must(t, w.Set("split.no", s.no))
		}
		if s.count != nil {
			must(t, w.Set("split.count", s.count))
		}
		for _, name := range s.tensors {
			must(t, w.Add(name, gguf.I8, []uint64{1}, []byte(name)))
		}
		path := filepath.Join(dir, fmt.Sprintf("m-%05d-of-%05d.gguf", i+1, len(shards)))
		must(t, w.WriteFile(path))
		paths = append(paths, path)
	}
	return paths
}

func TestSplitOpensFromAnyShard(t *testing.T) {
	for _, path := range writeShards(t, three()) {
		f, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if f.Architecture() != "llama" {
			t.Errorf("%s: architecture %q", filepath.Base(path), f.Architecture())
		}
		var all strings.Builder
		for _, s := range f.Tensors() {
			all.Write(s.Data())
			f.Drop(s)
		}
		if all.String() != "abcd" || f.Tensor("c") == nil {
			t.Errorf("%s: tensors %q", filepath.Base(path), all.String())
		}
		must(t, f.Close())
	}
}

func TestSplitOfOneNeedsNoName(t *testing.T) {
	paths := writeShards(t, []shard{{uint16(0), uint16(1), 1, []string{"a"}}})
	plain := filepath.Join(filepath.Dir(paths[0]), "plain.gguf")
	must(t, os.Rename(paths[0], plain))
	f, err := gguf.Open(plain)
	if err != nil {
		t.Fatal(err)
	}
	must(t, f.Close())
}

func TestSplitMismatches(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(s []shard, paths []string) // paths is nil before the files are written
		open  string                          // the shard to open, "" for the first
		want  string
	}{
		{"number", func(s []shard, paths []string) { s[1].no = uint16(2) }, "", "split.no is 2, not 1"},
		{"no number", func(s []shard, paths []string) { s[1].no = nil }, "", "split.no is 0, not 1"},
		{"count", func(s []shard, paths []string) { s[2].count = uint16(4) }, "", "split.count is 4, not 3"},
		{"no count", func(s []shard, paths []string) { s[2].count = nil }, "", "split.count is 0, not 3"},
		{"tensor twice", func(s []shard, paths []string) { s[2].tensors[0] = "b" }, "", `tensor "b" is in an earlier shard too`},
		{"total", func(s []shard, paths []string) { s[0].total = 5 }, "", "split.tensors.count is 5, but the shards hold 4"},
		{"name", func(s []shard, paths []string) {
			if paths != nil {
				os.Rename(paths[0], filepath.Join(filepath.Dir(paths[0]), "m.gguf"))
			}
		}, "m.gguf", "shard 1 of 3 is not named NAME-00001-of-00003.gguf"},
		{"name of another", func(s []shard, paths []string) {
			if paths != nil {
				os.Rename(paths[0], paths[1])
			}
		}, "m-00002-of-00003.gguf", "shard 1 of 3 is not named"},
		{"damage", func(s []shard, paths []string) {
			if paths != nil {
				os.Truncate(paths[2], 50)
			}
		}, "", `shard "m-00003-of-00003.gguf": damaged GGUF at byte`},
	} {
		shards := three()
		c.spoil(shards, nil)
		paths := writeShards(t, shards)
		c.spoil(shards, paths)
		path := paths[0]
		if c.open != "" {
			path = filepath.Join(filepath.Dir(path), c.open)
		}
		f, err := gguf.Open(path)
		if err == nil {
			t.Errorf("%s: the model was opened", c.name)
			f.Close()
			continue
		}
		if _, ok := errors.AsType[*gguf.DamageError](err); !ok || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q in it", c.name, err, c.want)
		}
	}
}

func TestSplitWithAShardMissing(t *testing.T) {
	paths := writeShards(t, three())
	must(t, os.Remove(paths[1]))
	_, err := gguf.Open(paths[2])
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "m-00002-of-00003.gguf") {
		t.Errorf("error %v", err)
	}
}
