package doctor

import (
	"fmt"
	"math"
	"os"
	"path"
	"strconv"
	"strings"

	"onebit/engine/plan"
)

// leastMemory is what the built-in engine needs for the smallest model, in bytes.
const leastMemory = 512 << 20

// processor looks at the CPU.
func (e *exam) processor() {
	name := ""
	for line := range strings.Lines(e.read("proc/cpuinfo")) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			name = strings.TrimSpace(value) + ", "
			break
		}
	}
	text := fmt.Sprintf("%s%d threads, kernels for %s", name, e.Cores, e.Level)
	if e.Level == "generic" && e.GOARCH == "amd64" {
		e.add("cpu", Warn, text, "the processor lacks AVX2 or ONEBIT_CPU hides it; the built-in engine is several times slower without")
		return
	}
	e.add("cpu", OK, text, "")
}

// memory looks at the machine's memory and at what of it we may use.
func (e *exam) memory() {
	m, err := plan.ReadMemory(func(name string) ([]byte, error) { return os.ReadFile(e.path(name)) })
	if err != nil {
		e.add("memory", Warn, "cannot be told: "+err.Error(), "give sizes by hand (--ctx-size, --moe-slots) and see that the model fits")
		return
	}
	e.report.Memory, e.report.Available = m.Total, m.Available
	text := fmt.Sprintf("%s, %s available", gib(m.Total), gib(m.Available))
	limit, used := e.controlGroup()
	if limit < m.Total {
		left := limit - min(limit, used)
		e.report.Available = min(m.Available, left)
		text += fmt.Sprintf("; a control group allows %s, %s of it available", gib(limit), gib(left))
	}
	switch {
	case e.report.Available < leastMemory:
		e.add("memory", Miss, text, "stop what holds the memory, or allow this process more")
	case limit < m.Total/10*9:
		e.add("memory", Warn, text, "raise the container's or the service's memory limit (MemoryMax=, --memory) for larger models")
	case m.Available < m.Total/4:
		e.add("memory", Warn, text, "most of the memory is taken; stop what holds it before loading a large model")
	default:
		e.add("memory", OK, text, "")
	}
}

// controlGroup returns the tightest limit on our memory and how much of it is used, in bytes; without one the limit is
// the largest number.
func (e *exam) controlGroup() (limit, used uint64) {
	limit = math.MaxUint64
	for line := range strings.Lines(e.read("proc/self/cgroup")) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // number, controllers, group
		if len(parts) < 3 {
			continue
		}
		root, files := "sys/fs/cgroup", [2]string{"memory.max", "memory.current"}
		switch parts[1] {
		case "":
		case "memory": // version 1
			root, files = "sys/fs/cgroup/memory", [2]string{"memory.limit_in_bytes", "memory.usage_in_bytes"}
		default:
			continue
		}
		for group := path.Clean("/" + parts[2]); ; group = path.Dir(group) {
			dir := path.Join(root, group)
			if n, err := strconv.ParseUint(e.read(dir+"/"+files[0]), 10, 64); err == nil && n < limit {
				limit, used = n, e.number(dir+"/"+files[1])
			}
			if group == "/" {
				break
			}
		}
	}
	return limit, used
}

// kernel is a version of Linux.
type kernel [3]int

// first is the first kernel with which ROCm sees all of the memory.
var first = kernel{6, 16, 9}

// parseKernel reads the beginning of a release such as 6.17.0-rc3-amd64.
func parseKernel(release string) (kernel, bool) {
	var k kernel
	end := strings.IndexFunc(release, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if end >= 0 {
		release = release[:end]
	}
	parts := strings.Split(strings.TrimSuffix(release, "."), ".")
	if len(parts) < 2 {
		return k, false
	}
	for i, p := range parts[:min(len(parts), 3)] {
		n, err := strconv.Atoi(p)
		if err != nil {
			return kernel{}, false
		}
		k[i] = n
	}
	return k, true
}

// before reports whether k is older than o.
func (k kernel) before(o kernel) bool {
	for i := range k {
		if k[i] != o[i] {
			return k[i] < o[i]
		}
	}
	return false
}

// started reads which kernel runs and how it was started.
func (e *exam) started() {
	for word := range strings.FieldsSeq(e.read("proc/cmdline")) {
		key, value, _ := strings.Cut(word, "=")
		e.cmdline[strings.ReplaceAll(key, "-", "_")] = value
	}
	e.release = e.read("proc/sys/kernel/osrelease")
	e.kernel, e.known = parseKernel(e.release)
}

// system gives the verdict on the kernel. Its age matters for AMD GPUs alone.
func (e *exam) system() {
	text := "Linux " + e.release
	switch {
	case !e.known:
		e.add("kernel", Warn, fmt.Sprintf("its version %q cannot be read", e.release), "use Linux 6.16.9 or newer for ROCm")
	case e.kernel.before(first) && e.amd():
		e.add("kernel", Warn, text, "use Linux 6.16.9 or newer: with older ones ROCm sees only 15.5 GB of memory")
	default:
		e.add("kernel", OK, text, "")
	}
}

// confinement gives the verdict on what a box can keep from its model servers.
func (e *exam) confinement() {
	missing := e.Sandbox.Missing()
	if len(missing) == 0 {
		e.add("sandbox", OK, e.Sandbox.String(), "")
		return
	}
	e.add("sandbox", Warn, strings.Join(missing, "; "), "use Linux 6.12 or newer with landlock among its modules (lsm=), and a container that allows it; until then run strangers' models on a machine of their own")
}

// gib writes a number of bytes in GiB.
func gib(n uint64) string { return fmt.Sprintf("%.1f GiB", float64(n)/plan.GiB) }
