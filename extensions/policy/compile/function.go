package main

import (
	"encoding/binary"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"math"
)

// function is one function on its way.
type function struct {
	*compiler
	decl   *ast.FuncDecl
	sign   *types.Signature
	locals map[types.Object]int
	kinds  []byte // of locals that are no parameters
	code   []byte
	depth  int    // open blocks
	loops  []loop // open loops
}

// loop knows how deep its two blocks are: leaving the outer one breaks, leaving the inner one goes on.
type loop struct{ outer, inner int }

func newFunction(c *compiler, d *ast.FuncDecl) *function {
	f := &function{compiler: c, decl: d, sign: c.info.Defs[d.Name].Type().(*types.Signature), locals: map[types.Object]int{}}
	for p := range f.sign.Params().Variables() {
		f.locals[p] = len(f.locals)
	}
	return f
}

// body is the function's code with its locals.
func (f *function) body() []byte {
	f.block(f.decl.Body)
	if f.sign.Results().Len() > 0 {
		f.emit(0x00) // unreachable: Go has seen to it that each way returns
	}
	out := unsigned(uint64(len(f.kinds)))
	for _, k := range f.kinds {
		out = append(out, 1, k)
	}
	return append(append(out, f.code...), 0x0b)
}

func (f *function) emit(b ...byte) { f.code = append(f.code, b...) }

func (f *function) index(op byte, n int) { f.code = append(append(f.code, op), unsigned(uint64(n))...) }

// local makes a local of a variable.
func (f *function) local(name *ast.Ident) int {
	o := f.info.Defs[name]
	if o == nil {
		fail(name, "%s is not declared here", name.Name)
	}
	n := f.sign.Params().Len() + len(f.kinds)
	f.locals[o] = n
	f.kinds = append(f.kinds, kindOf(name, o.Type()))
	return n
}

func (f *function) block(b *ast.BlockStmt) {
	for _, s := range b.List {
		f.statement(s)
	}
}

func (f *function) statement(s ast.Stmt) {
	switch s := s.(type) {
	case *ast.BlockStmt:
		f.block(s)
	case *ast.AssignStmt:
		f.assign(s)
	case *ast.IncDecStmt:
		op := token.ADD
		if s.Tok == token.DEC {
			op = token.SUB
		}
		f.expression(s.X)
		kind := f.kind(s.X)
		f.code = number(f.code, kind, constant.MakeInt64(1))
		f.operate(s, op, kind)
		f.store(s.X)
	case *ast.ExprStmt:
		call, ok := s.X.(*ast.CallExpr)
		if !ok {
			fail(s, "this does nothing")
		}
		if f.expression(call); !f.void(call) {
			f.emit(0x1a)
		}
	case *ast.ReturnStmt:
		for _, r := range s.Results {
			f.expression(r)
		}
		f.emit(0x0f)
	case *ast.IfStmt:
		f.branch(s)
	case *ast.ForStmt:
		f.loop(s)
	case *ast.DeclStmt:
		f.declare(s)
	case *ast.RangeStmt:
		f.times(s)
	case *ast.BranchStmt:
		f.leave(s)
	default:
		fail(s, "this statement is not in the part of Go that is compiled")
	}
}

// declare makes a variable that is zero.
func (f *function) declare(s *ast.DeclStmt) {
	d, ok := s.Decl.(*ast.GenDecl)
	if !ok || d.Tok != token.VAR {
		fail(s, "only variables are declared in functions")
	}
	for _, spec := range d.Specs {
		v := spec.(*ast.ValueSpec)
		if len(v.Values) > 0 {
			fail(s, "a variable with a value is written with :=")
		}
		for _, name := range v.Names {
			n := f.local(name)
			f.code = number(f.code, kindOf(name, f.info.Defs[name].Type()), constant.MakeInt64(0))
			f.index(0x21, n)
		}
	}
}

func (f *function) assign(s *ast.AssignStmt) {
	if len(s.Lhs) != 1 || len(s.Rhs) != 1 {
		fail(s, "one value is assigned at a time")
	}
	op, compound := compounds[s.Tok]
	if compound {
		f.expression(s.Lhs[0])
	}
	f.expression(s.Rhs[0])
	switch {
	case compound:
		f.operate(s, op, f.kind(s.Lhs[0]))
	case s.Tok == token.DEFINE:
		f.index(0x21, f.local(s.Lhs[0].(*ast.Ident)))
		return
	}
	f.store(s.Lhs[0])
}

var compounds = map[token.Token]token.Token{
	token.ADD_ASSIGN: token.ADD, token.SUB_ASSIGN: token.SUB, token.MUL_ASSIGN: token.MUL, token.OR_ASSIGN: token.OR, token.AND_ASSIGN: token.AND,
}

// store writes what is on the stack to a variable.
func (f *function) store(to ast.Expr) {
	name, ok := to.(*ast.Ident)
	if !ok {
		fail(to, "only variables are assigned to")
	}
	f.variable(name, 0x21, 0x24)
}

