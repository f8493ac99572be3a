package trust_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onebit/appliance/trust"
)

// root makes a root certificate.
func root(t *testing.T) trust.Root {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(0xabc), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return trust.Root{Host: "box.local", Cert: c}
}

// fake is a computer in a folder, whose programs only say that they ran.
type fake struct {
	*trust.Machine
	programs map[string]error // those that are there, and what running them gives
	ran      []string
}

func newFake(t *testing.T, system string, folders ...string) *fake {
	t.Helper()
	f := &fake{programs: map[string]error{}}
	f.Machine = &trust.Machine{
		System: system, Prefix: t.TempDir(), Home: t.TempDir(), Say: func(string) {},
		Look: func(p string) (string, error) {
			if _, ok := f.programs[p]; !ok {
				return "", os.ErrNotExist
			}
			return p, nil
		},
		Run: func(_ context.Context, p string, args ...string) error {
			f.ran = append(f.ran, strings.Join(append([]string{p}, args...), " "))
			return f.programs[p]
		},
	}
	for _, d := range folders {
		if err := os.MkdirAll(filepath.Join(f.Prefix, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func TestInstallOnLinux(t *testing.T) {
	for _, c := range []struct {
		name, folder, ending, program, install, remove string
	}{
		{"Debian", "/usr/local/share/ca-certificates", ".crt", "update-ca-certificates", "update-ca-certificates", "update-ca-certificates --fresh"},
		{"Fedora", "/etc/pki/ca-trust/source/anchors", ".pem", "update-ca-trust", "update-ca-trust extract", "update-ca-trust extract"},
		{"Arch", "/etc/ca-certificates/trust-source/anchors", ".crt", "trust", "trust extract-compat", "trust extract-compat"},
		{"openSUSE", "/etc/pki/trust/anchors", ".pem", "update-ca-certificates", "update-ca-certificates", "update-ca-certificates --fresh"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, r := newFake(t, "linux", c.folder), root(t)
			m.programs[c.program] = nil
			if err := m.Install(t.Context(), r, "/kept.pem"); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(m.Prefix, c.folder, "1bit-"+r.Fingerprint()[:16]+c.ending)
			if b, err := os.ReadFile(file); err != nil || string(b) != string(r.PEM()) {
				t.Errorf("%v", err)
			}
			if err := m.Remove(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
				t.Error("the file is still there")
			}
			if err := m.Remove(t.Context(), r); err != nil {
				t.Errorf("removing again: %v", err)
			}
			if d := cmp.Diff([]string{c.install, c.remove}, m.ran); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestInstallForBrowsers(t *testing.T) {
	m, r := newFake(t, "linux"), root(t)
	m.programs["certutil"] = nil
	if err := m.Install(t.Context(), r, "/kept.pem"); err == nil || !strings.Contains(err.Error(), "by hand") {
		t.Errorf("an unknown system: %v", err)
	}
	db := filepath.Join(m.Home, ".pki", "nssdb")
	name := "1bit-" + r.Fingerprint()[:16]
	want := []string{
		"certutil -d sql:" + db + " -N --empty-password",
		"certutil -d sql:" + db + " -A -t C,, -n " + name + " -i /kept.pem",
	}
	if d := cmp.Diff(want, m.ran); d != "" {
		t.Error(d)
	}
	if err := os.WriteFile(filepath.Join(db, "cert9.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m.ran = nil
	m.Install(t.Context(), r, "/kept.pem")
	if d := cmp.Diff(want[1:], m.ran); d != "" {
		t.Error("an old database is made anew:", d)
	}
	m.ran = nil
	if err := m.Remove(t.Context(), r); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff([]string{"certutil -d sql:" + db + " -L -n " + name, "certutil -d sql:" + db + " -D -n " + name}, m.ran); d != "" {
		t.Error(d)
	}
}

func TestInstallElsewhere(t *testing.T) {
	r := root(t)
	for system, want := range map[string][]string{
		"darwin": {
			"security add-trusted-cert -r trustRoot -k HOME/Library/Keychains/login.keychain-db /kept.pem",
			"security delete-certificate -t -Z " + strings.ToUpper(r.Fingerprint()) + " HOME/Library/Keychains/login.keychain-db",
		},
		"windows": {"certutil -user -f -addstore Root /kept.pem", "certutil -user -delstore Root abc"},
	} {
		m := newFake(t, system)
		if err := errors.Join(m.Install(t.Context(), r, "/kept.pem"), m.Remove(t.Context(), r)); err != nil {
			t.Error(err)
		}
		for i := range m.ran {
			m.ran[i] = strings.ReplaceAll(m.ran[i], m.Home, "HOME")
		}
		if d := cmp.Diff(want, m.ran); d != "" {
			t.Errorf("%s: %s", system, d)
		}
	}
}

func TestInstallSaysWhatFails(t *testing.T) {
	m, r := newFake(t, "linux", "/usr/local/share/ca-certificates"), root(t)
	m.programs["update-ca-certificates"] = fmt.Errorf("out of order")
	m.programs["certutil"] = nil
	if err := m.Install(t.Context(), r, "/kept.pem"); err == nil || !strings.Contains(err.Error(), "out of order") {
		t.Errorf("%v", err)
	}
	if last := m.ran[len(m.ran)-1]; !strings.HasPrefix(last, "certutil") {
		t.Errorf("browsers were left out: %s was last", last)
	}
}

func TestEnvironment(t *testing.T) {
	r := root(t)
	system := "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
	for _, c := range []struct {
		name, os, have string
		want           []string // PREFIX and BESIDE stand for folders
		beside         string
	}{
		{"root is in the system's file", "linux", system + string(r.PEM()), []string{
			"export NODE_EXTRA_CA_CERTS='/kept.pem'",
			"export SSL_CERT_FILE='PREFIX/etc/ssl/certs/ca-certificates.crt'",
			"export REQUESTS_CA_BUNDLE='PREFIX/etc/ssl/certs/ca-certificates.crt'",
		}, ""},
		{"root is not in it", "linux", system, []string{
			"export NODE_EXTRA_CA_CERTS='/kept.pem'", "export SSL_CERT_FILE='BESIDE'", "export REQUESTS_CA_BUNDLE='BESIDE'",
		}, system + string(r.PEM())},
		{"no file", "windows", "", []string{
			"$env:NODE_EXTRA_CA_CERTS = '/kept.pem'", "$env:SSL_CERT_FILE = '/kept.pem'", "$env:REQUESTS_CA_BUNDLE = '/kept.pem'",
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newFake(t, c.os, "/etc/ssl/certs")
			if c.have != "" {
				if err := os.WriteFile(filepath.Join(m.Prefix, "/etc/ssl/certs/ca-certificates.crt"), []byte(c.have), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			beside := filepath.Join(m.Home, "it's.pem")
			got, err := m.Environment(r, "/kept.pem", beside)
			if err != nil {
				t.Fatal(err)
			}
			for i := range got {
				got[i] = strings.ReplaceAll(strings.ReplaceAll(got[i], m.Prefix, "PREFIX"), strings.ReplaceAll(beside, "'", `'\''`), "BESIDE")
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
			b, _ := os.ReadFile(beside)
			if d := cmp.Diff(c.beside, string(b)); d != "" {
				t.Error(d)
			}
			if len(m.ran) > 0 {
				t.Errorf("something ran: %v", m.ran)
			}
		})
	}
}

func TestFileName(t *testing.T) {
	for host, want := range map[string]string{
		"box.local": "box.local.pem", "Box.local:8080": "box.local_8080.pem", "192.168.1.5": "192.168.1.5.pem",
		"[fe80::1]:80": "fe80__1_80.pem", "": "", "..": "", "../x": "", "a/b": "", "a\\b": "", "käse": "",
	} {
		if got, err := trust.FileName(host); got != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q, %v", host, got, err)
		}
	}
}
