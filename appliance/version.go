package main

import "fmt"

// version is `1bit version`. Other programs parse the line. With --levels it prints what the processor can run instead.
func (p program) version(args []string) int {
	if len(args) > 0 && args[0] == "--levels" {
		fmt.Fprintln(p.stdout, levels())
		return 0
	}
	fmt.Fprintf(p.stdout, "1bit %s\n", version)
	return 0
}
