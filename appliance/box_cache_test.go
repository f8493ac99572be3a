package main_test

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	main "onebit/appliance"
	"onebit/appliance/promptcache"
	"onebit/engine/gguf/synth"
	"onebit/engine/tensor"
	"onebit/store"
)

// TestStatesFitTheirFiles: what another adapter, projector or program shaped under the same name fits no more.
func TestStatesFitTheirFiles(t *testing.T) {
	dir := t.TempDir()
	program, lora := filepath.Join(dir, "server"), filepath.Join(dir, "lora.gguf")
	for _, path := range []string{program, lora} {
		if err := os.WriteFile(path, []byte("one"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	identity := func() string { return main.Identity(program, "--lora", lora, "--port", "0") }
	was := identity()
	if was != identity() {
		t.Fatal("it changes by itself")
	}
	for _, path := range []string{program, lora} {
		later := time.Now().Add(time.Hour)
		if err := os.Chtimes(path, later, later); err != nil {
			t.Fatal(err)
		}
		if now := identity(); now == was {
			t.Errorf("another %s is the same", filepath.Base(path))
		} else {
			was = now
		}
	}
}

// TestTraitsOfModels: what llama-server cannot cut back is known from a model's file.
func TestTraitsOfModels(t *testing.T) {
	for arch, want := range map[string][2]promptcache.Traits{ // without --swa-full and with it
		"qwen3":  {{}, {}},
		"gemma3": {{Whole: true, WholeFiles: true}, {WholeFiles: true}},
		"mamba":  {{Whole: true, WholeFiles: true}, {Whole: true, WholeFiles: true}},
		"lfm2":   {{Whole: true, WholeFiles: true}, {Whole: true, WholeFiles: true}},
	} {
		w, err := synth.Model(synth.Tiny(arch, tensor.Q8_0))
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "m.gguf")
		if err := w.WriteFile(file); err != nil {
			t.Fatal(err)
		}
		if got := [2]promptcache.Traits{main.Traits(file), main.Traits(file, "--swa-full")}; got != want {
			t.Errorf("%s: %+v", arch, got)
		}
	}
	if got := main.Traits("there is none"); got != (promptcache.Traits{}) {
		t.Errorf("%+v", got)
	}
}

// TestScopesOfKeys: a key whose privacy is none has a scope of its own that is kept from the disk, so a change takes the files
// along that were written before.
func TestScopesOfKeys(t *testing.T) {
	open, kept := main.ScopeOfKey(store.Key{ID: "k", Privacy: store.PrivacyMetadata})
	none, unwritten := main.ScopeOfKey(store.Key{ID: "k", Privacy: store.PrivacyNone})
	if kept || !unwritten || open == none {
		t.Errorf("%q %v, %q %v", open, kept, none, unwritten)
	}
}

// TestHalfOfTheDisk: states take no more than half of what is free, and the budget alone counts where nobody knows that.
func TestHalfOfTheDisk(t *testing.T) {
	for _, tt := range []struct {
		budget int64
		free   uint64
		err    error
		want   int64
	}{
		{100, 1000, nil, 100}, {600, 1000, nil, 500}, {600, 0, nil, 0}, {600, math.MaxUint64, nil, 600}, {0, 1000, nil, 0},
		{600, 1000, errors.ErrUnsupported, 600},
	} {
		if got := main.Within(tt.budget, tt.free, tt.err); got != tt.want {
			t.Errorf("of %d with %d free, %v: %d, want %d", tt.budget, tt.free, tt.err, got, tt.want)
		}
	}
}

// TestCacheSecret: each box has a secret of its own that stays, and nobody else reads it.
func TestCacheSecret(t *testing.T) {
	one, other := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	seen := map[string]string{string(make([]byte, 32)): "nothing"}
	for _, dir := range []string{one, other} {
		first, err := main.CacheSecret(dir)
		again, wrong := main.CacheSecret(dir)
		if err != nil || wrong != nil || len(first) != 32 || !bytes.Equal(first, again) || seen[string(first)] != "" {
			t.Errorf("%x, %v; then %x, %v; like that of %s", first, err, again, wrong, seen[string(first)])
		}
		seen[string(first)] = dir
		if info, err := os.Stat(filepath.Join(dir, "key")); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
	}
}

// TestIndex: what the prompt cache records is what it finds at the next start, marks and times with it.
func TestIndex(t *testing.T) {
	s, err := store.Open(t.Context(), store.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	index, at := main.IndexIn(s), time.Now().Truncate(time.Millisecond).UTC()
	entry := promptcache.Entry{
		File: "f", Model: "m", Of: promptcache.Hash{1}, Scope: promptcache.Hash{2}, Tokens: 900, Bytes: 1 << 33, Marked: at.Add(time.Hour), Used: at,
		Points: []promptcache.Point{{Hash: [16]byte{3}, Tokens: 400}, {Hash: [16]byte{4}, Tokens: 700, Mark: true}, {Hash: [16]byte{5}, Tokens: 890}},
	}
	for _, change := range []func(){
		func() {},
		func() { entry.Used, entry.Marked = at.Add(time.Minute), at.Add(2*time.Hour) },
		func() { entry.Marked = time.Time{} },
	} {
		change()
		if err := index.Put(t.Context(), entry); err != nil {
			t.Fatal(err)
		}
		all, err := index.Entries(t.Context())
		if diff := cmp.Diff([]promptcache.Entry{entry}, all); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
	}
	if err := index.Delete(t.Context(), "f"); err != nil {
		t.Fatal(err)
	}
	if all, err := index.Entries(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
}
