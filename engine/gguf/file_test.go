package gguf_test

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onebit/engine/gguf"
)

// everyKind sets one key of each kind that a file can hold.
var everyKind = []struct {
	key   string
	value any
}{
	{"u8", uint8(200)}, {"u8s", []uint8{0, 255}},
	{"i8", int8(-128)}, {"i8s", []int8{-1, 127}},
	{"u16", uint16(65535)}, {"u16s", []uint16{1, 65535}},
	{"i16", int16(-32768)}, {"i16s", []int16{-2, 2}},
	{"u32", uint32(4000000000)}, {"u32s", []uint32{3, 4000000000}},
	{"i32", int32(-2000000000)}, {"i32s", []int32{-3, 3}},
	{"u64", uint64(math.MaxUint64)}, {"u64s", []uint64{1, math.MaxUint64}},
	{"i64", int64(math.MinInt64)}, {"i64s", []int64{math.MinInt64, math.MaxInt64}},
	{"f32", float32(0.1)}, {"f32s", []float32{-0.5, float32(math.Inf(1))}},
	{"f64", 0.1}, {"f64s", []float64{1e300, -1e-300}},
	{"yes", true}, {"no", false}, {"bools", []bool{true, false, true}},
	{"s", "zwölf Boxkämpfer\x00\xff"}, {"empty", ""}, {"strings", []string{"", "a", "bc"}},
	{"none", []string{}}, {"zero", []uint32{}},
}

func writeAll(t *testing.T) []byte {
	t.Helper()
	w := gguf.NewWriter()
	for _, k := range everyKind {
		if err := w.Set(k.key, k.value); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []struct {
		name  string
		t     gguf.Type
		shape []uint64
		size  int
	}{
		{"vector", gguf.F32, []uint64{3}, 12},
		{"matrix", gguf.Q4_K, []uint64{512, 3}, 864},
		{"cube", gguf.F16, []uint64{2, 3, 4, 5}, 240},
	} {
		if err := w.Add(s.name, s.t, s.shape, bytes.Repeat([]byte(s.name[:1]), s.size)); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	n, err := w.WriteTo(&out)
	if err != nil || n != int64(out.Len()) {
		t.Fatalf("WriteTo = %d, %v; %d bytes came out", n, err, out.Len())
	}
	return out.Bytes()
}

func TestRoundTrip(t *testing.T) {
	b := writeAll(t)
	for _, version := range []byte{2, 3} {
		b[4] = version
		f, err := gguf.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		if f.Version() != uint32(version) {
			t.Errorf("Version = %d, want %d", f.Version(), version)
		}
		for i, k := range everyKind {
			if got := f.Keys()[i]; got != k.key {
				t.Errorf("key %d is %q, want %q", i, got, k.key)
			}
			got, ok := f.Value(k.key)
			if diff := cmp.Diff(k.value, got); diff != "" || !ok {
				t.Errorf("Value(%q), ok %v, differs (-want +got):\n%s", k.key, ok, diff)
			}
		}
		if got, ok := f.Value("absent"); ok {
			t.Errorf("Value of an absent key is %v", got)
		}
	}
}

func TestTensors(t *testing.T) {
	f, err := gguf.Parse(writeAll(t))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range f.Tensors() {
		names = append(names, s.Name)
		want := bytes.Repeat([]byte(s.Name[:1]), int(s.Size()))
		if !bytes.Equal(s.Data(), want) {
			t.Errorf("%s has data %x", s.Name, s.Data())
		}
		if f.Tensor(s.Name) != s {
			t.Errorf("Tensor(%q) is another one", s.Name)
		}
	}
	if diff := cmp.Diff([]string{"vector", "matrix", "cube"}, names); diff != "" {
		t.Errorf("names differ (-want +got):\n%s", diff)
	}
	m := f.Tensor("matrix")
	if m.Type != gguf.Q4_K || m.Elements() != 1536 || m.Size() != 864 || !cmp.Equal(m.Shape, []uint64{512, 3}) {
		t.Errorf("matrix is %v %v, %d elements, %d bytes", m.Type, m.Shape, m.Elements(), m.Size())
	}
	if f.Tensor("absent") != nil {
		t.Error("an absent tensor was found")
	}
}

func TestTypedAccess(t *testing.T) {
	f, err := gguf.Parse(writeAll(t))
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		Value any
		OK    bool
	}
	call := func(v any, ok bool) result { return result{v, ok} }
	for _, c := range []struct {
		name      string
		got, want result
	}{
		{"uint of u8", call(f.Uint("u8")), result{uint64(200), true}},
		{"uint of u64", call(f.Uint("u64")), result{uint64(math.MaxUint64), true}},
		{"int of i8", call(f.Int("i8")), result{int64(-128), true}},
		{"int of i16", call(f.Int("i16")), result{int64(-32768), true}},
		{"int of i32", call(f.Int("i32")), result{int64(-2000000000), true}},
		{"int of i64", call(f.Int("i64")), result{int64(math.MinInt64), true}},
		{"float of f32", call(f.Float("f32")), result{float64(float32(0.1)), true}},
		{"float of f64", call(f.Float("f64")), result{0.1, true}},
		{"float of u16", call(f.Float("u16")), result{65535.0, true}},
		{"float of i8", call(f.Float("i8")), result{-128.0, true}},
		{"bool", call(f.Bool("yes")), result{true, true}},
		{"string", call(f.String("empty")), result{"", true}},
		{"strings", call(f.Strings("strings")), result{[]string{"", "a", "bc"}, true}},
		{"floats of f32", call(f.Floats("f32s")), result{[]float32{-0.5, float32(math.Inf(1))}, true}},
		{"floats of f64", call(f.Floats("f64s")), result{[]float32{float32(math.Inf(1)), 0}, true}},
		{"ints of u8", call(f.Ints("u8s")), result{[]int64{0, 255}, true}},
		{"ints of i32", call(f.Ints("i32s")), result{[]int64{-3, 3}, true}},
		{"bools", call(f.Bools("bools")), result{[]bool{true, false, true}, true}},
	} {
		// -1e-300 becomes a negative zero, which is a zero to cmp.
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s differs (-want +got):\n%s", c.name, diff)
		}
	}
	for name, ok := range map[string]bool{
		"uint of a negative":    second(f.Uint("i8")),
		"uint of a float":       second(f.Uint("f32")),
		"uint of an array":      second(f.Uint("u32s")),
		"uint of nothing":       second(f.Uint("absent")),
		"int over the limit":    second(f.Int("u64")),
		"int of a string":       second(f.Int("s")),
		"ints over the limit":   second(f.Ints("u64s")),
		"ints of floats":        second(f.Ints("f32s")),
		"ints of a scalar":      second(f.Ints("u32")),
		"float of a bool":       second(f.Float("yes")),
		"floats of ints":        second(f.Floats("u8s")),
		"bool of an int":        second(f.Bool("u8")),
		"bools of a scalar":     second(f.Bools("yes")),
		"string of strings":     second(f.String("strings")),
		"strings of a string":   second(f.Strings("s")),
		"architecture of other": f.Architecture() != "",
	} {
		if ok {
			t.Errorf("%s was found", name)
		}
	}
}

