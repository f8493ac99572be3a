// Package rig is what the measuring programs share: a model file and a model server that cost nothing, the box that they
// measure, and what they say of the machine.
package rig

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// EmptyModel is a GGUF file without tensors.
func EmptyModel() []byte {
	var b bytes.Buffer
	text := func(v string) {
		_ = binary.Write(&b, binary.LittleEndian, uint64(len(v))) // a buffer takes everything
		b.WriteString(v)
	}
	b.WriteString("GGUF")
	_ = binary.Write(&b, binary.LittleEndian, []uint32{3, 0, 0, 1, 0}) // version, tensors, metadata
	text("general.architecture")
	_ = binary.Write(&b, binary.LittleEndian, uint32(8)) // a string
	text("qwen3")
	return b.Bytes()
}

// FreePort is a port of loopback that nobody listens on.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// Load is what the machine does besides: a run on a busy one says little about the last percent.
func Load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if f := strings.Fields(string(b)); err == nil && len(f) > 3 {
		return strings.Join(f[:3], " ")
	}
	return "unknown"
}

// CPU is the processor's name.
func CPU() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if m := regexp.MustCompile(`model name\s*: (.*)`).FindSubmatch(b); err == nil && m != nil {
		return string(m[1])
	}
	return runtime.GOARCH
}

// Output returns the first line that a program prints, or what is wrong with it.
func Output(name string, args ...string) string {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); line != "" {
			return line
		}
	}
	return "says nothing"
}

// Spent is the processor time of a process's threads, but for those that have ended. The kernel's scheduler counts it to
// the nanosecond, where the clock tick would miss most of what runs for a few microseconds.
func Spent(pid int) (total time.Duration) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0
	}
	for _, name := range threads {
		raw, err := os.ReadFile(name)
		if err != nil {
			continue // the thread has ended
		}
		if f := strings.Fields(string(raw)); len(f) > 0 {
			if ns, err := strconv.ParseInt(f[0], 10, 64); err == nil {
				total += time.Duration(ns)
			}
		}
	}
	return total
}

// ProseOf is the shortest Prose of a number that has so many tokens, as count says; they are not more than four to a word.
func ProseOf(tokens, number int, count func(text string) (int, error)) (string, error) {
	var failed error
	enough := func(words int) bool {
		n, err := count(Prose(words, number))
		if failed == nil {
			failed = err
		}
		return err != nil || n >= tokens
	}
	words := sort.Search(4*tokens+4, enough)
	if failed == nil && !enough(words) {
		failed = fmt.Errorf("%d words have less than %d tokens", words, tokens)
	}
	return Prose(words, number), failed
}

// Prose is a text of so many words, some numbers between them, that no other number makes.
func Prose(length, number int) string {
	words := strings.Fields("the box keeps what was said so that nobody has to say it twice and every tool of the agent has a name a purpose and a list of fields")
	var s strings.Builder
	for i := range length {
		fmt.Fprint(&s, words[(i*7+number*13+i/len(words))%len(words)], " ")
		if i%16 == 15 {
			fmt.Fprintf(&s, "%d. ", number)
		}
	}
	return s.String()
}

// Stop ends a program, by force when it takes its time.
func Stop(c *exec.Cmd) {
	_ = c.Process.Signal(syscall.SIGTERM) // it may have ended
	t := time.AfterFunc(20*time.Second, func() { _ = c.Process.Kill() })
	defer t.Stop()
	_ = c.Wait()
}
