//go:build !linux

package main

// reloading is the state of a program that reads its configuration.
func reloading() string { return "RELOADING=1" }
