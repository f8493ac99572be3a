package route

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"onebit/appliance/record"
	"onebit/extensions/abi"
	"onebit/extensions/policy"
)

// ReadPolicy reads a routing policy from a file and says what is wrong with it. ROUTE.md has the format.
func ReadPolicy(path string) (json.RawMessage, error) {
	b, err := readPolicy(path)
	if err == nil {
		b, err = record.Text(b)
	}
	if err == nil {
		err = policy.Check(b)
	}
	if err != nil {
		return nil, fmt.Errorf("the policy %q: %w", path, err)
	}
	return b, nil
}

func readPolicy(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err == nil {
		defer f.Close()
		var b []byte
		if b, err = io.ReadAll(io.LimitReader(f, abi.MaxConfig+1)); err == nil {
			return b, nil
		}
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err // the path is named already
	}
	return nil, fmt.Errorf("it cannot be read: %w", err)
}
