package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"

	"onebit/appliance/doctor"
	"onebit/engine/conversion"
)

// options is the command line of a command that has a usage of its own.
type options struct {
	*commandLine
	name  string // as it is typed
	usage string
	out   io.Writer
	errs  io.Writer
}

func newOptions(name, usage string, stdout, stderr io.Writer) *options {
	return &options{commandLine: newCommandLine(name), name: name, usage: usage, out: stdout, errs: stderr}
}

// parse reads the arguments; options and words may be mixed. done says that the command ends with status.
func (o *options) parse(args []string, least, most int) (status int, done bool) {
	err := o.commandLine.parse(args, least, most)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(o.out, o.usage)
		return 0, true
	case err != nil:
		return o.wrong("%v", err), true
	}
	return 0, false
}

// wrong says what is the matter with the command line.
func (o *options) wrong(format string, args ...any) int {
	fmt.Fprintf(o.errs, "1bit %s: %s\n%s", o.name, fmt.Sprintf(format, args...), o.usage)
	return 2
}

// finish turns the outcome into an exit status.
func (o *options) finish(err error) int {
	if err != nil {
		fmt.Fprintf(o.errs, "1bit %s: %v\n", o.name, err)
		return 1
	}
	return 0
}

// log prints what a command says about its work.
func (o *options) log(format string, args ...any) { fmt.Fprintf(o.errs, format+"\n", args...) }

// tools is the world in which llama.cpp's programs run.
func (o *options) tools() conversion.Tools {
	return conversion.Tools{Getenv: os.Getenv, LookPath: exec.LookPath, Space: doctor.Space, Output: o.errs, Log: o.log}
}
