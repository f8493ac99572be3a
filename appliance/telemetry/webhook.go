package telemetry

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"onebit/appliance/config"
	"onebit/appliance/egress"
)

// Webhook is an address that notices are posted to. It implements Sender.
type Webhook struct {
	URL    config.Secret // who knows it may post there
	Secret config.Secret // signs the notices; empty leaves them unsigned
	Client *egress.Client
}

// Send posts a notice. Its signature, in the field X-1bit-Signature, is "t=SECONDS,v1=HEX": HMAC-SHA-256 over the
// seconds, a dot and the body. An error never shows the URL, but its host.
func (h Webhook) Send(ctx context.Context, n Notice) error {
	body, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("writing an alert: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, string(h.URL), bytes.NewReader(body))
	if err != nil {
		return errors.New("posting an alert: the webhook is no URL")
	}
	r.Header.Set("Content-Type", "application/json")
	if h.Secret != "" {
		r.Header.Set("X-1bit-Signature", Sign(string(h.Secret), n.Time, body))
	}
	res, err := h.Client.Do(r, egress.Limits{Redirects: -1, Total: sendLimit})
	if err != nil {
		return fmt.Errorf("posting an alert: %w", hidden(r.URL, err))
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10)) // what it says is of no interest
	if res.StatusCode >= 300 {
		return fmt.Errorf("posting an alert: %w", &egress.StatusError{Status: res.StatusCode, Host: r.URL.Hostname()})
	}
	return nil
}

// hidden takes the path of a webhook, which is often its secret, out of an error.
func hidden(u *url.URL, err error) error {
	if refused, ok := errors.AsType[*egress.RefusedError](err); ok {
		return refused
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%s cannot be reached", u.Host)
}

// Sign returns the signature of a body that is sent at a time.
func Sign(secret string, at time.Time, body []byte) string {
	seconds := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(seconds + "."))
	mac.Write(body)
	return "t=" + seconds + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}
