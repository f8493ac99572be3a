// Package guest is the built-in policy: it reads a routing policy once and then ranks the candidates of each request by it.
//
// policy.go is written in the small part of Go that ../compile makes WebAssembly of: whole numbers, floats and addresses in one
// flat memory, no slices, strings, allocation or packages. So the module has a few kilobytes, needs no other compiler than Go,
// touches three pages in a call, and costs what the same policy costs in C. This file stands in for what the compiler knows
// itself, so that the same source runs in the program: that is how policy files are checked before a module gets them, and how it
// is tested.
package guest

import (
	"encoding/binary"
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
)

func load8(at int32) int32       { return int32(memory[at]) }
func load64(at int32) int64      { return int64(binary.LittleEndian.Uint64(memory[at:])) }
func load32(at int32) int32      { return int32(binary.LittleEndian.Uint32(memory[at:])) }
func loadF(at int32) float64     { return math.Float64frombits(uint64(load64(at))) }
func store8(at, v int32)         { memory[at] = byte(v) }
func store32(at, v int32)        { binary.LittleEndian.PutUint32(memory[at:], uint32(v)) }
func store64(at int32, v int64)  { binary.LittleEndian.PutUint64(memory[at:], uint64(v)) }
func storeF(at int32, v float64) { store64(at, int64(math.Float64bits(v))) }

// word is the first eight bytes of a text as a number: what load64 finds where the text stands, with zeros behind a shorter one.
func word(text string) int64 {
	var b [8]byte
	copy(b[:], text)
	return int64(binary.LittleEndian.Uint64(b[:]))
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

// run calls f with a text in the guest's buffer.
func run(text []byte, f func(at, n int32) int64) (answer string) {
	at := buffer(int32(len(text)))
	if at == 0 {
		return "it is too long"
	}
	copy(memory[at:], text)
	said := f(at, int32(len(text)))
	return string(memory[said>>32 : said>>32+said&0xffffffff])
}

// Check says what is wrong with a policy, or nothing.
func Check(policy []byte) (wrong string) {
	mu.Lock()
	defer mu.Unlock()
	begin()
	return run(policy, configure)
}

// Decide says what the module answers to a request under a policy, which must be one that Check takes.
func Decide(policy, request []byte) string {
	mu.Lock()
	defer mu.Unlock()
	begin()
	if wrong := run(policy, configure); wrong != "" {
		return ""
	}
	return run(request, route)
}

func trailing(v int64) int32 { return int32(bits.TrailingZeros64(uint64(v))) }
func wide(v int32) int64     { return int64(v) }
func narrow(v int64) int32   { return int32(v) }
func float(v int32) float64  { return float64(v) }

var _ = marker // the host never calls it
