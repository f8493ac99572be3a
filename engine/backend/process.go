package backend

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Command is a program with its arguments, and what its environment has beyond our own.
type Command struct {
	Path string
	Args []string // without the program's name
	Env  []string // NAME=value; a variable that the user has set wins
}

// process is a running child.
type process interface {
	Pid() int
	Wait() error // returns once the process has ended; called once
	Terminate()  // asks it to end
	Kill()       // ends it and whatever it started; harmless when nothing is left
}

// command is a process of the operating system.
type command struct{ cmd *exec.Cmd }

// launch starts a program. The calling thread must live as long as the process is wanted.
func launch(c Command, stdout, stderr io.Writer) (process, error) {
	cmd := exec.CommandContext(context.Background(), c.Path, c.Args...) // it is ended by Terminate and Kill
	cmd.Env = environment(os.Environ(), c.Env)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.WaitDelay = 2 * time.Second // for writers that are no file, when a grandchild holds the pipe
	cmd.SysProcAttr = attributes()
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
