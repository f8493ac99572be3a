package module

import (
	"strings"

	"onebit/extensions/abi"
	"onebit/extensions/wasm"
)

// parser fills one Module. at and index say where it is, for refusals.
type parser struct {
	m       *Module
	l       Limits
	at      string
	index   int
	customs int
	bodies  bool
	joins   int    // locals times blocks, of all functions so far
	labels  []byte // the open blocks of the function that is read; reused from one to the next
}

const damaged = "build the module again; these bytes are damaged"

func (p *parser) refuse(remedy, format string, args ...any) error {
	return refuse(p.at, p.index, remedy, format, args...)
}

// check turns a reading error into a refusal.
func (p *parser) check(r *wasm.Reader) error {
	if err := r.Err(); err != nil {
		remedy := damaged
		if strings.Contains(err.Error(), "not in the profile") {
			remedy = "build for the profile in ABI.md: MVP, sign extension, saturating conversions, multiple values, bulk memory, SIMD"
		}
		return p.refuse(remedy, "%v", err)
	}
	return nil
}

// count reads how many things follow: no more than limit, and no more than there are bytes for, each taking at least size.
func (p *parser) count(r *wasm.Reader, what string, limit, size int) (int, error) {
	n := r.U32()
	if err := p.check(r); err != nil {
		return 0, err
	}
	if uint64(n) > uint64(limit) {
		return 0, p.refuse("make it smaller, or ask the operator for a larger limit", "%d %s, at most %d", n, what, limit)
	}
	if int64(n)*int64(size) > int64(r.Left()) {
		return 0, p.refuse(damaged, "%d %s do not fit in %d bytes", n, what, r.Left())
	}
	return int(n), nil
}

var names = [...]string{"custom", "type", "import", "function", "table", "memory", "global", "export", "start", "element", "code", "data", "data count"}

func (p *parser) sections(b []byte) error {
	r := wasm.NewReader(b)
	last := 0
	for r.Left() > 0 {
		p.at, p.index = "module", -1
		id := r.Byte()
		body := r.Take(r.U32())
		if err := p.check(r); err != nil {
			return err
		}
		if int(id) >= len(names) {
			return p.refuse("build for the profile in ABI.md, without exceptions", "section %d is not in the profile", id)
		}
		p.at = names[id]
		if id == wasm.Custom {
			if err := p.custom(body); err != nil {
				return err
			}
			continue
		}
		if wasm.Order(id) <= last {
			return p.refuse(damaged, "the section is out of order or there twice")
		}
		last = wasm.Order(id)
		p.m.Sections = append(p.m.Sections, Section{id, body})
		if err := p.section(id, wasm.NewReader(body)); err != nil {
			return err
		}
	}
	return p.check(r)
}

// custom bounds custom sections. Nobody reads them but the manifest's reader; the rewrite drops them.
func (p *parser) custom(body []byte) error {
	p.index, p.customs = p.customs, p.customs+1
	if p.customs > p.l.Customs {
		return p.refuse("strip the module", "over %d custom sections", p.l.Customs)
	}
	r := wasm.NewReader(body)
	r.Name(p.l.Name)
	return p.check(r)
}

func (p *parser) section(id byte, r *wasm.Reader) error {
	var err error
	switch id {
	case wasm.Type:
		err = p.types(r)
	case wasm.Import:
		err = p.imports(r)
	case wasm.Function:
		err = p.functions(r)
	case wasm.Table:
		err = p.tables(r)
	case wasm.Memory:
		err = p.memory(r)
	case wasm.Global:
		err = p.globals(r)
	case wasm.Export:
		err = p.exported(r)
	case wasm.Start:
		err = p.function(r.U32(), "the start function")
	case wasm.Element:
		err = p.elements(r)
	case wasm.Code:
		err = p.code(r)
	case wasm.Data:
		err = p.data(r)
	case wasm.DataCount:
		p.m.Data = int(r.U32())
		if p.m.Data > p.l.Data {
			err = p.refuse("merge data segments", "%d data segments, at most %d", p.m.Data, p.l.Data)
		}
	}
	if err != nil {
		return err
	}
	p.index = -1
	if err := p.check(r); err != nil {
		return err
	}
	if r.Left() > 0 {
		return p.refuse(damaged, "%d bytes follow the last item", r.Left())
	}
	return nil
}

