package main

import "fmt"

// version is `1bit version`. Other programs parse the line.
func (p program) version() int {
	fmt.Fprintf(p.stdout, "1bit %s\n", version)
	return 0
}
