package backend

import (
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
)

// ownsPort reports whether the process pid, or one of its group or offspring, holds the listening socket that answers
// on a loopback port. Where the kernel's tables do not tell, the answer is yes.
func ownsPort(pid, port int) bool { return ownsPortIn(os.DirFS("/proc"), pid, port) }

// ownsPortIn does it for the tables below proc.
func ownsPortIn(proc fs.FS, pid, port int) bool {
	exact := answering(proc, port)
	if len(exact) == 0 {
		return true
	}
	readable := false
	for _, p := range family(proc, pid) {
		dir := path.Join(p, "fd")
		fds, err := fs.ReadDir(proc, dir)
		if err != nil {
			continue
		}
		readable = true
		for _, fd := range fds {
			target, err := fs.ReadLink(proc, path.Join(dir, fd.Name()))
			inode, ok := strings.CutPrefix(target, "socket:[")
			if _, held := exact[strings.TrimSuffix(inode, "]")]; err == nil && ok && held {
				return true
			}
		}
	}
	return !readable
}

// heldBy reports whether the socket that answers on a loopback port belongs to a user. Where the kernel's tables do not
// tell, the answer is yes.
func heldBy(uid, port int) bool { return heldByIn(os.DirFS("/proc"), uid, port) }

// heldByIn does it for the tables below proc.
func heldByIn(proc fs.FS, uid, port int) bool {
	sockets := answering(proc, port)
	for _, user := range sockets {
		if user == strconv.Itoa(uid) {
			return true
		}
	}
	return len(sockets) == 0
}

// answering returns the sockets that answer on a loopback port, as the users by the inodes.
func answering(proc fs.FS, port int) map[string]string {
	loopback, every := listeners(proc, port)
	if len(loopback) == 0 {
		return every // a socket on every address answers only where none is bound to loopback alone
	}
	return loopback
}

// listeners returns the sockets that listen on port: those bound to loopback, and those bound to every address.
func listeners(proc fs.FS, port int) (loopback, every map[string]string) {
	loopback, every = map[string]string{}, map[string]string{}
	suffix := ":" + strings.ToUpper(strconv.FormatInt(0x10000|int64(port), 16)[1:])
	for _, file := range []string{"net/tcp", "net/tcp6"} {
		table, err := fs.ReadFile(proc, file)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(table)) {
			// number, local address, remote address, state, 3 more, user, 1 more, inode
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != "0A" || !strings.HasSuffix(f[1], suffix) {
				continue
			}
			switch addr := strings.TrimSuffix(f[1], suffix); {
			case strings.Trim(addr, "0") == "":
				every[f[9]] = f[7]
			case addr == "0100007F" || addr == "0000000000000000FFFF00000100007F":
				loopback[f[9]] = f[7]
			}
		}
	}
	return loopback, every
}

// family returns the numbers of pid, of the members of its group and of its offspring.
func family(proc fs.FS, pid int) []string {
	entries, err := fs.ReadDir(proc, ".")
	if err != nil {
		return []string{strconv.Itoa(pid)}
	}
	members := map[string]bool{strconv.Itoa(pid): true}
	parents := map[string]string{}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		stat, err := fs.ReadFile(proc, path.Join(e.Name(), "stat"))
		if err != nil {
			continue
		}
		// "pid (name) state ppid pgrp ..."; the name may hold anything, brackets too
		f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(f) < 3 {
			continue
		}
		parents[e.Name()] = f[1]
		if f[2] == strconv.Itoa(pid) {
			members[e.Name()] = true
		}
	}
	for grown := true; grown; {
		grown = false
		for child, parent := range parents {
			if members[parent] && !members[child] {
				members[child], grown = true, true
			}
		}
	}
	var out []string
	for m := range members {
		out = append(out, m)
	}
	return out
}
