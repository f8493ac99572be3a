package synth

import (
	"io"

	"onebit/engine/tensor"
)

// Sizes of a recurrent layer: what its state holds of each channel, how many tokens its convolution sees, and the rank of
// its steps.
const (
	stateSize  = 16
	convKernel = 4
	stepRank   = 32
)

// inner is how many channels a recurrent layer has: readers take no other number.
func (s *Spec) inner() int { return 2 * s.Width }

// recurrence sets the keys of a recurrent model.
func (b *builder) recurrence() {
	b.own("ssm.conv_kernel", uint32(convKernel))
	b.own("ssm.inner_size", uint32(b.spec.inner()))
	b.own("ssm.state_size", uint32(stateSize))
	b.own("ssm.time_step_rank", uint32(stepRank))
}

// recurrent adds one block of the kind of Mamba: a convolution over the last tokens, and a state of stateSize numbers a
// channel that fades as the token says.
func (b *builder) recurrent(i int) {
	s := &b.spec
	inner := s.inner()
	b.vector(name(i, "attn_norm"), s.Width, 1, 0.1)
	b.matrix("ssm_in", i, s.Width, 2*inner, 1)
	b.plane(name(i, "ssm_conv1d")+".weight", convKernel, inner, 0.3, 0.3)
	b.bias(name(i, "ssm_conv1d"), inner)
	b.matrix("ssm_x", i, inner, stepRank+2*stateSize, 1)
	b.matrix("ssm_dt", i, stepRank, inner, 1)
	b.bias(name(i, "ssm_dt"), inner)
	b.plane(name(i, "ssm_a"), stateSize, inner, -0.3, 0.05) // below 0: what was seen fades
	b.floats(name(i, "ssm_d"), inner, random{seed: seedOf(s.Seed, name(i, "ssm_d")), scale: float32(0.1 / deviation), mean: 1})
	b.matrix("ssm_out", i, inner, s.Width, 1)
}

// convolved are the key and value heads of each layer of a model that has a short convolution in place of attention in all
// layers but every second one.
func (s *Spec) convolved() []uint32 {
	heads := make([]uint32, s.Layers)
	for i := 1; i < s.Layers; i += 2 {
		heads[i] = uint32(s.KVHeads)
	}
	return heads
}

// convolution adds what stands in place of attention there.
func (b *builder) convolution(i int) {
	s := &b.spec
	b.plane(name(i, "shortconv.conv")+".weight", convKernel, s.Width, 0.5, 0.3)
	b.matrix("shortconv.in_proj", i, s.Width, 3*s.Width, 1)
	b.matrix("shortconv.out_proj", i, s.Width, s.Width, 1)
}

// plane adds a matrix of rows x cols that is no matter of quantisation.
func (b *builder) plane(full string, cols, rows int, mean, dev float64) {
	r := random{seed: seedOf(b.spec.Seed, full), scale: float32(dev / deviation), mean: float32(mean)}
	b.add(full, tensor.F32, []uint64{uint64(cols), uint64(rows)}, func(out io.Writer) error {
		return writeFloats(out, r.fill(make([]float32, cols*rows), 0))
	})
}
