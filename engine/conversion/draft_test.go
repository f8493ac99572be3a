package conversion_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onebit/engine/conversion"
	"onebit/engine/gguf"
	"onebit/engine/gguf/synth"
	"onebit/engine/tensor"
)

func TestReadIDs(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	fmt.Fprint(z, "7\n8\n")
	z.Close()
	tests := []struct {
		name, text string
		want       []int32
		again      int
		err        string
	}{
		{"plain", "1\n2\n3", []int32{1, 2, 3}, 0, ""},
		{"comments", "# head\n 5 # five\r\n\n4\n", []int32{5, 4}, 0, ""},
		{"again", "3\n1\n3\n3\n", []int32{3, 1}, 2, ""},
		{"gzip", packed.String(), []int32{7, 8}, 0, ""},
		{"torn gzip", packed.String()[:packed.Len()-6], nil, 0, "unexpected EOF"},
		{"mark", "\ufeff9", []int32{9}, 0, ""},
		{"outside", "1\n10\n", nil, 0, "line 2: token 10 is outside of the vocabulary of 10"},
		{"negative", "-1", nil, 0, "outside"},
		{"word", "one", nil, 0, "is not a token id"},
		{"two on a line", "1 2", nil, 0, "is not a token id"},
		{"huge", "99999999999", nil, 0, "is not a token id"},
		{"nothing", "# nothing\n", nil, 0, "no token ids"},
		{"long line", strings.Repeat("1", 1<<17), nil, 0, "too long"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, again, err := conversion.ReadIDs(strings.NewReader(tt.text), 10)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error %v, want one with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || again != tt.again {
				t.Errorf("%d again, not %d; ids differ:\n%s", again, tt.again, diff)
			}
		})
	}
}

func FuzzReadIDs(f *testing.F) {
	f.Add([]byte("1\n2 # two\n3"))
	f.Add([]byte("\x1f\x8b\x08"))
	f.Fuzz(func(t *testing.T, b []byte) {
		ids, _, err := conversion.ReadIDs(bytes.NewReader(b), 1000)
		seen := map[int32]bool{}
		for _, id := range ids {
			if id < 0 || id >= 1000 || seen[id] {
				t.Fatalf("id %d", id)
			}
			seen[id] = true
		}
		if err == nil && len(ids) == 0 {
			t.Fatal("neither ids nor an error")
		}
	})
}

// head writes a prediction head for a model of the width.
func head(t *testing.T, width uint64, change func(w *gguf.Writer)) string {
	t.Helper()
	w := gguf.NewWriter()
	for _, p := range []struct {
		key   string
		value any
	}{{"general.architecture", "qwen3"}, {"qwen3.embedding_length", uint32(width)}, {"qwen3.nextn_predict_layers", uint32(1)}} {
		if err := w.Set(p.key, p.value); err != nil {
			t.Fatal(err)
		}
	}
	add(t, w, "blk.3.nextn.eh_proj.weight", 2*width, width)
	add(t, w, "blk.3.nextn.enorm.weight", width)
	add(t, w, "blk.3.attn_q.weight", width, width)
	if change != nil {
		change(w)
	}
	path := filepath.Join(t.TempDir(), "head.gguf")
	if err := w.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func add(t *testing.T, w *gguf.Writer, name string, shape ...uint64) {
	t.Helper()
	n := uint64(4)
	for _, d := range shape {
		n *= d
	}
	if err := w.Add(name, gguf.F32, shape, make([]byte, n)); err != nil {
		t.Fatal(err)
	}
}

func TestDraftVocabulary(t *testing.T) {
	for _, kind := range []tensor.Type{tensor.Q8_0, tensor.F16} {
		s := synth.Tiny("qwen3", kind)
		target := save(t, s, "target.gguf")
		ids := put(t, t.TempDir(), "ids.txt", "5\n522\n0\n5\n300\n")
		out := filepath.Join(t.TempDir(), "cut.gguf")
		var said strings.Builder
		d := conversion.DraftVocabulary{Head: head(t, uint64(s.Width), nil), Target: filepath.Dir(target), IDs: ids, Out: out,
			Log: func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }}
		if err := d.Write(); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(said.String(), "1 ids are listed more than once") {
			t.Errorf("said %q", said.String())
		}
		f, model := open(t, out), open(t, target)
		if n, _ := f.Uint("onebit.draft_vocab"); n != 4 {
			t.Errorf("stamp %d", n)
		}
		d2t, rows := f.Tensor("d2t"), f.Tensor("blk.3.nextn.shared_head_head.weight")
		if d2t.Type != gguf.I64 || rows.Type != gguf.Type(kind) || !cmp.Equal(rows.Shape, []uint64{uint64(s.Width), 4}) {
			t.Fatalf("d2t %v, rows %v %v", d2t.Type, rows.Type, rows.Shape)
		}
		source := model.Tensor("output.weight")
		size := source.Size() / source.Shape[1]
		for i, want := range []uint64{5, 522, 0, 300} {
			if got := binary.LittleEndian.Uint64(d2t.Data()[8*i:]); got != want {
				t.Errorf("row %d is token %d, not %d", i, got, want)
			}
			if !bytes.Equal(rows.Data()[uint64(i)*size:][:size], source.Data()[want*size:][:size]) {
				t.Errorf("row %d is not that of token %d", i, want)
			}
		}
		if f.Tensor("blk.3.attn_q.weight") == nil || f.Architecture() != "qwen3" {
			t.Error("the head itself is not whole")
		}
	}
}

