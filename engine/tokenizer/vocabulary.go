package tokenizer

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"onebit/engine/gguf"
)

const (
	prefix = "tokenizer.ggml."
	sepKey = "seperator_token_id" //nolint:misspell // the format spells it so
)

// Error says why a vocabulary is refused.
type Error struct {
	Key  string // the metadata key at fault
	What string
}

func (e *Error) Error() string { return e.Key + ": " + e.What }

func refuse(key, format string, args ...any) error {
	return &Error{Key: prefix + key, What: fmt.Sprintf(format, args...)}
}

// attr is a set of properties of a token.
type attr uint16

const (
	normal attr = 1 << iota
	unknown
	controlToken
	userDefined
	unused
	byteToken
	ends   // ends a generation
	shown  // control, but part of what is read
	lstrip // white space before it belongs to it
	rstrip // white space behind it belongs to it
)

// hidden reports whether the token is left out of text for people.
func (a attr) hidden() bool { return a&(unknown|controlToken) != 0 && a&shown == 0 }

// mergeable reports whether plain text may become the token.
func (a attr) mergeable() bool { return a&(unknown|controlToken|byteToken) == 0 }

// kinds maps tokenizer.ggml.token_type to attributes.
var kinds = [...]attr{1: normal, 2: unknown, 3: controlToken, 4: userDefined, 5: unused, 6: byteToken}

const none = int32(-1)

// vocabulary is what a file says about its tokens, checked.
type vocabulary struct {
	file   *gguf.File
	model  string
	pre    preTokenizer
	texts  []string // none empty
	attrs  []attr
	scores []float32 // nil where the model needs none

	bos, eos, unk, sep int32 // none where there is no such token
	addBOS, addEOS     bool
	addSpace           bool // SPM: text begins with a space
}

func readVocabulary(f *gguf.File) (*vocabulary, error) {
	v := &vocabulary{file: f, bos: none, eos: none, unk: none, sep: none}
	if err := v.readModel(); err != nil {
		return nil, err
	}
	if err := v.readTokens(); err != nil {
		return nil, err
	}
	if err := v.readScores(); err != nil {
		return nil, err
	}
	if err := v.readIDs(); err != nil {
		return nil, err
	}
	return v, v.readFlags()
}

func (v *vocabulary) readModel() error {
	model, err := v.text("model")
	if err != nil {
		return err
	}
	pre, err := v.text("pre")
	if err != nil {
		return err
	}
	v.model = model
	switch model {
	case "gpt2":
		p, ok := preTokenizerOf(pre)
		if !ok {
			return refuse("pre", "unknown pre-tokenizer %.80q", pre)
		}
		v.pre, v.addBOS = p, p.addBOS
	case "gemma4":
		v.pre, _ = preTokenizerOf("gemma4")
		v.addBOS = true
	case "llama":
		v.addBOS, v.addSpace = true, true
		v.bos, v.eos, v.unk = 1, 2, 0
	case "bert":
		v.addBOS = true
		v.bos, v.unk, v.sep = 101, 100, 102
	case "":
		return refuse("model", "missing")
	default:
		return refuse("model", "unknown tokenizer %.80q", model)
	}
	return nil
}

// text returns a string key; empty when it is absent.
func (v *vocabulary) text(key string) (string, error) {
	s, ok := v.file.String(prefix + key)
	if !ok && v.has(key) {
		return "", refuse(key, "not a string")
	}
	return s, nil
}

func (v *vocabulary) has(key string) bool {
	_, ok := v.file.Value(prefix + key)
	return ok
}

