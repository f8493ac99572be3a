package backend

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"onebit/engine"
	"onebit/engine/h1"
	"onebit/engine/wire"
)

// maxAnswer bounds an unstreamed answer, in bytes.
const maxAnswer = 128 << 20

// RemoteConfig describes a Remote.
type RemoteConfig struct {
	Name  string // for logs and errors
	URL   string // such as http://127.0.0.1:8080; a final /v1 is dropped
	Slots int    // how many generations the server runs at the same time, as far as known; at least 1

	// Assemble asks for a stream also where an unstreamed chat is wanted, and puts the answer together: a llama-server
	// notices within a second that nobody waits for a stream any more, and for an answer in one piece it may not.
	Assemble bool

	// Transport makes the requests, each of them, in place of one that knows no limits; nil for that one.
	Transport http.RoundTripper

	// Dial connects to the server; nil dials TCP with a limit of 5 s.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Remote is a model behind a server that speaks llama-server's dialect of OpenAI's API. It implements engine.Backend.
type Remote struct {
	name   string
	base   string
	slots  int
	client *http.Client
	direct *h1.Client  // for generation on this machine; nil elsewhere
	path   string      // what comes before /v1 there
	parts  bool        // unstreamed chats are put together from streams
	seen   atomic.Bool // the server was ready, and nothing has said otherwise since
}

var _ engine.Backend = (*Remote)(nil)

// NewRemote returns a Remote. It does not connect.
func NewRemote(cfg RemoteConfig) (*Remote, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("reading the address %q: %w", cfg.URL, err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("the address %q is not of the form http://host:port", cfg.URL)
	}
	if cfg.Slots < 1 {
		return nil, fmt.Errorf("%d slots: at least 1 is needed", cfg.Slots)
	}
	near := u.Scheme == "http" && cfg.Transport == nil && (cfg.Dial != nil || isLoopback(u.Hostname()))
	if cfg.Dial == nil {
		cfg.Dial = (&net.Dialer{Timeout: 5 * time.Second}).DialContext
	}
	path := strings.TrimSuffix(strings.TrimRight(u.EscapedPath(), "/"), "/v1")
	r := &Remote{
		name:  cfg.Name,
		base:  u.Scheme + "://" + u.Host + path,
		path:  path,
		parts: cfg.Assemble,
		slots: cfg.Slots,
		client: &http.Client{
			Transport: &http.Transport{
				Proxy:               http.ProxyFromEnvironment, // never for loopback
				DialContext:         cfg.Dial,
				TLSHandshakeTimeout: 10 * time.Second,
				MaxIdleConnsPerHost: 256,
				ReadBufferSize:      32 << 10, // a burst of events in one read
				IdleConnTimeout:     90 * time.Second,
				DisableCompression:  true,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	if cfg.Transport != nil {
		r.client.Transport = cfg.Transport
	}
	if near {
		addr := u.Host
		if u.Port() == "" {
			addr = net.JoinHostPort(u.Hostname(), "80")
		}
		r.direct = h1.New(h1.Config{Addr: addr, Dial: cfg.Dial})
	}
	return r, nil
}

// isLoopback reports whether a host is this machine, as it is written.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Name returns the configured name.
func (r *Remote) Name() string { return r.name }

// Slots returns the configured number of slots.
func (r *Remote) Slots() int { return r.slots }

// State is always Ready: somebody else's server is asked, not watched.
func (r *Remote) State() engine.State { return engine.Ready }

// Close drops idle connections. The Remote stays usable.
func (r *Remote) Close() {
	r.client.CloseIdleConnections()
	if r.direct != nil {
		r.direct.CloseIdle()
	}
}

// Ready waits until the server's /health answers 200, or is not known there. It asks again only after a request was lost
// or refused with 503.
func (r *Remote) Ready(ctx context.Context) error {
	if r.seen.Load() {
		return nil
	}
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		status, err := r.health(ctx, "/health")
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return &engine.UnavailableError{Reason: fmt.Sprintf("no server answers on %s: %v", r.base, err), RetryAfter: time.Second}
		case status != http.StatusServiceUnavailable:
			r.seen.Store(true)
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// health returns the status of the path that tells whether the server serves.
func (r *Remote) health(ctx context.Context, path string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.base+path, nil)
	if err != nil {
		return 0, err
	}
	res, err := r.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<16))
	return res.StatusCode, err
}

// Info asks the server's list of models about the first one. A server that says nothing gives an empty Info.
func (r *Remote) Info(ctx context.Context) (engine.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.base+"/v1/models", nil)
	if err != nil {
		return engine.Info{}, err
	}
	res, err := r.client.Do(req)
	if err != nil {
		return engine.Info{}, err
	}
	defer res.Body.Close()
	var list struct {
		Data []struct {
			Meta json.RawMessage `json:"meta"`
		} `json:"data"`
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, 1<<20)).Decode(&list); err != nil || len(list.Data) == 0 {
		return engine.Info{}, err
	}
	var meta struct {
		Context int `json:"n_ctx"`
	}
	if json.Unmarshal(list.Data[0].Meta, &meta) != nil || list.Data[0].Meta[0] != '{' {
		return engine.Info{}, nil
	}
	return engine.Info{Context: meta.Context, Meta: list.Data[0].Meta}, nil
}

