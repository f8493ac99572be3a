package remote_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"onebit/appliance/egress"
	"onebit/appliance/remote"
	"onebit/engine"
	"onebit/engine/backendtest"
	"onebit/engine/wire"
)

// upstream is a server of somebody else's, over TLS.
type upstream struct {
	*httptest.Server
	mu   sync.Mutex
	seen []*http.Request
	body []string
}

// up starts one. A nil answer is the stand-in's.
func up(t *testing.T, answer http.HandlerFunc) *upstream {
	t.Helper()
	u := &upstream{}
	standin := &backendtest.Standin{Model: "theirs"}
	u.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(b))
		u.mu.Lock()
		u.seen, u.body = append(u.seen, r), append(u.body, string(b))
		u.mu.Unlock()
		if answer != nil && r.URL.Path != "/v1/models" {
			answer(w, r)
			return
		}
		standin.ServeHTTP(w, r)
	}))
	u.EnableHTTP2 = true
	u.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	u.StartTLS()
	t.Cleanup(u.Close)
	return u
}

// asked returns the requests other than looks, with their bodies.
func (u *upstream) asked() (all []*http.Request, bodies []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i, r := range u.seen {
		if r.Method == http.MethodPost {
			all, bodies = append(all, r), append(bodies, u.body[i])
		}
	}
	return all, bodies
}

func root(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

const key = "sk-canaryCANARYcanary"

func config(u *upstream) remote.Config {
	return remote.Config{
		Name: "ours", URL: u.URL + "/v1", Model: "theirs", Token: egress.NewToken(key), Root: root(u.Server), Self: "me",
		Log: slog.New(slog.DiscardHandler), Timeout: 10 * time.Second,
	}
}

func start(t *testing.T, cfg remote.Config) *remote.Remote {
	t.Helper()
	r, err := remote.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	return r
}

// say asks for a chat.
func say(ctx context.Context, r *remote.Remote, kind engine.Kind, body string) (string, engine.Usage, error) {
	req := &engine.Request{Kind: kind, ID: "client-id", Raw: []byte(body), Stream: strings.Contains(body, `"stream":true`)}
	var out strings.Builder
	usage, err := r.Generate(ctx, req, func(c engine.Chunk) error {
		out.Write(c.Raw)
		return nil
	})
	return out.String(), usage, err
}

const hello = `{"model":"ours","messages":[{"role":"user","content":"hello"}]}`

func TestBackend(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backendtest.Subject {
		return backendtest.Subject{
			Backend: start(t, config(up(t, nil))),
			Good:    `{"messages":[{"role":"user","content":"a"}]}`,
			Bad:     `{"messages":[{"role":"user","content":"a"}],"standin":"refuse"}`,
			Long:    `{"messages":[{"role":"user","content":"a"}],"standin":"endless"}`,
		}
	})
}

func TestWhatIsSent(t *testing.T) {
	u := up(t, nil)
	r := start(t, config(u))
	ctx, err := remote.Arrive(t.Context(), http.Header{remote.Hops: {"first"}}, "me")
	if err != nil {
		t.Fatal(err)
	}
	body := `{"model":"ours","user":"ann","metadata":{"a":"b"},"safety_identifier":"x","prompt_cache_key":"k","store":true,` +
		`"documents":{"collections":["c"]},"id_slot":1,"temperature":0.5,"messages":[{"role":"user","content":"hello"}]}`
	if _, _, err := say(ctx, r, engine.Chat, body); err != nil {
		t.Fatal(err)
	}
	requests, bodies := u.asked()
	if want := `{"model":"theirs","temperature":0.5,"messages":[{"role":"user","content":"hello"}]}`; len(bodies) != 1 || bodies[0] != want {
		t.Errorf("sent %q, want %q", bodies, want)
	}
	h := requests[0].Header
	if got := h.Get("Authorization"); got != "Bearer "+key {
		t.Errorf("the key was sent as %q", got)
	}
	if got := h.Get(remote.Hops); got != "first,me" {
		t.Errorf("the hops were %q", got)
	}
	for name := range h {
		switch name {
		case "Authorization", remote.Hops, "Content-Type", "Content-Length", "User-Agent", "Accept-Encoding":
		default:
			t.Errorf("the header %s was sent: %q", name, h[name])
		}
	}
	if n := r.Info().Context; n != 512 {
		t.Errorf("context %d, want the list's", n)
	}
}

