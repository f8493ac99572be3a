// Package built carries the built-in classifier as the module that `make build` makes. A program that was built without it works,
// and says what to do.
package built

import (
	"embed"
	"errors"
	"io/fs"
)

//go:embed all:files
var files embed.FS

//go:embed laya.json
var manifest string

// ErrMissing says that the program carries no classifier.
var ErrMissing = errors.New("built without Laya; run make build")

// Module returns the module, or ErrMissing.
func Module() ([]byte, error) {
	b, err := files.ReadFile("files/laya.wasm")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrMissing
	}
	return b, err
}

// Manifest returns the module's manifest, as JSON.
func Manifest() []byte { return []byte(manifest) }
