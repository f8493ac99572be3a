// Package guest is the built-in policy: it reads a routing policy once and then ranks the candidates of each request by it.
//
// policy.go is written in the small part of Go that ../compile makes WebAssembly of: whole numbers, floats and addresses in one
// flat memory, no slices, strings, allocation or packages. So the module has a few kilobytes, needs no other compiler than Go,
// touches three pages in a call, and costs what the same policy costs in C. This file stands in for what the compiler knows
// itself, so that the same source runs in the program: that is how policy files are checked, and where policies run.
// The module is what says which policy it is, and what the source is held to.
package guest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"sync"
)

// memory is the guest's, and literals are the texts in it that the source has written out.
var (
	memory   [memorySize]byte
	literals = map[string]int64{}
	next     = int32(literalsAt)
	mu       sync.Mutex // the guest has one memory

	left int64 // how many units it may still use
)

// The guest's variables, all of them: they are put back before each call.
var (
	numbers = [...]*int32{
		&pos, &end, &bad, &textAt, &textSize, &escaped, &top, &out, &rules, &terms, &names, &bufferAt, &class, &flags,
		&modelAt, &modelSize, &keyAt, &keySize, &apiAt, &apiSize, &firstAt, &candidates,
	}
	floats = [...]*float64{&confidence, &tokens, &hour, &turn}
)

func load8(at int32) int32   { return int32(memory[at]) }
func load64(at int32) int64  { return int64(binary.LittleEndian.Uint64(memory[at:])) }
func loadF(at int32) float64 { return math.Float64frombits(uint64(load64(at))) }

// load32 counts: what is neither the text of a request nor of a policy is made of it, and no loop but over a text, which has an
// end, does without.
func load32(at int32) int32 {
	if left -= looked; left < 0 {
		panic(ErrSpent)
	}
	return int32(binary.LittleEndian.Uint32(memory[at:]))
}

func store8(at, v int32)         { memory[at] = byte(v) }
func store32(at, v int32)        { binary.LittleEndian.PutUint32(memory[at:], uint32(v)) }
func store64(at int32, v int64)  { binary.LittleEndian.PutUint64(memory[at:], uint64(v)) }
func storeF(at int32, v float64) { store64(at, int64(math.Float64bits(v))) }

// word is the first eight bytes of a text as a number: what load64 finds where the text stands, with zeros behind a shorter one.
func word(text string) (w int64) {
	for i := min(len(text), 8) - 1; i >= 0; i-- {
		w = w<<8 | int64(text[i])
	}
	return w
}

// lit is where a text stands in memory, as address << 32 | length.
func lit(text string) int64 {
	if at, ok := literals[text]; ok {
		return at
	}
	copy(memory[next:tablesAt], text)
	at := int64(next)<<32 | int64(len(text))
	next += int32(len(text))
	if next > tablesAt {
		panic("the texts of the policy do not fit")
	}
	literals[text] = at
	return at
}

// looked is what a look at the tables or at a candidate counts. The module is charged about as much for it.
const looked = 8

// run calls f with a text in the guest's buffer. It may use so many units.
func run(text []byte, most int64, f func(at, n int32) int64) (answer []byte, err error) {
	left = most
	at := buffer(int32(min(len(text), maxText+1)))
	if at == 0 {
		return nil, ErrSize
	}
	defer func() {
		if p := recover(); p != nil {
			clear(memory[tablesAt:])
			if e, ok := p.(error); ok && errors.Is(e, ErrSpent) {
				err = e
			} else {
				err = fmt.Errorf("the policy went wrong: %v", p)
			}
		}
	}()
	copy(memory[at:], text)
	said := f(at, int32(len(text)))
	return bytes.Clone(memory[said>>32 : said>>32+said&0xffffffff]), nil
}

// Errors of a Policy's calls.
var (
	ErrSize  = errors.New("there are more bytes than the policy takes, or none")
	ErrSpent = errors.New("the policy has used all of its units")
)

// enough is more than reading any policy takes.
const enough = 1 << 40

// Pages is the memory in pages of a module.
const Pages = memorySize >> 16

// Policy is a policy that was read: the state from which the module answers each request.
type Policy struct {
	tables  []byte
	numbers [len(numbers)]int32
	floats  [len(floats)]float64
}

// New reads a policy. A wrong one is nil, with what is wrong with it.
func New(policy []byte) (p *Policy, wrong string) {
	mu.Lock()
	defer mu.Unlock()
	begin()
	said, err := run(policy, enough, configure)
	defer clear(memory[tablesAt:])
	switch {
	case errors.Is(err, ErrSize):
		return nil, "it is too long"
	case err != nil:
		return nil, err.Error()
	case len(said) > 0:
		return nil, string(said)
	}
	p = &Policy{tables: bytes.Clone(memory[tablesAt:top])}
	for i, n := range numbers {
		p.numbers[i] = *n
	}
	for i, f := range floats {
		p.floats[i] = *f
	}
	return p, ""
}

// Route says what the module answers to a request; nothing is no opinion. It uses so many units at most. What it leaves behind of
// one request the next cannot see. Calls may come at the same time; they wait for each other.
func (p *Policy) Route(request []byte, most int64) (answer []byte, used int64, err error) {
	mu.Lock()
	defer mu.Unlock()
	copy(memory[tablesAt:], p.tables)
	for i, n := range numbers {
		*n = p.numbers[i]
	}
	for i, f := range floats {
		*f = p.floats[i]
	}
	candidates, firstAt, out = 0, 0, 0
	answer, err = run(request, most, route)
	// behind the tables lie the request, the candidates with perhaps half of one, and the answer
	used = int64(max(int(bufferAt)+len(request), int(firstAt)+int(candidates+1)*candidateSize, int(out)) + 8)
	clear(memory[tablesAt:min(used, memorySize)])
	return answer, most - max(left, 0), err
}

// Check says what is wrong with a policy, or nothing.
func Check(policy []byte) (wrong string) {
	_, wrong = New(policy)
	return wrong
}

func trailing(v int64) int32 { return int32(bits.TrailingZeros64(uint64(v))) }
func wide(v int32) int64     { return int64(v) }
func narrow(v int64) int32   { return int32(v) }
func float(v int32) float64  { return float64(v) }

var _ = marker // the host never calls it
