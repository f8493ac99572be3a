package model

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"onebit/engine/tensor"
)

// SamplerConfig says how the next token is chosen. The zero value of a field
// is not always its neutral value: the caller sets the defaults of its dialect.
type SamplerConfig struct {
	Temperature float32 // divides the logits; 0 or less = always the likeliest token
	TopK        int     // keep the k likeliest tokens; 0 or less = all
	TopP        float32 // keep the likeliest tokens up to this probability; 1 or more = all
	MinP        float32 // drop tokens under this fraction of the best probability; 0 = none

	RepeatPenalty    float32 // divides positive and multiplies negative logits of seen tokens; 1 = none
	PresencePenalty  float32 // subtracted from the logit of a seen token
	FrequencyPenalty float32 // subtracted as often as the token was seen
	PenaltyLastN     int     // trailing tokens that count as seen; 0 = none, less = all

	LogitBias []Bias // added before everything else
	Seed      uint64 // equal seeds and equal logits give equal tokens

	// Kernels makes the passes over the vocabulary fast. nil means portable code.
	Kernels *tensor.Kernels
}

// Bias is added to the logit of one token. Ids outside the vocabulary are ignored.
type Bias struct {
	ID   int32
	Bias float32 // -Inf forbids the token
}

// TokenLogProb is a token with the natural logarithm of its probability.
type TokenLogProb struct {
	ID      int32
	LogProb float32
}

// Sampler chooses tokens for one session. The order is that of llama.cpp's
// default chain: logit bias, penalties, top-k, top-p, min-p, temperature, draw.
// Draws come from a PCG generator (math/rand/v2) seeded with Seed, one number
// for every token that is not chosen greedily. A Sampler is not safe for
// concurrent use.
type Sampler struct {
	cfg  SamplerConfig
	k    *tensor.Kernels
	rng  *rand.Rand
	seen map[int32]int
	top  []candidate
	tmp  []float32
}

// candidate is a token that may be drawn.
type candidate struct {
	logit float32
	id    int32
}

// compareCandidates orders the likelier first, equal ones by id.
func compareCandidates(a, b candidate) int {
	if c := cmp.Compare(b.logit, a.logit); c != 0 {
		return c
	}
	return cmp.Compare(a.id, b.id)
}

// NewSampler returns a sampler of the configuration.
func NewSampler(cfg SamplerConfig) *Sampler {
	const stream = 0x9e3779b97f4a7c15 // the generator's second seed word, any odd constant
	return &Sampler{
		cfg:  cfg,
		k:    kernelsOr(cfg.Kernels),
		rng:  rand.New(rand.NewPCG(cfg.Seed, stream)),
		seen: make(map[int32]int),
	}
}

// kernelsOr returns k, or the portable kernels for nil.
func kernelsOr(k *tensor.Kernels) *tensor.Kernels {
	if k == nil {
		k, _ = tensor.For(tensor.Generic) // every machine has them
	}
	return k
}

// Sample returns the next token. logits has one value for each token of the
// vocabulary, at least one, and is modified; history holds the tokens before
// it, oldest first. A logit that is not a number counts as impossible. When no
// token is possible, token 0 is returned.
func (s *Sampler) Sample(logits []float32, history []int32) int32 {
	s.sanitize(logits)
	for _, b := range s.cfg.LogitBias {
		if b.ID >= 0 && int(b.ID) < len(logits) {
			logits[b.ID] = finite(logits[b.ID] + b.Bias)
		}
	}
	s.penalize(logits, history)
	return s.choose(logits)
}

// Impossible is the logit of a token that Again must not choose.
const Impossible = impossible

// Again chooses once more from logits that Sample has modified, some of them made Impossible since.
func (s *Sampler) Again(logits []float32) int32 { return s.choose(logits) }

// choose does all that follows the penalties.
func (s *Sampler) choose(logits []float32) int32 {
	if s.cfg.Temperature <= 0 {
		return int32(s.k.ArgMax(logits))
	}
	u := s.rng.Float64()
	if s.k.Max(logits) == impossible {
		return 0
	}
	switch {
	case s.cfg.TopK > 0 && s.cfg.TopK < len(logits):
		s.top = s.largest(s.top[:0], logits, s.cfg.TopK)
		if s.cfg.TopP < 1 {
			s.top = s.top[:nucleus(s.top, expSum(s.top), s.cfg.TopP)]
		}
	case s.cfg.TopP < 1:
		s.top = s.nucleusOfAll(logits)
	case s.cfg.MinP > 0:
		s.top = s.above(logits, s.k.Max(logits)+ln(min(s.cfg.MinP, 1)))
	default:
		return s.drawAll(logits, u)
	}
	if s.cfg.MinP > 0 && len(s.top) > 0 {
		limit := s.top[0].logit + ln(min(s.cfg.MinP, 1))
		s.top = slices.DeleteFunc(s.top, func(c candidate) bool { return c.logit < limit })
	}
	return draw(s.top, s.cfg.Temperature, u)
}

