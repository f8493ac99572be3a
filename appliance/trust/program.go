package trust

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// bundles are where systems keep all roots in one file.
func bundles() []string {
	return []string{
		"/etc/ssl/certs/ca-certificates.crt", // Debian, Arch
		"/etc/pki/tls/certs/ca-bundle.crt",   // Fedora
		"/etc/ssl/ca-bundle.pem",             // openSUSE
		"/etc/ssl/cert.pem",                  // macOS, Alpine
	}
}

// Environment returns the lines that make programs in a shell trust a root. Node adds file to its own roots. Python
// takes one file instead of all others: the system's, when the root is in it; else beside is written, with the system's
// roots and this one.
func (m *Machine) Environment(r Root, file, beside string) ([]string, error) {
	all, err := m.bundle(r, file, beside)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, v := range [][2]string{{"NODE_EXTRA_CA_CERTS", file}, {"SSL_CERT_FILE", all}, {"REQUESTS_CA_BUNDLE", all}} {
		if m.System == "windows" {
			out = append(out, fmt.Sprintf("$env:%s = '%s'", v[0], strings.ReplaceAll(v[1], "'", "''")))
		} else {
			out = append(out, fmt.Sprintf("export %s='%s'", v[0], strings.ReplaceAll(v[1], "'", `'\''`)))
		}
	}
	return out, nil
}

// bundle returns a file with the system's roots and this one.
func (m *Machine) bundle(r Root, file, beside string) (string, error) {
	own := bytes.TrimSpace(r.PEM())
	for _, path := range bundles() {
		b, err := os.ReadFile(m.Prefix + path)
		if err != nil {
			continue
		}
		if bytes.Contains(bytes.ReplaceAll(b, []byte("\r\n"), []byte("\n")), own) {
			return m.Prefix + path, nil
		}
		m.Say("writing " + beside)
		all := append(append(bytes.TrimSpace(b), '\n'), r.PEM()...)
		if err := os.WriteFile(beside, all, 0o644); err != nil {
			return "", fmt.Errorf("writing roots for Python: %w", err)
		}
		return beside, nil
	}
	m.Say("this system has no file with all roots: Python programs will trust this root alone")
	return file, nil
}
