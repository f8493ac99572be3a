package wire_test

import (
	"bytes"
	"fmt"
	"testing"

	"onebit/engine/wire"
)

// heads are events of streams as servers send them, and some that try to deceive.
var heads = []string{
	`{"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],"created":1,"id":"a","model":"m","object":"chat.completion.chunk"}`,
	`{"choices":[{"finish_reason":null,"index":0,"delta":{"content":"Hello"}}],"created":1,"id":"a","model":"m","object":"chat.completion.chunk"}`,
	`{"choices":[{"finish_reason":null,"index":0,"delta":{"content":" \"world\"\n"}}],"created":1,"id":"a","model":"m","object":"chat.completion.chunk"}`,
	`{"choices":[{"finish_reason":null,"index":0,"delta":{"content":""}}],"created":1,"id":"a","model":"m","object":"chat.completion.chunk"}`,
	`{"choices":[{"finish_reason":null,"index":0,"delta":{"content":"x"},"y":"z"}],"created":1,"id":"a","model":"m","object":"chat.completion.chunk"}`,
	`{"choices":[{"finish_reason":null,"index":0,"delta":{"content":"\"finish_reason"}}],"created":1,"id":"a","model":"m","object":"chat.completion.chunk"}`,
	`{"choices":[{"finish_reason":"stop","index":0,"delta":{}}],"created":1,"id":"a","model":"m","object":"chat.completion.chunk"}`,
	`{"choices":[],"created":1,"id":"a","model":"m","usage":{"prompt_tokens":3},"object":"chat.completion.chunk"}`,
	`{"model":"longer","choices":[{"delta":{"content":"a"}}]}`,
	`{"model":"longer","choices":[{"delta":{"content":"bcd"}}]}`,
	`{"model":"longer","choices":[{"delta":{"content":"bcd"}}],"error":{"code":500}}`,
	`{"model":{"content":"a"},"choices":[]}`,
	`{"model":{"content":"ab"},"choices":[]}`,
	`{"text":"a","model":"m"}`, `{"text":"b\\","model":"m"}`, `{"text":"b\\\","model":"m"}`, `{"text":"a","model":"m"`,
}

// check reads events with one HeadReader and compares what it says with what ReadHead says.
func check(t *testing.T, h *wire.HeadReader, raw []byte) {
	t.Helper()
	want, wantErr := wire.ReadHead(raw)
	got, err := h.Read(raw)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("%q: got %v, want %v", raw, err, wantErr)
	}
	if err != nil {
		return
	}
	at, end := got.ModelPlace()
	wantAt, wantEnd := want.ModelPlace()
	if !bytes.Equal(got.Model, want.Model) || at != wantAt || end != wantEnd || !bytes.Equal(got.Usage, want.Usage) || !bytes.Equal(got.Error, want.Error) {
		t.Fatalf("%q: got %+v at %d:%d, want %+v at %d:%d", raw, got, at, end, want, wantAt, wantEnd)
	}
	if got.Finished != wire.Finished(raw) {
		t.Fatalf("%q: Finished = %v", raw, got.Finished)
	}
}

func TestHeadReader(t *testing.T) {
	for i, first := range heads { // each pair, by a reader that knows nothing yet
		for _, second := range heads {
			var h wire.HeadReader
			check(t, &h, []byte(first))
			check(t, &h, []byte(second))
			check(t, &h, []byte(second))
			check(t, &h, []byte(heads[i]))
		}
	}
	var all wire.HeadReader
	for range 3 {
		for _, e := range heads {
			check(t, &all, []byte(e))
		}
	}
}

func TestHeadReaderDoesNotAllocate(t *testing.T) {
	var h wire.HeadReader
	var events [][]byte
	for i := range 50 {
		events = append(events, fmt.Appendf(nil, `{"choices":[{"finish_reason":null,"index":0,"delta":{"content":"word %d"}}],"model":"m"}`, i))
	}
	read := func() {
		for _, e := range events {
			check(t, &h, e)
		}
	}
	read()
	if n := testing.AllocsPerRun(20, read); n > 0 {
		t.Errorf("%d events take %v allocations", len(events), n)
	}
}

func FuzzHeadReader(f *testing.F) {
	for i, e := range heads {
		f.Add([]byte(e), []byte(heads[(i+1)%len(heads)]), []byte("x"))
	}
	f.Fuzz(func(t *testing.T, first, second, text []byte) {
		var h wire.HeadReader
		check(t, &h, first)
		check(t, &h, first)
		check(t, &h, second)
		check(t, &h, bytes.Replace(first, []byte(`"content":"`), append([]byte(`"content":"`), text...), 1))
	})
}

func BenchmarkHeadReader(b *testing.B) {
	var h wire.HeadReader
	event := []byte(heads[1])
	for b.Loop() {
		if _, err := h.Read(event); err != nil {
			b.Fatal(err)
		}
	}
}
