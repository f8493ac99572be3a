// Package sandbox confines a program before it starts. Whoever wants a confined child starts our own program again as
// `1bit sandbox-exec SPEC`; that process takes its own rights away and becomes the program (Enter). The number of the
// process stays the same, and so do its standard streams.
//
// What is taken away, and by what:
//
//	files                 Landlock: what Spec names, and what every program needs to run; the filter: modes, owners and
//	                      attributes by name, which Landlock leaves open
//	other processes       Landlock: no signal to them, no look into their memory; the filter: their limits
//	terminals             the filter: nothing is typed into one that was inherited
//	TCP                   Landlock: one port may be bound, or none; the system call filter refuses every connect
//	other sockets         the system call filter; whoever has a conduit makes none at all
//	system calls          the filter refuses what no model server needs: ptrace, mount, bpf, keyctl, modules, namespaces,
//	                      io_uring, and for programs that start no others every new process
//	privileges            no_new_privs, no capabilities
//	environment           what Spec has and nothing else
//	descriptors           all but the standard streams and the conduit are closed
//	core dumps            none
//	memory, tasks         limits of the kernel for one process; the kernel ends it before others when memory runs out
//
// One hole is left on every kernel: whoever may listen on a port may also listen without naming one, and the kernel
// chooses it. A program with a conduit may not.
//
// A kernel without Landlock or without filters gets what it can do; Supported says what is missing, so that it can be
// told. What the kernel has and refuses is an error: the program does not start.
package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// Command is the sub-command that enters a sandbox.
const Command = "sandbox-exec"

// Spec says what a program may do. Paths are absolute. What is not there is left out, but for the program.
type Spec struct {
	Program string   `json:"program"`
	Args    []string `json:"args"` // without the program's name
	Env     []string `json:"env"`  // NAME=value; all of the environment

	Read    []string `json:"read,omitempty"`    // files and folders; programs in them may be run
	List    []string `json:"list,omitempty"`    // folders whose names may be seen, and nothing in them
	Write   []string `json:"write,omitempty"`   // files and folders to read and write
	Devices []string `json:"devices,omitempty"` // device nodes, to read, write and control
	Scratch string   `json:"scratch,omitempty"` // a folder of the program's own; it is made when it is not there
	Fresh   bool     `json:"fresh,omitempty"`   // what an earlier one left in Scratch is removed
	Group   bool     `json:"group,omitempty"`   // what it makes is for its group too, not for its user alone

	Port    int    `json:"port,omitempty"`    // the one TCP port that may be listened on; 0 for none
	Conduit bool   `json:"conduit,omitempty"` // it inherits descriptor 3, whence its connections come, and makes no socket at all
	Network bool   `json:"network,omitempty"` // nothing is kept from the network
	Alone   bool   `json:"alone,omitempty"`   // the program starts no others
	Locked  bool   `json:"locked,omitempty"`  // it may lock memory without a limit
	Memory  uint64 `json:"memory,omitempty"`  // bytes of private memory that it may reserve; 0 sets no limit
	Tasks   uint64 `json:"tasks,omitempty"`   // processes and threads of its user; 0 sets no limit

	Parent int `json:"parent"` // who starts it; the program ends with that process's thread
}

// Arguments is the command line of our own program that enters the sandbox.
func (s Spec) Arguments() ([]string, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("writing down a sandbox: %w", err)
	}
	return []string{Command, string(b)}, nil
}

// sweep is said in place of a sandbox.
const sweep = "sweep"

// SweepArguments is the command line of our own program that kills whatever runs as a user. It is to run as that user.
func SweepArguments(uid int) []string { return []string{Command, sweep, strconv.Itoa(uid)} }

// Run does what the arguments behind Command say: it enters a sandbox, or sweeps. It returns when that is done or
// cannot be.
func Run(args []string) error {
	switch {
	case len(args) == 1:
		s, err := Parse(args[0])
		if err != nil {
			return err
		}
		return Enter(s)
	case len(args) == 2 && args[0] == sweep:
		uid, err := strconv.Atoi(args[1])
		if err != nil {
			return fmt.Errorf("reading a user: %w", err)
		}
		return sweepUser(uid)
	}
	return errors.New("this command is for 1bit itself")
}

// Parse reads what Arguments wrote. A relative path, an unknown member or a port that is none is an error.
func Parse(text string) (Spec, error) {
	var s Spec
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return Spec{}, fmt.Errorf("reading a sandbox: %w", err)
	}
	if d.More() {
		return Spec{}, errors.New("reading a sandbox: there is more than one")
	}
	if !filepath.IsAbs(s.Program) {
		return Spec{}, fmt.Errorf("the program %q of a sandbox is no absolute path", s.Program)
	}
	for _, list := range [][]string{s.Read, s.List, s.Write, s.Devices} {
		for _, path := range list {
			if !filepath.IsAbs(path) {
				return Spec{}, fmt.Errorf("the path %q of a sandbox is not absolute", path)
			}
		}
	}
	if s.Scratch != "" && (!filepath.IsAbs(s.Scratch) || filepath.Clean(s.Scratch) == "/") {
		return Spec{}, fmt.Errorf("the folder %q of a sandbox is not one", s.Scratch)
	}
	if s.Port < 0 || s.Port > 65535 {
		return Spec{}, fmt.Errorf("the port %d of a sandbox is none", s.Port)
	}
	if s.Conduit && (s.Port != 0 || s.Network) {
		return Spec{}, errors.New("a sandbox with a conduit has no network beside it")
	}
	return s, nil
}

// Support is what a kernel has for sandboxes.
type Support struct {
	Landlock int  // version of its interface; 0 when it has none
	Filter   bool // system call filters
}

// The versions of Landlock that brought something that is used here.
const (
	landlockPorts   = 4
	landlockSignals = 6
)

// Missing says in words what a program in a sandbox may do because the kernel cannot keep it from that. It is empty on
// a kernel that has all.
func (s Support) Missing() []string {
	var all []string
	switch {
	case s.Landlock == 0:
		all = append(all, "no Landlock: model servers can read and write the files of the user that they run as, and listen on other ports than theirs")
	case s.Landlock < landlockPorts:
		all = append(all, fmt.Sprintf("Landlock %d of %d: model servers can listen on other ports than theirs", s.Landlock, landlockSignals))
	case s.Landlock < landlockSignals:
		all = append(all, fmt.Sprintf("Landlock %d of %d: model servers that start others can signal processes of the same user", s.Landlock, landlockSignals))
	}
	if !s.Filter {
		all = append(all, "no system call filters: model servers can reach the network, change modes of files, and type into the terminal")
	}
	return all
}

// String names what there is.
func (s Support) String() string {
	var has []string
	if s.Landlock > 0 {
		has = append(has, fmt.Sprintf("Landlock %d", s.Landlock))
	}
	if s.Filter {
		has = append(has, "system call filters")
	}
	if len(has) == 0 {
		return "nothing"
	}
	return strings.Join(has, ", ")
}
