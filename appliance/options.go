package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"

	"onebit/appliance/doctor"
	"onebit/engine/conversion"
)

// options parses the command line of one command.
type options struct {
	name   string // as it is typed
	usage  string
	set    *flag.FlagSet
	out    io.Writer
	errs   io.Writer
	values []string // what belongs to no option
}

func newOptions(name, usage string, stdout, stderr io.Writer) *options {
	set := flag.NewFlagSet(name, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	return &options{name: name, usage: usage, set: set, out: stdout, errs: stderr}
}

// parse reads the arguments; options and other values may be mixed. done says that the command ends with status.
func (o *options) parse(args []string, least, most int) (status int, done bool) {
	for {
		err := o.set.Parse(args)
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprint(o.out, o.usage)
			return 0, true
		}
		if err != nil {
			return o.wrong("%v", err), true
		}
		if args = o.set.Args(); len(args) == 0 {
			break
		}
		o.values, args = append(o.values, args[0]), args[1:]
	}
	if len(o.values) > most {
		return o.wrong("unexpected %q", o.values[most]), true
	}
	if len(o.values) < least {
		return o.wrong("too few arguments"), true
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

// whole declares an option for a whole number between bounds.
func (o *options) whole(name string, def, least, most int) *int {
	n := def
	o.set.Func(name, "", func(text string) error {
		v, err := strconv.Atoi(text)
		if err != nil || v < least || v > most {
			return fmt.Errorf("it is not a whole number from %d to %d", least, most)
		}
		n = v
		return nil
	})
	return &n
}
