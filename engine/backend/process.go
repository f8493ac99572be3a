package backend

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Command is a program with its arguments, and what its environment has beyond our own.
type Command struct {
	Path string
	Args []string // without the program's name
	Env  []string // NAME=value; a variable that the user has set wins
	End  *os.File // of a conduit, to be inherited; nil for none
}

// Process is a running child.
type Process interface {
	Pid() int
	Wait() error // returns once the process has ended; called once
	Terminate()  // asks it to end
	Kill()       // ends it and whatever it started; harmless when nothing is left
}

// command is a process of the operating system.
type command struct{ cmd *exec.Cmd }

// Place is where a process serves: on a loopback port, or at the end of a conduit.
type Place struct {
	Port int
	End  *os.File // nil for a port; whoever has made it closes it
}

// String names the place, for logs.
func (p Place) String() string {
	if p.End != nil {
		return "a conduit"
	}
	return "port " + strconv.Itoa(p.Port)
}

// Launch starts a process that serves at a place. The calling thread must live as long as the process is wanted.
type Launch func(at Place, stdout, stderr io.Writer) (Process, error)

// owner is a process that runs as a user who may be another than ours.
type owner interface{ UID() int }

// Identity is a user that a child runs as.
type Identity struct {
	UID, GID uint32
	Groups   []uint32 // beside GID
}

// launch starts a program.
func launch(c Command, stdout, stderr io.Writer) (Process, error) {
	return launchAs(nil, c, stdout, stderr)
}

// launchAs starts a program as another user; nil is our own.
func launchAs(id *Identity, c Command, stdout, stderr io.Writer) (Process, error) {
	cmd := exec.CommandContext(context.Background(), c.Path, c.Args...) // it is ended by Terminate and Kill
	cmd.Env = environment(os.Environ(), c.Env)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if c.End != nil {
		cmd.ExtraFiles = []*os.File{c.End} // becomes conduit.Descriptor
	}
	cmd.WaitDelay = 2 * time.Second // for writers that are no file, when a grandchild holds the pipe
	cmd.SysProcAttr = attributes()
	if err := id.apply(cmd.SysProcAttr); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &command{cmd}, nil
}

func (c *command) Pid() int    { return c.cmd.Process.Pid }
func (c *command) Wait() error { return c.cmd.Wait() }

// environment adds to own what the user has not set.
func environment(own, more []string) []string {
	set := make(map[string]bool, len(own))
	for _, kv := range own {
		name, _, _ := strings.Cut(kv, "=")
		set[name] = true
	}
	for _, kv := range more {
		if name, _, _ := strings.Cut(kv, "="); !set[name] {
			own = append(own, kv)
		}
	}
	return own
}
