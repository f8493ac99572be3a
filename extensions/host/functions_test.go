package host_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onebit/extensions/abi"
	"onebit/extensions/host"
	. "onebit/extensions/wasm/wasmtest"
)

func floats(v ...float32) string {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return string(b)
}

var errDown = errors.New("the backend is down")

// services answers everything.
func services() host.Services {
	return host.Services{
		Now:    func() time.Time { return time.UnixMilli(1_700_000_000_123) },
		Tokens: func(_ context.Context, text string) (int, error) { return len(strings.Fields(text)), nil },
		Embed:  func(_ context.Context, text string) ([]float32, error) { return []float32{float32(len(text)), -1}, nil },
		Decide: func(_ context.Context, text string, c map[string]string) (string, float64, map[string]float64, error) {
			return slices.Sorted(maps.Keys(c))[0] + text, 0.5, map[string]float64{"a": 1}, nil
		},
		KV:     host.NewKeys(time.Now),
		Metric: func(string, float64) {},
	}
}

// down answers nothing.
func down() host.Services {
	return host.Services{
		Tokens: func(context.Context, string) (int, error) { return 0, errDown },
		Embed:  func(context.Context, string) ([]float32, error) { return nil, errDown },
		Decide: func(context.Context, string, map[string]string) (string, float64, map[string]float64, error) {
			return "", 0, nil, errDown
		},
		KV: broken{},
	}
}

// broken is a store that fails.
type broken struct{}

func (broken) Get(context.Context, string) ([]byte, bool, error) { return nil, false, errDown }
func (broken) Set(context.Context, string, []byte, time.Duration) error {
	return errDown
}
func (broken) Add(context.Context, string, int64, time.Duration) (int64, error) { return 0, errDown }

