package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"onebit/appliance/edge"
	"onebit/appliance/trust"
)

const trustUsage = `usage: 1bit trust BOX [--fingerprint F] [--env | --remove]

Makes this computer trust a box: takes its root certificate over plain HTTP, compares the fingerprint, and puts it into
the system's store, and for Chromium into ~/.pki/nssdb where certutil is there. It says each step before it is done.

  BOX                the box's name, address, or the URL of its plain HTTP port (box.local, http://192.168.1.5:8080)
      --fingerprint  what the box shows: 64 hex digits, or the 16 words; without it you are asked to compare
      --env          install nothing: print what Python and Node programs need, for a shell's eval
      --remove       take the root out again; the box need not be there
  -h, --help         this text
`

// trustOptions are the command line of `1bit trust`.
type trustOptions struct {
	box, fingerprint string
	env, remove      bool
}

func trustConfig(args []string) (trustOptions, error) {
	var o trustOptions
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case a == "-h" || a == "--help":
			return o, errHelp
		case a == "--env":
			o.env = true
		case a == "--remove":
			o.remove = true
		case a == "--fingerprint":
			if i++; i == len(args) {
				return o, errors.New("--fingerprint needs a value")
			}
			o.fingerprint = args[i]
		case strings.HasPrefix(a, "-"):
			return o, fmt.Errorf("unknown option %s", a)
		case o.box != "":
			return o, fmt.Errorf("one box at a time: %s or %s", o.box, a)
		default:
			o.box = a
		}
	}
	switch {
	case o.box == "":
		return o, errors.New("which box? Give its name or address")
	case o.env && o.remove:
		return o, errors.New("--env and --remove exclude each other")
	}
	return o, nil
}

