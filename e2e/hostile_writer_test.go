//go:build unix

package e2e_test

import (
	"bytes"
	"slices"
)

// wasm is a module in the making. What is imported comes before what is defined.
type wasm struct {
	sigs    []string // "ii>l": i is i32, l is i64, d is f64
	imports [][]byte
	kinds   [][]byte // the type of each defined function
	bodies  [][]byte
	exports [][]byte
	tables  [][]byte
	memory  []byte // limits; nil for none
	globals [][]byte
	start   []byte
	data    [][]byte
}

func cat(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func text(s string) []byte { return sized([]byte(s)) }

func section(id byte, b []byte) []byte { return cat([]byte{id}, sized(b)) }

func (m *wasm) kind(sig string) byte {
	at := slices.Index(m.sigs, sig)
	if at < 0 {
		at, m.sigs = len(m.sigs), append(m.sigs, sig)
	}
	return byte(at)
}

func (m *wasm) imported(from, name, sig string) byte {
	m.imports = append(m.imports, cat(text(from), text(name), []byte{0, m.kind(sig)}))
	return byte(len(m.imports) - 1)
}

// function defines a function. locals are groups such as localsOf makes.
func (m *wasm) function(sig string, locals []byte, code ...[]byte) byte {
	m.kinds = append(m.kinds, []byte{m.kind(sig)})
	m.bodies = append(m.bodies, sized(locals, cat(code...), []byte{0x0b}))
	return byte(len(m.imports) + len(m.bodies) - 1)
}

func (m *wasm) export(name string, kind, index byte) {
	m.exports = append(m.exports, cat(text(name), []byte{kind, index}))
}

func (m *wasm) put(at int64, s string) {
	m.data = append(m.data, cat([]byte{0}, i32(at), []byte{0x0b}, text(s)))
}

func (m *wasm) bytes() []byte {
	letters := map[rune]byte{'i': 0x7f, 'l': 0x7e, 'd': 0x7c}
	var kinds [][]byte
	for _, s := range m.sigs {
		var sides [2][]byte
		at := 0
		for _, c := range s {
			if c == '>' {
				at = 1
				continue
			}
			sides[at] = append(sides[at], letters[c])
		}
		kinds = append(kinds, cat([]byte{0x60}, sized(sides[0]), sized(sides[1])))
	}
	b := cat([]byte("\x00asm\x01\x00\x00\x00"), section(1, listed(kinds...)))
	if m.imports != nil {
		b = append(b, section(2, listed(m.imports...))...)
	}
	b = append(b, section(3, listed(m.kinds...))...)
	if m.tables != nil {
		b = append(b, section(4, listed(m.tables...))...)
	}
	if m.memory != nil {
		b = append(b, section(5, listed(m.memory))...)
	}
	if m.globals != nil {
		b = append(b, section(6, listed(m.globals...))...)
	}
	b = append(b, section(7, listed(m.exports...))...)
	if m.start != nil {
		b = append(b, section(8, m.start)...)
	}
	b = append(b, section(10, listed(m.bodies...))...)
	if m.data != nil {
		b = append(b, section(11, listed(m.data...))...)
	}
	return b
}

// Instructions.
func i32(n int64) []byte         { return cat([]byte{0x41}, leb(n, true)) }
func i64(n int64) []byte         { return cat([]byte{0x42}, leb(n, true)) }
func get(n byte) []byte          { return []byte{0x20, n} }
func set(n byte) []byte          { return []byte{0x21, n} }
func invoke(f byte) []byte       { return []byte{0x10, f} }
func op(codes ...byte) []byte    { return codes }
func load32(at int64) []byte     { return cat(i32(at), op(0x28, 2, 0)) }
func load64(at int64) []byte     { return cat(i32(at), op(0x29, 3, 0)) }
func store32(at, v int64) []byte { return cat(i32(at), i32(v), op(0x36, 2, 0)) }

// must traps unless what code leaves is not 0.
func must(code ...[]byte) []byte { return cat(cat(code...), op(0x45, 0x04, 0x40, 0x00, 0x0b)) }

// is leaves whether an i32 is n.
func is(n int64, code ...[]byte) []byte { return cat(cat(code...), i32(n), op(0x46)) }

// forever repeats code for ever.
func forever(code ...[]byte) []byte { return cat(op(0x03, 0x40), cat(code...), op(0x0c, 0, 0x0b)) }

// repeated does code n times, counting down in a local of type i32.
func repeated(n int64, local byte, code ...[]byte) []byte {
	return cat(i32(n), set(local), op(0x03, 0x40), cat(code...), get(local), i32(1), op(0x6b, 0x22, local, 0x0d, 0, 0x0b))
}

// localsOf is one group of locals of type i32; none without any.
func localsOf(n int64) []byte {
	if n == 0 {
		return []byte{0}
	}
	return cat([]byte{1}, leb(n, false), []byte{0x7f})
}

// Where things lie in the memory of guests. The first is where the host writes a request of at most 64 KiB.
const (
	bufferAt = 4096
	answerAt = 73728
	wordsAt  = 256
)

const pageSize = 65536

// answered is an answer of so many bytes at a place.
func answered(at, length int64) []byte { return i64(at<<32 | length) }

// guest begins a module with everything that the contract wants but a deciding function. Its memory has 8 pages, and may
// grow as far as a policy's may. Imports must be there already.
func (m *wasm) guest() *wasm {
	m.memory = cat(op(1), leb(8, false), leb(512, false))
	m.export("memory", 2, 0)
	m.export("laya_abi_v1", 0, m.function(">", localsOf(0)))
	m.export("laya_buffer", 0, m.function("i>i", localsOf(0), i32(bufferAt)))
	return m
}

// routes adds the deciding function. It does code, which may return an answer, and has no opinion after it. Locals from 2 to 9
// are of type i32.
func (m *wasm) routes(code ...[]byte) *wasm {
	m.export("laya_route", 0, m.function("ii>l", localsOf(8), cat(code...), i64(0)))
	return m
}

// when does code as soon as the mark, which has 8 bytes, stands in the request; without a mark it does nothing.
func when(mark string, code ...[]byte) []byte {
	var wanted int64
	for i, c := range []byte(mark) {
		wanted |= int64(c) << (8 * i)
	}
	return cat(
		get(0), get(1), op(0x6a), i32(8), op(0x6b, 0x21, 2), // the last place
		op(0x02, 0x40, 0x03, 0x40), get(0), get(2), op(0x4b, 0x0d, 1),
		get(0), op(0x29, 0, 0), i64(wanted), op(0x51, 0x04, 0x40), cat(code...), op(0x0b),
		get(0), i32(1), op(0x6a, 0x21, 0, 0x0c, 0, 0x0b, 0x0b),
	)
}

// says is an answer that lies in the module.
func (m *wasm) says(answer string) []byte {
	m.put(answerAt, answer)
	return cat(answered(answerAt, int64(len(answer))), op(0x0f))
}
