package edge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/libdns/libdns"
)

// webhook is a DNS provider that asks somebody's program to set records: for each record it posts {"fqdn", "value"} to
// /present below its address, and to /cleanup afterwards. Any status from 200 to 299 is success. With a token it sends
// "Authorization: Bearer TOKEN".
type webhook struct {
	url, token string
	client     *http.Client
}

// AppendRecords has the records set.
func (h *webhook) AppendRecords(ctx context.Context, zone string, records []libdns.Record) ([]libdns.Record, error) {
	for i, r := range records {
		if err := h.post(ctx, "/present", zone, r); err != nil {
			return records[:i], err
		}
	}
	return records, nil
}

// DeleteRecords has the records taken away.
func (h *webhook) DeleteRecords(ctx context.Context, zone string, records []libdns.Record) ([]libdns.Record, error) {
	for i, r := range records {
		if err := h.post(ctx, "/cleanup", zone, r); err != nil {
			return records[:i], err
		}
	}
	return records, nil
}

func (h *webhook) post(ctx context.Context, path, zone string, record libdns.Record) error {
	r := record.RR()
	body, err := json.Marshal(map[string]string{"fqdn": libdns.AbsoluteName(r.Name, zone), "value": r.Data})
	if err != nil {
		return err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	q.Header.Set("Content-Type", "application/json")
	if h.token != "" {
		q.Header.Set("Authorization", "Bearer "+h.token)
	}
	res, err := h.client.Do(q)
	if err != nil {
		return fmt.Errorf("calling the DNS webhook: %w", err)
	}
	defer res.Body.Close()
	_, _ = io.CopyN(io.Discard, res.Body, 64<<10) // so that the connection serves again
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return fmt.Errorf("the DNS webhook answered %s to %s", res.Status, path)
	}
	return nil
}
