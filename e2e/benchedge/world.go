package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"debug/buildinfo"
	"encoding/binary"
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
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// world is everything that runs during the measurements.
type world struct {
	options
	dir      string
	commands []*exec.Cmd
	peers    []*peer

	box       int // pid
	listening time.Duration
	idle      float64 // MB
}

// peer is one way to the model server.
type peer struct {
	name    string
	version string
	url     string // without a slash at the end
	plain   bool   // it speaks HTTP/1.1 without encryption only
	pid     int    // 0 for the server itself
	key     string
	roots   *x509.CertPool
}

func (w *world) stop() {
	for _, c := range slices.Backward(w.commands) {
		_ = c.Process.Signal(syscall.SIGTERM) // it may have ended
		t := time.AfterFunc(10*time.Second, func() { _ = c.Process.Kill() })
		_ = c.Wait()
		t.Stop()
	}
}

// start brings up the box, which starts the model server, and Caddy before the same server.
func (w *world) start() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program, model := filepath.Join(w.dir, "llama-server"), filepath.Join(w.dir, "bench.gguf")
	state := filepath.Join(w.dir, "state")
	config := fmt.Sprintf("models: [{name: bench, file: %q, device: cpu, parallel: %d}, {name: vectors, file: %q, device: cpu, role: embedding}]\nprograms: {llama_server: %q}\nlog: {level: warn, requests: metadata}\ndiscovery: false\n",
		model, w.streams, model, program)
	err = errors.Join(os.Symlink(self, program), os.WriteFile(model, emptyModel(), 0o600), os.Mkdir(state, 0o700),
		os.WriteFile(filepath.Join(state, "1bit.yaml"), []byte(config), 0o600))
	if err != nil {
		return err
	}
	if err := w.startBox(state); err != nil {
		return err
	}
	ours := w.peers[0]
	client := ours.client("h2", 1)
	if _, err := ours.ask(client, chatBody); err != nil { // it loads the model
		return fmt.Errorf("the first request to the box: %w", err)
	}
	port, err := w.modelPort()
	if err != nil {
		return err
	}
	backend := "127.0.0.1:" + port
	w.peers = append(w.peers, &peer{name: "direct", version: "the server itself, HTTP/1.1 without encryption", url: "http://" + backend, plain: true})
	if w.caddy == "" {
		return errors.New("no -caddy given: there is nothing to measure beside")
	}
	return w.startCaddy(backend)
}

func (w *world) run(name string, cmd *exec.Cmd) (*os.File, error) {
	log, err := os.Create(filepath.Join(w.dir, name+".log"))
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	w.commands = append(w.commands, cmd)
	return log, nil
}

var (
	address = regexp.MustCompile(`1bit appliance: https://[^:]+:(\d+)`)
	code    = regexp.MustCompile(`code    ([A-Z0-9-]{35})`)
)

// startBox starts and claims the box, and makes a key with quotas that are never reached.
func (w *world) startBox(state string) error {
	cmd := exec.Command(w.bin, "appliance", "--state", state, "--host", "127.0.0.1", "--port", "0", "--http-port", "-1")
	begin := time.Now()
	log, err := w.run("box", cmd)
	if err != nil {
		return err
	}
	defer log.Close()
	w.box = cmd.Process.Pid
	var said []byte
	for end := begin.Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
		said, err = os.ReadFile(log.Name())
		if err != nil {
			return err
		}
		if w.listening == 0 && address.Match(said) {
			w.listening = time.Since(begin)
		}
		if address.Match(said) && code.Match(said) {
			break
		}
		if time.Now().After(end) {
			return fmt.Errorf("the box did not come up:\n%s", said)
		}
	}
	port := string(address.FindSubmatch(said)[1])
	socket := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(state, "admin.sock"))
	}}}
	var certificate struct{ Root string }
	if err := call(socket, "GET", "http://box/admin/v1/certificate", "", &certificate); err != nil {
		return err
	}
	p := &peer{name: "box", pid: w.box, url: "https://127.0.0.1:" + port, roots: x509.NewCertPool(), version: output(w.bin, "version")}
	p.roots.AppendCertsFromPEM([]byte(certificate.Root))
	claim := fmt.Sprintf(`{"code":%q,"name":"root","password":"correct horse battery"}`, code.FindSubmatch(said)[1])
	if err := call(p.client("h1", 1), "POST", p.url+"/claim", claim, nil); err != nil {
		return err
	}
	var key struct{ Secret string }
	if err := call(socket, "POST", "http://box/admin/v1/keys", `{"name":"bench","requests_per_minute":100000,"tokens_per_day":1000000000,"concurrency":10000}`, &key); err != nil {
		return err
	}
	p.key = key.Secret
	time.Sleep(2 * time.Second)
	w.idle = resident(w.box)
	w.peers = append(w.peers, p)
	return nil
}

