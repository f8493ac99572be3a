// Package recipe holds tuned llama-server settings as data. A recipe says which models and routes it is for, what it
// adds to the server's command line or environment, and which measurement it rests on. Some recipes add nothing and
// warn of a pair that is known to do badly.
package recipe

import (
	_ "embed"
	"slices"
	"strings"

	"onebit/engine"
)

//go:embed recipes.json
var builtin []byte

// Builtin returns the recipes that come with the program.
func Builtin() (*Set, error) { return Parse(builtin) }

// Drafter is the kind of draft model beside the model.
type Drafter string

// The kinds.
const (
	NoDrafter Drafter = "none"
	MTP       Drafter = "mtp"
	DFlash    Drafter = "dflash"
)

// Role is the work that a server does.
type Role string

// The roles.
const (
	Chat      Role = "chat"
	Embedding Role = "embedding"
	Reranking Role = "reranking"
)

// Query describes a server that is about to be started.
type Query struct {
	Device       engine.Device
	Architecture string  // of the model, as its file has it; empty when unknown
	Drafter      Drafter // empty counts as NoDrafter
	Role         Role    // empty counts as Chat
	MoE          bool    // the model has experts
	Hadamard     bool    // the file is stamped onebit.hadamard_q4_0 = 32
	Parallel     int     // slots that were asked for; 0 when the server chooses
	Side         bool    // a side server: it is warned about, but gets no settings
}

// Match says which servers a recipe is for. An empty field matches any.
type Match struct {
	Devices       []engine.Device
	Architectures []string
	Drafters      []Drafter
	Roles         []Role
	MoE           *bool
	Hadamard      *bool
	MinParallel   int // slots asked for, at least; 0 matches any
}

// Recipe is one tuned setting, or one warning.
type Recipe struct {
	ID       string
	Match    Match
	Args     []string // flags with their values
	Env      []string // NAME=VALUE
	Warn     string   // a sentence for people
	Why      string   // why it helps
	Measured string   // the figures that it rests on
	Source   string   // whose figures they are
}

// Set is a list of recipes; earlier ones win over later ones. It never changes.
type Set struct{ recipes []Recipe }

// All returns the recipes in their order. The caller does not change what they refer to.
func (s *Set) All() []Recipe {
	if s == nil {
		return nil
	}
	return slices.Clone(s.recipes)
}

// Result is what the recipes add to one server.
type Result struct {
	Args     []string // to be appended to the command line
	Env      []string // NAME=VALUE, to be added to the environment
	Applied  []string // what to print: one line for each recipe that added something
	Warnings []string // what to warn of: one line for each recipe that does
}

// Apply asks every recipe in turn. args is the command line so far and environ the environment that the server will
// get, in the form of os.Environ. A flag that stands on the command line already is not added again, in whatever
// spelling, nor is a variable that is set; so what is there wins over recipes, and the first recipe over later ones.
// Settings are for vulkan, hrx and rocm alone, and not for side servers. A nil Set adds nothing.
func (s *Set) Apply(q Query, args, environ []string) Result {
	var out Result
	if s == nil {
		return out
	}
	taken := map[string]bool{}
	for _, g := range groups(args) {
		taken[canonical(g[0])] = true
	}
	set := map[string]bool{}
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		set[name] = true
	}
	for _, r := range s.recipes {
		if !r.Match.fits(q) {
			continue
		}
		if r.Warn != "" {
			out.Warnings = append(out.Warnings, "recipe "+r.ID+": "+r.Warn)
		}
		if q.Side || !tuned(q.Device) {
			continue
		}
		var added []string
		for _, g := range groups(r.Args) {
			if flag := canonical(g[0]); !taken[flag] {
				taken[flag] = true
				out.Args = append(out.Args, g...)
				added = append(added, g...)
			}
		}
		for _, v := range r.Env {
			if name, _, _ := strings.Cut(v, "="); !set[name] {
				set[name] = true
				out.Env = append(out.Env, v)
				added = append(added, v)
			}
		}
		if len(added) > 0 {
			out.Applied = append(out.Applied, "recipe "+r.ID+": "+strings.Join(added, " "))
		}
	}
	return out
}

// tuned reports whether servers of a device take recipes.
func tuned(d engine.Device) bool {
	return d == engine.Vulkan || d == engine.HRX || d == engine.ROCm
}

// fits reports whether a recipe with this match is for q.
func (m Match) fits(q Query) bool {
	drafter, role := q.Drafter, q.Role
	if drafter == "" {
		drafter = NoDrafter
	}
	if role == "" {
		role = Chat
	}
	return among(m.Devices, q.Device) && among(m.Architectures, q.Architecture) && among(m.Drafters, drafter) &&
		among(m.Roles, role) && equal(m.MoE, q.MoE) && equal(m.Hadamard, q.Hadamard) && q.Parallel >= m.MinParallel
}

// among reports whether v is in list, or the list is empty.
func among[T comparable](list []T, v T) bool { return len(list) == 0 || slices.Contains(list, v) }

// equal reports whether v is what is wanted, or nothing is.
func equal(want *bool, v bool) bool { return want == nil || *want == v }
