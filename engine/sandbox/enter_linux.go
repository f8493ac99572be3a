package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Supported says what this system has for sandboxes.
func Supported() Support {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		version = 0
	}
	// a filter that is not there is a bad address where there are filters at all
	err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, 0, 0, 0)
	_, known := filterArch()
	return Support{Landlock: int(version), Filter: known && errors.Is(err, unix.EFAULT)}
}

// Enter takes this process's rights away and becomes the program. It returns only when that cannot be done.
func Enter(s Spec) error { return enter(s, Supported()) }

func enter(s Spec, have Support) error {
	runtime.LockOSThread() // rights are a thread's; this one becomes the program
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("asking to end with the parent: %w", err)
	}
	if os.Getppid() != s.Parent {
		return errors.New("whoever started this is gone")
	}
	if err := dropCapabilities(); err != nil {
		return err
	}
	unix.Umask(umask(s))
	if err := limits(s); err != nil {
		return err
	}
	if err := scratch(s); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("giving up new privileges: %w", err)
	}
	first := uint(firstOwn)
	if s.Conduit {
		first++
	}
	if err := unix.CloseRange(first, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC); err != nil && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("closing descriptors: %w", err) // older kernels: Go has marked its own, and starts children with three
	}
	if have.Landlock > 0 {
		if err := landlocked(s); err != nil {
			return fmt.Errorf("confining files: %w", err)
		}
	}
	if have.Filter {
		if err := filter(s); err != nil {
			return fmt.Errorf("filtering system calls: %w", err)
		}
	}
	if err := syscall.Exec(s.Program, append([]string{s.Program}, s.Args...), s.Env); err != nil {
		return fmt.Errorf("starting %s: %w", s.Program, err)
	}
	return nil
}

// umask is what files are made without.
func umask(s Spec) int {
	if s.Group {
		return 0o007
	}
	return 0o077
}

// Shield keeps other processes of our user from reading our memory and environment. Where there is Landlock, that keeps
// confined ones from it already, and nothing is done.
func Shield() error {
	if Supported().Landlock > 0 {
		return nil
	}
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// firstOwn is the first descriptor behind the standard streams, where a conduit is.
const firstOwn = 3

// NoNewCode keeps this process, for good, from running what it has written to memory. What it starts is free of that:
// drivers and workers of extensions compile programs. Kernels before 6.6 cannot tell the two apart, and return an error.
func NoNewCode() error {
	return unix.Prctl(unix.PR_SET_MDWE, unix.PR_MDWE_REFUSE_EXEC_GAIN|unix.PR_MDWE_NO_INHERIT, 0, 0, 0)
}

// dropCapabilities gives up what a privileged parent has left to us.
func dropCapabilities() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("giving up ambient capabilities: %w", err)
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&head, &none[0]); err != nil {
		return fmt.Errorf("giving up capabilities: %w", err)
	}
	return nil
}

const (
	openFiles   = 65536
	lockedBytes = 8 << 20
)

// limits sets what a program may use, and offers it to the kernel first when memory runs out.
func limits(s Spec) error {
	set := func(what int, soft, hard uint64) error {
		var now unix.Rlimit
		if err := unix.Getrlimit(what, &now); err != nil {
			return fmt.Errorf("reading a limit: %w", err)
		}
		hard = min(hard, now.Max) // raising it is not ours to do
		return unix.Setrlimit(what, &unix.Rlimit{Cur: min(soft, hard), Max: hard})
	}
	// one byte, not none: a limit of 0 does not keep a dump from a program that the kernel hands it to, and 1 does
	if err := set(unix.RLIMIT_CORE, 1, 1); err != nil {
		return fmt.Errorf("refusing core dumps: %w", err)
	}
	if err := set(unix.RLIMIT_NOFILE, openFiles, openFiles); err != nil {
		return fmt.Errorf("limiting descriptors: %w", err)
	}
	locked := uint64(lockedBytes)
	if s.Locked {
		locked = unix.RLIM_INFINITY
	}
	if err := set(unix.RLIMIT_MEMLOCK, locked, locked); err != nil {
		return fmt.Errorf("limiting locked memory: %w", err)
	}
	if s.Tasks > 0 {
		if err := set(unix.RLIMIT_NPROC, s.Tasks, s.Tasks); err != nil {
			return fmt.Errorf("limiting tasks: %w", err)
		}
	}
	if s.Memory > 0 {
		if err := set(unix.RLIMIT_DATA, s.Memory, s.Memory); err != nil {
			return fmt.Errorf("limiting memory: %w", err)
		}
	}
	// it may not be allowed, and is a wish only: a model is lost rather than the box
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte(strconv.Itoa(oomFirst)), 0)
	return nil
}

// oomFirst is how much sooner than others the kernel takes a model server when memory runs out; the most is 1000.
const oomFirst = 500

// scratch makes the program's own folder.
func scratch(s Spec) error {
	if s.Scratch == "" {
		return nil
	}
	if s.Fresh {
		if err := os.RemoveAll(s.Scratch); err != nil {
			return fmt.Errorf("emptying the scratch folder: %w", err)
		}
	}
	if err := os.MkdirAll(s.Scratch, 0o700); err != nil {
		return fmt.Errorf("making the scratch folder: %w", err)
	}
	info, err := os.Lstat(s.Scratch)
	if err != nil {
		return fmt.Errorf("looking at the scratch folder: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(stat.Uid) != os.Getuid() {
		return fmt.Errorf("the scratch folder %s is not ours", s.Scratch)
	}
	return nil
}

// present returns the real paths of what is there of a list, folders and files apart.
func present(paths []string) (folders, files []string) {
	for _, path := range paths {
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			continue
		}
		info, err := os.Stat(real)
		switch {
		case err != nil:
		case info.IsDir():
			folders = append(folders, real)
		case info.Mode()&fs.ModeSocket == 0:
			files = append(files, real)
		}
	}
	return folders, files
}

// leastUser is the first number that systems give to nobody by themselves.
const leastUser = 60706

// sweepUser kills all processes of a user, which must be our own and one for children alone.
func sweepUser(uid int) error {
	runtime.LockOSThread() // rights are a thread's
	defer runtime.UnlockOSThread()
	if real, effective, saved := unix.Getresuid(); real != uid || effective != uid || saved != uid || uid < leastUser {
		return fmt.Errorf("user %d is not ours to clear", uid)
	}
	if err := dropCapabilities(); err != nil {
		return err // with a privilege it would be everybody's processes
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var left [2]unix.CapUserData
	if err := unix.Capget(&head, &left[0]); err != nil {
		return fmt.Errorf("looking at privileges: %w", err)
	}
	if left != [2]unix.CapUserData{} {
		return fmt.Errorf("clearing user %d: there are privileges left", uid)
	}
	if err := unix.Kill(-1, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("clearing user %d: %w", uid, err)
	}
	return nil
}
