package backend_test

import (
	"net"
	"os"
	"testing"
	"testing/fstest"

	"onebit/engine/backend"
)

const tcpHeader = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"

// proc builds the kernel's tables: sockets as lines of net/tcp and net/tcp6, processes with their parent, group and open sockets.
func proc(tcp, tcp6 string, processes ...[4]string) fstest.MapFS {
	tables := fstest.MapFS{
		"net/tcp":  {Data: []byte(tcpHeader + tcp)},
		"net/tcp6": {Data: []byte(tcpHeader + tcp6)},
		"uptime":   {},
	}
	for _, p := range processes {
		tables[p[0]+"/stat"] = &fstest.MapFile{Data: []byte(p[0] + " (na) me) S " + p[1] + " " + p[2] + " 1 0 -1")}
		tables[p[0]+"/fd/0"] = &fstest.MapFile{Data: []byte("/dev/null"), Mode: os.ModeSymlink | 0o777}
		tables[p[0]+"/fd/5"] = &fstest.MapFile{Data: []byte("socket:[" + p[3] + "]"), Mode: os.ModeSymlink | 0o777}
	}
	return tables
}

func socket(addr, state, inode string) string { return socketOf(addr, state, inode, "0") }

func socketOf(addr, state, inode, user string) string {
	return "   0: " + addr + " 00000000:0000 " + state + " 00000000:00000000 00:00000000 00000000     " + user + "        0 " + inode + " 1 0000000000000000 100 0 0 10 0\n"
}

func TestOwnsPort(t *testing.T) {
	const port = 0x1F90
	loopback, every := "0100007F:1F90", "00000000:1F90"
	every6, mapped := "00000000000000000000000000000000:1F90", "0000000000000000FFFF00000100007F:1F90"
	child := [4]string{"70", "1", "70", "111"}
	for _, c := range []struct {
		name   string
		tables fstest.MapFS
		want   bool
	}{
		{"its own", proc(socket(loopback, "0A", "111"), "", child), true},
		{"a stranger's", proc(socket(loopback, "0A", "222"), "", child), false},
		{"another port", proc(socket("0100007F:1F91", "0A", "222"), "", child), true},
		{"a connection, no listener", proc(socket(loopback, "01", "222"), "", child), true},
		{"on every address", proc(socket(every, "0A", "111"), "", child), true},
		{"on every IPv6 address", proc("", socket(every6, "0A", "111"), child), true},
		{"on the mapped address", proc("", socket(mapped, "0A", "222"), child), false},
		{"a stranger on loopback before its own on every address", proc(socket(every, "0A", "111")+socket(loopback, "0A", "222"), "", child), false},
		{"its group's", proc(socket(loopback, "0A", "333"), "", child, [4]string{"71", "1", "70", "333"}), true},
		{"its grandchild's", proc(socket(loopback, "0A", "333"), "", child, [4]string{"80", "70", "80", "1"}, [4]string{"90", "80", "80", "333"}), true},
		{"a neighbour's", proc(socket(loopback, "0A", "333"), "", child, [4]string{"71", "1", "71", "333"}), false},
		{"files unreadable", fstest.MapFS{"net/tcp": {Data: []byte(tcpHeader + socket(loopback, "0A", "222"))}}, true},
		{"no tables", fstest.MapFS{}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := backend.OwnsPortIn(c.tables, 70, port); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestHeldBy(t *testing.T) {
	const port = 0x1F90
	loopback, every := "0100007F:1F90", "00000000:1F90"
	for _, c := range []struct {
		name   string
		tables fstest.MapFS
		want   bool
	}{
		{"its own", proc(socketOf(loopback, "0A", "1", "70001"), ""), true},
		{"a stranger's", proc(socketOf(loopback, "0A", "1", "1000"), ""), false},
		{"a stranger on loopback before its own on every address", proc(socketOf(every, "0A", "1", "70001")+socketOf(loopback, "0A", "2", "0"), ""), false},
		{"a connection of its own beside a stranger's listener", proc(socketOf(loopback, "01", "1", "70001")+socketOf(loopback, "0A", "2", "0"), ""), false},
		{"no tables", fstest.MapFS{}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := backend.HeldByIn(c.tables, 70001, port); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestOwnsPortOnThisKernel(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	if !backend.OwnsPortIn(os.DirFS("/proc"), os.Getpid(), port) {
		t.Error("our own listener is not ours")
	}
	if !backend.HeldByIn(os.DirFS("/proc"), os.Getuid(), port) || backend.HeldByIn(os.DirFS("/proc"), os.Getuid()+1, port) {
		t.Error("our own listener belongs to somebody else")
	}
}
