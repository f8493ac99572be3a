package sandbox

import (
	"fmt"
	"os"
	"unsafe"

	"github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// refused are system calls that no model server needs, and that have been ways out of confinement.
var refused = []string{
	// into other processes
	"ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease", "kcmp", "pidfd_getfd", "pidfd_send_signal",
	"move_pages", "migrate_pages",
	// into the kernel
	"bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register", "init_module", "finit_module",
	"delete_module", "create_module", "kexec_load", "kexec_file_load", "lookup_dcookie", "syslog", "iopl", "ioperm", "modify_ldt",
	"keyctl", "add_key", "request_key", "vmsplice",
	// around files
	"mount", "umount2", "pivot_root", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick", "open_tree", "mount_setattr", "chroot",
	"open_tree_attr", "open_by_handle_at", "name_to_handle_at", "fanotify_init", "quotactl", "quotactl_fd", "acct", "swapon", "swapoff", "mknod", "mknodat",
	// what Landlock does not see: who may read a file of our user, and what happens to it. By its descriptor all is allowed.
	"chmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchownat", "setxattr", "lsetxattr", "setxattrat", "removexattr", "lremovexattr",
	"removexattrat", "inotify_add_watch",
	// around the system
	"unshare", "setns", "reboot", "settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "sethostname", "setdomainname",
	"vhangup", "uselib", "_sysctl", "nfsservctl",
}

// sockets are the system calls that make sockets and connections. What is handed over needs none of them.
var sockets = []string{"socket", "socketpair", "bind", "listen", "accept", "accept4", "connect"}

// flags and values that filters compare with.
const (
	newNamespaces  = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	tiocLinux      = 0x541c // pastes on a console
	protocolOfUser = 0      // the kernel chooses: TCP
)

// filterArch is how the kernel calls what we were built for.
func filterArch() (*arch.Info, bool) {
	info, err := arch.GetInfo("")
	return info, err == nil
}

// condition is one comparison of an argument.
func condition(argument uint32, operation seccomp.Operation, value uint64) seccomp.Condition {
	return seccomp.Condition{Argument: argument, Operation: operation, Value: value}
}

// conditional refuses a call when all comparisons hold.
func conditional(name string, all ...seccomp.Condition) seccomp.NameWithConditions {
	return seccomp.NameWithConditions{Name: name, Conditions: all}
}

// network refuses every socket but TCP's, and every way of connecting one.
func network() []seccomp.NameWithConditions {
	all := []seccomp.NameWithConditions{
		conditional("socket", condition(0, seccomp.NotEqual, unix.AF_INET), condition(0, seccomp.NotEqual, unix.AF_INET6)),
		conditional("socket", condition(2, seccomp.NotEqual, protocolOfUser), condition(2, seccomp.NotEqual, unix.IPPROTO_TCP)),
		conditional("sendto", condition(3, seccomp.BitsSet, unix.MSG_FASTOPEN)),
		conditional("sendmsg", condition(2, seccomp.BitsSet, unix.MSG_FASTOPEN)),
		conditional("sendmmsg", condition(3, seccomp.BitsSet, unix.MSG_FASTOPEN)),
	}
	for bit := uint64(2); bit <= 8; bit *= 2 { // a stream is type 1: none of these bits; flags lie higher
		all = append(all, conditional("socket", condition(1, seccomp.BitsSet, bit)))
	}
	return all
}

// processes refuses namespaces, and for a program that starts no others every new process and every signal to another.
func processes(s Spec) []seccomp.NameWithConditions {
	if !s.Alone {
		return []seccomp.NameWithConditions{limitsOfOthers(), conditional("clone", condition(0, seccomp.BitsSet, newNamespaces))}
	}
	self := uint64(os.Getpid())
	return []seccomp.NameWithConditions{
		limitsOfOthers(),
		conditional("clone", condition(0, seccomp.BitsNotSet, unix.CLONE_THREAD)),
		conditional("clone", condition(0, seccomp.BitsSet, newNamespaces)),
		conditional("kill", condition(0, seccomp.NotEqual, self)),
		conditional("tgkill", condition(0, seccomp.NotEqual, self)),
		conditional("rt_sigqueueinfo", condition(0, seccomp.NotEqual, self)),
		conditional("rt_tgsigqueueinfo", condition(0, seccomp.NotEqual, self)),
	}
}

// limitsOfOthers refuses the limits of every process but the one that calls: those of the box may have the same user.
func limitsOfOthers() seccomp.NameWithConditions {
	return conditional("prlimit64", condition(0, seccomp.NotEqual, 0))
}

// program assembles the filter.
func program(s Spec, info *arch.Info) ([]bpf.RawInstruction, error) {
	whole := append([]string(nil), refused...)
	conditions := processes(s)
	if s.Alone {
		whole = append(whole, "fork", "vfork", "tkill")
	}
	switch {
	case s.Conduit:
		whole = append(whole, sockets...)
	case !s.Network:
		whole = append(whole, "connect")
		conditions = append(conditions, network()...)
	}
	return assemble(info, seccomp.ActionAllow, seccomp.ActionErrno, whole, conditions)
}

// assemble makes a filter that does one thing with the calls that are named, whole or by their arguments, and another with
// all others.
func assemble(info *arch.Info, others, named seccomp.Action, whole []string, conditions []seccomp.NameWithConditions) ([]bpf.RawInstruction, error) {
	var names []string
	for _, name := range whole {
		if _, ok := info.SyscallNames[name]; ok { // each processor has calls that others lack
			names = append(names, name)
		}
	}
	policy := seccomp.Policy{
		DefaultAction: others,
		Syscalls: []seccomp.SyscallGroup{
			{Names: names, Action: named},
			{NamesWithCondtions: conditions, Action: named},
		},
	}
	body, err := policy.Assemble()
	if err != nil {
		return nil, err
	}
	return bpf.Assemble(append(guard(info), body...))
}

// guard opens every filter. The library lets calls of another processor's kind pass, which a 64-bit program on amd64 can
// make. And a clone3 has its flags in memory, out of reach of a filter: whoever is told that it does not exist takes clone.
// Typing into a terminal that was inherited is a way out: the kernel looks at the lower half of that request alone, and
// the library compares both. It does not know file_setattr.
func guard(info *arch.Info) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: 4, Size: 4}, // seccomp_data.arch
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(info.ID), SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS},
		bpf.LoadAbsolute{Off: 0, Size: 4}, // seccomp_data.nr
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_CLONE3, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_FILE_SETATTR, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_IOCTL, SkipTrue: 4},
		bpf.LoadAbsolute{Off: 16 + 8, Size: 4}, // the lower half of seccomp_data.args[1], on the processors that are known
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.TIOCSTI, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: tiocLinux, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
	}
}

// filter installs the filter on this thread, for good.
func filter(s Spec) error {
	info, ok := filterArch()
	if !ok {
		return fmt.Errorf("no filter is known for this processor")
	}
	raw, err := program(s, info)
	if err != nil {
		return err
	}
	code := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		code[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0); err != nil {
		return err
	}
	return nil
}
