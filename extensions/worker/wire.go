package worker

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"unicode/utf8"

	"onebit/extensions/abi"
	"onebit/extensions/host"
)

// A frame is a length (u32, little-endian, of the payload), a kind (u8), a number (u64) and the payload. The number is
// that of a call: it is never used again, so a late answer is never read as the next one's. What comes from the worker is
// read as a stranger's: every length is checked against a bound before anything is allocated for it.
type frame struct {
	kind    kind
	id      uint64
	payload []byte
}

type kind byte

const (
	kindSpec   kind = iota + 1 // to the child, once: what it is to be, as JSON
	kindBlob                   // to the child, after the spec: one of the parts that it announced
	kindCall                   // to the child: a call
	kindAnswer                 // to the child: the answer to an ask
	kindReady                  // from the child, once: it serves
	kindFailed                 // from the child, once, in place of ready or report: why not
	kindReport                 // from the child, once: what came of a preparation, as JSON
	kindAsk                    // from the child: a host function that only the box can serve
	kindResult                 // from the child: the end of a call
	kindSoon                   // to the child: a call is about to come
)

const (
	headerSize = 4 + 1 + 8
	// maxFromChild bounds a payload that the box reads: the longest text that a guest may have counted or embedded.
	maxFromChild = maxText + 64<<10
	maxText      = 1 << 20
	// maxFromBox bounds a payload that a child reads: its assets, or a prompt.
	maxFromBox = 256 << 20
	maxPrompt  = 8 << 20 // bytes of one part of a prompt that a guest can see
	maxLines   = 256     // lines of log in one result
	maxDetail  = 4 << 10 // bytes of an error's text
	maxMetrics = abi.MaxHostCalls
	maxVector  = 64 << 10 // numbers of an embedding
	maxScores  = 256
)

var errFrame = errors.New("a frame that the protocol does not have")

// begin starts a frame; finish closes it.
func begin(b []byte, k kind, id uint64) []byte {
	b = append(b[:0], 0, 0, 0, 0, byte(k))
	return binary.LittleEndian.AppendUint64(b, id)
}

func finish(b []byte) []byte {
	binary.LittleEndian.PutUint32(b, uint32(len(b)-headerSize))
	return b
}

func appendBytes[T []byte | string](b []byte, v T) []byte {
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(v))), v...)
}

func appendFloat(b []byte, v float64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
}

// fields reads a payload. After the first fault everything is zero, and end says so.
type fields struct {
	b   []byte
	bad bool
}

func (f *fields) take(n int) []byte {
	if f.bad || n < 0 || n > len(f.b) {
		f.bad, f.b = true, nil
		return nil
	}
	v := f.b[:n:n]
	f.b = f.b[n:]
	return v
}