// variable reads or writes one, by the instruction for a local or for a global.
func (f *function) variable(name *ast.Ident, local, global byte) {
	o := f.info.Uses[name]
	if n, ok := f.locals[o]; ok {
		f.index(local, n)
		return
	}
	n, ok := f.globals[o]
	if !ok {
		fail(name, "%s is no variable", name.Name)
	}
	f.index(global, n)
}

// open begins a block of a kind: block, loop or if.
func (f *function) open(op byte) {
	f.emit(op, 0x40)
	f.depth++
}

func (f *function) end() {
	f.emit(0x0b)
	f.depth--
}

func (f *function) branch(s *ast.IfStmt) {
	if s.Init != nil {
		fail(s, "an if without a statement before the condition")
	}
	f.expression(s.Cond)
	f.open(0x04)
	f.block(s.Body)
	if s.Else != nil {
		f.emit(0x05)
		f.statement(s.Else)
	}
	f.end()
}

func (f *function) loop(s *ast.ForStmt) {
	if s.Init != nil {
		f.statement(s.Init)
	}
	f.open(0x02)
	outer := f.depth
	f.open(0x03)
	again := f.depth
	if s.Cond != nil {
		f.expression(s.Cond)
		f.emit(0x45)
		f.index(0x0d, f.depth-outer)
	}
	f.open(0x02)
	f.loops = append(f.loops, loop{outer, f.depth})
	f.block(s.Body)
	f.loops = f.loops[:len(f.loops)-1]
	f.end()
	if s.Post != nil {
		f.statement(s.Post)
	}
	f.index(0x0c, f.depth-again)
	f.end()
	f.end()
}

// times is a loop over the whole numbers below one, which is found out once.
func (f *function) times(s *ast.RangeStmt) {
	name, ok := s.Key.(*ast.Ident)
	if !ok || s.Value != nil || s.Tok != token.DEFINE || f.kind(s.X) != i32 {
		fail(s, "only a number is ranged over")
	}
	most := f.sign.Params().Len() + len(f.kinds)
	f.kinds = append(f.kinds, i32)
	f.expression(s.X)
	f.index(0x21, most)
	n := f.local(name)
	f.emit(0x41, 0)
	f.index(0x21, n)
	f.open(0x02)
	outer := f.depth
	f.open(0x03)
	again := f.depth
	f.index(0x20, n)
	f.index(0x20, most)
	f.emit(0x4e)
	f.index(0x0d, f.depth-outer)
	f.open(0x02)
	f.loops = append(f.loops, loop{outer, f.depth})
	f.block(s.Body)
	f.loops = f.loops[:len(f.loops)-1]
	f.end()
	f.index(0x20, n)
	f.emit(0x41, 1, 0x6a)
	f.index(0x21, n)
	f.index(0x0c, f.depth-again)
	f.end()
	f.end()
}

func (f *function) leave(s *ast.BranchStmt) {
	if s.Label != nil || len(f.loops) == 0 {
		fail(s, "only the innermost loop is left")
	}
	l := f.loops[len(f.loops)-1]
	switch s.Tok {
	case token.BREAK:
		f.index(0x0c, f.depth-l.outer)
	case token.CONTINUE:
		f.index(0x0c, f.depth-l.inner)
	default:
		fail(s, "%s", s.Tok)
	}
}

func (f *function) kind(e ast.Expr) byte { return kindOf(e, f.info.Types[e].Type) }

func (f *function) void(call *ast.CallExpr) bool { return f.info.Types[call].IsVoid() }

// expression leaves a value on the stack.
func (f *function) expression(e ast.Expr) {
	if t := f.info.Types[e]; t.Value != nil {
		f.code = number(f.code, f.kind(e), t.Value)
		return
	}
	switch e := e.(type) {
	case *ast.ParenExpr:
		f.expression(e.X)
	case *ast.Ident:
		f.variable(e, 0x20, 0x23)
	case *ast.UnaryExpr:
		f.unary(e)
	case *ast.BinaryExpr:
		f.binary(e)
	case *ast.CallExpr:
		f.call(e)
	default:
		fail(e, "this expression is not in the part of Go that is compiled")
	}
}

func (f *function) unary(e *ast.UnaryExpr) {
	kind := f.kind(e)
	switch {
	case e.Op == token.NOT:
		f.expression(e.X)
		f.emit(0x45)
	case e.Op == token.SUB && kind == f64:
		f.expression(e.X)
		f.emit(0x9a)
	case e.Op == token.SUB:
		f.code = number(f.code, kind, constant.MakeInt64(0))
		f.expression(e.X)
		f.operate(e, token.SUB, kind)
	default:
		fail(e, "the operator %s", e.Op)
	}
}