func (v *vocabulary) readTokens() error {
	texts, ok := v.file.Strings(prefix + "tokens")
	if !ok {
		return refuse("tokens", "missing or not an array of strings")
	}
	if len(texts) == 0 {
		return refuse("tokens", "no tokens")
	}
	for i, s := range texts {
		if s == "" {
			texts[i] = "[EMPTY_" + strconv.Itoa(i) + "]"
		}
	}
	v.texts, v.attrs = texts, make([]attr, len(texts))
	types, ok := v.file.Ints(prefix + "token_type")
	if !ok {
		if v.has("token_type") {
			return refuse("token_type", "not an array of integers")
		}
		for i := range v.attrs {
			v.attrs[i] = normal
		}
		return nil
	}
	if len(types) < len(texts) {
		return refuse("token_type", "%d types for %d tokens", len(types), len(texts))
	}
	for i := range v.attrs {
		if t := types[i]; t >= 0 && t < int64(len(kinds)) {
			v.attrs[i] = kinds[t]
		}
	}
	return nil
}

func (v *vocabulary) readScores() error {
	if v.model != "llama" {
		return nil
	}
	scores, ok := v.file.Floats(prefix + "scores")
	if ints, isInt := v.file.Ints(prefix + "scores"); !ok && isInt {
		ok = true
		for _, n := range ints {
			scores = append(scores, float32(n))
		}
	}
	if !ok {
		return refuse("scores", "missing or not an array of numbers")
	}
	if len(scores) < len(v.texts) {
		return refuse("scores", "%d scores for %d tokens", len(scores), len(v.texts))
	}
	for i, s := range scores {
		if math.IsNaN(float64(s)) {
			return refuse("scores", "the score of token %d is not a number", i)
		}
	}
	v.scores = scores
	return nil
}

// readIDs reads the tokens that the file names by number. A negative number
// stands for none.
func (v *vocabulary) readIDs() error {
	id := func(key string, to *int32) error {
		n, ok := v.file.Int(prefix + key)
		switch {
		case !ok && v.has(key):
			return refuse(key, "not a token id")
		case !ok:
			return nil
		case n >= int64(len(v.texts)) && n != math.MaxUint32:
			return refuse(key, "token %d of %d", n, len(v.texts))
		}
		*to = none
		if n >= 0 && n < int64(len(v.texts)) {
			*to = int32(n)
		}
		return nil
	}
	eot, eom := none, none
	if err := id("cls_token_id", &v.bos); err != nil {
		return err
	}
	for _, k := range []struct {
		key string
		to  *int32
	}{
		{"bos_token_id", &v.bos}, {"eos_token_id", &v.eos}, {"eot_token_id", &eot}, {"eom_token_id", &eom},
		{"unknown_token_id", &v.unk}, {sepKey, &v.sep},
	} {
		if err := id(k.key, k.to); err != nil {
			return err
		}
	}
	for _, p := range []*int32{&v.bos, &v.eos, &v.unk, &v.sep} {
		if *p >= int32(len(v.texts)) { // a default that this vocabulary is too small for
			*p = none
		}
	}
	if v.model == "bert" && (v.bos == none || v.sep == none || v.unk == none) {
		return refuse("model", "bert needs the tokens CLS, SEP and UNK")
	}
	v.markByName()
	for _, id := range []int32{v.eos, eot, eom} {
		if id != none {
			v.attrs[id] |= ends
		}
	}
	v.correct()
	return nil
}

func (v *vocabulary) readFlags() error {
	for _, k := range []struct {
		key string
		to  *bool
	}{{"add_bos_token", &v.addBOS}, {"add_eos_token", &v.addEOS}, {"add_space_prefix", &v.addSpace}} {
		b, ok := v.file.Bool(prefix + k.key)
		if !ok && v.has(k.key) {
			return refuse(k.key, "not a truth value")
		}
		if ok {
			*k.to = b
		}
	}
	if v.pre.feeds && v.pre.addBOS {
		v.addBOS = true // files of this family say false and mean true
	}
	return nil
}

// byteOf returns the byte that a token such as <0x0A> stands for.
func byteOf(text string) (byte, bool) {
	hex, ok := strings.CutPrefix(text, "<0x")
	if hex, ok2 := strings.CutSuffix(hex, ">"); ok && ok2 && len(hex) == 2 {
		n, err := strconv.ParseUint(hex, 16, 8)
		return byte(n), err == nil
	}
	return 0, false
}
