//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"onebit/e2e/rig"
)

// errEvent is an error that a stream told its client.
var errEvent = errors.New("error event")

// server is a running `1bit serve`, or a box.
type server struct {
	cmd    *exec.Cmd
	url    string
	key    string        // of a box
	client *http.Client  // nil takes the plain one
	load   time.Duration // exec to /health 200
	log    *lastOutput
	done   chan struct{} // closed when the process has ended
}

// send sends a request, with the key when there is one.
func (s *server) send(req *http.Request) (*http.Response, error) {
	if s.key != "" {
		req.Header.Set("Authorization", "Bearer "+s.key)
	}
	if s.client != nil {
		return s.client.Do(req)
	}
	return http.DefaultClient.Do(req)
}

// lastOutput keeps the end of what a program printed.
type lastOutput struct {
	mu sync.Mutex
	b  []byte
}

func (w *lastOutput) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	const keep = 4000
	w.b = append(w.b, b...)
	if len(w.b) > keep {
		w.b = append([]byte(nil), w.b[len(w.b)-keep:]...)
	}
	return len(b), nil
}

func (w *lastOutput) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.b)
}

// start starts serve and waits until it is healthy.
func (t *trial) start(ctx context.Context) (*server, error) {
	port, err := rig.FreePort()
	if err != nil {
		return nil, err
	}
	args := []string{"serve", "--device", t.device, "-m", t.model, "--port", strconv.Itoa(port)}
	for name, value := range map[string]string{"--llama-server": t.llama, "--embed": t.embed} {
		if value != "" {
			args = append(args, name, value)
		}
	}
	if t.parallel > 0 {
		args = append(args, "--parallel", strconv.Itoa(t.parallel))
	}
	s := &server{
		cmd: exec.CommandContext(ctx, t.bin, args...), url: "http://127.0.0.1:" + strconv.Itoa(port),
		log: &lastOutput{}, done: make(chan struct{}),
	}
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	s.cmd.Cancel = func() error { return s.cmd.Process.Signal(syscall.SIGTERM) }
	begin := time.Now()
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = s.cmd.Wait() // how it ended does not matter, only that it did
		close(s.done)
	}()
	if err := s.healthy(ctx, t.startTime); err != nil {
		_, e := s.stop()
		return nil, errors.Join(err, e)
	}
	s.load = time.Since(begin)
	return s, nil
}

// healthy waits for /health to say 200.
func (s *server) healthy(ctx context.Context, limit time.Duration) error {
	for begin := time.Now(); time.Since(begin) < limit; {
		if r, _, err := s.get(ctx, "/health"); err == nil && r == http.StatusOK {
			return nil
		}
		select {
		case <-s.done:
			return fmt.Errorf("serve ended:\n%s", s.log)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return fmt.Errorf("not healthy after %v:\n%s", limit, s.log)
}

func (s *server) get(ctx context.Context, path string) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		return 0, nil, err
	}
	return s.do(req)
}

func (s *server) post(ctx context.Context, path string, v any) (status int, body []byte, err error) {
	b, err := json.Marshal(v)
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, bytes.NewReader(b))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return s.do(req)
}

func (s *server) do(req *http.Request) (status int, body []byte, err error) {
	r, err := s.send(req)
	if err != nil {
		return 0, nil, err
	}
	defer r.Body.Close()
	body, err = io.ReadAll(r.Body)
	return r.StatusCode, body, err
}

// stop ends serve as a user does, and as the system does when that is not enough.
func (s *server) stop() (took time.Duration, err error) {
	begin := time.Now()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		select {
		case <-s.done:
			return 0, nil // it has ended by itself
		default:
			return 0, err
		}
	}
	select {
	case <-s.done:
		return time.Since(begin), nil
	case <-time.After(20 * time.Second):
		err := s.cmd.Process.Kill()
		return 0, errors.Join(fmt.Errorf("serve did not end within 20 s:\n%s", s.log), err)
	}
}

// named checks that the list of models has the model's name and the device.
func (s *server) named(ctx context.Context, device, file string) (string, error) {
	status, body, err := s.get(ctx, "/v1/models")
	if err != nil {
		return "", err
	}
	var v struct {
		Data []struct {
			ID, Device string
			Why        string `json:"device_reason"`
		}
	}
	if err := json.Unmarshal(body, &v); err != nil || status != http.StatusOK || len(v.Data) == 0 {
		return "", fmt.Errorf("/v1/models: %d %.300s", status, body)
	}
	m := v.Data[0]
	if !strings.Contains(file, m.ID) && !strings.Contains(m.ID, strings.TrimSuffix(file, ".gguf")) {
		return "", fmt.Errorf("the model is called %q, not like the file %q", m.ID, file)
	}
	if device != "auto" && m.Device != device {
		return "", fmt.Errorf("the model is on %q", m.Device)
	}
	if device == "auto" && m.Device == "cpu" {
		return "", fmt.Errorf("auto took the processor: %s", m.Why)
	}
	return strings.TrimSpace(fmt.Sprintf("%s on %s %s", m.ID, m.Device, m.Why)), nil
}

