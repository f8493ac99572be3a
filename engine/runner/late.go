package runner

import (
	"context"
	"slices"

	"onebit/engine/model"
)

// late scores texts by late interaction: each token of the question is held against the token of the text that is
// nearest to it, and the mean of these cosines is the score. It is for models that make vectors, where none ranks.
func (s *service) late(ctx context.Context, k *ranking) *problem {
	all := append([]model.Text{k.head}, k.pairs...)
	if p := s.encode(ctx, all); p != nil || ctx.Err() != nil {
		return p
	}
	width := s.parts.Info.Embedding
	question := inner(all[0].Out, width)
	for i := range k.pairs {
		k.pairs[i].Out = []float32{meeting(question, inner(all[i+1].Out, width), width)}
	}
	return nil
}

// cutText shortens a text to so many tokens; the one that ends it stays.
func cutText(ids []int32, most int) []int32 {
	if len(ids) <= most {
		return ids
	}
	return append(slices.Clone(ids[:most-1]), ids[len(ids)-1])
}

// inner returns the vectors of tokens without those of the two marks around them, each of length one.
func inner(out []float32, width int) []float32 {
	if len(out) > 2*width {
		out = out[width : len(out)-width]
	}
	for row := range slices.Chunk(out, width) {
		model.Normalize(row)
	}
	return out
}

// meeting is the mean over one text's tokens of the nearest in the other.
func meeting(question, text []float32, width int) float32 {
	var sum float32
	n := 0
	for q := range slices.Chunk(question, width) {
		best := float32(-1)
		for t := range slices.Chunk(text, width) {
			best = max(best, dot(q, t))
		}
		sum += best
		n++
	}
	return sum / float32(max(1, n))
}

func dot(a, b []float32) float32 {
	var s0, s1, s2, s3 float32
	b = b[:len(a)]
	for len(a) >= 4 {
		s0 += a[0] * b[0]
		s1 += a[1] * b[1]
		s2 += a[2] * b[2]
		s3 += a[3] * b[3]
		a, b = a[4:], b[4:]
	}
	for i, x := range a {
		s0 += x * b[i]
	}
	return s0 + s1 + s2 + s3
}
