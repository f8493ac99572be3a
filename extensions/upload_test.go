package extensions_test

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"aead.dev/minisign"

	"onebit/extensions"
	"onebit/extensions/abi"
	"onebit/extensions/host"
	"onebit/extensions/tck"
)

// TestUploadRefused: what is wrong with an upload is said by a code and in a sentence, written into the log, and leaves
// nothing behind.
func TestUploadRefused(t *testing.T) {
	plain := module("x", abi.Policy)
	fickle := 0
	for name, tt := range map[string]struct {
		upload
		guest guest
		code  string
		says  string
	}{
		"not WebAssembly":    {upload{module: []byte("#!/bin/sh"), manifest: manifest("x", "")}, nil, "module", "not WebAssembly"},
		"a component":        {upload{module: []byte("\x00asm\x0d\x00\x01\x00"), manifest: manifest("x", "")}, nil, "module", "component"},
		"a bare module":      {upload{module: []byte("\x00asm\x01\x00\x00\x00"), manifest: manifest("x", "")}, nil, "module", "memory"},
		"no manifest":        {upload{module: plain}, nil, "manifest_missing", abi.ManifestSection},
		"a strange manifest": {upload{module: plain, manifest: manifest("x", `,"colour":"red"`)}, nil, "manifest", "colour"},
		"the wrong kind":     {upload{module: module("x", abi.Classifier), manifest: manifest("x", "")}, nil, "module", abi.Route},
		"an import without its grant": {upload{module: module("x", abi.Policy, "tokens"), manifest: manifest("x", `,"capabilities":["tokens"]`)},
			nil, "module", "tokens"},
		"an import that is not asked for": {upload{module: moduleImporting("kv_get", "iiii"), manifest: manifest("x", "")}, nil, "module", "kv"},
		"assets of a policy":              {upload{module: plain, manifest: manifest("x", ""), assets: map[string]string{"w": "1"}}, nil, "too_large", "assets"},
		"a path as an asset":              {upload{module: plain, manifest: manifest("x", ""), assets: map[string]string{"../w": "1"}}, nil, "asset_name", "slash"},
		"a configuration against its schema": {upload{module: plain, config: `{"limit":"many"}`, manifest: manifest("x", `,"config_schema":{"type":"object","properties":{"limit":{"type":"integer"}}}`)},
			nil, "config", "limit"},
		"a sample that comes out otherwise": {upload{module: plain, manifest: manifest("x", `,"samples":[{"request":{"v":1,"candidates":[{"id":"a"},{"id":"b"}]},"decision":{"v":1,"action":"route","candidates":["b"]}}]`)},
			to("a"), "dry_run", "sample 1"},
		"a trap":        {upload{module: plain, manifest: manifest("x", "")}, always("", &host.CallError{Cause: host.CauseTrap, Detail: "unreachable"}), "dry_run", "hostile request 1: guest failed (trap)"},
		"a void answer": {upload{module: plain, manifest: manifest("x", "")}, always(`{"v":1,"action":"route","candidates":["not offered"]}`, nil), "dry_run", "hostile request 1"},
		"another answer the second time": {upload{module: plain, manifest: manifest("x", "")}, func(abi.Request, host.Call) (string, error) {
			fickle++
			return fmt.Sprintf(`{"v":1,"action":"abstain","reason":"%d"}`, fickle), nil
		}, "dry_run", "otherwise when it is asked again"},
		"no signature that can be read": {upload{module: plain, manifest: manifest("x", ""), signature: "untrusted"}, nil, "signature_unreadable", "minisign"},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t)
			if tt.guest == nil {
				tt.guest = to("small")
			}
			f.runner.guests[hashOf(tt.module)] = tt.guest
			_, err := f.push(tt.upload)
			refused, ok := errors.AsType[*extensions.RefusedError](err)
			if !ok || refused.Code != tt.code || !strings.Contains(refused.Reason, tt.says) {
				t.Fatalf("%v (%+v)", err, refused)
			}
			left, err := filepath.Glob(filepath.Join(f.dir, "*"))
			f.must(err)
			files, err := filepath.Glob(filepath.Join(f.dir, "*", "*"))
			f.must(err)
			if len(left) != 2 || len(files) != 0 || len(f.Status().Modules) != 0 || f.runner.running.Load() != 0 {
				t.Errorf("left behind: %v, %v, %+v", left, files, f.Status().Modules)
			}
			if name != "a path as an asset" && f.records.actions() != "refuse" {
				t.Errorf("the log says %q", f.records.actions())
			}
		})
	}
}

