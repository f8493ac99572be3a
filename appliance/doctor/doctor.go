// Package doctor looks at a box and says what of it can serve models, and what to do about what cannot.
package doctor

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"onebit/engine"
	"onebit/engine/sandbox"
)

// Status is the verdict on one thing.
type Status string

// The verdicts.
const (
	OK   Status = "ok"   // as it should be
	Warn Status = "warn" // usable, but not at its best
	Miss Status = "miss" // not there, or not usable
)

// Check is one thing that was looked at.
type Check struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	Text   string `json:"text"`
	Remedy string `json:"remedy,omitempty"` // what to do, in one line; empty when there is nothing to do
}

// Device says whether models can run on a device of this box.
type Device struct {
	Device engine.Device `json:"device"`
	Usable bool          `json:"usable"`
	Why    string        `json:"why"`
}

// Report is all that was found out.
type Report struct {
	Checks    []Check  `json:"checks"`
	Devices   []Device `json:"devices"`
	Memory    uint64   `json:"memory_bytes"`    // of the machine; 0 when it cannot be told
	Available uint64   `json:"available_bytes"` // of it, what a model can have; 0 when it cannot be told
	Cards     []Card   `json:"cards"`
}

// CanServe reports whether a model can run on any device.
func (r Report) CanServe() bool {
	for _, d := range r.Devices {
		if d.Usable {
			return true
		}
	}
	return false
}

// Program is the server of a device.
type Program struct {
	Path string
	From string // where it was found, in words such as PATH
}

// Call is a program to run.
type Call struct {
	Path string
	Args []string
	Env  []string // NAME=VALUE, beside our own
}

// Box is the machine, as far as the doctor asks it. All fields but Others must be set.
type Box struct {
	Root     string // the folder that holds /proc, /sys, /dev and /opt
	GOOS     string
	GOARCH   string
	Cores    int             // logical processors that we may use
	Level    string          // instruction set that the built-in engine's kernels use
	Models   string          // the cache of model files
	Prefix   string          // where we are installed: servers that came with us lie below lib/1bit/DEVICE
	Sandbox  sandbox.Support // what the kernel has to confine model servers
	Getenv   func(name string) string
	Access   func(path string) error                     // whether we may read and write a device
	Space    func(dir string) (free uint64, err error)   // bytes free where a folder is, or would be
	Programs func(engine.Device) (Program, error)        // the server of a device; the error says what is missing
	Run      func(context.Context, Call) (string, error) // runs a program and returns all that it printed

	// Others are looks at what is not of this machine, such as servers that run models of the box. They are taken at the same time.
	Others []func(context.Context) Check
}

// othersLimit is for how long others are looked at.
const othersLimit = 20 * time.Second

// exam is one examination.
type exam struct {
	Box
	ctx    context.Context
	report Report

	release  string // of the kernel
	kernel   kernel
	known    bool // the release could be read
	cmdline  map[string]string
	render   error // why no render node can be used; nil when one can
	kfd      error // the same of the compute interface
	npu      error // the same of the NPU
	library  string
	lists    map[string][]string // what a server says it can run on, by path
	programs map[engine.Device]Program
	missing  map[engine.Device]error
}

// Examine looks at all of the box. It changes nothing, and gives up on programs that hang.
func Examine(ctx context.Context, b Box) Report {
	e := &exam{
		Box: b, ctx: ctx, cmdline: map[string]string{}, lists: map[string][]string{},
		programs: map[engine.Device]Program{}, missing: map[engine.Device]error{},
	}
	e.report.Cards = []Card{}
	e.processor()
	e.memory()
	if b.GOOS == "linux" {
		e.started()
		e.discover()
		e.system()
		e.confinement()
		e.cards()
		e.nodes()
		e.neural()
		e.runtime()
	}
	e.servers()
	e.storage()
	e.others()
	e.judge()
	return e.report
}

// others looks at what is not of this machine.
func (e *exam) others() {
	ctx, cancel := context.WithTimeout(e.ctx, othersLimit)
	defer cancel()
	found := make([]Check, len(e.Others))
	var group sync.WaitGroup
	for i, look := range e.Others {
		group.Go(func() { found[i] = look(ctx) })
	}
	group.Wait()
	for _, c := range found {
		e.add(c.Name, c.Status, c.Text, c.Remedy)
	}
}

// add notes a verdict. The remedy is for what is not well.
func (e *exam) add(name string, s Status, text, remedy string) {
	if s == OK {
		remedy = ""
	}
	e.report.Checks = append(e.report.Checks, Check{Name: name, Status: s, Text: text, Remedy: remedy})
}

// path returns where a path of the box lies.
func (e *exam) path(name string) string { return filepath.Join(e.Root, filepath.FromSlash(name)) }

// read returns a small file's text without the blanks around it, and "" when there is none.
func (e *exam) read(name string) string {
	f, err := os.Open(e.path(name))
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 1<<16))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// glob lists the files of the box that a pattern matches, as paths of the box, sorted.
func (e *exam) glob(pattern string) []string {
	found, err := filepath.Glob(filepath.Join(escape(e.Root), filepath.FromSlash(pattern)))
	if err != nil {
		return nil
	}
	var out []string
	for _, f := range found {
		if rel, err := filepath.Rel(e.Root, f); err == nil {
			out = append(out, "/"+filepath.ToSlash(rel))
		}
	}
	return out
}

// escape keeps the signs of a pattern in a path from being read as such.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
