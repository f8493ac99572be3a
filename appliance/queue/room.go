package queue

import "fmt"

// Bounds are how many tickets may stand in all lines of a Room. 0 is no bound.
type Bounds struct {
	Length int // of everybody
	PerKey int // of one key
}

// Room is what the lines of a box share: how many tickets there may be.
type Room struct {
	bounds Bounds
	length int
	of     map[string]int // by key; none with 0
}

// NewRoom returns a Room without tickets.
func NewRoom(b Bounds) *Room { return &Room{bounds: b, of: map[string]int{}} }

// Bound changes the bounds. What stands in line already goes on standing there.
func (r *Room) Bound(b Bounds) { r.bounds = b }

// Len is how many tickets there are.
func (r *Room) Len() int { return r.length }

// Of is how many a key has.
func (r *Room) Of(key string) int { return r.of[key] }

func (r *Room) add(key string, n int) {
	r.length += n
	if r.of[key] += n; r.of[key] == 0 {
		delete(r.of, key)
	}
}

// Enter takes a place for somebody who waits beside the lines, until Leave. A *FullError says that there is none.
func (r *Room) Enter(key string, again bool) error {
	if err := r.Full(key, again); err != nil {
		return err
	}
	r.add(key, 1)
	return nil
}

// Leave gives such a place back.
func (r *Room) Leave(key string) { r.add(key, -1) }

// FullError says that there is no place in line.
type FullError struct {
	PerKey bool // the key's places are taken, else everybody's
	Length int  // how many wait: of the key, or of all
	Limit  int
}

// Error says which bound it is.
func (e *FullError) Error() string {
	whose := ""
	if e.PerKey {
		whose = " of this key"
	}
	return fmt.Sprintf("%d requests%s wait already, and up to %d may", e.Length, whose, e.Limit)
}

// Full returns why no ticket of a key may come in, or nil. The last quarter of a key's places is for those that come again
// after they had none: else whoever comes newly would take the place of who was told to come.
func (r *Room) Full(key string, again bool) error {
	n := r.bounds.PerKey
	if !again {
		n = (n*3 + 3) / 4
	}
	switch {
	case r.bounds.PerKey > 0 && r.of[key] >= n:
		return &FullError{PerKey: true, Length: r.of[key], Limit: n}
	case r.bounds.Length > 0 && r.length >= r.bounds.Length:
		return &FullError{Length: r.length, Limit: r.bounds.Length}
	}
	return nil
}