// TestRefusals holds what becomes of each status.
func TestRefusals(t *testing.T) {
	unavailable := func(err error) bool { _, ok := errors.AsType[*engine.UnavailableError](err); return ok }
	status := func(n int) func(error) bool {
		return func(err error) bool { e, ok := errors.AsType[*engine.StatusError](err); return ok && e.Status == n }
	}
	for _, c := range []struct {
		status int
		kind   engine.Kind
		body   string
		want   func(error) bool
		tells  bool // the server's words reach the client
		admin  bool // an admin is told
	}{
		{400, engine.Chat, `{"error":{"message":"SAID","code":"bad"}}`, status(400), true, false},
		{400, engine.Chat, `<html>SAID`, status(400), false, false},
		{400, engine.Chat, `{"error":{"message":"SAID` + strings.Repeat("x", 20<<10) + `"}}`, status(400), false, false},
		{422, engine.Chat, `{"error":"SAID"}`, status(422), true, false},
		{401, engine.Chat, `{"error":{"message":"SAID"}}`, unavailable, false, true},
		{402, engine.Chat, `{"error":{"message":"SAID"}}`, unavailable, false, true},
		{403, engine.Chat, `{"error":{"message":"SAID"}}`, unavailable, false, true},
		{404, engine.Chat, `{"error":{"message":"SAID"}}`, unavailable, false, true},
		{404, engine.Rerank, `{"error":{"message":"SAID"}}`, func(err error) bool { return errors.Is(err, errors.ErrUnsupported) }, false, false},
		{404, engine.Embedding, `{"error":{"message":"SAID","code":"model_not_found"}}`, unavailable, false, true},
		{404, engine.SystemOne, `{"error":{"message":"SAID"}}`, status(501), false, false},
		{302, engine.Chat, `SAID`, unavailable, false, true},
		{500, engine.Chat, `{"error":{"message":"SAID"}}`, status(502), false, true},
		{502, engine.Chat, `SAID`, unavailable, false, true},
		{507, engine.Chat, `{"error":{"message":"SAID"}}`, unavailable, false, true},
		{508, engine.Chat, `{"error":{"message":"SAID"}}`, func(err error) bool {
			e, ok := errors.AsType[*wire.Error](err)
			return ok && e.Status == 508
		}, false, true},
	} {
		t.Run(fmt.Sprint(c.status, c.kind), func(t *testing.T) {
			u := up(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(c.status)
				fmt.Fprint(w, c.body)
			})
			r := start(t, config(u))
			_, _, err := say(t.Context(), r, c.kind, hello)
			if !c.want(err) {
				t.Fatalf("got %T %v", err, err)
			}
			if strings.Contains(err.Error(), "SAID") != c.tells {
				t.Errorf("the server's words: %v", err)
			}
			if asked, _ := u.asked(); len(asked) != 1 {
				t.Errorf("%d requests", len(asked))
			}
			if got := r.Problem(); (got != "") != c.admin || strings.Contains(got, "SAID") {
				t.Errorf("an admin is told %q", got)
			}
		})
	}
}

// TestBusy holds that a server that wants to be left alone is, for as long as it wishes and no longer than a minute.
func TestBusy(t *testing.T) {
	for _, c := range []struct {
		status    int
		after     string
		from, too time.Duration
	}{
		{429, "7", 6 * time.Second, 7 * time.Second}, {503, "20", 19 * time.Second, 20 * time.Second},
		{429, "", 4 * time.Second, 5 * time.Second}, {503, "999999", 59 * time.Second, time.Minute}, {429, "-1", 4 * time.Second, 5 * time.Second},
	} {
		u := up(t, func(w http.ResponseWriter, r *http.Request) {
			if c.after != "" {
				w.Header().Set("Retry-After", c.after)
			}
			w.WriteHeader(c.status)
		})
		r := start(t, config(u))
		for range 3 {
			_, _, err := say(t.Context(), r, engine.Chat, hello)
			e, ok := errors.AsType[*engine.UnavailableError](err)
			if !ok || e.RetryAfter < c.from || e.RetryAfter > c.too {
				t.Errorf("%d %q: %v, %+v", c.status, c.after, err, e)
			}
		}
		if asked, _ := u.asked(); len(asked) != 1 {
			t.Errorf("it was asked %d times", len(asked))
		}
		if r.State() != engine.Down {
			t.Error("it counts as ready")
		}
	}
}

