package conduit_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"testing"

	"onebit/engine/conduit"

	"golang.org/x/sys/unix"
)

// role makes a copy of this test binary the process that is called.
const role = "ONEBIT_CONDUIT_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(role) == "" {
		os.Exit(m.Run())
	}
	l, err := conduit.Listen(os.NewFile(conduit.Descriptor, "conduit"))
	if err == nil {
		err = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/die" {
				os.Exit(7)
			}
			fmt.Fprint(w, "hello from ", r.URL.Path)
		}))
	}
	if errors.Is(err, io.EOF) { // the caller is gone
		os.Exit(0)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// pair is both ends in one process.
func pair(t *testing.T) (*conduit.Caller, *conduit.Listener) {
	t.Helper()
	c, end, err := conduit.New()
	if err != nil {
		t.Fatal(err)
	}
	l, err := conduit.Listen(end)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); l.Close() })
	return c, l
}

func dial(t *testing.T, c *conduit.Caller) net.Conn {
	t.Helper()
	conn, err := c.Dial(t.Context(), "tcp", "anywhere:80")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// descriptors is how many this process has.
func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// TestConnections talks both ways over many connections at once, and leaves no descriptor.
func TestConnections(t *testing.T) {
	c, l := pair(t)
	before := descriptors(t)
	const many = 100
	var group sync.WaitGroup
	group.Go(func() {
		for range many {
			conn, err := l.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			group.Go(func() {
				defer conn.Close()
				line, _ := bufio.NewReader(conn).ReadString('\n')
				io.WriteString(conn, "got "+line)
			})
		}
	})
	for i := range many {
		group.Go(func() {
			conn, err := c.Dial(context.Background(), "", "")
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprintln(conn, i)
			if b, err := io.ReadAll(conn); err != nil || string(b) != fmt.Sprintf("got %d\n", i) {
				t.Errorf("%q, %v", b, err)
			}
		})
	}
	group.Wait()
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors, there were %d", after, before)
	}
}

// TestEnds: whoever is left learns that the other side is gone; what waits to be taken ends too.
func TestEnds(t *testing.T) {
	c, l := pair(t)
	waiting := dial(t, c)
	l.Close()
	if n, err := waiting.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("a connection that nobody took: %d, %v", n, err)
	}
	if _, err := c.Dial(t.Context(), "", ""); !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("nobody is there: %v", err)
	}

	c, l = pair(t)
	conn := dial(t, c)
	c.Close()
	taken, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Accept(); !errors.Is(err, io.EOF) {
		t.Errorf("the caller is gone: %v", err)
	}
	fmt.Fprint(conn, "still here")
	conn.Close()
	if b, err := io.ReadAll(taken); err != nil || string(b) != "still here" {
		t.Errorf("a connection outlives the conduit: %q, %v", b, err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Dial(ctx, "", ""); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that was given up: %v", err)
	}
}

// TestForeignMessages: what is no connection is dropped, and nothing that comes stays open.
func TestForeignMessages(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	l, err := conduit.Listen(os.NewFile(uintptr(fds[1]), "end"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	before := descriptors(t)
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	good, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, oob := range [][]byte{
		nil, unix.UnixRights(int(null.Fd())), unix.UnixRights(int(null.Fd()), int(null.Fd()), int(null.Fd())), unix.UnixRights(good[1]),
	} {
		if err := unix.Sendmsg(fds[0], []byte{1}, oob, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(good[0], []byte("x")); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("the connection behind them: %d, %v", n, err)
	}
	conn.Close()
	null.Close()
	unix.Close(good[0])
	unix.Close(good[1])
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors, there were %d", after, before)
	}
	unix.Close(fds[0])
	if _, err := l.Accept(); !errors.Is(err, io.EOF) {
		t.Errorf("the end: %v", err)
	}
}

func TestListenRefuses(t *testing.T) {
	stream, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(stream[0])
	tcp, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]*os.File{"a stream": os.NewFile(uintptr(stream[1]), "x"), "TCP": os.NewFile(uintptr(tcp), "x"), "a file": null} {
		if l, err := conduit.Listen(f); err == nil {
			l.Close()
			t.Errorf("%s was taken for a conduit", name)
		}
	}
}

// TestProcess calls a real process, which ends when its caller does, and whose end is noticed.
func TestProcess(t *testing.T) {
	start := func() (*conduit.Caller, *exec.Cmd, *http.Client) {
		c, end, err := conduit.New()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env, cmd.ExtraFiles, cmd.Stderr = append(os.Environ(), role+"=1"), []*os.File{end}, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		end.Close()
		t.Cleanup(func() { cmd.Process.Kill() })
		return c, cmd, &http.Client{Transport: &http.Transport{DialContext: c.Dial, DisableKeepAlives: true}}
	}
	c, cmd, client := start()
	res, err := client.Get("http://localhost/x")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(res.Body); err != nil || string(b) != "hello from /x" {
		t.Errorf("%q, %v", b, err)
	}
	res.Body.Close()
	c.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("its caller is gone: %v", err)
	}
	c, cmd, client = start()
	defer c.Close()
	if _, err := client.Get("http://localhost/die"); err == nil {
		t.Error("it died, and answers")
	}
	cmd.Wait()
	if _, err := client.Get("http://localhost/x"); err == nil {
		t.Error("it is dead, and answers")
	}
}
