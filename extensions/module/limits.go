package module

// Limits bounds what a module may contain. Each bound answers an attack: a count that lies makes a compiler allocate,
// nesting and joins make it slow, tables and locals make it die.
type Limits struct {
	Bytes     int // the whole module
	Customs   int // custom sections
	Types     int
	Signature int // parameters, and results, of one type
	Imports   int
	Functions int
	Tables    int
	TableMin  uint32 // elements of a table at its start
	Pages     uint32 // linear memory at its start, in pages of 64 KiB
	Globals   int
	Exports   int
	Name      int // bytes of an imported or exported name
	Segments  int // element segments
	Elements  int // functions in one element segment
	Data      int // data segments

	Code     int // bytes of all bodies
	Body     int // bytes of one body
	Locals   int // locals of one function, without its parameters
	Nest     int // blocks inside blocks
	Loops    int // loops inside loops
	Joins    int // locals times blocks in one function: what a compiler's merging of values costs
	AllJoins int // the same over all functions
	BrTable  int // labels of one br_table
	Bulk     int // bulk instructions in one function
	metered  bool
}

// Default returns the limits for what a stranger uploads. Modules made by Go, TinyGo, Rust and Zig pass with room to spare.
func Default() Limits {
	return Limits{
		Bytes: 8 << 20, Customs: 64, Types: 2000, Signature: 64, Imports: 64, Functions: 20_000, Tables: 1, TableMin: 65_536,
		Pages: 512, Globals: 1000, Exports: 128, Name: 256, Segments: 1000, Elements: 65_536, Data: 200_000,
		Code: 8 << 20, Body: 128 << 10, Locals: 1000, Nest: 2048, Loops: 24, Joins: 100_000, AllJoins: 2_000_000, BrTable: 4096, Bulk: 512,
	}
}

// Metered returns the limits for a module within l after the metering rewrite. They also let in the names that the
// rewrite reserves. Bodies may be four times as large: a compiler still takes them in its stride.
func (l Limits) Metered() Limits {
	l.metered = true
	l.Types += 3
	l.Imports++
	l.Functions += 4
	l.Exports += l.Globals + 2
	l.Globals += 2
	l.Bytes = 4*l.Bytes + 64<<10
	l.Code = 4*l.Code + 64<<10
	l.Body = 4*l.Body + 64
	l.Nest++
	l.Joins = 2*l.Joins + l.Locals // a charge, one block, for each loop and for the entry
	l.AllJoins = 2*l.AllJoins + l.Locals*l.Functions
	return l
}
