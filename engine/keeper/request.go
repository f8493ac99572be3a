package keeper

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"onebit/engine"
	"onebit/engine/backend"
	"onebit/engine/recipe"
)

// Request asks for a model's plan, or for one process of it. It has no place for a program, for arguments or for an
// environment.
type Request struct {
	Model            string   `json:"model"`
	Alias            string   `json:"alias,omitempty"`
	Device           string   `json:"device,omitempty"`
	Role             string   `json:"role,omitempty"`
	Context          int      `json:"context,omitempty"`
	Parallel         int      `json:"parallel,omitempty"`
	FlashAttn        string   `json:"flash_attn,omitempty"`
	SSDStreaming     bool     `json:"ssd_streaming,omitempty"`
	Lean             bool     `json:"lean,omitempty"`
	PrefillDevice    string   `json:"prefill_device,omitempty"`
	PrefillMinTokens int      `json:"prefill_min_tokens,omitempty"`
	MTP              string   `json:"mtp,omitempty"`
	DFlash           string   `json:"dflash,omitempty"`
	DraftMax         int      `json:"draft_max,omitempty"`
	DraftPMin        string   `json:"draft_p_min,omitempty"`
	Mmproj           string   `json:"mmproj,omitempty"`
	MoESlots         int      `json:"moe_slots,omitempty"`
	MoEAuto          bool     `json:"moe_auto,omitempty"`
	MoESubst         string   `json:"moe_subst,omitempty"`
	MoEPrefetch      int      `json:"moe_prefetch,omitempty"`
	NPUOptions       []string `json:"npu_options,omitempty"`
	NoRecipes        bool     `json:"no_recipes,omitempty"`
	SlotDir          string   `json:"slot_dir,omitempty"` // directly below the keeper's folder for the state of slots

	Plan  bool `json:"plan,omitempty"` // the plan is wanted, and no process: Child and Port are left out
	Child int  `json:"child"`          // which process of the plan; 0 is the chat
	Port  int  `json:"port"`           // where on loopback it serves; 0: at the end of a conduit, which comes with the request
}

// requestOf asks for a process of the plan that options make.
func requestOf(o backend.Options, child, port int) Request {
	return Request{
		Model: o.Model, Alias: o.Alias, Device: string(o.Device), Role: string(o.Role), Context: o.Context, Parallel: o.Parallel,
		FlashAttn: o.FlashAttn, SSDStreaming: o.SSDStreaming, Lean: o.Lean, PrefillDevice: o.PrefillDevice, PrefillMinTokens: o.PrefillMinTokens,
		MTP: o.MTP, DFlash: o.DFlash, DraftMax: o.DraftMax, DraftPMin: o.DraftPMin, Mmproj: o.Mmproj,
		MoESlots: o.MoESlots, MoEAuto: o.MoEAuto, MoESubst: o.MoESubst, MoEPrefetch: o.MoEPrefetch, NPUOptions: o.NPUOptions, NoRecipes: o.NoRecipes,
		SlotDir: o.SlotDir, Child: child, Port: port,
	}
}

// Options are the request's as a plan takes them. Paths of programs are left to whoever plans.
func (r Request) Options() backend.Options {
	return backend.Options{
		Model: r.Model, Alias: r.Alias, Device: engine.Device(r.Device), Role: recipe.Role(r.Role), Context: r.Context, Parallel: r.Parallel,
		FlashAttn: r.FlashAttn, SSDStreaming: r.SSDStreaming, Lean: r.Lean, PrefillDevice: r.PrefillDevice, PrefillMinTokens: r.PrefillMinTokens,
		MTP: r.MTP, DFlash: r.DFlash, DraftMax: r.DraftMax, DraftPMin: r.DraftPMin, Mmproj: r.Mmproj,
		MoESlots: r.MoESlots, MoEAuto: r.MoEAuto, MoESubst: r.MoESubst, MoEPrefetch: r.MoEPrefetch, NPUOptions: r.NPUOptions, NoRecipes: r.NoRecipes,
		SlotDir: r.SlotDir,
	}
}

// requestLimit is the size of a request in bytes.
const requestLimit = 64 << 10

const (
	mostTokens   = 1 << 28
	mostOfOthers = 1 << 16
	leastPort    = 1024
	mostChildren = 8
	nameLimit    = 256
)

