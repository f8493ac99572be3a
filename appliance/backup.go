package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/term"

	"onebit/store"
)

const backupUsage = `usage: 1bit backup FILE [options]         an encrypted copy of the running box's state
       1bit backup verify FILE [options]  reads a whole copy and checks every hash in it
       1bit restore FILE [options]        puts a copy in place of the state of a box that does not run

A copy holds people, keys, history, settings and certificates, and names the models by their digests.

  --passphrase-file FILE  the first line of it locks or opens the copy; without one you are asked
  --recipient KEY         an age public key that the copy is locked for (backup)
  --identity FILE         a file with the age secret key that opens it (verify, restore)
  --with-authority        with the private key of the box's own root (backup)
  --state DIR             the box's state directory (verify, restore)
  --replace               set a state that is there aside instead of refusing (restore)
  --socket PATH           the running box's own socket (backup)
`

// copying is the command line of backup and restore.
type copying struct {
	verify, replace, authority                           bool
	file, passphrase, recipient, identity, state, socket string
}

// parseCopy reads the command line.
func parseCopy(args []string) (copying, error) {
	var c copying
	if len(args) > 0 && args[0] == "verify" {
		c.verify, args = true, args[1:]
	}
	values := map[string]*string{
		"--passphrase-file": &c.passphrase, "--recipient": &c.recipient, "--identity": &c.identity, "--state": &c.state, "--socket": &c.socket,
	}
	switches := map[string]*bool{"--with-authority": &c.authority, "--replace": &c.replace}
	for len(args) > 0 {
		name := args[0]
		value, takes := values[name]
		on, known := switches[name]
		switch {
		case name == "-h" || name == "--help":
			return c, errHelp
		case takes && (len(args) == 1 || args[1] == ""):
			return c, fmt.Errorf("%s needs a value", name)
		case takes:
			*value, args = args[1], args[1:]
		case known:
			*on = true
		case strings.HasPrefix(name, "-"):
			return c, fmt.Errorf("unknown option %s", name)
		case c.file != "":
			return c, fmt.Errorf("one file is enough: %s and %s", c.file, name)
		default:
			c.file = name
		}
		args = args[1:]
	}
	if c.file == "" {
		return c, errors.New("the name of a file is needed")
	}
	return c, nil
}

// backup is `1bit backup`.
func (p program) backup(ctx context.Context, args []string) int {
	c, err := parseCopy(args)
	if errors.Is(err, errHelp) {
		fmt.Fprint(p.stdout, backupUsage)
		return 0
	}
	if err == nil {
		ctx, stop := untilSignal(ctx)
		defer stop()
		if c.verify {
			err = p.verifyCopy(ctx, c)
		} else {
			err = p.makeCopy(ctx, c)
		}
	}
	if err != nil {
		return p.fail("backup", err)
	}
	return 0
}

// restoreCopy is `1bit restore`.
func (p program) restoreCopy(ctx context.Context, args []string) int {
	c, err := parseCopy(args)
	if errors.Is(err, errHelp) {
		fmt.Fprint(p.stdout, backupUsage)
		return 0
	}
	if err == nil {
		err = p.putBack(ctx, c)
	}
	if err != nil {
		return p.fail("restore", err)
	}
	return 0
}

// phrase is the passphrase: from a file, else from whoever sits there.
func (p program) phrase(c copying, twice bool) (string, error) {
	if c.passphrase != "" {
		text, err := os.ReadFile(c.passphrase)
		if err != nil {
			return "", fmt.Errorf("reading the passphrase: %w", err)
		}
		line, _, _ := strings.Cut(string(text), "\n")
		if line = strings.TrimRight(line, "\r"); line == "" {
			return "", fmt.Errorf("the first line of %s is empty", c.passphrase)
		}
		return line, nil
	}
	if !isTerminal(p.stdin) {
		return "", errors.New("there is no terminal to ask for the passphrase; give --passphrase-file FILE")
	}
	one, err := p.askSecret("passphrase: ")
	if err != nil || !twice {
		return one, err
	}
	two, err := p.askSecret("once more: ")
	if err == nil && one != two {
		err = errors.New("the two differ")
	}
	return one, err
}

// askSecret asks for a text that is not shown while it is typed.
func (p program) askSecret(question string) (string, error) {
	f, ok := p.stdin.(*os.File)
	if !ok {
		return "", errors.New("there is no terminal")
	}
	fmt.Fprint(p.stderr, question)
	b, err := term.ReadPassword(int(f.Fd()))
	fmt.Fprintln(p.stderr)
	return string(b), err
}