// ask is a chat request of one message.
func ask(question string, tokens int, stream bool) map[string]any {
	return map[string]any{
		"messages":   []map[string]string{{"role": "user", "content": question}},
		"max_tokens": tokens, "temperature": 0, "stream": stream,
	}
}

// answered asks without streaming.
func (s *server) answered(ctx context.Context, question, expect string) (string, error) {
	status, body, err := s.post(ctx, "/v1/chat/completions", ask(question, 64, false))
	if err != nil {
		return "", err
	}
	var v struct {
		Choices []struct {
			Message struct {
				Content   string
				Reasoning string `json:"reasoning_content"`
			}
		}
		Usage struct {
			Tokens int `json:"completion_tokens"`
		}
	}
	if err := json.Unmarshal(body, &v); err != nil || status != http.StatusOK || len(v.Choices) == 0 {
		return "", fmt.Errorf("%d %.300s", status, body)
	}
	a := answer{text: v.Choices[0].Message.Reasoning + v.Choices[0].Message.Content, tokens: v.Usage.Tokens}
	if a.text == "" {
		return "", fmt.Errorf("an answer without text: %.300s", body)
	}
	return a.String(), a.right(expect)
}

// answer is what a client got.
type answer struct {
	text           string
	pieces, tokens int
	speed          float64 // tokens a second, by the server's own count
	first, whole   time.Duration
}

func (a answer) String() string {
	text := fmt.Sprintf("%.60q", a.text)
	if a.pieces == 0 {
		return fmt.Sprintf("%d tokens: %s", a.tokens, text)
	}
	return fmt.Sprintf("%d tokens in %d pieces, first after %.0f ms, %.1f t/s: %s", a.tokens, a.pieces, a.first.Seconds()*1e3, a.speed, text)
}

// right says whether the expected word is there.
func (a answer) right(expect string) error {
	if !strings.Contains(strings.ToLower(a.text), strings.ToLower(expect)) {
		return fmt.Errorf("no %q in the answer %.200q", expect, a.text)
	}
	return nil
}

// chunk is one event of a stream.
type chunk struct {
	Choices []struct {
		Delta struct {
			Content   string
			Reasoning string `json:"reasoning_content"`
		}
	}
	Usage *struct {
		Tokens int `json:"completion_tokens"`
	}
	Timings *struct {
		Speed float64 `json:"predicted_per_second"`
	}
	Error json.RawMessage
}

// stream asks and reads the events to the end.
func (s *server) stream(ctx context.Context, question string, tokens int) (answer, error) {
	return s.streamUntil(ctx, question, tokens, func(int) {})
}

// streamUntil is stream; seen is told how many pieces of text have come.
func (s *server) streamUntil(ctx context.Context, question string, tokens int, seen func(pieces int)) (answer, error) {
	var a answer
	v := ask(question, tokens, true)
	v["stream_options"] = map[string]bool{"include_usage": true}
	v["ignore_eos"] = tokens > 64
	b, err := json.Marshal(v)
	if err != nil {
		return a, err
	}
	begin := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/chat/completions", bytes.NewReader(b))
	if err != nil {
		return a, err
	}
	req.Header.Set("Content-Type", "application/json")
	r, err := s.send(req)
	if err != nil {
		return a, err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(r.Body, 300))
		return a, fmt.Errorf("%d %s", r.StatusCode, body)
	}
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			a.whole = time.Since(begin)
			return a, nil
		}
		if err := a.add([]byte(data), begin); err != nil {
			return a, err
		}
		seen(a.pieces)
	}
	return a, errors.Join(errors.New("the stream ended without [DONE]"), lines.Err())
}

// add takes one event in.
func (a *answer) add(data []byte, begin time.Time) error {
	var c chunk
	if err := json.Unmarshal(data, &c); err != nil {
		return fmt.Errorf("event %.200q: %w", data, err)
	}
	if len(c.Error) > 0 && string(c.Error) != "null" {
		return fmt.Errorf("%w: %.200s", errEvent, c.Error)
	}
	for _, choice := range c.Choices {
		if text := choice.Delta.Reasoning + choice.Delta.Content; text != "" {
			if a.pieces == 0 {
				a.first = time.Since(begin)
			}
			a.pieces++
			a.text += text
		}
	}
	if c.Usage != nil {
		a.tokens = c.Usage.Tokens
	}
	if c.Timings != nil {
		a.speed = c.Timings.Speed
	}
	return nil
}

// embedded asks the model beside for two vectors.
func (s *server) embedded(ctx context.Context) (string, error) {
	status, body, err := s.post(ctx, "/v1/embeddings", map[string]any{"input": []string{"a river", "a stream"}})
	if err != nil {
		return "", err
	}
	var v struct {
		Data []struct{ Embedding []float64 }
	}
	if err := json.Unmarshal(body, &v); err != nil || status != http.StatusOK || len(v.Data) != 2 || len(v.Data[0].Embedding) == 0 {
		return "", fmt.Errorf("%d %.300s", status, body)
	}
	return fmt.Sprintf("2 vectors of %d", len(v.Data[0].Embedding)), nil
}
