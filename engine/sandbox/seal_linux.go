package sandbox

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/landlock-lsm/go-landlock/landlock"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/psx"
)

// computing are the system calls of a Go program that has its descriptors already.
var computing = []string{
	"read", "write", "readv", "writev", "pread64", "pwrite64", "recvfrom", "close", "fcntl", "fstat", "lseek",
	"mmap", "munmap", "mprotect", "madvise", "mremap", "brk", "mincore", "memfd_create", "ftruncate",
	"futex", "sched_yield", "sched_getaffinity", "nanosleep", "clock_nanosleep", "clock_gettime", "clock_getres", "gettimeofday",
	"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "restart_syscall", "getpid", "gettid", "getrandom",
	"set_robust_list", "rseq", "set_tid_address", "arch_prctl", "membarrier", "exit", "exit_group",
	"epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2", "eventfd2", "pipe2", "poll", "ppoll",
	"timer_create", "timer_settime", "timer_delete", "getrlimit", "getrusage", "getuid", "geteuid", "getgid", "getegid",
}

// opening are those that look for files and read them; Landlock says which.
var opening = []string{
	"openat", "newfstatat", "fstatat64", "statx", "readlinkat", "getdents64", "faccessat", "faccessat2", "getcwd",
	"landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self", "seccomp",
}

// making are those that change files.
var making = []string{"mkdirat", "renameat", "renameat2", "unlinkat", "fsync", "fdatasync", "fchmod", "fchmodat", "fallocate"}

// Close takes the rights away. Files go by Landlock where the kernel has it; Supported and Support.Missing tell.
func (s Seal) Close() error { return s.close(Supported()) }

func (s Seal) close(have Support) error {
	runtime.LockOSThread() // the filter is this thread's first, and the kernel gives it to the others
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("giving up new privileges: %w", err)
	}
	if !s.Again { // a sealed process cannot list its threads, which these two need to
		if err := dropAllCapabilities(); err != nil {
			return err
		}
		if have.Landlock > 0 {
			if err := s.files(); err != nil {
				return fmt.Errorf("confining files: %w", err)
			}
		}
	}
	if !have.Filter {
		return nil
	}
	if err := s.filter(); err != nil {
		return fmt.Errorf("filtering system calls: %w", err)
	}
	return nil
}

// dropAllCapabilities gives up, in all threads, what a privileged parent has left to us. Where a filter around us refuses
// the call they stay, and are of no use: whatever they allow begins with a call that a seal refuses.
func dropAllCapabilities() error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have, none [2]unix.CapUserData
	if err := unix.Capget(&head, &have[0]); err != nil || have == none {
		return err
	}
	head.Pid = 0
	if _, _, errno := psx.Syscall3(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&none[0])), 0); errno != 0 && errno != unix.EPERM {
		return fmt.Errorf("giving up capabilities: %w", errno)
	}
	return nil
}

// files lets Landlock keep everything but what is named: paths, ports, signals.
func (s Seal) files() error {
	folders, files := present(s.Read)
	rules := []landlock.Rule{landlock.RODirs(folders...), landlock.ROFiles(files...)}
	folders, files = present(s.Write)
	rules = append(rules, landlock.RWDirs(folders...), landlock.RWFiles(files...))
	return landlock.V9.BestEffort().Restrict(rules...)
}

// filter installs the filter on all threads.
func (s Seal) filter() error {
	info, ok := filterArch()
	if !ok {
		return errors.New("no filter is known for this processor")
	}
	raw, err := s.program(info)
	if err != nil {
		return err
	}
	code := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		code[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	switch {
	case errno != 0:
		return errno
	case thread != 0:
		return fmt.Errorf("thread %d has a filter of its own", thread)
	}
	return nil
}

// program assembles the filter: what is not allowed is answered by "not permitted".
func (s Seal) program(info *arch.Info) ([]bpf.RawInstruction, error) {
	all := append([]string(nil), computing...)
	if !s.Final() {
		all = append(all, opening...)
	}
	if !s.Final() && len(s.Write) > 0 {
		all = append(all, making...)
	}
	return assemble(info, seccomp.ActionErrno, seccomp.ActionAllow, all, s.own())
}

// own are calls that may be made about this process alone: its threads, its signals, its limits, the names of its memory.
func (s Seal) own() []seccomp.NameWithConditions {
	self := uint64(os.Getpid())
	all := []seccomp.NameWithConditions{
		conditional("clone", condition(0, seccomp.BitsSet, unix.CLONE_THREAD), condition(0, seccomp.BitsNotSet, newNamespaces)),
		conditional("tgkill", condition(0, seccomp.Equal, self)),
		conditional("kill", condition(0, seccomp.Equal, self)),
		conditional("prlimit64", condition(0, seccomp.Equal, 0), condition(2, seccomp.Equal, 0)), // to read them
		conditional("prctl", condition(0, seccomp.Equal, unix.PR_SET_VMA)),
	}
	if !s.Final() {
		all = append(all,
			conditional("prctl", condition(0, seccomp.Equal, unix.PR_SET_NO_NEW_PRIVS)),
			conditional("prctl", condition(0, seccomp.Equal, unix.PR_SET_SECCOMP))) // Supported asks by it
	}
	return all
}
