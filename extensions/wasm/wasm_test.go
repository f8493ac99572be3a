package wasm_test

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"onebit/extensions/wasm"
)

func TestNumbers(t *testing.T) {
	for _, v := range []uint32{0, 1, 127, 128, 624485, math.MaxUint32} {
		r := wasm.NewReader(wasm.AppendU32(nil, v))
		if got := r.U32(); got != v || r.Err() != nil || r.Left() != 0 {
			t.Errorf("%d read back as %d, %v, %d left", v, got, r.Err(), r.Left())
		}
	}
	for _, v := range []int64{0, -1, 63, 64, -64, -65, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64} {
		r := wasm.NewReader(wasm.AppendS64(nil, v))
		if got := r.S64(64); got != v || r.Err() != nil || r.Left() != 0 {
			t.Errorf("%d read back as %d, %v, %d left", v, got, r.Err(), r.Left())
		}
	}
}

func TestWrongNumbers(t *testing.T) {
	ff := func(n int, last ...byte) []byte { return append(bytes.Repeat([]byte{0xff}, n), last...) }
	tests := []struct {
		name string
		b    []byte
		bits int // 0 for U32
		ok   bool
	}{
		{"u32: largest", ff(4, 0x0f), 0, true},
		{"u32: padded", []byte{0x80, 0x80, 0x80, 0x80, 0}, 0, true},
		{"u32: a bit too many", ff(4, 0x1f), 0, false},
		{"u32: a byte too many", []byte{0x80, 0x80, 0x80, 0x80, 0x80, 0}, 0, false},
		{"u32: ends early", ff(2), 0, false},
		{"s32: least", []byte{0x80, 0x80, 0x80, 0x80, 0x78}, 32, true},
		{"s32: under it", []byte{0x80, 0x80, 0x80, 0x80, 0x70}, 32, false},
		{"s32: over the largest", []byte{0x80, 0x80, 0x80, 0x80, 0x08}, 32, false},
		{"s33: over 32 bits", []byte{0x80, 0x80, 0x80, 0x80, 0x08}, 33, true},
		{"s64: -1 in ten bytes", ff(9, 0x7f), 64, true},
		{"s64: a bit too many", ff(9, 0x01), 64, false},
		{"s64: a byte too many", ff(10, 0x7f), 64, false},
	}
	for _, tt := range tests {
		r := wasm.NewReader(tt.b)
		if tt.bits == 0 {
			r.U32()
		} else {
			r.S64(tt.bits)
		}
		if (r.Err() == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, r.Err())
		}
	}
}

func TestErrorSticks(t *testing.T) {
	r := wasm.NewReader([]byte{1, 2, 3})
	r.Take(4)
	first := r.Err()
	if r.Byte() != 0 || r.U32() != 0 || r.S64(64) != 0 || r.Name(9) != "" || r.Take(1) != nil || r.Left() != 0 || !errors.Is(r.Err(), first) || first == nil {
		t.Errorf("the reader went on after %v", first)
	}
}

// FuzzInstruction reads instructions until the bytes end or fail: it stops, within the bytes.
func FuzzInstruction(f *testing.F) {
	f.Add([]byte{0x41, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x0e, 2, 0, 1, 2, 0xfc, 10, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := wasm.NewReader(b)
		for r.Left() > 0 {
			at := r.Pos()
			r.Instruction()
			if r.Pos() <= at && r.Err() == nil || r.Pos() > len(b) {
				t.Fatalf("from byte %d to %d of %d", at, r.Pos(), len(b))
			}
		}
	})
}
