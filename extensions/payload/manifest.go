package payload

import (
	"encoding/json"
	"strings"

	"onebit/extensions/abi"
	"onebit/extensions/wasm"
)

// MaxManifest bounds a manifest, in bytes.
const MaxManifest = 64 << 10

// Bounds of a manifest's lists.
const (
	maxClasses  = 64
	maxMetrics  = 32
	maxSamples  = 64
	maxPages    = 65_536
	maxUnits    = 1 << 40
	maxIdentity = 64 // bytes of a name or version
)

const (
	lower  = "abcdefghijklmnopqrstuvwxyz"
	digits = "0123456789"
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// ReadManifest reads a manifest of at most MaxManifest bytes. A member that the contract does not know, a wrong type and a
// value out of bounds are errors: a spelling mistake should not pass as a default. The error is an *Error.
func ReadManifest(b []byte) (abi.Manifest, error) {
	r := newReader("manifest", b)
	if len(b) > MaxManifest {
		r.fail("leave out samples", "%d bytes, at most %d", len(b), MaxManifest)
		return abi.Manifest{}, r.end()
	}
	m := manifest{reader: r}
	r.object(m.member)
	m.complete()
	if err := r.end(); err != nil {
		return abi.Manifest{}, err
	}
	return m.m, nil
}

// ManifestOf finds the manifest in a module's custom section. ok is false when there is none, or the module is damaged
// before it: package module says how.
func ManifestOf(module []byte) (b []byte, ok bool) {
	if len(module) < 8 || string(module[:8]) != wasm.Header {
		return nil, false
	}
	r := wasm.NewReader(module[8:])
	for r.Left() > 0 {
		id := r.Byte()
		body := r.Take(r.U32())
		if r.Err() != nil {
			return nil, false
		}
		if id != wasm.Custom {
			continue
		}
		s := wasm.NewReader(body)
		if name := s.Name(len(body)); s.Err() == nil && name == abi.ManifestSection {
			return body[s.Pos():], true
		}
	}
	return nil, false
}

// manifest reads one manifest.
type manifest struct {
	*reader
	m abi.Manifest
}

// word says why s is not made of the allowed characters.
func word(allowed string) func(string) string {
	return func(s string) string {
		if s == "" || len(s) > maxIdentity || strings.Trim(s, allowed) != "" {
			return "is not 1 to 64 of the characters that are allowed here"
		}
		return ""
	}
}

// spelled takes a text of allowed characters.
func (m *manifest) spelled(allowed, remedy string) string {
	s := m.text()
	if why := word(allowed)(s); why != "" {
		m.fail(remedy, "%q %s", s, why)
	}
	return s
}

func (m *manifest) member(name string) {
	switch name {
	case "name":
		m.m.Name = m.spelled(lower+digits+"-", "use lower-case letters, digits and dashes")
		if strings.HasPrefix(m.m.Name, "-") || strings.HasSuffix(m.m.Name, "-") {
			m.fail("", "a name neither begins nor ends with a dash")
		}
	case "version":
		m.m.Version = m.spelled(lower+upper+digits+".-+", "write it as 1.2.3")
	case "abi":
		m.m.ABI = int(m.whole(abi.Version, abi.Version))
	case "kind":
		m.m.Kind = abi.Kind(m.text())
		if m.m.Kind != abi.Policy && m.m.Kind != abi.Classifier {
			m.fail("write policy or classifier", "%q is no kind", m.m.Kind)
		}
	case "classes":
		m.m.Classes = m.texts(maxClasses, word(lower+digits+"_-"))
	case "capabilities":
		m.capabilities()
	case "metrics":
		m.m.Metrics = m.texts(maxMetrics, word(lower+digits+"_"))
	case "pages":
		m.m.Pages = uint32(m.whole(0, maxPages))
	case "units":
		m.m.Units = m.whole(0, maxUnits)
	case "config_schema":
		m.m.ConfigSchema = m.raw()
		if m.err == nil {
			m.nested(checkSchema(m.m.ConfigSchema))
		}
	case "samples":
		m.array(func(i int) {
			if i >= maxSamples {
				m.fail("", "more than %d samples", maxSamples)
			}
			m.m.Samples = append(m.m.Samples, m.sample())
		})
	default:
		m.fail("see ABI.md for the members", "an unknown member")
	}
}

// nested takes over the failure of a reader of a part.
func (m *manifest) nested(err *Error) {
	if err == nil || m.err != nil {
		return
	}
	path := m.place()
	if err.Path != "" {
		path += "." + err.Path
	}
	m.err = &Error{m.what, path, err.Reason, err.Remedy}
}

func (m *manifest) capabilities() {
	known := map[string]bool{}
	for _, f := range abi.Imports() {
		known[string(f.Capability)] = true
	}
	for _, c := range m.texts(maxClasses, func(s string) string {
		if s == "" || !known[s] {
			return "is no capability"
		}
		return ""
	}) {
		m.m.Capabilities = append(m.m.Capabilities, abi.Capability(c))
	}
}

func (m *manifest) complete() {
	if m.err != nil {
		return
	}
	switch {
	case m.m.Name == "":
		m.fail("", "the name is missing")
	case m.m.Version == "":
		m.fail("", "the version is missing")
	case m.m.ABI == 0:
		m.fail(`add "abi":1`, "the ABI's version is missing")
	case m.m.Kind == "":
		m.fail("write policy or classifier", "the kind is missing")
	}
}

// sample reads a request with the expected decision. They are written by people: parts may be left out, and names
// that do not exist are mistakes.
func (m *manifest) sample() abi.Sample {
	var s abi.Sample
	has := 0
	m.object(func(name string) {
		has++
		switch name {
		case "request":
			m.decode(&s.Request)
		case "decision":
			m.decode(&s.Decision)
		default:
			m.fail("a sample has request and decision", "an unknown member")
		}
	})
	if m.err == nil && has != 2 {
		m.fail("a sample has request and decision", "one of them is missing")
	}
	s.Request.V = abi.Version
	return s
}

// decode reads a value into a struct of package abi; members must exist.
func (m *manifest) decode(v any) {
	b := m.raw()
	if m.err != nil {
		return
	}
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		m.fail("see ABI.md for the members and their types", "%s", strings.TrimPrefix(err.Error(), "json: "))
	}
}
