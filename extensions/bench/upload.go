package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// uploads times the way of a policy in a real box: upload, checks, compilation and dry run, then activation. Each upload is
// another module: a custom section tells them apart.
func (b *bencher) uploads() error {
	if b.o.ups == 0 {
		return nil
	}
	client, err := b.box()
	if err != nil {
		return fmt.Errorf("starting a box: %w", err)
	}
	fmt.Println()
	for _, name := range []string{"cheapest", "size"} {
		g, err := b.read(name)
		if err != nil {
			return err
		}
		var ready, active []time.Duration
		for n := range b.o.ups {
			tag := fmt.Sprintf("\x06number%c", 'a'+n)
			module := append(slices.Clone(g.module), append([]byte{0, byte(len(tag))}, tag...)...)
			from := time.Now()
			if err := push(client, module, g.manifest); err != nil {
				return err
			}
			ready = append(ready, time.Since(from))
			if err := post(client, "bindings/policy/activate", "application/json", strings.NewReader(fmt.Sprintf(`{"module":%q}`, hash(module))), ""); err != nil {
				return err
			}
			active = append(active, time.Since(from))
		}
		slices.Sort(ready)
		slices.Sort(active)
		fmt.Printf("%s (%d bytes): upload to ready %v, to active %v (medians of %d; slowest %v)\n", name, len(g.module),
			ready[len(ready)/2].Round(time.Millisecond), active[len(active)/2].Round(time.Millisecond), b.o.ups, active[len(active)-1].Round(time.Millisecond))
	}
	return nil
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// box starts one without models and returns a client of its socket.
func (b *bencher) box() (*http.Client, error) {
	state, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, err
	}
	b.later(func() { _ = os.RemoveAll(state) })
	cmd := exec.CommandContext(b.ctx, b.o.bin, "appliance", "--state", state, "--host", "127.0.0.1", "--port", "0", "--http-port", "0", "--set", "discovery=false")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	said, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = cmd.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	b.later(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(said)
	for lines.Scan() && !strings.Contains(lines.Text(), "1bit appliance: https://") {
	}
	go func() { _, _ = io.Copy(io.Discard, said) }()
	socket := filepath.Join(state, "admin.sock")
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}, nil
}

// push uploads a module and waits until it is ready.
func push(client *http.Client, module, manifest []byte) error {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for name, part := range map[string][]byte{"manifest": manifest, "module": module} {
		w, err := form.CreateFormField(name)
		if err != nil {
			return err
		}
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	if err := form.Close(); err != nil {
		return err
	}
	return post(client, "extensions", form.FormDataContentType(), &body, hash(module))
}

func post(client *http.Client, path, kind string, body io.Reader, hash string) error {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://box/admin/v1/"+path, body)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", kind)
	if hash != "" {
		r.Header.Set("X-1bit-Sha256", hash)
	}
	res, err := client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode >= 300 {
		err = fmt.Errorf("%s: %d %s", path, res.StatusCode, text)
	}
	return err
}