// TestFunctions asks each function of the host: what it answers, what it writes, and each of its codes.
func TestFunctions(t *testing.T) {
	const invalid, missing, unavailable, denied = int64(abi.Invalid), int64(abi.Missing), int64(abi.Unavailable), int64(abi.Denied)
	d2, d4, d5 := dataAt(2), dataAt(4), dataAt(5)
	const question = `{"text":"t","criteria":{"b":"one","a":"two"}}`
	const decided = `{"choice":"at","confidence":0.5,"scores":{"a":1}}`
	text := func(p abi.Part) string { return fmt.Sprint("part ", p) }
	tests := []struct {
		name, f string
		args    []uint64
		data    string
		s       host.Services
		code    int64
		out     string
	}{
		{"metric", "metric", []uint64{0, math.Float64bits(1.5)}, "", services(), 0, ""},
		{"metric, unknown", "metric", []uint64{1, 0}, "", services(), invalid, ""},
		{"metric, far", "metric", []uint64{math.MaxUint32, 0}, "", services(), invalid, ""},
		{"metric, NaN", "metric", []uint64{0, math.Float64bits(math.NaN())}, "", services(), invalid, ""},
		{"metric, infinite", "metric", []uint64{0, math.Float64bits(math.Inf(-1))}, "", services(), invalid, ""},
		{"metric, nobody", "metric", []uint64{0, 0}, "", host.Services{}, unavailable, ""},
		{"now", "now_ms", nil, "", services(), 1_700_000_000_123, ""},
		{"now, nobody", "now_ms", nil, "", host.Services{}, unavailable, ""},
		{"tokens", "tokens", []uint64{d2, 8}, "one two ", services(), 2, ""},
		{"tokens, none", "tokens", []uint64{d2, 0}, "", services(), 0, ""},
		{"tokens, end of memory", "tokens", []uint64{pageEnd - 2, 2}, "", services(), 1, ""},
		{"tokens, over the end", "tokens", []uint64{pageEnd - 1, 2}, "", services(), invalid, ""},
		{"tokens, far", "tokens", []uint64{math.MaxUint32, 1}, "", services(), invalid, ""},
		{"tokens, wrapped", "tokens", []uint64{math.MaxUint32 - 1, 4}, "", services(), invalid, ""},
		{"tokens, long", "tokens", []uint64{0, math.MaxUint32}, "", services(), invalid, ""},
		{"tokens, not UTF-8", "tokens", []uint64{d2, 1}, "\xff", services(), invalid, ""},
		{"tokens, nobody", "tokens", []uint64{d2, 1}, "x", host.Services{}, unavailable, ""},
		{"tokens, down", "tokens", []uint64{d2, 1}, "x", down(), unavailable, ""},
		{"embed", "embed", []uint64{d4, 3, probeOut, 8}, "abc", services(), 2, floats(3, -1)},
		{"embed, no room", "embed", []uint64{d4, 3, probeOut, 7}, "abc", services(), 2, ""},
		{"embed, out", "embed", []uint64{d4, 3, pageEnd - 4, 8}, "abc", services(), invalid, ""},
		{"embed, in", "embed", []uint64{pageEnd, 1, probeOut, 8}, "abc", services(), invalid, ""},
		{"embed, nobody", "embed", []uint64{d4, 3, probeOut, 8}, "abc", host.Services{}, unavailable, ""},
		{"embed, down", "embed", []uint64{d4, 3, probeOut, 8}, "abc", down(), unavailable, ""},
		{"decide", "decide", []uint64{d4, uint64(len(question)), probeOut, 100}, question, services(), int64(len(decided)), decided},
		{"decide, no room", "decide", []uint64{d4, uint64(len(question)), probeOut, 10}, question, services(), int64(len(decided)), ""},
		{"decide, not JSON", "decide", []uint64{d4, 4, probeOut, 100}, "text", services(), invalid, ""},
		{"decide, no criteria", "decide", []uint64{d4, 12, probeOut, 100}, `{"text":"t"}`, services(), invalid, ""},
		{"decide, out", "decide", []uint64{d4, uint64(len(question)), pageEnd - 99, 100}, question, services(), invalid, ""},
		{"decide, nobody", "decide", []uint64{d4, uint64(len(question)), probeOut, 100}, question, host.Services{}, unavailable, ""},
		{"decide, down", "decide", []uint64{d4, uint64(len(question)), probeOut, 100}, question, down(), unavailable, ""},
		{"text, user", "text", []uint64{0, 0, probeOut, 100}, "", services(), 6, "part 0"},
		{"text, system", "text", []uint64{1, 0, probeOut, 100}, "", services(), 6, "part 1"},
		{"text, all", "text", []uint64{2, 2, probeOut, 3}, "", services(), 3, "rt "},
		{"text, end", "text", []uint64{0, 6, probeOut, 100}, "", services(), 0, ""},
		{"text, behind the end", "text", []uint64{0, math.MaxUint32, probeOut, 100}, "", services(), 0, ""},
		{"text, no part", "text", []uint64{3, 0, probeOut, 100}, "", services(), invalid, ""},
		{"text, no part below", "text", []uint64{math.MaxUint32, 0, probeOut, 100}, "", services(), invalid, ""},
		{"text, out", "text", []uint64{0, 0, pageEnd - 1, 2}, "", services(), invalid, ""},
		{"kv_get, missing", "kv_get", []uint64{d4, 1, probeOut, 8}, "k", services(), missing, ""},
		{"kv_get, no key", "kv_get", []uint64{d4, 0, probeOut, 8}, "", services(), invalid, ""},
		{"kv_get, key", "kv_get", []uint64{pageEnd, 1, probeOut, 8}, "", services(), invalid, ""},
		{"kv_get, key not UTF-8", "kv_get", []uint64{d4, 1, probeOut, 8}, "\xfe", services(), invalid, ""},
		{"kv_get, out", "kv_get", []uint64{d4, 1, probeOut, pageEnd}, "k", services(), invalid, ""},
		{"kv_get, nobody", "kv_get", []uint64{d4, 1, probeOut, 8}, "k", host.Services{}, unavailable, ""},
		{"kv_get, down", "kv_get", []uint64{d4, 1, probeOut, 8}, "k", down(), unavailable, ""},
		{"kv_set", "kv_set", []uint64{d5, 1, d5 + 1, 2, 0}, "kvv", services(), 0, ""},
		{"kv_set, value", "kv_set", []uint64{d5, 1, pageEnd, 1, 0}, "k", services(), invalid, ""},
		{"kv_set, time below zero", "kv_set", []uint64{d5, 1, d5, 1, math.MaxUint32}, "k", services(), invalid, ""},
		{"kv_set, down", "kv_set", []uint64{d5, 1, d5, 1, 0}, "k", down(), unavailable, ""},
		{"kv_add", "kv_add", []uint64{d5, 1, math.MaxUint64 - 1, 0, probeOut}, "k", services(), 0, "\xfe\xff\xff\xff\xff\xff\xff\xff"},
		{"kv_add, out", "kv_add", []uint64{d5, 1, 1, 0, pageEnd - 7}, "k", services(), invalid, ""},
		{"kv_add, time", "kv_add", []uint64{d5, 1, 1, math.MaxUint32, probeOut}, "k", services(), invalid, ""},
		{"kv_add, down", "kv_add", []uint64{d5, 1, 1, 0, probeOut}, "k", down(), unavailable, ""},
		{"asset, too late", "asset", []uint64{d5, 1, 0, probeOut, 8}, "a", services(), denied, ""},
		{"asset, name", "asset", []uint64{pageEnd, 1, 0, probeOut, 8}, "a", services(), invalid, ""},
		{"asset, out", "asset", []uint64{d5, 1, 0, pageEnd, 1}, "a", services(), invalid, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, out, r := ask(t, function(t, abi.HostModule, tt.f), tt.args, tt.data, host.Call{Services: tt.s, Text: text})
			if code != tt.code || !begins(out, tt.out) {
				t.Errorf("answers %d, writes %q; want %d, %q", code, out[:64], tt.code, tt.out)
			}
			if r.HostCalls != 1 {
				t.Errorf("%d calls were counted", r.HostCalls)
			}
		})
	}
	if code, _, _ := ask(t, function(t, abi.HostModule, "text"), []uint64{0, 0, probeOut, 1}, "", host.Call{}); code != unavailable {
		t.Errorf("text without anybody to give it: %d", code)
	}
}

