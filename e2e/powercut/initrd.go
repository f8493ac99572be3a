package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The drivers that a virtual disk needs. ext4 is built into Debian's cloud kernel; where it is not, its module comes along.
var wanted = []string{"virtio_pci", "virtio_blk", "ext4"}

// buildInitrd packs the guest, the program that writes, and the drivers.
func buildInitrd(ctx context.Context, dir, drivers string) (string, error) {
	var a archive
	for _, p := range []struct{ pkg, name string }{{"./e2e/powercut/guest", "init"}, {"./store/crashwriter", "writer"}} {
		bin := filepath.Join(dir, p.name)
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", bin, p.pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("building %s: %w\n%s", p.pkg, err, out)
		}
		data, err := os.ReadFile(bin)
		if err != nil {
			return "", err
		}
		a.add(p.name, 0o100755, data)
	}
	order, err := modules(drivers)
	if err != nil {
		return "", err
	}
	a.add("drivers", 0o040755, nil)
	var names []string
	for _, m := range order {
		data, err := module(ctx, filepath.Join(drivers, m))
		if err != nil {
			return "", err
		}
		name := strings.TrimSuffix(filepath.Base(m), ".xz")
		names = append(names, name)
		a.add("drivers/"+name, 0o100644, data)
	}
	a.add("drivers/order", 0o100644, []byte(strings.Join(names, "\n")))
	path := filepath.Join(dir, "initrd")
	return path, os.WriteFile(path, a.close(), 0o600)
}

// modules returns the files of the wanted drivers and of what they need, in the order of loading.
func modules(drivers string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(drivers, "modules.dep"))
	if os.IsNotExist(err) {
		return nil, fmt.Errorf("%w: run depmod on it", err)
	}
	if err != nil {
		return nil, err
	}
	needs := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		file, list, ok := strings.Cut(strings.TrimSpace(line), ":")
		if ok {
			needs[file] = strings.Fields(list)
		}
	}
	var order []string
	seen := map[string]bool{}
	var load func(file string)
	load = func(file string) {
		if seen[file] {
			return
		}
		seen[file] = true
		for _, n := range needs[file] {
			load(n)
		}
		order = append(order, file)
	}
	for _, name := range wanted {
		for file := range needs {
			base, _, _ := strings.Cut(filepath.Base(file), ".")
			if base == name {
				load(file)
			}
		}
	}
	return order, nil
}

// module reads a driver, unpacking it where it is packed.
func module(ctx context.Context, path string) ([]byte, error) {
	if !strings.HasSuffix(path, ".xz") {
		return os.ReadFile(path)
	}
	out, err := exec.CommandContext(ctx, "xz", "-dc", path).Output()
	if err != nil {
		return nil, fmt.Errorf("unpacking %s: %w", path, err)
	}
	return out, nil
}

// archive is a cpio archive in the form that the kernel unpacks.
type archive struct {
	b     bytes.Buffer
	count int
}

func (a *archive) add(name string, mode int, data []byte) {
	a.count++
	fmt.Fprintf(&a.b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", a.count, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	a.b.WriteString(name + "\x00")
	a.pad()
	a.b.Write(data)
	a.pad()
}

func (a *archive) pad() {
	for a.b.Len()%4 != 0 {
		a.b.WriteByte(0)
	}
}

// close ends the archive and packs it.
func (a *archive) close() []byte {
	a.add("TRAILER!!!", 0, nil)
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	// a buffer takes everything
	_, _ = z.Write(a.b.Bytes())
	_ = z.Close()
	return out.Bytes()
}
