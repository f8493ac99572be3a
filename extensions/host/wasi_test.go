package host_test

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onebit/extensions/abi"
	"onebit/extensions/host"
	. "onebit/extensions/wasm/wasmtest"
)

func words(v ...uint64) string {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	return string(b)
}

// vector is one iovec.
func vector(at, n uint64) string { return words(n<<32 | at) }

// subscription is one wait of poll_oneoff for a clock.
func subscription(user, clock, timeout, flags uint64) string {
	return words(user, 0, clock, timeout, 0, flags)
}

// TestWASI asks each function that is offered: it shows nothing, and answers an errno where there is nothing.
func TestWASI(t *testing.T) {
	const ok, badf, fault, invalid, spipe = 0, 8, 21, 28, 70
	still := uint64(1_600_000_000_000_000_000)
	tests := []struct {
		name, f string
		args    []uint64
		data    string
		errno   int64
		out     string
	}{
		{"arguments", "args_get", []uint64{probeOut, probeOut}, "", ok, ""},
		{"arguments' sizes", "args_sizes_get", []uint64{probeOut, probeOut + 4}, "", ok, ""},
		{"arguments' sizes, outside", "args_sizes_get", []uint64{probeOut, pageEnd - 3}, "", fault, ""},
		{"environment", "environ_get", []uint64{probeOut, probeOut}, "", ok, ""},
		{"environment's sizes", "environ_sizes_get", []uint64{probeOut, probeOut + 4}, "", ok, ""},
		{"environment's sizes, outside", "environ_sizes_get", []uint64{pageEnd, probeOut}, "", fault, ""},
		{"resolution", "clock_res_get", []uint64{0, probeOut}, "", ok, words(1_000_000)},
		{"resolution, unknown", "clock_res_get", []uint64{2, probeOut}, "", invalid, ""},
		{"resolution, outside", "clock_res_get", []uint64{1, pageEnd - 7}, "", fault, ""},
		{"clock", "clock_time_get", []uint64{0, 1, probeOut}, "", ok, words(still)},
		{"clock, monotonic", "clock_time_get", []uint64{1, 1, probeOut}, "", ok, words(still)},
		{"clock, processor", "clock_time_get", []uint64{3, 1, probeOut}, "", invalid, ""},
		{"clock, outside", "clock_time_get", []uint64{0, 1, pageEnd - 7}, "", fault, ""},
		{"close", "fd_close", []uint64{1}, "", ok, ""},
		{"close, no file", "fd_close", []uint64{3}, "", badf, ""},
		{"stat of input", "fd_fdstat_get", []uint64{0, probeOut}, "", ok, "\x02\x00\x00\x00\x00\x00\x00\x00\x02"},
		{"stat of output", "fd_fdstat_get", []uint64{1, probeOut}, "", ok, "\x02\x00\x00\x00\x00\x00\x00\x00\x40"},
		{"stat, no file", "fd_fdstat_get", []uint64{3, probeOut}, "", badf, ""},
		{"stat, outside", "fd_fdstat_get", []uint64{2, pageEnd - 23}, "", fault, ""},
		{"flags", "fd_fdstat_set_flags", []uint64{2, 4}, "", ok, ""},
		{"flags, no file", "fd_fdstat_set_flags", []uint64{1 << 31, 4}, "", badf, ""},
		{"file stat", "fd_filestat_get", []uint64{1, probeOut}, "", ok, strings.Repeat("\x00", 16) + "\x02"},
		{"file stat, no file", "fd_filestat_get", []uint64{3, probeOut}, "", badf, ""},
		{"file stat, outside", "fd_filestat_get", []uint64{1, pageEnd - 63}, "", fault, ""},
		{"directory", "fd_prestat_get", []uint64{3, probeOut}, "", badf, ""},
		{"directory's name", "fd_prestat_dir_name", []uint64{3, probeOut, 1}, "", badf, ""},
		{"read", "fd_read", []uint64{0, dataAt(4), 1, probeOut}, vector(probeOut, 100), ok, ""},
		{"read, no file", "fd_read", []uint64{4, dataAt(4), 1, probeOut}, "", badf, ""},
		{"read, outside", "fd_read", []uint64{0, dataAt(4), 1, pageEnd - 3}, "", fault, ""},
		{"write, no file", "fd_write", []uint64{0, dataAt(4), 1, probeOut}, vector(0, 1), badf, ""},
		{"write, vectors outside", "fd_write", []uint64{1, pageEnd - 7, 1, probeOut}, "", fault, ""},
		{"write, bytes outside", "fd_write", []uint64{1, dataAt(4), 1, probeOut}, vector(pageEnd-1, 2), fault, ""},
		{"write, result outside", "fd_write", []uint64{1, dataAt(4), 1, pageEnd}, vector(0, 1), fault, ""},
		{"write, many", "fd_write", []uint64{1, dataAt(4), 1 << 30, probeOut}, "", invalid, ""},
		{"seek", "fd_seek", []uint64{1, 0, 0, probeOut}, "", spipe, ""},
		{"seek, no file", "fd_seek", []uint64{3, 0, 0, probeOut}, "", badf, ""},
		{"sleep", "poll_oneoff", []uint64{dataAt(4), probeOut, 1, 8}, subscription(7, 0, 3_600_000_000_000, 0), ok, "\x07"},
		{"wait for a file", "poll_oneoff", []uint64{dataAt(4), probeOut, 1, 8}, words(7, 1, 1), ok, words(7, 1<<16|8)},
		{"wait for nothing", "poll_oneoff", []uint64{dataAt(4), probeOut, 0, 8}, "", invalid, ""},
		{"wait for much", "poll_oneoff", []uint64{dataAt(4), probeOut, 65, 8}, "", invalid, ""},
		{"wait, in outside", "poll_oneoff", []uint64{pageEnd - 47, probeOut, 1, 8}, "", fault, ""},
		{"wait, out outside", "poll_oneoff", []uint64{dataAt(4), pageEnd - 31, 1, 8}, "", fault, ""},
		{"random, outside", "random_get", []uint64{pageEnd - 1, 2}, "", fault, ""},
		{"random, much", "random_get", []uint64{0, 1 << 30}, "", invalid, ""},
		{"yield", "sched_yield", nil, "", ok, ""},
	}
	covered := map[string]bool{"proc_exit": true} // below
	for _, tt := range tests {
		covered[tt.f] = true
		t.Run(tt.name, func(t *testing.T) {
			errno, out, r := ask(t, function(t, abi.WASIModule, tt.f), tt.args, tt.data, host.Call{})
			if errno != tt.errno || !begins(out, tt.out) {
				t.Errorf("answers %d, writes %q; want %d, %q", errno, out[:64], tt.errno, tt.out)
			}
			if r.HostCalls != 0 || r.Log != nil {
				t.Errorf("%d calls counted, log %v", r.HostCalls, r.Log)
			}
		})
	}
	for _, f := range abi.WASI() {
		if !covered[f.Name] {
			t.Errorf("%s is not tried", f.Name)
		}
	}
}

