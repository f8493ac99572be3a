package sandbox_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"onebit/engine/sandbox"

	"golang.org/x/sys/unix"
)

// have names, in the environment, what a made-up kernel has.
const have = "SANDBOX_TEST_HAVE"

// TestMain is our own program in small: it enters sandboxes, and is the probe that runs in them.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == sandbox.Command {
		spec, err := sandbox.Parse(os.Args[2])
		if err == nil {
			support := sandbox.Supported()
			if text := os.Getenv(have); text != "" {
				err = json.Unmarshal([]byte(text), &support)
			}
			if err == nil {
				err = sandbox.EnterWith(spec, support)
			}
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(126)
	}
	if len(os.Args) == 2 && os.Args[1] == "hardened" { // itself, and then a child of it
		fmt.Println("before", word(makeCode("")))
		fmt.Println("set", word(sandbox.NoNewCode()))
		fmt.Println("itself", word(makeCode("")))
		cmd := exec.Command(os.Args[0], "probe", "code")
		cmd.Stdout = os.Stdout
		if err := cmd.Run(); err != nil {
			fmt.Println("child", err)
		}
		os.Exit(0)
	}
	if len(os.Args) > 2 && os.Args[1] == sealCommand {
		if err := probeSealed(os.Args[2], os.Args[3:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(126)
		}
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == "probe" {
		for _, what := range os.Args[2:] {
			name, argument, _ := strings.Cut(what, "=")
			fmt.Println(name, word(probes[name](argument)))
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// word puts an outcome into one word.
func word(err error) string {
	switch {
	case err == nil:
		return "works"
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES), errors.Is(err, unix.ENOSYS):
		return "refused"
	}
	return err.Error()
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}

func socket(domain, kind, protocol int) func(string) error {
	return func(string) error {
		fd, err := unix.Socket(domain, kind, protocol)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
}

// call makes a system call with arguments that do no harm, and reports only whether it was refused.
func call(nr uintptr, a, b, c uintptr) func(string) error {
	return func(string) error {
		_, _, errno := unix.RawSyscall(nr, a, b, c)
		if errno == unix.EPERM || errno == unix.ENOSYS {
			return errno
		}
		return nil
	}
}

// makeCode does what a compiler does: it writes into memory, and makes that executable.
func makeCode(string) error {
	b, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	b[0] = 0xc3
	return errors.Join(unix.Mprotect(b, unix.PROT_READ|unix.PROT_EXEC), unix.Munmap(b))
}

// probes are what a child may try.
var probes = map[string]func(argument string) error{
	"read":   func(path string) error { _, err := os.ReadFile(path); return err },
	"list":   func(path string) error { _, err := os.ReadDir(path); return err },
	"write":  func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) },
	"make":   func(path string) error { return os.WriteFile(path, []byte("x"), 0o666) },
	"rename": func(path string) error { return os.Rename(path, path+".new") },
	"append": func(path string) error { f, err := os.OpenFile(path, os.O_WRONLY, 0); f.Close(); return err },
	"bind": func(port string) error {
		return bound("127.0.0.1", number(port))
	},
	"connect": func(port string) error {
		c, err := net.Dial("tcp4", "127.0.0.1:"+port)
		if err == nil {
			c.Close()
		}
		return err
	},
	"fastopen": func(port string) error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		return unix.Sendto(fd, []byte("x"), unix.MSG_FASTOPEN, &unix.SockaddrInet4{Port: number(port), Addr: [4]byte{127, 0, 0, 1}})
	},
	"udp":     socket(unix.AF_INET, unix.SOCK_DGRAM, 0),
	"udp6":    socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0),
	"raw":     socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP),
	"packet":  socket(unix.AF_PACKET, unix.SOCK_RAW, 0),
	"netlink": socket(unix.AF_NETLINK, unix.SOCK_RAW, 0),
	"unix":    socket(unix.AF_UNIX, unix.SOCK_STREAM, 0),
	"mptcp":   socket(unix.AF_INET, unix.SOCK_STREAM, 262),
	"tcp":     socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0),
	"ptrace":  call(unix.SYS_PTRACE, 0xffff, 0, 0),
	"bpf":     call(unix.SYS_BPF, 0xffff, 0, 0),
	"mount":   call(unix.SYS_MOUNT, 0, 0, 0),
	"keyctl":  call(unix.SYS_KEYCTL, 0xffff, 0, 0),
	"uring":   call(unix.SYS_IO_URING_SETUP, 0, 0, 0),
	"setns":   call(unix.SYS_SETNS, ^uintptr(0), 0, 0),
	"unshare": func(string) error { return unix.Unshare(unix.CLONE_NEWUSER) },
	"start":   func(string) error { return exec.Command("/proc/self/exe", "probe").Run() },
	"shell":   func(string) error { return exec.Command("/bin/sh", "-c", "true").Run() },
	"signal":  func(pid string) error { return unix.Kill(number(pid), 0) },
	"descriptor": func(path string) error {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			return err
		}
		for _, fd := range fds {
			if to, _ := os.Readlink("/proc/self/fd/" + fd.Name()); to == path {
				return nil
			}
		}
		return unix.EACCES // there is none
	},
	"reserve": func(mib string) error { // in pieces, as a program that eats does
		for range number(mib) / 16 {
			if _, err := unix.Mmap(-1, 0, 16<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS); err != nil {
				if errors.Is(err, unix.ENOMEM) {
					err = unix.EPERM // it is refused
				}
				return err
			}
		}
		return nil
	},
	"space": func(mib string) error { // addresses without memory, as drivers reserve them
		_, err := unix.Mmap(-1, 0, number(mib)<<20, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
		return err
	},
	"file": func(path string) error { // a mapping of a file, as models are read
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = unix.Mmap(int(f.Fd()), 0, 1<<30, unix.PROT_READ, unix.MAP_PRIVATE)
		return err
	},
	"limits": func(text string) error {
		for name, what := range map[string]int{"nofile": unix.RLIMIT_NOFILE, "nproc": unix.RLIMIT_NPROC, "data": unix.RLIMIT_DATA, "core": unix.RLIMIT_CORE} {
			var l unix.Rlimit
			if err := unix.Getrlimit(what, &l); err != nil {
				return err
			}
			if want, ok := strings.CutPrefix(text, name+":"); ok && (strconv.FormatUint(l.Max, 10) != want || l.Cur != l.Max) {
				return fmt.Errorf("%d-%d", l.Cur, l.Max)
			}
		}
		return nil
	},
	"code":  makeCode,
	"chmod": func(path string) error { return os.Chmod(path, 0o644) },
	"chown": func(path string) error { return os.Chown(path, os.Getuid(), os.Getgid()) },
	"attribute": func(path string) error {
		if err := unix.Setxattr(path, "user.x", []byte("x"), 0); !errors.Is(err, unix.ENOTSUP) {
			return err
		}
		return nil
	},
	"watch": func(path string) error {
		fd, err := unix.InotifyInit1(0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		_, err = unix.InotifyAddWatch(fd, path, unix.IN_ALL_EVENTS)
		return err
	},
	"limitof": func(pid string) error {
		var now unix.Rlimit
		return unix.Prlimit(number(pid), unix.RLIMIT_NOFILE, nil, &now)
	},
	"type": func(high string) error { // into a terminal; there is none, which is another error
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, 0, uintptr(unix.TIOCSTI)|uintptr(number(high))<<32, 0)
		if errno == unix.EPERM {
			return errno
		}
		return nil
	},
	"ask": func(string) error { // what it may: whether this is a terminal
		_, err := unix.IoctlGetTermios(0, unix.TCGETS)
		if errors.Is(err, unix.ENOTTY) {
			return nil
		}
		return err
	},
	"own": func(path string) error { // by its descriptor
		f, err := os.Create(path)
		if err != nil {
			return err
		}
		defer f.Close()
		return f.Chmod(0o700)
	},
	"pair": func(string) error {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err == nil {
			unix.Close(fds[0])
			unix.Close(fds[1])
		}
		return err
	},
	"accept": func(string) error {
		_, _, err := unix.Accept(0) // which is no socket
		if errors.Is(err, unix.ENOTSOCK) {
			return nil
		}
		return err
	},
	"variable": func(name string) error {
		if _, ok := os.LookupEnv(name); !ok {
			return unix.EACCES
		}
		return nil
	},
	"compute": compute,
	"raise":   raise,
	"core": func(string) error {
		var l unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_CORE, &l); err != nil || l.Max <= 1 {
			return unix.EACCES
		}
		return nil
	},
	"capability": func(string) error {
		status, err := os.ReadFile("/proc/self/status")
		if err == nil && strings.Contains(string(status), "CapEff:\t0000000000000000") && strings.Contains(string(status), "NoNewPrivs:\t1") {
			return unix.EACCES
		}
		return err
	},
}

