package sandbox

import "strings"

// inherited are beginnings of names of variables that model servers and the drivers below them read.
var inherited = []string{
	"AMD_", "DRI_", "GGML_", "GPU_", "HIP_", "HSA_", "IREE_", "KMP_", "LLAMA_", "MESA_", "OMP_", "RADV_", "ROCM_", "ROCR_", "VK_",
	"CUDA_", "NVIDIA_", "XDNA_", "XRT_", "ONEBIT_HRX_", "ONEBIT_MOE_", "ONEBIT_PREFILL_",
}

// plain are whole names.
var plain = []string{"PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "GOMAXPROCS", "GOMEMLIMIT", "GOGC", "ONEBIT_CPU", "ONEBIT_LOG"}

// secretive are parts of names that tell of something to be kept.
var secretive = []string{"KEY", "TOKEN", "SECRET", "PASS", "CREDENTIAL", "AUTH"}

// Environment is what of our own environment a confined program gets: what it and its drivers read, and nothing whose
// name tells of a secret.
func Environment(own []string) []string {
	var kept []string
	for _, kv := range own {
		name, _, _ := strings.Cut(kv, "=")
		if passes(name) {
			kept = append(kept, kv)
		}
	}
	return kept
}

func passes(name string) bool {
	for _, p := range plain {
		if name == p {
			return true
		}
	}
	for _, s := range secretive {
		if strings.Contains(strings.ToUpper(name), s) {
			return false
		}
	}
	for _, p := range inherited {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}
