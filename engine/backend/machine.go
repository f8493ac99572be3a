package backend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"onebit/engine/plan"
)

// Machine is what planning asks of the world. Files are read as they are; all else can be replaced.
type Machine struct {
	GOOS       string
	Executable string   // our own program, in PREFIX/bin
	Installed  string   // where programs were installed later, as DEVICE/current; "" for nowhere
	Environ    []string // NAME=value
	HSARoot    string   // where TheRock's HSA runtime is installed

	// Memory returns the bytes that new programs can have without swapping.
	Memory func() (uint64, error)

	// Ask runs a program to its end and returns what it wrote to standard output. It is used for questions that take a
	// moment, such as --list-devices. env is added to the environment.
	Ask func(ctx context.Context, program string, env []string, args ...string) (string, error)

	answers *answers
}

// ThisMachine returns the machine that we run on.
func ThisMachine() (*Machine, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	return &Machine{
		GOOS:       runtime.GOOS,
		Executable: self,
		Environ:    os.Environ(),
		HSARoot:    "/opt/rocm-therock",
		Memory: func() (uint64, error) {
			m, err := plan.ReadMemory(os.ReadFile)
			return m.Available, err
		},
		Ask:     ask,
		answers: &answers{known: map[question]answer{}},
	}, nil
}

// askLimit bounds how long a program may take to answer a question.
const askLimit = 10 * time.Second

// ask runs a program that ends by itself.
func ask(ctx context.Context, program string, env []string, args ...string) (string, error) {
	return askAs(ctx, nil, program, env, args...)
}

// askAs runs it as another user; nil is our own.
func askAs(ctx context.Context, id *Identity, program string, env []string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, askLimit, fmt.Errorf("it did not answer within %v", askLimit))
	defer cancel()
	runtime.LockOSThread() // the kernel ends the program when the thread that started it ends
	defer runtime.UnlockOSThread()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = environment(os.Environ(), env)
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.SysProcAttr = attributes()
	if err := id.apply(cmd.SysProcAttr); err != nil {
		return "", err
	}
	cmd.WaitDelay = time.Second
	cmd.Cancel = func() error {
		(&command{cmd}).Kill()
		return nil
	}
	err := cmd.Run()
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		if last := lastLine(errs.Bytes()); last != "" {
			err = fmt.Errorf("%w: %s", err, last)
		}
		return "", err
	}
	return out.String(), nil
}

// lastLine returns the last line that is not empty, cut to a length for messages.
func lastLine(b []byte) string {
	s := string(bytes.TrimSpace(b))
	s = strings.TrimSpace(s[strings.LastIndexByte(s, '\n')+1:])
	if len(s) > 200 {
		s = s[:200]
	}
	return s
}

// answers remembers what programs said, as long as they stay the same files.
type answers struct {
	mu    sync.Mutex
	known map[question]answer
}

type question struct {
	program, what string
	modified      time.Time
	size          int64
}

type answer struct {
	text string
	err  error
}

// asked is Ask with a memory.
func (m *Machine) asked(ctx context.Context, program string, env []string, args ...string) (string, error) {
	info, err := os.Stat(program)
	if err != nil || m.answers == nil {
		return m.Ask(ctx, program, env, args...)
	}
	q := question{program, strings.Join(append(env, args...), "\x00"), info.ModTime(), info.Size()}
	m.answers.mu.Lock()
	known, ok := m.answers.known[q]
	m.answers.mu.Unlock()
	if ok {
		return known.text, known.err
	}
	text, err := m.Ask(ctx, program, env, args...)
	if ctx.Err() == nil {
		m.answers.mu.Lock()
		m.answers.known[q] = answer{text, err}
		m.answers.mu.Unlock()
	}
	return text, err
}

// Devices asks a llama-server what it can run on, such as Vulkan0. A program that prints no such list is an error.
func (m *Machine) Devices(ctx context.Context, program string, env ...string) ([]string, error) {
	out, err := m.asked(ctx, program, env, "--list-devices")
	if err != nil {
		return nil, err
	}
	return ParseDevices(out)
}

