package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"onebit/appliance/config"
)

const configUsage = `usage: 1bit config check|print [options]

  check   say whether the configuration is right, and each mistake in it; warn of what a box starts without, such as a
          model's file that is not there
  print   show each value that holds, and where it comes from

  --config FILE     the configuration (STATE/1bit.yaml or STATE/1bit.toml, when it is there)
  --state DIR       the state directory
  --set PATH=VALUE  replace one value; may be given more than once

A value in the file replaces the default, one in the environment (listen.port is ONEBIT_LISTEN_PORT) that of the
file, one given by --set that of the environment.
`

// boxOptions is the command line of what works on a box's configuration.
type boxOptions struct {
	file  string // empty takes the one in the state directory, when it is there
	state string
	set   []string
}

// parseBox reads the command line that `1bit appliance` and `1bit config` share.
func parseBox(args []string) (boxOptions, error) {
	var o boxOptions
	to := map[string]func(string){
		"--config":    func(s string) { o.file = s },
		"--state":     func(s string) { o.state = s },
		"--set":       func(s string) { o.set = append(o.set, s) },
		"--host":      func(s string) { o.set = append(o.set, "listen.host="+s) },
		"--port":      func(s string) { o.set = append(o.set, "listen.port="+s) },
		"--http-port": func(s string) { o.set = append(o.set, "listen.http_port="+s) },
	}
	for len(args) > 0 {
		name := args[0]
		if name == "-h" || name == "--help" {
			return o, errHelp
		}
		take, ok := to[name]
		switch {
		case !ok && !strings.HasPrefix(name, "-"):
			return o, fmt.Errorf("%q is no option: give a configuration as --config FILE", name)
		case !ok:
			return o, fmt.Errorf("unknown option %s", name)
		case len(args) == 1 || args[1] == "":
			return o, fmt.Errorf("%s needs a value", name)
		}
		take(args[1])
		args = args[2:]
	}
	if o.state == "" {
		dir, err := stateDir(os.Getenv)
		if err != nil {
			return o, err
		}
		o.state = dir
	}
	// children of the box work in folders of their own
	for _, path := range []*string{&o.state, &o.file} {
		whole, err := filepath.Abs(*path)
		if err != nil {
			return o, err
		}
		if *path != "" {
			*path = whole
		}
	}
	return o, nil
}

// stateDir is where a box keeps its state when nothing else is said: what systemd gives, else a folder of the user.
func stateDir(getenv func(string) string) (string, error) {
	if dir := getenv("STATE_DIRECTORY"); dir != "" {
		return dir, nil
	}
	if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "1bit"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", errors.New("there is no home directory to keep the state in; give --state DIR")
	}
	return filepath.Join(home, ".local", "state", "1bit"), nil
}

// configNames are the names of the configuration in a state directory and in a copy; a box has one of them.
var configNames = []string{"1bit.yaml", "1bit.toml"}

// path is the file that read reads. Of none in the state directory it is the one that could be there.
func (o boxOptions) path() string {
	if o.file != "" {
		return o.file
	}
	for _, name := range configNames {
		if path := filepath.Join(o.state, name); exists(path) {
			return path
		}
	}
	return filepath.Join(o.state, configNames[0])
}

// exists reports whether something has this path, a link to nowhere too.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// read makes the configuration of the moment; stored are settings that were made through the control plane.
func (o boxOptions) read(stored map[string]string) (config.Box, config.Origins, error) {
	src := config.Source{Stored: stored, File: o.path(), Env: os.Environ(), Set: o.set}
	if first, second := filepath.Join(o.state, configNames[0]), filepath.Join(o.state, configNames[1]); o.file == "" && exists(first) && exists(second) {
		return config.Box{}, nil, config.ProblemsError{{Where: second, Text: "there is " + first + " as well; keep one of them"}}
	}
	text, err := readUpTo(src.File, config.MaxFile+1)
	if err != nil && (o.file != "" || exists(src.File)) {
		return config.Box{}, nil, fmt.Errorf("reading the configuration: %w", err)
	}
	src.Text = text
	return config.ReadBox(src)
}

// readUpTo reads a file, and no more of it than so many bytes.
func readUpTo(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return io.ReadAll(io.LimitReader(f, most))
}

// exposed says that others of this machine can read secrets of the configuration; empty when they cannot.
func (o boxOptions) exposed(from config.Origins) string {
	info, err := os.Stat(o.path())
	if err != nil || runtime.GOOS == "windows" || info.Mode().Perm()&0o004 == 0 {
		return ""
	}
	for path, where := range from {
		if config.IsSecret(path) && strings.HasPrefix(where, o.path()+":") {
			return fmt.Sprintf("%s holds secrets (%s) and every user of this machine can read it: chmod 640", o.path(), path)
		}
	}
	return ""
}

// config is `1bit config`.
func (p program) config(args []string) int {
	if len(args) == 0 {
		fmt.Fprint(p.stderr, configUsage)
		return 2
	}
	verb := args[0]
	if verb == "-h" || verb == "--help" {
		fmt.Fprint(p.stdout, configUsage)
		return 0
	}
	if verb != "check" && verb != "print" {
		fmt.Fprintf(p.stderr, "1bit config: there is no %q; there are check and print\n", verb)
		return 2
	}
	o, err := parseBox(args[1:])
	if errors.Is(err, errHelp) {
		fmt.Fprint(p.stdout, configUsage)
		return 0
	}
	if err != nil {
		return p.fail("config "+verb, err)
	}
	box, origins, err := o.read(nil)
	if problems, ok := errors.AsType[config.ProblemsError](err); ok {
		fmt.Fprintln(p.stderr, problems)
		fmt.Fprintf(p.stderr, "1bit config %s: %s\n", verb, counted(len(problems), "mistake"))
		return 1
	}
	if err != nil {
		return p.fail("config "+verb, err)
	}
	if verb == "print" {
		form := config.Print
		if config.IsTOML(o.path()) {
			form = config.PrintTOML
		}
		fmt.Fprint(p.stdout, form(box, origins))
		return 0
	}
	wrong, odd := o.lookAround(box, origins)
	for _, w := range odd {
		fmt.Fprintf(p.stderr, "%s: warning: %s\n", w.Where, w.Text)
	}
	if len(wrong) > 0 {
		fmt.Fprintln(p.stderr, wrong)
		fmt.Fprintf(p.stderr, "1bit config check: %s\n", counted(len(wrong), "mistake"))
		return 1
	}
	_, err = os.Stat(enginesSocket) // of an installed box, whose variable this shell need not have
	if warning := ineffective(box, err == nil || os.Getenv(enginesVariable) != ""); warning != "" {
		fmt.Fprintf(p.stderr, "1bit config check: %s\n", warning)
	}
	if warning := o.exposed(origins); warning != "" {
		fmt.Fprintf(p.stderr, "1bit config check: %s\n", warning)
	}
	if !exists(o.path()) {
		fmt.Fprintf(p.stdout, "there is no %s: the defaults hold\n", o.path())
		return 0
	}
	warnings := ""
	if len(odd) > 0 {
		warnings = ", " + counted(len(odd), "warning")
	}
	fmt.Fprintf(p.stdout, "%s is right: %s%s\n", o.path(), counted(len(box.Models), "model"), warnings)
	return 0
}

// counted puts a number before a noun.
func counted(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
