package main

// The commands that make model files, and the benchmark.
var (
	ToolCommands  = toolCommands
	ModelCommands = modelCommands
	RunBench      = runBench
)