func bound(addr string, port int) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte(net.ParseIP(addr).To4())}); err != nil {
		return err
	}
	return unix.Listen(fd, 1)
}

// self is this program's path.
func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// inside runs probes in a sandbox and returns what became of each.
func inside(t *testing.T, spec sandbox.Spec, support string, what ...string) map[string]string {
	t.Helper()
	runtime.LockOSThread() // the child ends with this thread
	defer runtime.UnlockOSThread()
	self := self(t)
	spec.Program, spec.Args, spec.Parent = self, append([]string{"probe"}, what...), os.Getpid()
	args, err := spec.Arguments()
	if err != nil {
		t.Fatal(err)
	}
	secret, err := os.Open(self) // something to inherit by mistake
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	var out, errs bytes.Buffer
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), "CANARY=secret", have+"="+support)
	cmd.ExtraFiles = []*os.File{secret}
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, errs.Bytes())
	}
	got := map[string]string{}
	for line := range strings.Lines(out.String()) {
		name, outcome, _ := strings.Cut(strings.TrimSpace(line), " ")
		got[name] = outcome
	}
	if len(got) != len(what) {
		t.Fatalf("%d of %d answers\n%s%s", len(got), len(what), &out, &errs)
	}
	return got
}

func expect(t *testing.T, got map[string]string, name string, works bool) {
	t.Helper()
	want := map[bool]string{true: "works", false: "refused"}[works]
	if got[name] != want {
		t.Errorf("%s %s, want that it %s", name, got[name], want)
	}
}

