package edge_test

import (
	"context"
	"log/slog"
	"testing"

	"onebit/appliance/edge"
	"onebit/store"
)

var _ edge.TLSStorage = (*store.TLS)(nil)

// TestBoxOnStore keeps certificates where the box keeps them, and starts again from there.
func TestBoxOnStore(t *testing.T) {
	s, err := store.Open(t.Context(), store.Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() { // after the boxes
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		s.Close()
	})
	var leaf, root string
	for _, step := range []string{"first", "again"} {
		cfg := config()
		cfg.Storage = s.TLS()
		b := serve(t, cfg, says("here"))
		for _, p := range protocols {
			res, body := get(t, b.client(t, p), "https://testbox.local/")
			shown := res.TLS.PeerCertificates[0].SerialNumber.String()
			if leaf == "" {
				leaf = shown
				_, root = b.Root()
			}
			if _, fp := b.Root(); body != "here" || shown != leaf || fp != root {
				t.Errorf("%s, %s: %q, another certificate: %v, another root: %v", step, p, body, shown != leaf, fp != root)
			}
		}
		b.stop()
		if err := <-b.result; err != nil {
			t.Error(err)
		}
	}
	list, err := s.TLS().List(t.Context(), "ca", true)
	if err != nil || len(list) == 0 {
		t.Errorf("%v, %v", list, err)
	}
}
