package extensions_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/host"
)

// keyed runs f as a module's call for a tenant.
func (f *fixture) keyed(tenant string, do func(kv host.KV)) {
	f.t.Helper()
	in := input(fmt.Sprint(tenant, f.clock()))
	in.Tenant = tenant
	f.wait(time.Millisecond)
	f.t.Helper()
	current = do
	f.Decide(f.t.Context(), in)
}

var current func(kv host.KV)

// TestKeys: what a module stores is its tenant's alone, has an end, a quota, and outlives the box.
func TestKeys(t *testing.T) {
	f := open(t)
	ctx := t.Context()
	store := func(r abi.Request, c host.Call) (string, error) {
		if real(r) {
			current(c.Services.KV)
		}
		return "", nil
	}
	hash := f.add("m", store)
	f.activate("policy", hash)
	get := func(kv host.KV, key string) string {
		v, ok, err := kv.Get(ctx, key)
		if err != nil || !ok {
			return fmt.Sprint("none ", err)
		}
		return string(v)
	}
	f.keyed("anna", func(kv host.KV) {
		f.must(kv.Set(ctx, "x", []byte("1"), 0))
		f.must(kv.Set(ctx, "soon", []byte("2"), time.Minute))
		for _, want := range []int64{5, 10} {
			if n, err := kv.Add(ctx, "n", 5, 0); n != want || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		}
		if _, err := kv.Add(ctx, "x", 1, 0); !errors.Is(err, host.ErrNotNumber) {
			t.Error(err)
		}
	})
	f.keyed("bert", func(kv host.KV) {
		if got := get(kv, "x"); got != "none <nil>" {
			t.Errorf("bert sees %q", got)
		}
	})
	f.stop()
	f.start()
	f.wait(time.Minute)
	f.keyed("anna", func(kv host.KV) {
		if got := get(kv, "x"); got != "1" {
			t.Errorf("after a restart: %q", got)
		}
		if got := get(kv, "soon"); got != "none <nil>" {
			t.Errorf("what has expired is %q", got)
		}
		if n, err := kv.Add(ctx, "n", -3, 0); n != 7 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		var err error
		n := 0
		for ; err == nil && n < 2000; n++ {
			err = kv.Set(ctx, fmt.Sprint("key ", n), nil, 0)
		}
		if !errors.Is(err, host.ErrFull) || n != abi.MaxKeys-1 { // x and n are there, and the last one failed
			t.Errorf("%d keys went in, then %v", n, err)
		}
		f.must(kv.Set(ctx, "x", []byte("another"), 0)) // what is there may change
		if err := kv.Set(ctx, "x", make([]byte, abi.MaxStored), 0); !errors.Is(err, host.ErrFull) {
			t.Error(err)
		}
	})
	// what nobody can run any more is forgotten
	f.must(f.Unbind(ctx, anna, "policy"))
	f.must(f.Delete(ctx, anna, hash))
	f.stop()
}

// TestMetrics: a module counts under the names that it declares, and nothing breaks the sum.
func TestMetrics(t *testing.T) {
	f := open(t)
	f.activate("policy", f.add("m", func(r abi.Request, c host.Call) (string, error) {
		if real(r) {
			for _, v := range []float64{1, 2.5, -7, 1e300} {
				c.Services.Metric("hits", v)
			}
		}
		return "", nil
	}))
	f.ask("a")
	if got := fmt.Sprint(f.Counters()); got != "[{m hits 3.5}]" {
		t.Error(got)
	}
}

// TestLogs: what a module says is in the box's log as a text of its own; what was asked is not.
func TestLogs(t *testing.T) {
	f := open(t)
	f.activate("policy", f.add("m", failing(host.CauseTrap)))
	f.runner.lines = []host.Line{{Level: abi.Error, Text: "odd\nlevel=ERROR msg=forged"}}
	f.ask("a secret")
	f.mu.Lock()
	defer f.mu.Unlock()
	log := f.log.String()
	if strings.Contains(log, "secret") || !strings.Contains(log, `level=WARN msg="a module says"`) || strings.Contains(log, "\nlevel=ERROR msg=forged") {
		t.Error(log)
	}
}
