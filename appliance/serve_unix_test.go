//go:build unix

package main_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// running is a program that was started.
type running struct {
	t     *testing.T
	cmd   *exec.Cmd
	url   string
	lines *bufio.Reader // what it and its children write
	pipe  *os.File
	said  strings.Builder
}

// start runs `1bit serve` with an engine as told, and waits for its address.
func start(t *testing.T, engine string, args ...string) *running {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	// nothing here takes long; this only keeps a mistake from blocking for ever
	if err := r.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	p := &running{t: t, pipe: r, lines: bufio.NewReader(r)}
	p.cmd = exec.Command(os.Args[0], append([]string{"serve", "-m", model(t), "--port", "0"}, args...)...)
	p.cmd.Env = append(os.Environ(), stage+"="+engine)
	p.cmd.Stdout, p.cmd.Stderr = w, w
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		p.cmd.Wait()
	})
	p.url = regexp.MustCompile(`http://[0-9.:]+`).FindString(p.until("listening on"))
	return p
}

// until reads lines up to one that holds word.
func (p *running) until(word string) string {
	p.t.Helper()
	for {
		line, err := p.lines.ReadString('\n')
		p.said.WriteString(line)
		if strings.Contains(line, word) {
			return line
		}
		if err != nil {
			p.t.Fatalf("%v before %q; it said:\n%s", err, word, p.said.String())
		}
	}
}

// end waits for the program, and for everybody who holds its output.
func (p *running) end() (status int) {
	p.t.Helper()
	rest, err := io.ReadAll(p.lines)
	p.said.Write(rest)
	if err != nil {
		p.t.Errorf("somebody is left: %v", err)
	}
	p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

func (p *running) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// post sends a chat that tells the stand-in what to do.
func (p *running) post(word string, stream bool) (status int, body string) {
	p.t.Helper()
	b, err := json.Marshal(map[string]any{"messages": []map[string]string{{"role": "user", "content": "hi"}}, "standin": word, "stream": stream})
	if err != nil {
		p.t.Fatal(err)
	}
	res, err := http.Post(p.url+"/v1/chat/completions", "application/json", strings.NewReader(string(b)))
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Errorf("the answer breaks off: %v after %q", err, all)
	}
	return res.StatusCode, string(all)
}

func (p *running) get(path string) (status int, body string) {
	p.t.Helper()
	res, err := http.Get(p.url + path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return res.StatusCode, string(all)
}

func TestServe(t *testing.T) {
	p := start(t, "standin", "--alias", "smol", "--ctx-size", "2048", "--parallel", "2")
	p.until("ready after")
	p.until("To stop")
	said := p.said.String()
	for _, want := range []string{
		"address  " + p.url + "/v1\n", "model    smol\n", "device   cpu (auto: ", "context  512 tokens", "curl " + p.url + "/v1/chat/completions", `"max_tokens":200,"temperature":0}'`,
		"--host 127.0.0.1 --port ", "--alias smol -c 2048 -np 2\n",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("it did not say %q:\n%s", want, said)
		}
	}
	if status, body := p.get("/v1/models"); status != 200 || !strings.Contains(body, `"id":"smol"`) || !strings.Contains(body, `"device":"cpu"`) {
		t.Errorf("%d %s", status, body)
	}
	if status, body := p.post("", true); status != 200 || !strings.HasSuffix(body, "data: [DONE]\n\n") || !strings.Contains(body, `"model":"smol"`) {
		t.Errorf("%d %s", status, body)
	}
	p.signal(syscall.SIGTERM)
	if status := p.end(); status != 0 {
		t.Errorf("exit status %d after SIGTERM", status)
	}
}

func TestServeOutlivesItsChild(t *testing.T) {
	p := start(t, "standin")
	p.until("ready after")
	status, body := p.post("die_after", true)
	if status != 200 || strings.Count(body, "\n\n") != 3 || !strings.Contains(body, `data: {"error":{"message":"the backend went away`) {
		t.Errorf("a stream whose child died: %d %s", status, body)
	}
	if status, body := p.get("/health"); status != 503 && status != 200 {
		t.Errorf("health: %d %s", status, body)
	}
	if status, body := p.post("", false); status != 200 || !strings.Contains(body, "Paris") {
		t.Errorf("the next request: %d %s", status, body)
	}
	if status, body := p.post("die", false); status != 502 || !strings.Contains(body, `{"error":{"message":"the backend went away`) {
		t.Errorf("a request that its child dies of: %d %s", status, body)
	}
	if status, body := p.post("", true); status != 200 && status != 503 {
		t.Errorf("after three deaths: %d %s", status, body)
	}
	p.signal(syscall.SIGINT)
	if status := p.end(); status != 0 {
		t.Errorf("exit status %d after SIGINT", status)
	}
}

func TestServeWhileLoading(t *testing.T) {
	p := start(t, "loading")
	if status, body := p.get("/v1/health"); status != 503 || body != `{"status":"loading"}`+"\n" {
		t.Errorf("health: %d %s", status, body)
	}
	if status, body := p.post("", false); status != 503 || !strings.Contains(body, `"message":"model is loading"`) {
		t.Errorf("chat: %d %s", status, body)
	}
	p.signal(syscall.SIGTERM)
	if status := p.end(); status != 0 {
		t.Errorf("exit status %d after SIGTERM", status)
	}
}

func TestServeWithoutItsChild(t *testing.T) {
	p := start(t, "broken")
	if status := p.end(); status != 1 || !strings.Contains(p.said.String(), "1bit serve: the cpu backend did not become ready: it ended: exit status 1\n") {
		t.Errorf("exit status %d; it said:\n%s", status, p.said.String())
	}
	if !strings.Contains(p.said.String(), "the model is damaged") {
		t.Errorf("what the child said is lost:\n%s", p.said.String())
	}
}

func TestServeWarnsWithoutKey(t *testing.T) {
	for _, c := range []struct {
		args []string
		warn bool
	}{
		{[]string{"--host", "0.0.0.0"}, true},
		{[]string{"--host", "0.0.0.0", "--api-key", "s3cret"}, false},
		{nil, false},
	} {
		p := start(t, "standin", c.args...)
		p.until("ready after")
		if got := strings.Contains(p.said.String(), "warning: THERE IS NO KEY: whoever reaches this machine at port "); got != c.warn {
			t.Errorf("%q: warned %v; it said:\n%s", c.args, got, p.said.String())
		}
		p.signal(syscall.SIGTERM)
		if status := p.end(); status != 0 || strings.Contains(p.said.String(), "s3cret") {
			t.Errorf("%q: exit status %d; it said:\n%s", c.args, status, p.said.String())
		}
	}
}
