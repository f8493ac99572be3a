package guest

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const (
	rules3 = `{"rules": [{"name": "long", "when": {"tokens": {"from": 100}}, "prefer": ["zinc", {"most": "cached", "over": 8}]}, {"prefer": [{"least": "load"}, "m*"]}], "default": "hrx"}`
	plain  = `{"v":1,"model":"auto","hour":7,"tokens":200,"flags":{"stream":true},"head":"say \"hello\" to é","class":"code","confidence":0.4,` +
		`"candidates":[{"id":"a","device":"cpu","model":"m1","ctx":4096,"healthy":true,"load":0.5,"cached":12},{"id":"b","device":"zinc","healthy":true},{"id":"c"}]}`
)

// TestVariables: every variable of the policy is put back before a call, and none twice.
func TestVariables(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "policy.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	declared := 0
	for _, d := range f.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR {
			for _, s := range g.Specs {
				for _, name := range s.(*ast.ValueSpec).Names {
					if name.Name != "_" {
						declared++
					}
				}
			}
		}
	}
	kept := map[any]bool{}
	for _, n := range numbers {
		kept[n] = true
	}
	for _, f := range floats {
		kept[f] = true
	}
	if len(kept) != declared || len(numbers)+len(floats) != declared {
		t.Errorf("%d variables are kept of %d; name each in numbers or floats", len(kept), declared)
	}
}

// TestNothingStays: whatever a request was, its bytes and what was made of them are gone when the next one comes.
func TestNothingStays(t *testing.T) {
	p, wrong := New([]byte(rules3))
	if wrong != "" {
		t.Fatal(wrong)
	}
	empty := func(what string) {
		t.Helper()
		if at := slices.IndexFunc(memory[int(tablesAt)+len(p.tables):], func(b byte) bool { return b != 0 }); at >= 0 {
			t.Fatalf("%s: a byte is left %d behind the tables", what, at)
		}
	}
	ask := func(text string) string {
		mu.Lock()
		clear(memory[tablesAt:])
		mu.Unlock()
		said, _, err := p.Route([]byte(text), 1<<30)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		empty(text)
		return string(said)
	}
	want := ask(plain)
	if !strings.Contains(want, `"candidates":["b","a","c"],"reason":"rule long"`) {
		t.Fatal(want)
	}
	for n := 1; n < len(plain); n++ {
		ask(plain[:n])
		ask(plain[n:])
		ask(strings.Repeat("[", n) + plain)
	}
	if _, _, err := p.Route([]byte(plain), 40*looked); !errors.Is(err, ErrSpent) {
		t.Errorf("with too few units: %v", err)
	}
	empty("a call that used all of its units")
	if got := ask(plain); got != want {
		t.Errorf("%s, after other calls %s", want, got)
	}
	if New([]byte(`{"rules": [{"prefer": ["` + strings.Repeat("x", 200) + `"]}]}`)); !reflect.DeepEqual(ask(plain), want) {
		t.Error("another policy has changed this one")
	}
}

// TestPoliciesApart: two policies answer in turn, each by its own rules.
func TestPoliciesApart(t *testing.T) {
	one, _ := New([]byte(`{"classes": {}, "default": "cpu"}`))
	other, _ := New([]byte(`{"rules": [{"name": "its own", "prefer": ["zinc"]}]}`))
	for range 3 {
		a, _, err := one.Route([]byte(plain), 1<<30)
		b, _, err2 := other.Route([]byte(plain), 1<<30)
		if err != nil || err2 != nil || !strings.Contains(string(a), "default cpu") || !strings.Contains(string(b), "rule its own") {
			t.Fatalf("%s %v, %s %v", a, err, b, err2)
		}
	}
}

// TestWrongRequests: what is too long, or nothing, is an error and no panic.
func TestWrongRequests(t *testing.T) {
	p, _ := New([]byte(`{"classes": {}, "default": "cpu"}`))
	for _, text := range []string{"", strings.Repeat("x", maxText+1)} {
		if _, _, err := p.Route([]byte(text), 1<<30); !errors.Is(err, ErrSize) {
			t.Errorf("%d bytes: %v", len(text), err)
		}
	}
}
