package auth_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"onebit/appliance/auth"
)

// cheap makes the tests' passwords quick to check.
var cheap = auth.Cost{Memory: 64, Time: 1, Threads: 1}

const good = "correct horse battery"

func TestPassword(t *testing.T) {
	h, err := auth.NewHasher(cheap)
	if err != nil {
		t.Fatal(err)
	}
	record, err := h.Hash(t.Context(), auth.NewSecret("Käse über Nacht"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(record, "$argon2id$v=19$m=64,t=1,p=1$") {
		t.Errorf("the record is %q", record)
	}
	tests := []struct {
		name, record, password string
		want                   bool
	}{
		{"right", record, "Käse über Nacht", true},
		{"right, accents written apart", record, "Ka\u0308se u\u0308ber Nacht", true},
		{"wrong", record, "Kase uber Nacht", false},
		{"empty", record, "", false},
		{"nobody's record", "", "Käse über Nacht", false},
		{"too long", record, strings.Repeat("x", 2000), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fits, stale, err := h.Verify(t.Context(), tt.record, auth.NewSecret(tt.password))
			if err != nil || fits != tt.want || stale {
				t.Errorf("fits %v, stale %v, %v; want %v", fits, stale, err, tt.want)
			}
		})
	}
	again, err := h.Hash(t.Context(), auth.NewSecret("Käse über Nacht"))
	if err != nil || again == record {
		t.Errorf("two records of one password are the same, or %v", err)
	}
	dearer, err := auth.NewHasher(auth.Cost{Memory: 128, Time: 1, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	if fits, stale, err := dearer.Verify(t.Context(), record, auth.NewSecret("Käse über Nacht")); !fits || !stale || err != nil {
		t.Errorf("at another cost: fits %v, stale %v, %v", fits, stale, err)
	}
	if _, err := auth.NewHasher(auth.Cost{Memory: 1 << 30, Time: 1, Threads: 1}); err == nil {
		t.Error("a terabyte a password was taken")
	}
}

// A flood of logins runs a bounded number of checks, lets a bounded number wait, and turns the rest away at once.
func TestPasswordFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, err := auth.NewHasher(cheap)
		if err != nil {
			t.Fatal(err)
		}
		held := make([]func(), auth.HashesAtOnce)
		for i := range held {
			if held[i], err = h.Acquire(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		done := make(chan error, 1000)
		ctx, cancel := context.WithCancel(t.Context())
		for range 1000 {
			go func() {
				_, err := h.Hash(ctx, auth.NewSecret(good))
				done <- err
			}()
		}
		synctest.Wait()
		if n := len(done); n != 1000-auth.HashesQueued {
			t.Errorf("%d of 1000 were turned away at once, want all but %d", n, auth.HashesQueued)
		}
		for range len(done) {
			if err := <-done; code(err) != "too_many_logins" {
				t.Fatalf("turned away with %v", err)
			}
		}
		cancel()
		synctest.Wait()
		for range auth.HashesQueued {
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("a waiter that left got %v", err)
			}
		}
		for _, release := range held {
			release()
		}
		if _, err := h.Hash(t.Context(), auth.NewSecret(good)); err != nil {
			t.Errorf("after the flood: %v", err)
		}
	})
}

func TestWeakPasswords(t *testing.T) {
	tests := []struct {
		name, password, code string
	}{
		{"good", good, ""},
		{"twelve", "abcdefghijkl", ""},
		{"eleven", "abcdefghijk", "weak_password"},
		{"twelve bytes, six characters", "éàüöäß", "weak_password"},
		{"one letter", strings.Repeat("a", 40), "weak_password"},
		{"the name", "Anna-Katharina", "weak_password"},
		{"not text", "abcdefghijkl\xff", "bad_password"},
		{"a book", strings.Repeat("abcdefgh", 200), "bad_password"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := code(auth.CheckPassword(auth.NewSecret(tt.password), "anna-katharina")); got != tt.code {
				t.Errorf("got %q, want %q", got, tt.code)
			}
		})
	}
}

func FuzzParsePHC(f *testing.F) {
	f.Add("$argon2id$v=19$m=64,t=1,p=1$AAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAA")
	f.Add("$argon2id$v=19$m=4294967295,t=4294967295,p=255$AAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAA")
	f.Add("$argon2i$v=19$m=64,t=1,p=1,m=64$$")
	f.Fuzz(func(t *testing.T, record string) {
		once, err := auth.ParsePHC(record)
		if err != nil {
			if record != "" && len(record) > 8 && strings.Contains(err.Error(), record) {
				t.Error("the error quotes the record")
			}
			return
		}
		if twice, err := auth.ParsePHC(once); err != nil || twice != once {
			t.Errorf("%q reads back as %q, %v", once, twice, err)
		}
	})
}
