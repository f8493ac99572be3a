package plan_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onebit/engine/gguf"
	"onebit/engine/plan"
)

// The check figures: 24,576 experts of 71.7 GiB; 9,331 of them, 27.2 GiB, where about 40.3 GiB are free beside 5.1 GiB of
// other tensors and the reserve of 8 GiB.
func TestFlashNext(t *testing.T) {
	path := flashNext(t)
	f, err := gguf.Open(path)
	must(t, err)
	defer f.Close()
	e, err := plan.FindExperts(f)
	must(t, err)
	want := plan.Experts{Layers: 48, Each: 512, Mean: 3133440, Bytes: 24576 * 3133440, Others: 5476208640}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Fatalf("(-want +got)\n%s", diff)
	}
	if n := e.Total(); n != 24576 {
		t.Errorf("%d experts", n)
	}
	free := e.Others + 8*plan.GiB + 9331*e.Mean + e.Mean/2
	got, err := plan.AutoSlots(path, free)
	must(t, err)
	if want := "9331 of 24576 experts (27.2 GiB); 40.3 GiB free, 5.1 GiB of other tensors"; got.String() != want || got.Warning != "" {
		t.Errorf("got %q, warning %q, want %q", got, got.Warning, want)
	}
	if gib := float64(e.Bytes) / plan.GiB; math.Abs(gib-71.7) > 0.05 {
		t.Errorf("the experts take %.2f GiB", gib)
	}
}

func TestCoder(t *testing.T) {
	got, err := plan.AutoSlots(coder(t), 128*plan.GiB)
	must(t, err)
	if got.N != 6144 || got.Total != 6144 || got.Warning != "" {
		t.Errorf("with 128 GiB free: %+v", got)
	}
}

func TestAuto(t *testing.T) {
	const mib = 1 << 20
	e := plan.Experts{Layers: 48, Each: 128, Mean: 2 * mib, Others: 2 * plan.GiB} // 6,144 experts of 12 GiB; floor 3,072
	small := plan.Experts{Layers: 24, Each: 32, Mean: 16 * mib, Others: plan.GiB} // 768 experts: fewer than 64 a layer
	for _, c := range []struct {
		name string
		e    plan.Experts
		free uint64
		n    int
		warn string // "" for none
	}{
		{"plenty", e, 64 * plan.GiB, 6144, ""},
		{"just-all", e, 22 * plan.GiB, 6144, ""},
		{"one-byte-less", e, 22*plan.GiB - 1, 6143, ""},
		{"half", e, 18 * plan.GiB, 4096, ""},
		{"just-the-floor", e, 16 * plan.GiB, 3072, ""},
		{"below-the-floor", e, 16*plan.GiB - 1, 3072, "room for 3071 experts; taking 3072 (6.0 GiB)"},
		{"no-room", e, 10 * plan.GiB, 3072, "only 10.0 GiB are free: after 2.0 GiB of other tensors and a reserve of 8.0 GiB there is room for 0 experts"},
		{"nothing-free", e, 0, 3072, "only 0 B are free"},
		{"the-floor-is-no-more-than-all", small, 9 * plan.GiB, 768, "taking 768 (12.0 GiB)"},
		{"all-of-few", small, 21 * plan.GiB, 768, ""},
		{"nearly-all-of-few", small, 21*plan.GiB - 1, 768, "room for 767 experts"},
		{"15-percent", plan.Experts{Layers: 48, Each: 512, Mean: 2 * mib, Others: 0}, 100 << 20 * 600, 25500, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.e.Auto(c.free)
			want := min(c.n, c.e.Total())
			if got.N != want || got.Bytes != uint64(want)*c.e.Mean || got.Floor > got.Total {
				t.Errorf("%+v, want %d experts", got, want)
			}
			if (got.Warning != "") != (c.warn != "") || !strings.Contains(got.Warning, c.warn) {
				t.Errorf("warning %q, want %q", got.Warning, c.warn)
			}
		})
	}
}

