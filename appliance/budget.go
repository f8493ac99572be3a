package main

import (
	"cmp"

	"onebit/appliance/config"
	"onebit/appliance/doctor"
	"onebit/appliance/pool"
	"onebit/engine"
	"onebit/engine/plan"
)

// budget says how much of a box's memory models may take. A reserve is left to everything else: what a plan leaves, but
// no more than an eighth, since small boxes have small models. It is kept out of what models may take in sum; of what is
// free now, where the others' part is taken already, half of it is. The configuration may set the reserve, and a limit
// for what models take in sum.
func budget(m doctor.Memory, c config.Memory) pool.Budget {
	reserve := min(plan.Reserve(m.Host.Total), m.Host.Total/8)
	if c.Reserve > 0 {
		reserve = uint64(c.Reserve)
	}
	less := func(n, part uint64) uint64 { return n - min(n, part) }
	b := pool.Budget{Graphics: map[engine.Device]pool.Memory{}}
	if m.Host.Total > 0 {
		b.Host = pool.Memory{Total: less(m.Host.Total, reserve), Free: less(m.Host.Free, reserve/2)}
	}
	for d, s := range m.Graphics {
		b.Graphics[d] = pool.Memory{Total: s.Total, Free: s.Free}
	}
	if m.Unified {
		b.Together = b.Host.Total + m.Carved
		for d, g := range b.Graphics {
			g.Total = min(g.Total, b.Together)
			b.Graphics[d] = g
		}
	}
	if limit := uint64(c.Limit); limit > 0 {
		b.Host.Total = min(b.Host.Total, limit)
		b.Together = min(cmp.Or(b.Together, limit), limit)
	}
	return b
}
