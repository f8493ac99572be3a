package runner

import (
	"context"
	"errors"
)

// maxSlots bounds how many requests run at once.
const maxSlots = 256

// load opens a model with the built-in engine.
func load(context.Context, Config) (*Parts, error) {
	return nil, errors.New("not yet")
}
