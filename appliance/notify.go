package main

import (
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// system is whoever started the program and wants to know how it is: systemd, by its notify protocol. The zero value is
// nobody.
type system struct {
	socket string
	every  time.Duration
}

// theSystem reads who it is from the environment.
func theSystem(getenv func(string) string) system {
	s := system{socket: getenv("NOTIFY_SOCKET")}
	if strings.HasPrefix(s.socket, "@") {
		s.socket = "\x00" + s.socket[1:]
	}
	usec, err := strconv.ParseInt(getenv("WATCHDOG_USEC"), 10, 64)
	if pid := getenv("WATCHDOG_PID"); err == nil && usec > 0 && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		s.every = time.Duration(usec) * time.Microsecond
	}
	return s
}

// watchdog is how often the system wants to hear from us; 0 for not at all.
func (s system) watchdog() time.Duration { return s.every }

// say sends a state, such as READY=1. Whether it arrives is the system's business.
func (s system) say(state string) {
	if s.socket == "" {
		return
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: s.socket, Net: "unixgram"})
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	_ = c.SetWriteDeadline(time.Now().Add(time.Second)) // a system that does not listen holds nobody up
	_, _ = c.Write([]byte(state))
}
