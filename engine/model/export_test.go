package model

// Rotation returns cosine and sine of each pair at a position, of the layers
// that see everything or of local ones, as passes use them.
func (m *Model) Rotation(local bool, pos int) (cos, sin []float32) {
	m.ropes.reserve(pos + 1)
	t := &m.ropes.kinds[0]
	if local {
		t = &m.ropes.kinds[1]
	}
	return t.at(pos)
}
