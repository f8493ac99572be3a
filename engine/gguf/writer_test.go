package gguf_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onebit/engine/gguf"
)

func TestWriterRefuses(t *testing.T) {
	four := make([]byte, 4)
	nothing := func(io.Writer) error { return nil }
	for _, c := range []struct {
		name string
		do   func(*gguf.Writer) error
		want string
	}{
		{"no key", func(w *gguf.Writer) error { return w.Set("", true) }, "key of 0 bytes"},
		{"long key", func(w *gguf.Writer) error { return w.Set(strings.Repeat("k", 1<<16), true) }, "key of 65536 bytes"},
		{"int", func(w *gguf.Writer) error { return w.Set("a", 1) }, "type int cannot be written"},
		{"nil", func(w *gguf.Writer) error { return w.Set("a", nil) }, "type <nil> cannot be written"},
		{"nested", func(w *gguf.Writer) error { return w.Set("a", [][]int32{{1}}) }, "cannot be written"},
		{"long array", func(w *gguf.Writer) error { return w.Set("a", make([]bool, 1<<22+1)) }, "over the limit"},
		{"alignment", func(w *gguf.Writer) error { return w.Set("general.alignment", uint32(48)) }, "power of two"},
		{"alignment kind", func(w *gguf.Writer) error { return w.Set("general.alignment", 64) }, "cannot be written"},
		{"no name", func(w *gguf.Writer) error { return w.Add("", gguf.F32, []uint64{1}, four) }, "name of 0 bytes"},
		{"name twice", func(w *gguf.Writer) error {
			return errors.Join(w.Add("a", gguf.F32, []uint64{1}, four), w.Add("a", gguf.F32, []uint64{1}, four))
		}, "added before"},
		{"no shape", func(w *gguf.Writer) error { return w.Add("a", gguf.F32, nil, four) }, "0 dimensions"},
		{"five dimensions", func(w *gguf.Writer) error { return w.Add("a", gguf.F32, []uint64{1, 1, 1, 1, 1}, four) }, "5 dimensions"},
		{"no elements", func(w *gguf.Writer) error { return w.Add("a", gguf.F32, []uint64{0}, nil) }, "no elements"},
		{"block", func(w *gguf.Writer) error { return w.AddFunc("a", gguf.Q8_0, []uint64{33}, nothing) }, "no multiple"},
		{"size", func(w *gguf.Writer) error { return w.Add("a", gguf.F32, []uint64{2}, four) }, "takes 8 bytes, not 4"},
		{"unknown type", func(w *gguf.Writer) error { return w.Add("a", 77, []uint64{1}, four) }, "unknown type 77"},
	} {
		if err := c.do(gguf.NewWriter()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q in it", c.name, err, c.want)
		}
	}
}

func TestSetAgainKeepsThePlace(t *testing.T) {
	w := gguf.NewWriter()
	must(t, w.Set("a", uint32(1)))
	must(t, w.Set("b", uint32(2)))
	must(t, w.Set("a", "new"))
	var out bytes.Buffer
	if _, err := w.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse(out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if s, _ := f.String("a"); s != "new" || strings.Join(f.Keys(), " ") != "a b" {
		t.Errorf("keys %v, a = %q", f.Keys(), s)
	}
}

func TestAlignment(t *testing.T) {
	for _, align := range []uint32{1, 8, 32, 256, 8192} {
		w := gguf.NewWriter()
		must(t, w.Set("general.alignment", align))
		must(t, w.Add("a", gguf.I8, []uint64{3}, []byte("abc")))
		must(t, w.Add("b", gguf.I8, []uint64{5}, []byte("defgh")))
		var out bytes.Buffer
		if _, err := w.WriteTo(&out); err != nil {
			t.Fatal(err)
		}
		f, err := gguf.Parse(out.Bytes())
		if err != nil {
			t.Fatalf("alignment %d: %v", align, err)
		}
		if a, b := f.Tensor("a").Data(), f.Tensor("b").Data(); string(a) != "abc" || string(b) != "defgh" {
			t.Errorf("alignment %d: data %q and %q", align, a, b)
		}
		if at := bytes.Index(out.Bytes(), []byte("defgh")); at%int(align) != 0 {
			t.Errorf("alignment %d: data at %d", align, at)
		}
	}
}

func TestFailedWritingLeavesTheOldFile(t *testing.T) {
	broken := errors.New("broken")
	for name, write := range map[string]func(io.Writer) error{
		"fails":     func(io.Writer) error { return broken },
		"too short": func(out io.Writer) error { _, err := out.Write(make([]byte, 3)); return err },
		"too long":  func(out io.Writer) error { _, err := out.Write(make([]byte, 5)); return err },
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "m.gguf")
		must(t, os.WriteFile(path, []byte("old"), 0o666))
		w := gguf.NewWriter()
		must(t, w.AddFunc("a", gguf.F32, []uint64{1}, write))
		err := w.WriteFile(path)
		if err == nil || !strings.Contains(err.Error(), `writing tensor "a"`) {
			t.Errorf("%s: error %v", name, err)
		}
		if name == "fails" && !errors.Is(err, broken) {
			t.Errorf("%s: error %v does not wrap the cause", name, err)
		}
		entries, err := os.ReadDir(dir)
		must(t, err)
		if b, _ := os.ReadFile(path); string(b) != "old" || len(entries) != 1 {
			t.Errorf("%s: %d files, content %q", name, len(entries), b)
		}
	}
}

// limited accepts n bytes and then fails.
type limited struct{ n int }

var errFull = errors.New("full")

func (l *limited) Write(b []byte) (int, error) {
	if len(b) > l.n {
		return l.n, errFull
	}
	l.n -= len(b)
	return len(b), nil
}

func TestWriteToPassesTheErrorOn(t *testing.T) {
	w := gguf.NewWriter()
	must(t, w.Add("a", gguf.I8, []uint64{4 << 20}, make([]byte, 4<<20)))
	for _, n := range []int{0, 100, 1 << 20, 4 << 20} {
		if _, err := w.WriteTo(&limited{n}); !errors.Is(err, errFull) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
}