// routeOf returns where a request goes.
func routeOf(k engine.Kind) (string, error) {
	switch k {
	case engine.Chat:
		return "/v1/chat/completions", nil
	case engine.Completion:
		return "/v1/completions", nil
	case engine.Response:
		return "/v1/responses", nil
	case engine.Embedding:
		return "/v1/embeddings", nil
	case engine.Rerank:
		return "/v1/rerank", nil
	case engine.Decision:
		return "/v1/decisions", nil
	case engine.SystemOne:
		return "/v1/systemone", nil
	}
	return "", fmt.Errorf("a %s request: %w", k, errors.ErrUnsupported)
}

// Generate sends the request as the client wrote it and emits what comes back. See engine.Backend.
func (r *Remote) Generate(ctx context.Context, req *engine.Request, emit func(engine.Chunk) error) (engine.Usage, error) {
	run := r.generate
	if r.parts && req.Kind == engine.Chat && !req.Stream && wire.Assembles(req.Raw) {
		run = r.assemble
	}
	usage, err := run(ctx, req, emit)
	refused, ok := errors.AsType[*engine.StatusError](err)
	if errors.Is(err, engine.ErrLost) || (ok && refused.Status == http.StatusServiceUnavailable) {
		r.seen.Store(false)
	}
	return usage, err
}

func (r *Remote) generate(ctx context.Context, req *engine.Request, emit func(engine.Chunk) error) (engine.Usage, error) {
	where, err := routeOf(req.Kind)
	if err != nil {
		return engine.Usage{}, err
	}
	res, err := r.post(ctx, where, req)
	if err != nil {
		return engine.Usage{}, lost(ctx, err)
	}
	defer res.body.Close()
	if res.status != http.StatusOK {
		return engine.Usage{}, refusal(ctx, res)
	}
	if !req.Stream {
		return whole(ctx, res.body, emit)
	}
	return r.stream(ctx, res, req, emit)
}

// assemble runs an unstreamed chat as a stream and emits what comes together.
func (r *Remote) assemble(ctx context.Context, req *engine.Request, emit func(engine.Chunk) error) (engine.Usage, error) {
	asked := *req
	asked.Stream, asked.IncludeUsage, asked.Raw = true, true, wire.AppendStreamed(make([]byte, 0, len(req.Raw)+64), req.Raw)
	var whole wire.Assembly
	usage, err := r.generate(ctx, &asked, func(c engine.Chunk) error { return whole.Add(c.Raw) })
	if err != nil {
		if usage == (engine.Usage{}) && whole.Tokens() > 0 { // the counts come last, but what was made was made
			usage = engine.Usage{Prompt: wire.GuessTokens(req.Raw), Completion: whole.Tokens()}
		}
		return usage, err
	}
	raw, err := whole.Append(nil)
	if err != nil {
		return usage, err
	}
	return usage, emit(engine.Chunk{Raw: raw})
}

