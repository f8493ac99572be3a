// Command compile makes the built-in policy's module of its source: WebAssembly of a small part of Go.
//
// The part: one file without imports; constants; variables and functions of the types int32, int64, float64 and bool, with one
// result at most; assignment, if, for, break, continue and return; calls. Memory is reached by functions that are declared here and
// become instructions: load8, store32 and their like. lit places a text in memory, word makes a number of one. A function is
// exported under the name that a line "//export NAME" over it gives. Anything else is an error with its place.
//
//	go run ./extensions/policy/compile SOURCE.go OUT.wasm
package main

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"strings"
)

// builtin declares what the compiler knows itself.
const builtin = `package guest
func load8(at int32) int32
func load32(at int32) int32
func load64(at int32) int64
func loadF(at int32) float64
func store8(at, v int32)
func store32(at, v int32)
func store64(at int32, v int64)
func storeF(at int32, v float64)
func trailing(v int64) int32
func wide(v int32) int64
func narrow(v int64) int32
func float(v int32) float64
func word(text string) int64
func lit(text string) int64
`

// instructions are the functions that become one or two instructions.
var instructions = map[string][]byte{
	"load8": {0x2d, 0, 0}, "load32": {0x28, 0, 0}, "load64": {0x29, 0, 0}, "loadF": {0x2b, 0, 0},
	"store8": {0x3a, 0, 0}, "store32": {0x36, 0, 0}, "store64": {0x37, 0, 0}, "storeF": {0x39, 0, 0},
	"trailing": {0x7a, 0xa7}, "wide": {0xac}, "narrow": {0xa7}, "float": {0xb7},
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: compile SOURCE.go OUT.wasm")
		os.Exit(2)
	}
	source, err := os.ReadFile(os.Args[1])
	if err == nil {
		var module []byte
		if module, err = compile(os.Args[1], source); err == nil {
			err = os.WriteFile(os.Args[2], module, 0o644)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "compile:", err)
		os.Exit(1)
	}
}

// compiler is one translation on its way.
type compiler struct {
	set   *token.FileSet
	info  *types.Info
	texts []byte           // all literals
	at    map[string]int64 // where each is
	base  int64            // of texts

	globals   map[types.Object]int
	functions map[types.Object]int
}

// problem is a mistake in the source.
type problem struct {
	at   token.Pos
	text string
}

func fail(at ast.Node, format string, args ...any) {
	panic(problem{at.Pos(), fmt.Sprintf(format, args...)})
}

// compile makes a module.
func compile(name string, source []byte) (module []byte, err error) {
	c := &compiler{
		set: token.NewFileSet(), at: map[string]int64{}, globals: map[types.Object]int{}, functions: map[types.Object]int{},
		info: &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}},
	}
	defer func() {
		if p, ok := recover().(problem); ok {
			err = fmt.Errorf("%s: %s", c.set.Position(p.at), p.text)
		}
	}()
	file, err := parser.ParseFile(c.set, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	known, err := parser.ParseFile(c.set, "builtin.go", builtin, 0)
	if err != nil {
		return nil, err
	}
	pkg, err := (&types.Config{}).Check("guest", c.set, []*ast.File{known, file}, c.info)
	if err != nil {
		return nil, err
	}
	c.base = c.constant(file, pkg, "literalsAt")
	return c.module(file, pkg), nil
}

func (c *compiler) constant(at ast.Node, pkg *types.Package, name string) int64 {
	k, ok := pkg.Scope().Lookup(name).(*types.Const)
	if !ok {
		fail(at, "there is no constant %s", name)
	}
	v, _ := constant.Int64Val(k.Val())
	return v
}

