// Package trust puts the root certificate of a box into the stores of this machine, and takes it out again.
package trust

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Machine is a computer whose stores are changed. The zero value of a field is this computer's.
type Machine struct {
	System string // as GOOS names it
	Prefix string // before the paths of the system, for tests; empty otherwise
	Home   string // of the person

	Look func(program string) (path string, err error)                   // finds a program
	Run  func(ctx context.Context, program string, args ...string) error // runs it
	Say  func(line string)                                               // hears each step before it is done
}

// ThisMachine is the computer that this runs on. Each step is said before it is done.
func ThisMachine(say func(line string)) (*Machine, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, fmt.Errorf("finding the home folder: %w", err)
	}
	return &Machine{System: runtime.GOOS, Home: home, Look: exec.LookPath, Run: run, Say: say}, nil
}

// run runs a program and puts what it said into the error.
func run(ctx context.Context, program string, args ...string) error {
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("running %s: %w: %s", program, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Root is a root certificate of a box.
type Root struct {
	Host string // the box, as the person calls it
	Cert *x509.Certificate
}

// Fingerprint returns the SHA-256 in lower-case hex.
func (r Root) Fingerprint() string {
	sum := sha256.Sum256(r.Cert.Raw)
	return hex.EncodeToString(sum[:])
}

// PEM returns the certificate for files.
func (r Root) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Cert.Raw})
}

// label names the root in stores that want a name. Two roots never share one.
func (r Root) label() string { return "1bit-" + r.Fingerprint()[:16] }

// anchor is where a system keeps further roots, and what must run after a change.
type anchor struct {
	folder, ending string
	update         []string
}

// anchors are those of the Linux distributions, in the order in which they are looked for.
func anchors() []anchor {
	return []anchor{
		{"/usr/local/share/ca-certificates", ".crt", []string{"update-ca-certificates"}},           // Debian, Ubuntu, Alpine
		{"/etc/pki/ca-trust/source/anchors", ".pem", []string{"update-ca-trust", "extract"}},       // Fedora, RHEL
		{"/etc/ca-certificates/trust-source/anchors", ".crt", []string{"trust", "extract-compat"}}, // Arch
		{"/etc/pki/trust/anchors", ".pem", []string{"update-ca-certificates"}},                     // openSUSE
	}
}

// ErrPermission says that the system's store needs an administrator.
var ErrPermission = errors.New("changing the system's certificates needs an administrator")

// Install makes the system, and Chromium on Linux, trust a root. file holds it in PEM and stays there. What fails does
// not keep the rest from being done.
func (m *Machine) Install(ctx context.Context, r Root, file string) error {
	switch m.System {
	case "darwin":
		return m.step(ctx, "security", "add-trusted-cert", "-r", "trustRoot", "-k", m.keychain(), file)
	case "windows":
		return m.step(ctx, "certutil", "-user", "-f", "-addstore", "Root", file)
	}
	return errors.Join(m.anchor(ctx, r), m.browsers(ctx, r, file))
}

// Remove takes a root out of what Install put it into. A root that is not there is not an error.
func (m *Machine) Remove(ctx context.Context, r Root) error {
	switch m.System {
	case "darwin":
		return m.step(ctx, "security", "delete-certificate", "-t", "-Z", strings.ToUpper(r.Fingerprint()), m.keychain())
	case "windows":
		return m.step(ctx, "certutil", "-user", "-delstore", "Root", r.Cert.SerialNumber.Text(16))
	}
	return errors.Join(m.unanchor(ctx, r), m.forget(ctx, r))
}

func (m *Machine) keychain() string {
	return filepath.Join(m.Home, "Library", "Keychains", "login.keychain-db")
}

// step says what it runs, and runs it.
func (m *Machine) step(ctx context.Context, program string, args ...string) error {
	m.Say("running " + strings.Join(append([]string{program}, args...), " "))
	return m.Run(ctx, program, args...)
}

// found returns the anchor that this system has, or nil.
func (m *Machine) found() *anchor {
	for _, a := range anchors() {
		if info, err := os.Stat(m.Prefix + a.folder); err != nil || !info.IsDir() {
			continue
		}
		if m.has(a.update[0]) {
			return &a
		}
	}
	return nil
}

func (m *Machine) anchor(ctx context.Context, r Root) error {
	a := m.found()
	if a == nil {
		return errors.New("this system's store of certificates is not one that is known: install the root by hand")
	}
	path := m.Prefix + filepath.Join(a.folder, r.label()+a.ending)
	m.Say("writing " + path)
	if err := os.WriteFile(path, r.PEM(), 0o644); err != nil {
		return denied(err)
	}
	return m.step(ctx, a.update[0], a.update[1:]...)
}

func (m *Machine) unanchor(ctx context.Context, r Root) error {
	a := m.found()
	if a == nil {
		return nil
	}
	path := m.Prefix + filepath.Join(a.folder, r.label()+a.ending)
	if !exists(path) {
		return nil
	}
	m.Say("removing " + path)
	if err := os.Remove(path); err != nil {
		return denied(err)
	}
	args := a.update[1:]
	if a.update[0] == "update-ca-certificates" {
		args = append(slices.Clone(args), "--fresh") // else the link to the file stays
	}
	return m.step(ctx, a.update[0], args...)
}

func denied(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return ErrPermission
	}
	return err
}

// database is where Chromium on Linux keeps what a person trusts.
func (m *Machine) database() string { return filepath.Join(m.Home, ".pki", "nssdb") }

// has reports whether a program is there.
func (m *Machine) has(program string) bool {
	_, err := m.Look(program)
	return err == nil
}

// exists reports whether a file is there.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// browsers makes Chromium trust a root, if its tool is there.
func (m *Machine) browsers(ctx context.Context, r Root, file string) error {
	if !m.has("certutil") {
		m.Say("leaving browsers alone: certutil is not there (Debian has it in libnss3-tools, Fedora in nss-tools)")
		return nil
	}
	db := "sql:" + m.database()
	if !exists(filepath.Join(m.database(), "cert9.db")) {
		m.Say("making " + m.database())
		if err := os.MkdirAll(m.database(), 0o700); err != nil {
			return err
		}
		if err := m.step(ctx, "certutil", "-d", db, "-N", "--empty-password"); err != nil {
			return err
		}
	}
	return m.step(ctx, "certutil", "-d", db, "-A", "-t", "C,,", "-n", r.label(), "-i", file)
}

// forget makes Chromium trust a root no more.
func (m *Machine) forget(ctx context.Context, r Root) error {
	db := "sql:" + m.database()
	if !m.has("certutil") || !exists(filepath.Join(m.database(), "cert9.db")) {
		return nil
	}
	if listed := m.Run(ctx, "certutil", "-d", db, "-L", "-n", r.label()) == nil; !listed {
		return nil
	}
	return m.step(ctx, "certutil", "-d", db, "-D", "-n", r.label())
}

// FileName returns the name of a file for a box: its host, with nothing that means something in a path.
func FileName(host string) (string, error) {
	if h, p, err := net.SplitHostPort(host); err == nil {
		host = h + "_" + p
	}
	name := strings.ToLower(strings.ReplaceAll(host, ":", "_"))
	if name == "" || name[0] == '.' || strings.ContainsFunc(name, func(r rune) bool {
		return r != '.' && r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z')
	}) {
		return "", fmt.Errorf("%q is no name or address of a box", host)
	}
	return name + ".pem", nil
}
