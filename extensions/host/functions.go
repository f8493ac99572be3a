package host

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"onebit/extensions/abi"
	"onebit/extensions/meter"
)

// function is one function of the contract. It answers through the first word of its arguments.
type function func(s *scope, m api.Module, a []uint64)

// functions lists those of abi.HostModule.
func functions() map[string]function {
	return map[string]function{
		"log": logLine, "metric": metric, "now_ms": nowMS, "tokens": tokens, "embed": embed, "decide": decide,
		"text": promptText, "kv_get": kvGet, "kv_set": kvSet, "kv_add": kvAdd, "asset": asset,
	}
}

// link offers the host's modules to the runtime. All functions are there; judge has seen to it that a guest
// imports only those that it was granted.
func (m *Module) link(ctx context.Context) error {
	i64 := []api.ValueType{api.ValueTypeI64}
	b := m.runtime.NewHostModuleBuilder(meter.Module)
	b.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(tick), i64, i64).Export(meter.Tick)
	if _, err := b.Instantiate(ctx); err != nil {
		return err
	}
	if err := m.offer(ctx, abi.HostModule, abi.Imports(), functions(), counted); err != nil {
		return err
	}
	return m.offer(ctx, abi.WASIModule, abi.WASI(), wasi(), looked)
}

func (m *Module) offer(ctx context.Context, name string, list []abi.Function, do map[string]function, wrap func(function, bool) api.GoModuleFunc) error {
	b := m.runtime.NewHostModuleBuilder(name)
	for _, f := range list {
		params, results, _ := strings.Cut(f.Type, "->")
		b = export(b, f.Name, wrap(do[f.Name], strings.Contains(results, "i")), values(params), values(results))
	}
	_, err := b.Instantiate(ctx)
	return err
}

func export(b wazero.HostModuleBuilder, name string, f api.GoModuleFunc, params, results []api.ValueType) wazero.HostModuleBuilder {
	return b.NewFunctionBuilder().WithGoModuleFunction(f, params, results).Export(name)
}

// values reads "(i32, i64)".
func values(list string) []api.ValueType {
	var out []api.ValueType
	for _, name := range strings.FieldsFunc(list, func(r rune) bool { return strings.ContainsRune("(), ", r) }) {
		out = append(out, map[string]api.ValueType{"i32": api.ValueTypeI32, "i64": api.ValueTypeI64, "f64": api.ValueTypeF64}[name])
	}
	return out
}

// counted holds the quota of calls, then does f.
func counted(f function, answers bool) api.GoModuleFunc {
	return func(ctx context.Context, m api.Module, a []uint64) {
		s := scopeOf(ctx)
		s.look()
		s.charge(m, priceVisit)
		s.hostCalls++
		if s.hostCalls > abi.MaxHostCalls && !s.setup {
			if answers {
				code(a, abi.Full)
			}
			return
		}
		f(s, m, a)
	}
}

// looked does f within the time of the call.
func looked(f function, _ bool) api.GoModuleFunc {
	return func(ctx context.Context, m api.Module, a []uint64) {
		s := scopeOf(ctx)
		s.look()
		s.charge(m, priceVisit)
		f(s, m, a)
	}
}

// code answers with an error. It is right for i32 and i64: the sign reaches all bits.
func code(a []uint64, c abi.Code) { a[0] = uint64(int64(c)) }

func answer(a []uint64, n int) { a[0] = uint64(n) }

// bounded is the context of a service that works within the guest's own time.
func (s *scope) bounded() (context.Context, context.CancelFunc) {
	return context.WithDeadline(s.Context, s.deadline)
}

func logLine(s *scope, m api.Module, a []uint64) {
	if b, ok := view(m, a[1], a[2]); ok {
		s.charge(m, min(len(b), abi.MaxLog))
		s.log(abi.Level(int32(a[0])), b)
	}
}

