package backend

import (
	"io"

	"onebit/engine/sandbox"
)

// World replaces what a child needs of the system.
type World struct {
	Launch  func(Command) (Process, error)
	Owns    func(pid, port int) bool
	Taken   func(port int) bool
	Connect func(port int) (*Remote, error)
}

// Fake puts a child into another world. Ports count from 1.
func Fake(c *Child, w World) {
	port := 0
	c.os = system{
		launch:  func(cmd Command, _, _ io.Writer) (Process, error) { return w.Launch(cmd) },
		port:    func() (int, error) { port++; return port, nil },
		owns:    w.Owns,
		taken:   w.Taken,
		connect: w.Connect,
	}
}

// FakeLazy puts the children of a backend that starts late into another world.
func FakeLazy(l *Lazy, w World) {
	l.make = func() (*Child, error) {
		c, err := NewChild(l.cfg.Child)
		if err == nil {
			Fake(c, w)
		}
		return c, err
	}
}

// Environment is environment.
func Environment(own, more []string) []string { return environment(own, more) }

// Mentions is mentions.
func Mentions(program, text string) bool { return mentions(program, text) }

// Far makes a Remote generate as it does towards other machines.
func Far(r *Remote) *Remote {
	r.direct = nil
	return r
}

// SandboxOf is what a confinement lets a child do.
func SandboxOf(c Confinement, o Options, s ChildSpec, at Place) (sandbox.Spec, error) {
	return c.spec(o, s, at)
}

// MemoryOf is memory.
func MemoryOf(o Options, s ChildSpec, read func(name string) ([]byte, error)) uint64 {
	return memory(o, s, read)
}

// NodePatterns are the device nodes of a device; Asked is whose nodes a program sees that is asked what there is.
var NodePatterns = nodePatterns

// Asked is the device that Confinement.Ask takes.
const Asked = asked
