package auth_test

import (
	"context"
	"io"
	"log/slog"
	"testing"

	"onebit/appliance/auth"
	"onebit/store"
)

// BenchmarkRequest is what a key costs each request: who it is, one use granted, its end with the usage.
func BenchmarkRequest(b *testing.B) {
	ctx := b.Context()
	log := slog.New(slog.DiscardHandler)
	s, err := store.Open(ctx, store.Config{Dir: b.TempDir(), Log: log})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	running, stop := context.WithCancel(ctx)
	defer stop()
	go s.Run(running)
	a, err := auth.New(auth.Config{Store: s, Log: log, Console: io.Discard, Cost: cheap})
	if err != nil {
		b.Fatal(err)
	}
	armed, err := a.Arm(ctx)
	if err != nil {
		b.Fatal(err)
	}
	w, err := a.Claim(ctx, here, auth.Claim{Code: armed.Code, Name: "anna", Password: auth.NewSecret(good)})
	if err != nil {
		b.Fatal(err)
	}
	boss, err := a.Identify(ctx, request(b, "Cookie: "+auth.Cookie+"="+w.Login.Expose()))
	if err != nil {
		b.Fatal(err)
	}
	_, secret, err := a.CreateKey(ctx, boss, store.Key{Name: "bench", Models: []string{"qwen*"}, TokensPerDay: 1e12, Concurrency: 8})
	if err != nil {
		b.Fatal(err)
	}
	r := request(b, "Authorization: Bearer "+secret.Expose())
	b.ReportAllocs()
	for b.Loop() {
		p, err := a.Identify(ctx, r)
		if err != nil {
			b.Fatal(err)
		}
		g, err := a.Begin(ctx, p, chat)
		if err != nil {
			b.Fatal(err)
		}
		g.End(auth.Usage{Prompt: 10, Completion: 20})
	}
}
