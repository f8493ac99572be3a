package vector_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onebit/store/documents/vector"
)

func TestSavedAndRead(t *testing.T) {
	c := newCorpus(5000, 100, 21)
	s := c.slab(t, vector.Levels()[len(vector.Levels())-1])
	s.Delete(3, 4998)
	s.SetGeneration(42)
	var b bytes.Buffer
	n, err := s.WriteTo(&b)
	if err != nil || n != int64(b.Len()) {
		t.Fatalf("wrote %d of %d bytes: %v", n, b.Len(), err)
	}
	back, err := vector.Read(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if back.Generation() != 42 || back.Len() != 4998 || back.Dims() != 100 {
		t.Errorf("read generation %d, %d vectors of %d", back.Generation(), back.Len(), back.Dims())
	}
	q := vector.Query{Vector: c.near(), K: 30}
	want, err1 := s.Search(t.Context(), q)
	got, err2 := back.Search(t.Context(), q)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-saved +read):\n%s", d)
	}
}

func TestEveryDamageIsSeen(t *testing.T) {
	c := newCorpus(5, 4, 23)
	var b bytes.Buffer
	if _, err := c.slab(t, vector.Generic).WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	whole := b.Bytes()
	for cut := range whole {
		if _, err := vector.Read(bytes.NewReader(whole[:cut])); !errors.Is(err, vector.ErrDamaged) {
			t.Errorf("cut to %d bytes: %v", cut, err)
		}
	}
	if _, err := vector.Read(bytes.NewReader(append(bytes.Clone(whole), 0))); !errors.Is(err, vector.ErrDamaged) {
		t.Errorf("a byte too many: %v", err)
	}
	for i := range whole {
		bad := bytes.Clone(whole)
		bad[i] ^= 0x40
		if _, err := vector.Read(bytes.NewReader(bad)); !errors.Is(err, vector.ErrDamaged) {
			t.Errorf("byte %d changed: %v", i, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	s, err := vector.New(3)
	if err != nil {
		f.Fatal(err)
	}
	if err := s.Put(1, []float32{1, -2, 3}); err != nil {
		f.Fatal(err)
	}
	if _, err := s.WriteTo(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := vector.Read(bytes.NewReader(b))
		if err != nil {
			return
		}
		var back bytes.Buffer
		if _, err := s.WriteTo(&back); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b, back.Bytes()) {
			t.Error("what was read is written differently")
		}
		q := make([]float32, s.Dims())
		q[0] = 1
		if _, err := s.Search(t.Context(), vector.Query{Vector: q, K: 3}); err != nil {
			t.Error(err)
		}
	})
}