// TestHostile holds that whatever a server does ends, as an error.
func TestHostile(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	event := func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, `data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}`+"\n\n")
		w.(http.Flusher).Flush()
	}
	for name, answer := range map[string]http.HandlerFunc{
		"endless headers": func(w http.ResponseWriter, r *http.Request) {
			for i := range 200 {
				w.Header().Set(fmt.Sprintf("X-%d", i), long[:1000])
			}
			fmt.Fprint(w, `{}`)
		},
		"silence":            func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"silence after head": func(w http.ResponseWriter, r *http.Request) { w.(http.Flusher).Flush(); <-r.Context().Done() },
		"drips no event": func(w http.ResponseWriter, r *http.Request) {
			event(w)
			for r.Context().Err() == nil {
				fmt.Fprint(w, ":\n")
				w.(http.Flusher).Flush()
				time.Sleep(20 * time.Millisecond)
			}
		},
		"endless event": func(w http.ResponseWriter, r *http.Request) {
			event(w)
			fmt.Fprint(w, "data: ")
			for r.Context().Err() == nil {
				fmt.Fprint(w, long)
			}
		},
		"no JSON":      func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "<html>") },
		"half of JSON": func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, `{"choices":[`) },
		"another type": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "data: [DONE]\n\n")
		},
		"bad event": func(w http.ResponseWriter, r *http.Request) {
			event(w)
			fmt.Fprint(w, "data: {no\n\n")
		},
		"quiet end": func(w http.ResponseWriter, r *http.Request) { event(w) },
		"cut": func(w http.ResponseWriter, r *http.Request) {
			event(w)
			panic(http.ErrAbortHandler)
		},
		"too long a whole": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(1<<40))
			fmt.Fprint(w, `{`)
		},
		"error in the stream": func(w http.ResponseWriter, r *http.Request) {
			event(w)
			fmt.Fprint(w, `data: {"error":{"message":"no","code":500}}`+"\n\n")
		},
	} {
		for _, stream := range []bool{true, false} {
			if !stream && strings.Contains(name, "event") {
				continue
			}
			t.Run(fmt.Sprint(name, stream), func(t *testing.T) {
				t.Parallel()
				cfg := config(up(t, answer))
				cfg.Timeout = 300 * time.Millisecond
				if strings.HasPrefix(name, "endless event") {
					cfg.Timeout = 30 * time.Second
				}
				r := start(t, cfg)
				body := hello
				if stream {
					body = strings.Replace(hello, "{", `{"stream":true,`, 1)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				begin := time.Now()
				_, _, err := say(ctx, r, engine.Chat, body)
				if err == nil || ctx.Err() != nil {
					t.Fatalf("after %v: %v", time.Since(begin), err)
				}
				if strings.Contains(err.Error(), "127.0.0.1") {
					t.Errorf("a client is told where it is: %v", err)
				}
				if _, unavailable := errors.AsType[*engine.UnavailableError](err); unavailable && name != "endless headers" {
					t.Errorf("it would be sent again: %v", err)
				}
			})
		}
	}
}

func TestCancelled(t *testing.T) {
	left := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	u := up(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		cancel()
		<-r.Context().Done()
		close(left)
	})
	if _, _, err := say(ctx, start(t, config(u)), engine.Chat, hello); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	select {
	case <-left:
	case <-time.After(time.Second):
		t.Error("the server works on")
	}
}

