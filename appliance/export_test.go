package main

import (
	"context"
	"io"
)

// Run is what the program does with a command line.
func Run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer, args ...string) int {
	return program{stdin, stdout, stderr}.run(ctx, args)
}

// Budget is how much of a box's memory models may take.
var Budget = budget
