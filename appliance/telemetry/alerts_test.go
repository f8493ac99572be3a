package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"onebit/appliance/config"
	"onebit/appliance/egress"
	"onebit/appliance/telemetry"
)

// hook takes notices, or does not.
type hook struct {
	mu   sync.Mutex
	got  []string
	fail error
	took []time.Time // also those it did not take
}

func (h *hook) Send(_ context.Context, n telemetry.Notice) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.took = append(h.took, time.Now())
	if h.fail != nil {
		return h.fail
	}
	h.got = append(h.got, n.Condition+" "+n.State)
	return nil
}

// watched runs alerts in the bubble of a test.
type watched struct {
	hook *hook
	*telemetry.Alerts

	mu  sync.Mutex
	now []telemetry.Condition
}

func watch(t *testing.T) *watched {
	w := &watched{hook: &hook{}}
	w.Alerts = telemetry.NewAlerts(telemetry.AlertsConfig{
		Box: func() string { return "attic" }, Log: slog.New(slog.DiscardHandler),
		Look: func(context.Context) []telemetry.Condition {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.now
		},
	})
	w.Tell(w.hook)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { w.Run(ctx); close(done) }()
	t.Cleanup(func() { stop(); <-done })
	return w
}

// set makes conditions hold for a while.
func (w *watched) set(d time.Duration, names ...string) {
	w.mu.Lock()
	w.now = nil
	for _, n := range names {
		w.now = append(w.now, telemetry.Condition{Name: n, Severity: telemetry.Warning, Text: n + " is wrong"})
	}
	w.mu.Unlock()
	<-time.After(d)
	synctest.Wait()
}

func (w *watched) expect(t *testing.T, want ...string) {
	t.Helper()
	w.hook.mu.Lock()
	defer w.hook.mu.Unlock()
	if d := cmp.Diff(want, w.hook.got); d != "" {
		t.Errorf("the webhook was told (-want +got)\n%s", d)
	}
	w.hook.got = nil
}

func (w *watched) refuse(err error) {
	w.hook.mu.Lock()
	defer w.hook.mu.Unlock()
	w.hook.fail = err
}

func TestAlerts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t)
		w.set(time.Hour)
		w.expect(t)
		w.set(time.Hour, "disk", "backup")
		w.expect(t, "backup firing", "disk firing")
		w.set(16*time.Second, "backup") // one look without it
		w.set(time.Hour, "disk", "backup")
		w.expect(t)
		w.set(time.Hour, "backup")
		w.expect(t, "disk resolved")
		w.set(time.Hour)
		w.expect(t, "backup resolved")

		w.refuse(errors.New("down"))
		w.set(time.Hour, "disk", "reload")
		w.hook.mu.Lock()
		tries := len(w.hook.took)
		w.hook.mu.Unlock()
		if tries < 4+5 || tries > 4+20 {
			t.Errorf("in an hour it was tried %d times", tries-4)
		}
		w.set(time.Hour, "disk") // one that comes and goes untold is not told
		w.refuse(nil)
		w.set(time.Hour, "disk")
		w.expect(t, "disk firing")

		next := &hook{}
		w.Tell(next)
		w.set(time.Hour, "disk")
		if d := cmp.Diff([]string{"disk firing"}, next.got); d != "" {
			t.Errorf("another webhook was told (-want +got)\n%s", d)
		}
		w.Tell(nil)
		w.set(time.Hour)
		w.expect(t)
	})
}

func TestAlertsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t)
		var names []string
		for i := range 50 {
			names = append(names, fmt.Sprintf("model %02d", i))
		}
		w.set(31*time.Second, names...)
		w.hook.mu.Lock()
		soon := len(w.hook.got)
		w.hook.mu.Unlock()
		w.set(time.Hour, names...)
		w.hook.mu.Lock()
		defer w.hook.mu.Unlock()
		if soon > 11 || len(w.hook.got) != 50 {
			t.Errorf("%d of 50 at once, %d in an hour", soon, len(w.hook.got))
		}
	})
}

func TestWebhook(t *testing.T) {
	var signature, body string
	status := http.StatusNoContent
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		signature, body = r.Header.Get("X-1bit-Signature"), string(b)
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	allowed, err := egress.New(egress.Config{Allow: []string{at.Host}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(allowed.Close)
	n := telemetry.Notice{Box: "attic", Condition: "disk state", Severity: telemetry.Warning, State: "firing", Text: "t", Since: noon, Time: noon}
	h := telemetry.Webhook{URL: config.Secret(server.URL + "/hook/canary-path"), Secret: "canary-secret", Client: allowed}
	if err := h.Send(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if want := telemetry.Sign("canary-secret", noon, []byte(body)); signature != want || len(signature) < 64 {
		t.Errorf("signed %q, want %q", signature, want)
	}
	if want := `{"box":"attic","version":"","condition":"disk state","severity":"warning","state":"firing","text":"t","since":"2026-12-01T12:00:00Z","time":"2026-12-01T12:00:00Z"}`; body != want {
		t.Errorf("posted %s", body)
	}
	h.Secret = ""
	status = http.StatusFound // a redirect is no success, and is not followed
	refused := h.Send(t.Context(), n)
	if signature != "" || refused == nil || !strings.Contains(refused.Error(), "302") {
		t.Errorf("%q %v", signature, refused)
	}
	strict, err := egress.New(egress.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(strict.Close)
	h.Client = strict
	private := h.Send(t.Context(), n)
	if _, ok := errors.AsType[*egress.RefusedError](private); !ok {
		t.Errorf("a private address: %v", private)
	}
	server.Close()
	h.Client = allowed
	gone := h.Send(t.Context(), n)
	for _, err := range []error{refused, private, gone} {
		if err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("the error is %v", err)
		}
	}
}

func TestSign(t *testing.T) {
	const want = "t=1796126400,v1=" // seconds of noon
	if got := telemetry.Sign("key", noon, []byte("body")); !strings.HasPrefix(got, want) || got == telemetry.Sign("key2", noon, []byte("body")) || got == telemetry.Sign("key", noon, []byte("bodz")) {
		t.Errorf("got %s", got)
	}
}