// TestClock: the time is the service's with a grant alone, and stands still in a call; a sleep moves the monotonic clock.
func TestClock(t *testing.T) {
	now := time.Unix(1_700_000_000, 5)
	tick := func() time.Time { now = now.Add(time.Hour); return now }
	m := &Module{}
	clock := m.Import(abi.WASIModule, "clock_time_get", "ili", "i")
	poll := m.Import(abi.WASIModule, "poll_oneoff", "iiii", "i")
	guest(m).Func(abi.Route, "ii", "l", "",
		I32(0), I64(1), I32(answerAt), Call(clock), Op(0x1a),
		Get(0), I32(2048), I32(1), I32(2040), Call(poll), Op(0x1a),
		I32(0), I64(1), I32(answerAt+8), Call(clock), Op(0x1a),
		I32(1), I64(1), I32(answerAt+16), Call(clock), Op(0x1a), packed(answerAt, 24))
	for _, granted := range []bool{true, false} {
		var caps []abi.Capability
		if granted {
			caps = []abi.Capability{abi.CapNow}
		}
		i := instance(t, compile(t, config(t, m.Bytes(), caps...)), host.Setup{})
		for range 2 {
			c := host.Call{Function: abi.Route, Request: []byte(subscription(0, 1, 1000, 0)), Services: host.Services{Now: tick}}
			r, err := i.Call(t.Context(), c)
			want := uint64(1_600_000_000_000_000_000)
			if granted {
				want = uint64(now.UnixNano())
			}
			if err != nil || string(r.Answer) != words(want, want, want+1000) {
				t.Errorf("granted %v: %q, %v", granted, r.Answer, err)
			}
		}
	}
}

// TestRandom: bytes follow the seed, and nothing else.
func TestRandom(t *testing.T) {
	i := instance(t, compile(t, config(t, probe(function(t, abi.WASIModule, "random_get"), 1))), host.Setup{})
	bytes := func(seed uint64) string {
		errno, out, _ := asked(t, i, arguments([]uint64{probeOut, 32}, ""), host.Call{Seed: seed})
		if errno != 0 || begins(out[:32], "") {
			t.Errorf("errno %d, %x", errno, out[:32])
		}
		return string(out[:32])
	}
	if a, b, c := bytes(1), bytes(2), bytes(1); a != c || a == b {
		t.Errorf("%x, %x, %x", a, b, c)
	}
}

// TestOutput: what a standard library prints becomes lines of the debug log, put together from its pieces.
func TestOutput(t *testing.T) {
	f := function(t, abi.WASIModule, "fd_write")
	at := dataAt(4) + 24
	data := vector(at, 6) + vector(at, 4) + vector(at+6, 3) + "one\ntwo\xff!" // one LF tw | one LF | o ? !
	m := config(t, probe(f, 2))
	i := instance(t, compile(t, m), host.Setup{})
	errno, out, r := asked(t, i, arguments([]uint64{2, dataAt(4), 3, probeOut}, data), host.Call{})
	if errno != 0 || out[0] != 13 {
		t.Errorf("errno %d, %d bytes", errno, out[0])
	}
	var got []string
	for _, l := range r.Log {
		if l.Level != abi.Debug {
			t.Errorf("level %d", l.Level)
		}
		got = append(got, l.Text)
	}
	if diff := cmp.Diff([]string{"one", "twone", "o?!one", "twone", "o?!"}, got); diff != "" {
		t.Error(diff)
	}
	long := strings.Repeat("z", 8000)
	_, _, r = asked(t, i, arguments([]uint64{1, dataAt(4), 1, probeOut}, vector(dataAt(4)+8, 8000)+long), host.Call{})
	if len(r.Log) != 1 || r.Log[0].Text != long[:abi.MaxLog] {
		t.Errorf("%d lines", len(r.Log))
	}
}

func TestExit(t *testing.T) {
	i := instance(t, compile(t, config(t, probe(function(t, abi.WASIModule, "proc_exit"), 1))), host.Setup{})
	for range 3 {
		r, err := i.Call(t.Context(), host.Call{Function: abi.Route, Request: arguments([]uint64{7}, "")})
		failure(t, err, host.CauseExit)
		if !strings.Contains(err.Error(), "code 7") || r.Answer != nil || r.Units <= 0 {
			t.Errorf("%v, %+v", err, r)
		}
	}
}
