package abi_test

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onebit/extensions/abi"
)

func paper(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../ABI.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// row finds the table row that opens with a name.
func row(text, name string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "| `"+name+"` |") {
			return line
		}
	}
	return ""
}

// TestPaperHasFunctions holds ABI.md and the lists together: each function has a row with its type and capability, and the
// paper has no row that the lists lack.
func TestPaperHasFunctions(t *testing.T) {
	text := paper(t)
	known := map[string]bool{}
	for _, f := range append(abi.Exports(), abi.Imports()...) {
		known[f.Name] = true
		line := row(text, f.Name)
		if line == "" || !strings.Contains(line, f.Type) {
			t.Errorf("%s of type %s has the row %q", f.Name, f.Type, line)
		}
		if f.Capability != "" && !strings.Contains(line, "| `"+string(f.Capability)+"` |") {
			t.Errorf("%s does not name its capability %q: %q", f.Name, f.Capability, line)
		}
		if f.Required != strings.Contains(line, "| required") {
			t.Errorf("%s: required is %v: %q", f.Name, f.Required, line)
		}
	}
	for line := range strings.Lines(text) {
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "| `"), "`")
		if strings.HasPrefix(line, "| `") && !known[name] {
			t.Errorf("the paper has %q, the lists do not", name)
		}
	}
	for _, f := range abi.WASI() {
		if !strings.Contains(text, "`"+f.Name+"`") {
			t.Errorf("%s is not in the paper", f.Name)
		}
	}
}

// TestPaperHasFields: every field of the payloads stands in the paper.
func TestPaperHasFields(t *testing.T) {
	text := paper(t)
	for _, v := range []any{abi.Request{}, abi.Flags{}, abi.Candidate{}, abi.Decision{}, abi.RAG{}, abi.Reject{}, abi.Manifest{}, abi.Sample{}} {
		typ := reflect.TypeOf(v)
		for i := range typ.NumField() {
			tag, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if tag != "v" && !strings.Contains(text, "`"+tag+"`") {
				t.Errorf("%s: the field %q is not in the paper", typ.Name(), tag)
			}
		}
	}
}

// TestPaperHasNumbers: limits and codes stand in the paper as they are.
func TestPaperHasNumbers(t *testing.T) {
	text := paper(t)
	p, c := abi.Policy.Limits(), abi.Classifier.Limits()
	want := []string{
		fmt.Sprintf("| module, assets | %d MiB, none | %d MiB, %d MiB |", p.Module>>20, c.Module>>20, c.Assets>>20),
		fmt.Sprintf("| linear memory | %d pages (%d MiB) | %d pages (%d MiB) |", p.Memory, p.Memory/16, c.Memory, c.Memory/16),
		fmt.Sprintf("| units in a call | %s | %s |", thousands(p.Units), thousands(c.Units)),
		fmt.Sprintf("| wall clock of a call | %d ms | %d ms |", p.Deadline.Milliseconds(), c.Deadline.Milliseconds()),
		fmt.Sprintf("| stack | %s slots | %s slots |", thousands(p.Depth), thousands(c.Depth)),
		fmt.Sprintf("| log in a call; host calls | %d KiB; %d |", abi.MaxLog>>10, abi.MaxHostCalls),
		fmt.Sprintf("| keys of a module and tenant | %s; %d MiB |", thousands(abi.MaxKeys), abi.MaxStored>>20),
		fmt.Sprintf("(at most %d KiB): `id`", abi.MaxRequest>>10),
		fmt.Sprintf("(at most %d KiB): `action`", abi.MaxDecision>>10),
		fmt.Sprintf("nesting over %d", abi.MaxDepth),
		fmt.Sprintf("%d `invalid`, %d `missing`, %d `full`", abi.Invalid, abi.Missing, abi.Full),
		fmt.Sprintf("%d `unavailable`", abi.Unavailable), fmt.Sprintf("%d `denied`", abi.Denied),
		fmt.Sprintf("%d debug, %d info, %d warn, %d error", abi.Debug, abi.Info, abi.Warn, abi.Error),
		fmt.Sprintf("%d last user message, %d system prompt, %d all", abi.LastUser, abi.System, abi.Whole),
		"`" + abi.ManifestSection + "`", "`" + abi.MeterModule + "`", "`" + abi.HostModule + "`", "`" + abi.WASIModule + "`",
	}
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("the paper lacks %q", w)
		}
	}
}

// thousands writes 50000000 as 50,000,000.
func thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func TestImport(t *testing.T) {
	f, ok := abi.Import(abi.HostModule, "kv_add")
	if !ok || f.Capability != abi.CapKV || f.Module != abi.HostModule {
		t.Errorf("kv_add: %+v, %v", f, ok)
	}
	for _, name := range [][2]string{{abi.HostModule, "fd_write"}, {abi.WASIModule, "path_open"}, {abi.MeterModule, "tick"}, {"env", "log"}} {
		if _, ok := abi.Import(name[0], name[1]); ok {
			t.Errorf("%v is offered", name)
		}
	}
}

// TestPayloads: the least request keeps the fields that every guest may rely on, and a decision survives the way.
func TestPayloads(t *testing.T) {
	b, err := json.Marshal(abi.Request{V: abi.Version})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"v":1,"id":"","conversation":"","turn":0,"api":"","model":"","tenant":"","key":"","hour":0,"tokens":0,"bytes":0,"flags":{"stream":false,"tools":false,"images":false,"json":false},"head":""}`
	if string(b) != want {
		t.Errorf("the least request is %s", b)
	}
	in := `{"v":1,"action":"route","candidates":["a","b"],"params":{"temperature":0.5},"rag":{"collection":"c","top_k":3},"ttl_s":60,"new":1}`
	var d abi.Decision
	if err := json.Unmarshal([]byte(in), &d); err != nil {
		t.Fatal(err)
	}
	got := abi.Decision{V: 1, Action: abi.ActionRoute, Candidates: []string{"a", "b"}, Params: map[string]json.RawMessage{"temperature": json.RawMessage("0.5")},
		RAG: &abi.RAG{Collection: "c", TopK: 3}, TTL: 60}
	if diff := cmp.Diff(got, d); diff != "" {
		t.Error(diff)
	}
}
