package doctor

import (
	"os"
	"path/filepath"

	"onebit/engine/backend"
)

// runtimeFile is the HSA runtime, and runtimeDir where TheRock puts it.
const (
	runtimeFile = "libhsa-runtime64.so.1"
	runtimeDir  = "opt/rocm-therock"
	runtimeVar  = "IREE_HAL_AMDGPU_LIBHSA_PATH"
)

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
	// as serve looks for it
	machine := backend.Machine{Executable: filepath.Join(e.Prefix, "bin", "1bit"), HSARoot: e.path(runtimeDir)}
	path := machine.HSARuntime()
	if path == "" {
		e.add("hsa runtime", Miss, "no "+runtimeFile+" under /"+runtimeDir, "install TheRock's ROCm under /"+runtimeDir+", or give --hrx-libhsa; without it hrx finds no device")
		return
	}
	e.library = path
	e.add("hsa runtime", OK, path, "")
}
