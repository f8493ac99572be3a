package store

import (
	"context"
	"encoding/hex"
	"hash/maphash"
	"sync/atomic"
)

// The size of known: with as many names as it takes one in four hundred that is new looks as if it were known.
const (
	knownBits   = 1 << 24 // a power of two
	knownProbes = 4
	knownMost   = 1 << 20 // names
)

const allNames = "select name from conversation_names union all select id from conversations"

// known remembers by which names conversations are known, so that a new one, which is what most begin as, is not looked for
// on the disk. It may take a new name for a known one, and never a known one for new: names are only ever added. What has
// been deleted stays until the next start.
type known struct {
	bits  [knownBits / 64]atomic.Uint64
	count atomic.Int64
	whole atomic.Bool // all that is on the disk is in it
}

// add takes a name in. What is no name is none that anybody finds.
func (k *known) add(name string) {
	b, err := hex.DecodeString(name)
	if err != nil || len(b) != 16 {
		return
	}
	k.addBytes(b)
}

func (k *known) addBytes(b []byte) {
	fresh := false
	for _, at := range probes(b) {
		bit := uint64(1) << (at % 64)
		fresh = k.bits[at/64].Or(bit)&bit == 0 || fresh
	}
	if fresh && k.count.Add(1) > knownMost {
		k.whole.Store(false) // it would say yes to too much: the disk knows better
	}
}

var knownSeed = maphash.MakeSeed()

// probes are the bits of a name.
func probes(b []byte) (at [knownProbes]uint64) {
	h := maphash.Bytes(knownSeed, b)
	for i := range at {
		at[i] = (h + uint64(i)*(h>>32|1)) % knownBits
	}
	return at
}

// may reports whether any of the names may be known.
func (k *known) may(names []string) bool {
	if !k.whole.Load() {
		return true
	}
	for _, name := range names {
		b, err := hex.DecodeString(name)
		if err != nil || len(b) != 16 || k.has(b) {
			return true
		}
	}
	return false
}

func (k *known) has(b []byte) bool {
	for _, at := range probes(b) {
		if k.bits[at/64].Load()&(1<<(at%64)) == 0 {
			return false
		}
	}
	return true
}

// learn takes in the names on the disk. Whoever names another one meanwhile adds it.
func (s *Store) learn(ctx context.Context) error {
	rows, err := s.r.Query(ctx, allNames)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var name []byte
		if err := rows.Scan(&name); err != nil {
			return err
		}
		if len(name) == 16 {
			s.known.addBytes(name)
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	s.known.whole.Store(s.known.count.Load() <= knownMost)
	return nil
}
