package model_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onebit/engine/gguf"
	"onebit/engine/gguf/synth"
	"onebit/engine/model"
	"onebit/engine/tensor"
)

// saved returns the state of a session.
func saved(t testing.TB, m *model.Model, s *model.Session) []byte {
	t.Helper()
	var b bytes.Buffer
	n, err := s.Save(context.Background(), &b)
	if err != nil || n != int64(b.Len()) || n != m.StateBytes(s.Len()) {
		t.Fatalf("saved %d bytes of %d, expected %d: %v", n, b.Len(), m.StateBytes(s.Len()), err)
	}
	return b.Bytes()
}

func restored(t testing.TB, m *model.Model, state []byte) *model.Session {
	t.Helper()
	s, err := m.Restore(context.Background(), bytes.NewReader(state), int64(len(state)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// TestStateBits: a session that was saved and taken back, by a model that was loaded anew, goes on with the bits of the
// session itself and of one that was given all tokens.
func TestStateBits(t *testing.T) {
	lengths := []int{0, 1, 16, 255, 256, 300, 512}
	for _, arch := range architectures {
		levels(t, func(t *testing.T, level tensor.Level) {
			t.Run(arch, func(t *testing.T) {
				s := small(arch, mixes["both"]...)
				if arch == "gemma3" {
					s.meta["attention.sliding_window"] = uint32(40)
				}
				cfg := model.Config{Level: level, Context: 2048, Sessions: 2}
				m, again := load(t, s.file(t), cfg), load(t, s.file(t), cfg)
				for _, n := range lengths {
					text, more := tokens(1, n, s.vocab), tokens(2, 9, s.vocab)
					live := m.NewSession()
					if n > 0 {
						eval(t, m, live, text, 1)
					}
					back := restored(t, again, saved(t, m, live))
					if !slices.Equal(back.Tokens(), live.Tokens()) {
						t.Fatalf("%d tokens: %v became %v", n, live.Tokens(), back.Tokens())
					}
					want := eval(t, m, live, more, len(more))
					compareBits(t, fmt.Sprintf("%d tokens, the restored session", n), eval(t, again, back, more, len(more)), want)
					plain := m.NewSession()
					compareBits(t, fmt.Sprintf("%d tokens, all at once", n), eval(t, m, plain, slices.Concat(text, more), len(more)), want)
					twice := saved(t, again, back)
					if !bytes.Equal(twice, saved(t, m, live)) {
						t.Errorf("%d tokens: the states of both sessions differ", n)
					}
					plain.Close()
					live.Close()
				}
			})
		})
	}
}

// TestStateOfEveryArchitecture does the same on the models that all other tests of the engine use.
func TestStateOfEveryArchitecture(t *testing.T) {
	for _, arch := range architectures {
		t.Run(arch, func(t *testing.T) {
			b, err := synth.Bytes(synth.Tiny(arch, tensor.Q4_K))
			if err != nil {
				t.Fatal(err)
			}
			open := func() *model.Model {
				f, err := gguf.Parse(b)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { f.Close() })
				return load(t, f, model.Config{Level: tensor.Levels()[0], Context: 512})
			}
			m, again := open(), open()
			live := m.NewSession()
			defer live.Close()
			eval(t, m, live, tokens(1, 270, m.Vocab()), 1)
			back := restored(t, again, saved(t, m, live))
			more := tokens(2, 5, m.Vocab())
			compareBits(t, "the restored session", eval(t, again, back, more, 5), eval(t, m, live, more, 5))
		})
	}
}

// TestStateHoldsNothingElse: pages are used again, and what they held before is somebody else's.
func TestStateHoldsNothingElse(t *testing.T) {
	s := small("qwen2")
	m := load(t, s.file(t), model.Config{Level: tensor.Levels()[0], Context: 512})
	fresh := m.NewSession()
	defer fresh.Close()
	eval(t, m, fresh, tokens(2, 37, s.vocab), 1)
	want := saved(t, m, fresh)
	other := m.NewSession()
	eval(t, m, other, tokens(3, 256, s.vocab), 1)
	other.Close()
	used := m.NewSession()
	defer used.Close()
	eval(t, m, used, tokens(2, 37, s.vocab), 1)
	if !bytes.Equal(saved(t, m, used), want) {
		t.Error("the state tells of the session that had the page before")
	}
}

func TestStateRefusals(t *testing.T) {
	level := tensor.Levels()[0]
	s := small("llama", mixes["both"]...)
	m := load(t, s.file(t), model.Config{Level: level, Context: 512})
	live := m.NewSession()
	defer live.Close()
	eval(t, m, live, tokens(1, 300, s.vocab), 1)
	good := saved(t, m, live)
	edit := func(f func(b []byte)) []byte {
		b := bytes.Clone(good)
		f(b)
		return b
	}
	seal := func(f func(b []byte)) []byte { // with a head that is right again
		return edit(func(b []byte) {
			f(b)
			binary.LittleEndian.PutUint32(b[124:], crc32.Checksum(b[:124], crc32.MakeTable(crc32.Castagnoli)))
		})
	}
	refused := func(m *model.Model, state []byte, size int, want string) {
		t.Helper()
		before := m.CacheBytes()
		got, err := m.Restore(t.Context(), bytes.NewReader(state), int64(size))
		if _, ok := errors.AsType[*model.StateError](err); !ok || got != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if _, err := m.StateTokens(bytes.NewReader(state), int64(size)); err == nil {
			t.Errorf("the head of what is refused (%s) is taken", want)
		}
		if grown := m.CacheBytes() - before; grown > m.StateBytes(300)*2 {
			t.Errorf("%q: refusing took %d bytes", want, grown)
		}
	}
	refused(m, nil, 0, "torn")
	refused(m, good[:100], 100, "torn")
	refused(m, good[:len(good)-1], len(good)-1, "torn: it has")
	refused(m, append(bytes.Clone(good), 0), len(good)+1, "torn: it has")
	refused(m, edit(func(b []byte) { b[0] = 'x' }), len(good), "no state")
	refused(m, edit(func(b []byte) { b[8] = 2 }), len(good), "version 2")
	refused(m, edit(func(b []byte) { b[45] ^= 1 }), len(good), "head is damaged")
	refused(m, seal(func(b []byte) { b[50] ^= 1 }), len(good), "another model")
	refused(m, seal(func(b []byte) { copy(b[12:], "avx3\x00\x00\x00") }), len(good), `"avx3"`)
	refused(m, seal(func(b []byte) { b[24] = 7 }), len(good), "another layout")
	refused(m, seal(func(b []byte) { b[100] = 1 }), len(good), "another layout")
	refused(m, seal(func(b []byte) { b[44]-- }), len(good), "torn: it has")
	for at := 128; at < len(good); at += 997 { // anywhere behind the head
		b := edit(func(b []byte) { b[at] ^= 0x80 })
		if _, err := m.Restore(t.Context(), bytes.NewReader(b), int64(len(b))); err == nil ||
			!strings.Contains(err.Error(), "checksum") && (at > 128+4*300 || !strings.Contains(err.Error(), "vocabulary")) {
			t.Errorf("byte %d is damaged: %v", at, err)
		}
	}
	if _, err := m.Restore(t.Context(), bytes.NewReader(good[:len(good)-5]), int64(len(good))); err == nil {
		t.Error("a state that ends before the size that it has was taken")
	}
	changed := s
	changed.meta = map[string]any{"rope.freq_base": float32(5000)}
	refused(load(t, changed.file(t), model.Config{Level: level, Context: 512}), good, len(good), "another model")
	refused(load(t, s.file(t), model.Config{Level: level, Context: 512, Rounding: model.RoundOnce}), good, len(good), "another model")
	for _, other := range tensor.Levels() {
		if other != level {
			refused(load(t, s.file(t), model.Config{Level: other, Context: 512}), good, len(good), "kernels for "+fmt.Sprintf("%q", level.String()))
		}
	}
	small := load(t, s.file(t), model.Config{Level: level, Context: 299})
	_, err := small.Restore(t.Context(), bytes.NewReader(good), int64(len(good)))
	if e, ok := errors.AsType[*model.ContextError](err); !ok || e.Tokens != 300 || e.Capacity != 299 {
		t.Errorf("a context that is too small: %v", err)
	}
	huge := seal(func(b []byte) { binary.LittleEndian.PutUint32(b[44:], 1<<31) })
	if _, err := m.Restore(t.Context(), bytes.NewReader(huge), int64(len(huge))); err == nil {
		t.Error("two thousand million tokens were taken")
	}
}

// failing is a writer or reader that breaks after some bytes.
type failing struct{ left int }

var errDisk = errors.New("the disk is full")

func (f *failing) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, errDisk
	}
	return len(b), nil
}

