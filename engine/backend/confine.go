package backend

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"onebit/engine"
	"onebit/engine/sandbox"
)

// Confinement starts children in sandboxes: a child reads its model, its program and the system's libraries, writes a
// folder of its own, uses its device, listens on its port or takes what comes through its conduit, and nothing else. See package sandbox.
type Confinement struct {
	Executable string   // our own program, which enters the sandbox and becomes the child
	Environ    []string // what the child's environment is taken from; see sandbox.Environment
	Scratch    string   // an absolute folder below which each device has one that its children write; empty for none
	Fresh      bool     // a child finds its folder empty
	Private    []string // folders that no child may see as a whole, such as the state
	As         *Identity
	Group      bool // the state of slots is for the child's group too
	Log        *slog.Logger
}

// Launch returns how the process of a plan's child is started.
func (c Confinement) Launch(o Options, s ChildSpec) Launch {
	return func(at Place, stdout, stderr io.Writer) (Process, error) {
		spec, err := c.spec(o, s, at)
		if err != nil {
			return nil, err
		}
		if spec.Network {
			c.Log.Warn("the " + s.Label() + " backend may use the network: its model is no file and has to be fetched")
		}
		args, err := spec.Arguments()
		if err != nil {
			return nil, err
		}
		return launchAs(c.identity(spec), Command{Path: c.Executable, Args: args, End: at.End}, stdout, stderr)
	}
}

// asked is the device whose children see the most.
const asked = engine.Vulkan

// Ask is what Machine.Ask does, in a sandbox. Whoever is asked sees every graphics card, whoever made it, and no model.
func (c Confinement) Ask(ctx context.Context, program string, env []string, args ...string) (string, error) {
	s := ChildSpec{Device: asked, Program: program, Args: args, Env: env}
	spec, err := c.spec(Options{}, s, Place{})
	if err != nil {
		return "", err
	}
	if args, err = spec.Arguments(); err != nil {
		return "", err
	}
	return askAs(ctx, c.identity(spec), c.Executable, nil, args...)
}

// UID is whom children run as.
func (c Confinement) UID() int {
	if c.As == nil {
		return os.Getuid()
	}
	return int(c.As.UID)
}

// Sweep kills whatever still runs as the user that is set; it must be one for children alone.
func (c Confinement) Sweep() error {
	if c.As == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	_, err := askAs(ctx, c.As, c.Executable, nil, sandbox.SweepArguments(c.UID())...)
	return err
}

// identity is whom a child runs as: the one that is set, in the groups of its devices.
func (c Confinement) identity(s sandbox.Spec) *Identity {
	if c.As == nil {
		return nil
	}
	id := *c.As
	id.Groups = slices.Concat(id.Groups, groupsOf(s.Devices))
	return &id
}

// spec says what a child may do.
func (c Confinement) spec(o Options, s ChildSpec, at Place) (sandbox.Spec, error) {
	if at.End != nil && !s.Builtin {
		return sandbox.Spec{}, fmt.Errorf("%s takes no conduit", s.Program)
	}
	program, err := filepath.Abs(s.Program)
	if err != nil {
		return sandbox.Spec{}, fmt.Errorf("finding %s: %w", s.Program, err)
	}
	env := environment(sandbox.Environment(c.Environ), s.Env)
	spec := sandbox.Spec{
		Program: program, Args: s.at(at).Args, Env: env, Port: at.Port, Conduit: at.End != nil, Parent: os.Getpid(), Fresh: c.Fresh,
		Alone: s.Builtin, Locked: s.Device == engine.NPU, Network: s.Device == engine.MLX && o.Model != "" && !there(o.Model),
		Devices: nodes(s.Device), Read: c.read(o, s, env), Memory: memory(o, s, os.ReadFile),
	}
	if c.As != nil {
		spec.Tasks = mostTasks // where the user is ours the limit would count all that we run
	}
	if slices.ContainsFunc(spec.Devices, func(d string) bool { return within(d, cards) }) {
		spec.List = []string{cards} // drivers look there for their own
	}
	if slices.Contains(spec.Devices, computeNode) {
		spec.Write = append(spec.Write, "/dev/shm") // the HSA runtime's processes meet there
	}
	if dir := s.slotDir(o); dir != "" {
		spec.Write = append(spec.Write, dir)
		spec.Group = c.Group
	}
	if c.Scratch != "" {
		spec.Scratch = filepath.Join(c.Scratch, string(s.Device))
		spec.Env = environment(spec.Env, []string{"HOME=" + spec.Scratch, "TMPDIR=" + spec.Scratch, "XDG_CACHE_HOME=" + spec.Scratch})
	}
	return spec, nil
}