// world is what lies outside of a sandbox.
type world struct {
	secret, model, scratch string
	open, own, other       int // ports: somebody listens; the child's; another
}

func newWorld(t *testing.T) world {
	t.Helper()
	dir := t.TempDir()
	w := world{secret: filepath.Join(dir, "1bit.db"), model: filepath.Join(dir, "models", "m.gguf"), scratch: filepath.Join(dir, "scratch")}
	if err := os.MkdirAll(filepath.Dir(w.model), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{w.secret, w.model} {
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	listen := func() (int, net.Listener) {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l.Addr().(*net.TCPAddr).Port, l
	}
	var l net.Listener
	w.open, l = listen()
	t.Cleanup(func() { l.Close() })
	for _, port := range []*int{&w.own, &w.other} {
		var l net.Listener
		*port, l = listen()
		l.Close()
	}
	return w
}

func (w world) spec() sandbox.Spec {
	return sandbox.Spec{Read: []string{w.model}, Scratch: w.scratch, Port: w.own, Alone: true, Env: []string{"OWN=1"}}
}

// full skips a test on a kernel that cannot do all that it is about.
func full(t *testing.T) sandbox.Support {
	t.Helper()
	s := sandbox.Supported()
	if missing := s.Missing(); len(missing) > 0 {
		t.Skipf("this kernel cannot show it: %s", strings.Join(missing, "; "))
	}
	return s
}

func TestChildMayDoItsWork(t *testing.T) {
	w := newWorld(t)
	got := inside(t, w.spec(), "", "read="+w.model, "bind="+strconv.Itoa(w.own), "tcp", "write="+filepath.Join(w.scratch, "cache"),
		"list=/sys/devices/system/cpu", "own="+filepath.Join(w.scratch, "tool"), "limitof=0", "ask", "variable=OWN", "append=/dev/null")
	for name := range got {
		expect(t, got, name, true)
	}
	if info, err := os.Stat(w.scratch); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the scratch folder: %v, %v", info, err)
	}
}

// TestChildThatKeeps writes a folder beside its own, and nothing around that; its group sees what it writes when that was
// said.
func TestChildThatKeeps(t *testing.T) {
	full(t)
	w := newWorld(t)
	dir := filepath.Dir(w.secret)
	kept, other := filepath.Join(dir, "slots", "m"), filepath.Join(dir, "slots", "n")
	for _, path := range []string{kept, other} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for group, mode := range map[bool]os.FileMode{false: 0o600, true: 0o660} {
		s := w.spec()
		s.Write, s.Group = []string{kept}, group
		file := filepath.Join(kept, fmt.Sprint(group))
		got := inside(t, s, "", "make="+file, "list="+kept, "rename="+file)
		for name := range got {
			expect(t, got, name, true)
		}
		if info, err := os.Stat(file + ".new"); err != nil || info.Mode() != mode {
			t.Errorf("group %v: %v, %v", group, info, err)
		}
		for _, path := range []string{other, filepath.Dir(kept), dir} {
			got := inside(t, s, "", "make="+filepath.Join(path, "f"), "list="+path)
			for name := range got {
				expect(t, got, name, false)
			}
		}
	}
}

func TestChildMayNot(t *testing.T) {
	full(t)
	w := newWorld(t)
	open := strconv.Itoa(w.open)
	for _, c := range [][]string{
		{"read=" + w.secret, "a file of the box"},
		{"read=/etc/passwd", "a file of the system"},
		{"list=/", "the root"},
		{"list=/tmp", "the folder of everybody's"},
		{"read=/proc/" + strconv.Itoa(os.Getpid()) + "/environ", "the box's environment"},
		{"read=/proc/" + strconv.Itoa(os.Getpid()) + "/cmdline", "the box's command line"},
		{"chmod=" + w.secret, "who may read a file of the box"},
		{"chmod=" + w.model, "who may read the model"},
		{"chown=" + w.secret, "whose a file of the box is"},
		{"attribute=" + w.secret, "a list of who may read a file of the box"},
		{"watch=" + filepath.Dir(w.secret), "what happens to the files of the box"},
		{"limitof=" + strconv.Itoa(os.Getppid()), "the limits of somebody else"},
		{"type=0", "keys of a terminal"},
		{"type=1", "keys of a terminal, said otherwise"},
		{"append=" + w.model, "changing the model"},
		{"write=" + filepath.Join(filepath.Dir(w.model), "new"), "a new file beside the model"},
		{"bind=" + strconv.Itoa(w.other), "another port"},
		{"connect=" + open, "a connection"},
		{"fastopen=" + open, "a connection without connect"},
		{"udp", ""}, {"udp6", ""}, {"raw", ""}, {"packet", ""}, {"netlink", ""}, {"unix", ""}, {"mptcp", ""},
		{"ptrace", ""}, {"bpf", ""}, {"mount", ""}, {"keyctl", ""}, {"uring", ""}, {"setns", ""}, {"unshare", ""},
		{"start", "another process"},
		{"signal=" + strconv.Itoa(os.Getpid()), "a signal to the box"},
		{"descriptor=" + self(t), "a descriptor of the box"},
		{"variable=CANARY", "a variable of the box"},
		{"variable=HOME", "a variable of the box"},
		{"core", "a core dump"},
		{"capability", "privileges"},
	} {
		name, _, _ := strings.Cut(c[0], "=")
		t.Run(strings.TrimSpace(name+" "+c[len(c)-1]), func(t *testing.T) {
			expect(t, inside(t, w.spec(), "", c[0]), name, false)
		})
	}
}

// TestChildThatLists sees names, and opens nothing: as a driver that looks for its card among others.
func TestChildThatLists(t *testing.T) {
	full(t)
	w := newWorld(t)
	spec := w.spec()
	spec.List = []string{filepath.Dir(w.secret)}
	got := inside(t, spec, "", "list="+filepath.Dir(w.secret), "read="+w.secret)
	expect(t, got, "list", true)
	expect(t, got, "read", false)
}

// TestChildWithAConduit has the descriptor that it was given, no other, and no way to make a socket.
func TestChildWithAConduit(t *testing.T) {
	full(t)
	w := newWorld(t)
	spec := w.spec()
	if got := inside(t, spec, "", "pair", "accept", "descriptor="+self(t)); got["pair"] != "works" || got["accept"] != "works" || got["descriptor"] != "refused" {
		t.Errorf("without one: %v", got)
	}
	spec.Port, spec.Conduit = 0, true
	got := inside(t, spec, "", "descriptor="+self(t), "tcp", "unix", "pair", "accept", "bind="+strconv.Itoa(w.own), "connect="+strconv.Itoa(w.open), "read="+w.secret)
	for name, outcome := range got {
		if outcome != map[bool]string{true: "works", false: "refused"}[name == "descriptor"] {
			t.Errorf("%s %s", name, outcome)
		}
	}
}

// TestChildThatEats gets no more memory than it may have; what drivers and models take of addresses does not count.
func TestChildThatEats(t *testing.T) {
	w := newWorld(t)
	if err := os.Truncate(w.model, 1<<30); err != nil { // it takes no room
		t.Fatal(err)
	}
	spec := w.spec()
	got := inside(t, spec, "", "reserve=2048")
	expect(t, got, "reserve", true)
	spec.Memory, spec.Tasks = 1<<30, 500
	got = inside(t, spec, "", "space=65536", "file="+w.model, "reserve=2048")
	expect(t, got, "space", true)
	expect(t, got, "file", true)
	expect(t, got, "reserve", false)
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []string{fmt.Sprintf("nofile:%d", min(own.Max, 65536)), "nproc:500", "data:1073741824", "core:1"} {
		if got := inside(t, spec, "", "limits="+limit); got["limits"] != "works" {
			t.Errorf("the limit is %s, want %s", got["limits"], limit)
		}
	}
}

// TestChildThatStartsOthers may do that, and those are in the same sandbox.
func TestChildThatStartsOthers(t *testing.T) {
	full(t)
	w := newWorld(t)
	spec := w.spec()
	spec.Alone = false
	spec.Env = append(spec.Env, "PATH=/usr/bin:/bin")
	got := inside(t, spec, "", "start", "shell", "read="+w.secret, "unshare", "signal="+strconv.Itoa(os.Getpid()))
	expect(t, got, "start", true)
	expect(t, got, "shell", true)
	expect(t, got, "read", false)
	expect(t, got, "unshare", false)
	expect(t, got, "signal", false)
}

// TestLesserKernels shows what is left where the kernel lacks something: the other half holds.
func TestLesserKernels(t *testing.T) {
	have := full(t)
	w := newWorld(t)
	open := strconv.Itoa(w.open)
	t.Run("no Landlock", func(t *testing.T) {
		got := inside(t, w.spec(), `{"Landlock":0,"Filter":true}`, "read="+w.secret, "bind="+strconv.Itoa(w.other), "connect="+open, "udp", "descriptor="+self(t), "variable=CANARY")
		expect(t, got, "read", true) // which Missing tells
		expect(t, got, "bind", true)
		expect(t, got, "connect", false)
		expect(t, got, "udp", false)
		expect(t, got, "descriptor", false)
		expect(t, got, "variable", false)
	})
	t.Run("no filter", func(t *testing.T) {
		got := inside(t, w.spec(), fmt.Sprintf(`{"Landlock":%d,"Filter":false}`, have.Landlock), "read="+w.secret, "connect="+open, "bind="+strconv.Itoa(w.other), "udp", "variable=CANARY")
		expect(t, got, "read", false)
		expect(t, got, "connect", false)
		expect(t, got, "bind", false)
		expect(t, got, "udp", true) // which Missing tells
		expect(t, got, "variable", false)
		got = inside(t, w.spec(), fmt.Sprintf(`{"Landlock":%d,"Filter":false}`, have.Landlock), "chmod="+w.secret, "chown="+w.secret, "watch="+filepath.Dir(w.secret), "limitof="+strconv.Itoa(os.Getpid()), "type=0")
		for name := range got {
			expect(t, got, name, true) // and this: the probes are able to
		}
	})
}

// TestNoNewCode: the process that asks for it makes no code any more, and what it starts does.
func TestNoNewCode(t *testing.T) {
	out, err := exec.Command(self(t), "hardened").Output()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(out), "set "+unix.EINVAL.Error()) {
		t.Skip("this kernel is older than 6.6 and cannot do it")
	}
	if got := string(out); got != "before works\nset works\nitself refused\ncode works\n" {
		t.Errorf("it says\n%s", got)
	}
}

