//go:build linux

// The guest is the first process of the machine whose power is cut: it loads the drivers, mounts the disk, and runs the
// program that writes to it. What that says goes to the second serial port.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if err := run(); err != nil {
		fmt.Println("guest:", err) // to the console
	}
	unix.Sync()
	// when this fails the kernel panics, and the machine ends as well
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func run() error {
	for _, m := range [][2]string{{"devtmpfs", "/dev"}, {"proc", "/proc"}, {"sysfs", "/sys"}} {
		if err := os.MkdirAll(m[1], 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m[0], m[1], m[0], 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mounting %s: %w", m[1], err)
		}
	}
	if err := loadDrivers(); err != nil {
		return err
	}
	out, err := os.OpenFile("/dev/ttyS1", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	defer out.Close()
	if err := mountDisk(out); err != nil {
		fmt.Fprintln(out, "bad", err)
		return err
	}
	args := []string{"-dir", "/data/state"}
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}
	if strings.Contains(string(line), "onebit.check") {
		args = append(args, "-check")
	}
	cmd := exec.Command("/writer", args...)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	err = cmd.Run()
	fmt.Fprintln(out, "end", err)
	return errors.Join(err, unix.Unmount("/data", 0))
}

func loadDrivers() error {
	list, err := os.ReadFile("/drivers/order")
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(string(list)) {
		f, err := os.Open("/drivers/" + name)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("loading %s: %w", name, err)
		}
	}
	return nil
}

func mountDisk(out *os.File) error {
	if err := os.MkdirAll("/data", 0o755); err != nil {
		return err
	}
	// the driver finds the disk a moment after it has been loaded
	for range 200 {
		if _, err := os.Stat("/dev/vda"); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	fmt.Fprintln(out, "boot")
	if err := unix.Mount("/dev/vda", "/data", "ext4", 0, ""); err != nil {
		return fmt.Errorf("mounting the disk: %w", err)
	}
	return nil
}