// makeCopy asks the running box for a copy. It gets its name only when it is whole.
func (p program) makeCopy(ctx context.Context, c copying) (err error) {
	in := struct {
		Passphrase string `json:"passphrase,omitempty"`
		Recipient  string `json:"recipient,omitempty"`
		Authority  bool   `json:"authority,omitempty"`
	}{Recipient: c.recipient, Authority: c.authority}
	if c.recipient == "" {
		if in.Passphrase, err = p.phrase(c, true); err != nil {
			return err
		}
	}
	l, err := newLocal(c.socket, os.Getenv)
	if err != nil {
		return err
	}
	l.client.Timeout = 0 // as long as it takes
	if _, err := os.Stat(c.file); err == nil {
		return fmt.Errorf("%s is there already", c.file)
	}
	partial := c.file + ".partial"
	out, err := os.OpenFile(partial, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(partial)
		}
	}()
	n, err := l.download(ctx, "/backup", in, out)
	if err = errors.Join(err, out.Sync(), out.Close()); err != nil {
		return err
	}
	if err := os.Rename(partial, c.file); err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "%s: %d bytes; `1bit backup verify %s` reads it back\n", c.file, n, c.file)
	return nil
}

// download posts JSON and writes what comes back, whole or with an error.
func (l *local) download(ctx context.Context, path string, in any, out io.Writer) (int64, error) {
	res, err := l.send(ctx, "POST", path, in)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return 0, readAnswer(res, nil)
	}
	n, err := io.Copy(out, res.Body)
	if err != nil {
		return n, fmt.Errorf("the copy broke off: %w", err)
	}
	return n, nil
}

// opened opens a copy with what unlocks it.
func (p program) opened(c copying) (*os.File, store.RestoreOptions, error) {
	o := store.RestoreOptions{Replace: c.replace}
	f, err := os.Open(c.file)
	if err != nil {
		return nil, o, err
	}
	if c.identity != "" {
		text, err := os.ReadFile(c.identity)
		if err != nil {
			return nil, o, errors.Join(err, f.Close())
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				o.Identities = append(o.Identities, line)
			}
		}
		return f, o, nil
	}
	if o.Passphrase, err = p.phrase(c, false); err != nil {
		return nil, o, errors.Join(err, f.Close())
	}
	return f, o, nil
}

// stateOf is the state directory that a command works on.
func stateOf(c copying) (string, error) {
	if c.state != "" {
		return c.state, nil
	}
	return stateDir(os.Getenv)
}

// verifyCopy reads a copy and says what is in it.
func (p program) verifyCopy(ctx context.Context, c copying) error {
	f, o, err := p.opened(c)
	if err != nil {
		return err
	}
	defer f.Close()
	dir, err := os.MkdirTemp("", "1bit-verify-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	m, err := store.VerifyBackup(ctx, dir, f, o)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "%s is whole: made %s, %s in the audit trail\n", c.file, m.Created.Local().Format(time.DateTime), counted(int(m.Audit), "line"))
	for _, model := range m.Models {
		fmt.Fprintf(p.stdout, "  model %s %s\n", model.Name, model.Digest)
	}
	return nil
}

// putBack replaces the state of a box that does not run.
func (p program) putBack(ctx context.Context, c copying) error {
	dir, err := stateOf(c)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, o, err := p.opened(c)
	if err != nil {
		return err
	}
	defer f.Close()
	done, err := store.Restore(ctx, dir, f, o)
	switch {
	case errors.Is(err, store.ErrLocked):
		return fmt.Errorf("a box runs on %s: stop it first", dir)
	case errors.Is(err, store.ErrConflict):
		return fmt.Errorf("there is a state in %s already; --replace sets it aside", dir)
	case err != nil:
		return err
	}
	if err := putConfig(dir, done.Files); err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "restored the state of %s into %s\n", done.Manifest.Created.Local().Format(time.DateTime), dir)
	if done.SetAside != "" {
		fmt.Fprintf(p.stdout, "what was there is %s\n", filepath.Base(done.SetAside))
	}
	for _, m := range done.Manifest.Models {
		fmt.Fprintf(p.stdout, "  model %s: `1bit model pull` obtains it again (%s)\n", m.Name, m.Digest)
	}
	return nil
}
