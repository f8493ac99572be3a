package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"onebit/extensions/abi"
	"onebit/extensions/host"
	"onebit/extensions/module"
)

// Command is the hidden sub-command of our program that Child serves.
const Command = "extension-child"

// The modes of a child: what follows the sub-command. How many connections there are follows modeRun.
const (
	modeRun     = "run"
	modePrepare = "prepare"
)

// spec is what a child is told first. Blobs follow it in the order of their names, then the blobs of assets.
type spec struct {
	Dir      string             `json:"dir"`
	SHA256   string             `json:"sha256"`
	Manifest *abi.Manifest      `json:"manifest,omitempty"` // of a worker
	Limits   map[abi.Kind]limit `json:"limits"`
	Granted  []abi.Capability   `json:"granted"`
	Memory   int64              `json:"memory"` // what Go's collector should stay below
	Blobs    []string           `json:"blobs"`
	Assets   []string           `json:"assets"`
}

// limit is abi.Limits on its way.
type limit = abi.Limits

// The names of blobs.
const (
	blobManifest = "manifest"
	blobConfig   = "config"
	blobWarm     = "warm"
)

// send sends a spec and what belongs to it.
func (s *spec) send(l *link, blobs [][]byte) error {
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("writing down what a child is to do: %w", err)
	}
	all := append([][]byte{text}, blobs...)
	for i, b := range all {
		k := kindBlob
		if i == 0 {
			k = kindSpec
		}
		if err := l.send(k, 0, startDeadline(), func(out []byte) []byte { return append(out, b...) }); err != nil {
			return err
		}
	}
	return nil
}

// receive reads what send sent.
func receive(next func() (frame, error)) (spec, map[string][]byte, map[string][]byte, error) {
	var s spec
	f, err := next()
	if err != nil {
		return s, nil, nil, err
	}
	d := json.NewDecoder(bytes.NewReader(f.payload))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); f.kind != kindSpec || err != nil {
		return s, nil, nil, errors.Join(errFrame, err)
	}
	blobs, assets := map[string][]byte{}, map[string][]byte{}
	take := func(names []string, into map[string][]byte) error {
		for _, name := range names {
			f, err := next()
			if err != nil {
				return err
			}
			if f.kind != kindBlob {
				return errFrame
			}
			into[name] = f.payload
		}
		return nil
	}
	if err := take(s.Blobs, blobs); err != nil {
		return s, nil, nil, err
	}
	return s, blobs, assets, take(s.Assets, assets)
}

// failure is why a child does not do what it was started for. Final tells that the next one would not either.
type failure struct {
	Refusal    *module.RefusalError `json:"refusal,omitempty"`
	Setup      *setupFailure        `json:"setup,omitempty"`
	Unprepared bool                 `json:"unprepared,omitempty"`
	Text       string               `json:"text"`
	Final      bool                 `json:"final"`
}

// setupFailure is host.SetupError on its way.
type setupFailure struct {
	Step   string     `json:"step"`
	Refuse string     `json:"refuse,omitempty"`
	Cause  host.Cause `json:"cause,omitempty"`
	Detail string     `json:"detail,omitempty"`
	Trace  string     `json:"trace,omitempty"`
}

// failureOf takes an error apart.
func failureOf(err error) failure {
	f := failure{Text: cut(err.Error(), maxDetail)}
	if r, ok := errors.AsType[*module.RefusalError](err); ok {
		f.Refusal, f.Final = r, true
	}
	if errors.Is(err, ErrUnprepared) {
		f.Unprepared, f.Final = true, true
	}
	if s, ok := errors.AsType[*host.SetupError](err); ok {
		f.Setup, f.Final = &setupFailure{Step: s.Step, Refuse: cut(s.Refuse, maxDetail)}, true
		if c, ok := errors.AsType[*host.CallError](s.Err); ok {
			f.Setup.Cause, f.Setup.Detail, f.Setup.Trace = c.Cause, cut(c.Detail, maxDetail), cut(c.Trace, maxDetail)
			f.Final = c.Cause != host.CauseHost && c.Cause != host.CauseTimeout
		}
	}
	return f
}

// error puts it together again.
func (f failure) error() error {
	switch {
	case f.Refusal != nil:
		return f.Refusal
	case f.Setup != nil:
		e := &host.SetupError{Step: f.Setup.Step, Refuse: f.Setup.Refuse}
		if e.Refuse == "" {
			e.Err = &host.CallError{Cause: f.Setup.Cause, Detail: f.Setup.Detail, Trace: f.Setup.Trace}
		}
		return e
	case f.Unprepared:
		return fmt.Errorf("%w: %s", ErrUnprepared, f.Text)
	}
	return errors.New(f.Text)
}

func readFailure(b []byte) (failure, error) {
	var f failure
	if len(b) > maxReport || json.Unmarshal(b, &f) != nil || f.Text == "" {
		return failure{}, errFrame
	}
	return f, nil
}
