package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"onebit/e2e/rig"
)

// patience is how long a server may take to start and to end.
const patience = 3 * time.Minute

// process is a program that is started and stopped.
type process struct {
	cmd  *exec.Cmd
	out  *bytes.Buffer
	done chan struct{}
}

func (p *process) run(ctx context.Context, bin string, args ...string) error {
	p.cmd, p.out, p.done = exec.CommandContext(ctx, bin, args...), &bytes.Buffer{}, make(chan struct{})
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	if err := p.cmd.Start(); err != nil {
		return err
	}
	go func(cmd *exec.Cmd, done chan struct{}) {
		_ = cmd.Wait() // what it said tells more
		close(done)
	}(p.cmd, p.done)
	return nil
}

// end asks the program to end, and kills it when it does not.
func (p *process) end() error {
	if p.cmd == nil {
		return nil
	}
	cmd := p.cmd
	p.cmd = nil
	_ = cmd.Process.Signal(os.Interrupt) // it may have ended already
	select {
	case <-p.done:
		return nil
	case <-time.After(patience):
		_ = cmd.Process.Kill()
		<-p.done
		return errors.New("it did not stop")
	}
}

// ready waits until a path answers 200.
func (p *process) ready(ctx context.Context, client *http.Client, url string) error {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		select {
		case <-p.done:
			p.cmd = nil
			return fmt.Errorf("it ended\n%s", p.out)
		default:
		}
		res, err := get(ctx, client, url)
		if err != nil {
			continue
		}
		_ = res.Body.Close()
		if res.StatusCode == http.StatusOK {
			return nil
		}
	}
	return fmt.Errorf("it is not ready\n%s", p.out)
}

// get asks a server for something.
func get(ctx context.Context, client *http.Client, url string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return client.Do(r)
}

// size is the context over all slots: a system prompt in each, what a template adds, and the turns.
func size(o options) string {
	return strconv.Itoa(o.slots * (o.tokens + o.turns*128 + 512))
}

// alone is the server by itself, as `1bit serve` has it.
type alone struct {
	o     options
	llama string
	process
	url string
}

func (a *alone) start(ctx context.Context) error {
	free, err := rig.FreePort()
	if err != nil {
		return err
	}
	port := strconv.Itoa(free)
	args := []string{"serve", "-m", a.o.model, "--alias", "small", "--device", "cpu", "--port", port, "--ctx-size", size(a.o), "--parallel", strconv.Itoa(a.o.slots)}
	if a.llama != "" {
		args = append(args, "--llama-server", filepath.Join(a.llama, "llama-server"))
	}
	a.url = "http://127.0.0.1:" + port
	if err := a.run(ctx, a.o.bin, args...); err != nil {
		return err
	}
	return a.ready(ctx, http.DefaultClient, a.url+"/health")
}

// systems makes the system prompts of all conversations, as long as the server's tokenizer says.
func (a *alone) systems(ctx context.Context) (all []string, err error) {
	if err := a.start(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.stop()) }()
	for i := range a.o.talks {
		text, err := rig.ProseOf(a.o.tokens, i, func(text string) (int, error) { return a.count(ctx, text) })
		if err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, nil
}

// count asks how many tokens a text has.
func (a *alone) count(ctx context.Context, text string) (int, error) {
	body, err := json.Marshal(map[string]string{"content": text})
	if err != nil {
		return 0, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+"/tokenize", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("/tokenize says %s", res.Status)
	}
	var said struct{ Tokens []json.RawMessage }
	err = json.NewDecoder(res.Body).Decode(&said)
	return len(said.Tokens), err
}

func (a *alone) stop() error                    { return a.end() }
func (a *alone) client() (*http.Client, string) { return http.DefaultClient, a.url }

// boxed is a box, reached by its own socket.
type boxed struct {
	o   options
	dir string
	process
	http *http.Client
	said string // of the index, at the end
}

func newBoxed(o options, llama string) (*boxed, error) {
	dir, err := os.MkdirTemp("", "benchcache")
	if err != nil {
		return nil, err
	}
	file, err := filepath.Abs(o.model)
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("discovery: false\nlisten: {host: 127.0.0.1, port: 0, http_port: -1}\nmodels: [{name: small, file: %q, device: cpu, ctx_size: %s, parallel: %d, preload: true}]\n",
		file, size(o), o.slots)
	if llama != "" {
		program, err := filepath.Abs(filepath.Join(llama, "llama-server"))
		if err != nil {
			return nil, err
		}
		text += fmt.Sprintf("programs: {llama_server: %q}\n", program)
	}
	if err := os.WriteFile(filepath.Join(dir, "1bit.yaml"), []byte(text), 0o600); err != nil {
		return nil, err
	}
	return &boxed{o: o, dir: dir, http: rig.Socket(dir)}, nil
}

func (b *boxed) start(ctx context.Context) error {
	if err := b.run(ctx, b.o.bin, "appliance", "--state", b.dir); err != nil {
		return err
	}
	return b.loaded(ctx)
}

// loaded waits until the model is in memory: what is measured is the prompt.
func (b *boxed) loaded(ctx context.Context) error {
	if err := b.ready(ctx, b.http, "http://box/health"); err != nil {
		return err
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var all struct{ Models []struct{ State string } }
		if err := b.get(ctx, "/admin/v1/models", &all); err == nil && len(all.Models) == 1 && all.Models[0].State == "loaded" {
			return nil
		}
	}
	return fmt.Errorf("its model is not loaded\n%s", b.out)
}

func (b *boxed) get(ctx context.Context, path string, into any) error {
	res, err := get(ctx, b.http, "http://box"+path)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	return json.NewDecoder(res.Body).Decode(into)
}

func (b *boxed) stop() error {
	if b.cmd == nil {
		return nil
	}
	var s struct {
		Expected int64 `json:"expected_tokens"`
		Saved    int64 `json:"saved_tokens"`
		Restores, Saves, Wrong, Bytes,
		Entries int64
	}
	if err := b.get(context.Background(), "/admin/v1/prompt-cache", &s); err == nil {
		b.said = fmt.Sprintf("since the last start the index expected %d tokens to be reused and got %d; restored %d states, saved %d; %d claims were wrong; %d files, %d MiB",
			s.Expected, s.Saved, s.Restores, s.Saves, s.Wrong, s.Entries, s.Bytes>>20)
	}
	b.http.CloseIdleConnections()
	return b.end()
}

func (b *boxed) client() (*http.Client, string) { return b.http, "http://box" }
func (b *boxed) remove()                        { _ = os.RemoveAll(b.dir) }