func (f *fields) u8() byte {
	if v := f.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (f *fields) u32() uint32 {
	if v := f.take(4); v != nil {
		return binary.LittleEndian.Uint32(v)
	}
	return 0
}

func (f *fields) u64() uint64 {
	if v := f.take(8); v != nil {
		return binary.LittleEndian.Uint64(v)
	}
	return 0
}

func (f *fields) float() float64 { return math.Float64frombits(f.u64()) }

// bytes reads at most most bytes with their length. They are the payload's own.
func (f *fields) bytes(most int) []byte {
	n := f.u32()
	if uint64(n) > uint64(most) {
		f.bad = true
	}
	return f.take(int(min(n, math.MaxInt32)))
}

func (f *fields) text(most int) string { return string(f.bytes(most)) }

// words reads a text that people will see.
func (f *fields) words(most int) string { return strings.ToValidUTF8(f.text(most), "?") }

// count reads how many items follow, each of at least size bytes.
func (f *fields) count(most, size int) int {
	n := int(min(f.u32(), math.MaxInt32))
	if n > most || n*size > len(f.b) {
		f.bad, f.b = true, nil
		return 0
	}
	return n
}

func (f *fields) end() error {
	if f.bad || len(f.b) > 0 {
		return errFrame
	}
	return nil
}

// wireCall is a call on its way.
type wireCall struct {
	route   bool
	texts   bool  // there is a prompt to ask for
	left    int64 // nanoseconds to the deadline
	now     int64 // the guest's time in Unix nanoseconds; 0 for none
	seed    uint64
	request []byte
}

func (c *wireCall) append(b []byte) []byte {
	var flags byte
	if c.route {
		flags |= 1
	}
	if c.texts {
		flags |= 2
	}
	b = append(b, flags)
	b = binary.LittleEndian.AppendUint64(b, uint64(c.left))
	b = binary.LittleEndian.AppendUint64(b, uint64(c.now))
	b = binary.LittleEndian.AppendUint64(b, c.seed)
	return appendBytes(b, c.request)
}

func readCall(b []byte) (c wireCall, err error) {
	f := fields{b: b}
	flags := f.u8()
	c.route, c.texts = flags&1 != 0, flags&2 != 0
	c.left, c.now, c.seed = int64(f.u64()), int64(f.u64()), f.u64()
	c.request = f.bytes(abi.MaxRequest)
	return c, f.end()
}

// measure is one value of a metric.
type measure struct {
	name  string
	value float64
}

// outcome is the end of a call on its way back.
type outcome struct {
	result  host.Result
	failed  *host.CallError
	refused string // the call could not be made at all
	metrics []measure
}

// causes in the order of their numbers on the wire; 0 is none.
var causes = [...]host.Cause{"", host.CauseTrap, host.CauseBudget, host.CauseTimeout, host.CauseStack, host.CausePointer, host.CauseExit, host.CauseAnswer, host.CauseHost}

const causeRefused = 0xff

func (o *outcome) append(b []byte) []byte {
	switch {
	case o.refused != "":
		b = appendBytes(append(b, causeRefused), cut(o.refused, maxDetail))
	case o.failed != nil:
		n := byte(len(causes) - 1)
		for i, c := range causes {
			if c == o.failed.Cause {
				n = byte(i)
			}
		}
		b = appendBytes(append(b, n), cut(o.failed.Detail, maxDetail))
		b = appendBytes(b, cut(o.failed.Trace, maxDetail))
	default:
		b = append(b, 0)
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(o.result.Units))
	b = binary.LittleEndian.AppendUint32(b, o.result.Pages)
	b = binary.LittleEndian.AppendUint32(b, uint32(o.result.HostCalls))
	b = appendBytes(b, o.result.Answer)
	lines := o.result.Log[:min(len(o.result.Log), maxLines)]
	b = binary.LittleEndian.AppendUint32(b, uint32(len(lines)))
	for _, l := range lines {
		b = appendBytes(append(b, byte(l.Level)), cut(l.Text, abi.MaxLog))
	}
	metrics := o.metrics[:min(len(o.metrics), maxMetrics)]
	b = binary.LittleEndian.AppendUint32(b, uint32(len(metrics)))
	for _, m := range metrics {
		b = appendFloat(appendBytes(b, m.name), m.value)
	}
	return b
}

// readOutcome reads what a worker says a call came to. The result's bytes are its own.
func readOutcome(b []byte) (o outcome, err error) {
	f := fields{b: b}
	switch n := f.u8(); {
	case n == causeRefused:
		if o.refused = f.words(maxDetail); o.refused == "" {
			f.bad = true
		}
	case int(n) >= len(causes):
		f.bad = true
	case n > 0:
		o.failed = &host.CallError{Cause: causes[n], Detail: f.words(maxDetail), Trace: f.words(maxDetail)}
	}
	o.result.Units, o.result.Pages = int64(f.u64()), f.u32()
	o.result.HostCalls = int(min(f.u32(), math.MaxInt32))
	if o.result.Units < 0 { // a guest may call as often as it likes: beyond abi.MaxHostCalls it is answered "full"
		f.bad = true
	}
	if a := f.bytes(abi.MaxDecision); len(a) > 0 {
		o.result.Answer = append([]byte(nil), a...)
	}
	total := 0
	for range f.count(maxLines, 5) {
		l := host.Line{Level: abi.Level(f.u8()), Text: f.words(abi.MaxLog)}
		if total += len(l.Text); l.Level > abi.Error || total > 3*abi.MaxLog {
			f.bad = true
		}
		o.result.Log = append(o.result.Log, l)
	}
	for range f.count(maxMetrics, 12) {
		o.metrics = append(o.metrics, measure{f.words(maxDetail), f.float()})
	}
	if err := f.end(); err != nil {
		return outcome{}, err
	}
	return o, nil
}

// cut shortens a text at the border of a character.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}
