package backend

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"

	"onebit/engine"
	"onebit/engine/h1"
)

// reply is a server's answer to a request for generation, whose body is still to be read and to be closed.
type reply struct {
	status     int
	kind       string // the content type
	retryAfter string
	body       io.ReadCloser
}

// post sends a request for generation.
func (r *Remote) post(ctx context.Context, where string, req *engine.Request) (*reply, error) {
	if r.direct != nil {
		a, err := r.direct.Post(ctx, h1.Request{Path: r.path + where, ID: req.ID, Body: req.Raw})
		if err != nil {
			return nil, err
		}
		return &reply{a.Status, a.Type, a.RetryAfter, a}, nil
	}
	out, err := http.NewRequestWithContext(ctx, http.MethodPost, r.base+where, bytes.NewReader(req.Raw))
	if err != nil {
		return nil, err
	}
	out.Header.Set("Content-Type", "application/json")
	if req.ID != "" {
		out.Header.Set("X-Request-Id", req.ID)
	}
	res, err := r.client.Do(out) //nolint:bodyclose // who reads the reply closes it
	if err != nil {
		return nil, err
	}
	return &reply{res.StatusCode, res.Header.Get("Content-Type"), res.Header.Get("Retry-After"), res.Body}, nil
}

// finish closes a streamed answer whose last event has come, so that the connection can be used again.
func (a *reply) finish() {
	if near, ok := a.body.(*h1.Answer); ok {
		near.Finish()
		return
	}
	// a server that does not end the body soon loses the connection
	timer := time.AfterFunc(50*time.Millisecond, func() { a.body.Close() })
	defer timer.Stop()
	_, _ = io.Copy(io.Discard, io.LimitReader(a.body, 1<<16)) // a failure costs the connection, no more
}
