package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"onebit/appliance/admin"
	"onebit/appliance/config"
	"onebit/appliance/doctor"
)

const supportUsage = `usage: 1bit support [options]

Writes what somebody needs who is to find out what is wrong with a box: version, configuration, status, models, the
doctor's report, metrics, the last lines of the log. Keys, passwords, prompts, answers and certificates are not in it;
names of people are replaced by numbers that say nothing. Look at it before you send it: it is a plain tar.gz.

  --out FILE     where to (1bit-support-TIME.tar.gz here)
  --socket PATH  the box's socket ($ONEBIT_SOCKET, else admin.sock in the state directory)
  --config FILE  the configuration, for a box that does not run
  --state DIR    the state directory, for a box that does not run
`

// support is `1bit support`.
func (p program) support(ctx context.Context, args []string) int {
	return p.runAct(ctx, "support", supportUsage, writeSupport, args)
}

// supportLines is how many lines of the log a bundle has.
const supportLines = 2000

// writeSupport makes the bundle and says what is in it.
func writeSupport(ctx context.Context, p program, args []string) error {
	c := newCommandLine("support")
	out := c.String("out", "1bit-support-"+time.Now().Format("20060102-150405")+".tar.gz", "")
	var o boxOptions
	c.StringVar(&o.file, "config", "", "")
	c.StringVar(&o.state, "state", "", "")
	l, err := c.open(args, 0, 0)
	if err != nil {
		return err
	}
	b := newBundle()
	b.text("version.txt", fmt.Sprintf("1bit %s\n%s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH))
	if err := b.fromBox(ctx, l); err != nil {
		b.text("box.txt", "the box was not asked: "+err.Error()+"\n")
		fmt.Fprintf(p.stderr, "note: %v\n", err)
		b.fromFile(o)
	}
	if machine, err := thisBox(); err == nil {
		b.json("doctor.json", doctor.Examine(ctx, machine))
	}
	if err := b.write(*out); err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "%s holds\n", *out)
	for _, name := range sortedKeys(b.files) {
		fmt.Fprintf(p.stdout, "  %-14s %8d bytes\n", name, len(b.files[name]))
	}
	fmt.Fprintln(p.stdout, "No keys, passwords, prompts or answers are in it. It names models and files; look at it before you send it.")
	return nil
}

// bundle is what will be written, by file name.
type bundle struct {
	files map[string][]byte
	clean cleaner
}

func newBundle() *bundle { return &bundle{files: map[string][]byte{}, clean: newCleaner()} }

func (b *bundle) text(name, text string) { b.files[name] = []byte(text) }

func (b *bundle) json(name string, v any) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		text = []byte(err.Error())
	}
	b.files[name] = append(text, '\n')
}

// fromBox asks the running box. Who its people are comes first, so that their names can be taken out of the rest.
func (b *bundle) fromBox(ctx context.Context, l *local) error {
	var all struct{ People []admin.Person }
	if err := l.call(ctx, "GET", "/people", nil, &all); err != nil {
		return err
	}
	for _, p := range all.People {
		b.clean.hide(p.Name)
	}
	var status admin.Status
	if err := l.call(ctx, "GET", "/status", nil, &status); err != nil {
		return err
	}
	b.json("models.json", status.Models)
	status.Models = nil
	b.json("status.json", status)
	var settings struct{ Settings []admin.Setting }
	if err := l.call(ctx, "GET", "/settings", nil, &settings); err != nil {
		return err
	}
	var text strings.Builder
	for _, s := range settings.Settings {
		fmt.Fprintf(&text, "%s: %s  # %s\n", s.Name, s.Value, s.Origin)
	}
	b.text("config.txt", text.String())
	var log struct{ Lines []admin.LogLine }
	if err := l.call(ctx, "GET", fmt.Sprintf("/logs?limit=%d", supportLines), nil, &log); err != nil {
		return err
	}
	text.Reset()
	for _, line := range log.Lines {
		text.WriteString(logText(line) + "\n")
	}
	b.text("log.txt", text.String())
	figures, err := l.metrics(ctx)
	b.files["metrics.txt"] = figures
	return err
}

