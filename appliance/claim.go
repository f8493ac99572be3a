package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"onebit/appliance/auth"
	"onebit/appliance/edge"
)

const claimUsage = `usage: 1bit claim [--code CODE] [--fingerprint F] [--name NAME] [--box-name NAME] [--tls MODE] URL

Makes a new box yours: you become its first admin. The box shows the code on its console. The code itself is not sent:
what is sent proves that you have it, and is good for the box with the root certificate that the box shows too, and for
no other. So nobody in between learns anything, and the box must prove that it knows the code before it is told more.

  --code CODE        asked for when it is not given, so that it stays out of the shell's history
  --fingerprint F    what the box shows: 64 hex digits, or the words; another root is refused before anything is sent
  --name NAME        your name; asked for when it is not given
  --box-name NAME    another name for the box, NAME.local
  --tls MODE         where its certificates come from: local, acme or files
  -h, --help         this text

The password is asked for, or read from standard input: the lines after the ones that are asked for as well. What is
printed to standard output is the recovery key, which is shown this once.
`

// claimOptions are the command line of `1bit claim`.
type claimOptions struct {
	code, fingerprint, name, boxName, tlsMode string
	box                                       *url.URL
}

func claimConfig(args []string) (claimOptions, error) {
	var o claimOptions
	c := newCommandLine("claim")
	c.StringVar(&o.code, "code", "", "")
	c.StringVar(&o.fingerprint, "fingerprint", "", "")
	c.StringVar(&o.name, "name", "", "")
	c.StringVar(&o.boxName, "box-name", "", "")
	c.StringVar(&o.tlsMode, "tls", "", "")
	if err := c.parse(args, 0, 1); err != nil {
		return o, err
	}
	if len(c.words) == 0 {
		return o, errors.New("give the box's address, as its console shows it: https://NAME or https://NAME:PORT")
	}
	address := c.words[0]
	if !strings.Contains(address, "://") {
		address = "https://" + address
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "https" {
		return o, errors.New("the box's address is its name, or https://NAME:PORT")
	}
	if o.code == "" {
		o.code = u.Fragment // the whole address off the console
	}
	o.box = &url.URL{Scheme: "https", Host: u.Host}
	return o, nil
}

// claim is `1bit claim`.
func (p program) claim(ctx context.Context, args []string) int {
	o, err := claimConfig(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(p.stdout, claimUsage)
		return 0
	}
	if err != nil {
		fmt.Fprintf(p.stderr, "1bit claim: %v\n%s", err, claimUsage)
		return 2
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	if err := p.claimBox(ctx, o); err != nil {
		return p.fail("claim", err)
	}
	return 0
}

// claimBox does what the options say.
func (p program) claimBox(ctx context.Context, o claimOptions) error {
	in := &asker{program: p, lines: bufio.NewReader(p.stdin)}
	text, err := in.ask("Code on the box's console: ", o.code)
	if err != nil {
		return err
	}
	code, err := auth.ParseCode(text)
	if err != nil {
		return err
	}
	box, root, err := reachBox(ctx, o, code)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.stderr, "1bit claim: the box knows the code; its root is %s\n", root)
	name, err := in.ask("Your name: ", o.name)
	if err != nil {
		return err
	}
	password, err := in.password()
	if err != nil {
		return err
	}
	var came struct {
		RecoveryKey string `json:"recovery_key"`
	}
	body := map[string]any{"proof": code.Proof(auth.ClientSide, root, nil), "name": name, "password": password}
	if o.boxName != "" {
		body["box_name"] = o.boxName
	}
	if o.tlsMode != "" {
		body["tls_mode"] = o.tlsMode
	}
	if err := askBox(ctx, box, "POST", o.box.JoinPath("claim"), body, &came); err != nil {
		return err
	}
	fmt.Fprintf(p.stderr, "1bit claim: the box is yours. Log in at %s\n1bit claim: your recovery key, shown this once; write it down and keep it away from the box:\n", o.box.JoinPath("login"))
	fmt.Fprintln(p.stdout, came.RecoveryKey)
	return nil
}

// claimState is how the claim stands, as the box says it.
type claimState struct {
	Claimed, Armed bool
	Root           string
	Proof          []byte
}

// reachBox connects to the box that knows the code, and returns a client that trusts it and nobody else. Until the box has
// proved itself, nothing that it says is believed and nothing is sent to it.
func reachBox(ctx context.Context, o claimOptions, code auth.Code) (*http.Client, auth.Fingerprint, error) {
	nonce := make([]byte, 32)
	rand.Read(nonce)
	ask := o.box.JoinPath("claim")
	ask.RawQuery = "nonce=" + hex.EncodeToString(nonce)
	var state claimState
	stranger := boxClient(&tls.Config{InsecureSkipVerify: true}) // its root is not known yet; the proof below decides
	if err := askBox(ctx, stranger, "GET", ask, nil, &state); err != nil {
		return nil, auth.Fingerprint{}, err
	}
	switch {
	case state.Claimed:
		return nil, auth.Fingerprint{}, errors.New("the box has been claimed already")
	case !state.Armed:
		return nil, auth.Fingerprint{}, errors.New("no code is good at the moment: restart the box, or run 1bit admin recover on it")
	}
	block, _ := pem.Decode([]byte(state.Root))
	if block == nil {
		return nil, auth.Fingerprint{}, errors.New("the box has no root certificate: claim it with a browser")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, auth.Fingerprint{}, fmt.Errorf("reading the box's root certificate: %w", err)
	}
	root := auth.Fingerprint(sha256.Sum256(block.Bytes))
	if o.fingerprint != "" {
		same, err := edge.SameFingerprint(o.fingerprint, hex.EncodeToString(root[:]))
		if err == nil && !same {
			err = fmt.Errorf("the root has the fingerprint %s: it is not the one given, so somebody may stand between you and the box", root)
		}
		if err != nil {
			return nil, auth.Fingerprint{}, err
		}
	}
	if !hmac.Equal(state.Proof, code.Proof(auth.BoxSide, root, nonce)) {
		return nil, auth.Fingerprint{}, errors.New("what answers there does not know this code: it is mistyped, or somebody stands between you and the box")
	}
	// the root is the box's: now the connection must be the root's
	trusted := x509.NewCertPool()
	trusted.AddCert(certificate)
	box := boxClient(&tls.Config{RootCAs: trusted})
	err = askBox(ctx, box, "GET", o.box.JoinPath("claim"), nil, &state)
	if _, foreign := errors.AsType[*tls.CertificateVerificationError](err); foreign {
		// a box with a public certificate is checked as any site is
		box = boxClient(&tls.Config{})
		err = askBox(ctx, box, "GET", o.box.JoinPath("claim"), nil, &state)
	}
	return box, root, err
}

// boxClient speaks with a box nearby: no proxy is between.
func boxClient(config *tls.Config) *http.Client {
	return &http.Client{
		Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func askBox(ctx context.Context, box *http.Client, method string, to *url.URL, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("writing the request: %w", err)
		}
		body = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, to.String(), body)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "application/json")
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := box.Do(r)
	if err != nil {
		return fmt.Errorf("asking the box: %w", err)
	}
	defer answer.Body.Close()
	return readAnswer(answer, out)
}