// TestChildMayMakeCode: a driver compiles in a sandbox.
func TestChildMayMakeCode(t *testing.T) {
	expect(t, inside(t, newWorld(t).spec(), "", "code"), "code", true)
}

func TestFreshScratch(t *testing.T) {
	w := newWorld(t)
	spec := w.spec()
	left := filepath.Join(w.scratch, "left")
	inside(t, spec, "", "write="+left)
	if got := inside(t, spec, "", "read="+left); got["read"] != "works" {
		t.Errorf("it lost what it had kept: %s", got["read"])
	}
	spec.Fresh = true
	if got := inside(t, spec, "", "read="+left); !strings.Contains(got["read"], "no such file") {
		t.Errorf("what was left behind: %s", got["read"])
	}
}

func TestEnterRefuses(t *testing.T) {
	self, dir := self(t), t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		spec sandbox.Spec
		want string
	}{
		{"an orphan", sandbox.Spec{Program: self, Parent: 1 << 30}, "is gone"},
		{"a program that is not there", sandbox.Spec{Program: filepath.Join(dir, "none"), Parent: os.Getpid()}, "no such file"},
		{"a link as scratch folder", sandbox.Spec{Program: self, Scratch: link, Parent: os.Getpid()}, "is not ours"},
	} {
		t.Run(c.name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			args, err := c.spec.Arguments()
			if err != nil {
				t.Fatal(err)
			}
			out, err := exec.Command(self, args...).CombinedOutput()
			if err == nil || !strings.Contains(string(out), c.want) {
				t.Errorf("%v: %s, want %q", err, out, c.want)
			}
		})
	}
}
