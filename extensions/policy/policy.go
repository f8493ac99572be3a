// Package policy carries the built-in policy: the module that runs routing policies written as JSON, which `make build` makes, and
// the same source to check such a file and to run it in this process. appliance/ROUTE.md has the format.
package policy

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"onebit/extensions/abi"
	"onebit/extensions/payload"
	"onebit/extensions/policy/guest"
)

//go:embed all:files
var files embed.FS

//go:embed policy.json
var manifest string

// Name is the module's.
const Name = "policy"

// ErrMissing says that the program carries no policy module.
var ErrMissing = errors.New("built without the policy module; run make build")

// Module returns the module, or ErrMissing.
func Module() ([]byte, error) {
	b, err := files.ReadFile("files/policy.wasm")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrMissing
	}
	return b, err
}

// hash is the module's; empty where the program carries none.
var hash = sync.OnceValue(func() string {
	b, err := Module()
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
})

// Is tells whether a hash is the module's. Its source is part of the program: see Open.
func Is(sha256 string) bool { return sha256 != "" && sha256 == hash() }

// Policy answers requests under one configuration of the module, in this process: the code is that of the module, compiled with
// the program.
type Policy = guest.Policy

// Errors of a Policy's calls.
var (
	ErrSize  = guest.ErrSize
	ErrSpent = guest.ErrSpent
)

// Pages is how much memory the module has.
const Pages = guest.Pages

// Open reads a configuration as the module does. The error says what is wrong with it.
func Open(config []byte) (*Policy, error) {
	p, wrong := guest.New(config)
	if wrong != "" {
		return nil, errors.New(wrong)
	}
	return p, nil
}

// Manifest returns the module's manifest, as JSON.
func Manifest() []byte { return []byte(manifest) }

// Check says what is wrong with a policy file.
func Check(file []byte) error {
	if len(file) > abi.MaxConfig {
		return fmt.Errorf("it has %d bytes; a policy has at most %d", len(file), abi.MaxConfig)
	}
	var any json.RawMessage
	if err := json.Unmarshal(file, &any); err != nil {
		return notJSON(file, err)
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(file, &members) != nil {
		return errors.New("it is no JSON object")
	}
	if len(members) == 0 {
		return errors.New("it has neither classes nor rules")
	}
	if err := payload.CheckConfig(nil, file); err != nil {
		return err
	}
	if wrong := guest.Check(file); wrong != "" {
		return errors.New(wrong)
	}
	return nil
}

// Names are the devices, models and candidates that a policy prefers, each once, as far as it says so.
func Names(file []byte) []string {
	var p struct {
		Classes map[string]struct{ Device string }
		Rules   []struct{ Prefer []any }
		Default string
	}
	if json.Unmarshal(file, &p) != nil {
		return nil
	}
	var names []string
	for _, c := range p.Classes {
		names = append(names, c.Device)
	}
	for _, r := range p.Rules {
		for _, entry := range r.Prefer {
			if name, ok := entry.(string); ok {
				names = append(names, name)
			}
		}
	}
	if p.Default != "" {
		names = append(names, p.Default)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// notJSON says where a file stops being JSON, and why.
func notJSON(file []byte, err error) error {
	wrong, ok := errors.AsType[*json.SyntaxError](err)
	if !ok {
		return errors.New("it is not JSON")
	}
	if len(bytes.TrimSpace(file)) == 0 {
		return errors.New("it is not JSON: it is empty")
	}
	before := file[:min(max(wrong.Offset-1, 0), int64(len(file)))]
	line := bytes.Count(before, []byte("\n")) + 1
	column := len(before) - bytes.LastIndexByte(before, '\n')
	return fmt.Errorf("it is not JSON: line %d, column %d: %w", line, column, wrong)
}

// Decide is what the module answers to a request, without a module: under a policy that passes Check, or {} for the built-in one.
// A nil decision is no opinion.
func Decide(file []byte, r *abi.Request) (*abi.Decision, error) {
	raw, err := payload.AppendRequest(nil, r)
	if err != nil {
		return nil, err
	}
	p, wrong := guest.New(file)
	if wrong != "" {
		return nil, errors.New(wrong)
	}
	said, _, err := p.Route(raw, abi.Policy.Limits().Units)
	if err != nil {
		return nil, err
	}
	offer := payload.Offer{}
	for _, c := range r.Candidates {
		offer.Candidates = append(offer.Candidates, c.ID)
	}
	return payload.ReadDecision(said, offer)
}
