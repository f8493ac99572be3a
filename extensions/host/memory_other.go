//go:build !linux

package host

import "errors"

// reserve takes memory that the system gives out as it is touched.
func reserve(n uint64) ([]byte, error) { return make([]byte, n), nil }

func unreserve([]byte) {}

// shared is what only Linux has.
type shared struct{}

func share([]byte) (*shared, []byte, error) { return nil, nil, errors.ErrUnsupported }

func (*shared) attach([]byte) error { return errors.ErrUnsupported }

func (*shared) forget([]byte) error { return errors.ErrUnsupported }

func (*shared) close([]byte) {}
