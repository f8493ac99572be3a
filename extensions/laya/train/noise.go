package main

import (
	"math/rand/v2"
	"strings"
	"unicode"
	"unicode/utf8"
)

// chance is true with a probability.
func chance(r *rand.Rand, p float64) bool { return r.Float64() < p }

// roughen makes a clean text look like people's: case, punctuation, typos, accents left out, a greeting before, thanks after.
func (g *grammar) roughen(r *rand.Rand, s string) string {
	code := strings.ContainsAny(s, "\n`{};=")
	if !code && chance(r, 0.12) {
		s = strings.TrimSpace(g.slots["pre"].lines.pick(r) + s)
	}
	if chance(r, 0.05) {
		s += g.slots["post"].lines.pick(r)
	}
	switch x := r.Float64(); {
	case x < 0.4:
		s = strings.ToLower(s)
	case x < 0.7:
		s = capital(s)
	case x < 0.72:
		s = strings.ToUpper(s)
	}
	if code {
		return s
	}
	switch x := r.Float64(); {
	case x < 0.3:
		s = strings.TrimRight(s, "?.!。？！")
	case x < 0.4:
		s = strings.Map(func(c rune) rune {
			if strings.ContainsRune(",.?!;:\"'¿¡，。？！、", c) {
				return -1
			}
			return c
		}, s)
	case x < 0.5 && !strings.ContainsAny(s[max(0, len(s)-1):], "?.!:"):
		s += [...]string{".", "?", "!", "...", " ?"}[r.IntN(5)]
	}
	if chance(r, 0.1) {
		s = plain.Replace(s)
	}
	for chance(r, 0.12) {
		s = typo(r, s)
	}
	if chance(r, 0.02) {
		s = `"` + s + `"`
	}
	return s
}

// plain leaves out what phones' owners leave out.
var plain = strings.NewReplacer("you are", "ur", "you ", "u ", "please", "pls", "are ", "r ", "because", "cuz", "por que", "pq", "que ", "q ", "vous", "vs",
	"c'est", "cest", "qu'", "qu ", "perché", "xke", "nicht", "net", "пожалуйста", "плз", "сейчас", "щас", "что", "че", "请问", "", "ください", "下さい")

func capital(s string) string {
	c, n := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(c)) + s[n:]
}

// typo swaps, drops or doubles a letter, or joins two words.
func typo(r *rand.Rand, s string) string {
	w := []rune(s)
	if len(w) < 6 {
		return s
	}
	i := 1 + r.IntN(len(w)-2)
	if !unicode.IsLetter(w[i]) || unicode.In(w[i], unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Devanagari) {
		if w[i] == ' ' && chance(r, 0.3) {
			return string(w[:i]) + string(w[i+1:])
		}
		return s
	}
	switch r.IntN(4) {
	case 0:
		w[i], w[i+1] = w[i+1], w[i]
	case 1:
		w = append(w[:i], w[i+1:]...)
	case 2:
		w = append(w[:i+1], w[i:]...)
	default:
		if w[i] < 0x80 {
			w[i] = rune("abcdefghijklmnopqrstuvwxyz"[r.IntN(26)])
		}
	}
	return string(w)
}