// TestMetric: names come from the manifest.
func TestMetric(t *testing.T) {
	got := map[string]float64{}
	s := host.Services{Metric: func(name string, v float64) { got[name] += v }}
	i := instance(t, compile(t, config(t, probe(function(t, abi.HostModule, "metric"), 3), abi.CapMetric)), host.Setup{})
	asked(t, i, arguments([]uint64{0, math.Float64bits(1.5)}, ""), host.Call{Services: s})
	if diff := cmp.Diff(map[string]float64{"hits": 4.5}, got); diff != "" {
		t.Error(diff)
	}
}

// TestLog: lines, levels, the quota of bytes, and pointers outside of memory.
func TestLog(t *testing.T) {
	f := function(t, abi.HostModule, "log")
	long := strings.Repeat("x", abi.MaxLog+10)
	tests := []struct {
		name string
		args []uint64
		data string
		want []host.Line
	}{
		{"debug", []uint64{0, dataAt(3), 5}, "hello", []host.Line{{Level: abi.Debug, Text: "hello"}}},
		{"error", []uint64{3, dataAt(3), 2}, "é", []host.Line{{Level: abi.Error, Text: "é"}}},
		{"level above", []uint64{9, dataAt(3), 1}, "x", []host.Line{{Level: abi.Error, Text: "x"}}},
		{"level below", []uint64{math.MaxUint32, dataAt(3), 1}, "x", []host.Line{{Level: abi.Debug, Text: "x"}}},
		{"not UTF-8", []uint64{1, dataAt(3), 3}, "a\xffb", []host.Line{{Level: abi.Info, Text: "a?b"}}},
		{"empty", []uint64{1, dataAt(3), 0}, "", []host.Line{{Level: abi.Info}}},
		{"too long", []uint64{1, dataAt(3), uint64(len(long))}, long, []host.Line{{Level: abi.Info, Text: long[:abi.MaxLog]}}},
		{"outside", []uint64{1, pageEnd - 1, 2}, "", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, r := ask(t, f, tt.args, tt.data, host.Call{})
			if diff := cmp.Diff(tt.want, r.Log); diff != "" {
				t.Error(diff)
			}
		})
	}
	i := instance(t, compile(t, config(t, probe(f, 50))), host.Setup{})
	_, _, r := asked(t, i, arguments([]uint64{1, dataAt(3), 100}, strings.Repeat("y", 100)), host.Call{})
	total := 0
	for _, l := range r.Log {
		total += len(l.Text)
	}
	if total != abi.MaxLog || len(r.Log) != 41 {
		t.Errorf("%d bytes in %d lines were kept", total, len(r.Log))
	}
}

