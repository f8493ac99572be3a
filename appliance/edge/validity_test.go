package edge_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onebit/appliance/edge"
)

func TestValidities(t *testing.T) {
	b, err := edge.ListenBox(t.Context(), edge.BoxConfig{Host: "127.0.0.1", HTTPPort: -1, Name: "attic", TLS: edge.TLSConfig{Mode: edge.ModeLocal}, Storage: newMemory()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	got := map[string]int{}
	for _, v := range b.Validities() {
		got[v.Name] = int(v.Ends.Sub(v.Begins) / (90 * 24 * time.Hour))
	}
	if d := cmp.Diff(map[string]int{"root": 40, "intermediate": 1}, got); d != "" {
		t.Errorf("lives in quarters of a year (-want +got)\n%s", d)
	}
}
