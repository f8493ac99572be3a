package worker

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/host"
)

// op is what a guest asks of the box. now, random bytes, assets and log lines need no question, and values of metrics
// travel with the result.
type op byte

const (
	opTokens op = iota + 1
	opEmbed
	opDecide
	opGet
	opSet
	opAdd
	opText
)

// The first byte of an answer.
const (
	answered byte = iota
	answeredUnavailable
	answeredFull
	answeredNotNumber
)

var errUnavailable = errors.New("the box cannot say")

// asker is the child's side: the services of one call, asked over the link.
type asker struct {
	link    *link
	id      uint64
	metrics []measure
}

// ask sends a question and waits for what follows the answer's first byte.
func (a *asker) ask(o op, add func([]byte) []byte) (fields, error) {
	err := a.link.send(kindAsk, a.id, time.Time{}, func(b []byte) []byte { return add(append(b, byte(o))) })
	if err != nil {
		return fields{}, err
	}
	r, err := a.link.await(context.Background(), time.Time{})
	if err != nil {
		return fields{}, err
	}
	if r.kind != kindAnswer || r.id != a.id {
		return fields{}, errFrame
	}
	f := fields{b: r.payload}
	switch f.u8() {
	case answered:
		return f, nil
	case answeredFull:
		return f, host.ErrFull
	case answeredNotNumber:
		return f, host.ErrNotNumber
	}
	return f, errUnavailable
}

func (a *asker) services(now int64) host.Services {
	s := host.Services{Tokens: a.tokens, Embed: a.embed, Decide: a.decide, KV: a, Metric: a.metric}
	if now != 0 {
		s.Now = func() time.Time { return time.Unix(0, now) }
	}
	return s
}

func (a *asker) metric(name string, v float64) {
	a.metrics = append(a.metrics, measure{name, v})
}

func (a *asker) tokens(_ context.Context, text string) (int, error) {
	if len(text) > maxText {
		return 0, errUnavailable
	}
	f, err := a.ask(opTokens, func(b []byte) []byte { return appendBytes(b, text) })
	return int(int64(f.u64())), errors.Join(err, f.end())
}

func (a *asker) embed(_ context.Context, text string) ([]float32, error) {
	if len(text) > maxText {
		return nil, errUnavailable
	}
	f, err := a.ask(opEmbed, func(b []byte) []byte { return appendBytes(b, text) })
	if err != nil {
		return nil, err
	}
	v := make([]float32, f.count(maxVector, 4))
	for i := range v {
		v[i] = math.Float32frombits(f.u32())
	}
	return v, f.end()
}

func (a *asker) decide(_ context.Context, text string, criteria map[string]string) (string, float64, map[string]float64, error) {
	f, err := a.ask(opDecide, func(b []byte) []byte {
		b = binary.LittleEndian.AppendUint32(appendBytes(b, text), uint32(len(criteria)))
		for name, definition := range criteria {
			b = appendBytes(appendBytes(b, name), definition)
		}
		return b
	})
	if err != nil {
		return "", 0, nil, err
	}
	choice, confidence := f.text(maxText), f.float()
	scores := map[string]float64{}
	for range f.count(maxScores, 12) {
		scores[f.text(maxText)] = f.float()
	}
	return choice, confidence, scores, f.end()
}

// Get implements host.KV.
func (a *asker) Get(_ context.Context, key string) ([]byte, bool, error) {
	if len(key) > abi.MaxStored {
		return nil, false, nil
	}
	f, err := a.ask(opGet, func(b []byte) []byte { return appendBytes(b, key) })
	if err != nil {
		return nil, false, err
	}
	ok := f.u8() == 1
	v := f.bytes(abi.MaxStored)
	return v, ok, f.end()
}

// Set implements host.KV.
func (a *asker) Set(_ context.Context, key string, value []byte, ttl time.Duration) error {
	if len(key)+len(value) > abi.MaxStored {
		return host.ErrFull
	}
	f, err := a.ask(opSet, func(b []byte) []byte {
		return binary.LittleEndian.AppendUint64(appendBytes(appendBytes(b, key), value), uint64(ttl))
	})
	if err != nil {
		return err
	}
	return f.end()
}

// Add implements host.KV.
func (a *asker) Add(_ context.Context, key string, delta int64, ttl time.Duration) (int64, error) {
	if len(key) > abi.MaxStored {
		return 0, host.ErrFull
	}
	f, err := a.ask(opAdd, func(b []byte) []byte {
		b = binary.LittleEndian.AppendUint64(appendBytes(b, key), uint64(delta))
		return binary.LittleEndian.AppendUint64(b, uint64(ttl))
	})
	if err != nil {
		return 0, err
	}
	return int64(f.u64()), f.end()
}

