//go:build wasip1

// Command private keeps what looks private on local devices: addresses of mail, cards, bank accounts, phone numbers, keys,
// and words of a list. What no local candidate can take is turned away, and never sent elsewhere.
package main

import (
	"strings"

	laya "onebit/extensions/guest/go"
)

var (
	remote = []string{"remote"} // devices that are not local
	words  = []string{"password", "passwort", "mot de passe", "contraseña", "confidential", "vertraulich", "social security"}
)

//go:wasmexport laya_configure
func configure(address, length uint32) uint64 {
	return laya.Configure(address, length, func(config laya.JSON) string {
		if list := config.Get("remote").Texts(); len(list) > 0 {
			remote = list
		}
		for _, w := range config.Get("words").Texts() {
			words = append(words, strings.ToLower(w))
		}
		return ""
	})
}

//go:wasmexport laya_route
func route(address, length uint32) uint64 { return laya.Run(address, length, decide) }

func decide(r *laya.Request) laya.Decision {
	what := private(whole(r))
	if what == "" {
		return laya.Decision{}
	}
	var ids []string
	for _, c := range r.Candidates {
		if c.Healthy && local(c.Device) {
			ids = append(ids, c.ID)
		}
	}
	if len(ids) == 0 {
		return laya.Refuse(422, "private", "this looks private, and no local model can take it now").Because("it contains " + what)
	}
	return laya.To(ids...).Because("it contains " + what)
}

func local(device string) bool {
	for _, d := range remote {
		if d == device {
			return false
		}
	}
	return true
}

// whole reads the prompt, all messages of it.
func whole(r *laya.Request) string {
	text := make([]byte, 256<<10)
	n := 0
	for n < len(text) {
		got, err := laya.Text(laya.Whole, n, text[n:])
		if err != nil || got == 0 {
			break
		}
		n += got
	}
	if n == 0 { // a box that has no more than the request
		return r.Head + " " + r.Tail
	}
	return string(text[:n])
}

// private names what is private in a text; empty when nothing is.
func private(text string) string {
	if mail(text) {
		return "an address of mail"
	}
	if what := numbers(text); what != "" {
		return what
	}
	if strings.Contains(text, "-----BEGIN ") && strings.Contains(text, "PRIVATE KEY") {
		return "a key"
	}
	lower := strings.ToLower(text)
	for _, w := range words {
		if strings.Contains(lower, w) {
			return "a word of the list"
		}
	}
	return ""
}

func letter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
func digit(c byte) bool  { return '0' <= c && c <= '9' }

// mail looks for name@host.zone.
func mail(s string) bool {
	for i := 1; i < len(s); i++ {
		if s[i] != '@' || !letter(s[i-1]) && !digit(s[i-1]) {
			continue
		}
		dot, j := 0, i+1
		for ; j < len(s) && (letter(s[j]) || digit(s[j]) || s[j] == '-' || s[j] == '.'); j++ {
			if s[j] == '.' && j > i+1 {
				dot = j
			}
		}
		if dot > 0 && j-dot > 2 {
			return true
		}
	}
	return false
}

// numbers looks for runs of digits, with single spaces, dots or hyphens between them.
func numbers(s string) string {
	for i := 0; i < len(s); i++ {
		if !digit(s[i]) {
			continue
		}
		var d []byte
		from, j := i, i
		for ; j < len(s) && len(d) < 40; j++ {
			if digit(s[j]) {
				d = append(d, s[j]-'0')
			} else if (s[j] != ' ' && s[j] != '-' && s[j] != '.') || j+1 >= len(s) || !digit(s[j+1]) {
				break
			}
		}
		i = j
		switch {
		case len(d) >= 13 && len(d) <= 19 && luhn(d):
			return "a card number"
		case len(d) >= 12 && from >= 2 && letter(s[from-2]) && letter(s[from-1]):
			return "a bank account"
		case len(d) >= 9 && len(d) <= 15 && from >= 1 && s[from-1] == '+':
			return "a phone number"
		}
	}
	return ""
}

// luhn is the check digit of cards.
func luhn(d []byte) bool {
	sum := 0
	for i, v := range d {
		n := int(v)
		if (len(d)-i)%2 == 0 {
			if n *= 2; n > 9 {
				n -= 9
			}
		}
		sum += n
	}
	return sum%10 == 0
}

func main() {}