func moduleImporting(name, params string) []byte {
	m := newModule()
	m.Import(abi.HostModule, name, params, "i")
	return finish(m, "x", abi.Policy)
}

// always answers the same, in the dry run too.
func always(answer string, err error) guest {
	return func(abi.Request, host.Call) (string, error) { return answer, err }
}

// TestHash: what comes otherwise than it was announced is not taken.
func TestHash(t *testing.T) {
	f := open(t)
	b := module("x", abi.Policy)
	for name, tt := range map[string]struct{ hash, code string }{
		"another": {strings.Repeat("ab", 32), "hash_wrong"}, "none": {"", "hash_missing"}, "short": {hashOf(b)[:63], "hash_missing"},
	} {
		u := f.Receive()
		err := u.Module(bytes.NewReader(b), tt.hash)
		if refused, ok := errors.AsType[*extensions.RefusedError](err); !ok || refused.Code != tt.code {
			t.Errorf("%s: %v", name, err)
		}
		u.Close()
	}
	u := f.Receive()
	defer u.Close()
	large := bytes.NewReader(make([]byte, abi.Policy.Limits().Module+1))
	if refused, ok := errors.AsType[*extensions.RefusedError](u.Module(large, hashOf(b))); !ok || refused.Code != "too_large" {
		t.Error(refused)
	}
}

// TestUnsteadyUnits: the count of work must be the same each time as well.
func TestUnsteadyUnits(t *testing.T) {
	f := open(t)
	b := module("x", abi.Policy)
	f.runner.guests[hashOf(b)] = func(abi.Request, host.Call) (string, error) { f.runner.units.Add(1); return "", nil }
	if _, err := f.push(upload{module: b, manifest: manifest("x", "")}); err == nil || !strings.Contains(err.Error(), "units") {
		t.Error(err)
	}
}

// TestRecorded: requests that the box has served are part of the next dry run, unless they were private.
func TestRecorded(t *testing.T) {
	f := open(t)
	f.activate("policy", f.add("one", to("small")))
	in := input("served before")
	f.Decide(t.Context(), in)
	in = input("kept secret")
	in.Private = true
	f.Decide(t.Context(), in)
	var heads []string
	b := module("two", abi.Policy)
	f.runner.guests[hashOf(b)] = func(r abi.Request, _ host.Call) (string, error) {
		if real(r) {
			heads = append(heads, r.Head)
		}
		return "", nil
	}
	m, err := f.push(upload{module: b, manifest: manifest("two", "")})
	f.must(err)
	if !slices.Equal(heads, []string{"served before", "served before"}) || m.Report.Recorded != 1 || m.Report.Hostile != len(tck.Unusual())+1 || m.Report.Units != 1000 {
		t.Errorf("%q, %+v", heads, m.Report)
	}
}

