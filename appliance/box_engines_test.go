//go:build unix

package main_test

import (
	"os"
	"path/filepath"
	"testing"

	main "onebit/appliance"
)

// TestShare opens a model to others, and nothing beside it.
func TestShare(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	model, store := filepath.Join(state, "models", "0123", "m.gguf"), filepath.Join(state, "1bit.db")
	elsewhere := filepath.Join(t.TempDir(), "m.gguf")
	for _, path := range []string{model, store, elsewhere} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{model, elsewhere, ""} {
		if err := main.Share(state, path); err != nil {
			t.Error(err)
		}
	}
	for path, want := range map[string]os.FileMode{
		state: 0o711, filepath.Join(state, "models"): 0o711, filepath.Dir(model): 0o711, model: 0o644, store: 0o600, elsewhere: 0o600,
	} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, want %v, %v", path, info.Mode().Perm(), want, err)
		}
	}
	if err := main.Share(state, filepath.Join(state, "models", "none.gguf")); err == nil {
		t.Error("what is not there was opened")
	}
}

func TestEnginesCommandLine(t *testing.T) {
	none := func(string) string { return "" }
	for _, args := range [][]string{
		{"--users", "7"}, {"--users", "9-7"}, {"--users", "a-b"}, {"--client", "nobody-is-called-so"}, {"--program", "/bin/sh"}, {"--socket"}, {"--socket", ""},
	} {
		if err := main.ParseEngines(args, none); err == nil {
			t.Errorf("%q was taken", args)
		}
	}
	if err := main.ParseEngines([]string{"--users", "70000-70031", "--client", "0", "--socket", "/run/x", "--scratch", "y"}, none); err != nil {
		t.Error(err)
	}
}
