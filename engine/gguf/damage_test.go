package gguf_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"onebit/engine/gguf"
)

var update = flag.Bool("update", false, "write the files under testdata anew")

// raw builds a file byte by byte, sound or not.
type raw []byte

func (b raw) u8(v byte) raw     { return append(b, v) }
func (b raw) u32(v uint32) raw  { return binary.LittleEndian.AppendUint32(b, v) }
func (b raw) u64(v uint64) raw  { return binary.LittleEndian.AppendUint64(b, v) }
func (b raw) str(s string) raw  { return append(b.u64(uint64(len(s))), s...) }
func (b raw) zeros(n int) raw   { return append(b, make([]byte, n)...) }
func (b raw) align(n int) raw   { return b.zeros(-len(b) & (n - 1)) }
func (b raw) cut(n int) raw     { return b[:len(b)-n] }
func (b raw) text(s string) raw { return b.u32(8).str(s) }

// head begins a file.
func head(version uint32, tensors, keys uint64) raw {
	return raw("GGUF").u32(version).u64(tensors).u64(keys)
}

// tensor appends the description of one tensor.
func (b raw) tensor(name string, t gguf.Type, offset uint64, shape ...uint64) raw {
	b = b.str(name).u32(uint32(len(shape)))
	for _, e := range shape {
		b = b.u64(e)
	}
	return b.u32(uint32(t)).u64(offset)
}

// sound is a small file with nothing wrong.
func sound(version uint32) raw {
	return head(version, 2, 3).
		str("general.architecture").text("llama").
		str("llama.block_count").u32(4).u32(2).
		str("tokenizer.ggml.tokens").u32(9).u32(8).u64(3).str("a").str("").str("bc").
		tensor("a.weight", gguf.F32, 0, 4, 2).
		tensor("b.weight", gguf.Q8_0, 32, 32).
		align(32).zeros(32 + 34)
}

// one is a file with one tensor and the data of size bytes.
func one(t gguf.Type, size int, offset uint64, shape ...uint64) raw {
	return head(3, 1, 0).tensor("a", t, offset, shape...).align(32).zeros(size)
}

