package main

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// reloading is the state of a program that reads its configuration; the system wants to know since when.
func reloading() string {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return "RELOADING=1"
	}
	return "RELOADING=1\nMONOTONIC_USEC=" + strconv.FormatInt(t.Nano()/1000, 10)
}
