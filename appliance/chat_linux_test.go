package main_test

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// terminal is a person's side of a pseudo-terminal.
type terminal struct {
	t    *testing.T
	file *os.File
	said strings.Builder
	seen int // how much of it was looked at
}

// open starts `1bit chat` on a terminal of its own.
func open(t *testing.T, args ...string) (*terminal, *exec.Cmd) {
	t.Helper()
	file, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	raw, err := file.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var number int
	var failed error
	err = raw.Control(func(fd uintptr) {
		if failed = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); failed == nil {
			number, failed = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	})
	if err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	end, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	cmd := exec.Command(os.Args[0], append([]string{"chat"}, args...)...)
	cmd.Env = append(os.Environ(), stage+"=standin")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = end, end, end
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	if err := file.SetReadDeadline(time.Now().Add(time.Minute)); err != nil { // against a mistake that blocks for ever
		t.Fatal(err)
	}
	return &terminal{t: t, file: file}, cmd
}

// until reads up to a text that was not looked at yet.
func (p *terminal) until(text string) {
	p.t.Helper()
	buf := make([]byte, 4096)
	for {
		if i := strings.Index(p.said.String()[p.seen:], text); i >= 0 {
			p.seen += i + len(text)
			return
		}
		n, err := p.file.Read(buf)
		p.said.Write(buf[:n])
		if err != nil {
			p.t.Fatalf("%v before %q; it said:\n%s", err, text, p.said.String())
		}
	}
}

// types writes what a person types.
func (p *terminal) types(keys string) {
	p.t.Helper()
	if _, err := p.file.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

func TestChatOnATerminal(t *testing.T) {
	s := newServer(t)
	p, cmd := open(t, "--url", s.URL)
	p.until("> ")
	p.types("first\n")
	p.until("is Paris.")
	p.until("> ")
	p.types("/system be brief\n")
	p.until(`[system message: "be brief"]`)
	p.types("standin stall_after\n")
	p.until("The capital")
	p.types("\x03") // Ctrl-C
	p.until("[stopped]")
	p.types("standin refuse\n")
	p.until("[no such thing]")
	p.types("second\n")
	p.until("is Paris.")
	p.types("/reset\n")
	p.until("[forgotten]")
	p.types("/what\n")
	p.until("[there is no /what")
	p.types("third\n")
	p.until("is Paris.")
	p.types("/quit\n")
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	const answer = "The capital of France is Paris."
	system := turn{"system", "be brief"}
	stalled := []turn{system, {"user", "first"}, {"assistant", answer}, {"user", "standin stall_after"}}
	stopped := append(stalled[:4:4], turn{"assistant", "The capital"})
	want := [][]turn{
		{{"user", "first"}},
		stalled,
		append(stopped[:5:5], turn{"user", "standin refuse"}),
		append(stopped[:5:5], turn{"user", "second"}),
		{system, {"user", "third"}},
	}
	if diff := cmp.Diff(want, s.asked); diff != "" {
		t.Errorf("what was asked (-want +got)\n%s", diff)
	}
}

func TestChatTerminalEnds(t *testing.T) {
	for name, key := range map[string]string{"Ctrl-D": "\x04", "Ctrl-C": "\x03"} {
		t.Run(name, func(t *testing.T) {
			p, cmd := open(t, "-m", model(t))
			p.until("> ")
			p.types("hello\n")
			p.until("is Paris.")
			p.until("> ")
			p.types(key)
			if err := cmd.Wait(); err != nil {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}