func ln(x float32) float32 { return float32(math.Log(float64(x))) }

// impossible is the logit of what cannot be drawn. It is finite, so that
// differences of logits are numbers.
const impossible = -math.MaxFloat32

// finite maps what is no number to impossible and infinities to the ends of
// the finite numbers.
func finite(v float32) float32 {
	switch {
	case v != v || v < -math.MaxFloat32:
		return impossible
	case v > math.MaxFloat32:
		return math.MaxFloat32
	}
	return v
}

// sanitize makes all logits finite.
func (s *Sampler) sanitize(logits []float32) {
	// The sum of squares is finite unless a logit is not or is absurdly large.
	if sum := s.k.Dot(logits, logits); sum <= math.MaxFloat32 {
		return
	}
	for i, v := range logits {
		logits[i] = finite(v)
	}
}

// penalize lowers the logits of the tokens at the end of the history.
func (s *Sampler) penalize(logits []float32, history []int32) {
	c := &s.cfg
	repeat := c.RepeatPenalty
	if repeat <= 0 {
		repeat = 1
	}
	if c.PenaltyLastN == 0 || repeat == 1 && c.PresencePenalty == 0 && c.FrequencyPenalty == 0 {
		return
	}
	if c.PenaltyLastN > 0 && c.PenaltyLastN < len(history) {
		history = history[len(history)-c.PenaltyLastN:]
	}
	clear(s.seen)
	for _, id := range history {
		s.seen[id]++
	}
	for id, n := range s.seen {
		if id < 0 || int(id) >= len(logits) {
			continue
		}
		v := logits[id]
		if v <= 0 {
			v *= repeat
		} else {
			v /= repeat
		}
		logits[id] = finite(v - float32(n)*c.FrequencyPenalty - c.PresencePenalty)
	}
}

// largest appends the n largest logits to list, which is empty, and sorts
// them: likeliest first, equal ones by id.
func (s *Sampler) largest(list []candidate, logits []float32, n int) []candidate {
	const block = 512
	for from := 0; from < len(logits); from += block {
		part := logits[from:min(from+block, len(logits))]
		if len(list) == n && s.k.Max(part) <= list[0].logit {
			continue
		}
		for i, v := range part {
			c := candidate{v, int32(from + i)}
			switch {
			case len(list) < n:
				list = append(list, c)
				siftUp(list)
			case v > list[0].logit:
				list[0] = c
				siftDown(list)
			}
		}
	}
	slices.SortFunc(list, compareCandidates)
	return list
}

// The heap of largest has its least likely candidate in front.

