package remote

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"onebit/appliance/egress"
	"onebit/engine"
)

// listed is one entry of a list of models. Servers say under three names how much a conversation may hold.
type listed struct {
	ID      string `json:"id"`
	Context int    `json:"context_length"`
	Longest int    `json:"max_model_len"`
	Meta    struct {
		Context int `json:"n_ctx"`
	} `json:"meta"`
}

// look asks the server for its models. An error says why the model cannot be had there.
func (r *Remote) look(ctx context.Context) error {
	limit := &engine.TimeoutError{Timer: "a look at the server", Limit: checkLimit}
	ctx, cancel := context.WithTimeoutCause(ctx, limit.Limit, limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.list, nil)
	if err != nil {
		return err
	}
	res, err := r.http.Do(req)
	if err != nil {
		return r.unreached(ctx, err)
	}
	defer res.Body.Close()
	if err := r.judge(res); err != nil {
		return err
	}
	missing := ""
	if res.StatusCode == http.StatusOK {
		body, err := io.ReadAll(io.LimitReader(res.Body, maxList+1))
		if err != nil {
			return r.unreached(ctx, err)
		}
		missing, err = r.read(body)
		if err != nil {
			return err
		}
	}
	r.mu.Lock()
	r.good, r.listed = time.Now(), res.StatusCode == http.StatusOK
	r.mu.Unlock()
	r.keep(&r.missing, missing)
	return nil
}

// judge reads the status of an answer to a look. A server without a list is asked all the same.
func (r *Remote) judge(res *http.Response) error {
	switch s := res.StatusCode; {
	case s == http.StatusOK, s == http.StatusNotFound, s == http.StatusMethodNotAllowed:
		return nil
	case s == http.StatusUnauthorized, s == http.StatusForbidden:
		return &oddError{StepKey, fmt.Sprintf("%s refuses the key (%d)", r.host, s)}
	case s == http.StatusLoopDetected:
		return &oddError{StepList, fmt.Sprintf("asking %s leads back to this box, or through too many", r.host)}
	case s >= 300 && s < 400:
		return &oddError{StepList, fmt.Sprintf("%s answers with a redirect (%d), which is not followed: name the address that it leads to", r.host, s)}
	default:
		return &oddError{StepList, fmt.Sprintf("%s answers %d %s", r.host, s, http.StatusText(s))}
	}
}

// read takes what a list says of the model. The first result says that it is not in it: some servers take names that
// they do not list.
func (r *Remote) read(body []byte) (missing string, err error) {
	var list struct {
		Data []listed `json:"data"`
	}
	if len(body) > maxList {
		return "", &oddError{StepList, fmt.Sprintf("the list of models of %s is longer than %d bytes", r.host, maxList)}
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return "", &oddError{StepList, fmt.Sprintf("%s answers with no list of models: is there an API at this address?", r.host)}
	}
	at := slices.IndexFunc(list.Data, func(l listed) bool { return l.ID == r.cfg.Model })
	if at < 0 {
		return fmt.Sprintf("%s does not list the model %q", r.host, r.cfg.Model), nil
	}
	l := list.Data[at]
	most := 0
	for _, n := range []int{l.Context, l.Longest, l.Meta.Context} {
		if n > most && n < 1<<30 {
			most = n
		}
	}
	r.mu.Lock()
	r.info = engine.Info{Context: most}
	r.mu.Unlock()
	return "", nil
}

// unreached says why no answer came, in words for an admin.
func (r *Remote) unreached(ctx context.Context, err error) error {
	if late, ok := errors.AsType[*engine.TimeoutError](context.Cause(ctx)); ok {
		return fmt.Errorf("%s does not answer within %v", r.host, late.Limit)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if refused, ok := errors.AsType[*egress.RefusedError](err); ok {
		return fmt.Errorf("%w; an address in the house is named in egress.private as host:port", refused)
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return fmt.Errorf("%s does not answer: %w", r.host, err)
}

// unsent reports whether a request that failed has not reached the server.
func unsent(err error) bool {
	if _, ok := errors.AsType[*egress.RefusedError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return true
	}
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// Hops is the header that names the boxes which a request came through.
const Hops = "X-1bit-Hops"

// maxHops is how many boxes a request may come through before it reaches this one.
const maxHops = 3

// LoopError is a request that came through this box before, or through too many.
type LoopError struct{ Again bool }

// Error says which.
func (e *LoopError) Error() string {
	if e.Again {
		return "this request came through this box before: two of its models are each other's"
	}
	return fmt.Sprintf("this request came through more than %d boxes", maxHops)
}

type hopsKey struct{}

// Arrive reads the hops of a request that comes in. The context that it returns carries them to what is asked for it.
func Arrive(ctx context.Context, h http.Header, self string) (context.Context, error) {
	said := h.Get(Hops)
	if said == "" {
		return ctx, nil
	}
	hops := strings.SplitN(said, ",", maxHops+2)
	if len(hops) > maxHops {
		return ctx, &LoopError{}
	}
	for i, hop := range hops {
		if hops[i] = strings.TrimSpace(hop); hops[i] == self {
			return ctx, &LoopError{Again: true}
		}
		if len(hops[i]) > 64 || strings.ContainsFunc(hops[i], func(r rune) bool { return r <= ' ' || r > '~' }) {
			return ctx, &LoopError{} // nobody of ours wrote this
		}
	}
	return context.WithValue(ctx, hopsKey{}, hops), nil
}

// hopping adds this box to the hops of what is sent.
type hopping struct {
	http.RoundTripper
	self string
}

// RoundTrip sends one request.
func (h hopping) RoundTrip(req *http.Request) (*http.Response, error) {
	hops, _ := req.Context().Value(hopsKey{}).([]string)
	req = req.Clone(req.Context())
	req.Header.Set(Hops, strings.Join(append(hops[:len(hops):len(hops)], h.self), ","))
	return h.RoundTripper.RoundTrip(req)
}

// idle ends a request when nothing comes for too long.
type idle struct {
	*time.Timer
	limit time.Duration
}

func newIdle(limit time.Duration, name string, cancel context.CancelCauseFunc) idle {
	return idle{time.AfterFunc(limit, func() {
		cancel(&engine.TimeoutError{Timer: "an answer of the model " + name + ", which another server runs,", Limit: limit})
	}), limit}
}

// during stops the clock for what is ours to do.
func (i idle) during(f func() error) error {
	i.Stop()
	defer i.Reset(i.limit)
	return f()
}