// fromFile shows the configuration of a box that does not run.
func (b *bundle) fromFile(o boxOptions) {
	if o.state == "" {
		o.state, _ = stateDir(os.Getenv) // without one there is no file either
	}
	box, origins, err := o.read(nil)
	if err != nil {
		b.text("config.txt", "the configuration cannot be read: "+err.Error()+"\n")
		return
	}
	b.text("config.txt", config.Print(box, origins))
}

// write writes the cleaned files. Nobody else may read them.
func (b *bundle) write(path string) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("writing the bundle: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	z := gzip.NewWriter(f)
	t := tar.NewWriter(z)
	for _, name := range sortedKeys(b.files) {
		text := b.clean.clean(b.files[name])
		b.files[name] = text
		if err := t.WriteHeader(&tar.Header{Name: "1bit-support/" + name, Mode: 0o600, Size: int64(len(text)), ModTime: time.Now()}); err != nil {
			return fmt.Errorf("writing the bundle: %w", err)
		}
		if _, err := io.Copy(t, bytes.NewReader(text)); err != nil {
			return fmt.Errorf("writing the bundle: %w", err)
		}
	}
	if err := errors.Join(t.Close(), z.Close()); err != nil {
		return fmt.Errorf("writing the bundle: %w", err)
	}
	return nil
}

// cleaner takes out what must not leave the house: names of people, and as a second net whatever looks like a secret.
type cleaner struct {
	salt  []byte
	names []string
}

func newCleaner() cleaner {
	salt := make([]byte, 32)
	rand.Read(salt) // never fails: the program ends where there is no randomness
	return cleaner{salt: salt}
}

// hide makes a name one that is replaced.
func (c *cleaner) hide(name string) {
	if name = strings.TrimSpace(name); name != "" {
		c.names = append(c.names, name)
	}
}

// secrets are the forms of what is secret here.
var secrets = []*regexp.Regexp{
	regexp.MustCompile(`1b_[a-z2-7]{16,}`),                                                     // keys
	regexp.MustCompile(`(?i)\bbearer +[^\s"]+`),                                                // whoever's keys
	regexp.MustCompile(`\b(?:sk|hf)[-_][A-Za-z0-9_-]{16,}`),                                    // those of others
	regexp.MustCompile(`(?i)AGE-SECRET-KEY-[0-9A-Z]+`),                                         // of backups
	regexp.MustCompile(`\b[A-Z0-9]{5}(?:-[A-Z0-9]{5}){5}\b`),                                   // claim codes, invites, recovery
	regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*-----|$)`), // of certificates
	regexp.MustCompile(`[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+`),                  // addresses of mail
}

// clean returns a text without them. The same name is the same number throughout one bundle, and another in the next.
func (c cleaner) clean(text []byte) []byte {
	for _, form := range secrets {
		text = form.ReplaceAll(text, []byte("(removed)"))
	}
	longest := slices.Clone(c.names) // one name may be part of another
	slices.SortFunc(longest, func(a, b string) int { return len(b) - len(a) })
	for _, name := range longest {
		mac := hmac.New(sha256.New, c.salt)
		mac.Write([]byte(strings.ToLower(name)))
		number := []byte("person-" + hex.EncodeToString(mac.Sum(nil)[:4]))
		whole := regexp.MustCompile(`(?i)(^|[^\pL\pN_])` + regexp.QuoteMeta(name) + `($|[^\pL\pN_])`)
		for range 2 { // two that stand side by side share what is between them
			text = whole.ReplaceAll(text, slices.Concat([]byte("${1}"), number, []byte("${2}")))
		}
	}
	return text
}

// sortedKeys are the keys of a map in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
