// Package tokenizer turns text into tokens and back, with the vocabulary that
// a GGUF file carries: byte-pair encoding with the pre-tokenisers of the common
// model families, SentencePiece and WordPiece. The ids are those of llama.cpp,
// with two exceptions. Plain text never becomes a control token, however it is
// spelled. And WordPiece follows BERT's own tokenizer where llama.cpp does not:
// in Hangul, in marks that take space, in control characters and in words of
// more than a hundred letters.
package tokenizer

import "onebit/engine/gguf"

// Tokenizer is a vocabulary with its rules. It does not refer to the file that
// it came from, and it is safe for concurrent use.
type Tokenizer struct {
	encoder encoder
	pieces  *symbols
	attrs   []attr
	parsed  *specials // tokens found in text with ParseSpecial
	plain   *specials // tokens always found in text

	bos, eos, sep  int32
	addBOS, addEOS bool
}

// encoder appends the tokens of plain text; first says that the text is at the
// start or behind a token of parsed or plain.
type encoder interface {
	encode(text string, first bool, out []int32) []int32
}

// New reads the vocabulary of f. Every refusal is an *Error that names the
// metadata key at fault.
func New(f *gguf.File) (*Tokenizer, error) {
	v, err := readVocabulary(f)
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{attrs: v.attrs, bos: v.bos, eos: v.eos, sep: none, addBOS: v.addBOS, addEOS: v.addEOS}
	switch v.model {
	case "llama":
		t.encoder, t.pieces, err = newSPM(v)
	case "bert":
		t.encoder, t.pieces, err = newWordPiece(v)
		t.sep = v.sep
	default:
		t.encoder, t.pieces, err = newBPE(v)
	}
	if err != nil {
		return nil, err
	}
	t.parsed = newSpecials(v, controlToken|unknown|userDefined, 0)
	t.plain = newSpecials(v, userDefined, controlToken|unknown)
	return t, nil
}

// Options says how Encode treats special tokens.
type Options struct {
	AddSpecial   bool // put BOS, EOS, CLS and SEP where the vocabulary wants them
	ParseSpecial bool // take control tokens that are written in the text for such
}

// Encode returns the tokens of text. Bytes that are no UTF-8 are taken for
// U+FFFD, one each. Without ParseSpecial no text becomes a control token.
func (t *Tokenizer) Encode(text string, o Options) []int32 {
	text = valid(text)
	out := make([]int32, 0, len(text)/3+4)
	if o.AddSpecial && t.addBOS && t.bos != none {
		out = append(out, t.bos)
	}
	tokens := t.plain
	if o.ParseSpecial {
		tokens = t.parsed
	}
	first := true
	for _, p := range tokens.split(text) {
		if p.id != none {
			out = append(out, p.id)
		} else {
			out = t.encoder.encode(text[p.start:p.end], first, out)
		}
		first = p.id != none
	}
	switch {
	case o.AddSpecial && t.sep != none:
		out = append(out, t.sep)
	case o.AddSpecial && t.addEOS && t.eos != none:
		out = append(out, t.eos)
	}
	return out
}

// Size returns the number of tokens.
func (t *Tokenizer) Size() int { return len(t.attrs) }

// BOS returns the token that begins a text (BERT's CLS), if there is one.
func (t *Tokenizer) BOS() (id int32, ok bool) { return t.bos, t.bos != none }

// EOS returns the token that ends a text, if there is one.
func (t *Tokenizer) EOS() (id int32, ok bool) { return t.eos, t.eos != none }

// AddsBOS reports whether Encode puts BOS first with AddSpecial.
func (t *Tokenizer) AddsBOS() bool { return t.addBOS && t.bos != none }

// IsEOG reports whether a model that emits the token has ended its answer: EOS
// and its kin, by the file's word or by their name.
func (t *Tokenizer) IsEOG(id int32) bool { return t.has(id) && t.attrs[id]&ends != 0 }

// IsControl reports whether only ParseSpecial makes the token from text.
func (t *Tokenizer) IsControl(id int32) bool {
	return t.has(id) && t.attrs[id]&(controlToken|unknown) != 0
}

func (t *Tokenizer) has(id int32) bool { return id >= 0 && int(id) < len(t.attrs) }
