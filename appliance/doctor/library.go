package doctor

import (
	"os"
	"path/filepath"

	"onebit/engine"
)

// runtimeFile is the HSA runtime, and runtimeDir where TheRock puts it.
const (
	runtimeFile  = "libhsa-runtime64.so.1"
	runtimeDir   = "opt/rocm-therock"
	runtimeDepth = 6
	runtimeVar   = "IREE_HAL_AMDGPU_LIBHSA_PATH"
)

// FindLibrary returns the first file called name in a folder or at most depth folders below it, in the order of names.
// Folders that cannot be read are skipped; symbolic links to folders are not followed.
func FindLibrary(dir, name string, depth int) (path string, found bool) {
	entries, err := os.ReadDir(dir) // what could be read is returned with the error
	if err != nil && len(entries) == 0 {
		return "", false
	}
	file := filepath.Join(dir, name)
	if info, err := os.Stat(file); err == nil && !info.IsDir() {
		return file, true
	}
	for _, entry := range entries {
		if entry.IsDir() && depth > 0 {
			if path, found = FindLibrary(filepath.Join(dir, entry.Name()), name, depth-1); found {
				return path, true
			}
		}
	}
	return "", false
}

// runtime looks at the HSA runtime, without which hrx registers no device.
func (e *exam) runtime() {
	if !e.amd() {
		return
	}
	if path := e.Getenv(runtimeVar); path != "" {
		e.library = path
		if _, err := os.Stat(path); err != nil {
			e.library = ""
			e.add("hsa runtime", Miss, runtimeVar+" names "+path+", which is not there", "unset "+runtimeVar+" or let it name "+runtimeFile)
			return
		}
		e.add("hsa runtime", OK, path+" ("+runtimeVar+")", "")
		return
	}
	path, found := FindLibrary(filepath.Join(e.Prefix, "lib", "1bit", string(engine.HRX)), runtimeFile, runtimeDepth)
	if !found {
		path, found = FindLibrary(e.path(runtimeDir), runtimeFile, runtimeDepth)
	}
	if !found {
		e.add("hsa runtime", Miss, "no "+runtimeFile+" under /"+runtimeDir, "install TheRock's ROCm under /"+runtimeDir+", or give --hrx-libhsa; without it hrx finds no device")
		return
	}
	e.library = path
	e.add("hsa runtime", OK, path, "")
}
