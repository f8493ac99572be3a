package pool

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"onebit/appliance/queue"
	"onebit/engine"
	"onebit/engine/backend"
)

// ModelSpec is one model that the pool may load.
type ModelSpec struct {
	Name    string          // the served name
	Options backend.Options // what Start makes a process of
	Version string          // another one means that what is loaded is out of date, although the options are the same
	Need    Need            // the memory that it takes; zero is admitted without a check
	TTL     time.Duration   // unloaded after so long without a request; 0 for never
	Pinned  bool            // stays loaded: it is neither evicted nor unloaded for being idle
	Preload bool            // loaded without waiting for a request
	Start   Start           // brings it up in place of the pool's own; nil for that. Another one comes with another Version
}

// same reports whether what was loaded for one spec serves another.
func (s ModelSpec) same(o ModelSpec) bool {
	return s.Version == o.Version && reflect.DeepEqual(s.Options, o.Options)
}

// Need is the memory that a model takes, in bytes.
type Need struct {
	Device engine.Device // whose memory Bytes are of; empty and the processor mean the machine's
	Bytes  uint64        // weights, cache and work buffers
	Host   uint64        // of the machine's memory beside them
}

// onCard reports whether Bytes are of a card's memory.
func (n Need) onCard() bool {
	return n.Device != "" && n.Device != engine.CPU && n.Device != engine.NPU
}

// Memory is one kind of memory, in bytes.
type Memory struct {
	Total uint64 // what all our models together may take of it
	Free  uint64 // what of it can be had now
}

// Budget is the memory that there is for models. A kind that is not known is left out and admits everything.
type Budget struct {
	Host     Memory
	Graphics map[engine.Device]Memory // what programs on a device can have of the cards' memory
	Together uint64                   // what models on cards and elsewhere may take in sum where both draw on the same memory; 0 for no such limit
}

// Instance is a loaded model.
type Instance interface {
	Backend() engine.Backend
	Info() engine.Info
	Done() <-chan struct{} // closed when the instance has ended, by Stop or by itself
	Err() error            // why it ended by itself; nil before, and after Stop
	Stop()                 // ends it and returns when nothing of it is left; may be called more than once
}

// Start loads a model and returns once it serves. When ctx ends it gives up and leaves nothing behind.
type Start func(ctx context.Context, spec ModelSpec) (Instance, error)

// Phase is where a model stands.
type Phase string

// The phases.
const (
	Unloaded Phase = "unloaded"
	Waiting  Phase = "waiting" // requests wait for memory or for others to end
	Loading  Phase = "loading"
	Loaded   Phase = "loaded"
	Draining Phase = "draining" // the last requests of what is to go are running
	Failed   Phase = "failed"   // it is not tried again before RetryAt
)

// Status is a look at one model.
type Status struct {
	Name     string
	Phase    Phase
	Busy     int // requests that hold it
	Waiting  int // requests that wait for it
	Need     Need
	Pinned   bool
	TTL      time.Duration
	Since    time.Time // when it was loaded
	Used     time.Time // when the last request ended
	Expires  time.Time // when it will be unloaded for being idle; zero for never
	Failures int       // in a row
	RetryAt  time.Time
	Reason   string // why it failed, or what it waits for
	Slots    int    // that it has; 0 when that is not known
	Line     Line
}

// Line is a look at those that wait for a model.
type Line struct {
	Lengths [len(queue.Priorities)]int // in the order of queue.Priorities
	Keys    int                        // of how many keys
	Oldest  time.Time                  // when the one came that has waited longest; zero when nobody waits
	Wait    time.Duration              // until one that came now would have a slot, as estimated; 0 when it has one at once
}

// Count is what has happened to one model since the program started.
type Count struct {
	Name      string
	Requests  int64 // leases given
	Loads     int64
	Evictions int64 // to make room
	Swaps     int64 // loads for which others were sent away
	Refused   int64 // requests that found no place in line
	Failures  int64
	LoadTime  time.Duration // of all loads together
}

// ErrUnknown says that there is no model of a name.
var ErrUnknown = errors.New("there is no such model")

// Holder is a model that has memory.
type Holder struct {
	Name   string
	Bytes  uint64
	Busy   bool
	Pinned bool
}

// FullError says that a model does not fit into memory, with the numbers. Over HTTP it is status 507.
type FullError struct {
	Model      string
	Kind       string // of memory
	Need       uint64 // bytes
	Free       uint64 // bytes that can be had now
	Total      uint64 // bytes that models may take
	Holders    []Holder
	RetryAfter time.Duration // when trying again makes sense; 0 when only a change of settings helps
}

// Error gives the numbers in GiB.
func (e *FullError) Error() string {
	s := &strings.Builder{}
	fmt.Fprintf(s, "the model %s needs %s of %s; %s of %s are free", e.Model, gib(e.Need), e.Kind, gib(e.Free), gib(e.Total))
	for i, h := range e.Holders {
		word := ", "
		if i == 0 {
			word = "; loaded: "
		}
		state := "idle"
		switch {
		case h.Pinned:
			state = "pinned"
		case h.Busy:
			state = "busy"
		}
		fmt.Fprintf(s, "%s%s (%s, %s)", word, h.Name, gib(h.Bytes), state)
	}
	return s.String()
}

// gib writes a number of bytes in GiB.
func gib(n uint64) string { return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)) }
