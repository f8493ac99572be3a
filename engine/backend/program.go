package backend

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"onebit/engine"
)

// source says where a program is looked for: the option, what was installed later, what came with this installation,
// the variable, PATH.
type source struct {
	option   string
	builds   []string // folders below PREFIX/lib/1bit, in order
	file     string   // the program's name there
	variable string
	onPath   bool
	remedy   string // what to do when there is none
}

const llamaRemedy = "install a llama-server that has %s, give --llama-server PATH, or set ONEBIT_LLAMA_SERVER"

// Sources of the llama-servers.
var (
	hrxServer    = source{"--llama-server", []string{"hrx"}, "llama-server", "ONEBIT_LLAMA_SERVER", true, fmt.Sprintf(llamaRemedy, "HRX0")}
	vulkanServer = source{"--llama-server", []string{"vulkan", "hrx"}, "llama-server", "ONEBIT_LLAMA_SERVER", true, fmt.Sprintf(llamaRemedy, "Vulkan0")}
	cpuServer    = source{"--llama-server", []string{"cpu", "vulkan", "hrx"}, "llama-server", "ONEBIT_LLAMA_SERVER", true,
		"install a llama-server, give --llama-server PATH, or set ONEBIT_LLAMA_SERVER"}
	rocmServer = source{"--llama-server", []string{"rocm", "lean"}, "llama-server", "ONEBIT_LEAN_SERVER", false,
		"it takes a llama-server of the lean tree built with ROCm (-DONEBIT_LEAN, -DONEBIT_LEAN_ROCM): give --llama-server PATH, or set ONEBIT_LEAN_SERVER"}
	leanServer = source{"--llama-server", []string{"lean", "rocm"}, "llama-server", "ONEBIT_LEAN_SERVER", false,
		"it takes a llama-server of the lean tree (-DONEBIT_LEAN): give --llama-server PATH, or set ONEBIT_LEAN_SERVER"}
)

// others are the sources of the programs that are no llama-server.
var others = map[engine.Device]source{
	engine.Zinc: {"--zinc", []string{"zinc"}, "zinc", "ONEBIT_ZINC", true, "install zinc, give --zinc PATH, or set ONEBIT_ZINC"},
	engine.DS4:  {"--ds4", []string{"ds4"}, "ds4-server", "ONEBIT_DS4", true, "install ds4-server, give --ds4 PATH, or set ONEBIT_DS4"},
	engine.MLX: {"--mlx-server", []string{"mlx"}, "lemon-mlx-server", "LEMONADE_MLX_SERVER", true,
		"install lemon-mlx-server, give --mlx-server PATH, or set LEMONADE_MLX_SERVER"},
	engine.NPU:  {"--npu", []string{"npu"}, "1bit-npu-server", "ONEBIT_NPU", false, "give --npu PATH, or set ONEBIT_NPU"},
	engine.ONNX: {"", []string{"onnx"}, "ryzenai-server", "ONEBIT_ONNX_SERVER", true, "install ryzenai-server, or set ONEBIT_ONNX_SERVER"},
}

// missing says that a program is nowhere.
type missing struct{ file, also, remedy string }

func (e *missing) Error() string {
	return "no " + e.file + " came with this program" + e.also + "; " + e.remedy
}

// absent reports whether an error says that a program is nowhere.
func absent(err error) bool {
	_, ok := errors.AsType[*missing](err)
	return ok
}

// find returns the path of a program. What the user names must be there: nothing else is tried in its place.
func (m *Machine) find(s source, given string) (string, error) {
	if given != "" {
		path, err := m.lookup(given)
		if err != nil {
			return "", fmt.Errorf("%s %s: %w", s.option, given, err)
		}
		return path, nil
	}
	for _, build := range s.builds {
		if path, ok := m.installed(build, s.file); ok {
			return path, nil
		}
		if path, err := m.runnable(m.lib(build, s.file)); err == nil {
			return path, nil
		}
	}
	if named, ok := m.variable(s.variable); ok && named != "" {
		path, err := m.lookup(named)
		if err != nil {
			return "", fmt.Errorf("%s names %s: %w", s.variable, named, err)
		}
		return path, nil
	}
	if !s.onPath {
		return "", &missing{s.file, "", s.remedy}
	}
	path, err := m.lookup(s.file)
	if err != nil {
		return "", &missing{s.file, ", and none is on PATH", s.remedy}
	}
	return path, nil
}

