package main

import "context"

// The commands that make model files, and the benchmark.
var (
	ToolCommands  = func() map[string]command { return toolCommands(context.Background()) }
	ModelCommands = modelCommands
	RunBench      = runBench
)
