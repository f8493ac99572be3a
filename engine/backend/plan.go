package backend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"onebit/engine"
	"onebit/engine/conduit"
	"onebit/engine/recipe"
)

// Mode says how requests find their way when a model is loaded more than once.
type Mode int

// The modes.
const (
	Single     Mode = iota + 1 // one backend
	Adaptive                   // the first while it holds fewer than AdaptiveAt requests, else the second
	Long                       // conversations that begin with LongFrom tokens or more go to the second
	Classified                 // a classifier says what a conversation is, a policy which of several backends takes it
)

// Dialect is what a child speaks.
type Dialect int

// The dialects.
const (
	Llama Dialect = iota + 1 // llama-server's, as far as the program has it
	NPU                      // raw prompts: whoever calls renders the chat
)

// ModelField says what happens to the member model of a request on its way to a child.
type ModelField int

// What happens.
const (
	KeepModel   ModelField = iota + 1 // it goes out as the client wrote it
	DropModel                         // it is left out
	RenameModel                       // it becomes the child's ModelID
)

// ChildSpec is one program to start.
type ChildSpec struct {
	Device     engine.Device
	Role       recipe.Role
	Name       string // the served name of what it serves
	Program    string
	Args       []string // without the program; PortMark stands for the port
	Env        []string // NAME=value, to be added to our own environment
	Ready      string   // the path that answers 200 once it serves
	Slots      int      // generations that run at the same time, as far as known; at least 1
	ModelField ModelField
	ModelID    string
	Dialect    Dialect
	OpenThink  bool // of the NPU dialect: thinking begins with an opened think block
	Builtin    bool // our own program
}

// PortMark stands in ChildSpec.Args for the number of the port. No argument that a user gives can be the same.
const PortMark = "\x00port"

// Command returns the command line for a port.
func (s ChildSpec) Command(port int) Command {
	args := slices.Clone(s.Args)
	for i, a := range args {
		if a == PortMark {
			args[i] = strconv.Itoa(port)
		}
	}
	return Command{Path: s.Program, Args: args, Env: s.Env}
}

// at returns the command line for a place. Our own program alone takes a conduit.
func (s ChildSpec) at(p Place) Command {
	c := s.Command(p.Port)
	if i := slices.Index(c.Args, "--host"); p.End != nil && i >= 0 {
		c.Args = slices.Replace(c.Args, i, i+4, "--conduit", strconv.Itoa(conduit.Descriptor)) // for --host ADDR --port N
	}
	return c
}

// Label names the child in logs: its device, and its role when that is not chat.
func (s ChildSpec) Label() string {
	if s.Role == recipe.Chat {
		return string(s.Device)
	}
	return string(s.Device) + " " + string(s.Role)
}

// llama reports whether the child is a llama-server, or our own program, which is one in all that matters here.
func (s ChildSpec) llama() bool {
	return s.Device == engine.CPU || slices.Contains(llamaDevices, s.Device)
}

// Proof is what the child can be asked for to see whether it works.
func (s ChildSpec) Proof() Proof {
	switch {
	case !s.llama():
		return Word
	case s.Role == recipe.Embedding:
		return Vector
	case s.Role == recipe.Reranking:
		return Score
	}
	return Token
}

// Parts reports whether unstreamed chats are put together from streams. Our own program needs no such help. A server
// told to show thoughts twice streams something else than it answers.
func (s ChildSpec) Parts() bool {
	return s.llama() && !s.Builtin && s.Role == recipe.Chat && !slices.ContainsFunc(s.Args, func(a string) bool { return strings.HasSuffix(a, "deepseek-legacy") })
}

// Plan is what serve will start. It is made before anything is started, and no port is open yet.
type Plan struct {
	Mode    Mode
	Name    string // the served name
	Device  engine.Device
	Why     string // the reason for the device
	Primary ChildSpec
	Second  *ChildSpec  // of the modes Adaptive and Long
	Others  []ChildSpec // of the mode Classified: what may be chosen beside Primary, the likeliest first
	Side    []ChildSpec

	AdaptiveAt int
	Sticky     bool
	LongFrom   int

	Recipes  []string // what recipes have added, a line each
	Notes    []string // worth knowing
	Warnings []string // worth changing
}

// Children returns all programs in the order in which they start: chat first.
func (p *Plan) Children() []ChildSpec {
	all := []ChildSpec{p.Primary}
	if p.Second != nil {
		all = append(all, *p.Second)
	}
	all = append(all, p.Others...)
	return append(all, p.Side...)
}

