package payload_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onebit/extensions/abi"
	"onebit/extensions/payload"
	"onebit/extensions/wasm"
)

const full = `{"name":"by-size-2","version":"1.2.3-rc.1+x","abi":1,"kind":"policy","classes":["code","long_doc"],"capabilities":["now","kv"],
"metrics":["hits","cost_total"],"pages":64,"units":1000000,
"config_schema":{"type":"object","properties":{"limit":{"type":"integer","minimum":1,"title":"Limit"}},"required":["limit"],"additionalProperties":false},
"samples":[{"request":{"id":"1","head":"hello","candidates":[{"id":"a","healthy":true}]},"decision":{"v":1,"action":"route","candidates":["a"]}}]}`

func TestReadManifest(t *testing.T) {
	got, err := payload.ReadManifest([]byte(full))
	if err != nil {
		t.Fatal(err)
	}
	want := abi.Manifest{Name: "by-size-2", Version: "1.2.3-rc.1+x", ABI: 1, Kind: abi.Policy, Classes: []string{"code", "long_doc"}, Capabilities: []abi.Capability{abi.CapNow, abi.CapKV},
		Metrics: []string{"hits", "cost_total"}, Pages: 64, Units: 1_000_000,
		ConfigSchema: json.RawMessage(`{"type":"object","properties":{"limit":{"type":"integer","minimum":1,"title":"Limit"}},"required":["limit"],"additionalProperties":false}`),
		Samples: []abi.Sample{{Request: abi.Request{V: 1, ID: "1", Head: "hello", Candidates: []abi.Candidate{{ID: "a", Healthy: true}}},
			Decision: abi.Decision{V: 1, Action: abi.ActionRoute, Candidates: []string{"a"}}}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestReadManifestRefuses(t *testing.T) {
	change := func(old, new string) string {
		if !strings.Contains(full, old) {
			t.Fatalf("%q is not in the manifest", old)
		}
		return strings.Replace(full, old, new, 1)
	}
	tests := []struct{ name, in, want string }{
		{"empty", "", "not an object"},
		{"long", change(`"hello"`, `"`+strings.Repeat("x", payload.MaxManifest)+`"`), "at most 65536"},
		{"unknown member", change(`"kind"`, `"kinds":[],"kind"`), "kinds: an unknown member"},
		{"case", change(`"kind"`, `"Kind"`), "Kind: an unknown member"},
		{"twice", change(`"abi":1`, `"abi":1,"abi":1`), "occurs twice"},
		{"no name", change(`"name":"by-size-2",`, ""), "name is missing"},
		{"no version", change(`"version":"1.2.3-rc.1+x",`, ""), "version is missing"},
		{"no abi", change(`"abi":1,`, ""), "ABI's version is missing"},
		{"abi", change(`"abi":1`, `"abi":2`), "abi: 2 is not from 1 to 1"},
		{"no kind", change(`"kind":"policy",`, ""), "kind is missing"},
		{"kind", change(`"policy"`, `"filter"`), `"filter" is no kind`},
		{"name", change("by-size-2", "By Size"), "lower-case letters"},
		{"name a path", change("by-size-2", "../x"), "lower-case letters"},
		{"name with a dash", change("by-size-2", "-x"), "dash"},
		{"name too long", change("by-size-2", strings.Repeat("x", 65)), "1 to 64"},
		{"name empty", change("by-size-2", ""), "1 to 64"},
		{"version", change("1.2.3-rc.1+x", "1/2"), "1 to 64"},
		{"capability", change(`"now"`, `"network"`), `capabilities[0]: "network" is no capability`},
		{"capability empty", change(`"now"`, `""`), "is no capability"},
		{"capability twice", change(`"now"`, `"kv"`), "occurs twice"},
		{"class", change("long_doc", "long doc"), "classes[1]"},
		{"metric", change("cost_total", "cost{}"), "metrics[1]"},
		{"pages", change(`"pages":64`, `"pages":65537`), "pages: 65537"},
		{"pages text", change(`"pages":64`, `"pages":"64"`), "pages: this is not a number"},
		{"units", change(`"units":1000000`, `"units":-1`), "units: -1"},
		{"schema keyword", change(`"minimum":1`, `"pattern":"x"`), "config_schema.properties.limit.pattern: this keyword is not supported"},
		{"schema type", change(`"integer"`, `"int"`), `config_schema.properties.limit.type: "int" is no type`},
		{"sample without a decision", change(`,"decision":{"v":1,"action":"route","candidates":["a"]}`, ""), "samples[0]: one of them is missing"},
		{"sample's member", change(`"healthy"`, `"health"`), "samples[0].request"},
		{"sample's type", change(`"id":"1"`, `"id":1`), "samples[0].request"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := payload.ReadManifest([]byte(tt.in))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, want %q in it", err, tt.want)
			}
			if _, ok := errors.AsType[*payload.Error](err); !ok {
				t.Errorf("%T is no Error", err)
			}
		})
	}
}

func TestManifestOf(t *testing.T) {
	custom := func(name, body string) []byte {
		return wasm.AppendSection(nil, wasm.Custom, append(wasm.AppendName(nil, name), body...))
	}
	module := append(append([]byte(wasm.Header), custom("name", "x")...), custom(abi.ManifestSection, full)...)
	if b, ok := payload.ManifestOf(module); !ok || string(b) != full {
		t.Errorf("found %q, %v", b, ok)
	}
	for name, b := range map[string][]byte{"nothing": nil, "no module": []byte("hello, world"), "no section": []byte(wasm.Header), "other section": append([]byte(wasm.Header), custom("laya.manifests", full)...),
		"cut": module[:len(module)-1], "damaged": append([]byte(wasm.Header), 0, 3, 200, 1, 1)} {
		if b, ok := payload.ManifestOf(b); ok {
			t.Errorf("%s: found %q", name, b)
		}
	}
}

// FuzzReadManifest: what is taken is JSON, and its parts keep to their bounds.
func FuzzReadManifest(f *testing.F) {
	f.Add([]byte(full))
	f.Add([]byte(`{"name":"a","version":"1","abi":1,"kind":"classifier","config_schema":{"items":{"enum":[1,"a",null],"const":{}}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := payload.ReadManifest(b)
		if err != nil {
			return
		}
		if !json.Valid(b) || m.ABI != 1 || m.Name == "" || strings.ContainsAny(m.Name+m.Version, "/\\\n \x00") {
			t.Fatalf("%q gives %+v", b, m)
		}
		if len(m.ConfigSchema) > 0 && !json.Valid(m.ConfigSchema) {
			t.Fatalf("schema %s", m.ConfigSchema)
		}
	})
}

// FuzzManifestOf: any bytes are read without harm, and what is found lies in them.
func FuzzManifestOf(f *testing.F) {
	f.Add(append([]byte(wasm.Header), 0, 15, 13, 'l', 'a', 'y', 'a', '.', 'm', 'a', 'n', 'i', 'f', 'e', 's', 't', '{'))
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, ok := payload.ManifestOf(b); ok && !strings.Contains(string(b), string(got)) {
			t.Fatalf("%q holds no %q", b, got)
		}
	})
}

func TestCheckConfig(t *testing.T) {
	const schema = `{"type":"object","title":"t","properties":{"n":{"type":"integer","minimum":1,"maximum":10},"f":{"type":"number"},"s":{"type":["string","null"],"minLength":2,"maxLength":3},
		"list":{"type":"array","items":{"enum":["a",1,{"x":[1]}]},"minItems":1,"maxItems":2},"b":{"type":"boolean"},"c":{"const":"only"}},"required":["n"],"additionalProperties":false}`
	tests := []struct{ name, config, want string }{
		{"least", `{"n":1}`, ""},
		{"all", `{"n":10,"f":1.5,"s":"ééé","list":["a",{"x":[1.0]}],"b":true,"c":"only"}`, ""},
		{"whole number as number", `{"n":2,"f":3}`, ""},
		{"null", `{"n":1.0,"s":null}`, ""},
		{"missing", `{}`, `"n" is missing`},
		{"unknown", `{"n":1,"m":2}`, "m: an unknown member"},
		{"type", `[]`, "not of type [object]"},
		{"fraction", `{"n":1.5}`, "n: this is not of type"},
		{"low", `{"n":0}`, "n: 0: not from 1 to 10"},
		{"high", `{"n":11}`, "n: 11: not from 1 to 10"},
		{"short", `{"n":1,"s":"é"}`, "s: 1 characters: not from 2 to 3"},
		{"long", `{"n":1,"s":"éééé"}`, "s: 4 characters"},
		{"few", `{"n":1,"list":[]}`, "list: 0 items"},
		{"many", `{"n":1,"list":["a","a","a"]}`, "list: 3 items"},
		{"enum", `{"n":1,"list":["b"]}`, "list[0]: this is none of the values"},
		{"const", `{"n":1,"c":"other"}`, "c: this is none"},
		{"twice", `{"n":1,"n":1}`, "occurs twice"},
		{"not JSON", `{"n":1`, "the text ends too early"},
		{"empty", ``, "not a number"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := payload.CheckConfig([]byte(schema), []byte(tt.config))
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	if err := payload.CheckConfig(nil, []byte(`{"any":[1,2]}`)); err != nil {
		t.Errorf("without a schema: %v", err)
	}
	if err := payload.CheckConfig(nil, []byte(`{"any":[1,2}`)); err == nil {
		t.Error("without a schema, what is no JSON passes")
	}
	if err := payload.CheckConfig([]byte(`{"allOf":[]}`), []byte(`{}`)); err == nil || !strings.Contains(err.Error(), "not supported") {
		t.Errorf("a schema outside the subset: %v", err)
	}
}

// FuzzCheckConfig: what passes is JSON; a schema and a configuration do no harm.
func FuzzCheckConfig(f *testing.F) {
	f.Add([]byte(`{"type":"object","properties":{"a":{"enum":[1,"x"],"minimum":0}},"items":{}}`), []byte(`{"a":1,"b":[null,"\u00e9"]}`))
	f.Fuzz(func(t *testing.T, schema, config []byte) {
		if payload.CheckConfig(schema, config) == nil && !json.Valid(config) {
			t.Fatalf("%q passes", config)
		}
	})
}
