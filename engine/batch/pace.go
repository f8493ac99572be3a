package batch

import "time"

// How long one forward pass may take, so that a cancelled request stops soon
// and other requests' tokens keep coming, and the bounds of a pass in tokens.
const (
	passAlone    = 400 * time.Millisecond
	passShared   = 100 * time.Millisecond
	passFirst    = 64  // of prompt in one pass, while the speed is unknown
	passLeast    = 24  // of prompt in one pass
	passMost     = 256 // tokens that the model takes in one go
	passTile     = 12  // kernels like multiples of it
	passMeasured = 16  // passes smaller than this say little about the speed
)

// pace learns how fast prompts are processed and bounds the next pass.
type pace struct {
	perToken time.Duration // smoothed; 0 is unknown
}

// budget returns how many prompt tokens the next pass may hold beside the tokens
// that it decodes for others.
func (p *pace) budget(decoding int) int {
	if p.perToken == 0 {
		return passFirst
	}
	limit := passAlone
	if decoding > 0 {
		limit = passShared
	}
	n := min(int(limit/p.perToken), passMost) - decoding
	return max(passLeast, n-n%passTile)
}

// note records a pass with a good part of prompt.
func (p *pace) note(tokens int, took time.Duration) {
	if tokens < passMeasured {
		return
	}
	per := max(1, took/time.Duration(tokens))
	if p.perToken == 0 {
		p.perToken = per
		return
	}
	p.perToken = max(1, (p.perToken+per)/2)
}