// trust is `1bit trust`.
func (p program) trust(ctx context.Context, args []string) int {
	o, err := trustConfig(args)
	if errors.Is(err, errHelp) {
		fmt.Fprint(p.stdout, trustUsage)
		return 0
	}
	if err != nil {
		fmt.Fprintf(p.stderr, "1bit trust: %v\n%s", err, trustUsage)
		return 2
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	m, err := trust.ThisMachine(func(line string) { fmt.Fprintf(p.stderr, "1bit trust: %s\n", line) })
	if err == nil {
		err = p.trustBox(ctx, m, o)
	}
	if errors.Is(err, trust.ErrPermission) {
		err = fmt.Errorf("%w: run it again with sudo", err)
	}
	if err != nil {
		return p.fail("trust", err)
	}
	return 0
}

// trustBox does what the options say.
func (p program) trustBox(ctx context.Context, m *trust.Machine, o trustOptions) error {
	address, err := plainURL(o.box)
	if err != nil {
		return err
	}
	file, err := rootFile(address.Host)
	if err != nil {
		return err
	}
	known, err := savedRoot(file, address.Host)
	if err != nil {
		return err
	}
	if o.remove {
		if known == nil {
			return fmt.Errorf("no root of %s was kept in %s", address.Host, filepath.Dir(file))
		}
		if err := m.Remove(ctx, *known); err != nil {
			return err
		}
		return errors.Join(os.Remove(file), ignoreAbsent(os.Remove(bundleFile(file))))
	}
	root, err := downloadRoot(ctx, address)
	if err != nil {
		return err
	}
	if known != nil && !known.Cert.Equal(root.Cert) {
		fmt.Fprintf(p.stderr, "1bit trust: the root of %s is another than before\n", address.Host)
		known = nil
	}
	if known == nil || o.fingerprint != "" {
		if err := p.compare(root, o.fingerprint); err != nil {
			return err
		}
	}
	if err := keepRoot(file, root); err != nil {
		return err
	}
	if o.env {
		lines, err := m.Environment(root, file, bundleFile(file))
		for _, l := range lines {
			fmt.Fprintln(p.stdout, l)
		}
		return err
	}
	if err := m.Install(ctx, root, file); err != nil {
		return err
	}
	fmt.Fprintf(p.stderr, "1bit trust: this computer trusts %s now; programs in Python and Node: see 1bit trust %s --env\n", address.Host, o.box)
	return nil
}

// compare asks whether the box shows what was downloaded, unless the person has given that already.
func (p program) compare(root trust.Root, given string) error {
	f := root.Fingerprint()
	if given != "" {
		same, err := edge.SameFingerprint(given, f)
		if err == nil && !same {
			err = fmt.Errorf("the fingerprint of this root is %s: it is not the one given, so somebody may stand between you and the box", f)
		}
		return err
	}
	if !isTerminal(p.stdin) {
		return errors.New("nobody is there to compare: give what the box shows with --fingerprint")
	}
	fmt.Fprintf(p.stderr, "\nThe root of %s has the fingerprint\n\n  %s\n  %s\n\nDoes the box itself show the same, on its screen or in its log? Type yes: ", root.Host, edge.Words(f), f)
	line, err := bufio.NewReader(p.stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if strings.ToLower(strings.TrimSpace(line)) != "yes" {
		return errors.New("not confirmed: nothing was changed")
	}
	return nil
}

// plainURL returns where a box's plain HTTP port is.
func plainURL(box string) (*url.URL, error) {
	if !strings.Contains(box, "://") {
		if strings.Count(box, ":") > 1 && !strings.HasPrefix(box, "[") {
			box = "[" + box + "]" // an IPv6 address
		}
		box = "http://" + box
	}
	u, err := url.Parse(box)
	switch {
	case err != nil || u.Host == "":
		return nil, fmt.Errorf("%q is no name or address of a box", box)
	case u.Scheme != "http":
		return nil, errors.New("the root comes over plain HTTP: give the box's name, or http://BOX:PORT")
	}
	return &url.URL{Scheme: "http", Host: u.Host}, nil
}

// downloadRoot takes a box's root. What comes proves nothing before it was compared.
func downloadRoot(ctx context.Context, address *url.URL) (trust.Root, error) {
	r := trust.Root{Host: address.Host}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, address.JoinPath("trust", "root.pem").String(), nil)
	if err != nil {
		return r, err
	}
	c := &http.Client{
		Timeout:       20 * time.Second,
		Transport:     &http.Transport{DisableKeepAlives: true}, // a box is near: no proxy is between
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	res, err := c.Do(q)
	if err != nil {
		return r, fmt.Errorf("asking for the root: %w", err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if err != nil {
		return r, fmt.Errorf("taking the root: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return r, fmt.Errorf("%s answered %s: is it the plain HTTP port of a box?", address.Host, res.Status)
	}
	if r.Cert, err = edge.ParseRoot(b); err != nil {
		return r, fmt.Errorf("what %s gave is refused: %w", address.Host, err)
	}
	return r, nil
}

// rootFile returns where the root of a box is kept.
func rootFile(host string) (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("finding a place for the root: %w", err)
	}
	name, err := trust.FileName(host)
	return filepath.Join(dir, "1bit", "roots", name), err
}

func bundleFile(file string) string { return strings.TrimSuffix(file, ".pem") + "-and-system.pem" }

// savedRoot reads a root that was kept, nil when there is none.
func savedRoot(file, host string) (*trust.Root, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the root that was kept: %w", err)
	}
	c, err := edge.ParseRoot(b)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	return &trust.Root{Host: host, Cert: c}, nil
}

// keepRoot keeps a root that was compared.
func keepRoot(file string, r trust.Root) error {
	if b, err := os.ReadFile(file); err == nil && bytes.Equal(b, r.PEM()) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("keeping the root: %w", err)
	}
	if err := os.WriteFile(file, r.PEM(), 0o644); err != nil {
		return fmt.Errorf("keeping the root: %w", err)
	}
	return nil
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