// stream reads a streamed answer.
func (r *Remote) stream(ctx context.Context, res *reply, req *engine.Request, emit func(engine.Chunk) error) (engine.Usage, error) {
	if !strings.HasPrefix(res.kind, "text/event-stream") {
		return engine.Usage{}, fmt.Errorf("a stream was asked for and %q came: %w", res.kind, wire.ErrMalformed)
	}
	s := stream{
		events: wire.NewEventReader(res.body), emit: emit,
		wantUsage: req.IncludeUsage, response: req.Kind == engine.Response, near: r.direct != nil,
	}
	defer s.events.Release()
	var err error
	for err == nil {
		err = s.step()
	}
	if errors.Is(err, errDone) {
		res.finish()
		return s.usage, nil
	}
	if s.emitErr != nil {
		return s.usage, s.emitErr
	}
	if _, refused := errors.AsType[*engine.StatusError](err); refused || errors.Is(err, wire.ErrMalformed) || errors.Is(err, wire.ErrEventTooLong) {
		return s.usage, err
	}
	return s.usage, lost(ctx, err)
}

// lost says why a connection failed: the caller's own end first, else the backend's.
func lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // the address is ours to know
	}
	return fmt.Errorf("%w: %w", engine.ErrLost, err)
}

// refusal reads the answer of a backend that does not want to.
func refusal(ctx context.Context, res *reply) error {
	body, err := io.ReadAll(io.LimitReader(res.body, 1<<20))
	if err != nil {
		return lost(ctx, err)
	}
	status := res.status
	if status < 400 {
		status = http.StatusBadGateway // a redirect or an empty success is no answer
	}
	e := &engine.StatusError{Status: status, Body: body}
	e.RetryAfter = retryAfter(res.retryAfter)
	return e
}

// retryAfter reads a header: seconds, or a date.
func retryAfter(value string) time.Duration {
	if s, err := strconv.ParseFloat(value, 64); err == nil && s > 0 && s < 1e6 {
		return time.Duration(s * float64(time.Second))
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}

// whole reads an unstreamed answer and emits it.
func whole(ctx context.Context, body io.Reader, emit func(engine.Chunk) error) (engine.Usage, error) {
	raw, err := io.ReadAll(io.LimitReader(body, maxAnswer+1))
	if err != nil {
		return engine.Usage{}, lost(ctx, err)
	}
	if len(raw) > maxAnswer {
		return engine.Usage{}, fmt.Errorf("the answer is longer than %d bytes: %w", maxAnswer, wire.ErrMalformed)
	}
	raw = bytes.ToValidUTF8(raw, []byte("\uFFFD"))
	head, err := wire.ReadHead(raw)
	if err != nil {
		return engine.Usage{}, err
	}
	if head.Error != nil {
		return engine.Usage{}, &engine.StatusError{Status: statusIn(head.Error), Body: raw}
	}
	return usageIn(head), emit(engine.Chunk{Raw: raw})
}

// usageIn returns the usage of an answer; zero when there is none that can be read.
func usageIn(head wire.Head) engine.Usage {
	if head.Usage == nil {
		return engine.Usage{}
	}
	u, err := wire.ReadUsage(head.Usage)
	if err != nil {
		return engine.Usage{}
	}
	return u
}

// statusIn returns the HTTP status that an error object names as its code, else 500.
func statusIn(object []byte) int {
	var e struct {
		Code json.Number `json:"code"`
	}
	if json.Unmarshal(object, &e) == nil {
		if n, err := e.Code.Int64(); err == nil && n >= 400 && n <= 599 {
			return int(n)
		}
	}
	return http.StatusInternalServerError
}

// Relay sends a request of another route on as it is: method, path, query, content type and body. The answer's body
// must be closed. The request's context ends both.
func (r *Remote) Relay(in *http.Request) (*http.Response, error) {
	target := r.base + in.URL.EscapedPath()
	if in.URL.RawQuery != "" {
		target += "?" + in.URL.RawQuery
	}
	out, err := http.NewRequestWithContext(in.Context(), in.Method, target, in.Body)
	if err != nil {
		return nil, err
	}
	out.ContentLength = in.ContentLength
	for _, h := range []string{"Content-Type", "Accept", "X-Request-Id"} {
		if v := in.Header.Get(h); v != "" {
			out.Header.Set(h, v)
		}
	}
	res, err := r.client.Do(out)
	if err != nil {
		return nil, lost(in.Context(), err)
	}
	return res, nil
}
