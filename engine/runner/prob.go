package runner

import (
	"unicode/utf8"

	"onebit/engine/batch"
)

// tokenView is one token with its log-probability.
type tokenView struct {
	ID      int32   `json:"id"`
	Token   string  `json:"token"`
	Bytes   []int   `json:"bytes"`
	Logprob float64 `json:"logprob"`
}

// probView is one sampled token in llama-server's list of probabilities, which
// is also an entry of OpenAI's "content" list.
type probView struct {
	tokenView
	TopLogprobs []tokenView `json:"top_logprobs"`
}

// probViews describes the tokens that carry probabilities.
func probViews(pieces []batch.Piece, tok Tokenizer) []probView {
	views := make([]probView, 0, len(pieces))
	for _, p := range pieces {
		if p.Prob == nil {
			continue
		}
		v := probView{viewToken(p.ID, p.Bytes, p.Prob.Logprob), make([]tokenView, len(p.Prob.Top))}
		for i, s := range p.Prob.Top {
			v.TopLogprobs[i] = viewToken(s.ID, tok.Piece(s.ID, false), float64(s.LogProb))
		}
		views = append(views, v)
	}
	return views
}

// viewToken writes one token. Its text is cut where it stops being UTF-8, as a
// token may hold a part of a character; the bytes are whole.
func viewToken(id int32, piece []byte, logprob float64) tokenView {
	v := tokenView{ID: id, Bytes: make([]int, len(piece)), Logprob: logprob}
	for i, b := range piece {
		v.Bytes[i] = int(b)
	}
	v.Token = string(piece[:validPrefix(piece)])
	return v
}

// validPrefix returns how many bytes of b are UTF-8.
func validPrefix(b []byte) int {
	n := 0
	for n < len(b) {
		r, size := utf8.DecodeRune(b[n:])
		if r == utf8.RuneError && size <= 1 {
			break
		}
		n += size
	}
	return n
}

// legacyView is the "logprobs" object of text completions: OpenAI's four lists
// and, beside them, llama-server's.
type legacyView struct {
	Content       []probView           `json:"content"`
	Tokens        []string             `json:"tokens"`
	TokenLogprobs []float64            `json:"token_logprobs"`
	TopLogprobs   []map[string]float64 `json:"top_logprobs"`
	TextOffset    []int                `json:"text_offset"`
}

// newLegacyView describes tokens.
func newLegacyView(pieces []batch.Piece, tok Tokenizer) *legacyView {
	v := &legacyView{
		Content: probViews(pieces, tok), Tokens: []string{}, TokenLogprobs: []float64{},
		TopLogprobs: []map[string]float64{}, TextOffset: []int{},
	}
	for _, p := range pieces {
		if p.Prob == nil {
			continue
		}
		v.Tokens = append(v.Tokens, string(p.Bytes[:validPrefix(p.Bytes)]))
		v.TokenLogprobs = append(v.TokenLogprobs, p.Prob.Logprob)
		v.TextOffset = append(v.TextOffset, p.Start)
		top := map[string]float64{}
		for _, s := range p.Prob.Top {
			text := tok.Piece(s.ID, false)
			top[string(text[:validPrefix(text)])] = float64(s.LogProb)
		}
		v.TopLogprobs = append(v.TopLogprobs, top)
	}
	return v
}
