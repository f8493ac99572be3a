// Package policy carries the built-in policy: the module that runs routing policies written as JSON, which `make build` makes, and
// the same source to check such a file before a module gets it. appliance/ROUTE.md has the format.
package policy

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

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

// Manifest returns the module's manifest, as JSON.
func Manifest() []byte { return []byte(manifest) }

// Check says what is wrong with a policy file.
func Check(file []byte) error {
	if len(file) > abi.MaxConfig {
		return fmt.Errorf("it has %d bytes; a policy has at most %d", len(file), abi.MaxConfig)
	}
	if !json.Valid(file) {
		return errors.New("it is not JSON")
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(file, &members) != nil {
		return errors.New("it is no JSON object")
	}
	if len(members) == 0 {
		return errors.New("it has no classes")
	}
	if err := payload.CheckConfig(nil, file); err != nil {
		return err
	}
	if wrong := guest.Check(file); wrong != "" {
		return errors.New(wrong)
	}
	return nil
}

// Decide is what the module answers to a request, without a module: under a policy that passes Check, or {} for the built-in one.
// A nil decision is no opinion.
func Decide(file []byte, r *abi.Request) (*abi.Decision, error) {
	raw, err := payload.AppendRequest(nil, r)
	if err != nil {
		return nil, err
	}
	offer := payload.Offer{}
	for _, c := range r.Candidates {
		offer.Candidates = append(offer.Candidates, c.ID)
	}
	return payload.ReadDecision([]byte(guest.Decide(file, raw)), offer)
}
