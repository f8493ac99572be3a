//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// deviceMemory returns what reads how many MiB are in use on all GPUs of the box: nvidia-smi where it is there, else
// what the kernel's amdgpu driver tells (its own memory and what it borrows from the system).
func deviceMemory() func() (int, bool) {
	if path, err := exec.LookPath("nvidia-smi"); err == nil {
		return func() (int, bool) {
			out, err := exec.Command(path, "--query-gpu=memory.used", "--format=csv,noheader,nounits").Output()
			return sum(strings.Fields(string(out))), err == nil
		}
	}
	return func() (int, bool) {
		var values []string
		for _, name := range []string{"vram", "gtt"} {
			files, err := filepath.Glob("/sys/class/drm/card*/device/mem_info_" + name + "_used")
			if err != nil {
				return 0, false
			}
			for _, f := range files {
				if b, err := os.ReadFile(f); err == nil {
					values = append(values, strings.TrimSpace(string(b)))
				}
			}
		}
		return sum(values) >> 20, len(values) > 0
	}
}

func sum(values []string) (total int) {
	for _, v := range values {
		n, err := strconv.Atoi(v)
		if err == nil {
			total += n
		}
	}
	return total
}

// machine names the processor and the GPU.
func machine() string {
	name := "unknown processor"
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if m := regexp.MustCompile(`model name\s*: (.*)`).FindSubmatch(b); m != nil {
			name = string(m[1])
		}
	}
	if out, err := exec.Command("nvidia-smi", "--query-gpu=name", "--format=csv,noheader").Output(); err == nil {
		name += ", " + strings.Join(strings.Split(strings.TrimSpace(string(out)), "\n"), ", ")
	}
	return name
}

// children returns the processes that pid has started.
func children(pid int) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("children are looked up in /proc: %w", err)
	}
	var kids []int
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if parent, _, ok := stat(n); ok && parent == pid {
			kids = append(kids, n)
		}
	}
	return kids, nil
}

// alive says whether a process still runs; one that only waits to be counted does not.
func alive(pid int) bool {
	_, state, ok := stat(pid)
	return ok && state != "Z" && state != "X"
}

func stat(pid int) (parent int, state string, ok bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, "", false
	}
	_, rest, found := strings.Cut(string(b), ") ") // the name in brackets may hold anything
	f := strings.Fields(rest)
	if !found || len(f) < 2 {
		return 0, "", false
	}
	parent, err = strconv.Atoi(f[1])
	return parent, f[0], err == nil
}
