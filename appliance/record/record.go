// Package record reads and writes the small JSON files that describe what the box keeps: its models, its installed
// programs. Each says in which format it is written, so that a newer program reads what an older one has left.
//
// Reading changes no file. A record is written in the newest format when it is written anyway, so nothing can be broken
// off half-way, and a program that was rolled back finds its own records. The number rises only with what an older
// program would misread; a new member that it may overlook needs none.
//
// What else their folders need of the disk is here too: locks of files, and names that last. So is what editors put before
// what people write.
package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// ErrNewer is wrapped by errors about a record that a newer program has written. It is to be left as it is.
var ErrNewer = errors.New("a newer 1bit has written it")

// Step turns a record of one format into the next one.
type Step func(members map[string]json.RawMessage) error

// Ladder is the formats of one kind of record. Format 1 is the one whose records have no number; each step leads to the
// next. The last three formats before the newest are kept readable, with a record of each in testdata.
type Ladder []Step

// numberMember is the member that holds the number of a format.
const numberMember = "format"

// Format is the number of the newest format.
func (l Ladder) Format() int { return 1 + len(l) }

// Read reads a record of any format into v, which is shaped as the newest one. The error wraps ErrNewer for one that is
// newer.
func (l Ladder) Read(b []byte, v any) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(b, &members); err != nil {
		return err
	}
	if members == nil {
		return errors.New("it is no record")
	}
	at, err := number(members)
	switch {
	case err != nil:
		return err
	case at > l.Format():
		return fmt.Errorf("%w, in format %d, and this one reads up to %d: update 1bit", ErrNewer, at, l.Format())
	case at < l.Format():
		for ; at < l.Format(); at++ {
			if err := l[at-1](members); err != nil {
				return fmt.Errorf("reading format %d: %w", at, err)
			}
		}
		if b, err = json.Marshal(members); err != nil {
			return err
		}
	}
	return json.Unmarshal(b, v)
}

// number is the format that a record says it has.
func number(members map[string]json.RawMessage) (int, error) {
	raw, ok := members[numberMember]
	if !ok {
		return 1, nil
	}
	var n int
	if err := json.Unmarshal(raw, &n); err != nil || n < 1 {
		return 0, fmt.Errorf("its format %.32q is no number", raw)
	}
	return n, nil
}

// Write returns a record in the newest format, in lines. v is a struct without a member called format.
func (l Ladder) Write(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	rest, ok := bytes.CutPrefix(b, []byte("{"))
	if !ok {
		return nil, fmt.Errorf("%T is no record", v)
	}
	head := fmt.Appendf(nil, "{%q:%d", numberMember, l.Format())
	if !bytes.HasPrefix(rest, []byte("}")) {
		head = append(head, ',')
	}
	var out bytes.Buffer
	if err := json.Indent(&out, append(head, rest...), "", "  "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// Same is the step to a format that only has its number: what was written before is read as it is.
func Same(map[string]json.RawMessage) error { return nil }
