package payload_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"onebit/extensions/abi"
	"onebit/extensions/payload"
)

// usual is a request such as the gateway makes.
func usual() *abi.Request {
	r := &abi.Request{ID: "req-1", Conversation: strings.Repeat("c0", 16), Turn: 3, API: "chat", Model: "auto", Tenant: "t-1", Key: "k-1", Hour: 23, Tokens: 300, Bytes: 1024,
		Flags: abi.Flags{Stream: true, JSON: true}, Headers: map[string]string{"x-team": "blue", "accept-language": "de"},
		Head: strings.Repeat("Why does this \"loop\" not end?\n\tfor {}\r \u0001 <&> \u2028 ü 世 😀", 16), Tail: "end",
		Class: "code", Confidence: 0.875, Scores: map[string]float64{"code": 0.875, "prose": 1e-30}}
	for i := range 4 {
		r.Candidates = append(r.Candidates, abi.Candidate{ID: fmt.Sprint("c", i), Backend: "llama", Device: "vulkan", Model: "m", Context: 8192, Healthy: i > 0, Queue: i,
			PromptS: 1234.5, DecodeS: 45.25, Load: 0.25 * float64(i), Cached: 512 * i, Sticky: i == 1, Price: 0.1})
	}
	return r
}

// TestAppendRequestIsMarshal: the writer says what encoding/json says.
func TestAppendRequestIsMarshal(t *testing.T) {
	for name, r := range map[string]*abi.Request{"usual": usual(), "empty": {V: 1}, "negative": {V: 1, Turn: -1, Confidence: -2.5e20, Candidates: []abi.Candidate{{}}}} {
		t.Run(name, func(t *testing.T) {
			b, err := payload.AppendRequest([]byte("before"), r)
			if err != nil || !strings.HasPrefix(string(b), "before{") {
				t.Fatalf("%q, %v", b, err)
			}
			var got abi.Request
			if err := json.Unmarshal(b[6:], &got); err != nil {
				t.Fatalf("%v in %s", err, b)
			}
			want := *r
			want.V = 1
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	b, err := payload.AppendRequest(nil, &abi.Request{})
	least := `{"v":1,"id":"","conversation":"","turn":0,"api":"","model":"","tenant":"","key":"","hour":0,"tokens":0,"bytes":0,"flags":{"stream":false,"tools":false,"images":false,"json":false},"head":""}`
	if err != nil || string(b) != least {
		t.Errorf("the least request is %s, %v", b, err)
	}
}

// TestAppendRequestFits: whatever a request holds, its JSON fits, is valid, and keeps what matters most.
func TestAppendRequestFits(t *testing.T) {
	for _, fill := range []string{"x", "\x00", "\xff", "\"", "世", "😀", "\x80"} {
		long := strings.Repeat(fill, 100_000)
		r := &abi.Request{ID: long, Conversation: long, API: long, Model: long, Tenant: long, Head: long, Tail: long, Class: long,
			Headers: map[string]string{long: long, "a": long, "b": "2"}, Scores: map[string]float64{long: 1, "s": 2}}
		for i := range 500 {
			r.Headers[fmt.Sprint("h", i)] = "value"
			r.Scores[fmt.Sprint("s", i)] = math.MaxFloat64
			r.Candidates = append(r.Candidates, abi.Candidate{ID: fmt.Sprint(i), Backend: long, Device: long, Model: long})
		}
		b, err := payload.AppendRequest(nil, r)
		if err != nil || len(b) > abi.MaxRequest || !json.Valid(b) || !utf8.Valid(b) {
			t.Fatalf("%q: %d bytes, %v, %.100s", fill, len(b), err, b)
		}
		var got abi.Request
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Candidates) < 1 || got.Candidates[0].ID != "0" || len(got.Headers) < 1 || len(got.Scores) < 50 || got.Scores["s"] != 2 {
			t.Errorf("%q: %d candidates, %d headers, %d scores are left", fill, len(got.Candidates), len(got.Headers), len(got.Scores))
		}
		if utf8.ValidString(fill) && (!strings.HasPrefix(long, got.Head) || len(got.Head) <= abi.MaxHead-4 || len(got.Head) > abi.MaxHead || len(got.Tail) <= abi.MaxTail-4 || len(got.Tail) > abi.MaxTail) {
			t.Errorf("%q: head %d, tail %d", fill, len(got.Head), len(got.Tail))
		}
	}
}

func TestAppendRequestNumbers(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		for _, r := range []*abi.Request{{Confidence: v}, {Scores: map[string]float64{"a": v}}, {Candidates: []abi.Candidate{{Price: v}}}} {
			if b, err := payload.AppendRequest([]byte("x"), r); err == nil || string(b) != "x" {
				t.Errorf("%v gives %s, %v", v, b, err)
			}
		}
	}
}

func TestCut(t *testing.T) {
	short := strings.Repeat("é", abi.MaxHead/2)
	if h, tail := payload.Cut(short); h != short || tail != "" {
		t.Error("a short message was cut")
	}
	long := "a" + strings.Repeat("世", abi.MaxHead)
	h, tail := payload.Cut(long)
	if !utf8.ValidString(h+tail) || len(h) <= abi.MaxHead-3 || len(h) > abi.MaxHead || len(tail) <= abi.MaxTail-3 || len(tail) > abi.MaxTail || !strings.HasPrefix(long, h) || !strings.HasSuffix(long, tail) {
		t.Errorf("head %d, tail %d", len(h), len(tail))
	}
}

// FuzzAppendRequest: any text in any place gives valid JSON that fits and that encoding/json reads as the same text.
func FuzzAppendRequest(f *testing.F) {
	f.Add("id", "head\x00\"\\", "tail\xff", "name", "value\u2028", 0.5)
	f.Add("\ud7ff", strings.Repeat("世", 2000), "", "", "", -1e300)
	f.Fuzz(func(t *testing.T, id, head, tail, name, value string, v float64) {
		r := &abi.Request{ID: id, Head: head, Tail: tail, Headers: map[string]string{name: value}, Scores: map[string]float64{name: v}, Candidates: []abi.Candidate{{ID: id, Price: v}}}
		b, err := payload.AppendRequest(nil, r)
		if err != nil {
			if !math.IsNaN(v) && !math.IsInf(v, 0) {
				t.Fatal(err)
			}
			return
		}
		var got abi.Request
		if err := json.Unmarshal(b, &got); err != nil || len(b) > abi.MaxRequest {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
		if len(got.Head) < len(head) && len(got.Head) < abi.MaxHead-3 {
			t.Fatalf("a head of %d bytes became %d", len(head), len(got.Head))
		}
		if len(head) <= abi.MaxHead && got.Head != strings.ToValidUTF8(head, "\uFFFD") && utf8.ValidString(head) {
			t.Fatalf("%q became %q", head, got.Head)
		}
	})
}

func BenchmarkAppendRequest(b *testing.B) {
	r := usual()
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if buf, err = payload.AppendRequest(buf[:0], r); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(int64(len(buf)))
}
