package conversion_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"onebit/engine/conversion"
	"onebit/engine/gguf"
	"onebit/engine/gguf/synth"
	"onebit/engine/tensor"
)

// TestTurn compares the fast transform with its definition: element (i, j) is 1/sqrt(32), negative where i and j have an
// odd number of ones in common.
func TestTurn(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	v := make([]float32, 32)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	want := make([]float32, 32)
	for i := range want {
		sum := 0.0
		for j := range v {
			sign := 1.0
			for bits := i & j; bits > 0; bits >>= 1 {
				if bits&1 == 1 {
					sign = -sign
				}
			}
			sum += sign * float64(v[j])
		}
		want[i] = float32(sum / math.Sqrt(32))
	}
	got := append([]float32(nil), v...)
	conversion.Turn(got)
	if err := near(got, want, 1e-6); err != nil {
		t.Error(err)
	}
	conversion.Turn(got)
	if err := near(got, v, 1e-6); err != nil {
		t.Errorf("twice: %v", err)
	}
}

func TestHadamard(t *testing.T) {
	for _, kind := range []tensor.Type{tensor.F32, tensor.F16, tensor.Q8_0, tensor.Q4_0} {
		s := synth.Tiny("qwen3", kind)
		in := save(t, s, "in.gguf")
		out := filepath.Join(t.TempDir(), "out.gguf")
		var said strings.Builder
		h := conversion.Hadamard{In: in, Out: out, Workers: 3, Log: func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }}
		if err := h.Write(); err != nil {
			t.Fatal(err)
		}
		source, f := open(t, in), open(t, out)
		if n, _ := f.Uint("onebit.hadamard_q4_0"); n != 32 {
			t.Errorf("stamp %d", n)
		}
		for _, got := range f.Tensors() {
			want := source.Tensor(got.Name)
			switch {
			case strings.HasPrefix(got.Name, "blk.") && len(got.Shape) == 2:
				if got.Type != gguf.Q4_0 {
					t.Errorf("%s is %v", got.Name, got.Type)
					continue
				}
				v, w := floats(t, got), floats(t, want)
				wrong, norm := 0.0, 0.0
				for i := 0; i < len(v); i += 32 {
					conversion.Turn(v[i : i+32])
				}
				for i := range v {
					wrong += math.Pow(float64(v[i]-w[i]), 2)
					norm += math.Pow(float64(w[i]), 2)
				}
				if e := math.Sqrt(wrong / norm); e > 0.09 {
					t.Errorf("%s is off by %.3f of its norm", got.Name, e)
				}
			case len(got.Shape) == 2:
				if got.Type != gguf.Q8_0 {
					t.Errorf("%s is %v", got.Name, got.Type)
				}
			default:
				if got.Type != want.Type || string(got.Data()) != string(want.Data()) {
					t.Errorf("%s was changed", got.Name)
				}
			}
		}
		if !strings.Contains(said.String(), "21 tensors rotated") {
			t.Errorf("said %q", said.String())
		}
		again := conversion.Hadamard{In: out, Out: out + "2"}
		if err := again.Write(); err == nil || !strings.Contains(err.Error(), "rotated already") {
			t.Errorf("twice: %v", err)
		}
	}
}

// TestHadamardOddRows keeps a matrix whose rows are no whole blocks as it is.
func TestHadamardOddRows(t *testing.T) {
	w := gguf.NewWriter()
	if err := w.Set("general.architecture", "llama"); err != nil {
		t.Fatal(err)
	}
	add(t, w, "blk.0.ffn_up.weight", 64, 3)
	add(t, w, "blk.0.ffn_down.weight", 48, 4)
	add(t, w, "blk.0.ffn_gate_exps.weight", 32, 2, 5)
	add(t, w, "blk.0.ffn_gate_inp.weight", 32, 5)
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.gguf"), filepath.Join(dir, "out.gguf")
	if err := w.WriteFile(in); err != nil {
		t.Fatal(err)
	}
	if err := (conversion.Hadamard{In: in, Out: out, Log: t.Logf}).Write(); err != nil {
		t.Fatal(err)
	}
	f := open(t, out)
	for name, want := range map[string]gguf.Type{
		"blk.0.ffn_up.weight": gguf.Q4_0, "blk.0.ffn_down.weight": gguf.F32, "blk.0.ffn_gate_exps.weight": gguf.Q4_0, "blk.0.ffn_gate_inp.weight": gguf.F32,
	} {
		if got := f.Tensor(name).Type; got != want {
			t.Errorf("%s is %v, not %v", name, got, want)
		}
	}
}

func TestHadamardRefuses(t *testing.T) {
	w := gguf.NewWriter()
	if err := w.Set("general.architecture", "llama"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.gguf"), filepath.Join(dir, "out.gguf")
	add(t, w, "token_embd.weight", 64, 3)
	if err := w.WriteFile(in); err != nil {
		t.Fatal(err)
	}
	if err := (conversion.Hadamard{In: in, Out: out}).Write(); err == nil || !strings.Contains(err.Error(), "no weight to rotate") {
		t.Errorf("nothing to rotate: %v", err)
	}
	if err := (conversion.Hadamard{In: in, Out: in}).Write(); err == nil || !strings.Contains(err.Error(), "is the input") {
		t.Errorf("over itself: %v", err)
	}
	if err := w.Add("blk.0.ffn_up.weight", gguf.IQ4_NL, []uint64{64, 1}, make([]byte, 36)); err != nil {
		t.Fatal(err)
	}
	if err := w.WriteFile(in); err != nil {
		t.Fatal(err)
	}
	if err := (conversion.Hadamard{In: in, Out: out}).Write(); err == nil || !strings.Contains(err.Error(), "IQ4_NL, which cannot be read") {
		t.Errorf("a type that cannot be read: %v", err)
	}
	if left := leftovers(t, dir, "in.gguf"); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestHadamardImatrix(t *testing.T) {
	s := synth.Tiny("llama", tensor.F32)
	in := save(t, s, "in.gguf")
	w := gguf.NewWriter()
	if err := w.Set("general.type", "imatrix"); err != nil {
		t.Fatal(err)
	}
	sums := make([]byte, 4*96)
	v := make([]float32, 96)
	for i := range v {
		v[i] = float32(i)
	}
	if err := tensor.Quantize(tensor.F32, v, sums); err != nil {
		t.Fatal(err)
	}
	one := []byte{0, 0, 0x80, 0x3f}
	if err := w.Add("blk.0.attn_q.weight.in_sum2", gguf.F32, []uint64{96, 1}, sums); err != nil {
		t.Fatal(err)
	}
	if err := w.Add("blk.0.attn_q.weight.counts", gguf.F32, []uint64{1, 1}, one); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	matrix := filepath.Join(dir, "imatrix.gguf")
	if err := w.WriteFile(matrix); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	out := filepath.Join(dir, "out.gguf")
	h := conversion.Hadamard{In: in, Out: out, Imatrix: matrix, Log: func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }}
	if err := h.Write(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(said.String(), "weighted by the importance of the inputs: 0.0") || !strings.Contains(said.String(), "20 tensors have none") {
		t.Errorf("said %q", said.String())
	}
	h.Imatrix = put(t, dir, "old.dat", "not gguf at all")
	if err := h.Write(); err == nil || !strings.Contains(err.Error(), "llama-imatrix") {
		t.Errorf("an old file: %v", err)
	}
}
