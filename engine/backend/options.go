package backend

import (
	"path/filepath"
	"strings"

	"onebit/engine"
	"onebit/engine/recipe"
)

// Options say which model is wanted, where, and how: the part of serve's command line that decides which programs are
// started. The zero value of a field is what holds when its option is not given.
type Options struct {
	Model  string        // a file, a directory, or with the device mlx an id of Hugging Face
	Alias  string        // the served name; empty takes the file's
	Device engine.Device // empty counts as engine.Auto
	Role   recipe.Role   // what the model is for; empty counts as recipe.Chat

	Context   int    // tokens over all slots; 0 leaves it to the program
	Parallel  int    // slots; 0 leaves them to the program
	FlashAttn string // the value of -fa

	// paths of programs and libraries
	LlamaServer, Zinc, DS4, MLXServer, NPU, LibHSA string

	SSDStreaming     bool
	Lean             bool
	PrefillDevice    string // empty or hrx
	PrefillMinTokens int

	MTP, DFlash string // draft models
	DraftMax    int    // tokens to draft; 0 leaves it to us or the program
	DraftPMin   string // how sure a drafter must be, as written
	Mmproj      string

	MoESlots    int
	MoEAuto     bool   // MoESlots is to be found out
	MoESubst    string // as written
	MoEPrefetch int

	Adaptive   bool
	AdaptiveAt int // requests that the first backend holds before the second gets one
	Sticky     bool
	LongModel  string
	LongFrom   int // tokens

	Embed, Rerank string // models of side servers

	NPUOptions  []string // KEY=VALUE
	Laya        bool
	LayaModel   string
	RoutePolicy string

	Recipes   string // a file in place of the built-in set
	NoRecipes bool

	// SlotDir is an absolute folder in which a chat child keeps the state of its slots, when it is asked to; empty for none.
	// It must be there when the child starts; a keeper makes it. The devices cpu, vulkan, hrx and rocm have this.
	SlotDir string

	// Append is put behind the command line of every llama-server. serve leaves it empty.
	Append []string
}

// Name returns the name that clients see.
func (o Options) Name() string {
	if o.Alias != "" {
		return o.Alias
	}
	return stem(o.Model)
}

// stem is the name of a model without an alias: of a .gguf or .1bp file its name without that, else the last part of
// the path.
func stem(path string) string {
	base := filepath.Base(filepath.Clean(path))
	for _, ext := range []string{".gguf", ".1bp"} {
		if s, ok := strings.CutSuffix(base, ext); ok && s != "" {
			return s
		}
	}
	return base
}

// role returns what the model is for.
func (o Options) role() recipe.Role {
	if o.Role == "" {
		return recipe.Chat
	}
	return o.Role
}

// drafter returns the kind of draft model, its file, and the option that named it.
func (o Options) drafter() (kind recipe.Drafter, file, option string) {
	switch {
	case o.MTP != "":
		return recipe.MTP, o.MTP, "--mtp"
	case o.DFlash != "":
		return recipe.DFlash, o.DFlash, "--dflash"
	}
	return recipe.NoDrafter, "", ""
}

// moe reports whether experts are to be streamed from the file.
func (o Options) moe() bool { return o.MoEAuto || o.MoESlots > 0 }

// classified reports whether a classifier is to pick the device.
func (o Options) classified() bool { return o.Laya || o.LayaModel != "" }