// asker asks a person, or reads what a program gives instead, line by line.
type asker struct {
	program
	lines *bufio.Reader
}

// ask returns what was given on the command line, or the next line.
func (a *asker) ask(question, given string) (string, error) {
	if given != "" {
		return given, nil
	}
	if isTerminal(a.stdin) {
		fmt.Fprint(a.stderr, question)
	}
	line, err := a.lines.ReadString('\n')
	if err != nil && (line == "" || !errors.Is(err, io.EOF)) {
		return "", errors.New("there is no more input: " + strings.ToLower(strings.TrimSuffix(question, ": ")) + " is missing")
	}
	return strings.TrimSpace(line), nil
}

// password asks twice, without showing what is typed; from a program it takes the next line once.
func (a *asker) password() (string, error) {
	f, ok := a.stdin.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		line, err := a.lines.ReadString('\n')
		if err != nil && (line == "" || !errors.Is(err, io.EOF)) {
			return "", errors.New("there is no more input: the password is missing")
		}
		return strings.TrimRight(line, "\r\n"), nil
	}
	var typed [2]string
	for i, question := range []string{fmt.Sprintf("Password, at least %d characters: ", auth.MinPassword), "The same again: "} {
		fmt.Fprint(a.stderr, question)
		b, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(a.stderr)
		if err != nil {
			return "", fmt.Errorf("reading the password: %w", err)
		}
		typed[i] = string(b)
	}
	if typed[0] != typed[1] {
		return "", errors.New("the two passwords differ: nothing was sent")
	}
	return typed[0], nil
}
