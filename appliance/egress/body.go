package egress

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"onebit/engine"
)

// TooLongError is an answer with more bytes than were wanted.
type TooLongError struct {
	Limit     int64
	Announced int64 // what the answer said of its length; 0 when it was read until the limit
}

// Error gives the numbers.
func (e *TooLongError) Error() string {
	if e.Announced > 0 {
		return fmt.Sprintf("the answer has %d bytes; at most %d are wanted", e.Announced, e.Limit)
	}
	return fmt.Sprintf("the answer has more than the %d bytes that are wanted", e.Limit)
}

// body is an answer's body that keeps to its limits.
type body struct {
	io.ReadCloser
	left    int64 // bytes that may still come; negative for no limit
	limit   int64
	bounded bool
	came    atomic.Int64 // in this window
	timer   *time.Timer
	cause   func() error // why the request ended, nil while it goes on
	release func()
}

func newBody(rc io.ReadCloser, l Limits, cancel func(error), cause func() error, release func()) *body {
	b := &body{ReadCloser: rc, left: l.Bytes, limit: l.Bytes, bounded: l.Bytes > 0, cause: cause, release: release}
	armed := make(chan struct{})
	b.timer = time.AfterFunc(l.Window, func() {
		<-armed
		if b.came.Swap(0) < l.Least {
			cancel(&engine.TimeoutError{Timer: fmt.Sprintf("%d bytes of a download to come", l.Least), Limit: l.Window})
			return
		}
		b.timer.Reset(l.Window)
	})
	close(armed)
	return b
}

// Read returns the cause when a limit has ended the request.
func (b *body) Read(p []byte) (int, error) {
	if b.bounded && b.left < 0 {
		return 0, &TooLongError{Limit: b.limit}
	}
	if b.bounded && int64(len(p)) > b.left+1 {
		p = p[:b.left+1] // one more than may come, to see that it does not
	}
	n, err := b.ReadCloser.Read(p)
	b.came.Add(int64(n))
	if b.bounded {
		b.left -= int64(n)
		if b.left < 0 {
			return n - 1, &TooLongError{Limit: b.limit}
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		if cause := b.cause(); cause != nil {
			err = cause
		}
	}
	return n, err
}

// Close ends the request.
func (b *body) Close() error {
	b.timer.Stop()
	err := b.ReadCloser.Close()
	b.release()
	return err
}
