// Package prefix names the beginnings of prompts. It turns a request into a chain of hashes, one for each message or piece
// of a long text, so that whoever keeps the state of a model can tell how much of a new prompt it has computed before;
// and it reads the marks by which clients say what they want to be kept. Everything is a pure function of the request.
package prefix

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"time"

	"onebit/engine"
	"onebit/engine/wire"
)

// Piece is how long the pieces of a long text are, in bytes of JSON.
const Piece = 4 << 10

// Written is how many marks of one request are kept, the newest ones.
const Written = 4

// mediaBytes is what an image or a sound counts for, at most: its bytes say nothing about its tokens.
const mediaBytes = 4 << 10

// Block is a prefix of a prompt.
type Block struct {
	// Hash stands for everything up to the end of this block, and for whose it is.
	Hash [16]byte
	// Bytes is the length of what the hash covers, up to the end of this block. Tools and settings count.
	Bytes int
	// Mark says that the client asked to keep the state here, for TTL.
	Mark bool
	TTL  time.Duration
}

// Chain is a prompt as a row of prefixes, each longer than the one before.
type Chain struct {
	Blocks   []Block
	Key      string        // prompt_cache_key
	Explicit bool          // only what is marked is to be kept
	TTL      time.Duration // how long the client wants the prompt to be kept; 0 where it does not say
}

// indifferent are the members of a body that do not change the prompt. All others are taken to change it from its first
// token on.
var indifferent = map[string]bool{
	"model": true, "stream": true, "stream_options": true, "max_tokens": true, "max_completion_tokens": true,
	"max_output_tokens": true, "n_predict": true, "temperature": true, "top_p": true, "min_p": true, "top_k": true,
	"seed": true, "n": true, "best_of": true, "presence_penalty": true, "frequency_penalty": true, "repeat_penalty": true,
	"repeat_last_n": true, "stop": true, "logit_bias": true, "user": true, "logprobs": true, "top_logprobs": true,
	"n_probs": true, "metadata": true, "store": true, "background": true, "include": true, "service_tier": true,
	"safety_identifier": true, "prompt_cache_key": true, "prompt_cache_options": true, "prompt_cache_retention": true,
	"cache_control": true, "cache_prompt": true, "id_slot": true, "timings_per_token": true, "return_progress": true,
	"dry_allowed_length": true, "dry_base": true, "dry_multiplier": true, "dry_penalty_last_n": true,
	"dry_sequence_breakers": true, "dynatemp_exponent": true, "dynatemp_range": true, "mirostat": true,
	"mirostat_eta": true, "mirostat_tau": true, "samplers": true, "typical_p": true, "xtc_probability": true,
	"xtc_threshold": true, "top_n_sigma": true, "min_keep": true, "ignore_eos": true, "prediction": true, "echo": true,
}

// Of returns the chain of a request. scope is whose prompts may be reused for it, model what answers: other words give
// other hashes throughout.
//
// The hash of a block covers both, the prompt_cache_key, all that changes the prompt from its beginning (tools,
// instructions, variables of the template, the form of the answer), and the messages up to its end. So of two requests
// with equal blocks the prompts begin alike, where a template renders messages in order. A message ends a block; a text
// in it does every Piece bytes; so does a part with a mark. Marks are no part of a hash: clients move them along. A
// content of one part of text equals that text. Requests without one prompt, such as embeddings, have no blocks.
//
// What the APIs refuse is an *engine.InvalidError: a cache_control that is not ephemeral, or not for 5m or 1h; a
// prompt_cache_breakpoint whose mode is not explicit; a mode that is unknown; a time that is none, or longer than a day;
// a prompt_cache_key that is no text of at most 64 characters. More marks than Written are no mistake here: the newest
// count, and one fewer where the prompt's end is kept anyway. All blocks can be found again, marked or not, however far back.
func Of(scope, model string, req *engine.Request) (Chain, error) {
	w := writer{hash: sha256.New(), small: make([]byte, 0, 2048)}
	w.chained(scope, model, Parse(req))
	if w.err != nil {
		return Chain{}, w.err
	}
	w.thin()
	return w.chain, nil
}

// Parsed is a request whose members were found, for whoever asks about several models.
type Parsed struct {
	req     *engine.Request
	name    string // of the member that holds the prompt; empty for none
	members []wire.Member
}

// Parse finds the members of a request.
func Parse(req *engine.Request) *Parsed {
	p := &Parsed{req: req, name: promptOf(req.Kind)}
	if p.name == "" {
		return p
	}
	p.members = make([]wire.Member, 0, 24)
	wire.Walk(req.Raw, func(m wire.Member) bool {
		p.members = append(p.members, m)
		return true
	})
	return p
}

