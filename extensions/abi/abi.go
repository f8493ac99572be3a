// Package abi is the contract laya_v1 between the host and its guests: names, numbers, payload types and limits, and no
// behaviour. ABI.md, one folder up, says what they mean to a stranger who writes a guest or a host; a test holds the
// two together.
package abi

// Version is the major version: the number in the names below and the "v" of every payload.
const Version = 1

// HostModule is the module from which a guest imports the host's functions. WASIModule offers a fixed inert list, enough
// for the standard libraries of Go and Rust to start.
const (
	HostModule = "laya_v1"
	WASIModule = "wasi_snapshot_preview1"
)

// What a guest exports.
const (
	Memory     = "memory"
	Marker     = "laya_abi_v1"
	Initialize = "_initialize"
	Buffer     = "laya_buffer"
	Configure  = "laya_configure"
	Classify   = "laya_classify"
	Route      = "laya_route"
)

// ManifestSection is the custom section that may hold the manifest.
const ManifestSection = "laya.manifest"

// MeterModule begins every name that the metering rewrite adds. A guest may neither import from it nor export such names.
const MeterModule = "laya_meter"

// Code is what a host function answers when it cannot do what it was asked.
type Code int32

// The codes. Zero and above is success.
const (
	Invalid     Code = -1 // an argument is wrong: a pointer out of memory, an unknown id, not UTF-8
	Missing     Code = -2 // nothing has this name or key
	Full        Code = -3 // a quota is used up: keys, bytes, calls
	Unavailable Code = -4 // nobody can do it now, or in time
	Denied      Code = -5 // not at this moment: assets after the snapshot, a second decision in one call
)

// Level is the first argument of log.
type Level int32

// The levels.
const (
	Debug Level = iota
	Info
	Warn
	Error
)

// Part is the first argument of text.
type Part int32

// The parts of a prompt.
const (
	LastUser Part = iota // the last user message
	System               // the system prompt
	Whole                // every message in order, each closed by a line feed
)

// Capability is a power that a manifest asks for and an operator grants. Without the grant a module that imports the
// function behind it is refused at upload.
type Capability string

// The capabilities.
const (
	CapMetric Capability = "metric"
	CapNow    Capability = "now"
	CapTokens Capability = "tokens"
	CapEmbed  Capability = "embed"
	CapDecide Capability = "decide"
	CapText   Capability = "text"
	CapKV     Capability = "kv"
	CapAsset  Capability = "asset"
)

// Function is one function of the contract. Type is written "(i32, i64) -> (i32)"; it is empty for the memory.
type Function struct {
	Module, Name, Type string
	Capability         Capability // of an import; empty when nobody needs to grant it
	Required, Decides  bool       // of an export
}

// Exports lists what the host looks for in a guest. At least one that Decides must be there.
func Exports() []Function {
	const call = "(i32, i32) -> (i64)"
	return []Function{
		{Name: Memory, Required: true},
		{Name: Marker, Type: "() -> ()", Required: true},
		{Name: Initialize, Type: "() -> ()"},
		{Name: Buffer, Type: "(i32) -> (i32)", Required: true},
		{Name: Configure, Type: call},
		{Name: Classify, Type: call, Decides: true},
		{Name: Route, Type: call, Decides: true},
	}
}

// Imports lists the functions of HostModule.
func Imports() []Function {
	const out = "(i32, i32, i32, i32) -> (i32)"
	return []Function{
		{Name: "log", Type: "(i32, i32, i32) -> ()"},
		{Name: "metric", Type: "(i32, f64) -> (i32)", Capability: CapMetric},
		{Name: "now_ms", Type: "() -> (i64)", Capability: CapNow},
		{Name: "tokens", Type: "(i32, i32) -> (i32)", Capability: CapTokens},
		{Name: "embed", Type: out, Capability: CapEmbed},
		{Name: "decide", Type: out, Capability: CapDecide},
		{Name: "text", Type: out, Capability: CapText},
		{Name: "kv_get", Type: out, Capability: CapKV},
		{Name: "kv_set", Type: "(i32, i32, i32, i32, i32) -> (i32)", Capability: CapKV},
		{Name: "kv_add", Type: "(i32, i32, i64, i32, i32) -> (i32)", Capability: CapKV},
		{Name: "asset", Type: "(i32, i32, i32, i32, i32) -> (i32)", Capability: CapAsset},
	}
}

// WASI lists the functions of WASIModule that are offered. They show no file, no environment, no real clock and no real
// randomness.
func WASI() []Function {
	const two, three, four = "(i32, i32) -> (i32)", "(i32, i32, i32) -> (i32)", "(i32, i32, i32, i32) -> (i32)"
	return []Function{
		{Name: "args_get", Type: two}, {Name: "args_sizes_get", Type: two},
		{Name: "environ_get", Type: two}, {Name: "environ_sizes_get", Type: two},
		{Name: "clock_res_get", Type: two}, {Name: "clock_time_get", Type: "(i32, i64, i32) -> (i32)"},
		{Name: "fd_close", Type: "(i32) -> (i32)"}, {Name: "fd_fdstat_get", Type: two},
		{Name: "fd_fdstat_set_flags", Type: two}, {Name: "fd_filestat_get", Type: two},
		{Name: "fd_prestat_get", Type: two}, {Name: "fd_prestat_dir_name", Type: three},
		{Name: "fd_read", Type: four}, {Name: "fd_write", Type: four}, {Name: "fd_seek", Type: "(i32, i64, i32, i32) -> (i32)"},
		{Name: "poll_oneoff", Type: four}, {Name: "proc_exit", Type: "(i32) -> ()"},
		{Name: "random_get", Type: two}, {Name: "sched_yield", Type: "() -> (i32)"},
	}
}

// Import finds an offered function.
func Import(module, name string) (Function, bool) {
	var list []Function
	switch module {
	case HostModule:
		list = Imports()
	case WASIModule:
		list = WASI()
	}
	for _, f := range list {
		if f.Name == name {
			f.Module = module
			return f, true
		}
	}
	return Function{}, false
}
