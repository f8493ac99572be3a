//go:build !linux

package sandbox

import "errors"

// Supported says what this system has for sandboxes: nothing that is used here.
func Supported() Support { return Support{} }

// Enter becomes the program of a sandbox. This system has none.
func Enter(Spec) error { return errors.ErrUnsupported }

func sweepUser(int) error { return errors.ErrUnsupported }

// Shield keeps other processes of our user from reading ours. This system has other ways.
func Shield() error { return nil }

// NoNewCode is for Linux alone.
func NoNewCode() error { return errors.ErrUnsupported }
