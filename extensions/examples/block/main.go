//go:build wasip1

// Command block turns requests away that contain words of a list. It reads the whole prompt, not the head alone.
package main

import (
	"strings"
	"unicode"

	laya "onebit/extensions/guest/go"
)

var (
	words   []string // in lower case, each with a space before and behind
	message = "this request is not allowed here"
)

//go:wasmexport laya_configure
func configure(address, length uint32) uint64 {
	return laya.Configure(address, length, func(config laya.JSON) string {
		for _, w := range config.Get("words").Texts() {
			if plain := strings.TrimSpace(string(fold(nil, w))); plain != "" {
				words = append(words, " "+plain+" ")
			}
		}
		if m := config.Get("message").Text(); m != "" {
			message = m
		}
		if len(words) == 0 && config.Get("words") != nil {
			return "words is a list of words or phrases"
		}
		return ""
	})
}

// fold writes text in lower case, with one space for whatever is between words.
func fold(b []byte, s string) []byte {
	for _, c := range s {
		switch {
		case 'a' <= c && c <= 'z' || '0' <= c && c <= '9':
			b = append(b, byte(c))
		case 'A' <= c && c <= 'Z':
			b = append(b, byte(c|0x20))
		case c >= 0x80 && (unicode.IsLetter(c) || unicode.IsDigit(c) || unicode.IsMark(c)):
			b = append(b, string(unicode.ToLower(c))...)
		default:
			if len(b) > 0 && b[len(b)-1] != ' ' {
				b = append(b, ' ')
			}
		}
	}
	return b
}

//go:wasmexport laya_route
func route(address, length uint32) uint64 { return laya.Run(address, length, decide) }

// most is how much of a prompt is read; a longer one is not judged by what comes after.
const most = 256 << 10

func decide(r *laya.Request) laya.Decision {
	if len(words) == 0 {
		return laya.Decision{}
	}
	text := make([]byte, most)
	n := 0
	for n < most {
		got, err := laya.Text(laya.Whole, n, text[n:])
		if err != nil || got == 0 {
			break
		}
		n += got
	}
	if n == 0 { // a box that has no more than the request
		n = copy(text, r.Head+" "+r.Tail)
	}
	plain := " " + string(fold(make([]byte, 0, n+2), string(text[:n]))) + " "
	for _, w := range words {
		if strings.Contains(plain, w) {
			laya.Log(laya.Info, "blocked:"+w)
			return laya.Refuse(403, "blocked", message).Because("it contains a word of the list")
		}
	}
	return laya.Decision{}
}

func main() {}
