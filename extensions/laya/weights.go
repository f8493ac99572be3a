package laya

import (
	_ "embed"
	"fmt"
)

//go:embed weights.bin
var weights string

// Builtin returns the model that was trained for this program.
func Builtin() (*Model, error) {
	m, err := Load([]byte(weights))
	if err != nil {
		return nil, fmt.Errorf("reading the built-in weights: %w", err)
	}
	return m, nil
}