func (p *parser) types(r *wasm.Reader) error {
	n, err := p.count(r, "types", p.l.Types, 3)
	for i := 0; i < n && err == nil; i++ {
		p.index = i
		if f := r.Byte(); f != 0x60 {
			return p.refuse(damaged, "form 0x%02x is not a function type", f)
		}
		var s Signature
		if s.Params, err = p.values(r); err != nil {
			return err
		}
		if s.Results, err = p.values(r); err != nil {
			return err
		}
		p.m.Types = append(p.m.Types, s)
	}
	return err
}

func (p *parser) values(r *wasm.Reader) ([]byte, error) {
	n, err := p.count(r, "parameters or results", p.l.Signature, 1)
	if err != nil {
		return nil, err
	}
	types := r.Take(uint32(n))
	for _, t := range types {
		if !wasm.IsNumber(t) {
			return nil, p.refuse("build without reference types", "value type 0x%02x is not in the profile", t)
		}
	}
	return types, p.check(r)
}

func (p *parser) imports(r *wasm.Reader) error {
	n, err := p.count(r, "imports", p.l.Imports, 4)
	for i := 0; i < n && err == nil; i++ {
		p.index = i
		im := Imported{Module: r.Name(p.l.Name), Name: r.Name(p.l.Name)}
		kind := r.Byte()
		if err := p.check(r); err != nil {
			return err
		}
		if kind != 0 {
			return p.refuse("only functions may be imported; let the module own its memory, tables and globals", "%q.%q is not a function", im.Module, im.Name)
		}
		if im.Module == abi.MeterModule && !p.l.metered {
			return p.refuse("the name belongs to the host", "%q may not be imported", im.Module)
		}
		im.Type = r.U32()
		if err := p.kind(im.Type); err != nil {
			return err
		}
		p.m.Imports = append(p.m.Imports, im)
	}
	return err
}

// kind checks a type index.
func (p *parser) kind(i uint32) error {
	if uint64(i) >= uint64(len(p.m.Types)) {
		return p.refuse(damaged, "type %d of %d", i, len(p.m.Types))
	}
	return nil
}

// function checks a function index.
func (p *parser) function(i uint32, who string) error {
	if n := len(p.m.Imports) + len(p.m.Functions); uint64(i) >= uint64(n) {
		return p.refuse(damaged, "%s is function %d of %d", who, i, n)
	}
	return nil
}

func (p *parser) functions(r *wasm.Reader) error {
	n, err := p.count(r, "functions", p.l.Functions, 1)
	for i := 0; i < n && err == nil; i++ {
		p.index = i
		t := r.U32()
		if err := p.kind(t); err != nil {
			return err
		}
		p.m.Functions = append(p.m.Functions, t)
	}
	return err
}

// bounds reads the least and, if there, the greatest size of a table or memory.
func (p *parser) bounds(r *wasm.Reader, most uint32) (low, high uint32, err error) {
	flags := r.Byte()
	if flags > 1 {
		return 0, 0, p.refuse("build without threads and 64-bit memory", "flags %d (shared or 64 bits)", flags)
	}
	low, high = r.U32(), most
	if flags == 1 {
		high = r.U32()
	}
	if err := p.check(r); err != nil {
		return 0, 0, err
	}
	if high < low || high > most {
		return 0, 0, p.refuse(damaged, "at least %d, at most %d", low, high)
	}
	return low, high, nil
}

func (p *parser) tables(r *wasm.Reader) error {
	n, err := p.count(r, "tables", p.l.Tables, 3)
	for i := 0; i < n && err == nil; i++ {
		p.index = i
		if t := r.Byte(); t != wasm.FuncRef {
			return p.refuse("build without reference types", "a table of type 0x%02x, not of functions", t)
		}
		low, _, err := p.bounds(r, 1<<32-1)
		if err != nil {
			return err
		}
		if low > p.l.TableMin {
			return p.refuse("link fewer functions into the table", "%d elements, at most %d", low, p.l.TableMin)
		}
		p.m.Tables++
	}
	return err
}

