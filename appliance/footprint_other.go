//go:build !linux

package main

// letGo has nothing to give back where the system does it by itself.
func letGo() error { return nil }