// module puts the sections together.
func (c *compiler) module(file *ast.File, pkg *types.Package) []byte {
	var functions []*ast.FuncDecl
	var globals, signatures, exports, bodies [][]byte
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.GenDecl:
			if d.Tok == token.VAR {
				globals = append(globals, c.variables(d, len(globals))...)
			}
		case *ast.FuncDecl:
			c.functions[c.info.Defs[d.Name]] = len(functions)
			functions = append(functions, d)
		}
	}
	exports = append(exports, append(text("memory"), 2, 0))
	for i, d := range functions {
		signatures = append(signatures, signature(d, c.info.Defs[d.Name].Type().(*types.Signature)))
		if name := exported(d); name != "" {
			exports = append(exports, append(text(name), append([]byte{0}, unsigned(uint64(i))...)...))
		}
		body := newFunction(c, d).body()
		bodies = append(bodies, append(unsigned(uint64(len(body))), body...))
	}
	var indices [][]byte
	for i := range functions {
		indices = append(indices, unsigned(uint64(i)))
	}
	if end := c.base + int64(len(c.texts)); end > c.constant(file, pkg, "tablesAt") {
		fail(file, "the texts end at %d, over the tables", end)
	}
	pages := unsigned(uint64(c.constant(file, pkg, "memorySize") >> 16))
	data := append([]byte{0, 0x41}, signed(c.base)...)
	data = append(append(append(data, 0x0b), unsigned(uint64(len(c.texts)))...), c.texts...)
	out := []byte("\x00asm\x01\x00\x00\x00")
	for _, s := range []struct {
		id    byte
		items [][]byte
	}{
		{1, signatures}, {3, indices}, {5, [][]byte{append(append([]byte{1}, pages...), pages...)}}, {6, globals}, {7, exports}, {10, bodies}, {11, [][]byte{data}},
	} {
		content := unsigned(uint64(len(s.items)))
		for _, i := range s.items {
			content = append(content, i...)
		}
		out = append(append(append(out, s.id), unsigned(uint64(len(content)))...), content...)
	}
	return out
}

// exported is the name under which a function is exported; empty when it is not.
func exported(d *ast.FuncDecl) string {
	if d.Doc == nil {
		return ""
	}
	for _, line := range d.Doc.List {
		if name, ok := strings.CutPrefix(line.Text, "//export "); ok {
			return strings.TrimSpace(name)
		}
	}
	return ""
}

// variables are the globals of a declaration.
func (c *compiler) variables(d *ast.GenDecl, n int) (all [][]byte) {
	for _, s := range d.Specs {
		s := s.(*ast.ValueSpec)
		for i, name := range s.Names {
			o := c.info.Defs[name]
			kind := kindOf(name, o.Type())
			value := constant.MakeInt64(0)
			if len(s.Values) > i {
				if value = c.info.Types[s.Values[i]].Value; value == nil {
					fail(s.Values[i], "a global begins with a constant")
				}
			}
			c.globals[o] = n
			n++
			all = append(all, append(number([]byte{kind, 1}, kind, value), 0x0b))
		}
	}
	return all
}

func signature(at ast.Node, s *types.Signature) []byte {
	b := append([]byte{0x60}, unsigned(uint64(s.Params().Len()))...)
	for p := range s.Params().Variables() {
		b = append(b, kindOf(at, p.Type()))
	}
	if s.Results().Len() > 1 {
		fail(at, "a function has one result at most")
	}
	b = append(b, byte(s.Results().Len()))
	for r := range s.Results().Variables() {
		b = append(b, kindOf(at, r.Type()))
	}
	return b
}

// The value types.
const (
	i32 = 0x7f
	i64 = 0x7e
	f64 = 0x7c
)

func kindOf(at ast.Node, t types.Type) byte {
	if b, ok := t.Underlying().(*types.Basic); ok {
		switch b.Kind() {
		case types.Int32, types.Bool, types.UntypedBool, types.UntypedRune:
			return i32
		case types.Int64:
			return i64
		case types.Float64:
			return f64
		}
	}
	fail(at, "the type %s; there are int32, int64, float64 and bool", t)
	return 0
}

// place is where a literal stands, as address << 32 | length.
func (c *compiler) place(s string) int64 {
	if at, ok := c.at[s]; ok {
		return at
	}
	at := (c.base+int64(len(c.texts)))<<32 | int64(len(s))
	c.texts = append(c.texts, s...)
	c.at[s] = at
	return at
}