func TestSlots(t *testing.T) {
	var mu sync.Mutex
	now, most := 0, 0
	u := up(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		time.Sleep(30 * time.Millisecond)
		mu.Lock()
		now--
		mu.Unlock()
		fmt.Fprint(w, `{"choices":[]}`)
	})
	cfg := config(u)
	cfg.Slots = 2
	r := start(t, cfg)
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() {
			if _, _, err := say(t.Context(), r, engine.Chat, hello); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if most != 2 {
		t.Errorf("%d at the same time, want 2", most)
	}
}

// TestLook holds when there is a Remote, and when it ends.
func TestLook(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   string // in the error; empty for none
	}{
		"listed":         {func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, `{"data":[{"id":"theirs"}]}`) }, ""},
		"no list":        {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(404) }, ""},
		"key refused":    {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(401) }, "refuses the key"},
		"itself":         {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(508) }, "back to this box"},
		"redirect":       {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusFound) }, "redirect"},
		"a page":         {func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, `<html>`) }, "no list of models"},
		"an endless one": {func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(make([]byte, 2<<20)) }, "longer than"},
		"in trouble":     {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(500) }, "answers 500"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewTLSServer(c.answer)
			defer s.Close()
			r, err := remote.Start(t.Context(), config(&upstream{Server: s}))
			if r != nil {
				defer r.Stop()
			}
			if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), key) {
				t.Error("the key is shown")
			}
		})
	}
	t.Run("goes away", func(t *testing.T) {
		u := up(t, nil)
		r := start(t, config(u))
		u.CloseClientConnections()
		u.Close()
		_, _, err := say(t.Context(), r, engine.Chat, hello)
		if errors.Is(err, engine.ErrLost) { // of a connection that was still there
			_, _, err = say(t.Context(), r, engine.Chat, hello)
		}
		if e, ok := errors.AsType[*engine.UnavailableError](err); !ok || strings.Contains(e.Reason, "127.0.0.1") {
			t.Errorf("got %v", err)
		}
		select {
		case <-r.Done():
		case <-time.After(10 * time.Second):
			t.Fatal("nobody noticed")
		}
		if r.Err() == nil || r.State() != engine.Down {
			t.Errorf("it ended with %v, %v", r.Err(), r.State())
		}
	})
	t.Run("not in the list", func(t *testing.T) {
		cfg := config(up(t, nil))
		cfg.Model = "another"
		if p := start(t, cfg).Problem(); !strings.Contains(p, `does not list the model "another"`) {
			t.Errorf("an admin is told %q", p)
		}
	})
	t.Run("of another authority", func(t *testing.T) {
		cfg := config(up(t, nil))
		cfg.Root = nil
		if _, err := remote.Start(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("got %v", err)
		}
	})
}

