package backend

import (
	"slices"
	"strconv"
)

// CPUConfig describes a model on the built-in engine.
type CPUConfig struct {
	Executable string // our own program
	Model      string // a GGUF file
	Alias      string // the served name
	Context    int    // tokens over all slots; 0 leaves it to the engine
	Parallel   int    // slots; 0 leaves it to the engine
	SlotDir    string // where the state of slots is kept; empty for nowhere
}

// CPU returns the command that serves a model with the built-in engine on a loopback port.
func CPU(cfg CPUConfig) func(port int) Command {
	return func(port int) Command {
		args := []string{"engine", "-m", cfg.Model, "--host", "127.0.0.1", "--port", strconv.Itoa(port), "--alias", cfg.Alias}
		if cfg.Context > 0 {
			args = append(args, "-c", strconv.Itoa(cfg.Context))
		}
		if cfg.Parallel > 0 {
			args = append(args, "-np", strconv.Itoa(cfg.Parallel))
		}
		args = append(args, slotArgs(cfg.SlotDir)...)
		// the child's warnings are wanted, its progress is told by us
		return Command{Path: cfg.Executable, Args: args, Env: []string{"ONEBIT_LOG=warn"}}
	}
}

// slotArgs lets a llama-server, or our own engine, keep the state of slots in a folder.
func slotArgs(dir string) []string {
	if dir == "" {
		return nil
	}
	return []string{slotOption, dir}
}

// slotOption is llama-server's, and our own engine's.
const slotOption = "--slot-save-path"

// slotDir is where the child keeps the state of slots.
func (s ChildSpec) slotDir(o Options) string {
	if at := slices.Index(s.Args, slotOption); o.SlotDir == "" || at < 0 || at+1 == len(s.Args) || s.Args[at+1] != o.SlotDir {
		return ""
	}
	return o.SlotDir
}