func TestReserve(t *testing.T) {
	for _, c := range []struct{ free, want uint64 }{
		{0, 8 * plan.GiB},
		{40 * plan.GiB, 8 * plan.GiB},
		{53 * plan.GiB, 8 * plan.GiB},
		{100 << 30, 15 << 30},
		{199, 8 * plan.GiB},
	} {
		if got := plan.Reserve(c.free); got != c.want {
			t.Errorf("of %d free, %d are reserved, not %d", c.free, got, c.want)
		}
	}
}

func TestFindExperts(t *testing.T) {
	keys := arch("qwen3moe", "block_count", 2)
	for _, c := range []struct {
		name    string
		tensors []tensor
		want    plan.Experts
	}{
		{"layers-differ", []tensor{
			{"blk.1.ffn_up_exps.weight", gguf.F16, []uint64{8, 8, 4}},   // 512 bytes: 128 each
			{"blk.1.ffn_down_exps.weight", gguf.F32, []uint64{8, 8, 4}}, // 1,024 bytes: 256 each
			{"blk.10.ffn_up_exps.weight", gguf.F16, []uint64{8, 8, 6}},  // 768 bytes: 128 each
		}, plan.Experts{Layers: 2, Each: 6, Mean: 256, Bytes: 2304}},
		{"others", []tensor{
			{"blk.0.ffn_up_exps.weight", gguf.F32, []uint64{8, 8, 2}},
			{"blk.0.ffn_up_exps.bias", gguf.F32, []uint64{8, 2}},     // an expert's, but no matrix
			{"blk.0.ffn_up_shexp.weight", gguf.F32, []uint64{8, 8}},  // shared by all tokens: 256 bytes
			{"blk.0.ffn_gate_inp.weight", gguf.F32, []uint64{8, 2}},  // the router: 64 bytes
			{"per_layer_token_embd.weight", gguf.F32, []uint64{999}}, // stays in the file
			{"token_embd.weight", gguf.F32, []uint64{8, 4}},          // 128 bytes
		}, plan.Experts{Layers: 1, Each: 2, Mean: 256, Bytes: 512, Others: 256 + 64 + 128}},
		{"odd-names", []tensor{
			{"blk.0.ffn_up_exps.weight", gguf.F32, []uint64{8, 8, 2}},
			{"blk.x.ffn_up_exps.weight", gguf.F32, []uint64{8, 8, 9}},
			{"blk.-1.ffn_up_exps.weight", gguf.F32, []uint64{8, 8, 9}},
			{"enc.0.ffn_up_exps.weight", gguf.F32, []uint64{8, 8, 9}},
			{"blk.0.ffn_up_exps.weight.old", gguf.F32, []uint64{8, 8, 9}},
		}, plan.Experts{Layers: 1, Each: 2, Mean: 256, Bytes: 512}},
		{"whole-division", []tensor{
			{"blk.0.ffn_up_exps.weight", gguf.I8, []uint64{1, 5, 1}},
			{"blk.1.ffn_up_exps.weight", gguf.I8, []uint64{1, 6, 1}},
		}, plan.Experts{Layers: 2, Each: 1, Mean: 5, Bytes: 11}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := plan.FindExperts(parsed(t, keys, c.tensors))
			must(t, err)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestFindExpertsRefuses(t *testing.T) {
	dense := []tensor{{"blk.0.ffn_up.weight", gguf.F32, []uint64{8, 8}}, {"blk.0.ffn_up_exps.weight", gguf.F32, []uint64{8, 8}}}
	if _, err := plan.FindExperts(parsed(t, arch("llama"), dense)); !errors.Is(err, plan.ErrDense) {
		t.Errorf("a dense model: error %v", err)
	}
	// A type of a fork: the number stands in the tensor index, behind name, extents and shape.
	b := unknownType(t)
	f, err := gguf.Parse(b)
	must(t, err)
	if _, err := plan.FindExperts(f); err == nil || !strings.Contains(err.Error(), `"blk.0.ffn_up_exps.weight"`) || !strings.Contains(err.Error(), "type 99") {
		t.Errorf("a tensor of an unknown type: error %v", err)
	}
	if _, err := plan.AutoSlots("no-such-file.gguf", 0); err == nil {
		t.Error("a file that is not there was planned")
	}
}