// damaged lists files that must be refused: each with a part of the reason.
// The files lie under testdata/damaged too, for tests of whole programs.
var damaged = []struct {
	name string
	file raw
	want string
}{
	{"empty", nil, "file ends within the magic number"},
	{"magic-cut", raw("GG"), "file ends within the magic number"},
	{"magic-other", raw("GGJT").u32(3).zeros(64), `not a GGUF file: it begins with "GGJT"`},
	{"version-cut", raw("GGUF").zeros(3), "file ends within the version"},
	{"version-0", head(0, 0, 0), "unknown version 0"},
	{"version-1", raw("GGUF").u32(1).u32(0).u32(0), "version 1 is not supported"},
	{"version-4", head(4, 0, 0), "unknown version 4"},
	{"version-big-endian", raw("GGUF\x00\x00\x00\x03").zeros(16), "big-endian file (version 3)"},
	{"counts-cut", raw("GGUF").u32(3).u64(0).zeros(7), "file ends within the key count"},
	{"tensor-count-lies", head(3, 1<<60, 0), "tensor count 1152921504606846976 is over the limit"},
	{"tensor-count-negative", head(3, math.MaxUint64, 0), "is over the limit"},
	{"tensor-count-over-file", head(3, 1000, 0).zeros(999), "tensor count 1000 is more than the rest of the file can hold"},
	{"key-count-lies", head(3, 0, 1<<60), "key count 1152921504606846976 is over the limit"},
	{"key-count-over-file", head(3, 0, 65000).zeros(999), "key count 65000 is more than the rest of the file can hold"},
	{"key-missing", head(3, 0, 2).str("a").u32(4).u32(1).str("bcdefghi").zeros(3), "file ends within the kind of a value"},
	{"key-empty", head(3, 0, 1).str("").u32(4).u32(1).zeros(8), "key is empty"},
	{"key-huge", head(3, 0, 1).u64(1 << 62).zeros(32), "key of 4611686018427387904 bytes is longer than the rest of the file"},
	{"key-negative", head(3, 0, 1).u64(math.MaxUint64).zeros(32), "key of 18446744073709551615 bytes is longer"},
	{"key-over-limit", head(3, 0, 1).str(strings.Repeat("k", 1<<16)).u32(4).u32(1), "key of 65536 bytes is longer than 65535"},
	{"key-twice", head(3, 0, 2).str("a").u32(4).u32(1).str("a").u32(4).u32(1), `duplicate key "a"`},
	{"kind-unknown", head(3, 0, 1).str("a").u32(13).u64(1), `key "a" has a value of unknown kind 13`},
	{"kind-negative", head(3, 0, 1).str("a").u32(math.MaxUint32).u64(1), "unknown kind 4294967295"},
	{"value-cut", head(3, 0, 1).str("abc").u32(10).u32(1), "file ends within a value"},
	{"bool-2", head(3, 0, 1).str("a").u32(7).u8(2), `key "a" has a bool of value 2`},
	{"bool-in-array-255", head(3, 0, 1).str("a").u32(9).u32(7).u64(2).u8(1).u8(255), `key "a" has a bool of value 255`},
	{"string-huge", head(3, 0, 1).str("a").u32(8).u64(1 << 40).zeros(64), "string of 1099511627776 bytes is longer than the rest of the file"},
	{"string-wraps", head(3, 0, 1).str("a").u32(8).u64(math.MaxUint64 - 7).zeros(64), "longer than the rest of the file"},
	{"string-in-array-huge", head(3, 0, 1).str("a").u32(9).u32(8).u64(2).str("x").u64(1 << 33).zeros(64), "string in an array of 8589934592 bytes is longer"},
	{"array-huge", head(3, 0, 1).str("a").u32(9).u32(4).u64(1 << 40).zeros(64), "array of 1099511627776 elements in key \"a\" is longer"},
	{"array-wraps", head(3, 0, 1).str("a").u32(9).u32(10).u64(1<<61 + 1).zeros(64), "is longer than the rest of the file"},
	{"array-of-strings-huge", head(3, 0, 1).str("a").u32(9).u32(8).u64(1 << 31).zeros(64), "is longer than the rest of the file"},
	{"array-nested", head(3, 0, 1).str("a").u32(9).u32(9).u64(1).u32(4).u64(1).u32(1), `key "a" holds an array of arrays`},
	{"array-kind-unknown", head(3, 0, 1).str("a").u32(9).u32(99).u64(1).zeros(64), "unknown kind 99"},
	{"alignment-3", head(3, 0, 1).str("general.alignment").u32(4).u32(3), "alignment 3 is not a power of two"},
	{"alignment-0", head(3, 0, 1).str("general.alignment").u32(4).u32(0), "alignment 0 is not a power of two"},
	{"alignment-kind", head(3, 0, 1).str("general.alignment").u32(10).u64(32), "general.alignment is not a uint32"},
	{"alignment-beyond-file", head(3, 1, 1).str("general.alignment").u32(4).u32(1<<31).tensor("a", gguf.F32, 0, 1).align(32).zeros(32), "file ends before the tensor data at byte 2147483648"},
	{"name-empty", head(3, 1, 0).tensor("", gguf.F32, 0, 1).align(32).zeros(32), "tensor name is empty"},
	{"name-huge", head(3, 1, 0).u64(1 << 50).zeros(64), "tensor name of 1125899906842624 bytes is longer than the rest"},
	{"name-over-limit", head(3, 1, 0).tensor(strings.Repeat("n", 256), gguf.F32, 0, 1).align(32).zeros(32), "tensor name of 256 bytes is longer than 255"},
	{"name-twice", head(3, 2, 0).tensor("a", gguf.F32, 0, 1).tensor("a", gguf.F32, 32, 1).align(32).zeros(64), `duplicate tensor "a"`},
	{"dimensions-0", head(3, 1, 0).tensor("a", gguf.F32, 0).zeros(64), `tensor "a" has 0 dimensions`},
	{"dimensions-5", one(gguf.F32, 64, 0, 1, 1, 1, 1, 1), `tensor "a" has 5 dimensions, not 1 to 4`},
	{"dimensions-lie", head(3, 1, 0).str("a").u32(math.MaxUint32).zeros(64), "has 4294967295 dimensions"},
	{"shape-0", one(gguf.F32, 64, 0, 4, 0), "shape [4 0] has no elements"},
	{"shape-wraps", one(gguf.F32, 64, 0, 1<<32, 1<<32), "has too many elements"},
	{"shape-wraps-to-small", one(gguf.F32, 64, 0, 1<<63, 2, 1<<63, 2), "has too many elements"},
	{"shape-negative", one(gguf.F32, 64, 0, math.MaxUint64), "has too many elements"},
	{"shape-bytes-wrap", one(gguf.F64, 64, 0, 1<<61), "has too many elements"},
	{"shape-no-multiple-of-block", one(gguf.Q4_0, 64, 0, 33), "row of 33 elements is no multiple of the block of 32 of Q4_0"},
	{"shape-no-multiple-of-superblock", one(gguf.Q4_K, 144, 0, 128, 2), "row of 128 elements is no multiple of the block of 256 of Q4_K"},
	{"shape-cut", head(3, 1, 0).str("abcdefgh").u32(4).u64(1).u64(1), "file ends within the shape of a tensor"},
	{"offset-cut", head(3, 1, 0).tensor("abcdefgh", gguf.F32, 0, 1).cut(1), "file ends within the offset of a tensor"},
	{"offset-misaligned", one(gguf.F32, 64, 4, 1), `tensor "a" at offset 4 is not aligned to 32`},
	{"offset-misaligned-64", head(3, 1, 1).str("general.alignment").u32(4).u32(64).tensor("a", gguf.F32, 32, 1).align(64).zeros(64), "at offset 32 is not aligned to 64"},
	{"offset-beyond-file", one(gguf.F32, 64, 64, 1), `tensor "a" of 4 bytes at offset 64 lies beyond the end of the file`},
	{"offset-wraps", one(gguf.F32, 64, math.MaxUint64-31, 16), "lies beyond the end of the file"},
	{"data-cut", one(gguf.F32, 63, 0, 16), `tensor "a" of 64 bytes at offset 0 lies beyond the end of the file`},
	{"data-missing", head(3, 1, 0).tensor("a", gguf.F32, 0, 1), "file ends before the tensor data"},
	{"data-petabytes", one(gguf.F32, 64, 0, 1<<50), "lies beyond the end of the file"},
	{"unknown-type-beyond-file", one(77, 64, 64, 32), `tensor "a" of 0 bytes at offset 64 lies beyond the end of the file`},
	{"unknown-type-wraps", one(77, 64, 0, 1<<40, 1<<40), "has too many elements"},
	{"overlap", head(3, 2, 0).tensor("a", gguf.F32, 0, 16).tensor("b", gguf.F32, 32, 16).align(32).zeros(96), `tensors "a" and "b" overlap`},
	{"overlap-same", head(3, 2, 0).tensor("a", gguf.F32, 32, 8).tensor("b", gguf.F32, 32, 8).align(32).zeros(64), `tensors "a" and "b" overlap`},
	{"overlap-out-of-order", head(3, 3, 0).tensor("a", gguf.F32, 64, 8).tensor("b", gguf.F32, 32, 8).tensor("c", gguf.F32, 0, 9).align(32).zeros(96), `tensors "c" and "b" overlap`},
	{"overlap-unknown-type", head(3, 2, 0).tensor("a", gguf.F32, 0, 16).tensor("b", 77, 32, 16).align(32).zeros(96), `tensors "a" and "b" overlap`},
}

