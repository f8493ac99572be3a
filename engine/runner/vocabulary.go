package runner

import (
	"encoding/json"
	"slices"
	"strings"

	"onebit/engine/chat"
	"onebit/engine/grammar"
)

// vocabulary is a tokenizer with what is worked out about it once.
type vocabulary struct {
	Tokenizer
	ends    []int32           // tokens that end a generation
	names   map[string]bool   // written names of control tokens
	lengths map[[2]byte][]int // the lengths of the names that begin like this, longest first
	firsts  string            // the first characters of all names
}

func newVocabulary(tok Tokenizer) *vocabulary {
	v := &vocabulary{Tokenizer: tok, names: map[string]bool{}, lengths: map[[2]byte][]int{}}
	for id := range int32(tok.Size()) {
		if tok.IsEOG(id) {
			v.ends = append(v.ends, id)
		}
		if !tok.IsControl(id) {
			continue
		}
		name := string(tok.Piece(id, true))
		if len(name) < 2 {
			continue // no name, or none that text could be mistaken for
		}
		v.names[name] = true
		key := [2]byte{name[0], name[1]}
		if !slices.Contains(v.lengths[key], len(name)) {
			v.lengths[key] = append(v.lengths[key], len(name))
		}
		if first := firstRune(name); !strings.Contains(v.firsts, first) {
			v.firsts += first
		}
	}
	for _, lengths := range v.lengths {
		slices.SortFunc(lengths, func(a, b int) int { return b - a })
	}
	return v
}

// words puts the tokens that answers are made of in order; of control tokens, those of shown are text.
func (v *vocabulary) words(shown map[int32]bool) *grammar.Vocabulary {
	return grammar.NewVocabulary(v.Size(), func(id int32) []byte { return v.Piece(id, shown[id]) }, v.IsEOG)
}

// nextControl returns where the first name of a control token lies in text, or
// -1 and -1. Of several at one place the longest counts.
func (v *vocabulary) nextControl(text string) (from, to int) {
	for at := 0; ; at++ {
		i := strings.IndexAny(text[at:], v.firsts)
		if i < 0 || at+i+2 > len(text) {
			return -1, -1
		}
		at += i
		for _, n := range v.lengths[[2]byte{text[at], text[at+1]}] {
			if at+n <= len(text) && v.names[text[at:at+n]] {
				return at, at + n
			}
		}
	}
}

// controlsIn returns the names of control tokens that a JSON text holds, in any
// spelling that JSON has for them.
func (v *vocabulary) controlsIn(raw json.RawMessage) []string {
	text := string(raw)
	if strings.Contains(text, `\`) {
		var value any
		if json.Unmarshal(raw, &value) == nil {
			text = string(encode(value))
		}
	}
	var found []string
	seen := map[string]bool{}
	for {
		from, to := v.nextControl(text)
		if from < 0 {
			return found
		}
		if name := text[from:to]; !seen[name] {
			seen[name] = true
			found = append(found, name)
		}
		text = text[from+1:] // names may overlap
	}
}

// stretch is a part of a prompt between control tokens, or one of these.
type stretch struct {
	texts   []string // which follow each other
	control bool
	plain   bool // no control token may be read out of it
}

// encodeParts encodes a rendered prompt. Names of control tokens become tokens,
// but not where a message wrote them: there, the whole stretch of text up to the
// real tokens around it is encoded as plain text.
func (v *vocabulary) encodeParts(parts []chat.Part) []int32 { return v.encode(parts, true) }

// encode does so for the beginning of a prompt, which gets the tokens that the model wants there, or for what follows.
func (v *vocabulary) encode(parts []chat.Part, addSpecial bool) []int32 {
	if len(parts) == 1 && !parts[0].Plain {
		return v.Encode(parts[0].Text, addSpecial, true)
	}
	var ids []int32
	var armed strings.Builder // text since the last plain stretch
	add := func(text string, parse bool) {
		if text != "" {
			ids = append(ids, v.Encode(text, addSpecial, parse)...)
			addSpecial = false
		}
	}
	for _, s := range v.stretches(parts) {
		text := strings.Join(s.texts, "")
		if !s.plain {
			armed.WriteString(text)
			continue
		}
		add(armed.String(), true)
		armed.Reset()
		add(text, false)
	}
	add(armed.String(), true)
	return ids
}

// stretches cuts a prompt at the control tokens in it. Text on both sides of a
// border between parts is plain: together it could spell a name.
func (v *vocabulary) stretches(parts []chat.Part) []stretch {
	var list []stretch
	add := func(text string, plain, border bool) {
		last := len(list) - 1
		if border && last >= 0 && !list[last].control {
			list[last].texts = append(list[last].texts, text)
			list[last].plain = true
		} else if text != "" {
			list = append(list, stretch{texts: []string{text}, plain: plain})
		}
	}
	for i, p := range parts {
		if p.Plain {
			add(p.Text, true, i > 0)
			continue
		}
		text, border := p.Text, i > 0
		for {
			from, to := v.nextControl(text)
			if from < 0 {
				add(text, false, border)
				break
			}
			add(text[:from], false, border)
			list = append(list, stretch{texts: []string{text[from:to]}, control: true})
			text, border = text[to:], false
		}
	}
	return list
}

func firstRune(s string) string {
	for i := range s {
		if i > 0 {
			return s[:i]
		}
	}
	return s
}