func (p *parser) memory(r *wasm.Reader) error {
	n, err := p.count(r, "memories", 1, 2)
	if n == 0 || err != nil {
		return err
	}
	p.index = 0
	p.m.HasMemory = true
	p.m.Pages, p.m.PagesMax, err = p.bounds(r, wasm.PageSize)
	if err == nil && p.m.Pages > p.l.Pages {
		return p.refuse("give the module less memory at its start, or ask the operator for more", "%d pages of 64 KiB, at most %d", p.m.Pages, p.l.Pages)
	}
	return err
}

func (p *parser) globals(r *wasm.Reader) error {
	n, err := p.count(r, "globals", p.l.Globals, 4)
	for i := 0; i < n && err == nil; i++ {
		p.index = i
		t, mutable := r.Byte(), r.Byte()
		switch {
		case !wasm.IsNumber(t):
			return p.refuse("build without reference types", "a global of type 0x%02x", t)
		case mutable > 1:
			return p.refuse(damaged, "mutability %d", mutable)
		case t == wasm.V128 && mutable == 1:
			return p.refuse("keep the value in memory", "a mutable global of type v128 cannot be restored between calls")
		}
		if _, err := p.constant(r); err != nil {
			return err
		}
		p.m.Globals = append(p.m.Globals, Variable{t, mutable == 1})
	}
	return err
}

// constant reads one constant and its end, and returns it when it is an i32.
func (p *parser) constant(r *wasm.Reader) (int64, error) {
	v := int64(-1)
	switch op := r.Byte(); op {
	case wasm.OpI32Const:
		v = int64(uint32(r.S64(32)))
	case wasm.OpI64Const:
		r.S64(64)
	case wasm.OpF32Const:
		r.Take(4)
	case wasm.OpF64Const:
		r.Take(8)
	case wasm.OpVector:
		if s := r.U32(); s != wasm.VectorConst {
			r.Fail("instruction 0xfd %d in a constant", s)
		}
		r.Take(16)
	default:
		r.Fail("instruction 0x%02x in a constant is not in the profile", op)
	}
	if b := r.Byte(); b != wasm.OpEnd {
		r.Fail("a constant of more than one instruction is not in the profile")
	}
	return v, p.check(r)
}

func (p *parser) exported(r *wasm.Reader) error {
	n, err := p.count(r, "exports", p.l.Exports, 3)
	seen := make(map[string]bool, n)
	for i := 0; i < n && err == nil; i++ {
		p.index = i
		e := Exported{Name: r.Name(p.l.Name), Kind: r.Byte(), Index: r.U32()}
		if err := p.check(r); err != nil {
			return err
		}
		if seen[e.Name] {
			return p.refuse("give each export its own name", "%q is exported twice", e.Name)
		}
		seen[e.Name] = true
		if strings.HasPrefix(e.Name, abi.MeterModule) && !p.l.metered {
			return p.refuse("choose another name", "names that begin with %q belong to the host", abi.MeterModule)
		}
		if err := p.exportIndex(e); err != nil {
			return err
		}
		p.m.Exports = append(p.m.Exports, e)
	}
	return err
}

func (p *parser) exportIndex(e Exported) error {
	have := 0
	switch e.Kind {
	case 0:
		return p.function(e.Index, "an export")
	case 1:
		have = p.m.Tables
	case 2:
		if p.m.HasMemory {
			have = 1
		}
	case 3:
		have = len(p.m.Globals)
	default:
		return p.refuse(damaged, "kind %d", e.Kind)
	}
	if uint64(e.Index) >= uint64(have) {
		return p.refuse(damaged, "%q is number %d of %d", e.Name, e.Index, have)
	}
	return nil
}

// whole checks what sections say of each other.
func (p *parser) whole() error {
	p.at, p.index = "module", -1
	if len(p.m.Functions) > 0 && !p.bodies {
		return p.refuse(damaged, "%d functions without a code section", len(p.m.Functions))
	}
	if n := len(p.m.Sections); p.m.Data > 0 && p.m.Sections[n-1].ID != wasm.Data {
		return p.refuse(damaged, "%d data segments are announced, none is there", p.m.Data)
	}
	return nil
}
