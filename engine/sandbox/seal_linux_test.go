package sandbox_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"onebit/engine/sandbox"

	"golang.org/x/sys/unix"
)

// sealCommand makes the test binary seal itself, as often as there are seals, and then run probes.
const sealCommand = "seal-yourself"

// probeSealed is the child: seals as JSON, then probes. Every probe runs on several threads that were there before.
func probeSealed(seals string, what []string) error {
	var list []sandbox.Seal
	if err := json.Unmarshal([]byte(seals), &list); err != nil {
		return err
	}
	const threads = 3
	begin, line := make(chan struct{}), make(chan string)
	var group sync.WaitGroup
	for range threads {
		group.Go(func() {
			runtime.LockOSThread()
			<-begin
			for _, w := range what {
				name, argument, _ := strings.Cut(w, "=")
				line <- name + " " + word(probes[name](argument))
			}
		})
	}
	for _, s := range list {
		support := sandbox.Supported()
		if text := os.Getenv(have); text != "" {
			if err := json.Unmarshal([]byte(text), &support); err != nil {
				return err
			}
		}
		if err := sandbox.CloseWith(s, support); err != nil {
			return err
		}
	}
	close(begin)
	go func() { group.Wait(); close(line) }()
	for l := range line {
		fmt.Println(l)
	}
	return nil
}

// sealed runs probes in a sealed child and returns what became of each, on every thread alike.
func sealed(t *testing.T, seals []sandbox.Seal, what ...string) map[string]string {
	t.Helper()
	text, err := json.Marshal(seals)
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	cmd := exec.Command(self(t), append([]string{sealCommand, string(text)}, what...)...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, errs.Bytes())
	}
	got := map[string]string{}
	for line := range strings.Lines(out.String()) {
		name, outcome, _ := strings.Cut(strings.TrimSpace(line), " ")
		if before, ok := got[name]; ok && before != outcome {
			t.Errorf("%s: %s on one thread, %s on another", name, before, outcome)
		}
		got[name] = outcome
	}
	return got
}

func TestSealTakesAway(t *testing.T) {
	full(t)
	w := newWorld(t)
	folder := filepath.Dir(w.model)
	first := sandbox.Seal{Read: []string{folder}}
	never := []string{"connect=" + strconv.Itoa(w.open), "tcp", "udp", "unix", "netlink", "raw", "ptrace", "bpf", "mount", "keyctl", "uring", "setns",
		"unshare", "start", "shell", "signal=" + strconv.Itoa(os.Getpid()), "raise", "list=/"}
	for _, c := range []struct {
		name  string
		seals []sandbox.Seal
		may   []string
		not   []string
	}{
		{"a folder to read", []sandbox.Seal{first}, []string{"read=" + w.model}, []string{"append=" + w.model}},
		{"a folder to write", []sandbox.Seal{{Write: []string{folder}}}, []string{"read=" + w.model, "write=" + filepath.Join(folder, "new")}, nil},
		{"nothing", []sandbox.Seal{{}}, nil, []string{"read=" + w.model, "write=" + filepath.Join(folder, "new")}},
		{"nothing after a folder", []sandbox.Seal{first, {Again: true}}, nil, []string{"read=" + w.model}},
		{"nothing, whatever is named", []sandbox.Seal{first, {Again: true, Read: []string{folder}}}, nil, []string{"read=" + w.model}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := sealed(t, c.seals, append(append(append([]string{"compute"}, c.may...), c.not...), never...)...)
			expect(t, got, "compute", true)
			for _, what := range c.may {
				name, _, _ := strings.Cut(what, "=")
				expect(t, got, name, true)
			}
			for _, what := range append(c.not, never...) {
				name, _, _ := strings.Cut(what, "=")
				expect(t, got, name, false)
			}
		})
	}
}

// TestSealWithoutLandlock: a final seal keeps files by the filter alone.
func TestSealWithoutLandlock(t *testing.T) {
	if !sandbox.Supported().Filter {
		t.Skip("this kernel has no filters")
	}
	t.Setenv(have, `{"Landlock":0,"Filter":true}`)
	w := newWorld(t)
	got := sealed(t, []sandbox.Seal{{}}, "compute", "read="+w.model, "tcp")
	expect(t, got, "compute", true)
	expect(t, got, "read", false)
	expect(t, got, "tcp", false)
}

// compute is what a Go program does all day: memory, code, garbage, threads, clocks, descriptors.
func compute(string) error {
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			runtime.LockOSThread() // a thread that ends with its goroutine: new ones are made
			b := make([]byte, 8<<20)
			b[len(b)-1] = 1
			runtime.Gosched()
		})
	}
	group.Wait()
	runtime.GC()
	fd, err := unix.MemfdCreate("x", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("memfd: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, 1<<16); err != nil {
		return fmt.Errorf("ftruncate: %w", err)
	}
	m, err := unix.Mmap(fd, 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("mmap: %w", err)
	}
	if err := unix.Madvise(m, unix.MADV_DONTNEED); err != nil {
		return fmt.Errorf("madvise: %w", err)
	}
	if err := unix.Mprotect(m, unix.PROT_READ|unix.PROT_EXEC); err != nil {
		return fmt.Errorf("mprotect: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("pipe: %w", err)
	}
	defer r.Close()
	w.Close()
	if n, err := r.Read(make([]byte, 1)); n != 0 || err == nil {
		return errors.New("a closed pipe was read")
	}
	return unix.Munmap(m)
}

// raise tries to have its own limit raised, which a privileged process may.
func raise(string) error {
	return unix.Prlimit(0, unix.RLIMIT_CORE, &unix.Rlimit{Cur: 0, Max: 0}, nil)
}