func metric(s *scope, _ api.Module, a []uint64) {
	id, v := uint32(a[0]), math.Float64frombits(a[1])
	names := s.i.m.config.Manifest.Metrics
	switch {
	case uint64(id) >= uint64(len(names)) || math.IsNaN(v) || math.IsInf(v, 0):
		code(a, abi.Invalid)
	case s.call.Services.Metric == nil:
		code(a, abi.Unavailable)
	default:
		s.call.Services.Metric(names[id], v)
		answer(a, 0)
	}
}

func nowMS(s *scope, _ api.Module, a []uint64) {
	if s.call.Services.Now == nil {
		code(a, abi.Unavailable)
		return
	}
	a[0] = uint64(s.now.UnixMilli())
}

func tokens(s *scope, m api.Module, a []uint64) {
	t, ok := text(m, a[0], a[1])
	if !ok {
		code(a, abi.Invalid)
		return
	}
	s.charge(m, len(t))
	if s.call.Services.Tokens == nil {
		code(a, abi.Unavailable)
		return
	}
	ctx, cancel := s.bounded()
	defer cancel()
	n, err := s.call.Services.Tokens(ctx, t)
	if err != nil || n < 0 || n > math.MaxInt32 {
		code(a, abi.Unavailable)
		return
	}
	answer(a, n)
}

// ask runs one question to a model: once in a call, on a clock of its own.
func (s *scope) ask(a []uint64, do func(context.Context) ([]byte, int, error), out []byte) {
	if s.asked {
		code(a, abi.Denied)
		return
	}
	s.asked = true
	ctx, cancel := context.WithTimeout(s.Context, AskTimeout)
	defer cancel()
	from := time.Now()
	b, n, err := do(ctx)
	s.deadline = s.deadline.Add(time.Since(from))
	if err != nil {
		code(a, abi.Unavailable)
		return
	}
	if len(b) <= len(out) {
		copy(out, b)
	}
	answer(a, n)
}

func embed(s *scope, m api.Module, a []uint64) {
	t, ok := text(m, a[0], a[1])
	out, ok2 := view(m, a[2], a[3])
	if !ok || !ok2 {
		code(a, abi.Invalid)
		return
	}
	f := s.call.Services.Embed
	if f == nil {
		code(a, abi.Unavailable)
		return
	}
	s.charge(m, len(t))
	s.ask(a, func(ctx context.Context) ([]byte, int, error) {
		v, err := f(ctx, t)
		b := make([]byte, 0, 4*len(v))
		for _, x := range v {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		}
		s.charge(m, len(b))
		return b, len(v), err
	}, out)
}

func decide(s *scope, m api.Module, a []uint64) {
	in, ok := view(m, a[0], a[1])
	out, ok2 := view(m, a[2], a[3])
	s.charge(m, len(in))
	var q struct {
		Text     string            `json:"text"`
		Criteria map[string]string `json:"criteria"`
	}
	if !ok || !ok2 || len(in) > maxText || json.Unmarshal(in, &q) != nil || len(q.Criteria) == 0 {
		code(a, abi.Invalid)
		return
	}
	f := s.call.Services.Decide
	if f == nil {
		code(a, abi.Unavailable)
		return
	}
	s.ask(a, func(ctx context.Context) ([]byte, int, error) {
		var r struct {
			Choice     string             `json:"choice"`
			Confidence float64            `json:"confidence"`
			Scores     map[string]float64 `json:"scores"`
		}
		var err error
		if r.Choice, r.Confidence, r.Scores, err = f(ctx, q.Text, q.Criteria); err != nil {
			return nil, 0, err
		}
		b, err := json.Marshal(r)
		s.charge(m, len(b))
		return b, len(b), err
	}, out)
}

