package built_test

import (
	"bytes"
	"errors"
	"testing"

	"onebit/extensions/laya/built"
	"onebit/extensions/payload"
)

// TestModule: a build carries a whole module, or says what to do.
func TestModule(t *testing.T) {
	b, err := built.Module()
	switch {
	case err == nil && !bytes.HasPrefix(b, []byte("\x00asm\x01\x00\x00\x00")):
		t.Errorf("%d bytes that are no module", len(b))
	case err != nil && (!errors.Is(err, built.ErrMissing) || err.Error() != "built without Laya; run make build"):
		t.Error(err)
	}
}

func TestManifest(t *testing.T) {
	m, err := payload.ReadManifest(built.Manifest())
	if err != nil || m.Name != "laya" || len(m.Samples) == 0 {
		t.Errorf("%+v, %v", m, err)
	}
}
