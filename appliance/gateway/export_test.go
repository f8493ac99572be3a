package gateway

import "onebit/engine"

// Remembered is how many conversations a table holds.
const Remembered = remembered

// Table is a table of numbers.
type Table struct{ t *table[int] }

func NewTable() Table { return Table{newTable[int]()} }

func (t Table) Set(body string, v int) { t.t.set(identityOf(body), v) }

func (t Table) Get(body string) (int, bool) { return t.t.get(identityOf(body)) }

func identityOf(body string) conversation { return identity(&engine.Request{Raw: []byte(body)}) }

// Same reports whether two bodies belong to one conversation.
func Same(a, b string) bool { return identityOf(a) == identityOf(b) }