func promptText(s *scope, m api.Module, a []uint64) {
	part, offset := a[0], a[1]
	out, ok := view(m, a[2], a[3])
	if !ok || uint32(part) > uint32(abi.Whole) {
		code(a, abi.Invalid)
		return
	}
	if s.call.Text == nil {
		code(a, abi.Unavailable)
		return
	}
	part = uint64(uint32(part))
	if s.texts[part] == nil {
		t := s.call.Text(abi.Part(part))
		s.texts[part] = &t
	}
	t := *s.texts[part]
	n := copy(out, t[min(uint64(uint32(offset)), uint64(len(t))):])
	s.charge(m, n)
	answer(a, n)
}

func asset(s *scope, m api.Module, a []uint64) {
	name, ok := text(m, a[0], a[1])
	out, ok2 := view(m, a[3], a[4])
	if !ok || !ok2 {
		code(a, abi.Invalid)
		return
	}
	if !s.setup {
		code(a, abi.Denied)
		return
	}
	b, ok := s.i.setup.Assets[name]
	if !ok {
		code(a, abi.Missing)
		return
	}
	n := copy(out, b[min(uint64(uint32(a[2])), uint64(len(b))):])
	s.charge(m, n)
	answer(a, n)
}

// kvCode turns a KV's error into a code.
func kvCode(a []uint64, err error) {
	switch {
	case errors.Is(err, ErrFull):
		code(a, abi.Full)
	case errors.Is(err, ErrNotNumber):
		code(a, abi.Invalid)
	default:
		code(a, abi.Unavailable)
	}
}

// key reads a key and finds the store. It has answered when ok is false.
func (s *scope) key(m api.Module, a []uint64) (key string, kv KV, ok bool) {
	key, ok = text(m, a[0], a[1])
	if !ok || key == "" {
		code(a, abi.Invalid)
		return "", nil, false
	}
	s.charge(m, len(key))
	if kv = s.call.Services.KV; kv == nil {
		code(a, abi.Unavailable)
		return "", nil, false
	}
	return key, kv, true
}

func kvGet(s *scope, m api.Module, a []uint64) {
	out, fits := view(m, a[2], a[3])
	if !fits {
		code(a, abi.Invalid)
		return
	}
	key, kv, ok := s.key(m, a)
	if !ok {
		return
	}
	ctx, cancel := s.bounded()
	defer cancel()
	v, ok, err := kv.Get(ctx, key)
	switch {
	case err != nil:
		kvCode(a, err)
	case !ok:
		code(a, abi.Missing)
	default:
		if len(v) <= len(out) {
			copy(out, v)
		}
		s.charge(m, len(v))
		answer(a, len(v))
	}
}

// ttl reads seconds to live.
func ttl(v uint64) (time.Duration, bool) {
	n := int32(v)
	return time.Duration(n) * time.Second, n >= 0
}

func kvSet(s *scope, m api.Module, a []uint64) {
	v, ok := view(m, a[2], a[3])
	live, ok2 := ttl(a[4])
	if !ok || !ok2 {
		code(a, abi.Invalid)
		return
	}
	key, kv, ok := s.key(m, a)
	if !ok {
		return
	}
	if len(key)+len(v) > abi.MaxStored {
		code(a, abi.Full)
		return
	}
	s.charge(m, len(v))
	ctx, cancel := s.bounded()
	defer cancel()
	if err := kv.Set(ctx, key, append([]byte(nil), v...), live); err != nil {
		kvCode(a, err)
		return
	}
	answer(a, 0)
}

func kvAdd(s *scope, m api.Module, a []uint64) {
	delta, at := int64(a[2]), a[4]
	live, ok := ttl(a[3])
	if _, fits := view(m, at, 8); !fits || !ok {
		code(a, abi.Invalid)
		return
	}
	key, kv, ok := s.key(m, a)
	if !ok {
		return
	}
	ctx, cancel := s.bounded()
	defer cancel()
	sum, err := kv.Add(ctx, key, delta, live)
	if err != nil {
		kvCode(a, err)
		return
	}
	put64(m, at, uint64(sum))
	answer(a, 0)
}
