package rig

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Box is `1bit appliance`, started and claimed.
type Box struct {
	Cmd       *exec.Cmd
	URL       string // without a slash at the end
	Roots     *x509.CertPool
	Listening time.Duration // from the start until it said where it is
	Socket    *http.Client  // the control plane, as the box itself
}

var (
	address = regexp.MustCompile(`1bit appliance: https://[^:]+:(\d+)`)
	code    = regexp.MustCompile(`code    ([A-Z0-9-]{35})`)
)

// StartBox starts a box with one model server's program, our own under another name, and claims it. Everything lies in dir,
// and so does the model bench.gguf; config is what its configuration has besides.
func StartBox(bin, dir, config string) (*Box, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	program, state := filepath.Join(dir, "llama-server"), filepath.Join(dir, "state")
	config += fmt.Sprintf("programs: {llama_server: %q}\nlog: {level: warn, requests: metadata}\ndiscovery: false\n", program)
	if err := errors.Join(os.Symlink(self, program), os.WriteFile(filepath.Join(dir, "bench.gguf"), EmptyModel(), 0o600),
		os.Mkdir(state, 0o700), os.WriteFile(filepath.Join(state, "1bit.yaml"), []byte(config), 0o600)); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "box.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	b := &Box{Cmd: exec.Command(bin, "appliance", "--state", state, "--host", "127.0.0.1", "--port", "0", "--http-port", "-1")}
	b.Cmd.Stdout, b.Cmd.Stderr = log, log
	begin := time.Now()
	if err := b.Cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the box: %w", err)
	}
	if err := b.claim(begin, state, log.Name()); err != nil {
		Stop(b.Cmd)
		return nil, err
	}
	return b, nil
}

// Socket is a client of the control plane of the box with that state directory, as the box itself.
func Socket(state string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(state, "admin.sock"))
	}}}
}

// claim waits until the box says where it is, and claims it.
func (b *Box) claim(begin time.Time, state, log string) error {
	var said []byte
	for end := begin.Add(time.Minute); !address.Match(said) || !code.Match(said); time.Sleep(2 * time.Millisecond) {
		var err error
		if said, err = os.ReadFile(log); err != nil {
			return err
		}
		if b.Listening == 0 && address.Match(said) {
			b.Listening = time.Since(begin)
		}
		if time.Now().After(end) {
			return fmt.Errorf("the box did not come up:\n%s", said)
		}
	}
	b.URL = "https://127.0.0.1:" + string(address.FindSubmatch(said)[1])
	b.Socket = Socket(state)
	var certificate struct{ Root string }
	if err := b.Admin("GET", "/certificate", nil, &certificate); err != nil {
		return err
	}
	b.Roots = x509.NewCertPool()
	b.Roots.AppendCertsFromPEM([]byte(certificate.Root))
	claim := fmt.Sprintf(`{"code":%q,"name":"root","password":"correct horse battery"}`, code.FindSubmatch(said)[1])
	r, err := http.NewRequest(http.MethodPost, b.URL+"/claim", strings.NewReader(claim))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	t := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: b.Roots, MinVersion: tls.VersionTLS13}}
	defer t.CloseIdleConnections()
	return Send(&http.Client{Transport: t}, r, nil)
}

// Key makes a key with a name and quotas.
func (b *Box) Key(wish string) (secret, id string, err error) {
	var made struct{ Secret, ID string }
	err = b.Admin("POST", "/keys", strings.NewReader(wish), &made)
	return made.Secret, made.ID, err
}

// Admin calls the control plane with JSON.
func (b *Box) Admin(method, path string, body io.Reader, into any) error {
	r, err := http.NewRequest(method, "http://box/admin/v1"+path, body)
	if err != nil {
		return err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	return Send(b.Socket, r, into)
}

// Send reads an answer in JSON; into may be nil.
func Send(c *http.Client, r *http.Request, into any) error {
	res, err := c.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %d %s", r.Method, r.URL.Path, res.StatusCode, text)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}