// TestHostCallQuota: the 65th call of a call is answered by "full" and not done.
func TestHostCallQuota(t *testing.T) {
	f := function(t, abi.HostModule, "kv_add")
	for times, want := range map[int]int64{abi.MaxHostCalls: 0, abi.MaxHostCalls + 1: int64(abi.Full)} {
		i := instance(t, compile(t, config(t, probe(f, times), abi.CapKV)), host.Setup{})
		for range 2 {
			kv := host.NewKeys(time.Now)
			code, out, r := asked(t, i, arguments([]uint64{dataAt(5), 1, 1, 0, probeOut}, "k"), host.Call{Services: host.Services{KV: kv}})
			sum, err := kv.Add(t.Context(), "k", 0, 0)
			if code != want || err != nil || sum != abi.MaxHostCalls || out[0] != abi.MaxHostCalls || r.HostCalls != times {
				t.Errorf("%d calls: %d, sum %d, %v", times, code, sum, err)
			}
		}
	}
}

// TestAskOnce: embed and decide may be called once in a call, together; the next call may again.
func TestAskOnce(t *testing.T) {
	n := 0
	s := host.Services{Embed: func(context.Context, string) ([]float32, error) { n++; return []float32{1}, nil }}
	i := instance(t, compile(t, config(t, probe(function(t, abi.HostModule, "embed"), 2), abi.CapEmbed)), host.Setup{})
	for k := 1; k < 4; k++ {
		code, _, _ := asked(t, i, arguments([]uint64{dataAt(4), 1, probeOut, 8}, "a"), host.Call{Services: s})
		if code != int64(abi.Denied) || n != k {
			t.Errorf("call %d: %d, embed was asked %d times", k, code, n)
		}
	}
}

// TestAskHasOwnDeadline: a question to a model does not use up the guest's time, and has a limit of its own.
func TestAskHasOwnDeadline(t *testing.T) {
	s := host.Services{Embed: func(ctx context.Context, _ string) ([]float32, error) {
		d, ok := ctx.Deadline()
		if !ok || time.Until(d) > host.AskTimeout {
			t.Errorf("the deadline is %v, %v", d, ok)
		}
		<-time.After(600 * time.Millisecond) // longer than the guest may take in all
		return []float32{1}, nil
	}}
	m := &Module{}
	embed := m.Import(abi.HostModule, "embed", "iiii", "i")
	yield := m.Import(abi.WASIModule, "sched_yield", "", "i")
	guest(m).Func(abi.Route, "ii", "l", "", Get(0), I32(1), I32(probeOut), I32(8), Call(embed), Op(0x1a), Call(yield), Op(0x1a), packed(probeOut, 4))
	c := config(t, m.Bytes(), abi.CapEmbed)
	c.Limits.Deadline = 500 * time.Millisecond
	i := instance(t, compile(t, c), host.Setup{})
	r, err := i.Call(t.Context(), host.Call{Function: abi.Route, Request: []byte("x"), Services: s})
	if err != nil || string(r.Answer) != floats(1) {
		t.Errorf("%q, %v", r.Answer, err)
	}
}

// TestTextIsAskedOnce: the prompt is fetched when the guest wants it, and once.
func TestTextIsAskedOnce(t *testing.T) {
	n := 0
	text := func(abi.Part) string { n++; return strings.Repeat("é", 300) }
	m := &Module{}
	f := m.Import(abi.HostModule, "text", "iiii", "i")
	guest(m).Func(abi.Route, "ii", "l", "i", // reads by pieces of 7 bytes while it may
		Loop(I32(0), Get(2), I32(answerAt), Get(2), Op(0x6a), I32(7), Call(f), Set(0),
			Block(Get(0), I32(0), Op(0x4c, 0x0d, 0), Get(2), Get(0), Op(0x6a), Set(2), Op(0x0c, 1))),
		I64(answerAt<<32), Get(2), Op(0xad, 0x84))
	i := instance(t, compile(t, config(t, m.Bytes(), abi.CapText)), host.Setup{})
	r, err := i.Call(t.Context(), host.Call{Function: abi.Route, Text: text})
	want := strings.Repeat("é", 300)
	if err != nil || n != 1 || !strings.HasPrefix(want, string(r.Answer)) || len(r.Answer) != abi.MaxHostCalls*7 {
		t.Errorf("read %d bytes by %d calls, asked %d times, %v", len(r.Answer), r.HostCalls, n, err)
	}
}

