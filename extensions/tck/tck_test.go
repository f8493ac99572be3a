package tck_test

import (
	"testing"

	"onebit/extensions/tck"
)

// TestOwnHost: our host keeps every promise.
func TestOwnHost(t *testing.T) {
	for _, c := range tck.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			if err := c.Try(t.Context(), tck.Own{}); err != nil {
				t.Error(err)
			}
		})
	}
}
