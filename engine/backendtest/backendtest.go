// Package backendtest is the conformance suite that every backend passes: each promise in the comments of
// engine.Backend is a test. Beside it lies Standin, a server for tests that keeps the dialect or breaks it as told.
package backendtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"onebit/engine"
)

// Subject is a backend under test, with requests that make it do what the suite needs. The requests are JSON objects;
// the suite sets the members stream and stream_options.
type Subject struct {
	Backend engine.Backend
	Good    string // is answered in at least three events, with usage
	Bad     string // is refused with a 4xx
	Long    string // is answered in hundreds of events, or without end
}

// request builds a chat request from an object.
func request(t *testing.T, object string, stream bool) *engine.Request {
	t.Helper()
	var members map[string]any
	if err := json.Unmarshal([]byte(object), &members); err != nil {
		t.Fatalf("the subject's request %s: %v", object, err)
	}
	members["stream"] = stream
	if stream {
		members["stream_options"] = map[string]any{"include_usage": true}
	}
	raw, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	return &engine.Request{Kind: engine.Chat, ID: t.Name(), Stream: stream, IncludeUsage: stream, Raw: raw}
}

// Run holds the backend that open returns to its promises. It opens it once.
func Run(t *testing.T, open func(t *testing.T) Subject) {
	s := open(t)
	for _, p := range []struct {
		name string
		test func(*testing.T, Subject)
	}{
		{"has a name and slots", identity},
		{"is ready when Ready says so", ready},
		{"answers in one piece", whole},
		{"answers in events", streamed},
		{"leaves the request alone", untouched},
		{"refuses with a status", refused},
		{"stops when emit fails", emitFails},
		{"does not begin when ctx has ended", endedBefore},
		{"stops when ctx ends", endedDuring},
		{"serves many at once", many},
	} {
		t.Run(p.name, func(t *testing.T) { p.test(t, s) })
	}
}

func identity(t *testing.T, s Subject) {
	if s.Backend.Name() == "" || s.Backend.Slots() < 1 {
		t.Errorf("name %q, %d slots", s.Backend.Name(), s.Backend.Slots())
	}
}

func ready(t *testing.T, s Subject) {
	if err := s.Backend.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.Backend.State(); got != engine.Ready {
		t.Errorf("State = %v", got)
	}
}

// collect runs a request and returns copies of what was emitted.
func collect(ctx context.Context, b engine.Backend, req *engine.Request) ([][]byte, engine.Usage, error) {
	var chunks [][]byte
	returned := false // emit must not be called after the end, and only by this goroutine: the race detector sees both
	usage, err := b.Generate(ctx, req, func(c engine.Chunk) error {
		if returned {
			panic("emit after the end of Generate")
		}
		chunks = append(chunks, bytes.Clone(c.Raw))
		return nil
	})
	returned = true
	return chunks, usage, err
}

func whole(t *testing.T, s Subject) {
	chunks, usage, err := collect(t.Context(), s.Backend, request(t, s.Good, false))
	if err != nil || len(chunks) != 1 {
		t.Fatalf("%d chunks, %v; want one", len(chunks), err)
	}
	var answer struct {
		Choices []struct {
			Message struct{ Content string }
		}
	}
	if err := json.Unmarshal(chunks[0], &answer); err != nil || len(answer.Choices) == 0 || answer.Choices[0].Message.Content == "" {
		t.Errorf("answer %s: %v", chunks[0], err)
	}
	if usage.Prompt < 1 || usage.Completion < 1 || usage.Cached > usage.Prompt {
		t.Errorf("usage %+v", usage)
	}
}

func streamed(t *testing.T, s Subject) {
	chunks, usage, err := collect(t.Context(), s.Backend, request(t, s.Good, true))
	if err != nil || len(chunks) < 3 {
		t.Fatalf("%d chunks, %v; want three and more", len(chunks), err)
	}
	for _, c := range chunks {
		var event struct{ Choices []json.RawMessage }
		if err := json.Unmarshal(c, &event); err != nil || event.Choices == nil {
			t.Errorf("event %s: %v", c, err)
		}
	}
	if usage.Prompt < 1 || usage.Completion < 1 {
		t.Errorf("usage %+v", usage)
	}
}

func untouched(t *testing.T, s Subject) {
	req := request(t, s.Good, true)
	before := bytes.Clone(req.Raw)
	for range 2 {
		if _, _, err := collect(t.Context(), s.Backend, req); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(before, req.Raw) {
		t.Errorf("the request became %s", req.Raw)
	}
}

func refused(t *testing.T, s Subject) {
	for _, stream := range []bool{false, true} {
		chunks, _, err := collect(t.Context(), s.Backend, request(t, s.Bad, stream))
		e, ok := errors.AsType[*engine.StatusError](err)
		if !ok || e.Status < 400 || e.Status > 499 || len(chunks) != 0 {
			t.Errorf("stream %v: %d chunks, %v; want none and a 4xx", stream, len(chunks), err)
		}
	}
}

func emitFails(t *testing.T, s Subject) {
	mine, calls := errors.New("enough"), 0
	_, err := s.Backend.Generate(t.Context(), request(t, s.Long, true), func(engine.Chunk) error {
		calls++
		return mine
	})
	if !errors.Is(err, mine) || calls != 1 {
		t.Errorf("%d calls and %v, want one and emit's own error", calls, err)
	}
}

func endedBefore(t *testing.T, s Subject) {
	why := errors.New("nobody asks any more")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	chunks, _, err := collect(ctx, s.Backend, request(t, s.Good, true))
	if !errors.Is(err, why) || len(chunks) != 0 {
		t.Errorf("%d chunks, %v; want none and the cause", len(chunks), err)
	}
}

func endedDuring(t *testing.T, s Subject) {
	why := errors.New("the client has gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	calls := 0
	_, err := s.Backend.Generate(ctx, request(t, s.Long, true), func(engine.Chunk) error {
		calls++
		if calls == 2 {
			cancel(why)
		}
		return nil
	})
	if !errors.Is(err, why) {
		t.Errorf("%v after %d events, want the cause", err, calls)
	}
	if _, _, err := collect(t.Context(), s.Backend, request(t, s.Good, false)); err != nil {
		t.Errorf("the next request: %v", err)
	}
}

func many(t *testing.T, s Subject) {
	n := s.Backend.Slots() + 2
	failed := make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		req := request(t, s.Good, i%2 == 0)
		group.Go(func() {
			chunks, _, err := collect(t.Context(), s.Backend, req)
			if err == nil && len(chunks) == 0 {
				err = fmt.Errorf("request %d: no answer", i)
			}
			failed[i] = err
		})
	}
	group.Wait()
	if err := errors.Join(failed...); err != nil {
		t.Error(err)
	}
}
