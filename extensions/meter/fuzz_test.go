package meter_test

import (
	"errors"
	"testing"

	"github.com/tetratelabs/wazero"

	"onebit/extensions/meter"
	"onebit/extensions/module"
	. "onebit/extensions/wasm/wasmtest"
)

// FuzzRewrite: what passes the check is valid after the rewrite exactly when it was valid before. So no invalid index
// comes to life, and no valid module breaks.
func FuzzRewrite(f *testing.F) {
	for seed := range uint64(4) {
		b, _, _ := Random(seed)
		f.Add(b)
	}
	r := wazero.NewRuntimeWithConfig(f.Context(), wazero.NewRuntimeConfigInterpreter())
	valid := func(t *testing.T, b []byte) bool {
		c, err := r.CompileModule(t.Context(), b)
		if err != nil {
			return false
		}
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		return true
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		out, err := meter.Rewrite(b, module.Default())
		if err != nil {
			if _, ok := errors.AsType[*module.RefusalError](err); !ok {
				t.Fatalf("not a refusal: %v", err)
			}
			return
		}
		if before, after := valid(t, b), valid(t, out); before != after {
			t.Fatalf("valid before %v, after %v", before, after)
		}
	})
}