func (f *function) binary(e *ast.BinaryExpr) {
	switch e.Op {
	case token.LAND, token.LOR:
		f.expression(e.X)
		f.emit(0x04, i32)
		f.depth++
		if e.Op == token.LAND {
			f.expression(e.Y)
			f.emit(0x05, 0x41, 0)
		} else {
			f.emit(0x41, 1, 0x05)
			f.expression(e.Y)
		}
		f.end()
		return
	}
	x, y := f.info.Types[e.X].Value, f.info.Types[e.Y].Value
	one := e.X
	if x != nil {
		one = e.Y
	}
	kind := f.kind(one)
	if x != nil && (e.Op == token.SHL || e.Op == token.SHR) {
		kind = f.kind(e)
	}
	f.operand(e.X, x, kind)
	f.operand(e.Y, y, kind)
	f.operate(e, e.Op, kind)
}

// operand leaves one side of an operator on the stack. A constant takes the type of the other side.
func (f *function) operand(e ast.Expr, v constant.Value, kind byte) {
	if v != nil {
		f.code = number(f.code, kind, v)
		return
	}
	if f.kind(e) != kind {
		fail(e, "both sides of an operator have one type")
	}
	f.expression(e)
}

// operators are the instructions of each operator for int32, int64 and float64; 0 where there is none.
var operators = map[token.Token][3]byte{
	token.ADD: {0x6a, 0x7c, 0xa0}, token.SUB: {0x6b, 0x7d, 0xa1}, token.MUL: {0x6c, 0x7e, 0xa2}, token.QUO: {0x6d, 0x7f, 0xa3}, token.REM: {0x6f, 0x81, 0},
	token.AND: {0x71, 0x83, 0}, token.OR: {0x72, 0x84, 0}, token.XOR: {0x73, 0x85, 0}, token.SHL: {0x74, 0x86, 0}, token.SHR: {0x75, 0x87, 0},
	token.EQL: {0x46, 0x51, 0x61}, token.NEQ: {0x47, 0x52, 0x62}, token.LSS: {0x48, 0x53, 0x63}, token.GTR: {0x4a, 0x55, 0x64},
	token.LEQ: {0x4c, 0x57, 0x65}, token.GEQ: {0x4e, 0x59, 0x66},
}

func (f *function) operate(at ast.Node, op token.Token, kind byte) {
	column := map[byte]int{i32: 0, i64: 1, f64: 2}[kind]
	if op == token.AND_NOT {
		f.code = append(number(f.code, kind, constant.MakeInt64(-1)), operators[token.XOR][column])
		op = token.AND
	}
	b := operators[op][column]
	if b == 0 {
		fail(at, "the operator %s for this type", op)
	}
	f.emit(b)
}

func (f *function) call(e *ast.CallExpr) {
	name, ok := e.Fun.(*ast.Ident)
	if !ok {
		fail(e, "only functions of this file are called")
	}
	if name.Name == "lit" || name.Name == "word" {
		f.literal(e, name.Name)
		return
	}
	if f.info.Types[e.Fun].IsType() {
		f.expression(e.Args[0])
		if f.kind(e) != f.kind(e.Args[0]) {
			fail(e, "conversions are called wide, narrow and float")
		}
		return
	}
	for _, a := range e.Args {
		f.expression(a)
	}
	if code, ok := instructions[name.Name]; ok {
		f.emit(code...)
		return
	}
	n, ok := f.functions[f.info.Uses[name]]
	if !ok {
		fail(e, "%s is no function of this file", name.Name)
	}
	f.index(0x10, n)
}

// literal is what lit and word make of a text.
func (f *function) literal(e *ast.CallExpr, name string) {
	value := f.info.Types[e.Args[0]].Value
	if value == nil {
		fail(e, "%s takes a constant text", name)
	}
	s := constant.StringVal(value)
	var v int64
	if name == "lit" {
		v = f.place(s)
	} else {
		var b [8]byte
		copy(b[:], s)
		v = int64(binary.LittleEndian.Uint64(b[:]))
	}
	f.code = number(f.code, i64, constant.MakeInt64(v))
}

// number appends a constant.
func number(code []byte, kind byte, v constant.Value) []byte {
	switch {
	case v.Kind() == constant.Bool && constant.BoolVal(v):
		return append(code, 0x41, 1)
	case v.Kind() == constant.Bool:
		return append(code, 0x41, 0)
	case kind == f64:
		x, _ := constant.Float64Val(v)
		return binary.LittleEndian.AppendUint64(append(code, 0x44), math.Float64bits(x))
	}
	n, _ := constant.Int64Val(constant.ToInt(v))
	if kind == i32 {
		return append(append(code, 0x41), signed(n)...)
	}
	return append(append(code, 0x42), signed(n)...)
}

// text appends a name as modules have them.
func text(s string) []byte { return append(unsigned(uint64(len(s))), s...) }

// unsigned is a number in LEB128.
func unsigned(n uint64) []byte { return binary.AppendUvarint(nil, n) }

// signed is a number in signed LEB128.
func signed(n int64) (b []byte) {
	for {
		c := byte(n & 0x7f)
		n >>= 7
		if n == 0 && c&0x40 == 0 || n == -1 && c&0x40 != 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}