// First returns the hash of the first block of the chain that Of returns, and takes no longer for a longer prompt: where it is
// not known the others are not either. There is none for a request that has no blocks.
func (p *Parsed) First(scope, model string) (hash [16]byte, ok bool) {
	w := writer{hash: sha256.New(), small: make([]byte, 0, 2048), first: true}
	w.chained(scope, model, p)
	if len(w.chain.Blocks) == 0 {
		return hash, false
	}
	return w.chain.Blocks[0].Hash, true
}

// errFirst ends a chain after its first block.
var errFirst = errors.New("one block is enough")

// chained writes a request.
func (w *writer) chained(scope, model string, p *Parsed) {
	req := p.req
	prompt := w.head(scope, model, p)
	switch {
	case prompt == nil:
	case prompt[0] == '"':
		w.text(prompt[1 : len(prompt)-1])
		w.block(mark{})
	case req.Kind == engine.Completion:
		w.tokens(prompt)
	case prompt[0] == '[' && req.Kind != engine.SystemOne:
		wire.Each(prompt, func(start, end int) bool {
			w.message(prompt[start:end])
			return w.err == nil
		})
	default:
		w.text(prompt)
		w.block(mark{})
	}
}

// writer hashes a request as one stream of bytes, so that each hash covers all that came before. What it writes looks
// like JSON: a text stands in quotes and has none, so nothing ends where something else could go on.
type writer struct {
	hash  hash.Hash
	small []byte // what is not yet hashed
	sum   [sha256.Size]byte
	chain Chain
	early mark // of the tools; counts at the end of the first message
	bytes int
	first bool // one block is enough
	err   error
}

// promptOf names the member that holds the prompt.
func promptOf(kind engine.Kind) string {
	switch kind {
	case engine.Chat:
		return "messages"
	case engine.Completion:
		return "prompt"
	case engine.Response, engine.Decision:
		return "input"
	case engine.SystemOne:
		return "state"
	}
	return ""
}

// head writes everything that comes before the prompt, and returns the prompt; nil where there is none.
func (w *writer) head(scope, model string, p *Parsed) []byte {
	req, name, members := p.req, p.name, p.members
	if name == "" {
		return nil
	}
	prompt := w.settings(name, req.Raw, members)
	if w.err != nil || len(prompt) == 0 || string(prompt) == "null" {
		return nil
	}
	w.field("1bit prefix 1")
	w.field(scope)
	w.field(w.chain.Key)
	w.field(model)
	w.field(name)
	for _, m := range members {
		value := req.Raw[m.Start:m.End]
		switch {
		case string(m.Key) == name || indifferent[string(m.Key)] || string(value) == "null":
		case string(m.Key) == "questions": // they stand behind the text that they are about
		case string(m.Key) == "tools":
			w.key(m.Key)
			w.tools(value)
		default:
			w.key(m.Key)
			w.put(value)
		}
	}
	w.write("}")
	return prompt
}

// settings finds the prompt and reads what the client says about keeping it.
func (w *writer) settings(name string, raw []byte, members []wire.Member) (prompt []byte) {
	for _, m := range members {
		value := raw[m.Start:m.End]
		switch string(m.Key) {
		case name:
			prompt = value
		case "prompt_cache_key":
			w.chain.Key, w.err = cacheKey(value)
		case "prompt_cache_options":
			w.err = w.chain.options(value)
		case "prompt_cache_retention": // the older form of the time
			if string(value) == `"24h"` && w.chain.TTL == 0 {
				w.chain.TTL = MaxTTL
			}
		}
		if w.err != nil {
			return nil
		}
	}
	return prompt
}

// field writes a text of any length so that no two rows of texts look alike. It does not count.
func (w *writer) field(s string) {
	w.small = append(binary.LittleEndian.AppendUint64(w.small, uint64(len(s))), s...)
}

func (w *writer) write(s string) {
	w.small = append(w.small, s...)
	w.bytes += len(s)
}

func (w *writer) put(b []byte) {
	w.bytes += len(b)
	if len(b) < 256 {
		w.small = append(w.small, b...)
		return
	}
	w.flush()
	w.hash.Write(b)
}

// flush hashes what was gathered of small texts.
func (w *writer) flush() {
	w.hash.Write(w.small)
	w.small = w.small[:0]
}

// key writes a member's name.
func (w *writer) key(key []byte) {
	w.write(`"`)
	if bytes.IndexByte(key, '"') >= 0 {
		key = bytes.ReplaceAll(key, []byte(`"`), []byte(`\"`))
	}
	w.put(key)
	w.write(`":`)
}