// modelPort finds the port that the box gave its model server, which says it to nobody: its command line has it.
func (w *world) modelPort() (string, error) {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return "", err
	}
	for _, name := range lines {
		raw, err := os.ReadFile(name)
		if err != nil {
			continue // it has gone
		}
		words := strings.Split(string(raw), "\x00")
		i := slices.Index(words, "--port")
		if i > 0 && i+1 < len(words) && slices.Contains(words, filepath.Join(w.dir, "bench.gguf")) && strings.Contains(words[0], "llama-server") {
			return words[i+1], nil
		}
	}
	return "", errors.New("the model server was not found among the processes")
}

func (w *world) startCaddy(backend string) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	cert, key, roots, err := ownCertificate(w.dir)
	if err != nil {
		return err
	}
	file := filepath.Join(w.dir, "Caddyfile")
	text := fmt.Sprintf("{\n\tadmin off\n\tauto_https off\n}\nhttps://127.0.0.1:%d {\n\ttls %s %s\n\treverse_proxy %s {\n\t\tflush_interval -1\n\t}\n}\n", port, cert, key, backend)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	cmd := exec.Command(w.caddy, "run", "--config", file, "--adapter", "caddyfile")
	cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+w.dir, "XDG_CONFIG_HOME="+w.dir)
	log, err := w.run("caddy", cmd)
	if err != nil {
		return err
	}
	defer log.Close()
	p := &peer{name: "caddy", pid: cmd.Process.Pid, url: "https://127.0.0.1:" + strconv.Itoa(port), roots: roots}
	if info, err := buildinfo.ReadFile(w.caddy); err == nil {
		p.version = "Caddy " + info.Main.Version
	}
	client := p.client("h2", 1)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if _, err = p.ask(client, chatBody); err == nil {
			break
		}
		if time.Now().After(end) {
			said, _ := os.ReadFile(log.Name())
			return fmt.Errorf("starting Caddy: it did not come up: %w\n%s", err, said)
		}
	}
	w.peers = append(w.peers, p)
	return nil
}

// call sends JSON and reads JSON.
func call(c *http.Client, method, url, body string, into any) error {
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := c.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %d %s %w", method, url, res.StatusCode, text, err)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}

// spent is the processor time of a process, all its threads.
func spent(pid int) time.Duration {
	if pid == 0 {
		return 0
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0
	}
	var total time.Duration
	for _, name := range threads {
		raw, err := os.ReadFile(name)
		if err != nil {
			continue // the thread has ended
		}
		if f := strings.Fields(string(raw)); len(f) > 0 {
			if ns, err := strconv.ParseInt(f[0], 10, 64); err == nil {
				total += time.Duration(ns)
			}
		}
	}
	return total
}

// resident is what a process holds in memory, in MB.
func resident(pid int) float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	if f := strings.Fields(rest); len(f) > 0 {
		if kib, err := strconv.Atoi(f[0]); err == nil {
			return float64(kib) * 1024 / 1e6
		}
	}
	return 0
}

// emptyModel is a GGUF file without tensors.
func emptyModel() []byte {
	var b bytes.Buffer
	text := func(v string) {
		_ = binary.Write(&b, binary.LittleEndian, uint64(len(v))) // a buffer takes everything
		b.WriteString(v)
	}
	b.WriteString("GGUF")
	_ = binary.Write(&b, binary.LittleEndian, []uint32{3, 0, 0, 1, 0}) // version, tensors, metadata
	text("general.architecture")
	_ = binary.Write(&b, binary.LittleEndian, uint32(8)) // a string
	text("qwen3")
	return b.Bytes()
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// output returns the first line that a program prints.
func output(name string, args ...string) string {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return err.Error()
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line
}

// settings of a client's encryption.
func (p *peer) tls() *tls.Config { return &tls.Config{RootCAs: p.roots, MinVersion: tls.VersionTLS13} }