func siftUp(h []candidate) {
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if compareCandidates(h[i], h[up]) <= 0 {
			return
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

func siftDown(h []candidate) {
	for i := 0; ; {
		worst := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(h); c++ {
			if compareCandidates(h[c], h[worst]) > 0 {
				worst = c
			}
		}
		if worst == i {
			return
		}
		h[i], h[worst] = h[worst], h[i]
		i = worst
	}
}

// above returns the tokens of at least the limit, in the order of their ids,
// the likeliest swapped to the front.
func (s *Sampler) above(logits []float32, limit float32) []candidate {
	list, best := s.top[:0], 0
	for i, v := range logits {
		if v >= limit {
			list = append(list, candidate{v, int32(i)})
			if v > list[best].logit {
				best = len(list) - 1
			}
		}
	}
	if len(list) > 0 {
		list[0], list[best] = list[best], list[0]
	}
	return list
}

// nucleusOfAll returns the likeliest tokens that together reach TopP. Mostly
// they are few; when they are not, tokens are sorted by steps of their logits
// first, so that only those which may belong to the nucleus need exact sorting.
func (s *Sampler) nucleusOfAll(logits []float32) []candidate {
	const few = 128
	total := s.expSumAll(logits)
	n := min(few, len(logits))
	list := s.largest(s.top[:0], logits, n)
	if k := nucleus(list, total, s.cfg.TopP); k < n || n == len(logits) {
		return list[:k]
	}
	const steps, perUnit = 1024, 32
	var weight [steps]float64
	top := list[0].logit
	step := func(logit float32) int { return int(min((top-logit)*perUnit, steps-1)) }
	for i, v := range logits {
		weight[step(v)] += float64(s.tmp[i])
	}
	last, sum := 0, weight[0]
	for ; last < steps-1 && sum < float64(s.cfg.TopP)*total; last++ {
		sum += weight[last+1]
	}
	list = list[:0]
	for i, v := range logits {
		if step(v) <= last {
			list = append(list, candidate{v, int32(i)})
		}
	}
	slices.SortFunc(list, compareCandidates)
	return list[:nucleus(list, total, s.cfg.TopP)]
}

// nucleus returns how many of the sorted candidates reach the probability p,
// at least one. total is the sum of exp(logit - largest) over all tokens that
// share the probability.
func nucleus(list []candidate, total float64, p float32) int {
	sum := 0.0
	for i, c := range list {
		sum += math.Exp(float64(c.logit - list[0].logit))
		if sum >= float64(p)*total {
			return i + 1
		}
	}
	return len(list)
}

// expSum returns the sum of exp(logit - largest) over sorted candidates.
func expSum(list []candidate) float64 {
	sum := 0.0
	for _, c := range list {
		sum += math.Exp(float64(c.logit - list[0].logit))
	}
	return sum
}

// expSumAll returns the sum of exp(logit - largest) over the vocabulary. The
// terms are left in s.tmp.
func (s *Sampler) expSumAll(logits []float32) float64 {
	s.tmp = append(s.tmp[:0], logits...)
	return expSumOf(s.k, s.tmp)
}

// expSumOf replaces x by exp(x - largest) and returns the sum.
func expSumOf(k *tensor.Kernels, x []float32) float64 {
	const block = 4096 // the kernel sums in float32
	top, sum := k.Max(x), 0.0
	for from := 0; from < len(x); from += block {
		sum += float64(k.ExpSum(x[from:min(from+block, len(x))], top))
	}
	return sum
}

// draw picks the candidate in which the fraction u of the probability lies.
// The first candidate has the largest logit.
func draw(list []candidate, temperature float32, u float64) int32 {
	if len(list) == 0 {
		return 0
	}
	weight := func(c candidate) float64 {
		return math.Exp(float64(c.logit-list[0].logit) / float64(temperature))
	}
	total := 0.0
	for _, c := range list {
		total += weight(c)
	}
	left := u * total
	for _, c := range list {
		if left -= weight(c); left < 0 {
			return c.id
		}
	}
	return list[0].id // only rounding leads here
}

// drawAll draws from the whole vocabulary.
func (s *Sampler) drawAll(logits []float32, u float64) int32 {
	s.tmp = append(s.tmp[:0], logits...)
	top := s.k.Max(s.tmp)
	for i, v := range s.tmp {
		s.tmp[i] = max((v-top)/s.cfg.Temperature, -1e4)
	}
	left := u * expSumOf(s.k, s.tmp)
	for i, w := range s.tmp {
		if left -= float64(w); left < 0 {
			return int32(i)
		}
	}
	return int32(s.k.ArgMax(logits))
}

// LogProbs returns the log-probability of token id and the n likeliest
// tokens, likeliest first: the softmax of the logits as they are, before
// sampling changes them. logits is not modified. id may be negative when only
// the list is wanted; its log-probability is then -Inf.
func (s *Sampler) LogProbs(logits []float32, id int32, n int) (float32, []TokenLogProb) {
	s.tmp = append(s.tmp[:0], logits...)
	s.sanitize(s.tmp)
	s.top = s.largest(s.top[:0], s.tmp, min(max(n, 1), len(s.tmp)))
	chosen := float32(math.Inf(-1))
	if id >= 0 && int(id) < len(logits) {
		chosen = s.tmp[id]
	}
	norm := math.Log(expSumOf(s.k, s.tmp)) + float64(s.top[0].logit)
	list := make([]TokenLogProb, 0, max(n, 0))
	for _, c := range s.top[:min(max(n, 0), len(s.top))] {
		list = append(list, TokenLogProb{c.id, float32(float64(c.logit) - norm)})
	}
	return float32(float64(chosen) - norm), list
}

// LogProbs returns the n likeliest tokens of a row of logits with the natural
// logarithms of their probabilities, likeliest first.
func LogProbs(logits []float32, n int) []TokenLogProb {
	_, list := NewSampler(SamplerConfig{}).LogProbs(logits, -1, n)
	return list
}