// TestKeys walks one store through its quotas and times to live.
func TestKeys(t *testing.T) {
	now := time.Unix(1000, 0)
	k := host.NewKeys(func() time.Time { return now })
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	get := func(key string) string {
		v, ok, err := k.Get(ctx, key)
		must(err)
		if !ok {
			return "-"
		}
		return string(v)
	}
	must(k.Set(ctx, "a", []byte("1"), 10*time.Second))
	must(k.Set(ctx, "b", []byte("2"), 0))
	if _, err := k.Add(ctx, "a", 1, 0); !errors.Is(err, host.ErrNotNumber) {
		t.Errorf("adding to a text: %v", err)
	}
	for want := int64(5); want < 20; want += 5 {
		if sum, err := k.Add(ctx, "n", 5, 10*time.Second); err != nil || sum != want {
			t.Errorf("sum %d, %v", sum, err)
		}
		now = now.Add(3 * time.Second)
	}
	if get("a") != "1" || get("b") != "2" || get("n") != "\x0f\x00\x00\x00\x00\x00\x00\x00" {
		t.Error("values are gone")
	}
	now = now.Add(time.Second) // 10 s after the first
	if get("a") != "-" || get("b") != "2" || get("n") != "-" {
		t.Error("values outlived their time")
	}
	for i := range abi.MaxKeys - 1 {
		must(k.Set(ctx, fmt.Sprint("k", i), nil, time.Second))
	}
	if err := k.Set(ctx, "more", nil, 0); !errors.Is(err, host.ErrFull) {
		t.Errorf("a key too many: %v", err)
	}
	must(k.Set(ctx, "k0", []byte("other"), time.Second))
	now = now.Add(time.Second)
	must(k.Set(ctx, "more", make([]byte, abi.MaxStored-4-2), 0))
	if err := k.Set(ctx, "x", nil, 0); !errors.Is(err, host.ErrFull) {
		t.Errorf("a byte too many: %v", err)
	}
	must(k.Set(ctx, "more", nil, 0))
	must(k.Set(ctx, "x", nil, 0))
}

// TestKVThroughCalls: what one call stores the next one finds; too much is "full", a wrong value "invalid".
func TestKVThroughCalls(t *testing.T) {
	kv := host.NewKeys(time.Now)
	c := host.Call{Services: host.Services{KV: kv}}
	set, get, add := function(t, abi.HostModule, "kv_set"), function(t, abi.HostModule, "kv_get"), function(t, abi.HostModule, "kv_add")
	if code, _, _ := ask(t, set, []uint64{dataAt(5), 1, dataAt(5) + 1, 3, 60}, "kval", c); code != 0 {
		t.Fatalf("kv_set: %d", code)
	}
	if code, out, _ := ask(t, get, []uint64{dataAt(4), 1, probeOut, 3}, "k", c); code != 3 || !begins(out, "val") {
		t.Errorf("kv_get: %d, %q", code, out[:8])
	}
	if code, out, _ := ask(t, get, []uint64{dataAt(4), 1, probeOut, 2}, "k", c); code != 3 || !begins(out, "") {
		t.Errorf("kv_get without room: %d, %q", code, out[:8])
	}
	if code, _, _ := ask(t, add, []uint64{dataAt(5), 1, 1, 0, probeOut}, "k", c); code != int64(abi.Invalid) {
		t.Errorf("kv_add to a text: %d", code)
	}
	for i := range abi.MaxKeys - 1 {
		if err := kv.Set(t.Context(), fmt.Sprint(i), nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	if code, _, _ := ask(t, set, []uint64{dataAt(5), 1, dataAt(5) + 1, 3, 60}, "zval", c); code != int64(abi.Full) {
		t.Errorf("kv_set of a key too many: %d", code)
	}
	if code, _, _ := ask(t, add, []uint64{dataAt(5), 1, 1, 0, probeOut}, "y", c); code != int64(abi.Full) {
		t.Errorf("kv_add of a key too many: %d", code)
	}
}