// words that a plan passes on as they are written.
var (
	flashWord = regexp.MustCompile(`^(on|off|auto|0|1)?$`)
	decimal   = regexp.MustCompile(`^[0-9.]{0,16}$`)
	subst     = regexp.MustCompile(`^([A-Za-z0-9.][A-Za-z0-9.:,=_-]{0,63})?$`)
	npuOption = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}=[A-Za-z0-9_.,:+/-]{0,256}$`)
)

// ParseRequest reads a request and refuses all that is not plainly right.
func ParseRequest(b []byte) (Request, error) {
	var r Request
	if len(b) > requestLimit {
		return r, fmt.Errorf("the request is larger than %d bytes", requestLimit)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return Request{}, fmt.Errorf("reading the request: %w", err)
	}
	if d.More() {
		return Request{}, errors.New("reading the request: there is more behind it")
	}
	if err := r.check(); err != nil {
		return Request{}, err
	}
	return r, nil
}

func (r Request) check() error {
	if r.Model == "" {
		return errors.New("a model is missing")
	}
	for name, path := range map[string]string{"model": r.Model, "mtp": r.MTP, "dflash": r.DFlash, "mmproj": r.Mmproj, "slot_dir": r.SlotDir} {
		if path != "" && (!filepath.IsAbs(path) || filepath.Clean(path) != path || !printable(path)) {
			return fmt.Errorf("%s: %q is no absolute path", name, path)
		}
	}
	if len(r.Alias) > nameLimit || !printable(r.Alias) || strings.HasPrefix(r.Alias, "-") {
		return fmt.Errorf("the name %q is none", r.Alias)
	}
	for name, n := range map[string][2]int{
		"context": {r.Context, mostTokens}, "prefill_min_tokens": {r.PrefillMinTokens, mostTokens}, "parallel": {r.Parallel, mostOfOthers},
		"draft_max": {r.DraftMax, mostOfOthers}, "moe_slots": {r.MoESlots, mostOfOthers}, "moe_prefetch": {r.MoEPrefetch, mostOfOthers},
		"child": {r.Child, mostChildren}, "port": {r.Port, 65535},
	} {
		if n[0] < 0 || n[0] > n[1] {
			return fmt.Errorf("%s is out of range", name)
		}
	}
	if r.Plan && (r.Child != 0 || r.Port != 0) {
		return errors.New("a plan has no process and no port")
	}
	if r.Port != 0 && r.Port < leastPort {
		return errors.New("port is out of range")
	}
	return r.checkWords()
}

func (r Request) checkWords() error {
	switch role := recipe.Role(r.Role); {
	case r.Device != "" && !engine.Device(r.Device).Known():
		return fmt.Errorf("there is no device %q", r.Device)
	case r.Role != "" && role != recipe.Chat && role != recipe.Embedding && role != recipe.Reranking:
		return fmt.Errorf("there is no role %q", r.Role)
	case !flashWord.MatchString(r.FlashAttn):
		return fmt.Errorf("flash_attn: %q is none of on, off and auto", r.FlashAttn)
	case r.PrefillDevice != "" && r.PrefillDevice != string(engine.HRX):
		return fmt.Errorf("prefill_device: %q is not hrx", r.PrefillDevice)
	case !decimal.MatchString(r.DraftPMin):
		return fmt.Errorf("draft_p_min: %q is no number", r.DraftPMin)
	case !subst.MatchString(r.MoESubst):
		return fmt.Errorf("moe_subst: %q cannot be right", r.MoESubst)
	case len(r.NPUOptions) > 32:
		return errors.New("npu_options: there are more than 32")
	}
	for _, o := range r.NPUOptions {
		if !npuOption.MatchString(o) {
			return fmt.Errorf("npu_options: %q is not KEY=VALUE", o)
		}
	}
	return nil
}

// printable reports whether a text is UTF-8 without control characters.
func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// event is what the keeper says about a process, a line each.
type event struct {
	PID    int    `json:"pid,omitempty"` // it has been started
	UID    int    `json:"uid,omitempty"` // whom it runs as
	Error  string `json:"error,omitempty"`
	Stdout string `json:"stdout,omitempty"`
	Stderr string `json:"stderr,omitempty"`
	Ended  bool   `json:"ended,omitempty"`
	Status string `json:"status,omitempty"` // how; empty for success

	Plan *backend.Plan `json:"plan,omitempty"` // how the keeper would run the model
}

// eventLimit is the size of an event in bytes. What a process writes comes in smaller pieces.
const (
	eventLimit = 64 << 10
	pieceLimit = 4 << 10
)

// parseEvent reads an event.
func parseEvent(b []byte) (event, error) {
	var e event
	if err := json.Unmarshal(b, &e); err != nil {
		return event{}, fmt.Errorf("reading what the keeper says: %w", err)
	}
	if e.PID < 0 || e.UID < 0 {
		return event{}, errors.New("the keeper names a process that cannot be")
	}
	return e, nil
}

// wishes that a client sends about a running process.
const (
	wishEnd = "end" // it is asked to end
)
