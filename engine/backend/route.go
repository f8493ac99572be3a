package backend

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"onebit/engine"
)

// Route decides where a model runs, from what the user wishes and what the file is, before anything is started. It
// returns the device and the reason in words. A file that no device here serves is an error that says what would be.
func Route(model string, wish engine.Device) (device engine.Device, why string, err error) {
	info, err := os.Stat(model)
	if err != nil {
		return "", "", fmt.Errorf("the model %q cannot be read: %w", model, reason(err))
	}
	if info.IsDir() {
		return "", "", fmt.Errorf("the model %q is a directory; the cpu engine serves GGUF files", model)
	}
	magic, err := first4(model)
	if err != nil {
		return "", "", fmt.Errorf("the model %q cannot be read: %w", model, reason(err))
	}
	switch {
	case magic == "1BP\x00":
		return "", "", fmt.Errorf("the model %q is a container for the ds4 device, which is not part of this version", model)
	case magic != "GGUF" && !strings.HasSuffix(model, ".gguf"):
		return "", "", fmt.Errorf("the model %q is not a GGUF file, the only kind that the cpu engine serves", model)
	case wish == engine.Auto:
		return engine.CPU, "auto: the built-in engine, the only device of this version", nil
	case wish == engine.CPU:
		return engine.CPU, "as asked", nil
	}
	return "", "", fmt.Errorf("the device %s is not part of this version; use auto or cpu", wish)
}

// reason takes the path out of a file error, where it would be said twice.
func reason(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// first4 returns the first four bytes of a file, fewer when there are no more.
func first4(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var b [4]byte
	n, err := io.ReadFull(f, b[:])
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", err
	}
	return string(b[:n]), nil
}