// TestExamine holds that one look says how far it came.
func TestExamine(t *testing.T) {
	at := func(a ...string) func(context.Context, string) ([]netip.Addr, error) {
		return func(context.Context, string) (all []netip.Addr, err error) {
			for _, one := range a {
				all = append(all, netip.MustParseAddr(one))
			}
			if all == nil {
				err = &net.DNSError{Err: "no such host", Name: "box.example.com", IsNotFound: true}
			}
			return all, err
		}
	}
	u := up(t, nil)
	there := func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", u.Listener.Addr().String())
	}
	nobody := func(context.Context, netip.AddrPort) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	}
	for name, c := range map[string]struct {
		change func(*remote.Config)
		step   remote.Step
		want   string // in the error, or of what is missing
		found  string // addresses
	}{
		"all is well":     {nil, "", "", "[93.184.216.34]"},
		"not listed":      {func(c *remote.Config) { c.Model = "another" }, "", `does not list the model "another"`, "[93.184.216.34]"},
		"no such name":    {func(c *remote.Config) { c.Resolve = at() }, remote.StepName, "no such host", "[]"},
		"in the house":    {func(c *remote.Config) { c.Resolve = at("10.0.0.7") }, remote.StepAddress, "named in egress.private as host:port", "[10.0.0.7]"},
		"as it stands":    {func(c *remote.Config) { c.URL = "https://10.0.0.7/v1" }, remote.StepAddress, "named in egress.private as host:port", "[]"},
		"nobody there":    {func(c *remote.Config) { c.Dial = nobody }, remote.StepConnection, "connection refused", "[93.184.216.34]"},
		"somebody else":   {func(c *remote.Config) { c.URL = "https://box.example.org/v1" }, remote.StepCertificate, "certificate", "[93.184.216.34]"},
		"other authority": {func(c *remote.Config) { c.Root = nil }, remote.StepCertificate, "certificate", "[93.184.216.34]"},
		"no root":         {func(c *remote.Config) { c.Root = []byte("x") }, remote.StepCertificate, "no certificate in PEM", "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(u)
			cfg.URL, cfg.Resolve, cfg.Dial, cfg.Log = "https://example.com/v1", at("93.184.216.34"), there, nil
			if c.change != nil {
				c.change(&cfg)
			}
			f := remote.Examine(t.Context(), cfg)
			if said := fmt.Sprint(f.Err, f.Missing); f.Step != c.step || !strings.Contains(said, c.want) || (f.Err != nil) != (c.step != "") || fmt.Sprint(f.Addresses) != c.found || f.Listed != (c.step == "") {
				t.Errorf("%+v", f)
			}
		})
	}
	for step, answer := range map[remote.Step]http.HandlerFunc{
		"":              func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(404) },
		remote.StepKey:  func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(401) },
		remote.StepList: func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "<html>") },
	} {
		s := httptest.NewTLSServer(answer)
		defer s.Close()
		if f := remote.Examine(t.Context(), config(&upstream{Server: s})); f.Step != step || f.Listed || f.Host != s.Listener.Addr().String() {
			t.Errorf("%s: %+v", step, f)
		}
	}
}

// TestAddresses holds where the box goes.
func TestAddresses(t *testing.T) {
	for text, c := range map[string]struct {
		private []string
		good    bool
	}{
		"https://api.example.org/v1":      {nil, true},
		"https://api.example.org:8443":    {nil, true},
		"http://api.example.org/v1":       {nil, false},
		"http://127.0.0.1:8080":           {nil, true},
		"http://localhost:8080/v1":        {nil, true},
		"https://[::1]:8080/v1":           {nil, true},
		"https://192.168.1.5/v1":          {nil, false},
		"https://192.168.1.6:443/v1":      {[]string{"192.168.1.6:443"}, true},
		"http://192.168.1.7:8080/v1":      {[]string{"192.168.1.7:8080"}, true},
		"http://192.168.1.8:8081/v1":      {[]string{"192.168.1.8:8080"}, false},
		"https://169.254.169.254/latest":  {nil, false},
		"https://0x7f.1/v1":               {nil, false},
		"https://ann:pw@example.org/v1":   {nil, false},
		"https://example.org/v1?key=x":    {nil, false},
		"ftp://example.org":               {nil, false},
		"https://":                        {nil, false},
		"file:///etc/passwd":              {nil, false},
		"https://localhost.evil.org:1/v1": {nil, false},
	} {
		if _, err := remote.Address(text, c.private); (err == nil) != c.good {
			t.Errorf("%s: %v", text, err)
		}
	}
	t.Run("a name in the house", func(t *testing.T) {
		cfg := config(up(t, nil))
		cfg.URL = "https://inside.example.org/v1"
		cfg.Resolve = func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("10.0.0.7")}, nil
		}
		if _, err := remote.Start(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "egress.private") {
			t.Errorf("got %v", err)
		}
	})
}

func TestHops(t *testing.T) {
	for said, good := range map[string]bool{
		"": true, "a": true, "a,b,c": true, "a, b": true, "a,b,c,d": false, "me": false, "a,me": false, "a,b,c,d,e,f": false,
		strings.Repeat("a", 65): false, "a\x01": false, ",": true, strings.Repeat(",", 5000): false,
	} {
		_, err := remote.Arrive(t.Context(), http.Header{remote.Hops: {said}}, "me")
		if (err == nil) != good {
			t.Errorf("%.20q: %v", said, err)
		}
	}
}
