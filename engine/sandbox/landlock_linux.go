package sandbox

import (
	"github.com/landlock-lsm/go-landlock/landlock"
	"golang.org/x/sys/unix"
)

// systemRead is what programs need to run: libraries, what the loader and the drivers read, and what the kernel says
// about the machine and the process itself. Of /etc only what names no secrets; of /proc nothing of other processes.
var systemRead = []string{
	"/usr", "/bin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store", "/run/opengl-driver", "/run/current-system/sw",
	"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.preload", "/etc/alternatives", "/etc/localtime", "/etc/os-release",
	"/etc/nsswitch.conf", "/etc/hosts", "/etc/vulkan", "/etc/OpenCL", "/etc/drirc", "/etc/glvnd",
	"/sys",
	"/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/version", "/proc/filesystems", "/proc/sys", "/proc/uptime",
	"/proc/loadavg", "/proc/devices", "/proc/driver", "/proc/cgroups",
}

// systemDevices are the devices that hold nothing.
var systemDevices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// landlocked confines this process, as far as the kernel can.
func landlocked(s Spec) error {
	read := append([]string{s.Program}, s.Read...)
	folders, files := present(append(read, systemRead...))
	rules := []landlock.Rule{landlock.RODirs(folders...), landlock.ROFiles(files...)}
	folders, _ = present(s.List)
	rules = append(rules, landlock.PathAccess(unix.LANDLOCK_ACCESS_FS_READ_DIR, folders...))
	write := s.Write
	if s.Scratch != "" {
		write = append([]string{s.Scratch}, write...)
	}
	folders, files = present(write)
	// no WithRefer: where the kernel lacks that the library would leave all files open
	rules = append(rules, landlock.RWDirs(folders...), landlock.RWFiles(files...))
	_, files = present(systemDevices)
	rules = append(rules, landlock.RWFiles(files...))
	_, files = present(s.Devices)
	rules = append(rules, landlock.RWFiles(files...).WithIoctlDev())
	config := landlock.V9.BestEffort()
	if s.Network {
		if err := config.RestrictPaths(rules...); err != nil {
			return err
		}
		return config.RestrictScoped()
	}
	if s.Port > 0 {
		rules = append(rules, landlock.BindTCP(uint16(s.Port)))
	}
	return config.Restrict(rules...)
}
