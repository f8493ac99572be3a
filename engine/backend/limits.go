package backend

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"onebit/engine/plan"
)

// What a child may take beside one and a half times its weights and cache, in bytes: buffers of computation and of
// drivers, prompts, and the stacks of its threads, which count as they are reserved.
const besides = 6 * plan.GiB

// mostTasks is how many threads and processes a child may have that has a user of its own.
const mostTasks = 4096

// memory is the most private memory that a child may reserve, in bytes. It is a net for a child that runs away, not a
// measure: what is read through a mapping of its file and what a driver gives of a device do not count. 0, no limit, is
// where the machine does not say what it has.
func memory(o Options, s ChildSpec, read func(name string) ([]byte, error)) uint64 {
	machine, err := plan.ReadMemory(read)
	if err != nil || machine.Total == 0 {
		return 0
	}
	all := uint64(0)
	for _, file := range models(o, s) {
		n := takes(file, plan.Options{Context: o.Context, Parallel: o.Parallel})
		if all += n; all < n || all > machine.Total {
			return machine.Total
		}
	}
	return min(all+all/2+besides, machine.Total)
}

// models are the files of models on a child's command line.
func models(o Options, s ChildSpec) (all []string) {
	for _, file := range []string{o.Model, o.MTP, o.DFlash, o.Mmproj, o.LongModel, o.Embed, o.Rerank} {
		if file != "" && slices.Contains(s.Args, file) {
			all = append(all, file)
		}
	}
	return all
}

// takes is what a model takes in memory: its weights and its cache, or the size of its files where those cannot be told.
func takes(path string, o plan.Options) (n uint64) {
	if p, err := plan.Open(path, o); err == nil {
		return p.Resident()
	}
	for _, file := range shards(path) {
		_ = filepath.WalkDir(file, func(at string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() { // what cannot be seen has no size
				if info, err := os.Stat(at); err == nil && info.Mode().IsRegular() {
					n += uint64(info.Size())
				}
			}
			return nil
		})
	}
	return n
}