func TestDamagedFilesAreRefusedByName(t *testing.T) {
	for _, c := range damaged {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join("testdata", "damaged", c.name+".gguf")
			if *update {
				if err := os.WriteFile(path, c.file, 0o666); err != nil {
					t.Fatal(err)
				}
			}
			if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, c.file) {
				t.Fatalf("%s differs from what the test builds (error %v)", path, err)
			}
			f, err := gguf.Open(path)
			if err == nil {
				f.Close()
				t.Fatal("Open accepted the file")
			}
			wantDamage(t, err, c.want)
			if _, err := gguf.Parse(guarded(t, c.file)); err == nil {
				t.Error("Parse accepted the file")
			} else {
				wantDamage(t, err, c.want)
			}
		})
	}
}

func wantDamage(t *testing.T, err error, want string) {
	t.Helper()
	damage, ok := errors.AsType[*gguf.DamageError](err)
	if !ok {
		t.Errorf("error %v is no DamageError", err)
	} else if !strings.Contains(damage.What, want) {
		t.Errorf("the reason is %q, want %q in it", damage.What, want)
	}
}

// Every beginning of a sound file but the whole is damaged, whichever byte it
// ends at; the padding after the last tensor may be missing.
func TestTruncatedAnywhere(t *testing.T) {
	whole := sound(3)
	for n := range whole {
		if _, err := gguf.Parse(guarded(t, whole[:n])); err == nil {
			t.Errorf("%d of %d bytes were accepted", n, len(whole))
		}
	}
	if _, err := gguf.Parse(guarded(t, whole)); err != nil {
		t.Errorf("the whole file was refused: %v", err)
	}
}

