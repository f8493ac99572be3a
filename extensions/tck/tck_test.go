package tck_test

import (
	"testing"

	"onebit/extensions/abi"
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

// TestDiffers: what a sample does not say is not compared, and no opinion is to abstain.
func TestDiffers(t *testing.T) {
	route := &abi.Decision{Action: abi.ActionRoute, Class: "code"}
	for _, c := range []struct {
		name string
		want abi.Decision
		got  *abi.Decision
		says string
	}{
		{"nothing said", abi.Decision{}, route, ""},
		{"the class alone", abi.Decision{Class: "code"}, route, ""},
		{"another class", abi.Decision{Class: "prose"}, route, `its class is "code", it must be "prose"`},
		{"no opinion", abi.Decision{Action: abi.ActionAbstain}, nil, ""},
		{"no opinion where one belongs", abi.Decision{Action: abi.ActionRoute}, nil, `its action is "abstain", it must be "route"`},
		{"an opinion where none belongs", abi.Decision{Action: abi.ActionAbstain}, route, `its action is "route", it must be "abstain"`},
		{"no opinion where a class belongs", abi.Decision{Class: "code"}, nil, `its class is "", it must be "code"`},
	} {
		if got := tck.Differs(c.want, c.got); got != c.says {
			t.Errorf("%s: %q, want %q", c.name, got, c.says)
		}
	}
}
