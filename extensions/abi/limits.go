package abi

import "time"

// Kind is what a module is for; it sets the limits of its calls.
type Kind string

// The kinds.
const (
	Policy     Kind = "policy"
	Classifier Kind = "classifier"
)

// Limits is what one guest may use.
type Limits struct {
	Module    int           // bytes of the module
	Assets    int           // bytes of all assets
	Memory    uint32        // linear memory, in pages of 64 KiB
	Units     int64         // work in one call, counted by the meter
	Deadline  time.Duration // wall clock of one call
	Depth     int64         // stack of one call, in weighted slots of 8 bytes
	Instances int
	Queue     int // calls that may wait for an instance
}

// Limits returns the defaults of a kind; an operator may set others.
func (k Kind) Limits() Limits {
	l := Limits{Module: 8 << 20, Memory: 512, Units: 50_000_000, Deadline: 25 * time.Millisecond, Depth: 128 << 10, Instances: 2, Queue: 32}
	if k == Classifier {
		l.Assets, l.Memory, l.Units, l.Deadline = 64<<20, 2048, 1_000_000_000, 250*time.Millisecond
		l.Instances, l.Queue = 1, 16
	}
	return l
}

// Limits of the payloads, the same for every kind.
const (
	MaxRequest   = 64 << 10 // bytes of a request
	MaxDecision  = 16 << 10 // bytes of an answer
	MaxDepth     = 16       // nesting of an answer's JSON
	MaxLog       = 4 << 10  // bytes of log in one call
	MaxHostCalls = 64       // calls of HostModule in one call of the guest
	MaxConfig    = 64 << 10 // bytes given to Configure
	MaxHead      = 4 << 10  // bytes of a prompt's head in a request
	MaxTail      = 2 << 10  // bytes of its tail
	MaxKeys      = 1000     // keys of one module and tenant
	MaxStored    = 1 << 20  // bytes of their keys and values together
)