// block ends a block here.
func (w *writer) block(m mark) {
	if w.first && w.err != nil {
		return
	}
	w.flush()
	b := Block{Bytes: w.bytes, Mark: m.set, TTL: m.ttl}
	copy(b.Hash[:], w.hash.Sum(w.sum[:0]))
	w.chain.Blocks = append(w.chain.Blocks, b)
	if w.first {
		w.err = errFirst
	}
}

// text writes what stands between the quotes of a JSON string, and ends a block after every piece but the last.
func (w *writer) text(inner []byte) {
	w.write(`"`)
	for len(inner) > Piece {
		w.put(inner[:Piece])
		w.block(mark{})
		if w.err != nil {
			return
		}
		inner = inner[Piece:]
	}
	w.put(inner)
	w.write(`"`)
}

// tools writes the tools without their marks, which count at the end of the first message: models are told about their
// tools before that or right behind it.
func (w *writer) tools(value []byte) {
	ok := wire.Each(value, func(start, end int) bool {
		w.early = w.early.or(w.object(value[start:end]))
		return w.err == nil
	})
	if !ok {
		w.put(value)
	}
}

// object writes a value, an object without its marks, and returns these.
func (w *writer) object(value []byte) (m mark) {
	if value[0] != '{' {
		w.put(value)
		return m
	}
	w.write("{")
	wire.Walk(value, func(at wire.Member) bool {
		if isMark(at.Key) {
			m = m.or(w.mark(at.Key, value[at.Start:at.End]))
			return w.err == nil
		}
		w.key(at.Key)
		w.put(value[at.Start:at.End])
		return true
	})
	w.write("}")
	return m
}

// message writes one message or item: who says it and all else before the content, as templates do.
func (w *writer) message(value []byte) {
	var m mark
	if value[0] != '{' {
		w.put(value)
		w.block(m)
		return
	}
	w.write("{")
	var content []byte
	wire.Walk(value, func(at wire.Member) bool {
		v := value[at.Start:at.End]
		switch {
		case isMark(at.Key):
			m = m.or(w.mark(at.Key, v))
		case string(v) == "null":
		case string(at.Key) == "content", string(at.Key) == "output" && content == nil:
			content = v
		default:
			w.key(at.Key)
			w.put(v)
		}
		return w.err == nil
	})
	w.write("content")
	switch {
	case content == nil:
		w.text(nil)
	case content[0] == '"':
		w.text(content[1 : len(content)-1])
	case content[0] == '[':
		m = m.or(w.parts(content))
	default:
		w.put(content)
	}
	w.write("}")
	w.block(m.or(w.early))
	w.early = mark{}
}

// parts writes the parts of a content. Each ends a block; the last one's end is the message's, and so is its mark.
func (w *writer) parts(list []byte) (last mark) {
	first := true
	wire.Each(list, func(start, end int) bool {
		if !first {
			w.block(last)
		}
		first, last = false, w.part(list[start:end])
		return w.err == nil
	})
	return last
}

// part writes one part of a content: its text where it is nothing else.
func (w *writer) part(value []byte) (m mark) {
	if value[0] == '"' {
		w.text(value[1 : len(value)-1])
		return m
	}
	var text []byte
	plain := true
	wire.Walk(value, func(at wire.Member) bool {
		v := value[at.Start:at.End]
		switch {
		case string(at.Key) == "text" && v[0] == '"':
			text = v[1 : len(v)-1]
		case string(at.Key) == "type":
			t := string(v)
			plain = plain && (t == `"text"` || t == `"input_text"` || t == `"output_text"`)
		case isMark(at.Key):
			m = m.or(w.mark(at.Key, v))
		default:
			plain = false
		}
		return w.err == nil
	})
	if plain && text != nil {
		w.text(text)
		return m
	}
	before := w.bytes
	w.object(value)
	w.bytes = min(w.bytes, before+mediaBytes)
	return m
}

// tokens writes the prompt of a completion that is a list: of tokens, or of one prompt. Several prompts are no chain.
func (w *writer) tokens(list []byte) {
	count, numbers := 0, false
	var only []byte
	wire.Each(list, func(start, end int) bool {
		count++
		only = list[start:end]
		numbers = only[0] != '"' && only[0] != '['
		return !numbers
	})
	switch {
	case numbers:
		w.text(list)
	case count == 1 && only[0] == '[':
		w.text(only)
	case count == 1:
		w.text(only[1 : len(only)-1])
	default:
		return
	}
	w.block(mark{})
}

// thin leaves the newest marks only.
func (w *writer) thin() {
	left := Written
	if !w.chain.Explicit {
		left--
	}
	for i := len(w.chain.Blocks) - 1; i >= 0; i-- {
		b := &w.chain.Blocks[i]
		if b.Mark && left == 0 {
			b.Mark, b.TTL = false, 0
		} else if b.Mark {
			left--
		}
	}
}