func (f *failing) Read(b []byte) (int, error) { return 0, errDisk }

func TestStateErrors(t *testing.T) {
	s := small("llama")
	m := load(t, s.file(t), model.Config{Level: tensor.Levels()[0], Context: 512})
	live := m.NewSession()
	eval(t, m, live, tokens(1, 300, s.vocab), 1)
	good := saved(t, m, live)
	for _, left := range []int{0, 127, 2000, len(good) - 1} {
		if _, err := live.Save(t.Context(), &failing{left}); !errors.Is(err, errDisk) {
			t.Errorf("after %d bytes: %v", left, err)
		}
	}
	if _, err := m.Restore(t.Context(), io.MultiReader(bytes.NewReader(good[:500]), &failing{}), int64(len(good))); !errors.Is(err, errDisk) {
		t.Errorf("a reader that breaks: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := live.Save(ended, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("a Save that nobody wants: %v", err)
	}
	if _, err := m.Restore(ended, bytes.NewReader(good), int64(len(good))); !errors.Is(err, context.Canceled) {
		t.Errorf("a Restore that nobody wants: %v", err)
	}
	live.Close()
	if _, err := live.Save(t.Context(), io.Discard); !errors.Is(err, model.ErrClosed) {
		t.Errorf("a closed session: %v", err)
	}
	m.Close()
	if _, err := m.Restore(t.Context(), bytes.NewReader(good), int64(len(good))); !errors.Is(err, model.ErrClosed) {
		t.Errorf("a closed model: %v", err)
	}
}

// TestStateBesideEval saves and restores while passes run over other sessions.
func TestStateBesideEval(t *testing.T) {
	s := small("llama")
	m := load(t, s.file(t), model.Config{Level: tensor.Levels()[0], Context: 4096, Sessions: 4})
	live, busy := m.NewSession(), m.NewSession()
	defer live.Close()
	defer busy.Close()
	eval(t, m, live, tokens(1, 700, s.vocab), 1)
	want := saved(t, m, live)
	done := make(chan error, 1)
	go func() {
		for range 10 {
			var b bytes.Buffer
			if _, err := live.Save(context.Background(), &b); err != nil || !bytes.Equal(b.Bytes(), want) {
				done <- fmt.Errorf("saved otherwise: %w", err)
				return
			}
			back, err := m.Restore(context.Background(), &b, int64(b.Len()))
			if err != nil {
				done <- err
				return
			}
			back.Close()
		}
		done <- nil
	}()
	for i := range 20 {
		eval(t, m, busy, tokens(uint64(i), 40, s.vocab), 1)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func FuzzRestore(f *testing.F) {
	s := small("llama")
	m := load(f, s.file(f), model.Config{Level: tensor.Generic, Context: 300, Threads: 1, BatchThreads: 1})
	for _, n := range []int{0, 1, 20, 260} {
		live := m.NewSession()
		if n > 0 {
			eval(f, m, live, tokens(1, n, s.vocab), 1)
		}
		f.Add(saved(f, m, live), true)
		live.Close()
	}
	most := m.StateBytes(300) * 2
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		if seal && len(b) >= 128 { // so that what is behind the head is reached
			binary.LittleEndian.PutUint32(b[124:], crc32.Checksum(b[:124], crc32.MakeTable(crc32.Castagnoli)))
		}
		got, err := m.Restore(context.Background(), bytes.NewReader(b), int64(len(b)))
		if (got == nil) == (err == nil) {
			t.Fatalf("%v, %v", got, err)
		}
		if m.CacheBytes() > most {
			t.Fatalf("%d bytes were taken", m.CacheBytes())
		}
		if err != nil {
			return
		}
		defer got.Close()
		if !bytes.Equal(saved(t, m, got), b) {
			t.Error("what was taken is written otherwise")
		}
	})
}

// BenchmarkState saves and restores 8,192 tokens of every model in the folder of ONEBIT_TEST_MODELS, in a file that is
// in the memory of the system. Keys and values need no meaning for that: they come from a state of few tokens.
func BenchmarkState(b *testing.B) {
	benchModels(b, func(b *testing.B, m *model.Model) {
		const n = 8192
		s := restored(b, m, repeated(b, m, n/256))
		path := filepath.Join(b.TempDir(), "state")
		b.Run("save", func(b *testing.B) { benchSave(b, s, path, false) })
		b.Run("save and sync", func(b *testing.B) { benchSave(b, s, path, true) })
		b.Run("restore", func(b *testing.B) {
			for b.Loop() {
				f, err := os.Open(path)
				if err != nil {
					b.Fatal(err)
				}
				back, err := m.Restore(b.Context(), f, m.StateBytes(n))
				if err != nil {
					b.Fatal(err)
				}
				back.Close()
				f.Close()
			}
			b.SetBytes(m.StateBytes(n))
			b.ReportMetric(float64(m.StateBytes(n))/n, "B/token")
		})
	})
}

// repeated is the state of some times 256 tokens, the same ones each time.
func repeated(t testing.TB, m *model.Model, times int) []byte {
	s := m.NewSession()
	defer s.Close()
	eval(t, m, s, tokens(1, 256, m.Vocab()), 0)
	one := saved(t, m, s)
	head, ids, page := bytes.Clone(one[:124]), one[128:][:4*256], one[128+4*256+4:len(one)-4]
	binary.LittleEndian.PutUint32(head[44:], uint32(256*times))
	table := crc32.MakeTable(crc32.Castagnoli)
	all := binary.LittleEndian.AppendUint32(head, crc32.Checksum(head, table))
	crc := uint32(0)
	for range times {
		all, crc = append(all, ids...), crc32.Update(crc, table, ids)
	}
	all = binary.LittleEndian.AppendUint32(all, crc)
	for range times {
		all, crc = append(all, page...), crc32.Update(crc, table, page)
		all = binary.LittleEndian.AppendUint32(all, crc)
	}
	return all
}

func benchSave(b *testing.B, s *model.Session, path string, sync bool) {
	for b.Loop() {
		f, err := os.Create(path)
		if err != nil {
			b.Fatal(err)
		}
		n, err := s.Save(b.Context(), f)
		if err == nil && sync {
			err = f.Sync()
		}
		if err != nil {
			b.Fatal(err)
		}
		f.Close()
		b.SetBytes(n)
	}
}