// Shown is the device as /v1/models has it.
func (p *Plan) Shown() string {
	switch p.Mode {
	case Adaptive:
		return string(p.Primary.Device) + "+" + string(p.Second.Device)
	case Classified:
		return "laya"
	}
	return p.Primary.Label()
}

// planner is a plan on its way.
type planner struct {
	m       *Machine
	o       Options
	recipes *recipe.Set
	plan    *Plan
	auto    bool // nobody asked for the device
	oneSlot bool // hrx gets one slot whatever was asked
	encodes bool // our own engine makes embeddings or scores with the model
}

// NewPlan decides where a model runs and with which command lines. Every refusal names the option, the device and what
// to do instead. It reads files and asks the llama-servers that it finds what they can run on; it starts nothing else.
func NewPlan(ctx context.Context, m *Machine, o Options) (*Plan, error) {
	p := &planner{m: m, o: o, plan: &Plan{Mode: Single, Name: o.Name(), AdaptiveAt: o.AdaptiveAt, Sticky: o.Sticky, LongFrom: o.LongFrom}}
	if err := p.checkOptions(); err != nil {
		return nil, err
	}
	model, err := Probe(o.Model, o.Device)
	if err != nil {
		return nil, err
	}
	p.encodes = encodes(model)
	if p.recipes, err = recipes(o); err != nil {
		return nil, err
	}
	if err := p.place(ctx, model); err != nil {
		return nil, err
	}
	if p.plan.Mode != Classified {
		if err := p.checkDevice(p.plan.Device); err != nil {
			return nil, err
		}
		if err := p.build(ctx, model); err != nil {
			return nil, err
		}
	}
	if err := p.sides(ctx); err != nil {
		return nil, err
	}
	p.idle()
	return p.plan, nil
}

// readSmall reads a file of at most 1 MiB.
func readSmall(path string) ([]byte, error) {
	const most = 1 << 20
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && len(b) > most {
		err = errors.New("it is larger than 1 MiB")
	}
	return b, err
}

// recipes returns the recipes that hold.
func recipes(o Options) (*recipe.Set, error) {
	switch {
	case o.NoRecipes:
		return nil, nil
	case o.Recipes == "":
		return recipe.Builtin()
	}
	b, err := readSmall(o.Recipes)
	if err != nil {
		return nil, fmt.Errorf("--recipes %s: %w", o.Recipes, reason(err))
	}
	set, err := recipe.Parse(b)
	if err != nil {
		return nil, fmt.Errorf("--recipes %s: %w", o.Recipes, err)
	}
	return set, nil
}

// build makes the command lines of the model itself.
func (p *planner) build(ctx context.Context, model Model) (err error) {
	o, device := p.o, p.plan.Device
	if o.Adaptive && o.Parallel < 2 {
		o.Parallel = max(1, o.AdaptiveAt)
	}
	if p.oneSlot {
		o.Parallel = 0
	}
	if p.plan.Primary, err = p.spec(ctx, o, model, device); err != nil {
		return err
	}
	switch {
	case o.Adaptive:
		o.Parallel, p.plan.Mode = 16, Adaptive
		return p.second(ctx, o, model)
	case o.LongModel != "":
		p.plan.Mode = Long
		return p.long(ctx, model)
	}
	return nil
}

// long plans the second backend of --long-model.
func (p *planner) long(ctx context.Context, short Model) error {
	model, err := Probe(p.o.LongModel, engine.ROCm)
	switch {
	case err != nil:
		return fmt.Errorf("--long-model: %w", err)
	case !model.Hadamard:
		return fmt.Errorf("--long-model: %q is no Hadamard-rotated Q4_0 file (onebit.hadamard_q4_0 = 32); make one with `1bit tool hadamard`", p.o.LongModel)
	case short.Hadamard:
		return fmt.Errorf("--long-model: -m %q is Hadamard-rotated too; give the plain file as -m, or leave --long-model out", p.o.Model)
	}
	o := p.o
	o.Model = p.o.LongModel
	return p.second(ctx, o, model)
}

// second plans a second backend for chat: rocm, without a drafter, on its own llama-server.
func (p *planner) second(ctx context.Context, o Options, model Model) error {
	o.MTP, o.DFlash, o.DraftMax, o.DraftPMin = "", "", 0, ""
	o.LlamaServer, o.PrefillDevice, o.FlashAttn, o.Lean = "", "", "", false
	o.MoESlots, o.MoEAuto = 0, false
	spec, err := p.spec(ctx, o, model, engine.ROCm)
	if err != nil {
		return fmt.Errorf("the second backend: %w", err)
	}
	spec.Name = p.plan.Name
	p.plan.Second = &spec
	return nil
}

