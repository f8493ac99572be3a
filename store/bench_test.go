package store_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"onebit/store"
)

// BenchmarkChange is one synchronous change with its audit entry: two tables and a sync.
func BenchmarkChange(b *testing.B) {
	f, ctx := open(b, b.TempDir()), b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if err := f.SetSetting(ctx, store.System(), "x", json.RawMessage(`1`)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkGroupCommit is a request row and its usage, in groups of 100 with a sync each.
func BenchmarkGroupCommit(b *testing.B) {
	f, ctx := open(b, b.TempDir()), b.Context()
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		f.AddUsage(store.UsageRow{Key: "k", Person: "p", Model: "m", Endpoint: "chat", Requests: 1, Prompt: 100, Completion: 50})
		f.AddRequest(store.RequestRow{Key: "k", Person: "p", Model: "m", Status: 200, Privacy: store.PrivacyMetadata})
		if n%100 == 0 {
			if err := f.Flush(ctx); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// keysToRead makes 1,000 keys.
func keysToRead(b *testing.B) (*fixture, [][32]byte) {
	f, ctx := open(b, b.TempDir()), b.Context()
	a := f.person("A", store.RoleMember)
	hashes := make([][32]byte, 1000)
	for i := range hashes {
		hashes[i] = hashOf(fmt.Sprint(i))
		if _, err := f.CreateKey(ctx, a, store.Key{Name: "k", Models: []string{"m"}}, hashes[i]); err != nil {
			b.Fatal(err)
		}
	}
	return f, hashes
}

// BenchmarkKeyByHash is what every request pays to know who calls.
func BenchmarkKeyByHash(b *testing.B) {
	f, hashes := keysToRead(b)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if _, _, err := f.KeyByHash(b.Context(), hashes[i%len(hashes)]); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

// BenchmarkKeyByHashWhileWriting is the same beside a writer that never stops.
func BenchmarkKeyByHashWhileWriting(b *testing.B) {
	f, hashes := keysToRead(b)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := f.SetSetting(b.Context(), store.System(), "x", json.RawMessage(`1`)); err != nil {
				b.Error(err)
				return
			}
		}
	}()
	i := 0
	for b.Loop() {
		if _, _, err := f.KeyByHash(b.Context(), hashes[i%len(hashes)]); err != nil {
			b.Fatal(err)
		}
		i++
	}
	close(stop)
	<-done
}

// BenchmarkTokensToday is what a key with a daily limit pays besides.
func BenchmarkTokensToday(b *testing.B) {
	f := open(b, b.TempDir())
	f.AddUsage(store.UsageRow{Key: "k", Prompt: 1})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.TokensToday(b.Context(), "k"); err != nil {
			b.Fatal(err)
		}
	}
}
