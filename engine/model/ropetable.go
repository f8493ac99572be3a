package model

// ropeTables holds the cosines and sines of positions, page by page, made
// when a session first gets there.
type ropeTables struct {
	kinds [2]ropeTable // of the layers that see everything, and of local ones
}

type ropeTable struct {
	rope  *rope
	freq  []float64
	pages []ropePage
}

// ropePage is [pageTokens][dims/2] each.
type ropePage struct{ cos, sin []float32 }

func newRopeTables(p *params) ropeTables {
	var t ropeTables
	t.kinds[0] = ropeTable{rope: &p.rope, freq: p.rope.frequencies()}
	if p.window > 0 {
		t.kinds[1] = ropeTable{rope: &p.localRope, freq: p.localRope.frequencies()}
	}
	return t
}

// reserve makes the tables of positions up to n.
func (t *ropeTables) reserve(n int) {
	for i := range t.kinds {
		k := &t.kinds[i]
		if k.rope == nil {
			continue
		}
		for len(k.pages)*pageTokens < n {
			size := pageTokens * len(k.freq)
			pg := ropePage{make([]float32, size), make([]float32, size)}
			k.rope.table(k.freq, len(k.pages)*pageTokens, pageTokens, pg.cos, pg.sin)
			k.pages = append(k.pages, pg)
		}
	}
}

// at returns cosines and sines of a position.
func (t *ropeTable) at(pos int) (cos, sin []float32) {
	n := len(t.freq)
	pg := &t.pages[pos/pageTokens]
	from := pos % pageTokens * n
	return pg.cos[from : from+n], pg.sin[from : from+n]
}