// No file makes the parser take much memory, neither by lying about counts nor
// by being full of the smallest records that the format has.
func TestMemoryIsBounded(t *testing.T) {
	files := map[string]raw{}
	for _, c := range damaged {
		files[c.name] = c.file
	}
	keys := head(3, 0, 1<<16)
	for i := range 1 << 16 {
		keys = keys.u64(3).u8(byte(i)).u8(byte(i >> 8)).u8('k').u32(0).u8(1)
	}
	files["65536 keys"] = keys
	tensors := head(3, 1<<17, 0)
	for i := range 1 << 17 {
		tensors = tensors.u64(3).u8(byte(i)).u8(byte(i >> 8)).u8(byte(i >> 16)).u32(4).
			u64(1).u64(1).u64(1).u64(1).u32(0).u64(uint64(i) * 32)
	}
	files["131072 tensors"] = tensors.align(32).zeros(32 << 17)
	long := head(3, 0, 600)
	for i := range 600 {
		key := strings.Repeat(string(rune('A'+i%26)), 1<<16-16) + string(rune('A'+i/26))
		long = long.str(key).u32(0).u8(1)
	}
	files["long keys"] = long
	files["strings"] = head(3, 0, 1).str("a").u32(9).u32(8).u64(8 << 20).zeros(64 << 20)

	for name, file := range files {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f, err := gguf.Parse(file)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 100<<20 {
			t.Errorf("%s: parsing took %d MB", name, took>>20)
		} else if took > 1<<20 {
			t.Logf("%s: parsing took %d MB, error %v", name, took>>20, err)
		}
		runtime.KeepAlive(f)
	}
}

// Arrays stay in the file until they are asked for.
func TestParsingDoesNotCopyArrays(t *testing.T) {
	tokens := head(3, 0, 1).str("tokenizer.ggml.tokens").u32(9).u32(8).u64(100000)
	for range 100000 {
		tokens = tokens.str("token")
	}
	allocs := testing.AllocsPerRun(5, func() {
		if _, err := gguf.Parse(tokens); err != nil {
			t.Fatal(err)
		}
	})
	if allocs > 20 {
		t.Errorf("parsing a vocabulary took %v allocations", allocs)
	}
}
