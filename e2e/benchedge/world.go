package main

import (
	"crypto/tls"
	"crypto/x509"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"onebit/e2e/rig"
)

// world is everything that runs during the measurements.
type world struct {
	options
	dir      string
	commands []*exec.Cmd
	peers    []*peer

	box  *rig.Box
	idle float64 // MB
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
		rig.Stop(c)
	}
}

// start brings up the box, which starts the model server, and Caddy before the same server.
func (w *world) start() error {
	if err := w.startBox(); err != nil {
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

// startBox starts the box, and makes a key with quotas that are never reached.
func (w *world) startBox() (err error) {
	model := filepath.Join(w.dir, "bench.gguf")
	w.box, err = rig.StartBox(w.bin, w.dir, fmt.Sprintf("models: [{name: bench, file: %q, device: cpu, parallel: %d}, {name: vectors, file: %q, device: cpu, role: embedding}]\n",
		model, w.streams, model))
	if err != nil {
		return err
	}
	w.commands = append(w.commands, w.box.Cmd)
	p := &peer{name: "box", pid: w.box.Cmd.Process.Pid, url: w.box.URL, roots: w.box.Roots, version: rig.Output(w.bin, "version")}
	p.key, _, err = w.box.Key(`{"name":"bench","requests_per_minute":100000,"tokens_per_day":1000000000,"concurrency":10000}`)
	if err != nil {
		return err
	}
	time.Sleep(2 * time.Second)
	w.idle = resident(p.pid)
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
	port, err := rig.FreePort()
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
	log, err := os.Create(filepath.Join(w.dir, "caddy.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting Caddy: %w", err)
	}
	w.commands = append(w.commands, cmd)
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

// settings of a client's encryption.
func (p *peer) tls() *tls.Config { return &tls.Config{RootCAs: p.roots, MinVersion: tls.VersionTLS13} }
