// Package host runs guests of the contract laya_v1 (ABI.md) in the process that calls it. A Module is compiled once, with a
// wazero runtime of its own; an Instance is one guest that has been set up and is put back to the same state after every
// call: memory, globals and size. Work is counted by the metering rewrite, so a guest that never returns ends
// at its budget or its deadline. Guests see no file, no network, no environment, no clock and no randomness
// but what the contract names.
//
// The package takes metered modules only: package module judges what a stranger uploads, package meter rewrites it, and
// extensions/worker puts this package into a process of its own.
package host

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"onebit/extensions/abi"
)

// Services is what stands behind the capabilities. A nil function answers Unavailable, and so does one that fails. They
// are called in the goroutine of Instance.Call, never two at a time by one instance; an error's text never reaches a guest.
type Services struct {
	Now    func() time.Time                                    // read once for a call
	Tokens func(ctx context.Context, text string) (int, error) // tokens of the default model
	Embed  func(ctx context.Context, text string) ([]float32, error)
	Decide func(ctx context.Context, text string, criteria map[string]string) (choice string, confidence float64, scores map[string]float64, err error)
	KV     KV
	Metric func(name string, v float64)
}

// KV keeps what guests store. Whoever makes one has scoped it to a module's name and a tenant, and holds the quota of
// abi.MaxKeys and abi.MaxStored: a write over it fails with ErrFull. Time to live is 0 for ever. NewKeys returns one that
// lives in memory.
type KV interface {
	Get(ctx context.Context, key string) (value []byte, ok bool, err error)
	Set(ctx context.Context, key string, value []byte, ttl time.Duration) error
	// Add adds delta to the number under a key, 8 bytes little-endian, and returns the sum. A key that is missing counts
	// as 0 and gets ttl; one that exists keeps its own. A value of another length fails with ErrNotNumber.
	Add(ctx context.Context, key string, delta int64, ttl time.Duration) (int64, error)
}

// Errors of a KV that a guest can tell from "unavailable".
var (
	ErrFull      = errors.New("the quota of keys or bytes is used up")
	ErrNotNumber = errors.New("the value under this key is not a number")
)

// AskTimeout bounds one call of Services.Embed or Services.Decide. The clock of the guest's call stands still meanwhile.
const AskTimeout = 2 * time.Second

// SetupTimeout bounds what Module.Instance runs, when its context does not end earlier. Units end it before, as a rule:
// each step has the budget of one call.
const SetupTimeout = 10 * time.Second

// Config says what to compile and how far it may go.
type Config struct {
	Metered  []byte // what meter.Rewrite returned
	Manifest abi.Manifest
	Limits   abi.Limits
	Granted  []abi.Capability // by the operator; a capability needs the manifest to ask for it as well
	Cache    string           // directory for compiled code, made when missing; "" for none. Nobody else may write there
}

// Setup is what happens once, before the snapshot that every call starts from.
type Setup struct {
	Config []byte            // the operator's JSON for laya_configure; nil for {}
	Assets map[string][]byte // by name; not changed while the instance lives
	Warm   []byte            // a request for one call of each deciding function; nil for no warm call
}

// Call is one question to a guest.
type Call struct {
	Function string // abi.Classify or abi.Route
	Request  []byte // JSON, at most abi.MaxRequest bytes
	Text     func(abi.Part) string
	Seed     uint64 // of the guest's random bytes; the same request should have the same seed
	Services Services
	Deadline time.Time // the zero value for the deadline of the limits
}

// Seed makes a guest's random bytes a function of the request.
func Seed(request []byte) uint64 {
	return uint64(crc32.ChecksumIEEE(request))<<32 | uint64(crc32.Checksum(request, castagnoli))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Line is one line of a guest's log. Text is valid UTF-8; it may hold control characters.
type Line struct {
	Level abi.Level
	Text  string
}

// Result is what a call came to. It is filled as far as the call went when there is an error too.
type Result struct {
	Answer    []byte // the caller's; empty for "no opinion"
	Units     int64  // work that was charged
	Pages     uint32 // memory in use at the end
	Log       []Line // at most abi.MaxLog bytes
	HostCalls int    // calls of functions of abi.HostModule
}

// Cause is the kind of a failure.
type Cause string

// The causes.
const (
	CauseTrap    Cause = "trap"    // the guest did what WebAssembly forbids, or gave up
	CauseBudget  Cause = "budget"  // its units are used up
	CauseTimeout Cause = "timeout" // its wall clock is
	CauseStack   Cause = "stack"   // its stack is
	CausePointer Cause = "pointer" // an address that it answered lies outside of its memory
	CauseExit    Cause = "exit"    // it called proc_exit
	CauseAnswer  Cause = "answer"  // it refused the request's size, or answered too much
	CauseHost    Cause = "host"    // the host itself failed; not the guest's fault
)

// CallError says why a call failed.
type CallError struct {
	Cause  Cause
	Detail string // one line
	Trace  string // the guest's stack, when the engine knows it; for administrators
}

func (e *CallError) Error() string { return fmt.Sprintf("guest failed (%s): %s", e.Cause, e.Detail) }

// SetupError says which step of Module.Instance failed.
type SetupError struct {
	Step   string // "start", or the name of the export: _initialize, laya_configure, laya_classify, laya_route
	Refuse string // what laya_configure answered; empty for another failure
	Err    error  // nil when Refuse is set
}

func (e *SetupError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("setting up the guest: %s refused the configuration: %s", e.Step, e.Refuse)
	}
	return fmt.Sprintf("setting up the guest: %s: %v", e.Step, e.Err)
}

func (e *SetupError) Unwrap() error { return e.Err }

// Errors of the wrong use of an Instance.
var (
	ErrBusy   = errors.New("the instance is in another call: it serves one goroutine at a time")
	ErrClosed = errors.New("the instance or its module is closed")
)