// sides plans the side servers.
func (p *planner) sides(ctx context.Context) error {
	for _, s := range []struct {
		option, file string
		role         recipe.Role
	}{{"--embed", p.o.Embed, recipe.Embedding}, {"--rerank", p.o.Rerank, recipe.Reranking}} {
		if s.file == "" {
			continue
		}
		model, err := Probe(s.file, engine.Auto)
		if err == nil && model.Kind != GGUF {
			err = fmt.Errorf("the model %q is no GGUF file", s.file)
		}
		if err == nil {
			err = p.side(ctx, model, s.role)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.option, err)
		}
	}
	return nil
}

// side plans one side server: on HRX0 where there is one, else on Vulkan0, else on the processor, where our own engine
// does what it can.
func (p *planner) side(ctx context.Context, model Model, role recipe.Role) error {
	device, program, err := p.sideDevice(ctx, model)
	if err != nil {
		return err
	}
	if program == p.m.Executable {
		p.plan.Side = append(p.plan.Side, p.builtinSpec(Options{Model: model.Path, Alias: stem(model.Path), Role: role}))
		return nil
	}
	s := ChildSpec{Device: device, Role: role, Name: stem(model.Path), Program: program, Ready: "/health", Slots: 4, ModelField: DropModel, Dialect: Llama}
	tokens := "8192"
	if device == engine.HRX {
		s.Slots, tokens = 1, "2048"
		p.add(&s.Env, p.m.runtime(p.o.LibHSA)...)
	}
	s.Args = append(llamaHead(model.Path, device), "-c", tokens, "-b", tokens, "-ub", tokens, "-np", strconv.Itoa(s.Slots), "--"+string(role))
	r := p.recipes.Apply(recipe.Query{Device: device, Architecture: model.Architecture, Role: role, MoE: model.Experts, Hadamard: model.Hadamard, Side: true}, s.Args, nil)
	p.plan.Warnings = append(p.plan.Warnings, r.Warnings...)
	s.Args = append(s.Args, p.o.Append...)
	p.plan.Side = append(p.plan.Side, s)
	return nil
}

// sideDevice returns where side servers run.
func (p *planner) sideDevice(ctx context.Context, model Model) (engine.Device, string, error) {
	if p.o.Device != engine.CPU { // who asks for the processor wants all of it there
		for _, d := range []engine.Device{engine.HRX, engine.Vulkan} {
			program, _, err := p.offered(ctx, d)
			if err != nil {
				return "", "", err
			}
			if program != "" {
				return d, program, nil
			}
		}
	}
	if encodes(model) && p.o.LlamaServer == "" {
		return engine.CPU, p.m.Executable, nil
	}
	program, err := p.m.find(cpuServer, p.o.LlamaServer)
	if err != nil {
		return "", "", fmt.Errorf("a side server of the architecture %.80q runs on a llama-server, also on --device cpu: %w", model.Architecture, err)
	}
	return engine.CPU, program, nil
}

// offered returns the llama-server that has a device; an empty path says in words why there is none. What the user
// names and is not there is an error.
func (p *planner) offered(ctx context.Context, d engine.Device) (program, why string, err error) {
	from, env := vulkanServer, []string(nil)
	if d == engine.HRX {
		from, env = hrxServer, p.m.runtime(p.o.LibHSA)
	}
	program, err = p.m.find(from, p.o.LlamaServer)
	switch {
	case absent(err):
		return "", "no llama-server was found", nil
	case err != nil:
		return "", "", err
	}
	note, err := p.m.offers(ctx, program, env, unit[d])
	switch {
	case ctx.Err() != nil:
		return "", "", context.Cause(ctx)
	case err != nil:
		return "", briefly(err.Error(), program), nil
	case note != "":
		return "", briefly(strings.TrimSuffix(note, "; trying "+unit[d]), program), nil
	}
	return program, "", nil
}

// briefly leaves a program's folder out of a text that clients may see.
func briefly(text, program string) string {
	return strings.ReplaceAll(text, program, filepath.Base(program))
}

// add adds variables that the user has not set. One that is set wins.
func (p *planner) add(env *[]string, more ...string) {
	for _, kv := range more {
		name, _, _ := strings.Cut(kv, "=")
		if own, set := p.m.variable(name); set {
			p.plan.Notes = append(p.plan.Notes, fmt.Sprintf("%s=%s of the environment stays; it would be %s", name, own, kv[len(name)+1:]))
			continue
		}
		*env = append(*env, kv)
	}
}