func there(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// read lists what a child reads beside the system's own: the model's files, and what lies around its program.
func (c Confinement) read(o Options, s ChildSpec, env []string) []string {
	var all []string
	for _, file := range models(o, s) {
		all = append(all, shards(file)...)
	}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		switch name {
		case "LD_LIBRARY_PATH":
			for _, dir := range filepath.SplitList(value) {
				if filepath.IsAbs(dir) {
					all = append(all, c.libraries(dir)...)
				}
			}
		case runtimeVariable:
			all = append(all, c.libraries(filepath.Dir(value))...)
		}
	}
	if !s.Builtin {
		if real, err := filepath.EvalSymlinks(s.Program); err == nil {
			dir := filepath.Dir(real)
			all = append(all, c.libraries(dir)...)
			for _, beside := range []string{"lib", "lib64"} {
				all = append(all, c.libraries(filepath.Join(filepath.Dir(dir), beside))...)
			}
		}
	}
	return absolute(all)
}

// absolute makes paths absolute, each once.
func absolute(paths []string) []string {
	var all []string
	for _, path := range paths {
		if abs, err := filepath.Abs(path); err == nil && !slices.Contains(all, abs) {
			all = append(all, abs)
		}
	}
	return all
}

// libraries is a folder that programs and libraries lie in. Of one that holds what is private, or somebody's home, it is
// the libraries alone.
func (c Confinement) libraries(dir string) []string {
	private := c.Private
	if home, err := os.UserHomeDir(); err == nil {
		private = append([]string{home}, private...)
	}
	if !slices.ContainsFunc(private, func(p string) bool { return within(p, dir) }) {
		return []string{dir}
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.so*"))
	return files
}

// within reports whether a path lies below a folder, or is the folder.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

var shardName = regexp.MustCompile(`^(.*-)(\d{5})-of-(\d{5})\.gguf$`)

// shards returns the files of a model: its own, and the others when it is cut into several.
func shards(file string) []string {
	dir, base := filepath.Split(file)
	m := shardName.FindStringSubmatch(base)
	if m == nil {
		return []string{file}
	}
	n, err := strconv.Atoi(m[3])
	if err != nil || n > 999 {
		return []string{file}
	}
	var all []string
	for i := range n {
		all = append(all, filepath.Join(dir, fmt.Sprintf("%s%05d-of-%s.gguf", m[1], i+1, m[3])))
	}
	return all
}

// cards is the folder of the nodes of graphics cards.
const cards = "/dev/dri"

// computeNode is where the kernel takes the work of ROCm and its kin.
const computeNode = "/dev/kfd"

// nodes lists the device nodes that a device's children use, as far as they are there.
func nodes(d engine.Device) []string {
	var all []string
	for _, p := range nodePatterns(d) {
		found, _ := filepath.Glob(p)
		all = append(all, found...)
	}
	return all
}

func nodePatterns(d engine.Device) (patterns []string) {
	switch d {
	case engine.CPU:
	case engine.NPU:
		patterns = []string{"/dev/accel/accel*"}
	case engine.ONNX:
		patterns = []string{"/dev/accel/accel*", "/dev/dri/renderD*", computeNode}
	case engine.Vulkan, engine.Zinc: // whoever asks what there is sees these as well
		patterns = []string{"/dev/dri/renderD*", "/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-modeset"}
	default:
		patterns = []string{"/dev/dri/renderD*", computeNode}
	}
	if d == engine.Vulkan {
		patterns = append(patterns, computeNode) // one llama-server may have HRX0 beside Vulkan0
	}
	return patterns
}
