package host_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/host"
)

// FuzzFunctions: whatever a guest hands to a function of the host, the host stands, and the next call finds the guest as
// it was.
func FuzzFunctions(f *testing.F) {
	var all []*host.Instance
	for _, list := range []struct {
		module string
		f      []abi.Function
	}{{abi.HostModule, abi.Imports()}, {abi.WASIModule, abi.WASI()}} {
		for _, fn := range list.f {
			fn.Module = list.module
			c := config(f, probe(fn, 2), grants(fn)...)
			c.Limits.Deadline = time.Second
			all = append(all, instance(f, compile(f, c), host.Setup{}))
		}
	}
	f.Add(uint8(4), uint64(bufferAt+40), uint64(3), uint64(probeOut), uint64(8), uint64(0), []byte("abc"))
	f.Add(uint8(5), uint64(bufferAt+40), uint64(20), uint64(probeOut), uint64(900), uint64(0), []byte(`{"criteria":{"a":""}}`))
	f.Add(uint8(9), uint64(bufferAt+40), uint64(1), uint64(1)<<63, uint64(1), uint64(probeOut), []byte("k"))
	f.Add(uint8(24), uint64(1), uint64(bufferAt+40), uint64(1), uint64(probeOut), uint64(0), []byte(vector(pageEnd-1, 1)))
	f.Add(uint8(26), uint64(bufferAt+40), uint64(probeOut), uint64(2), uint64(8), uint64(0), []byte(subscription(1, 1, 1<<63, 1)+words(2, 2, 9, 9, 9, 9)))
	f.Fuzz(func(t *testing.T, which uint8, a, b, c, d, e uint64, data []byte) {
		if len(data) > 4000 {
			return
		}
		i := all[int(which)%len(all)]
		call := host.Call{Function: abi.Route, Request: arguments([]uint64{a, b, c, d, e}, string(data)), Services: services(), Seed: 1,
			Text: func(abi.Part) string { return "some text" }}
		var last host.Result
		for n := range 2 { // a store of its own each time, so both calls are the same
			call.Services.KV = host.NewKeys(func() time.Time { return time.Unix(1, 0) })
			r, err := i.Call(t.Context(), call)
			if e, ok := errors.AsType[*host.CallError](err); err != nil && (!ok || e.Cause != host.CauseExit) {
				t.Fatal(err)
			}
			if n > 0 && (!slices.Equal(r.Answer, last.Answer) || r.Units != last.Units || !slices.Equal(r.Log, last.Log)) {
				t.Fatalf("%+v, then %+v", last, r)
			}
			last = r
		}
	})
}
