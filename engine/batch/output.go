package batch

import (
	"strings"
	"unicode/utf8"
)

// output turns the tokens of one answer into text that may be sent: characters
// are never cut, and text that may be the beginning of a stop string is held
// back until it is known.
type output struct {
	stops   []string
	partial []byte  // the bytes of a character not yet complete
	held    string  // text that may become a stop string
	waiting []Piece // tokens whose text has not all been released
	pushed  int     // bytes of text made so far
	sent    int     // bytes of text released so far
	newline bool    // whether a line end was released
}

// push adds a token. It returns the text that may go out with it and the tokens
// wholly inside the text released so far. stop is the stop string that was met:
// then the text before it is all that is left of the answer.
func (o *output) push(p Piece) (text string, ready []Piece, stop string) {
	o.partial = append(o.partial, p.Bytes...)
	whole := completePrefix(o.partial)
	added := strings.ToValidUTF8(string(o.partial[:whole]), "\uFFFD")
	o.partial = o.partial[:copy(o.partial, o.partial[whole:])]
	p.Start, p.end = o.pushed, -1
	o.pushed += len(added)
	o.waiting = append(o.waiting, p)
	if len(o.partial) == 0 {
		for i := range o.waiting {
			if o.waiting[i].end < 0 {
				o.waiting[i].end = o.pushed
			}
		}
	}
	o.held += added
	text, stop = o.release(len(added))
	if stop != "" {
		return text, o.takeBefore(o.sent), stop
	}
	return text, o.take(o.sent), ""
}

// release moves text out of held, up to a stop string or what may become one.
// added is how much of held is new.
func (o *output) release(added int) (text, stop string) {
	cut := len(o.held)
	for _, s := range o.stops {
		from := max(0, len(o.held)-added-len(s)+1)
		if i := strings.Index(o.held[from:], s); i >= 0 && (stop == "" && from+i <= cut || from+i < cut) {
			cut, stop = from+i, s
		}
	}
	if stop == "" {
		for _, s := range o.stops {
			cut = min(cut, len(o.held)-overlap(o.held, s))
		}
	}
	text = o.held[:cut]
	o.held = o.held[cut:]
	o.sent += cut
	o.newline = o.newline || strings.Contains(text, "\n")
	return text, stop
}

// flush ends the answer and returns all that was held back. An incomplete
// character becomes the replacement character.
func (o *output) flush() (text string, ready []Piece) {
	text = o.held
	if len(o.partial) > 0 {
		text += "\uFFFD"
	}
	o.held, o.partial = "", nil
	o.newline = o.newline || strings.Contains(text, "\n")
	ready = o.waiting
	o.waiting = nil
	return text, ready
}

// take removes and returns the waiting tokens that end at or before n.
func (o *output) take(n int) []Piece {
	i := 0
	for i < len(o.waiting) && o.waiting[i].end >= 0 && o.waiting[i].end <= n {
		i++
	}
	ready := o.waiting[:i:i]
	o.waiting = o.waiting[i:]
	return ready
}

// takeBefore removes all waiting tokens and returns those that begin before n.
func (o *output) takeBefore(n int) []Piece {
	i := 0
	for i < len(o.waiting) && o.waiting[i].Start < n {
		i++
	}
	ready := o.waiting[:i:i]
	o.waiting = nil
	return ready
}

// completePrefix returns how many bytes of b precede an incomplete character at
// its end. Bytes that can never become a character count as complete.
func completePrefix(b []byte) int {
	for i := len(b) - 1; i >= 0 && i >= len(b)-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			if utf8.FullRune(b[i:]) {
				return len(b)
			}
			return i
		}
	}
	return len(b)
}

// overlap returns the length of the longest end of text that is a proper
// beginning of stop.
func overlap(text, stop string) int {
	for n := min(len(text), len(stop)-1); n > 0; n-- {
		if strings.HasSuffix(text, stop[:n]) {
			return n
		}
	}
	return 0
}