// text fetches one part of the prompt; the guest then reads it here.
func (a *asker) text(p abi.Part) string {
	f, err := a.ask(opText, func(b []byte) []byte { return append(b, byte(p)) })
	if err != nil {
		return ""
	}
	return f.text(maxPrompt)
}

// serve answers a question of a guest on behalf of c. ok is false when the protocol has no such question.
func serve(ctx context.Context, c *host.Call, payload []byte) (answer []byte, ok bool) {
	f := fields{b: payload}
	o := op(f.u8())
	s := &c.Services
	var err error
	out := []byte{answered}
	switch o {
	case opTokens:
		text := f.text(maxText)
		if ok = f.end() == nil; ok {
			out, err = serveTokens(ctx, s, text, out)
		}
	case opEmbed:
		text := f.text(maxText)
		if ok = f.end() == nil; ok {
			out, err = serveEmbed(ctx, s, text, out)
		}
	case opDecide:
		out, ok, err = serveDecide(ctx, s, &f, out)
	case opGet, opSet, opAdd:
		out, ok, err = serveKV(ctx, s.KV, o, &f, out)
	case opText:
		part := abi.Part(f.u8())
		if ok = f.end() == nil && part <= abi.Whole; ok && c.Text != nil {
			out = appendBytes(out, cut(c.Text(part), maxPrompt))
		} else {
			err = errUnavailable
		}
	}
	switch {
	case !ok:
		return nil, false
	case errors.Is(err, host.ErrFull):
		return []byte{answeredFull}, true
	case errors.Is(err, host.ErrNotNumber):
		return []byte{answeredNotNumber}, true
	case err != nil:
		return []byte{answeredUnavailable}, true
	}
	return out, true
}

func serveTokens(ctx context.Context, s *host.Services, text string, out []byte) ([]byte, error) {
	if s.Tokens == nil {
		return nil, errUnavailable
	}
	n, err := s.Tokens(ctx, text)
	return binary.LittleEndian.AppendUint64(out, uint64(n)), err
}

func serveEmbed(ctx context.Context, s *host.Services, text string, out []byte) ([]byte, error) {
	if s.Embed == nil {
		return nil, errUnavailable
	}
	ctx, cancel := context.WithTimeout(ctx, host.AskTimeout)
	defer cancel()
	v, err := s.Embed(ctx, text)
	if err != nil || len(v) > maxVector {
		return nil, errUnavailable
	}
	out = binary.LittleEndian.AppendUint32(out, uint32(len(v)))
	for _, x := range v {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
	}
	return out, nil
}

func serveDecide(ctx context.Context, s *host.Services, f *fields, out []byte) ([]byte, bool, error) {
	text := f.text(maxText)
	n := f.count(maxText, 8)
	criteria := make(map[string]string, min(n, maxScores))
	for range n {
		name := f.text(maxText)
		criteria[name] = f.text(maxText)
	}
	if f.bad || len(f.b) > 0 {
		return nil, false, nil
	}
	if s.Decide == nil {
		return nil, true, errUnavailable
	}
	ctx, cancel := context.WithTimeout(ctx, host.AskTimeout)
	defer cancel()
	choice, confidence, scores, err := s.Decide(ctx, text, criteria)
	if err != nil || len(choice) > maxText || len(scores) > maxScores {
		return nil, true, errUnavailable
	}
	out = appendFloat(appendBytes(out, choice), confidence)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(scores)))
	for name, v := range scores {
		out = appendFloat(appendBytes(out, name), v)
	}
	return out, true, nil
}

func serveKV(ctx context.Context, kv host.KV, o op, f *fields, out []byte) ([]byte, bool, error) {
	key := f.text(abi.MaxStored)
	var value []byte
	var delta int64
	var ttl time.Duration
	switch o {
	case opSet:
		value = append([]byte(nil), f.bytes(abi.MaxStored)...)
		ttl = time.Duration(f.u64())
	case opAdd:
		delta, ttl = int64(f.u64()), time.Duration(f.u64())
	}
	if f.bad || len(f.b) > 0 || ttl < 0 {
		return nil, false, nil
	}
	if kv == nil {
		return nil, true, errUnavailable
	}
	var err error
	switch o {
	case opGet:
		var found bool
		value, found, err = kv.Get(ctx, key)
		if len(value) > abi.MaxStored {
			return nil, true, errUnavailable
		}
		var has byte
		if found {
			has = 1
		}
		out = appendBytes(append(out, has), value)
	case opSet:
		err = kv.Set(ctx, key, value, ttl)
	case opAdd:
		var sum int64
		sum, err = kv.Add(ctx, key, delta, ttl)
		out = binary.LittleEndian.AppendUint64(out, uint64(sum))
	}
	return out, true, err
}
