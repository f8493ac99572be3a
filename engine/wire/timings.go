package wire

import "bytes"

// Timings is what a server of llama-server's kind says about an answer: tokens of the prompt that it computed, tokens that it
// generated, and the milliseconds that each took. What it does not say is 0.
type Timings struct {
	Prompt, Answer     int
	PromptMs, AnswerMs float64
}

// TimingsOf reads the member timings of a chunk. It reports whether there is one that says anything.
func TimingsOf(raw []byte) (t Timings, ok bool) {
	if !bytes.Contains(raw, []byte(`"timings"`)) {
		return t, false
	}
	m := newMembers(raw)
	for m.next() {
		if string(m.key) != "timings" {
			continue
		}
		each := newMembers(m.value)
		for each.next() {
			n, err := number("timings", each.value)
			if err != nil || n < 0 || n > 1<<31 {
				continue
			}
			switch string(each.key) {
			case "prompt_n":
				t.Prompt = int(n)
			case "prompt_ms":
				t.PromptMs = n
			case "predicted_n":
				t.Answer = int(n)
			case "predicted_ms":
				t.AnswerMs = n
			}
		}
		return t, t != Timings{}
	}
	return t, false
}
