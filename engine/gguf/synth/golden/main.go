// Command golden runs the reference engine on small random models and writes
// what it expects after each token of a fixed list as golden files.
//
//	go run ./engine/gguf/synth/golden -server PATH/llama-server -o engine/model/testdata
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"onebit/engine/gguf"
	"onebit/engine/gguf/synth"
)

const steps = 40

func main() {
	server := flag.String("server", "llama-server", "the reference engine's executable")
	version := flag.String("version", "b11434", "its version, for the note of origin")
	dir := flag.String("o", ".", "folder to write to")
	only := flag.String("only", "", "make only the files whose name contains this")
	flag.Parse()
	for _, m := range models() {
		if !strings.Contains(m.name, *only) {
			continue
		}
		g, err := record(context.Background(), *server, m.spec)
		if err != nil {
			fmt.Fprintf(os.Stderr, "golden: %s: %v\n", m.name, err)
			os.Exit(1)
		}
		g.Origin = fmt.Sprintf("llama-server %s, CPU build, -fa off, %s", *version, time.Now().Format(time.DateOnly))
		path := filepath.Join(*dir, "synth-"+m.name+".json")
		if err := write(path, g); err != nil {
			fmt.Fprintln(os.Stderr, "golden:", err)
			os.Exit(1)
		}
		fmt.Println(path)
	}
}

// record makes the model, serves it and asks for every beginning of the tokens.
func record(ctx context.Context, server string, spec synth.Spec) (*synth.Golden, error) {
	file, err := synth.Bytes(spec)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(file)
	dir, err := os.MkdirTemp("", "golden")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "model.gguf")
	if err := os.WriteFile(path, file, 0o666); err != nil {
		return nil, err
	}
	url, stop, err := start(ctx, server, path)
	if err != nil {
		return nil, err
	}
	defer stop()
	plain, err := letter(file)
	if err != nil {
		return nil, err
	}
	g := &synth.Golden{SHA256: hex.EncodeToString(sum[:]), Spec: spec, Tokens: tokens(spec)}
	for n := 1; n <= len(g.Tokens); n++ {
		s, err := ask(ctx, url, g.Tokens[:n], plain)
		if err != nil {
			return nil, err
		}
		g.Steps = append(g.Steps, s)
	}
	return g, nil
}

// tokens returns a list of token ids that wanders over the vocabulary.
func tokens(spec synth.Spec) []int32 {
	ids := make([]int32, steps)
	x := uint32(2463534242)
	for i := range ids {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		ids[i] = int32(x % uint32(spec.Vocab))
	}
	return ids
}

// start starts the server and waits until it has loaded the model.
func start(ctx context.Context, server, model string) (url string, stop func(), err error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	addr := l.Addr().(*net.TCPAddr)
	l.Close()
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, server, "-m", model, "--host", "127.0.0.1",
		"--port", fmt.Sprint(addr.Port), "-t", "1", "-np", "1", "-fa", "off")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		cancel()
		return "", nil, err
	}
	stop = func() {
		cancel()
		_ = cmd.Wait() // it was killed: there is always an error
	}
	url = "http://" + addr.String()
	for range 300 {
		if get(ctx, url+"/health") {
			return url, stop, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	stop()
	return "", nil, fmt.Errorf("the server did not become ready:\n%s", log.String())
}

func get(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// letter returns the id of a token that is a letter.
func letter(file []byte) (int32, error) {
	f, err := gguf.Parse(file)
	if err != nil {
		return 0, err
	}
	list, _ := f.Strings("tokenizer.ggml.tokens")
	return int32(slices.Index(list, "e")), nil
}

// ask returns what the server expects after the tokens. The server tells no
// probabilities when it generates a part of a character, so it is made to
// generate the token called plain: the bias works on its choice, not on the
// probabilities that it tells.
func ask(ctx context.Context, url string, prompt []int32, plain int32) (synth.Step, error) {
	body, err := json.Marshal(map[string]any{
		"prompt": prompt, "n_predict": 1, "n_probs": 10, "temperature": 0, "cache_prompt": false,
		"logit_bias": [][2]int32{{plain, 1000}},
	})
	if err != nil {
		return synth.Step{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/completion", bytes.NewReader(body))
	if err != nil {
		return synth.Step{}, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return synth.Step{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return synth.Step{}, err
	}
	var answer struct {
		Evaluated int `json:"tokens_evaluated"`
		Probs     []struct {
			Top []struct {
				ID      int32   `json:"id"`
				LogProb float32 `json:"logprob"`
			} `json:"top_logprobs"`
		} `json:"completion_probabilities"`
	}
	if err := json.Unmarshal(b, &answer); err != nil {
		return synth.Step{}, err
	}
	if answer.Evaluated != len(prompt) || len(answer.Probs) != 1 || len(answer.Probs[0].Top) != 10 {
		return synth.Step{}, fmt.Errorf("unexpected answer: %s", b)
	}
	var s synth.Step
	for _, t := range answer.Probs[0].Top {
		s.IDs = append(s.IDs, t.ID)
		s.LogProbs = append(s.LogProbs, t.LogProb)
	}
	return s, nil
}

// write writes a golden file with one step a line.
func write(path string, g *synth.Golden) error {
	b, err := json.Marshal(g)
	if err != nil {
		return err
	}
	for _, key := range []string{`"sha256"`, `"spec"`, `"tokens"`, `"steps"`, `{"ids"`} {
		b = bytes.ReplaceAll(b, []byte(key), []byte("\n"+key))
	}
	return os.WriteFile(path, append(b, '\n'), 0o666)
}
