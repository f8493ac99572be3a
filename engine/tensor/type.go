package tensor

import "fmt"

// Type is the storage format of weights as they lie in a model file. The
// numbers are those of the GGUF format.
type Type uint32

// The types this package computes with.
const (
	F32  Type = 0
	F16  Type = 1
	Q4_0 Type = 2
	Q4_1 Type = 3
	Q5_0 Type = 6
	Q5_1 Type = 7
	Q8_0 Type = 8
	Q4_K Type = 12
	Q5_K Type = 13
	Q6_K Type = 14
	BF16 Type = 30
)

// format says how a type is stored: name, weights and bytes of one block.
type format struct {
	name         string
	elems, bytes int
}

func (t Type) format() format {
	switch t {
	case F32:
		return format{"F32", 1, 4}
	case F16:
		return format{"F16", 1, 2}
	case BF16:
		return format{"BF16", 1, 2}
	case Q4_0:
		return format{"Q4_0", 32, 18}
	case Q4_1:
		return format{"Q4_1", 32, 20}
	case Q5_0:
		return format{"Q5_0", 32, 22}
	case Q5_1:
		return format{"Q5_1", 32, 24}
	case Q8_0:
		return format{"Q8_0", 32, 34}
	case Q4_K:
		return format{"Q4_K", 256, 144}
	case Q5_K:
		return format{"Q5_K", 256, 176}
	case Q6_K:
		return format{"Q6_K", 256, 210}
	}
	return format{}
}

// Block returns the weights and the bytes of one block. ok is false when this
// package cannot compute with the type.
func (t Type) Block() (elems, bytes int, ok bool) {
	f := t.format()
	return f.elems, f.bytes, f.elems != 0
}

// String returns the name as model files spell it, such as "Q4_K".
func (t Type) String() string {
	if f := t.format(); f.elems != 0 {
		return f.name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// isFloat reports whether weights of the type are floating-point numbers,
// which no scale or offset goes with.
func (t Type) isFloat() bool { return t == F32 || t == F16 || t == BF16 }

// Types lists every type that this package computes with.
func Types() []Type {
	return []Type{F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K}
}