func second[T any](_ T, ok bool) bool { return ok }

func TestUnknownTypes(t *testing.T) {
	f, err := gguf.Parse(head(3, 3, 1).
		str("general.architecture").text("later").
		tensor("a", 77, 0, 1000, 3).
		tensor("b", gguf.F32, 64, 8).
		tensor("c", 4, 96, 32).
		align(32).zeros(128))
	if err != nil {
		t.Fatal(err)
	}
	if f.Architecture() != "later" {
		t.Errorf("Architecture = %q", f.Architecture())
	}
	var unknown []string
	for _, s := range f.Unknown() {
		unknown = append(unknown, s.Name+" of "+s.Type.String())
		if s.Size() != 0 || s.Data() != nil {
			t.Errorf("%s has %d bytes, data %v", s.Name, s.Size(), s.Data())
		}
	}
	if diff := cmp.Diff([]string{"a of type 77", "c of type 4"}, unknown); diff != "" {
		t.Errorf("unknown tensors differ (-want +got):\n%s", diff)
	}
	if a := f.Tensor("a"); a.Elements() != 3000 {
		t.Errorf("a has %d elements", a.Elements())
	}
	if len(f.Tensor("b").Data()) != 32 {
		t.Error("b lost its data")
	}
}

func TestTypes(t *testing.T) {
	for _, c := range []struct {
		t            gguf.Type
		name         string
		elems, bytes int
	}{
		{gguf.F32, "F32", 1, 4}, {gguf.BF16, "BF16", 1, 2}, {gguf.Q4_0, "Q4_0", 32, 18},
		{gguf.Q4_K, "Q4_K", 256, 144}, {gguf.Q6_K, "Q6_K", 256, 210}, {gguf.MXFP4, "MXFP4", 32, 17},
		{gguf.IQ1_M, "IQ1_M", 256, 56}, {gguf.Q2_0, "Q2_0", 64, 18},
		{5, "type 5", 0, 0}, {43, "type 43", 0, 0}, {math.MaxUint32, "type 4294967295", 0, 0},
	} {
		elems, size, ok := c.t.Block()
		if elems != c.elems || size != c.bytes || ok != (c.elems > 0) || c.t.String() != c.name {
			t.Errorf("type %d is %v: %d elements in %d bytes, known %v", uint32(c.t), c.t, elems, size, ok)
		}
	}
}

func TestOpenCloseAndDrop(t *testing.T) {
	w := gguf.NewWriter()
	data := make([]byte, 1<<20)
	for i := range data {
		data[i] = byte(i * 7 >> 3)
	}
	must(t, w.Set("general.architecture", "llama"))
	must(t, w.Set("general.alignment", uint32(4096)))
	must(t, w.Add("small", gguf.F32, []uint64{1}, data[:4]))
	must(t, w.Add("big", gguf.I8, []uint64{1 << 20}, data))
	path := filepath.Join(t.TempDir(), "m.gguf")
	must(t, w.WriteFile(path))

	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	big := f.Tensor("big")
	for _, a := range []gguf.Advice{gguf.Sequential, gguf.Random, gguf.WillNeed, gguf.Normal} {
		f.Advise(nil, a)
		f.Advise(big, a)
	}
	if !bytes.Equal(big.Data(), data) {
		t.Error("data differ")
	}
	f.Drop(big)
	if !bytes.Equal(big.Data(), data) || !bytes.Equal(f.Tensor("small").Data(), data[:4]) {
		t.Error("data differ after they were dropped")
	}
	for range 2 {
		must(t, f.Close())
	}
	f.Drop(big)
	if big.Data() != nil || f.Architecture() != "" {
		t.Error("a closed file still has content")
	}
}

func TestOpenRefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	if _, err := gguf.Open(dir); err == nil {
		t.Error("a folder was opened")
	} else {
		wantDamage(t, err, "not a regular file")
	}
	if _, err := gguf.Open(filepath.Join(dir, "absent.gguf")); !os.IsNotExist(err) {
		t.Errorf("opening an absent file: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
