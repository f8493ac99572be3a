package main

import (
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

const head = `package guest
const (
	literalsAt = 1024
	tablesAt = 2048
	memorySize = 65536
)
`

// TestCompileRefuses: what is not in the part of Go that is compiled is an error with its place.
func TestCompileRefuses(t *testing.T) {
	for _, tt := range []struct{ source, want string }{
		{"func f() { x := \"a\"; _ = x }", "the type string"},
		{"func f() string { return \"a\" }", "the type string"},
		{"func f() int { return 1 }", "the type int"},
		{"func f() (int32, int32) { return 1, 2 }", "one result at most"},
		{"func f(a int32) { a, b := a, a; load8(b) }", "one value is assigned at a time"},
		{"func f(a int32) { switch a { case 1: } }", "this statement is not"},
		{"func f(a int32) { if b := a; b > 0 { } }", "without a statement before the condition"},
		{"func f(a float64) float64 { return a; }\nfunc g() { for { goto end }; end: }", "only the innermost loop is left"},
		{"func f(a [2]int32) int32 { return a[0] }", "the type [2]int32"},
		{"func f(a int32) { x := wide(a) + 1; store64(a, x); lit(string(rune(a))) }", "lit takes a constant text"},
		{"func f() int64 { return lit(\"" + strings.Repeat("x", 2000) + "\") }", "over the tables"},
		{"func f() { g() }", "undefined: g"},
		{"var x int32 = load8(0)", "begins with a constant"},
	} {
		_, err := compile("source.go", []byte(head+tt.source))
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "source.go:") {
			t.Errorf("%s: %v, want %q", tt.source, err, tt.want)
		}
	}
}

// TestCompile: what is in it becomes a sound module.
func TestCompile(t *testing.T) {
	code, err := compile("source.go", []byte(head+`
var total int32 = 7

// add adds up.
//
//export add
func add(n int32) int32 {
	var sum int32
	for i := range n {
		if i&1 == 0 && i < 100 || i == 7 {
			continue
		}
		for j := i; ; j-- {
			if j == 0 || !(j > -5) {
				break
			}
			sum += j
		}
		total |= sum &^ 3
	}
	return sum + total
}

//export share
func share(a float64, n int64) float64 {
	if n >= 1<<40 {
		return -a
	}
	return a/3.5 + float(narrow(n>>3))
}
`))
	if err != nil {
		t.Fatal(err)
	}
	r := wazero.NewRuntime(t.Context())
	defer r.Close(t.Context())
	m, err := r.Instantiate(t.Context(), code)
	if err != nil {
		t.Fatal(err)
	}
	for n := range int32(30) {
		got, err := m.ExportedFunction("add").Call(t.Context(), api.EncodeI32(n))
		if err != nil || api.DecodeI32(got[0]) != add(n) {
			t.Errorf("add(%d) is %v, want %d; %v", n, got, add(n), err)
		}
		for _, big := range []int64{int64(n) << 20, int64(n) << 40, -int64(n)} {
			a := float64(n) * 1.25
			got, err := m.ExportedFunction("share").Call(t.Context(), api.EncodeF64(a), api.EncodeI64(big))
			if err != nil || api.DecodeF64(got[0]) != share(a, big) {
				t.Errorf("share(%v, %d) is %v, want %v; %v", a, big, got, share(a, big), err)
			}
		}
	}
}

var total int32 = 7

func add(n int32) int32 {
	var sum int32
	for i := range n {
		if i&1 == 0 && i < 100 || i == 7 {
			continue
		}
		for j := i; ; j-- {
			if j == 0 || !(j > -5) {
				break
			}
			sum += j
		}
		total |= sum &^ 3
	}
	return sum + total
}

func share(a float64, n int64) float64 {
	if n >= 1<<40 {
		return -a
	}
	return a/3.5 + float64(int32(n>>3))
}
