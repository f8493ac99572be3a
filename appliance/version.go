package main

import "fmt"

const versionUsage = `usage: 1bit version [--levels]

Prints the version. With --levels it prints what instructions of the built-in
engine this processor can run, best first.
`

// version is `1bit version`. Other programs parse the line.
func (p program) version(args []string) int {
	o := newOptions("version", versionUsage, p.stdout, p.stderr)
	instead := o.Bool("levels", false, "")
	if status, done := o.parse(args, 0, 0); done {
		return status
	}
	if *instead {
		fmt.Fprintln(p.stdout, levels())
		return 0
	}
	fmt.Fprintf(p.stdout, "1bit %s\n", version)
	return 0
}