// Program finds somebody else's program that serves a device, as serve does when no option names one, and says in words where it
// was found. An error says what is missing, and leaves to the caller what to do about it.
func (m *Machine) Program(d engine.Device) (path, from string, err error) {
	s, ok := others[d]
	switch d {
	case engine.HRX:
		s = hrxServer
	case engine.Vulkan:
		s = vulkanServer
	case engine.ROCm:
		s = rocmServer
	default:
		if !ok {
			return "", "", fmt.Errorf("no program serves the device %q", d)
		}
	}
	path, err = m.find(s, "")
	named, _ := m.variable(s.variable)
	if e, ok := errors.AsType[*missing](err); ok {
		err = fmt.Errorf("no %s came with this program%s, and %s is not set", e.file, strings.TrimPrefix(e.also, ","), s.variable)
	}
	switch {
	case err != nil:
		return "", "", err
	case m.Installed != "" && strings.HasPrefix(path, m.Installed+string(filepath.Separator)):
		return path, "installed", nil
	case strings.HasPrefix(path, m.lib()+string(filepath.Separator)):
		return path, "part of this installation", nil
	case named != "":
		return path, "$" + s.variable, nil
	}
	return path, "PATH", nil
}

// Lists asks the program that serves a device, as Program finds it, what it can run on, and returns its answer as it is.
func (m *Machine) Lists(ctx context.Context, d engine.Device) (string, error) {
	path, _, err := m.Program(d)
	if err != nil {
		return "", err
	}
	var env []string
	if d == engine.HRX {
		env = m.runtime("")
	}
	return m.asked(ctx, path, env, ListDevices)
}

// ListDevices is the question to a llama-server what it can run on.
const ListDevices = "--list-devices"

// unit names a device as a llama-server lists it.
var unit = map[engine.Device]string{engine.HRX: "HRX0", engine.Vulkan: "Vulkan0", engine.ROCm: "ROCm0"}

// runtimeVariable names the HSA runtime to the hrx backend.
const runtimeVariable = "IREE_HAL_AMDGPU_LIBHSA_PATH"

// runtime returns the variable that an hrx child needs: the distribution's HSA runtime is refused there. given is the
// option's value.
func (m *Machine) runtime(given string) []string {
	if _, set := m.variable(runtimeVariable); set {
		return nil
	}
	if given == "" {
		given = m.HSARuntime()
	}
	if given == "" {
		return nil
	}
	return []string{runtimeVariable + "=" + given}
}

// offers asks a llama-server whether it lists a device. An error says that it does not, and with which remedy; a program
// that gives no list is taken at its word, which is what note says.
func (m *Machine) offers(ctx context.Context, program string, env []string, device string) (note string, err error) {
	list, err := m.Devices(ctx, program, env...)
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		return fmt.Sprintf("%s does not say what it can run on (--list-devices: %v); trying %s", program, err, device), nil
	}
	if slices.Contains(list, device) {
		return "", nil
	}
	if len(list) == 0 {
		list = []string{"nothing"}
	}
	return "", fmt.Errorf("%s lists no %s (it lists %s)", program, device, strings.Join(list, ", "))
}

// mentions reports whether a program, or the llama libraries beside it, hold a text. Whoever reads a metadata key must
// have its name somewhere, so this tells a server that knows a key from one that does not, without running it.
func mentions(program, text string) bool {
	if real, err := filepath.EvalSymlinks(program); err == nil {
		program = real
	}
	files := []string{program}
	for _, dir := range []string{".", "../lib", "../lib64"} {
		list, _ := filepath.Glob(filepath.Join(filepath.Dir(program), dir, "*llama*"))
		files = append(files, list...)
	}
	return slices.ContainsFunc(files, func(path string) bool { return holds(path, text) })
}

// holds reports whether a file holds a text, read piece by piece.
func holds(path, text string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	buf := make([]byte, 1<<20)
	kept := 0
	for {
		n, err := f.Read(buf[kept:])
		n += kept
		if strings.Contains(string(buf[:n]), text) {
			return true
		}
		if err != nil {
			return false
		}
		kept = copy(buf, buf[max(0, n-len(text)):n])
	}
}
