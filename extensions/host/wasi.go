package host

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/tetratelabs/wazero/api"
)

// Error numbers of WASI.
const (
	errnoOK       = 0
	errnoBadFile  = 8
	errnoFault    = 21
	errnoInvalid  = 28
	errnoNotPiped = 70 // a seek on what is no file
)

// Bounds of one call. More is invalid: a standard library does with less.
const (
	maxVectors = 1024     // of fd_write
	maxRandom  = 64 << 10 // bytes of random_get
	maxEvents  = 64       // of poll_oneoff
)

// wasi lists the functions of abi.WASIModule. They let the standard libraries of Go and Rust start and show them nothing.
func wasi() map[string]function {
	return map[string]function{
		"args_get": nothing, "environ_get": nothing, "sched_yield": nothing,
		"args_sizes_get": sizes, "environ_sizes_get": sizes,
		"clock_res_get": clockRes, "clock_time_get": clockTime, "random_get": randomGet, "poll_oneoff": poll,
		"fd_close": standard(errnoOK), "fd_fdstat_set_flags": standard(errnoOK), "fd_seek": standard(errnoNotPiped),
		"fd_prestat_get": noFile, "fd_prestat_dir_name": noFile,
		"fd_fdstat_get": fdStat, "fd_filestat_get": fileStat, "fd_read": fdRead, "fd_write": fdWrite, "proc_exit": procExit,
	}
}

func nothing(_ *scope, _ api.Module, a []uint64) { a[0] = errnoOK }

func noFile(_ *scope, _ api.Module, a []uint64) { a[0] = errnoBadFile }

// standard answers for the three open files; there are no others.
func standard(errno uint64) function {
	return func(_ *scope, _ api.Module, a []uint64) {
		if uint32(a[0]) > 2 {
			a[0] = errnoBadFile
			return
		}
		a[0] = errno
	}
}

// wrote answers whether all areas lay in memory.
func wrote(a []uint64, ok bool) {
	a[0] = errnoOK
	if !ok {
		a[0] = errnoFault
	}
}

func sizes(_ *scope, m api.Module, a []uint64) {
	wrote(a, put32(m, a[0], 0) && put32(m, a[1], 0))
}

// clocks are realtime and monotonic.
func isClock(id uint64) bool { return uint32(id) <= 1 }

func clockRes(_ *scope, m api.Module, a []uint64) {
	if !isClock(a[0]) {
		a[0] = errnoInvalid
		return
	}
	wrote(a, put64(m, a[1], 1_000_000))
}

func clockTime(s *scope, m api.Module, a []uint64) {
	if !isClock(a[0]) {
		a[0] = errnoInvalid
		return
	}
	v := s.now.UnixNano()
	if uint32(a[0]) == 1 {
		v = s.monotonic
	}
	wrote(a, put64(m, a[2], uint64(v)))
}

func randomGet(s *scope, m api.Module, a []uint64) {
	if uint32(a[1]) > maxRandom {
		a[0] = errnoInvalid
		return
	}
	b, ok := view(m, a[0], a[1])
	if ok {
		if s.random == nil {
			var seed [32]byte
			binary.LittleEndian.PutUint64(seed[:], s.call.Seed)
			s.random = rand.NewChaCha8(seed)
		}
		s.charge(m, len(b))
		s.random.Read(b) //nolint:errcheck // it never fails
	}
	wrote(a, ok)
}

// poll ends every wait at once: a sleep moves the monotonic clock on, a file is not there to wait for.
func poll(s *scope, m api.Module, a []uint64) {
	n := uint64(uint32(a[2]))
	if n == 0 || n > maxEvents {
		a[0] = errnoInvalid
		return
	}
	s.charge(m, priceItem*int(n))
	in, ok := view(m, a[0], 48*n)
	out, ok2 := view(m, a[1], 32*n)
	if !ok || !ok2 || !put32(m, a[3], uint32(n)) {
		a[0] = errnoFault
		return
	}
	var wait uint64
	events := make([]byte, 0, 32*n)
	for i := range n {
		sub := in[48*i:]
		event := make([]byte, 32)
		copy(event, sub[:8])
		if event[10] = sub[8]; sub[8] != 0 {
			event[8] = errnoBadFile
		} else if d := binary.LittleEndian.Uint64(sub[24:]); sub[40]&1 == 0 {
			wait = max(wait, min(d, 1<<50))
		} else if now := uint64(s.monotonic); d > now { // an absolute time
			wait = max(wait, min(d-now, 1<<50))
		}
		events = append(events, event...)
	}
	copy(out, events)
	if s.monotonic < 1<<62 {
		s.monotonic += int64(wait)
	}
	a[0] = errnoOK
}

func fdStat(_ *scope, m api.Module, a []uint64) {
	fd := uint32(a[0])
	if fd > 2 {
		a[0] = errnoBadFile
		return
	}
	b, ok := view(m, a[1], 24)
	if ok {
		clear(b)
		b[0] = 2      // a character device
		b[8] = 1 << 6 // it can be written
		if fd == 0 {
			b[8] = 1 << 1 // read
		}
	}
	wrote(a, ok)
}

func fileStat(_ *scope, m api.Module, a []uint64) {
	if uint32(a[0]) > 2 {
		a[0] = errnoBadFile
		return
	}
	b, ok := view(m, a[1], 64)
	if ok {
		clear(b)
		b[16] = 2
	}
	wrote(a, ok)
}

// fdRead is at the end of the empty input.
func fdRead(_ *scope, m api.Module, a []uint64) {
	if uint32(a[0]) != 0 {
		a[0] = errnoBadFile
		return
	}
	wrote(a, put32(m, a[3], 0))
}

func fdWrite(s *scope, m api.Module, a []uint64) {
	fd, n := uint32(a[0]), uint32(a[2])
	if fd != 1 && fd != 2 {
		a[0] = errnoBadFile
		return
	}
	if n > maxVectors {
		a[0] = errnoInvalid
		return
	}
	s.charge(m, priceItem*int(n))
	list, ok := view(m, a[1], 8*uint64(n))
	var parts [][]byte
	total := uint64(0)
	for i := uint32(0); i < n && ok; i++ {
		var b []byte
		b, ok = view(m, uint64(binary.LittleEndian.Uint32(list[8*i:])), uint64(binary.LittleEndian.Uint32(list[8*i+4:])))
		parts = append(parts, b)
		total += uint64(len(b))
	}
	if !ok || total > 1<<31 || !put32(m, a[3], uint32(total)) {
		a[0] = errnoFault
		return
	}
	for _, b := range parts {
		s.charge(m, len(b))
		s.write(uint64(fd), b)
	}
	a[0] = errnoOK
}

func procExit(s *scope, _ api.Module, a []uint64) {
	s.stop(CauseExit, "the guest ended itself with code %d", uint32(a[0]))
}