// ParseDevices reads what a llama-server prints on --list-devices and returns the names, which consist of letters and
// digits. A text without such a list is an error.
func ParseDevices(out string) ([]string, error) {
	_, list, ok := strings.Cut(out, "Available devices:")
	if !ok {
		return nil, errors.New("it prints no list of devices")
	}
	var names []string
	for line := range strings.Lines(list) {
		name, _, ok := strings.Cut(strings.TrimSpace(line), ":")
		if ok && name != "" && !strings.ContainsFunc(name, func(r rune) bool {
			return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
		}) {
			names = append(names, name)
		}
	}
	return names, nil
}

// variable returns a variable of the environment.
func (m *Machine) variable(name string) (string, bool) {
	for _, kv := range m.Environ {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// lib returns the path of a file that came with this installation, below PREFIX/lib/1bit.
func (m *Machine) lib(parts ...string) string {
	prefix := filepath.Dir(filepath.Dir(m.Executable))
	return filepath.Join(append([]string{prefix, "lib", "1bit"}, parts...)...)
}

// installed returns the path of a program of a build that was installed later; it wins over what came with us.
func (m *Machine) installed(build, file string) (string, bool) {
	if m.Installed == "" {
		return "", false
	}
	path, err := m.runnable(filepath.Join(m.Installed, build, "current", file))
	return path, err == nil
}

// lookup finds a program as a shell does: a name with a separator is a path, any other is looked for on PATH.
func (m *Machine) lookup(name string) (string, error) {
	if strings.ContainsRune(name, '/') || strings.ContainsRune(name, filepath.Separator) {
		return m.runnable(name)
	}
	dirs, _ := m.variable("PATH")
	for _, dir := range filepath.SplitList(dirs) {
		if dir == "" || !filepath.IsAbs(dir) {
			continue // what lies in the working directory is not started by accident
		}
		if path, err := m.runnable(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", errors.New("it is not on PATH")
}

// runnable returns the path of a program when it can be run.
func (m *Machine) runnable(path string) (string, error) {
	info, err := os.Stat(path)
	if m.GOOS == "windows" && err != nil && filepath.Ext(path) == "" {
		path += ".exe"
		info, err = os.Stat(path)
	}
	switch {
	case err != nil:
		return "", reason(err)
	case info.IsDir():
		return "", errors.New("it is a directory")
	case m.GOOS != "windows" && info.Mode()&0o111 == 0:
		return "", errors.New("it is not executable")
	}
	return path, nil
}

// hsaDepth is how far below a folder the runtime is looked for.
const hsaDepth = 6

// hsaName is the file of the HSA runtime.
const hsaName = "libhsa-runtime64.so.1"

// HSARuntime finds TheRock's HSA runtime: what was installed with the build for hrx, what came with us, else the first
// one below HSARoot. It is empty when there is none.
func (m *Machine) HSARuntime() string {
	roots := []string{m.lib("hrx"), m.HSARoot}
	if m.Installed != "" {
		roots = append([]string{filepath.Join(m.Installed, "hrx", "current") + string(filepath.Separator)}, roots...)
	}
	for _, root := range roots {
		if path := hsaBelow(root); path != "" {
			return path
		}
	}
	return ""
}

// hsaBelow returns the first runtime below a folder, in the order of names.
func hsaBelow(root string) (found string) {
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error { // it returns what we return
		depth := strings.Count(strings.TrimPrefix(path, root), string(filepath.Separator))
		switch {
		case d != nil && d.IsDir() && (err != nil || depth >= hsaDepth):
			return filepath.SkipDir // it cannot be read, or lies too deep
		case d != nil && d.Name() == hsaName && exists(path):
			found = path
			return filepath.SkipAll
		}
		return nil
	})
	return found
}

// exists reports whether there is a file of this name, behind links too.
func exists(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir()
}
