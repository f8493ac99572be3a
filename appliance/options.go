package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"onebit/appliance/doctor"
	"onebit/engine/conversion"
)

// commandLine is the options and the words of a sub-command.
type commandLine struct {
	*flag.FlagSet
	words []string // what is no option
}

// newCommandLine returns one that knows no option yet.
func newCommandLine(name string) *commandLine {
	c := &commandLine{FlagSet: flag.NewFlagSet(name, flag.ContinueOnError)}
	c.SetOutput(io.Discard)
	return c
}

// parse reads a command line in which words and options come in any order, and which must have so many words.
func (c *commandLine) parse(args []string, least, most int) error {
	for {
		if err := c.Parse(args); err != nil {
			return err
		}
		if c.NArg() == 0 {
			break
		}
		c.words, args = append(c.words, c.Arg(0)), c.Args()[1:]
	}
	switch {
	case len(c.words) < least:
		return fmt.Errorf("%d more needed", least-len(c.words))
	case len(c.words) > most:
		return fmt.Errorf("unexpected %q", c.words[most])
	}
	return nil
}

// whole is an option that takes a whole number between bounds.
func (c *commandLine) whole(name string, def, least, most int) *int {
	n := def
	c.Func(name, "", func(text string) error {
		v, err := strconv.Atoi(text)
		if err != nil || v < least || v > most {
			return fmt.Errorf("it is not a whole number from %d to %d", least, most)
		}
		n = v
		return nil
	})
	return &n
}

// moment is an option that takes a point in time: a date, a time, a length from now such as 12h or 7d, or never.
func (c *commandLine) moment(name string, to **time.Time) {
	c.Func(name, "", func(text string) error {
		t, err := when(text, time.Now())
		*to = &t
		return err
	})
}

// when reads a point in time. Never is the zero time.
func when(text string, now time.Time) (time.Time, error) {
	if text == "never" {
		return time.Time{}, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n > 0 && n < 100_000 {
			return now.AddDate(0, 0, n), nil
		}
	}
	if length, err := time.ParseDuration(text); err == nil && length > 0 {
		return now.Add(length), nil
	}
	for _, form := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.ParseInLocation(form, text, now.Location()); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is no time: give 12h, 7d, 2027-01-31 or never", text)
}

// list is an option that may be given several times.
func (c *commandLine) list(name string, to **[]string) {
	c.Func(name, "", func(text string) error {
		if *to == nil {
			*to = &[]string{}
		}
		if text != "" { // an empty one takes a limit away
			**to = append(**to, text)
		}
		return nil
	})
}

// number is an option that takes a whole number and remembers whether it was given.
func number[T int | int64](c *commandLine, name string, to **T) {
	c.Func(name, "", func(text string) error {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 || int64(T(n)) != n {
			return fmt.Errorf("%q is no whole number from 0 up", text)
		}
		v := T(n)
		*to = &v
		return nil
	})
}

// text is an option that remembers whether it was given.
func (c *commandLine) text(name string, to **string) {
	c.Func(name, "", func(text string) error { *to = &text; return nil })
}

// act is one word of a command such as `1bit key`.
type act func(ctx context.Context, p program, args []string) error

// runActs runs the one that args name. A mistake in the command line is told with the usage.
func (p program) runActs(ctx context.Context, name, usage string, acts map[string]act, args []string) int {
	if len(args) > 0 && (args[0] == "-h" || args[0] == "--help" || args[0] == "help") {
		fmt.Fprint(p.stdout, usage)
		return 0
	}
	if len(args) == 0 || acts[args[0]] == nil {
		fmt.Fprint(p.stderr, usage)
		return 2
	}
	return p.runAct(ctx, name+" "+args[0], usage, acts[args[0]], args[1:])
}

// runAct runs one act. A mistake in the command line is told with the usage.
func (p program) runAct(ctx context.Context, name, usage string, do act, args []string) int {
	ctx, stop := untilSignal(ctx)
	defer stop()
	err := do(ctx, p, args)
	var mistake usageError
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(p.stdout, usage)
		return 0
	case errors.As(err, &mistake):
		fmt.Fprintf(p.stderr, "1bit %s: %v\n%s", name, err, usage)
		return 2
	case err != nil:
		return p.fail(name, err)
	}
	return 0
}

// usageError is a mistake in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// open parses the command line and finds the box of this machine, by --socket if that is given.
func (c *commandLine) open(args []string, least, most int) (*local, error) {
	socket := c.String("socket", "", "")
	if err := c.parse(args, least, most); err != nil {
		return nil, usageError{err}
	}
	return newLocal(*socket, os.Getenv)
}

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