// TestSignatures holds each policy against signatures that are right, wrong and somebody else's.
func TestSignatures(t *testing.T) {
	key := func() (string, minisign.PrivateKey) {
		public, private, err := minisign.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := public.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSpace(string(text)), "\n")[1], private
	}
	ours, own := key()
	theirs, other := key()
	b := module("x", abi.Policy)
	sign := func(k minisign.PrivateKey, b []byte, comment string) string {
		return string(minisign.SignWithComments(k, b, comment, "untrusted"))
	}
	good := sign(own, b, "x 1.0.0 laya_v1")
	bad := sign(own, append(slices.Clone(b), 0), "x 1.0.0 laya_v1")
	misnamed := sign(own, b, "y 1.0.0 laya_v1")
	stranger := sign(other, b, "x 1.0.0 laya_v1")
	for name, tt := range map[string]struct {
		policy    string
		trusted   []string
		signature string
		code      string
	}{
		"off, none":                  {"off", nil, "", ""},
		"off, nobody's":              {"off", nil, stranger, ""},
		"off, wrong":                 {"off", []string{ours}, bad, "signature_wrong"},
		"required, none":             {"required", []string{ours}, "", "unsigned"},
		"required":                   {"required", []string{theirs, ours}, good, ""},
		"required, wrong":            {"required", []string{ours}, bad, "signature_wrong"},
		"required, another name":     {"required", []string{ours}, misnamed, "signature_comment"},
		"required, a stranger":       {"required", []string{ours}, stranger, "signer_unknown"},
		"pinned":                     {"pinned", []string{"x=" + ours, "y=" + theirs}, good, ""},
		"pinned, none":               {"pinned", []string{"x=" + ours}, "", "unsigned"},
		"pinned, for another":        {"pinned", []string{"y=" + ours, "x=" + theirs}, good, "signer_unknown"},
		"pinned, trusted in general": {"pinned", []string{ours}, good, "signer_unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t)
			f.policy.Signatures, f.policy.Trusted = tt.policy, tt.trusted
			f.must(extensions.CheckPolicy(f.policy))
			f.runner.guests[hashOf(b)] = to("small")
			m, err := f.push(upload{module: b, manifest: manifest("x", ""), signature: tt.signature})
			refused, _ := errors.AsType[*extensions.RefusedError](err)
			if tt.code == "" && err != nil || tt.code != "" && (refused == nil || refused.Code != tt.code) {
				t.Fatal(err)
			}
			if signed := m.Signer != ""; signed != (tt.code == "" && tt.signature == good) {
				t.Errorf("the signer is %q", m.Signer)
			}
		})
	}
	// at the load too: a key that is trusted no more takes its modules with it
	f := open(t)
	f.policy.Signatures, f.policy.Trusted = "required", []string{ours}
	f.runner.guests[hashOf(b)] = to("large")
	m, err := f.push(upload{module: b, manifest: manifest("x", ""), signature: good})
	f.must(err)
	f.activate("policy", m.SHA256)
	f.stop()
	f.policy.Trusted = []string{theirs}
	f.start()
	if o := f.ask("a"); o.Candidate != "small" || len(f.Problems()) != 1 || !strings.Contains(f.Problems()[0].Text, "trusts") {
		t.Errorf("%+v, %q", o, f.Problems())
	}
	for _, p := range []extensions.Policy{{Signatures: "maybe"}, {Trusted: []string{"no key"}}, {Trusted: []string{"x=" + ours + "A"}}} {
		if extensions.CheckPolicy(p) == nil {
			t.Errorf("%+v was taken", p)
		}
	}
}

// TestBusyBox: a module that is late twice, since the box is busy, is not to blame; one that is late each time is.
func TestBusyBox(t *testing.T) {
	f := open(t)
	late := 0
	g := func(abi.Request, host.Call) (string, error) {
		if late++; late%3 != 0 {
			return "", &host.CallError{Cause: host.CauseTimeout}
		}
		return "", nil
	}
	if h := f.add("m", g); f.state(h) != "ready" {
		t.Error(f.state(h))
	}
	b := module("slow", abi.Policy)
	f.runner.guests[hashOf(b)] = always("", &host.CallError{Cause: host.CauseTimeout})
	if _, err := f.push(upload{module: b, manifest: manifest("slow", "")}); err == nil || !strings.Contains(err.Error(), "timeout") {
		t.Error(err)
	}
}
