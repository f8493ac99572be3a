package synth

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// corpus is the text that the vocabularies are learnt from. It was written for
// this purpose.
//
//go:embed corpus.txt
var corpus string

// Kinds of tokens as files number them.
const (
	tokenNormal  int32 = 1
	tokenUnknown int32 = 2
	tokenControl int32 = 3
	tokenByte    int32 = 6
)

const (
	turnStart = "<|im_start|>"
	turnEnd   = "<|im_end|>"
	textEnd   = "<|endoftext|>"
)

// template renders a conversation in the ChatML form.
const template = `{% for message in messages %}` + turnStart + `{{ message['role'] }}
{{ message['content'] }}` + turnEnd + `
{% endfor %}{% if add_generation_prompt %}` + turnStart + `assistant
{% endif %}`

// vocabulary is a list of tokens and what a tokenizer needs beside it.
type vocabulary struct {
	tokens []string
	kinds  []int32
	scores []float32 // SentencePiece only
	merges []string  // byte-pair encoding only
}

func (v *vocabulary) add(token string, kind int32, score float32) {
	v.tokens = append(v.tokens, token)
	v.kinds = append(v.kinds, kind)
	v.scores = append(v.scores, score)
}

// fill adds tokens that no text is ever turned into, up to size in all.
func (v *vocabulary) fill(size int) {
	for i := 0; len(v.tokens) < size; i++ {
		v.add(fmt.Sprintf("<unused%d>", i), tokenNormal, -1e6)
	}
}

// bytePairs returns a vocabulary of size tokens for byte-pair encoding over
// bytes: the 256 bytes, what was learnt, what fills it up, and at the end the
// special tokens textEnd, turnStart and turnEnd.
func bytePairs(size int) *vocabulary {
	v := &vocabulary{}
	letters := byteLetters()
	for _, r := range letters {
		v.add(string(r), tokenNormal, 0)
	}
	var words []string
	for _, w := range split(corpus) {
		var b strings.Builder
		for _, c := range []byte(w) {
			b.WriteRune(letters[c])
		}
		words = append(words, b.String())
	}
	seen := map[string]bool{}
	for _, m := range learn(words, size-len(v.tokens)-3) {
		v.merges = append(v.merges, m[0]+" "+m[1])
		if token := m[0] + m[1]; !seen[token] {
			seen[token] = true
			v.add(token, tokenNormal, 0)
		}
	}
	v.fill(size - 3)
	v.add(textEnd, tokenControl, 0)
	v.add(turnStart, tokenControl, 0)
	v.add(turnEnd, tokenControl, 0)
	return v
}

// byteLetters returns the visible letter that stands for each byte: itself
// where it is a visible character of Latin-1, else the next one from U+0100.
func byteLetters() [256]rune {
	var letters [256]rune
	next := rune(256)
	for b := range letters {
		r := rune(b)
		if r >= '!' && r <= '~' || r >= '¡' && r <= '¬' || r >= '®' && r <= 'ÿ' {
			letters[b] = r
		} else {
			letters[b] = next
			next++
		}
	}
	return letters
}

// pieces returns a vocabulary of size tokens in the manner of SentencePiece:
// first, which are special tokens, then the 256 bytes, pieces learnt with
// falling scores, single letters, turnStart and turnEnd, and what fills it up.
func pieces(size int, first ...string) *vocabulary {
	v := &vocabulary{}
	for _, s := range first {
		kind := tokenControl
		if s == "<unk>" {
			kind = tokenUnknown
		}
		v.add(s, kind, 0)
	}
	v.add(turnStart, tokenControl, 0)
	v.add(turnEnd, tokenControl, 0)
	for b := range 256 {
		v.add(fmt.Sprintf("<0x%02X>", b), tokenByte, 0)
	}
	text := strings.ReplaceAll(strings.ReplaceAll(corpus, "\n", " "), " ", "▁")
	letters := []rune(text)
	slices.Sort(letters)
	letters = slices.Compact(letters)
	seen := map[string]bool{}
	score := float32(0)
	for _, m := range learn(split(text), size-len(v.tokens)-len(letters)) {
		if piece := m[0] + m[1]; !seen[piece] {
			seen[piece] = true
			v.add(piece, tokenNormal, score)
			score--
		}
	}
	for _, r := range letters {
		v.add(string(r), tokenNormal, score)
		score--
	}
	v.fill(size)
	return v
}

// split cuts text into words: letters with the one space before them, or a
// single other character.
func split(text string) []string {
	var words []string
	runes := []rune(text)
	for i := 0; i < len(runes); {
		j := i
		if runes[j] == ' ' || runes[j] == '▁' {
			j++
		}
		for j < len(runes) && unicode.IsLetter(runes[j]) {
			j++
		}
		j = max(j, i+1)
		words = append(words, string(runes[i:j]))
		i = j
	}
	return words
}

// learn finds up to n merges of neighbours, the most frequent first. Pairs that
// are found once only are not merged.
func learn(words []string, n int) [][2]string {
	type word struct {
		parts []string
		times int
	}
	times := map[string]int{}
	for _, w := range words {
		times[w]++
	}
	var list []word
	for w, n := range times {
		list = append(list, word{strings.Split(w, ""), n})
	}
	var merges [][2]string
	pairs := map[[2]string]int{}
	for len(merges) < n {
		clear(pairs)
		for _, w := range list {
			for i := 1; i < len(w.parts); i++ {
				pairs[[2]string{w.parts[i-1], w.parts[i]}] += w.times
			}
		}
		best := mostFrequent(pairs)
		if pairs[best] < 2 {
			break
		}
		merges = append(merges, best)
		for k, w := range list {
			list[k].parts = merge(w.parts, best)
		}
	}
	return merges
}

// mostFrequent returns the pair with the highest count, the first in the
// alphabet where several have it.
func mostFrequent(pairs map[[2]string]int) [2]string {
	var best [2]string
	most := 0
	for p, n := range pairs {
		if n > most || n == most && slices.Compare(p[:], best[:]) < 0 {
			best, most = p, n
		}
	}
	return best
}

func merge(parts []string, pair [2]string) []string {
	out := parts[:0]
	for i := 0; i < len(parts); i++ {
		if i+1 < len(parts) && parts[i] == pair[0] && parts[i+1] == pair[1] {
			out = append(out, pair[0]+pair[1])
			i++
		} else {
			out = append(out, parts[i])
		}
	}
	return out
}