func TestDraftVocabularyRefuses(t *testing.T) {
	s := synth.Tiny("qwen3", tensor.Q8_0)
	target := save(t, s, "target.gguf")
	width := uint64(s.Width)
	tests := []struct {
		name, ids, want string
		width           uint64
		change          func(w *gguf.Writer)
	}{
		{"own output", "1", "output matrix of its own", width, func(w *gguf.Writer) { add(t, w, "output.weight", width, 4) }},
		{"own head", "1", "output matrix of its own", width, func(w *gguf.Writer) { add(t, w, "blk.3.nextn.shared_head_head.weight", width, 4) }},
		{"two layers", "1", "more than one prediction layer", width, func(w *gguf.Writer) { add(t, w, "blk.4.nextn.enorm.weight", width) }},
		{"two declared", "1", "2 prediction layers", width, func(w *gguf.Writer) { w.Set("qwen3.nextn_predict_layers", uint32(2)) }},
		{"cut before", "1", "cut down already", width, func(w *gguf.Writer) { w.Set("onebit.draft_vocab", uint32(4)) }},
		{"other width", "1", "do not belong together", 64, nil},
		{"id outside", "523", "outside of the vocabulary of 523", width, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			to := t.TempDir()
			err := conversion.DraftVocabulary{Head: head(t, tt.width, tt.change), Target: target,
				IDs: put(t, t.TempDir(), "ids", tt.ids), Out: filepath.Join(to, "o.gguf")}.Write()
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
			if left := leftovers(t, to); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
	ids := put(t, t.TempDir(), "ids", "1")
	if err := (conversion.DraftVocabulary{Head: target, Target: target, IDs: ids, Out: ids + "2"}).Write(); err == nil || !strings.Contains(err.Error(), "output matrix of its own") {
		t.Errorf("a whole model as the head: %v", err)
	}
	if err := (conversion.DraftVocabulary{Head: target, Target: target, IDs: ids, Out: target}).Write(); err == nil || !strings.Contains(err.Error(), "is the input") {
		t.Errorf("writing over the target: %v", err)
	}
}

func TestCountTokens(t *testing.T) {
	target := save(t, synth.Tiny("qwen2", tensor.F32), "target.gguf")
	dir := t.TempDir()
	one := put(t, dir, "one.txt", strings.Repeat("zzzz zzzz zzzz\n", 9000)+"q")
	two := put(t, dir, "two.txt", "zz")
	out := filepath.Join(dir, "ids.txt")
	if err := conversion.CountTokens(conversion.Count{Target: target, Texts: []string{one, two}, Size: 8, Out: out, Log: t.Logf}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	ids, _, err := conversion.ReadIDs(bytes.NewReader(b), 523)
	if err != nil {
		t.Fatal(err)
	}
	f := open(t, target)
	want := encode(t, f, "<|im_end|>")[0]
	found := map[int32]bool{}
	for _, id := range ids {
		found[id] = true
	}
	if len(ids) > 8 || !found[want] || !found[encode(t, f, "q")[0]] {
		t.Errorf("ids %v lack the end of a turn (%d) or the rare letter (%d)", ids, want, encode(t, f, "q")[0])
	}
	if err := conversion.CountTokens(conversion.Count{Target: target, Texts: []string{put(t, dir, "empty", "")}, Size: 8, Out: out}); err == nil {
		t.Error("an empty text passed")
	}
}

// TestResolve names folders with one model, several and none.
func TestResolve(t *testing.T) {
	dir := t.TempDir()
	if _, err := conversion.Resolve(dir); err == nil || !strings.Contains(err.Error(), "no .gguf") {
		t.Errorf("empty: %v", err)
	}
	for _, name := range []string{"m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "mmproj-m.gguf", "notes.txt"} {
		put(t, dir, name, "x")
	}
	if got, err := conversion.Resolve(dir); err != nil || filepath.Base(got) != "m-00001-of-00002.gguf" {
		t.Errorf("shards: %q, %v", got, err)
	}
	put(t, dir, "n.gguf", "x")
	if _, err := conversion.Resolve(dir); err == nil || !strings.Contains(err.Error(), "several") {
		t.Errorf("two models: %v", err)
	}
	if _, err := conversion.Resolve(filepath.Join(dir, "none")); err == nil {
		t.Error("what is not there resolved")
	}
}
