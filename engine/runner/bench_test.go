package runner_test

import (
	"context"
	"testing"

	"onebit/engine/runner"
)

// BenchmarkStream measures what a token costs beside the model: scheduling,
// sampling from a small vocabulary, and a chat's stream event.
func BenchmarkStream(b *testing.B) {
	e := &fakeEngine{}
	r, err := runner.New(runner.Config{Model: "fake.gguf", Listener: newQuietListener(), Load: loader(fakeParts(e, 1, 1<<20))})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	defer func() {
		cancel()
		<-done
	}()
	const tokens = 1000
	b.ReportAllocs()
	for b.Loop() {
		status, n := stream(ctx, r.Handler(), tokens)
		for status == 503 { // loading
			status, n = stream(ctx, r.Handler(), tokens)
		}
		if status != 200 || n < tokens {
			b.Fatalf("status %d, %d events", status, n)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*tokens), "ns/token")
}
