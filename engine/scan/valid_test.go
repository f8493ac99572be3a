package scan_test

import (
	"encoding/json"
	"strings"
	"testing"

	"onebit/engine/scan"
)

// texts are sound and unsound; each is tried as a whole and cut anywhere.
var texts = []string{
	`{}`, ` { "a" : [ 1 , -0.5e+7 , 0 , 10E-2 , true , false , null , "x" , {} , [ ] ] } `, "{\"a\":1}\n", `[{}]`, `"text"`, `{"a":"\"\\\/\b\f\n\r\t\u00e9\uD83d\uDE00"}`,
	`{"a":"` + strings.Repeat("Some words of a prompt. ", 9) + `","b":"` + strings.Repeat(`if a == \"b\" {\n\t`, 9) + `"}`,
	`{"a":01}`, `{"a":1.}`, `{"a":.5}`, `{"a":-}`, `{"a":1e}`, `{"a":+1}`, `{"a":0x1}`, `{"a":NaN}`, `{"a":tru}`, `{"a":truex}`, `{"a":nul`, `{"a"}`, `{"a":}`, `{a:1}`, `{'a':1}`,
	`{"a":1,}`, `[1,]`, `[,1]`, `[1 2]`, `{"a":1 "b":2}`, `{"a":1}}`, `{"a":1}x`, `{"a":"\x"}`, `{"a":"\u12g4"}`, `{"a":"\u12"}`, `{"a":"\`, "{\"a\":\"\x00\"}", "{\"a\":\"\x1f\"}",
	"{\"a\":\"line\nfeed, and more than eight bytes\"}", "{\"a\":\"\x7f\x80\xff and damaged UTF-8 in a longer text of words\"}", "{\"a\":\"!#\x20\x21\x22}", "\ufeff{}", "\x00{}", "{\v}", "", " ", "{", "}", "[", "]", `"`,
	strings.Repeat("[", 10000) + strings.Repeat("]", 10000), strings.Repeat("[", 10001) + strings.Repeat("]", 10001), strings.Repeat(`{"a":`, 10000) + "1" + strings.Repeat("}", 10000),
}

// TestValid: what encoding/json takes for JSON is taken, and nothing else.
func TestValid(t *testing.T) {
	for _, text := range texts {
		cuts := len(text)
		if cuts > 1000 {
			cuts = 0
		}
		for n := 0; n <= cuts; n++ {
			for _, b := range []string{text[:len(text)-n], text[n:]} {
				if got, want := scan.Valid([]byte(b)), json.Valid([]byte(b)); got != want {
					t.Errorf("%.80q: %v", b, got)
				}
			}
		}
	}
}

// TestValidBytes: each byte, at each place of a text of words.
func TestValidBytes(t *testing.T) {
	words := []byte(`{"a":"` + strings.Repeat("words ", 12) + `"}`)
	for i := range words {
		was := words[i]
		for c := range 256 {
			words[i] = byte(c)
			if got, want := scan.Valid(words), json.Valid(words); got != want {
				t.Fatalf("%q: %v", words, got)
			}
		}
		words[i] = was
	}
}

func FuzzValid(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, want := scan.Valid(b), json.Valid(b); got != want {
			t.Fatalf("%q: %v", b, got)
		}
	})
}

func BenchmarkValid(b *testing.B) {
	plain := []byte(`{"model":"auto","messages":[{"role":"user","content":"` + strings.Repeat("Some words of a prompt. ", 1400) + `"}]}`)
	code := []byte(`{"model":"auto","messages":[{"role":"user","content":"` + strings.Repeat(`if a == \"b\" {\n\treturn c\n}\n`, 1100) + `"}]}`)
	for name, body := range map[string][]byte{"plain": plain, "code": code} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				scan.Valid(body)
			}
		})
		b.Run(name+" by encoding/json", func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				json.Valid(body)
			}
		})
	}
}
