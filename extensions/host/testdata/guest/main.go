// Command guest is a guest that the Go toolchain makes, with the parts of the standard library that touch the host: the
// tests build it for wasip1 as a C shared library.
package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"time"
	"unsafe"
)

func main() {}

var (
	buffer  []byte
	config  map[string]any
	calls   int
	results []byte
)

//go:wasmexport laya_abi_v1
func marker() {}

//go:wasmexport laya_buffer
func reserve(n uint32) unsafe.Pointer {
	buffer = make([]byte, n+1)
	return unsafe.Pointer(&buffer[0])
}

func answer(v any) uint64 {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	results = b
	return uint64(uintptr(unsafe.Pointer(&b[0])))<<32 | uint64(len(b))
}

//go:wasmexport laya_configure
func configure(_ unsafe.Pointer, n uint32) uint64 {
	if err := json.Unmarshal(buffer[:n], &config); err != nil {
		return answer(err.Error())
	}
	return 0
}

//go:wasmexport laya_route
func route(_ unsafe.Pointer, n uint32) uint64 {
	var r struct {
		Head string `json:"head"`
	}
	if err := json.Unmarshal(buffer[:n], &r); err != nil {
		panic(err)
	}
	calls++
	switch r.Head {
	case "panic":
		panic("as asked")
	case "exit":
		os.Exit(3)
	case "loop":
		for n := 0; ; n++ {
			calls += n
		}
	case "sleep":
		time.Sleep(time.Hour)
	case "garbage":
		for range 100 {
			results = append(results, strings.Repeat("x", 10_000)...)
		}
		runtime.GC()
	}
	fmt.Println("calls:", calls)
	println("and to the error output")
	started := time.Now()
	return answer(map[string]any{
		"calls": calls, "config": config, "words": len(strings.Fields(r.Head)), "args": len(os.Args), "env": len(os.Environ()),
		"now": started.Unix(), "took": time.Since(started), "random": rand.Uint64(),
	})
}
