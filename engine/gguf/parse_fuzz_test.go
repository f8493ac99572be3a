package gguf_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"onebit/engine/gguf"
)

// seeds are the committed inputs of FuzzParse, beside the damaged files.
func seeds() map[string]raw {
	list := map[string]raw{
		"sound-v2":     sound(2),
		"sound-v3":     sound(3),
		"unknown-type": one(77, 64, 0, 3, 5),
	}
	for _, c := range damaged {
		switch c.name {
		case "data-cut", "tensor-count-lies", "overlap", "string-huge", "offset-misaligned":
			list[c.name] = c.file
		}
	}
	return list
}

func TestSeedsAreCommitted(t *testing.T) {
	for name, b := range seeds() {
		path := filepath.Join("testdata", "fuzz", "FuzzParse", name)
		want := fmt.Sprintf("go test fuzz v1\n[]byte(%q)\n", []byte(b))
		if *update {
			must(t, os.MkdirAll(filepath.Dir(path), 0o777))
			must(t, os.WriteFile(path, []byte(want), 0o666))
		}
		if got, err := os.ReadFile(path); string(got) != want {
			t.Errorf("%s differs from what the test builds (error %v)", path, err)
		}
	}
}

// FuzzParse checks that whatever is accepted holds together: every value and
// tensor can be read, and written again it reads the same.
func FuzzParse(f *testing.F) {
	for _, c := range damaged {
		if len(c.file) < 1<<10 {
			f.Add([]byte(c.file))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := gguf.Parse(b)
		if err != nil {
			if _, ok := errors.AsType[*gguf.DamageError](err); !ok {
				t.Fatalf("error %v is no DamageError", err)
			}
			return
		}
		w := gguf.NewWriter()
		for _, key := range file.Keys() {
			v, ok := file.Value(key)
			if !ok {
				t.Fatalf("key %q has no value", key)
			}
			must(t, w.Set(key, v))
			readAs(file, key)
		}
		for _, s := range file.Tensors() {
			if uint64(len(s.Data())) != s.Size() {
				t.Fatalf("tensor %q has %d bytes of %d", s.Name, len(s.Data()), s.Size())
			}
			if s.Type.Known() {
				must(t, w.Add(s.Name, s.Type, s.Shape, s.Data()))
			}
		}
		if align, _ := file.Uint("general.alignment"); align > 1<<16 {
			return // the padding would be gigabytes
		}
		var out bytes.Buffer
		if _, err := w.WriteTo(&out); err != nil {
			t.Fatal(err)
		}
		again, err := gguf.Parse(out.Bytes())
		if err != nil {
			t.Fatalf("what was written is refused: %v", err)
		}
		same(t, file, again)
	})
}

// readAs reads a key through every accessor.
func readAs(f *gguf.File, key string) {
	f.String(key)
	f.Uint(key)
	f.Int(key)
	f.Float(key)
	f.Bool(key)
	f.Strings(key)
	f.Floats(key)
	f.Ints(key)
	f.Bools(key)
}

func same(t *testing.T, a, b *gguf.File) {
	t.Helper()
	if !cmp.Equal(a.Keys(), b.Keys()) {
		t.Fatalf("keys %q became %q", a.Keys(), b.Keys())
	}
	for _, key := range a.Keys() {
		was, _ := a.Value(key)
		is, _ := b.Value(key)
		if diff := cmp.Diff(was, is, cmpopts.EquateNaNs()); diff != "" {
			t.Fatalf("key %q changed (-was +is):\n%s", key, diff)
		}
	}
	for _, s := range b.Tensors() {
		was := a.Tensor(s.Name)
		if was == nil || was.Type != s.Type || !cmp.Equal(was.Shape, s.Shape) || !bytes.Equal(was.Data(), s.Data()) {
			t.Fatalf("tensor %q changed", s.Name)
		}
	}
	if len(a.Tensors())-len(a.Unknown()) != len(b.Tensors()) {
		t.Fatal("tensors were lost")
	}
}
